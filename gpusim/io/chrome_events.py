"""Tracks as a JSON trace of Chrome's, which chrome://tracing, ui.perfetto.dev and others open.

A track is a thread. A slice is a complete event (``X``), a dependency a flow from within the slice that ends it (``s``)
to the beginning of the one that waited (``f``). Times are in microseconds, to a nanosecond. Kernels, copies and memsets
of streams have the category and the arguments that PyTorch's profiler (Kineto) gives them, so that analysers of its
profiles, `gpusim import` among them, read them; each replay is a device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from typing import Any

from gpusim.io.tracks import Label, Process, Slice, Track

Event = dict[str, Any]
DEPENDENCY = {"name": "waits for", "cat": "dependency"}
EVENTS_AT_ONCE = 1000  # that are joined before they are written

_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encoded(processes: Iterable[Process]) -> Iterator[bytes]:
    """Yield the parts of the file, in order."""
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n'
    gpus: list[Event] = []
    events = chain.from_iterable(_events(pid, process, gpus) for pid, process in enumerate(processes, 1))
    between = ""
    while some := list(islice(events, EVENTS_AT_ONCE)):
        yield (between + ",\n".join(some)).encode("ascii")
        between = ",\n"
    yield f'\n],"deviceProperties":{_json(gpus)}}}\n'.encode("ascii")


def _events(pid: int, process: Process, gpus: list[Event]) -> Iterator[str]:
    gpus.append({"id": pid - 1, "name": process.gpu, "numSms": process.sm_count})
    yield _json({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process.name}})
    yield _json({"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}})
    tids = count(1)
    for tracks in (process.streams, process.sms):
        known: dict[Label, tuple[str, str]] = {}
        for track, tid in zip(tracks, tids, strict=False):
            for what, value in (("name", track.name), ("sort_index", tid)):
                yield _json({"ph": "M", "pid": pid, "tid": tid, "name": f"thread_{what}", "args": {what: value}})
            yield from _slices({"pid": pid, "tid": tid}, track, known)
    for counter in process.counters:
        for at, percent in counter.values:
            yield _json({"ph": "C", "pid": pid, "name": counter.name, "ts": at / 1e3, "args": {"%": percent}})


def _slices(place: Event, track: Track, known: dict[Label, tuple[str, str]]) -> Iterator[str]:
    """Yield the events of a track; ``known`` has the name and the details of labels as JSON."""
    head = _json({"ph": "X", **place})[:-1]
    for part in track.slices:
        start, end, label, leads_to, follows = part
        texts = known.get(label)
        if texts is None:
            texts = known[label] = _texts(label, place["pid"] - 1)
        name, details = texts
        yield f'{head},"name":{name},"ts":{start / 1e3},"dur":{(end - start) / 1e3},"args":{details}}}'
        if leads_to or follows:
            yield from map(_json, _flows(place, part))


def _texts(label: Label, device: int) -> tuple[str, str]:
    """Name and arguments as JSON; of GPU work the category stands behind the name."""
    if label.as_kineto is None:
        return _json(label.name), _json(label.details)
    kineto = dict(label.as_kineto)
    category = _json(kineto.pop("cat"))
    return f'{_json(label.name)},"cat":{category}', _json({**label.details, **kineto, "device": device})


def _flows(place: Event, part: Slice) -> Iterator[Event]:
    for number in part.leads_to:
        yield {"ph": "s", **place, **DEPENDENCY, "id": number, "ts": part.start_ns / 1e3}
    for number in part.follows:
        yield {"ph": "f", "bp": "e", **place, **DEPENDENCY, "id": number, "ts": part.start_ns / 1e3}
