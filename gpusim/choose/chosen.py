"""The error of chosen plans: what they gained over plain streams on a GPU, of what was predicted.

The best of many predictions is too good on the mean: it is also chosen for what the model gets wrong (the winner's
curse). So a chosen plan is not given the error of co-runs that nobody chose, but that of chosen plans that were
measured: `run.py --errors` of experiments/control_worth writes it. They gained a share of what was predicted, and so
the expected gain of a plan is this share of its predicted gain. One such plan in ten falls short of its expected gain
by a limit or more. A plan is recommended if its expected gain exceeds this limit: then nine in ten should gain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ChoiceKind = Literal["plan", "algorithms", "order"]
"""Kinds of choice: streams, algorithms and SMs; algorithms in the trace's streams; or the order of streams, too."""
MEASURED = Path(__file__).with_name("chosen.json")
LONG_US = 30.0  # mean time of an operation alone from which it counts as long [D]
ONE_IN_TEN = 1.2816  # standard deviations by which one error in ten exceeds the mean, if they are normal


@dataclass(frozen=True, slots=True)
class ChosenError:
    """How the gains of chosen plans over plain streams turned out on one GPU."""

    plans: int  # how many were measured
    share: float  # of the predicted gain that was measured: slope of the line through 0 with the least squares
    size: float  # standard deviation of the measured gains about that line, points of percent

    def expected(self, predicted: float) -> float:
        """The gain to expect of a plan with a predicted gain; both in percent. A loss is expected as predicted."""
        return self.share * predicted if predicted > 0.0 else predicted

    @property
    def limit(self) -> float:
        """Shortfall from the expected gain that one plan in ten exceeds, percentage points."""
        return ONE_IN_TEN * self.size


def expected_gain(predicted: float, error: ChosenError | None) -> float:
    """The gain to expect of a chosen plan, percent: the predicted one where no chosen plan was measured."""
    return predicted if error is None else error.expected(predicted)


def is_sure(predicted: float, error: ChosenError | None) -> bool:
    """Whether a predicted gain (percent) counts: nine in ten such choices gain, or none was measured."""
    return error is None or error.expected(predicted) > error.limit


def steps_taken(steps: Iterable[tuple[float, ChosenError | None]]) -> list[int]:
    """Numbers of the steps to take up from plain streams, which are step 0.

    Each has its predicted gain over plain streams (percent) and the error of such choices. A step is taken if its gain
    over the last one that was taken is sure.
    """
    taken, gain = [0], 0.0
    for number, (predicted, error) in enumerate(steps, 1):
        if is_sure(100.0 * ((100.0 + predicted) / (100.0 + gain) - 1.0), error):
            taken.append(number)
            gain = predicted
    return taken


def chosen_error(gpu: str, operation_us: float, *kinds: ChoiceKind) -> ChosenError | None:
    """The error of chosen plans on a GPU, for a mean isolated time of an operation; None: none were measured there.

    It is of the first of the kinds that was measured.
    """
    known = json.loads(MEASURED.read_text(encoding="utf-8")).get(gpu, {})  # by kind and length
    found = (known.get(kind, {}).get(length_of(operation_us)) for kind in kinds)
    return next((ChosenError(**values) for values in found if values is not None), None)


def length_of(us: float) -> str:
    """Whether operations with this mean time (us) count as short or long."""
    return "short" if us < LONG_US else "long"
