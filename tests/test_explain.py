"""What overlapping cost kernels, by hand and beside measured pairs."""

from __future__ import annotations

import gzip
import json
from math import fsum
from pathlib import Path

import pytest
from advised import two
from test_code import kernel as coded
from test_import_kineto import call, write
from test_import_kineto import kernel as kineto_kernel
from tiny import kernel, stream, tiny

import gpusim
from experiments.advise import run as study
from gpusim import InputError, Program, Session, Stream, Trace, cli
from gpusim.choose.explain import LAUNCH, LOST_CODE, NO_ROOM, OTHER, TAIL, as_json, explain, in_shares, operator_of
from gpusim.choose.recorded import MOST_LAUNCH_US, overlapped
from gpusim.commands.explain import recorded
from gpusim.engine.code import CachedCode
from gpusim.model.memory import CODE_LATENCY
from gpusim.trace.edit import merge
from gpusim.trace.operations import Kernel

TRACES = Path(__file__).resolve().parent.parent / "traces"


def test_a_kernel_that_finds_no_room_waits_for_it() -> None:
    """Blocks that have an SM each: the second kernel starts when the first ends."""
    trace = Trace(
        name="two", device="tiny", streams=[stream("a", kernel("ka", 4, 10.0)), stream("b", kernel("kb", 4, 30.0))]
    )
    found = explain(trace, Session(tiny(latency_us=0.0)))
    first, second = found.kernels
    assert (first.slowdown, first.cause) == (pytest.approx(1.0), "")
    assert second.took_us == pytest.approx(40.0)
    assert second.by_us == pytest.approx({NO_ROOM: 10.0})
    assert (second.slowdown, second.cause, second.beside) == (pytest.approx(4.0 / 3.0), NO_ROOM, ())
    assert found.cost_us == pytest.approx({NO_ROOM: 10.0})
    assert found.makespan_us == pytest.approx(40.0)
    assert [group.name for group in found.by_name] == ["k4"]
    assert found.arrangements["serial"] == pytest.approx(40.0)


def test_kernels_beside_one_another_are_named() -> None:
    trace = Trace(
        name="two", device="tiny", streams=[stream("a", kernel("ka", 2, 10.0)), stream("b", kernel("kb", 1, 30.0))]
    )
    found = explain(trace, Session(tiny(latency_us=0.0)))
    assert [one.beside for one in found.kernels] == [("k1",), ("k2",)]
    assert all(one.slowdown == pytest.approx(1.0) for one in found.kernels)


def test_a_kernel_that_waits_for_lost_code_says_so() -> None:
    """Half of its 100 µs waits for code, which is gone the second time and takes longer to come."""
    own, other = coded("own", waits_for_code=0.5), coded("other", kept=3.0)
    first, again = Kernel(id="1", kernel=own), Kernel(id="3", kernel=own, depends_on=("2",))
    streams = [
        Stream(name="a", operations=(first, again)),
        Stream(name="b", operations=(Kernel(id="2", kernel=other, depends_on=("1",)),)),
    ]
    for names, gone in ((["a", "b"], True), (["a"], False)):
        programs = [Program(name=name, streams=(name,) if gone else ("a", "b")) for name in names]
        found = explain(
            Trace(version=2, name="two", device="h200", streams=streams, programs=programs), Session("h200")
        )
        one = found.kernels[-1]
        assert one.run.operation == "3"
        assert (one.cause, LOST_CODE in found.cost_us) == ((LOST_CODE, True) if gone else ("", False))
        assert one.by_us.get(LOST_CODE, 0.0) == pytest.approx(50.0 * (CODE_LATENCY - 1.0) if gone else 0.0, rel=0.1)


