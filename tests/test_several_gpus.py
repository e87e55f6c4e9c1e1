"""Several GPUs in one trace: each has its own SMs, memory, streams and policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from tiny import copy, kernel, played, spans, stream, times, tiny, trace

from gpusim import load_gpu, load_trace, replay
from gpusim.common.errors import InputError
from gpusim.policies.interface import Grant, Partition, Policy, View
from gpusim.policies.registry import policies
from gpusim.results.error_band import error_band
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Collective, Kernel

ROOT = Path(__file__).parents[1]
H200 = load_gpu("h200")
WITH_PARAMETERS = (
    "inter-sm:rule=profile",
    "inter-sm:rule=rounds",
    "inter-sm:rule=smart-even",
    "inter-sm:dynamic=false",
)


def on(gpu: int, name: str, *operations: Any) -> Any:
    return stream(name, *operations).model_copy(update={"gpu": gpu})


def wide(id: str, blocks: int, duration_us: float, *depends_on: str) -> Kernel:
    launch = KernelLaunch(
        name=id, grid=(blocks, 1, 1), block=(256, 1, 1), registers_per_thread=64, duration_us=duration_us
    )
    return Kernel(id=id, kind="kernel", kernel=launch, depends_on=depends_on)


A, B = wide("a", 528, 200.0), wide("b", 2640, 400.0)
BUSY = [wide(f"c{i}", 10, 5.0) for i in range(60)]


def of_gpu(result: Result, count: int, *streams: str) -> list[Any]:
    """All that a result says of some streams and the first ``count`` SMs."""
    row_of = [i for i, run in enumerate(result.kernel_runs) if run.stream in streams]
    return [
        [run for run in result.kernel_runs if run.stream in streams],
        [run for run in result.stream_runs if run.stream in streams],
        [(row_of.index(p.run), p.sm, p.blocks, p.start_us, p.end_us) for p in result.placements if p.run in row_of],
        result.residents and [
            [(at, [(row_of.index(row), blocks) for row, blocks in mix]) for at, mix in held]
            for held in result.residents[:count]
        ],
    ]  # fmt: skip


# ---- apart


@pytest.mark.parametrize("policy", [*(name for name in policies() if "oracle" not in name), *WITH_PARAMETERS])
def test_what_a_gpu_does_is_to_the_last_bit_what_it_does_without_the_others(policy: str) -> None:
    alone = trace(on(0, "a", A), on(0, "b", B), device="h200")
    beside = trace(on(0, "a", A), on(1, "c", *BUSY), on(0, "b", B), device="h200")
    one, other = (replay(made, H200, policy, keep=["residents"]) for made in (alone, beside))
    assert of_gpu(one, 132, "a", "b") == of_gpu(other, 132, "a", "b")
    assert other.makespan_us == max(one.makespan_us, other.streams.end_us["c"])
    assert [run.ready_us for run in other.kernel_runs] == sorted(run.ready_us for run in other.kernel_runs)


def test_gpus_do_not_share_sms_or_copy_engines() -> None:
    result = played(
        "leftover",
        on(0, "a", copy("ca", 5.0), kernel("ka", 8, 21.0)),
        on(1, "b", copy("cb", 5.0), kernel("kb", 4, 11.0)),
        on(1, "c", copy("cc", 2.0)),
    )
    assert times(result) == {"ca": (0, 5), "cb": (0, 5), "cc": (0, 7), "ka": (5, 26), "kb": (5, 16)}
    assert {sm for sm, *_ in spans(result, "ka")} == {0, 1, 2, 3}
    assert {sm for sm, *_ in spans(result, "kb")} == {4, 5, 6, 7}
    assert len(result.usage.shares) == 8


@pytest.mark.parametrize("policy", ["leftover", "even", "inter-sm", "mps", "smk"])
def test_a_stream_on_a_gpu_of_its_own_is_as_fast_as_alone(policy: str) -> None:
    """Nothing is shared with other GPUs: not L2 or DRAM, nor what ran there before."""
    shipped = load_trace(ROOT / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz")
    apart = shipped.model_copy(
        update={"streams": tuple(s.model_copy(update={"gpu": g}) for g, s in enumerate(shipped.streams))}
    )
    result = replay(apart, H200, policy)
    for g, one in enumerate(shipped.streams):
        alone = replay(shipped.model_copy(update={"streams": (one,)}), H200, policy)
        assert result.stream_runs[g].end_us == alone.makespan_us
        assert result.stream_runs[g].solo_us == alone.stream_runs[0].solo_us
    assert error_band(result, apart, H200).band is None


def test_serial_takes_turns_on_each_gpu() -> None:
    result = played(
        "serial", on(0, "a", kernel("a", 2, 11.0)), on(1, "b", kernel("b", 2, 11.0)), on(1, "c", kernel("c", 2, 11.0))
    )
    assert times(result) == {"a": (0, 11), "b": (0, 11), "c": (0, 22)}


def test_use_is_put_together_in_bins_of_one_width() -> None:
    """One GPU is busy a hundred times as long as the other, so that its bins are wider."""
    result = played("leftover", on(0, "a", kernel("a", 4, 11.0)), on(2, "b", kernel("b", 4, 1001.0)))
    shares, width = result.usage.shares, result.usage.bin_us
    warps = [sum(row[2] for row in sm) * width for sm in shares]
    assert len(shares) == 12 and warps[4:8] == [0.0] * 4  # GPU 1 has no streams
    assert warps[:4] == pytest.approx([5.0] * 4) and warps[8:] == pytest.approx([500.0] * 4)  # half of an SM's warps


def test_streams_restart_until_the_last_of_any_gpu_has_ended() -> None:
    made = trace(on(0, "a", kernel("a", 4, 10.0)), on(1, "b", kernel("b", 4, 35.0)))
    result = replay(made, tiny(), "leftover", restart=True)
    assert result.makespan_us == 35.0 and result.passes == pytest.approx({"a": 3.5, "b": 1.0}, rel=0.05)


# ---- GPUs without streams


@pytest.mark.parametrize("policy", ["mig", "inter-sm:dynamic=false", "green-context", "even"])
def test_a_gpu_without_streams_is_idle(policy: str) -> None:
    alone = replay(trace(on(0, "a", A), on(0, "b", B), device="h200"), H200, policy)
    moved = replay(trace(on(1, "a", A), on(1, "b", B), device="h200"), H200, policy)
    assert moved.kernel_runs == alone.kernel_runs
    assert [(p.sm - 132, p.start_us) for p in moved.placements] == [(p.sm, p.start_us) for p in alone.placements]


# ---- parameters of streams


@pytest.mark.parametrize(
    ("whole", "first", "second"),
    [
        ("inter-sm:sms=64+60+68", "inter-sm:sms=64+68", "inter-sm:sms=60"),
        ("quota:blocks=a:2+c:1", "quota:blocks=a:2", "quota:blocks=c:1"),
        ("quota:blocks=c:1", "quota", "quota:blocks=c:1"),
        ("leftover:first=b", "leftover:first=b", "leftover"),
        ("mps:percent=30+50+70", "mps:percent=30+70", "mps:percent=50"),
        ("mps:percent=30", "mps:percent=30", "mps:percent=30"),
        ("mig:slices=3g+7g+4g", "mig:slices=3g+4g", "mig:slices=7g"),
    ],
)
def test_each_gpu_takes_what_a_parameter_says_of_its_streams(whole: str, first: str, second: str) -> None:
    made = trace(on(0, "a", A), on(1, "c", BUSY[0]), on(0, "b", B), device="h200")
    result = Session(H200).compare(made, whole).entries[0].result
    one = replay(trace(on(0, "a", A), on(0, "b", B), device="h200"), H200, first)
    other = replay(trace(on(0, "c", BUSY[0]), device="h200"), H200, second)
    ends = {run.stream: run.end_us for part in (one, other) for run in part.stream_runs}
    assert {run.stream: run.end_us for run in result.stream_runs} == ends


def test_a_stream_that_no_gpu_has_is_refused() -> None:
    with pytest.raises(InputError, match="first names stream 'x'"):
        played("leftover:first=x", on(0, "a", kernel("a", 1, 5.0)), on(1, "b", kernel("b", 1, 5.0)))


def test_an_oracle_divides_each_gpu_by_itself() -> None:
    streams = [on(g, name, kernel(name, 8, us)) for g, name, us in ((0, "a", 21.0), (1, "b", 31.0), (0, "c", 41.0))]
    result = played("oracle-inter-sm:step=1", *streams)
    first = played("oracle-inter-sm:step=1", streams[0], streams[2])
    assert result.streams.end_us["c"] == first.streams.end_us["c"]
    assert f"GPU 0: {first.division}" in result.division and "GPU 1: inter-sm" in result.division
    assert sum(note.startswith("GPU 1: best of") for note in result.notes) == 1


def test_an_oracle_refuses_gpus_that_wait_for_one_another() -> None:
    with pytest.raises(InputError, match="GPUs 0, 1 wait for one another"):
        played("oracle-inter-sm", on(0, "a", kernel("a", 1, 5.0)), on(1, "b", kernel("b", 1, 5.0, "a")))


# ---- a user's policy


class Plain(Policy):
    """Grants all, and notes how often it was asked."""

    name = "plain"
    summary = "for a test"

    def __init__(self) -> None:
        self.asked: list[float] = []

    def partition(self, view: View) -> Partition:
        self.asked.append(view.now_us)
        return Partition(tuple(Grant(kernel.id) for kernel in view.kernels))

    def notes(self) -> tuple[str, ...]:
        return (f"asked {len(self.asked)} times", *(f"at {at:g}" for at in self.asked))


def test_notes_of_all_gpus_are_kept() -> None:
    result = played(Plain(), on(0, "a", kernel("a", 1, 5.0)), on(1, "b", kernel("b1", 1, 5.0), kernel("b2", 1, 5.0)))
    assert "GPU 0: asked 1 times" in result.notes and "GPU 1: asked 2 times" in result.notes
    both = played(Plain(), on(0, "a", kernel("a", 1, 5.0)), on(1, "b", kernel("b", 1, 5.0)))
    assert both.notes == ("asked 1 times", "at 0")


def test_a_policy_that_cannot_be_copied_is_refused() -> None:
    policy = Plain()
    policy.lock = Lock()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="policy plain: cannot be copied"):
        played(policy, on(0, "a", kernel("a", 1, 5.0)), on(1, "b", kernel("b", 1, 5.0)))
    assert played(policy, on(1, "b", kernel("b", 1, 5.0))).makespan_us == 5.0  # one GPU needs no copy


def test_gpus_that_wait_for_one_another_decide_each_for_itself() -> None:
    """GPU 0 decides when its kernels come and go, not when those of GPU 1 do that its last kernel waits for."""
    result = played(
        Plain(),
        on(0, "a", kernel("a", 8, 101.0), kernel("z", 1, 5.0, "b4")),
        on(1, "b", *(kernel(f"b{i}", 1, 6.0) for i in range(5))),
    )
    assert [note for note in result.notes if note.startswith("GPU 0")] == [
        "GPU 0: asked 2 times", "GPU 0: at 0", "GPU 0: at 101",
    ]  # fmt: skip
    assert "GPU 1: asked 5 times" in result.notes


@pytest.mark.parametrize("policy", ["inter-sm:rule=profile", "inter-sm:rule=rounds", "right-size", "tpc-stealing"])
def test_a_decision_of_one_gpu_changes_nothing_on_another_that_waits_for_it(policy: str) -> None:
    meeting = {"kind": "collective", "name": "end", "what": "all_reduce", "ranks": 2, "bytes": 8, "duration_us": 1.0}
    both = trace(
        on(0, "a", A, Collective(id="ma", **meeting)), on(0, "b", B), on(1, "c", *BUSY, Collective(id="mc", **meeting)),
        device="h200",
    )  # fmt: skip
    of_streams = {"kernel_gap_us": 0.0, "graph_latency_us": H200.model.launch_latency_us}  # as where a is alone
    no_gaps = replace(H200, model=H200.model.model_copy(update=of_streams))
    alone = replay(trace(on(0, "a", A), on(0, "b", B), device="h200"), no_gaps, policy)
    kernels = {run.kernel: run.end_us for run in replay(both, no_gaps, policy).kernel_runs}
    assert {name: kernels[name] for name in "ab"} == pytest.approx(
        {r.kernel: r.end_us for r in alone.kernel_runs}, 1e-3
    )
