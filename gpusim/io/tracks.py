"""Content of a trace viewer: tracks of slices, and counters, independent of the format of the file.

A long replay has millions of slices. Tracks are therefore made one after the other, as a writer comes to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Details = Mapping[str, str | int | float]
Kineto = Mapping[str, str | int | list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """Text of a slice in a viewer. Slices may share one, so that a writer encodes it once."""

    name: str  # text within the slice
    details: Details  # values beside it
    as_kineto: Kineto | None = None  # what PyTorch's profiler writes of GPU work, its category among it


class Slice(NamedTuple):
    """Something that took time on a track, in whole nanoseconds from the start of the replay."""

    start_ns: int
    end_ns: int
    label: Label
    leads_to: Sequence[int] = ()  # numbers of the dependencies that it ends
    follows: Sequence[int] = ()  # numbers of those that it had to wait for


class Track(NamedTuple):
    """Slices in time order that do not overlap; they can be iterated over once."""

    name: str
    slices: Iterable[Slice]


class Counter(NamedTuple):
    """Mean over the SMs, %, from each of some times (ns) on."""

    name: str
    values: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Process:
    """One replay. Its tracks can be iterated over once, those of the streams first."""

    name: str
    streams: Iterable[Track]
    sms: Iterable[Track]
    counters: Sequence[Counter]
    gpu: str = ""  # the product
    sm_count: int = 0