def test_lost_code_costs_what_a_replay_without_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a replay without lost code lacks, as other causes then slow the same kernels; at most twice as much."""
    trace = merge([gpusim.load_trace(study.PROGRAMS / f"h100_{name}.json.gz") for name in ("prefill1", "decode32")],
                  ["a", "b"], "both")  # fmt: skip
    cost = explain(trace, Session("h100-sxm")).cost_us[LOST_CODE]
    shared = fsum(run.sharing_us for run in gpusim.replay(trace, keep=()).kernel_runs)
    monkeypatch.setattr(CachedCode, "lost_by", lambda *_: 0.0)
    kept = fsum(run.sharing_us for run in gpusim.replay(trace, keep=()).kernel_runs)
    assert 0.0 < shared - kept < cost < 2.0 * (shared - kept)


@pytest.mark.parametrize(
    ("operation", "operator"),
    [
        ("aten::conv2d/544/0", "aten::conv2d"),
        ("kernel/12", "kernel"),
        ("3a.5x5", "3a.5x5"),
        ("a/kernel/3.1", "a/kernel/3.1"),
    ],
)
def test_an_operator_is_the_id_without_numbers(operation: str, operator: str) -> None:
    assert operator_of(operation) == operator


def test_isolated_and_what_it_cost_add_up() -> None:
    found = explain(TRACES / "inception_3a.json.gz")
    for one in found.kernels:
        gained = min(0.0, one.run.sharing_us)
        assert one.took_us == pytest.approx(one.isolated_us + sum(one.by_us.values()) + gained)
    assert sum(group.launches for group in found.by_operator) == len(found.kernels)
    assert sum(group.took_us for group in found.by_name) == pytest.approx(sum(one.took_us for one in found.kernels))
    assert len(json.dumps(as_json(found))) > 1000


def test_isolated_times_of_a_measured_pair() -> None:
    """Two prefills on an H200: isolated times and the makespan are near what was measured."""
    pair = next(pair for pair in study.measured() if pair.a == pair.b == "prefill")
    runs = {one.mechanism: one for one in study.measured()[pair] if one.mechanism in ("in turn", "streams")}
    found = explain(study.together(pair))
    isolated = sum(one.isolated_us for one in found.kernels if one.run.stream.startswith("a"))
    assert isolated == pytest.approx(runs["in turn"].a_us, rel=0.12), "kernels alone; copies and gaps are not kernels"
    assert found.makespan_us == pytest.approx(runs["streams"].makespan_us, rel=0.12)


def test_the_command_prints_groups_and_gains(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(TRACES / "inception_3a.json.gz")
    assert cli.main(["explain", path, "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert "12 kernels in 4 streams" in said and "What overlapping cost, by kernel" in said and "no room" in said
    assert "1.00x" not in said
    assert cli.main(["explain", path, "--no-cache", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"makespan_us", "cost_us", "arrangements", "by_name", "by_operator", "kernels"} <= set(found)


def test_one_stream_is_refused() -> None:
    trace = Trace(name="one", device="tiny", streams=[stream("a", kernel("ka", 4, 10.0))])
    with pytest.raises(InputError, match="has one stream, so that no kernels overlap"):
        explain(trace, Session(tiny()))


# ---- as recorded


def profile(path: Path) -> Path:
    """`a` runs by itself for 100 us and beside `b` for 150 us; `b` never by itself."""
    events = [
        kineto_kernel("a", 0, 100, order=1),
        kineto_kernel("a", 200, 150, order=2),
        kineto_kernel("b", 220, 100, stream=9, order=3),
        kineto_kernel("a", 400, 104, order=4),
    ]
    return write(path, events, deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}])


def test_a_profile_is_explained_as_it_overlapped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", str(profile(tmp_path / "p.json")), "--json", "--no-cache"]) == 0
    a, b = json.loads(capsys.readouterr().out)["overlapped"]
    assert (a["kernel"], a["isolated_us"], a["took_us"], a["beside"]) == ("a", 102.0, 150.0, ["b"])
    assert a["slowdown"] == pytest.approx(150.0 / 102.0)
    assert a["overlap_us"] == pytest.approx(100.0)
    assert (b["kernel"], b["isolated_us"], b["slowdown"]) == ("b", None, None)
    assert cli.main(["explain", str(profile(tmp_path / "p.json")), "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert "2 of 4 kernels ran beside kernels of other streams when recorded" in said
    assert "\n?: the isolated time is unknown: the kernel never ran by itself" in said
    # 100, then 150 (b ran meanwhile), then 104
    assert (
        "\nwhen recorded, kernels ran for 354.0 µs; replayed as plain streams it takes " in said
        and "one stream after the other (`serial`) takes" in said
    )


def test_a_part_of_a_profile_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the first launch of `a` it takes 104 us by itself."""
    path = str(profile(tmp_path / "p.json"))
    assert cli.main(["explain", path, "--from", "150us", "--json", "--no-cache"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["overlapped"][0]["isolated_us"] == 104.0 and found["recorded_busy_us"] == 254.0
    assert cli.main(["explain", path, "--step", "3", "--no-cache"]) == 2
    assert f"{path}: --step: 3 is not in the profile" in capsys.readouterr().err
    assert cli.main(["explain", path, path, "--step", "3", "--no-cache"]) == 2
    assert "options: a part and --device are for one profile only" in capsys.readouterr().err


def test_a_launch_that_took_less_beside_others_had_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        kineto_kernel("a", 0, 100, order=1),
        *(kineto_kernel("a", 200 * n, us, order=2 * n) for n, us in ((1, 81), (2, 79))),
        *(kineto_kernel("b", 200 * n + 10, 50, stream=9, order=2 * n + 1) for n in (1, 2)),
    ]
    path = write(tmp_path / "p.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}])
    assert cli.main(["explain", str(path), "--json", "--no-cache"]) == 0
    of_a = [one for one in json.loads(capsys.readouterr().out)["overlapped"] if one["kernel"] == "a"]
    assert [one["isolated_us"] for one in of_a] == [100.0, None]


def test_a_kernel_that_was_not_slowed_contends_for_nothing(tmp_path: Path) -> None:
    def causes(took_us: int) -> list[str | None]:
        events = [
            kineto_kernel("a", 0, 100, order=1),
            kineto_kernel("a", 200, took_us, order=2),
            kineto_kernel("b", 190, 300, stream=9, order=3),
        ]
        path = write(tmp_path / "p.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}])
        trace = gpusim.import_profile(path).trace
        kernels = recorded(path)
        found = overlapped(kernels, trace, Session("h200"))
        return [one.cause for one in found if one.isolated_us is not None]

    (unslowed,), (slowed,) = causes(100), causes(150)
    assert unslowed == "" != slowed


FULL = {"grid": [132, 1, 1], "shared memory": 200_000}  # an SM for each block
SYNC = {
    "ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 1, "tid": 1, "ts": 5000, "dur": 1,
    "args": {"cuda_sync_kind": "Context Sync", "stream": -1, "correlation": 99, "device": 0},
}  # fmt: skip


def late(path: Path, start_us: int, took_us: int, **shape: object) -> list[dict[str, object]]:
    """Two kernels of 100 us, by themselves 2 us after their launch; then the second starts some us after it."""
    times = [("a", 7, 2, 100), ("b", 9, 1002, 100), ("a", 7, 2002, 100), ("b", 9, 2010 + start_us, took_us)]
    events = [SYNC]
    for order, (name, stream_number, start, took) in enumerate(times, 1):
        launched = 2010 if order == 4 else start - 2
        events += [call("cudaLaunchKernel", order, ts=launched)]
        events += [kineto_kernel(name, start, took, stream=stream_number, order=order, **shape)]
    write(path, events, deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}])
    found = overlapped(recorded(path), gpusim.import_profile(path).trace, Session("h200"))
    for one in found:
        assert one.isolated_us is not None
        assert fsum(one.by_us.values()) == pytest.approx(max(0.0, one.kernel.took_us - one.isolated_us) + one.late_us)
    return [dict(one.by_us) for one in found if one.kernel.kind[0] == "b"]


@pytest.mark.parametrize(
    ("start_us", "took_us", "shape", "costs"),
    [
        (94, 100, FULL, {NO_ROOM: 92.0}),  # the other ends 2 us before
        (5, 100, {"grid": [4, 1, 1]}, {LAUNCH: 3.0}),
        (52, 100, {"grid": [4, 1, 1]}, {LAUNCH: MOST_LAUNCH_US, OTHER: 50.0 - MOST_LAUNCH_US}),
        (2, 130, {"grid": [4, 1, 1]}, {OTHER: 30.0}),  # few blocks with SMs of their own
        (82, 130, FULL, {NO_ROOM: 80.0, TAIL: 30.0}),
    ],
)
def test_what_a_recorded_kernel_took_longer_is_divided(
    tmp_path: Path, start_us: int, took_us: int, shape: dict[str, object], costs: dict[str, float]
) -> None:
    (found,) = late(tmp_path / "p.json", start_us, took_us, **shape)
    assert found == pytest.approx(costs)


def test_counters_tell_the_contentions_of_a_profile_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program with its longest kernel once more, in a stream of its own, beside itself."""
    models = Path(study.__file__).resolve().parents[1] / "unseen_programs" / "h200" / "models"
    content = json.loads(gzip.decompress((models / "selective_scan_bf16.kineto.json.gz").read_bytes()))
    kernels = [one for one in content["traceEvents"] if one.get("cat") == "kernel"]
    longest = max(kernels, key=lambda one: one["dur"])
    more = {**longest, "tid": 999, "dur": 2 * longest["dur"], "args": {**longest["args"], "stream": 999}}
    content["traceEvents"].append(more)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    counters = str(models / "selective_scan_bf16.ncu.csv.gz")
    assert cli.main(["explain", str(path), "--counters", counters, "--no-cache", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost_us"] and "unknown" not in found["cost_us"]
    assert sum(one["launches"] for one in found["by_name"]) == len(found["overlapped"])
    assert all({"name", "by_us"} <= set(one) for one in (*found["by_name"], *found["by_operator"]))
    trace = str(TRACES / "inception_3a.json.gz")
    assert cli.main(["explain", trace, "--counters", counters]) == 2
    assert "--counters: is for one profile only" in capsys.readouterr().err


def test_a_long_kernel_runs_beside_all_that_start_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [kineto_kernel("short", 10 * n, 9, order=n) for n in range(1, 151)]
    events = [kineto_kernel("long", 0, 1505, stream=9, order=200), *short, kineto_kernel("short", 1600, 8, order=300)]
    path = write(tmp_path / "p.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}])
    assert cli.main(["explain", str(path), "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert "151 of 152 kernels ran beside kernels of other streams when recorded" in said
    assert "150 of them also ran by themselves; overlapping made these 150.0 µs longer together" in said


def test_costs_without_counters_are_told_apart() -> None:
    assert in_shares({"unknown": 3.0, "no room": 1.0}, 2) == "SMs and memory (no counters) 75 %, no room 25 %"
    assert in_shares({}, 2) == ""
    assert in_shares({"no room": 996.0, "dram": 4.0}, 2) == "no room 100 %"


def test_a_profile_is_replayed_in_other_arrangements_with_isolated_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", str(profile(tmp_path / "p.json")), "--json", "--no-cache"]) == 0
    found = json.loads(capsys.readouterr().out)
    policies = {one["policy"]: one for one in found["arrangements"]}
    assert {"serial", "green-context", "even"} <= set(policies)
    assert policies["serial"]["makespan_us"] == pytest.approx(100 + 102 + 104 + 100, rel=0.05)  # not the 150 of `a`
    assert policies["serial"]["gain"] == found["makespan_us"] / policies["serial"]["makespan_us"]


def test_kernels_that_never_ran_by_themselves_have_no_known_slowdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [kineto_kernel("a", 0, 100, order=1), kineto_kernel("b", 20, 100, stream=9, order=2)]
    path = str(write(tmp_path / "p.json", events, deviceProperties=[]))  # names no GPU
    assert cli.main(["explain", path, "--recorded-on", "h200", "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert "none of these kernels also ran by itself, so how much overlapping slowed them is unknown" in said
    assert "0 of them" not in said


def test_a_kernel_that_waits_for_other_gpus_is_not_called_slowed_or_sped_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    events = [
        kineto_kernel(nccl, 0, 5000, order=1),  # waits for another GPU
        kineto_kernel("a", 6000, 100, order=2),
        kineto_kernel("a", 7000, 110, order=3),
        kineto_kernel(nccl, 7000, 200, stream=9, order=4),
    ]
    path = write(tmp_path / "p.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}])
    assert cli.main(["explain", str(path), "--json", "--no-cache"]) == 0
    found = {one["kernel"]: one for one in json.loads(capsys.readouterr().out)["overlapped"]}
    assert (found[nccl]["isolated_us"], found[nccl]["slowdown"], found[nccl]["cause"]) == (None, None, None)
    assert found["a"]["slowdown"] == pytest.approx(1.1)
    assert cli.main(["explain", str(path), "--no-cache"]) == 0
    assert "1 of them also ran by themselves; overlapping made these 10.0 µs longer" in capsys.readouterr().out


def test_several_profiles_are_replayed_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write(tmp_path / f"{name}.json", [kineto_kernel(name, 0, 50)])) for name in ("a", "b")]
    assert cli.main(["explain", *paths, "--gpu", "h200", "--no-cache"]) == 0
    assert "a+b on h200: 2 kernels in 2 streams" in capsys.readouterr().out


def test_a_profile_without_overlaps_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "p.json", [kineto_kernel("a", 0)], deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    assert cli.main(["explain", str(path), "--no-cache"]) == 2
    assert (
        "holds no kernels that overlapped; expected a profile in which streams ran side by side"
        in capsys.readouterr().err
    )


def test_a_profile_has_one_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["explain", str(profile(tmp_path / "p.json")), "--gpu", "h200", "--recorded-on", "h100-sxm", "--no-cache"]
    assert cli.main(argv) == 2
    assert capsys.readouterr().err == "--recorded-on: is the same as --gpu for a profile; expected one of the two\n"


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("inferred", "the source records no waits between streams: their order is inferred from the recorded times"),
        ("independent", "streams are taken as independent: what they wait for was not recorded or left out"),
        (None, ""),
    ],
)
def test_what_is_unknown_of_the_order_between_streams_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str | None, said: str
) -> None:
    """By `gpusim explain` and `gpusim advise`, in text and JSON."""
    both = two().model_copy(update={"order": order, "device": "h200"})
    path = tmp_path / "two.json"
    both.save(path)
    for command in (["explain"], ["advise", "--settings", "streams", "--jobs", "1"]):
        assert cli.main([*command, str(path), "--no-cache"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert f"Note: {said}." in text if said else "order" not in text
        assert cli.main([*command, str(path), "--no-cache", "--json"]) == 0
        assert json.loads(capsys.readouterr().out).get("order", "") == said
