"""Measures the error of chosen plans that `gpusim select` prints, from plans that were predicted and measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import fsum, sqrt
from typing import Any

from gpusim.choose.chosen import MEASURED, ChosenError, Kind, known_errors, length_of
from gpusim.common.files import write_text

REGRET_PERCENT = 1.5  # asked for, of what `gpusim select` recommends


def errors_of(points: Iterable[tuple[float, float, float]]) -> dict[str, dict[str, Any]]:
    """The error of chosen plans by length of their operations, for `chosen.json`.

    Args:
        points: of each plan the mean time of an operation alone (us), and its predicted and its measured gain over
            plain streams (percent).
    """
    found: dict[str, list[float]] = {}
    for us, predicted, measured in points:
        found.setdefault(length_of(us), []).append(predicted - measured)
    return {
        length: asdict(
            ChosenError(
                len(errors),
                round(fsum(errors) / len(errors), 2),
                round(sqrt(fsum(error * error for error in errors) / len(errors)), 2),
                round(max(errors), 2),
            )
        )
        for length, errors in sorted(found.items())
    }


def write_errors(gpu: str, found: Mapping[Kind, Iterable[tuple[float, float, float]]]) -> None:
    """Write what was measured of chosen plans on a GPU to `MEASURED`: by kind, the points that `errors_of` takes."""
    known = known_errors() | {gpu: {kind: errors_of(points) for kind, points in found.items()}}
    write_text(MEASURED, json.dumps(known, indent=2) + "\n")
