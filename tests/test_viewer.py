"""Timelines for viewers: both formats are read back, and say what the replay did."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiny import LATENCY_US, convolution, copy, kernel, launch, stream, tiny, trace

import gpusim
from gpusim.cli import main
from gpusim.common.errors import InputError
from gpusim.io.viewer import save_timeline
from gpusim.results.result import Result
from gpusim.trace.format import Trace

MODULE = Path(__file__).parents[1] / "traces" / "inception_3a.json.gz"
POLICIES = ("serial", "leftover", "inter-sm", "even", "smk")
ENDINGS = (".pftrace", ".json")
KINETO = ("stream", "correlation", "grid", "block", "registers per thread", "shared memory", "device", "bytes", "copy")


class Read(NamedTuple):
    """What a viewer finds: slices by process and track, in the order of time; counters; flows as pairs of slices."""

    tracks: dict[tuple[str, str], list[tuple[int, int, str, dict[str, Any]]]]
    counters: dict[tuple[str, str], list[tuple[int, float]]]
    flows: set[tuple[tuple[str, str, int], tuple[str, str, int]]]  # process, track, start


def saved(path: Path, of: Trace, *results: Result) -> Read:
    save_timeline(path, of, *results)
    return read_perfetto(path) if path.suffix == ".pftrace" else read_chrome(path)


def read_perfetto(path: Path) -> Read:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    content = pb.Trace.FromString(path.read_bytes())
    names: dict[int, str] = {}
    labels: dict[int, str] = {}
    descriptors: dict[int, Any] = {}
    read = Read(defaultdict(list), defaultdict(list), set())
    sources: dict[int, tuple[str, str, int]] = {}
    sinks: dict[int, tuple[str, str, int]] = {}
    begun: dict[int, tuple[int, str, dict[str, Any]]] = {}

    def place(uuid: int) -> tuple[str, str]:
        above = descriptors[uuid]
        while not above.HasField("process"):
            above = descriptors[above.parent_uuid]
        return above.process.process_name, descriptors[uuid].name

    assert content.packet[0].sequence_flags == pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    for packet in content.packet:
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        labels |= {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in descriptors
            descriptors[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.track_descriptor.name and not packet.track_descriptor.HasField("counter"):
                read.tracks[place(packet.track_descriptor.uuid)]
            continue
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        uuid = event.track_uuid
        if event.type == event.TYPE_COUNTER:
            assert descriptors[uuid].counter.unit_name == "%"
            read.counters[place(uuid)].append((packet.timestamp, event.double_counter_value))
        elif event.type == event.TYPE_SLICE_BEGIN:
            assert uuid not in begun, "a slice in a slice"
            details = {labels[a.name_iid]: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
            begun[uuid] = packet.timestamp, names[event.name_iid], details
            sources |= dict.fromkeys(event.flow_ids, (*place(uuid), packet.timestamp))
            sinks |= dict.fromkeys(event.terminating_flow_ids, (*place(uuid), packet.timestamp))
        else:
            start, name, details = begun.pop(uuid)
            read.tracks[place(uuid)].append((start, packet.timestamp, name, details))
    assert not begun and sources.keys() == sinks.keys()
    read.flows.update((sources[number], sinks[number]) for number in sources)
    for group in ("streams", "SMs"):
        for key in [key for key in read.tracks if key[1] == group]:
            assert read.tracks.pop(key) == []
    return read


def read_chrome(path: Path) -> Read:
    events = json.loads(path.read_bytes())["traceEvents"]
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    read = Read(defaultdict(list), defaultdict(list), set())
    ends: dict[str, dict[int, tuple[str, str, int]]] = {"s": {}, "f": {}}
    for event in events:
        pid, what = event["pid"], event["ph"]
        if what == "M" and event["name"] == "process_name":
            processes[pid] = event["args"]["name"]
        elif what == "M" and event["name"] == "thread_name":
            threads[pid, event["tid"]] = event["args"]["name"]
            read.tracks[processes[pid], event["args"]["name"]]
        elif what == "X":
            start, length = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
            where = processes[pid], threads[pid, event["tid"]]
            assert ("cat" in event) == ("correlation" in event["args"])
            details = {name: value for name, value in event["args"].items() if name not in KINETO}
            read.tracks[where].append((start, start + length, event["name"], details))
        elif what == "C":
            read.counters[processes[pid], event["name"]].append((round(event["ts"] * 1e3), event["args"]["%"]))
        elif what in ends:
            at = round(event["ts"] * 1e3)
            ends[what][event["id"]] = (processes[pid], threads[pid, event["tid"]], at)
    assert ends["s"].keys() == ends["f"].keys()
    read.flows.update((ends["s"][number], ends["f"][number]) for number in ends["s"])
    return read


def require_sound(read: Read, results: list[Result]) -> None:
    """No slice begins before the one before it on its track has ended, and every block is on some SM."""
    for slices in read.tracks.values():
        assert all(start <= end for start, end, _, _ in slices)
        assert all(before[1] <= after[0] for before, after in pairwise(slices))
    blocks = Counter[str]()
    for (process, track), slices in read.tracks.items():
        if track.startswith("SM "):
            blocks[process] += sum(details["blocks"] for _, _, _, details in slices)
    assert sorted(blocks.values()) == sorted(sum(run.blocks for run in result.kernel_runs) for result in results)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_timeline_worked_out_by_hand(tmp_path: Path, ending: str) -> None:
    """Two SMs, a block fills one: `a` has 3 blocks of 4 us in two waves, `b` of another stream waits for it."""
    gpu = tiny(2)
    of = trace(stream("one", kernel("a", 3, 9.0)), stream("two", copy("in", 2.0), kernel("b", 1, 6.0, "a")))
    read = saved(tmp_path / f"t{ending}", of, gpusim.replay(of, gpu, "serial"))
    us, latency = 1000, round(LATENCY_US * 1000)
    process = "serial: by hand on tiny"
    shown = {name: [part[:3] for part in slices] for (_, name), slices in read.tracks.items()}
    assert {name for name, _ in read.tracks} == {process}
    assert shown == {
        "one": [(0, latency, "launch latency"), (latency, 9 * us, "k3")],
        "two": [
            (0, 2 * us, "Memcpy HtoD (Pinned -> Device)"),
            (9 * us, 10 * us, "launch latency"),
            (10 * us, 15 * us, "k1"),
        ],
        "SM 0": [(latency, 9 * us, "k3"), (10 * us, 15 * us, "k1")],
        "SM 1": [(latency, 5 * us, "k3")],
    }
    details = read.tracks[process, "one"][1][3]
    assert (details["operation"], details["blocks"], details["isolated, us"]) == ("a", 3, 9.0)
    assert [part[3]["blocks"] for part in read.tracks[process, "SM 0"]] == [2, 1]
    assert read.flows == {((process, "one", latency), (process, "two", 10 * us))}
    assert [name for _, name in read.counters] == ["occupancy (threads)"], "the others are not counted"
    values = read.counters[process, "occupancy (threads)"]
    assert values[-1] == (15 * us, 0.0) and (0, 0.0) in values and 50.0 in {value for _, value in values}


@pytest.mark.parametrize("ending", ENDINGS)
def test_kernels_at_once_take_lanes(tmp_path: Path, ending: str) -> None:
    """Two kernels on an SM at once, and two that a library runs at once on streams of its own."""
    gpu = tiny(1)
    both = convolution("c", [launch(1, 9.0, "internal0", threads=256), launch(2, 7.0, "internal1", threads=256)])
    of = trace(stream("one", both))
    read = saved(tmp_path / f"t{ending}", of, gpusim.replay(of, gpu, "leftover"))
    assert [name for _, name in read.tracks] == ["one", "one (2)", "SM 0", "SM 0 (2)"]
    assert {part[2] for part in read.tracks["leftover: by hand on tiny", "SM 0 (2)"]} <= {"k1", "k2"}


@pytest.fixture(scope="module")
def module() -> tuple[Trace, list[Result]]:
    of, gpu = gpusim.load_trace(MODULE), gpusim.load_gpu("h200")
    return of, [gpusim.replay(of, gpu, policy) for policy in POLICIES]


def test_both_formats_say_the_same_of_a_module(module: tuple[Trace, list[Result]], tmp_path: Path) -> None:
    of, results = module
    perfetto, chrome = (saved(tmp_path / f"t{ending}", of, *results) for ending in ENDINGS)
    assert perfetto == chrome
    require_sound(perfetto, results)
    assert len({process for process, _ in perfetto.tracks}) == len(POLICIES)
    assert {name for _, name in perfetto.counters} == {
        "occupancy (threads)", "issue slots", "DRAM bandwidth", "L2 bandwidth",
    }  # fmt: skip
    assert all(0.0 <= value <= 100.1 for values in perfetto.counters.values() for _, value in values)
    assert all((tmp_path / f"t{ending}").stat().st_size < 2e6 for ending in ENDINGS)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_replays_give_the_same_bytes(module: tuple[Trace, list[Result]], tmp_path: Path, ending: str) -> None:
    of, results = module
    for name in "ab":
        save_timeline(tmp_path / f"{name}{ending}", of, *results)
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


@pytest.mark.parametrize("ending", ENDINGS)
def test_without_placements_there_are_streams_only(tmp_path: Path, ending: str) -> None:
    of = trace(stream("one", kernel("a", 3, 9.0)))
    read = saved(tmp_path / f"t{ending}", of, gpusim.replay(of, tiny(2), "serial", keep=()))
    assert all(slices == [] for (_, name), slices in read.tracks.items() if name.startswith("SM"))
    assert len(read.tracks["serial: by hand on tiny", "one"]) == 2


# ---- what may go wrong


@pytest.mark.parametrize("name", ["t.html", "t", "t.pftrace.gz", ".json"])
def test_another_ending_is_refused_before_anything_is_replayed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(MODULE), "--timeline", str(tmp_path / name)]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    assert "expected a file that ends in .pftrace or .json" in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_or_a_file_is_one_line(tmp_path: Path) -> None:
    of = trace(stream("one", kernel("a", 1, 9.0)))
    result = gpusim.replay(of, tiny(1), "serial")
    (tmp_path / "folder.json").mkdir()
    for path in (tmp_path / "none" / "t.json", tmp_path / "folder.json"):
        with pytest.raises(InputError, match="cannot be written"):
            save_timeline(path, of, result)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.io import chrome_events

    def full(_: object) -> Any:
        yield b"{"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(chrome_events, "encoded", full)
    of = trace(stream("one", kernel("a", 1, 9.0)))
    (tmp_path / "t.json").write_text("before")
    with pytest.raises(InputError, match="No space left on device"):
        save_timeline(tmp_path / "t.json", of, gpusim.replay(of, tiny(1), "serial"))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("t.json", "before")]


def test_results_are_of_the_trace(tmp_path: Path) -> None:
    of, other = trace(stream("one", kernel("a", 1, 9.0))), trace(stream("one", kernel("b", 1, 9.0)))
    with pytest.raises(InputError, match="results: has operation 'b'; expected a replay of trace"):
        save_timeline(tmp_path / "t.json", of, gpusim.replay(other, tiny(1)))
    with pytest.raises(InputError, match="results: there is none"):
        save_timeline(tmp_path / "t.json", of)
    assert not list(tmp_path.iterdir())


@pytest.mark.release
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_long_timeline_needs_little_memory(tmp_path: Path, ending: str) -> None:
    """300 kernels on 64 SMs: slices of all SMs at once would take some 500 bytes each."""
    gpu, kernels = tiny(64), 300
    of = trace(stream("one", *(kernel(f"k{n}", 128, 9.0) for n in range(kernels))))
    result = gpusim.replay(of, gpu, "leftover")
    tracemalloc.start()
    save_timeline(tmp_path / f"t{ending}", of, result)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(result.placements) == 64 * kernels
    assert peak_bytes < 150 * len(result.placements)


@pytest.mark.parametrize("ending", ENDINGS)
def test_names_come_out_as_they_are_and_control_characters_do_not(
    module: tuple[Trace, list[Result]], tmp_path: Path, ending: str
) -> None:
    of, results = module
    hostile = "</script><b>ü\x1b[31m\udc80"
    odd = [replace(results[0], policy=hostile, trace=hostile)]
    read = saved(tmp_path / f"t{ending}", of, *odd)
    (process,) = {process for process, _ in read.tracks}
    assert process.startswith("</script><b>ü\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}: </script>")


def test_the_command_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.pftrace"
    assert main(["replay", str(MODULE), "--policy", "leftover", "--policy", "serial", "--timeline", str(path)]) == 0
    assert "policy" in capsys.readouterr().out
    assert {process.split(":")[0] for process, _ in read_perfetto(path).tracks} == {"leftover", "serial"}


def test_a_timeline_is_read_back_as_a_profile(tmp_path: Path) -> None:
    """By our importer, as what PyTorch's profiler writes: launches, streams, times, the GPU of each replay."""
    of = gpusim.load_trace(Path(__file__).resolve().parent.parent / "traces" / "inception_3a.json.gz")
    results = [gpusim.replay(of, policy=policy) for policy in ("serial", "leftover")]
    save_timeline(tmp_path / "t.json", of, *results)
    for device, result in enumerate(results):
        read = gpusim.import_profile(tmp_path / "t.json", device=device, order="none").trace
        assert (read.device, len(read.streams)) == ("h200", len(of.streams))
        found = sorted(
            (one.name, one.grid, one.block, one.duration_us) for op in read.operations() for one in op.launches()
        )
        known = {op.id: op.launches() for op in of.operations()}
        expected = sorted(
            (run.kernel, launch.grid, launch.block, run.end_us - run.start_us)
            for run in result.kernel_runs
            for launch in [known[run.operation][run.index]]
        )
        assert [one[:3] for one in found] == [one[:3] for one in expected]
        assert [one[3] for one in found] == pytest.approx([one[3] for one in expected], abs=2e-3)


def test_copies_keep_their_direction_when_read_back(tmp_path: Path) -> None:
    to_host, cleared = copy("out", 3.0, direction="d2h"), copy("clear", 1.0, direction="memset")
    of = trace(stream("one", copy("in", 2.0), kernel("a", 3, 9.0), to_host, cleared))
    save_timeline(tmp_path / "t.json", of, gpusim.replay(of, tiny(2), "serial"))
    read = gpusim.import_profile(tmp_path / "t.json", gpu=tiny(2)).trace
    assert [(op.kind, getattr(op, "direction", "")) for op in read.operations()] == [
        ("copy", "h2d"),
        ("kernel", ""),
        ("copy", "d2h"),
        ("copy", "memset"),
    ]
    events = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    assert {one["name"].split()[0]: one["cat"] for one in events if "mem" in one.get("cat", "")} == {
        "Memcpy": "gpu_memcpy",
        "Memset": "gpu_memset",
    }
