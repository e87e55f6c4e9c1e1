"""Tracks as a Perfetto trace, for ui.perfetto.dev.

Fields of messages have the numbers of Perfetto's ``perfetto_trace.proto``; comments give their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from gpusim.io.tracks import Label, Process, Slice, Track
from gpusim.io.wire import ascending_varint, field, fixed64, varint

STATE_CLEARED, NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags: numbers of names begin here; numbers are used here
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4  # TrackEvent.Type
UNMERGED = 2  # TrackDescriptor.SiblingMergeBehavior
EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering

_SEQUENCE = field(10, 1)  # trusted_packet_sequence_id: all packets are of one writer, so that they share the numbers
_FLAGS = field(13, NEEDS_STATE)  # sequence_flags


def encoded(processes: Iterable[Process]) -> Iterator[bytes]:
    """Yield the parts of the file, in order."""
    yield _packet(0, _SEQUENCE + field(13, STATE_CLEARED))
    writer = _Writer()
    for pid, process in enumerate(processes, 1):
        yield from writer.process(pid, process)


class _Writer:
    """Encodes the packets of a trace; names are written once and numbered."""

    def __init__(self) -> None:
        self._uuids = count(1)
        self._names: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._known: dict[Label, bytes] = {}

    def process(self, pid: int, process: Process) -> Iterator[bytes]:
        """Yield the packets of a process."""
        top = next(self._uuids)
        described = field(1, pid) + field(6, process.name)  # pid, process_name
        yield _descriptor(top, field(3, described) + field(11, EXPLICIT), pid - 1)  # process, child_ordering
        for rank, (name, tracks) in enumerate((("streams", process.streams), ("SMs", process.sms))):
            self._known = {}
            group = next(self._uuids)
            yield _descriptor(group, field(2, name) + field(5, top) + field(11, EXPLICIT), rank)  # name, parent_uuid
            for place, track in enumerate(tracks):
                uuid = next(self._uuids)
                yield _descriptor(uuid, field(2, track.name) + field(5, group), place)
                yield from self._slices(uuid, track)
        for rank, counter in enumerate(process.counters, 2):
            uuid = next(self._uuids)
            unit = field(8, field(6, "%"))  # counter, unit_name
            yield _descriptor(uuid, field(2, counter.name) + field(5, top) + unit, rank)
            for at, value in counter.values:
                # type, track_uuid, double_counter_value
                fields = field(9, COUNTER) + field(11, uuid) + field(44, value)
                yield _packet(at, _event(fields))

    def _slices(self, uuid: int, track: Track) -> Iterator[bytes]:
        """Yield for each slice a packet with its begin and one with its end."""
        on_track = field(11, uuid)  # track_uuid
        end = _event(field(9, SLICE_END) + on_track)  # type
        for part in track.slices:
            label = self._known.get(part.label)
            interned = b""
            if label is None:
                label, interned = self._label(part.label)
                self._known[part.label] = label
            begin = label + on_track + _flows(part) if part.leads_to or part.follows else label + on_track
            yield _packet(part.start_ns, _event(begin, interned))
            yield _packet(part.end_ns, end)

    def _label(self, label: Label) -> tuple[bytes, bytes]:
        """Return the fields of an event that begins a slice, and the names that come with it as it is the first."""
        new: list[bytes] = []
        name = _number(self._names, label.name, new, 2)  # event_names
        annotations = b""
        for key, value in label.details.items():
            kind = 6 if isinstance(value, str) else 4 if isinstance(value, int) else 5  # string, int, double_value
            number = _number(self._labels, key, new, 3)  # debug_annotation_names
            annotations += field(4, field(1, number) + field(kind, value))  # debug_annotations, name_iid
        return annotations + field(9, SLICE_BEGIN) + field(10, name), b"".join(new)  # type, name_iid


def _number(known: dict[str, int], text: str, new: list[bytes], table: int) -> int:
    """Return the number of a name; one that is new is added to its table, which comes with the packet."""
    if text not in known:
        known[text] = len(known) + 1
        new.append(field(table, field(1, known[text]) + field(2, text)))  # iid, name
    return known[text]


def _flows(part: Slice) -> bytes:
    begun = [fixed64(47, number) for number in part.leads_to]  # flow_ids
    return b"".join((*begun, *(fixed64(48, number) for number in part.follows)))  # terminating_flow_ids


def _descriptor(uuid: int, fields: bytes, rank: int) -> bytes:
    described = field(1, uuid) + fields + field(12, rank) + field(15, UNMERGED)  # uuid, sibling_order_rank
    return _packet(0, _SEQUENCE + _FLAGS + field(60, described))  # track_descriptor


def _event(event: bytes, interned: bytes = b"") -> bytes:
    names = field(12, interned) if interned else b""  # interned_data
    return _SEQUENCE + b"\x5a" + varint(len(event)) + event + names + _FLAGS  # track_event: field 11


def _packet(at_ns: int, fields: bytes) -> bytes:
    body = ascending_varint(at_ns) + fields
    return b"\x0a" + varint(len(body) + 1) + b"\x40" + body  # a Trace's field 1, with a timestamp
