"""Two small programs, and advice on them."""

from __future__ import annotations

from typing import Any

from tiny import kernel, stream, tiny

from gpusim import Program, Trace
from gpusim.choose.advise import Advice, advise
from gpusim.session import Session


def two(
    first_blocks: int = 2, second_blocks: int = 2, first_us: float = 10.0, second_us: float = 10.0, **of: Any
) -> Trace:
    """Two programs of one kernel each, whose blocks have an SM to themselves."""
    programs = [
        Program(name="a", streams=[stream("a", kernel("ka", first_blocks, first_us))], **of),
        Program(name="b", streams=[stream("b", kernel("kb", second_blocks, second_us))]),
    ]
    return Trace(name="two", device="tiny", programs=programs)


def advised(trace: Trace, **how: Any) -> Advice:
    return advise([trace], Session(tiny()), jobs=1, **how)


def by_mechanism(advice: Advice) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for choice in advice.choices:
        found.setdefault(choice.setting.mechanism, []).append(choice)
    return found
