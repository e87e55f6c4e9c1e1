"""Which operator launched what, by the nesting on the host: the innermost one that was running on the same thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from gpusim.io.timeline import Timeline


class Span(NamedTuple):
    """An operator on the host."""

    start_us: float
    end_us: float
    thread: str  # on which it ran
    label: str  # its name, and what tells its calls apart


def name_by_nesting(timeline: Timeline, spans: Iterable[Span]) -> None:
    """Label the activities that have no label yet, where a host call that launched them is within a span."""
    launches: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for n, activity in enumerate(timeline.activities):
        call = activity.stream.process, activity.order
        if not activity.label and call in timeline.threads and call in timeline.launched_us:
            launches[timeline.threads[call]].append((timeline.launched_us[call], n))
    by_thread: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.thread in launches:
            by_thread[span.thread].append(span)
    for thread, of in by_thread.items():
        for n, label in _innermost(of, launches[thread]).items():
            timeline.activities[n] = replace(timeline.activities[n], label=label)


def _innermost(spans: Iterable[Span], launches: Iterable[tuple[float, int]]) -> Mapping[int, str]:
    """Label of the innermost span at each launch, by its number. Spans of a thread are nested in one another."""
    ordered = sorted(spans, key=lambda span: (span.start_us, -span.end_us))
    found: dict[int, str] = {}
    begun, open_spans = 0, list[Span]()
    for at_us, n in sorted(launches):
        while begun < len(ordered) and ordered[begun].start_us <= at_us:
            while open_spans and open_spans[-1].end_us <= ordered[begun].start_us:
                open_spans.pop()
            open_spans.append(ordered[begun])
            begun += 1
        while open_spans and open_spans[-1].end_us < at_us:
            open_spans.pop()
        if open_spans:
            found[n] = open_spans[-1].label
    return found
