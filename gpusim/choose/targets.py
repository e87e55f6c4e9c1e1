"""Targets of programs that share a GPU: a slowdown, or a time of a pass or request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from gpusim.common.errors import InputError, expected_one_of, quote
from gpusim.common.numbers import MICROSECONDS
from gpusim.common.tables import number
from gpusim.results.metrics import TARGET_PERCENTILE, WARM_UP, latencies_us, percentile
from gpusim.results.runs import Replayed

TARGETS = "PROGRAM=x1.2 or PROGRAM=5ms: a slowdown, or a time with its unit"


@dataclass(frozen=True)
class Target:
    """Target of a program: a slowdown, or a time for one pass or request."""

    program: str  # its name
    slowdown: float | None = None  # most, over the program alone on the whole GPU; None: a time is given
    latency_us: float | None = None  # most time of a pass; with arrivals the 95th percentile of its requests

    def __str__(self) -> str:
        """As `target_of` reads it."""
        return f"{self.program}=" + (f"x{self.slowdown:g}" if self.slowdown is not None else f"{self.latency_us:g}us")

    def over(self, slowdown: Mapping[str, float], latency_us: Mapping[str, float]) -> float:
        """By which factor programs with these values miss it; 1 or less: it is kept."""
        if self.slowdown is not None:
            return round(slowdown[self.program] / self.slowdown, 9)  # x1.9 holds for 1.9000000000000001
        assert self.latency_us is not None
        return round(latency_us[self.program] / self.latency_us, 9)

    def held(self, slowdown: Mapping[str, float], latency_us: Mapping[str, float]) -> bool:
        """Whether programs with these values keep it."""
        return self.over(slowdown, latency_us) <= 1.0

    def value(self, slowdown: Mapping[str, float], latency_us: Mapping[str, float]) -> str:
        """What it limits, of programs with these values."""
        if self.slowdown is not None:
            return f"{number(slowdown[self.program], 2)}x"
        return f"{number(latency_us[self.program])} µs"

    def reached(self, slowdown: Mapping[str, float], latency_us: Mapping[str, float]) -> str:
        """The smallest value that programs with these values keep, as `target_of` reads it, rounded up."""
        if self.slowdown is not None:
            return f"x{_up(slowdown[self.program]):.12g}"
        return f"{_up(latency_us[self.program]):.12g}us"


def _up(value: float) -> float:
    """Round up to hundredths; a program that never ends has no such value."""
    return ceil(round(100.0 * value, 6)) / 100.0 if isfinite(value) else value


def target_of(text: str) -> Target:
    """Read ``PROGRAM=x1.2`` or ``PROGRAM=5ms``."""
    name, _, value = text.rpartition("=")
    found = re.fullmatch(r"x([0-9]+(?:\.[0-9]+)?)|([0-9]+(?:\.[0-9]+)?)(us|ms|s)", value)
    number = float(found[1] or found[2]) if found else 0.0
    if not (name and found and number > 0.0):
        raise InputError(None, "targets", f"is {quote(text)}", TARGETS)
    if found[1]:
        return Target(name, slowdown=number)
    return Target(name, latency_us=number * MICROSECONDS[found[3]])


def targets_of(texts: Iterable[str | Target], programs: Sequence[str]) -> tuple[Target, ...]:
    """Read the targets of some programs."""
    found = tuple(target_of(one) if isinstance(one, str) else one for one in texts)
    for target in found:
        if target.program not in programs:
            problem = f"names program {quote(target.program)}"
            raise InputError(None, "targets", problem, expected_one_of(programs, target.program))
    return found


def passes_us(result: Replayed) -> dict[str, list[float]]:
    """Times of requests, without the first `WARM_UP`; of a program without arrivals the time of its one pass."""
    once = {run.program: [run.end_us - run.release_us] for run in result.program_runs}
    return once | latencies_us(result, WARM_UP)


def values_of(result: Replayed) -> tuple[dict[str, float], dict[str, float]]:
    """What targets limit, of each program in a replay without restarts: slowdown, and time of a pass or request, us.

    The slowdown is of all that a program does, its requests together.
    """
    times = {name: percentile(of, TARGET_PERCENTILE) for name, of in passes_us(result).items()}
    return {run.program: run.slowdown for run in result.program_runs}, times
