"""Targets of programs that share a GPU: a slowdown, or a time of a pass or request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite

from gpusim.common.errors import InputError, quote
from gpusim.common.numbers import MICROSECONDS

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
        raise InputError(None, "--slo", f"is {quote(text)}", TARGETS)
    if found[1]:
        return Target(name, slowdown=number)
    return Target(name, latency_us=number * MICROSECONDS[found[3]])
