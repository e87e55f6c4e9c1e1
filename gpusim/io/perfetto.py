"""Tracks as a Perfetto trace, for ui.perfetto.dev; the package `perfetto` defines its protobuf messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError
from gpusim.io.tracks import Counter, Process, Slice, Track

SEQUENCE = 1  # all packets are of one writer, so that they share the numbers of names


def require_package(path: str | Path) -> None:
    """Refuses to write without the package.

    Raises:
        InputError: it is missing, or the protobuf beside it is one that it does not work with.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: F401
    except Exception as error:  # protobuf raises what it likes where versions do not go together
        expected = "pip install 'gpusim[perfetto]', or a file that ends in .json"
        problem = f"needs the package perfetto ({type(error).__name__}: {error})"
        raise InputError(path, "timeline", problem, expected) from None


def encoded(processes: Sequence[Process]) -> Iterator[bytes]:
    """The parts of the file, in order."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    _Writer(trace).write(processes)
    yield trace.SerializeToString(deterministic=True)


class _Writer:
    """Adds packets to a trace; names are written once and numbered."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._uuids = count(1)
        self._names: dict[str, int] = {}
        self._labels: dict[str, int] = {}

    def write(self, processes: Sequence[Process]) -> None:
        self._packet().sequence_flags = 1  # SEQ_INCREMENTAL_STATE_CLEARED: numbers of names begin here
        for pid, process in enumerate(processes, 1):
            top = self._descriptor(None, pid - 1)
            top.process.pid = pid
            top.process.process_name = process.name
            top.child_ordering = top.EXPLICIT
            for rank, (name, tracks) in enumerate((("streams", process.streams), ("SMs", process.sms))):
                group = self._descriptor(top, rank, name)
                group.child_ordering = group.EXPLICIT
                for place, track in enumerate(tracks):
                    self._slices(self._descriptor(group, place, track.name).uuid, track)
            for rank, counter in enumerate(process.counters, 2):
                descriptor = self._descriptor(top, rank, counter.name)
                descriptor.counter.unit_name = "%"
                self._values(descriptor.uuid, counter)

    def _descriptor(self, parent: Any, rank: int, name: str = "") -> Any:
        descriptor = self._packet().track_descriptor
        descriptor.uuid = next(self._uuids)
        descriptor.sibling_order_rank = rank
        descriptor.sibling_merge_behavior = descriptor.SIBLING_MERGE_BEHAVIOR_NONE
        if parent is not None:
            descriptor.parent_uuid = parent.uuid
            descriptor.name = name
        return descriptor

    def _slices(self, uuid: int, track: Track) -> None:
        for part in track.slices:
            self._begin(uuid, part)
            event = self._event(part.end_ns, uuid)
            event.type = event.TYPE_SLICE_END

    def _begin(self, uuid: int, part: Slice) -> None:
        packet = self._packet(part.start_ns)
        event = packet.track_event
        event.type, event.track_uuid = event.TYPE_SLICE_BEGIN, uuid
        event.name_iid = self._number(self._names, part.name, packet, "event_names")
        event.flow_ids.extend(part.leads_to)
        event.terminating_flow_ids.extend(part.follows)
        for label, value in part.details.items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._number(self._labels, label, packet, "debug_annotation_names")
            if isinstance(value, str):
                annotation.string_value = value
            elif isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.double_value = value

    def _values(self, uuid: int, counter: Counter) -> None:
        for at, value in counter.values:
            event = self._event(at, uuid)
            event.type = event.TYPE_COUNTER
            event.double_counter_value = value

    def _event(self, at: int, uuid: int) -> Any:
        event = self._packet(at).track_event
        event.track_uuid = uuid
        return event

    def _number(self, known: dict[str, int], text: str, packet: Any, table: str) -> int:
        """The number of a name, which comes with the packet that needs it first."""
        if text not in known:
            known[text] = len(known) + 1
            entry = getattr(packet.interned_data, table).add()
            entry.iid, entry.name = known[text], text
        return known[text]

    def _packet(self, at: int = 0) -> Any:
        packet = self._trace.packet.add()
        packet.timestamp = at
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.sequence_flags = 2  # SEQ_NEEDS_INCREMENTAL_STATE
        return packet
