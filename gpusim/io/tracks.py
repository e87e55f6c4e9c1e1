"""What a trace viewer shows of a replay: tracks of slices, and counters, whatever the format of the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Details = dict[str, str | int | float]


class Slice(NamedTuple):
    """Something that took time on a track.

    Attributes:
        start_ns, end_ns: whole nanoseconds from the start of the replay.
        name: what a viewer shows in it.
        details: what it shows beside it.
        leads_to, follows: numbers of dependencies that it ends or that it had to wait for.
    """

    start_ns: int
    end_ns: int
    name: str
    details: Details
    leads_to: tuple[int, ...] = ()
    follows: tuple[int, ...] = ()


class Track(NamedTuple):
    """Slices in the order of time, none of which begins before the one before it has ended."""

    name: str
    slices: tuple[Slice, ...]


class Counter(NamedTuple):
    """Mean over the SMs, %, from each of some times (ns) on."""

    name: str
    values: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Process:
    """One replay."""

    name: str
    streams: tuple[Track, ...]
    sms: tuple[Track, ...]
    counters: tuple[Counter, ...]
