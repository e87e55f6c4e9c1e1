"""A part of a timeline: one step of PyTorch's profiler, one named range, or a window of time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from gpusim.common.errors import InputError, closest, quote, the_first
from gpusim.io.timeline import Activity, Range, Timeline

STEP = re.compile(r"ProfilerStep#([0-9]+)")  # the annotations of torch.profiler's step()
SHOWN = 12  # names in an error


@dataclass(frozen=True)
class Part:
    """Which part of a profile to import; what is None does not limit."""

    step: int | None = None  # number of a ProfilerStep
    range: str | None = None  # name of a range; ``NAME@3`` is the third of that name
    from_us: float | None = None  # from the first activity of the GPU, as the next
    to_us: float | None = None

    def __bool__(self) -> bool:
        return self != Part()


def part_of(timeline: Timeline, part: Part, path: Path) -> Timeline:
    """The activities of a part, with a remark that says which.

    What the host launched during a step or range belongs to it, whichever thread launched it and whenever it ran. Of
    activities whose launch the profile does not tell, those that began during it. A window holds what began in it.
    """
    chosen, said = list(timeline.activities), []
    first_us = min((activity.start_us for activity in timeline.activities), default=0.0)
    if part.step is not None:
        named = [one for one in timeline.ranges if (found := STEP.fullmatch(one.name)) and int(found[1]) == part.step]
        if not named:
            raise InputError(path, "step", f"{part.step} is not in the profile", _steps(timeline.ranges))
        chosen = _during(timeline, chosen, named[0])
        said.append(f"step {part.step}")
    if part.range is not None:
        one, which = _named(timeline.ranges, part.range, path)
        chosen = _during(timeline, chosen, one)
        said.append(which)
    if part.from_us is not None or part.to_us is not None:
        begin, end = part.from_us or 0.0, inf if part.to_us is None else part.to_us
        if end <= begin:
            raise InputError(path, "to_us", f"is {end:g} us", f"more than {begin:g} us, where the part begins")
        chosen = [one for one in chosen if begin <= one.start_us - first_us < end]
        until = " us on" if end == inf else f" to {end:.12g} us"
        said.append(f"the time from {begin:.12g}{until}")
    if not chosen:
        whole_us = max((one.end_us for one in timeline.activities), default=0.0) - first_us
        expected = f"a part in which the GPU worked; the profile is {whole_us:.0f} us long"
        raise InputError(path, "", f"has no GPU activity in {' and '.join(said)}", expected)
    left = len(timeline.activities) - len(chosen)
    remark = f"Only {' and '.join(said)}: {left} of {len(timeline.activities)} GPU activities are left out."
    return replace(timeline, activities=chosen, remarks=[*timeline.remarks, remark])


def _during(timeline: Timeline, activities: Iterable[Activity], one: Range) -> list[Activity]:
    """Work that was launched during a range."""
    launched = timeline.launched_us
    return [
        activity
        for activity in activities
        if one.start_us <= launched.get((activity.stream.process, activity.order), activity.start_us) < one.end_us
    ]


def _named(ranges: Iterable[Range], name: str, path: Path) -> tuple[Range, str]:
    """The range of a name, and which it is in words."""
    ordered = sorted(ranges, key=lambda one: (one.start_us, -one.end_us))
    same = [one for one in ordered if one.name == name]
    if same:
        more = f", the first of {len(same)} of that name (--range {name}@2 is the next)" if len(same) > 1 else ""
        return same[0], f"range {name}{more}"
    plain, at, number = name.rpartition("@")
    same = [one for one in ordered if one.name == plain]
    if at and re.fullmatch(r"[1-9][0-9]{0,8}", number) and same:
        if int(number) > len(same):
            raise InputError(path, "range", f"{quote(name)} is not there", f"{plain}@1 to {plain}@{len(same)}")
        return same[int(number) - 1], f"range {name}"
    raise InputError(path, "range", f"{quote(name)} is not in the profile", _names(ordered, name))


def _names(ranges: Iterable[Range], name: str) -> str:
    counts = Counter(one.name for one in ranges)
    if not counts:
        return "a profile with ranges: NVTX under nsys --trace=cuda,nvtx, record_function or profiler steps in PyTorch"
    shown = (f"{one} ({count})" if count > 1 else one for one, count in counts.most_common())
    near = closest(name, list(counts))
    return f"one of {the_first(shown, SHOWN)}" + (f"; did you mean {near}?" if near else "")


def _steps(ranges: Iterable[Range]) -> str:
    numbers = sorted({int(found[1]) for one in ranges if (found := STEP.fullmatch(one.name))})
    if not numbers:
        return "a profile with steps, of torch.profiler.profile whose step() is called; it has none"
    if len(numbers) > SHOWN and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"one of the steps {numbers[0]} to {numbers[-1]}"
    return f"one of the steps {', '.join(map(str, numbers[:SHOWN]))}"
