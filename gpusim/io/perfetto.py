"""Tracks as a Perfetto trace, for ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackDescriptor, TrackEvent

from gpusim.io.tracks import Label, Process, Track


def encoded(processes: Iterable[Process]) -> Iterator[bytes]:
    """Yield the parts of the file, in order."""
    writer = _Writer()
    yield _part(sequence_flags=TracePacket.SEQ_INCREMENTAL_STATE_CLEARED).SerializeToString()  # numbers begin here
    for pid, process in enumerate(processes, 1):
        yield from map(Trace.SerializeToString, writer.process(pid, process))


def _part(**content: Any) -> Trace:
    """Return a trace of one packet; several one after the other are a trace.

    All packets are of one writer, so that they share the numbers of names.
    """
    given = {"timestamp": 0, "sequence_flags": TracePacket.SEQ_NEEDS_INCREMENTAL_STATE} | content
    return Trace(packet=[TracePacket(trusted_packet_sequence_id=1, **given)])


def _descriptor(uuid: int, rank: int, **content: Any) -> Trace:
    unmerged = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE
    described = TrackDescriptor(uuid=uuid, sibling_order_rank=rank, sibling_merge_behavior=unmerged, **content)
    return _part(track_descriptor=described)


class _Writer:
    """Makes the packets of a trace; names are written once and numbered."""

    def __init__(self) -> None:
        self._uuids = count(1)
        self._numbers: dict[tuple[str, str], int] = {}  # of names, by table and text
        self._known: dict[Label, Trace] = {}  # what begins a slice

    def process(self, pid: int, process: Process) -> Iterator[Trace]:
        """Yield the packets of a process; each may change as the next is made."""
        top, in_order = next(self._uuids), TrackDescriptor.EXPLICIT
        about = {"pid": pid, "process_name": process.name}
        yield _descriptor(top, pid - 1, process=about, child_ordering=in_order)
        for rank, (name, tracks) in enumerate((("streams", process.streams), ("SMs", process.sms))):
            self._known = {}
            group = next(self._uuids)
            yield _descriptor(group, rank, name=name, parent_uuid=top, child_ordering=in_order)
            for place, track in enumerate(tracks):
                uuid = next(self._uuids)
                yield _descriptor(uuid, place, name=track.name, parent_uuid=group)
                yield from self._slices(uuid, track)
        for rank, counter in enumerate(process.counters, 2):
            uuid = next(self._uuids)
            yield _descriptor(uuid, rank, name=counter.name, parent_uuid=top, counter={"unit_name": "%"})
            for at, value in counter.values:
                event = TrackEvent(type=TrackEvent.TYPE_COUNTER, track_uuid=uuid, double_counter_value=value)
                yield _part(timestamp=at, track_event=event)

    def _slices(self, uuid: int, track: Track) -> Iterator[Trace]:
        """Yield for each slice a packet with its begin and one with its end."""
        end = _part(track_event=TrackEvent(type=TrackEvent.TYPE_SLICE_END, track_uuid=uuid))
        for part in track.slices:
            if part.label not in self._known:
                yield self._named(part.label)
            begin = self._known[part.label]
            packet = begin.packet[0]
            packet.timestamp, event = part.start_ns, packet.track_event
            event.track_uuid, event.flow_ids[:], event.terminating_flow_ids[:] = uuid, part.leads_to, part.follows
            yield begin
            end.packet[0].timestamp = part.end_ns
            yield end

    def _named(self, label: Label) -> Trace:
        """Return a packet with the new names of a label, whose slices are known from then on."""
        names = _part()
        event = TrackEvent(type=TrackEvent.TYPE_SLICE_BEGIN, name_iid=self._number(names, "event_names", label.name))
        for key, value in label.details.items():
            kind = "string" if isinstance(value, str) else "int" if isinstance(value, int) else "double"
            number = self._number(names, "debug_annotation_names", key)
            event.debug_annotations.add(name_iid=number, **{f"{kind}_value": value})
        self._known[label] = _part(track_event=event)
        return names

    def _number(self, names: Trace, table: str, text: str) -> int:
        """Return the number of a name; a new one is added to what is yet to be written."""
        known = len(self._numbers)
        number = self._numbers.setdefault((table, text), known + 1)
        if number > known:
            getattr(names.packet[0].interned_data, table).add(iid=number, name=text)
        return number
