"""Hashes of what can change a result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpusim import load_gpu
from gpusim.common import fingerprint

MODULES = {
    "__init__.py": "",
    "model.py": "from made_up.parts import (  # one\n    inner,  # two\n    rates,\n)\nfrom . import lazily as other\n"
    "if TYPE_CHECKING:\n    from made_up.checked import Only\n\n    import made_up.checked\n"
    "else:\n    import made_up.run\n",
    "lazily.py": "def f():\n    import made_up.late\n",
    "late.py": "",
    "run.py": "",
    "checked.py": "raise RuntimeError('imported')\n",
    "parts/__init__.py": "from .inner import x\n",
    "parts/inner.py": "x = 1\n",
    "parts/rates.py": "from json import dumps\n",
    "parts/not_imported.py": "raise RuntimeError('imported')\n",
    "beside.py": "raise RuntimeError('imported')\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that may be imported, called made_up."""
    folder = tmp_path / "made_up"
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    assert not any(name.partition(".")[0] == "made_up" for name in sys.modules), "nothing is imported"


def hashed(*modules: str) -> str:
    fingerprint.sources.cache_clear()
    return fingerprint.sources(*modules)


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ("model.py", True),
        ("lazily.py", True),
        ("late.py", True),
        ("run.py", True),
        ("checked.py", False),
        ("parts/__init__.py", True),
        ("parts/inner.py", True),
        ("parts/rates.py", True),
        ("parts/not_imported.py", False),
        ("beside.py", False),
    ],
)
def test_sources_are_a_module_and_what_it_imports(package: Path, changed: str, counts: bool) -> None:
    before = hashed("made_up.model")
    (package / changed).write_text(MODULES[changed] + "changed = 1\n")
    assert (hashed("made_up.model") != before) == counts


SOURCE = '''# cython: boundscheck=False
"""A module."""
from math import inf

LIMIT = 2.0
"""A limit."""


def f(x: float, y: float = inf) -> float:
    """Add."""
    return x + y  # both
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A module.", "One module."),
        ('"""A limit."""', ""),
        ("# both", "# the two"),
        ('    """Add."""\n', ""),
        ("return x + y", "return (\n        x\n        + y\n    )"),
        ("\n", "\r\n"),
    ],
)
def test_rewording_keeps_the_meaning(old: str, new: str) -> None:
    assert old in SOURCE and fingerprint.meaning(SOURCE.replace(old, new)) == fingerprint.meaning(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.0", "2.5"),
        ("x + y", "x - y"),
        ("x + y", "y + x"),
        ("boundscheck=False", "boundscheck=True"),
        ("x: float,", "x: int,"),
        (" = inf", ""),
        ("LIMIT", "MOST"),
        ("return x + y", "return 'x + y'"),
    ],
)
def test_whatever_runs_is_part_of_the_meaning(old: str, new: str) -> None:
    assert old in SOURCE and fingerprint.meaning(SOURCE.replace(old, new)) != fingerprint.meaning(SOURCE)


def test_a_source_that_does_not_parse_counts_as_it_is(package: Path) -> None:
    (package / "late.py").write_text("def (: # one")
    before = hashed("made_up.model")
    (package / "late.py").write_text("def (: # two")
    assert hashed("made_up.model") != before


def test_python_files_count_by_their_meaning(tmp_path: Path) -> None:
    policy = tmp_path / "policy.py"
    policy.write_text("x = 1\n")
    found = [fingerprint.files([policy])]
    for text in ("# one\nx = 1\n", "x = 2\n"):
        policy.write_text(text)
        found.append(fingerprint.files([policy]))
    assert found[0] == found[1] != found[2]


def test_a_package_stands_for_all_modules_in_it(package: Path) -> None:
    before = hashed("made_up.parts")
    (package / "parts" / "not_imported.py").write_text("")
    assert hashed("made_up.parts") != before


def test_a_module_that_moves_and_declarations_of_a_compiled_one_count(package: Path) -> None:
    found = [hashed("made_up.model")]
    (package / "late.pxd").write_text("cdef int x")
    found.append(hashed("made_up.model"))
    (package / "lazily.py").write_text("def f():\n    import made_up.last\n")
    (package / "late.py").rename(package / "last.py")
    (package / "late.pxd").rename(package / "last.pxd")
    found.append(hashed("made_up.model"))
    assert len(set(found)) == 3


def test_no_such_module(package: Path) -> None:
    for name in ("made_up.none", "no_such_package_at_all", ""):
        with pytest.raises(ModuleNotFoundError):
            hashed(name)


def test_the_model_is_what_a_replay_imports() -> None:
    """Every module of gpusim that any policy's replay imports, and so may depend on, is in the model's hash."""
    script = (
        "import sys; from pathlib import Path; from gpusim import load_gpu, load_trace, replay\n"
        "from gpusim.policies.registry import policies\n"
        "policies(); replay(load_trace('traces/spaa20_table1.json'), load_gpu('k40c'), 'leftover').metrics\n"
        "print(*sorted(name for name in sys.modules if name.startswith('gpusim.')))"
    )
    root = Path(__file__).resolve().parent.parent
    ran = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    imported = set(ran.stdout.split()) - {"gpusim.trace.file"}  # what a trace holds counts, not how it was read
    assert "gpusim.engine.core" in imported and "gpusim.results.metrics" in imported
    read: set[str] = set()
    known = fingerprint.module_file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "module_file", lambda name, *found: (read.add(name), known(name, *found))[1])
        hashed("gpusim.session", "gpusim.policies")
    assert imported <= read


def test_data_is_told_apart_by_every_number_of_a_gpu() -> None:
    gpu = load_gpu("h200")
    others = [
        replace(gpu, sm_count=130),
        replace(gpu, model=gpu.model.model_copy(update={"block_jitter": 0.0})),
        replace(gpu, limits=gpu.limits.model_copy(update={"max_warps_per_sm": 32})),
    ]
    assert len({fingerprint.data(one) for one in (gpu, *others)}) == 4
    assert fingerprint.data({"a": 1, "b": [gpu]}) == fingerprint.data({"b": [gpu], "a": 1})
    with pytest.raises(TypeError, match="has no fingerprint"):
        fingerprint.data(object())


def test_files_are_told_apart_by_name_content_and_order(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("x")
    b.write_text("y")
    found = [fingerprint.files([a, b]), fingerprint.files([b, a]), fingerprint.files([a])]
    a.write_text("xb")
    b.write_text("")
    assert len({*found, fingerprint.files([a, b])}) == 4
