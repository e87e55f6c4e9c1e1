"""The error of chosen plans: how much less they gained over plain streams on a GPU than was predicted.

The best of many predictions is too good on the mean: it is also chosen for what the model gets wrong (the winner's
curse). So a chosen plan is not given the error of co-runs that nobody chose, but that of chosen plans that were
measured: `run.py --errors` of experiments/hardware_check and experiments/control_worth writes it. A gain that is no
larger than the most by which one of them fell short of its prediction is a tie.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal

Kind = Literal["plan", "algorithms", "order"]
"""Kinds of choice: streams, algorithms and SMs; algorithms in the trace's streams; or the order of streams, too."""
MEASURED = Path(__file__).with_name("chosen.json")
LONG_US = 30.0  # mean time of an operation alone from which it counts as long [D]


@dataclass(frozen=True, slots=True)
class ChosenError:
    """The error that chosen plans had on one GPU, in points of percent of their gain over plain streams."""

    plans: int  # how many were measured
    bias: float  # predicted gain less measured gain, mean; positive where plans gained less than predicted
    size: float  # root mean square of the same differences
    most: float  # the largest of them: no plan measured fell shorter of its predicted gain


def chosen_error(gpu: str, operation_us: float, kind: Kind = "plan") -> ChosenError | None:
    """The error of chosen plans on a GPU, for a mean isolated time of an operation; None: none were measured there.

    Where no choice of algorithms was measured, it is that of plans, of which these are a part.
    """
    measured = known_errors().get(gpu, {})
    known = kind if kind in measured or kind != "algorithms" else "plan"
    values = measured.get(known, {}).get(length_of(operation_us))
    return None if values is None else ChosenError(**values)


def known_errors() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Measured errors of choices, by GPU, kind and length."""
    content: dict[str, dict[str, dict[str, dict[str, Any]]]] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return content


def smallest_gain(error: ChosenError | None) -> float:
    """The least predicted gain over plain streams (percent) that is more than the error of chosen plans."""
    return -inf if error is None else max(0.0, error.most)


def length_of(us: float) -> str:
    """Whether operations with this mean time (us) count as short or long."""
    return "short" if us < LONG_US else "long"
