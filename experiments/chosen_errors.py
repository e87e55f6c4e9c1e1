"""Measures the error of chosen plans that `gpusim select` prints, from plans that were predicted and measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum, sqrt
from typing import Any

from gpusim.choose.chosen import MEASURED, ChoiceKind, ChosenError, length_of
from gpusim.common.files import write_text
from gpusim.common.tables import grouped

REGRET_PERCENT = 1.5  # asked for, of what `gpusim select` recommends


@dataclass(frozen=True)
class Point:
    """A chosen plan that was measured.

    Attributes:
        workload: what it is a plan for.
        operation_us: mean time of an operation of the workload alone, us.
        predicted, measured: gain over plain streams, percent.
    """

    workload: str
    operation_us: float
    predicted: float
    measured: float

    @property
    def gains(self) -> tuple[float, float]:
        """The predicted and the measured gain."""
        return self.predicted, self.measured


Evidence = Mapping[ChoiceKind, Sequence[Point]]
"""Chosen plans that were measured, by kind of choice."""


def error_without(workload: str, operation_us: float, points: Iterable[Point]) -> ChosenError | None:
    """The error of chosen plans for other workloads whose operations are as long; None: there are none."""
    length = length_of(operation_us)
    others = [one for one in points if one.workload != workload and length_of(one.operation_us) == length]
    gains = [one.gains for one in others if one.predicted > 0.0]
    return error_of(gains) if gains else None


def error_of(gains: Sequence[tuple[float, float]]) -> ChosenError:
    """The error of chosen plans, of the predicted and the measured gain of each over plain streams (percent)."""
    share = max(0.0, fsum(p * m for p, m in gains) / fsum(p * p for p, _ in gains))
    squares = fsum((m - share * p) ** 2 for p, m in gains)
    return ChosenError(len(gains), round(share, 3), round(sqrt(squares / max(1, len(gains) - 1)), 2))


def errors_of(points: Iterable[Point]) -> dict[str, dict[str, Any]]:
    """The error of chosen plans by length of their operations, for `chosen.json`."""
    found = grouped((point for point in points if point.predicted > 0.0), lambda point: length_of(point.operation_us))
    return {length: asdict(error_of([one.gains for one in mine])) for length, mine in sorted(found.items())}


def write_errors(found: Mapping[str, Evidence]) -> None:
    """Write what was measured of chosen plans to `MEASURED`, by GPU and kind of choice."""
    known = {
        gpu: {kind: errors_of(points) for kind, points in of_gpu.items() if points} for gpu, of_gpu in found.items()
    }
    write_text(MEASURED, json.dumps(known, indent=2) + "\n")
