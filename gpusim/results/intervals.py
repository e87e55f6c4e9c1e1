"""Intervals of time as NumPy arrays: their unions and intersections, and when each SM held the blocks of a launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from gpusim.results.runs import Replayed

Times = npt.NDArray[np.float64]  # starts and ends of intervals, us: two rows
Indices = npt.NDArray[np.int64]


def by_sm(result: Replayed) -> list[tuple[Times, Indices]]:
    """Return the spans of all launches on each SM, by start, and whose each is."""
    columns = [columns for _, columns in result.placements.launches]
    sms, starts, ends = (np.concatenate([np.empty(0), *(np.asarray(one[at]) for one in columns)]) for at in (0, 2, 3))
    owners = np.repeat(np.arange(len(columns)), [len(one[0]) for one in columns])
    order = np.lexsort((starts, sms))
    cuts = np.searchsorted(sms[order], np.arange(1, result.usage.sms))
    parts = np.split(order, cuts) if result.usage.sms else []
    return [(np.array([starts[part], ends[part]]), owners[part]) for part in parts]


def covered_us(on_sm: Iterable[tuple[Times, Indices]], chosen: Sequence[bool]) -> list[float]:
    """Return the lengths of the intervals in which an SM holds a block of the launches that are chosen, us."""
    of = np.array(chosen, dtype=bool)
    return [us for spans, owners in on_sm for us in lengths(merged(spans[:, of[owners]]))]


def overlapping(spans: Times, owners: Indices) -> set[int]:
    """Return the owners of spans that overlap another owner's; the spans are in the order of their starts."""
    starts, ends = spans
    found: set[int] = set()
    if not (starts[1:] < np.maximum.accumulate(ends)[:-1]).any():
        return found
    present: list[tuple[float, int]] = []  # until when
    last = -inf
    for start, end, owner in zip(starts.tolist(), ends.tolist(), owners.tolist(), strict=True):
        present = [span for span in present if span[0] > start] if start < last else []
        if present and end > start and (others := {other for _, other in present if other != owner}):
            found |= others | {owner}
        present.append((end, owner))
        last = max(last, end)
    return found


def union(*intervals: npt.ArrayLike) -> Times:
    """Return the union of some intervals, as disjoint intervals in ascending order."""
    every = np.concatenate([np.empty((2, 0)), *intervals], axis=1)
    return merged(every[:, every[0].argsort()])


def merged(spans: Times) -> Times:
    """Return the `union` of spans that are sorted by start."""
    starts, last = spans[0], np.maximum.accumulate(spans[1])
    begins = starts > np.concatenate(([-inf], last))[:-1]
    ends = np.concatenate((begins[1:], [True]))[: len(starts)]
    found = np.array([starts[begins], last[ends]])
    return found[:, found[1] > found[0]]


def common(some: Times, others: Times) -> Times:
    """Return the intersection of two unions; all three are disjoint intervals in ascending order."""
    cuts = np.unique(np.concatenate((some, others), axis=None))
    inside = [np.searchsorted(of[0], cuts, "right") > np.searchsorted(of[1], cuts, "right") for of in (some, others)]
    both = np.flatnonzero(inside[0] & inside[1])
    return np.array([cuts[both], cuts[both + 1]])


def lengths(intervals: Times) -> list[float]:
    """Return the length of each interval, us."""
    found: list[float] = (intervals[1] - intervals[0]).tolist()
    return found
