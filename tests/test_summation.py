"""Sums that results depend on are exactly rounded: the builtin `sum` is compensated from Python 3.12 on, before not."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterable
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from tiny import kernel, stream, tiny, trace

from gpusim import load_gpu, load_trace
from gpusim.policies.registry import policies
from gpusim.results.metrics import metrics
from gpusim.session import Session

ROOT = Path(__file__).resolve().parent.parent
POLICIES = ["serial", "leftover", "even", "inter-sm", "smk", "warped-slicer"]
BUILTIN = sum


def compensated(values: Iterable[Any], /, start: Any = 0) -> Any:
    """As Python 3.12 and later sum floats, or better."""
    found = list(values)
    return fsum([start, *found]) if any(isinstance(value, float) for value in found) else BUILTIN(found, start)


def refused(values: Iterable[Any], /, start: Any = 0) -> Any:
    """Only whole numbers may be summed by the builtin in the package."""
    found = list(values)
    caller = sys._getframe(1).f_globals.get("__name__", "")
    assert not (caller.startswith("gpusim") and any(isinstance(value, float) for value in found)), caller
    return BUILTIN(found, start)


def looks_real(term: ast.expr) -> bool:
    """Whether what is summed divides, holds a real number, or is named as a time, rate, share or progress is.

    Conditions are counted, not summed: neither a comparison nor what comes after an `if` is looked at.
    """
    words = ("_us", "ms", "rate", "rates", "share", "shares", "progress", "figures")
    parts = [term]
    if isinstance(term, ast.GeneratorExp | ast.ListComp):
        parts = [term.elt, *(generator.iter for generator in term.generators)]
    nodes = [node for part in parts if not isinstance(part, ast.Compare) for node in ast.walk(part)]
    names = [getattr(node, "attr", getattr(node, "id", "")) for node in nodes]
    return any(
        isinstance(node, ast.Div) or (isinstance(node, ast.Constant) and isinstance(node.value, float))
        for node in nodes
    ) or any(name == word or name.endswith(f"_{word.lstrip('_')}") for name in names for word in words)


def sums(path: Path) -> list[ast.Call]:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "sum"]


@pytest.mark.parametrize("folder", ["gpusim", "experiments"])
def test_no_builtin_sum_looks_like_one_of_reals(folder: str) -> None:
    paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if "record" not in path.parts]
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in paths
        for call in sums(path)
        if looks_real(call.args[0])
    ]
    assert not found, f"math.fsum gives the same on every Python: {found}"


def everything() -> list[str]:
    """What a small replay under each of the policies gives, and what is made of it."""
    gpu = tiny(sm_count=8, jitter=0.02)
    small = trace(
        stream("a", kernel("a1", 37, 11.3, threads=128), kernel("a2", 64, 7.7, threads=256)),
        stream("b", kernel("b1", 51, 13.1, threads=128), kernel("b2", 9, 3.3, threads=512)),
    )
    session = Session(gpu, gpu)
    asked = [(policy, restart) for policy in sorted(set(POLICIES) & set(policies())) for restart in (False, True)]
    found = [session.replay(small, policy, restart=restart) for policy, restart in asked]
    return [repr((vars(result), metrics(result))) for result in found]


@pytest.mark.parametrize("other", [compensated, refused])
def test_another_builtin_sum_changes_no_bit(monkeypatch: pytest.MonkeyPatch, other: Callable[..., Any]) -> None:
    before = everything()
    monkeypatch.setattr(builtins, "sum", other)
    assert everything() == before


def test_another_builtin_sum_changes_no_bit_of_a_recorded_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = load_trace(ROOT / "traces" / "inception_3a.json.gz")
    gpu = load_gpu(recorded.device)
    before = repr(vars(Session(gpu).replay(recorded, "leftover")))
    monkeypatch.setattr(builtins, "sum", refused)
    assert repr(vars(Session(gpu).replay(recorded, "leftover"))) == before
