"""SMK's warp quotas and context switches, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import kernel, played, run_of, spans, stream, tiny
from views import kernel as kernel_view
from views import view_of

from gpusim import load_gpu, load_trace, replay
from gpusim.calibrate.fit import anchored
from gpusim.model import rounds
from gpusim.model.kernel import KernelModel
from gpusim.model.rounds import round_rates
from gpusim.policies.smk import warp_quota
from gpusim.results.result import Result
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream, TimesArrivals

TRACES = Path(__file__).resolve().parent.parent / "traces"
H200 = load_gpu("h200")


def launch_of(file: str, operation: str, index: int = 0) -> KernelLaunch:
    trace = load_trace(TRACES / file)
    return next(op for op in trace.operations() if op.id == operation).launches()[index]


ISSUE_BOUND = launch_of("pair_3a_3x3_precomp_5x5_fft_tiling.json.gz", "3a.3x3")
MEMORY_BOUND = launch_of("googlenet_forward.json.gz", "conv2.3x3", 3)
TRANSPOSE = launch_of("googlenet_forward.json.gz", "conv2.3x3", 1)
A, B = anchored(ISSUE_BOUND, H200), anchored(MEMORY_BOUND, H200)


# ---- rounds ----------------------------------------------------------------------------------------------------------


def paced(monkeypatch: pytest.MonkeyPatch, **rates: list[float]) -> None:
    """Rates of one block of each kernel, by who runs: the blocks of each as digits."""
    monkeypatch.setattr(
        rounds, "mix_rates", lambda residents, least=(): (rates["n" + "".join(str(n) for _, n in residents)], 0.0, 0.0)
    )


def test_a_round_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # together A makes 0.5 blocks/us and B 0.25: A has spent 1 after 2 us, when B has 0.5 left, which it runs alone
    paced(monkeypatch, n12=[0.5, 0.125], n2=[0.5], n1=[1.0])
    rates, _, _ = round_rates([(A, 1), (B, 2)], [1.0, 1.0])
    assert rates == [1.0 / 2.5, 0.5 / 2.5]
    # with half the quota B is done first, after 2 us; both at once
    assert round_rates([(A, 1), (B, 2)], [1.0, 0.5])[0] == [0.5, 0.25 / 2.0]
    # B first, after 1 us; A has 0.5 left, alone
    assert round_rates([(A, 1), (B, 2)], [1.0, 0.25])[0] == [1.0 / 1.5, 0.125 / 1.5]


def test_who_has_no_quota_runs_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # A spends 1 in 2 us, B in 4 of which 2 without A, C runs throughout: 2 us at 0.1 and 2 us at 0.3
    paced(monkeypatch, n111=[0.5, 0.25, 0.1], n11=[0.25, 0.3])
    assert round_rates([(A, 1), (B, 1), (A, 1)], [1.0, 1.0, None])[0] == pytest.approx([0.25, 0.25, 0.2], rel=1e-12)


def test_limits_hold_in_every_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def mix_rates(residents: list[tuple[KernelModel, int]], least: list[float]) -> tuple[list[float], float, float]:
        asked.append(list(least))
        return [1.0 / floor for floor in least], 0.0, 0.0

    monkeypatch.setattr(rounds, "mix_rates", mix_rates)
    assert round_rates([(A, 1), (B, 1)], [1.0, 1.0], [2.0, 4.0])[0] == [0.25, 0.25]
    assert asked == [[2.0, 4.0], [4.0]]


@given(counts=st.tuples(st.integers(1, 3), st.integers(1, 3)), quotas=st.tuples(*[st.floats(1e-3, 1e3)] * 2))
def test_rounds_keep_the_ratio_of_quotas(counts: tuple[int, int], quotas: tuple[float, float]) -> None:
    residents = [(A, counts[0]), (B, counts[1])]
    rates, dram, l2 = round_rates(residents, quotas)
    progress = [count * rate for count, rate in zip(counts, rates, strict=True)]
    assert progress[0] / progress[1] == pytest.approx(quotas[0] / quotas[1], rel=1e-9)
    loads = [n * rate * model.unit_us * model.load.dram for (model, n), rate in zip(residents, rates, strict=True)]
    assert dram == pytest.approx(sum(loads)) and l2 > 0.0


# ---- quotas ----------------------------------------------------------------------------------------------------------


def looped(launch: KernelLaunch, name: str) -> Stream:
    """A stream of one kernel that takes about 2 ms alone."""
    times = round(2000 / launch.duration_us)
    x, y, z = launch.grid
    grown = launch.model_copy(update={"grid": (x * times, y, z), "duration_us": launch.duration_us * times})
    return Stream(name=name, operations=(Kernel(id=name, kind="kernel", kernel=grown),))


def normalised(policy: str) -> list[float]:
    trace = Trace(version=1, name="made", device="h200", streams=(looped(ISSUE_BOUND, "a"), looped(TRANSPOSE, "b")))
    result = replay(trace, H200, policy)
    return [run.solo_us / run.end_us for run in result.kernel_runs]


def test_quotas_make_unequal_kernels_fair() -> None:
    without, with_quotas = normalised("smk:mode=p"), normalised("smk:mode=p+w")
    assert min(without) / max(without) < 0.8
    assert min(with_quotas) / max(with_quotas) > 0.95  # but for reads that wait for the other
    assert min(with_quotas) > 0.95 * min(without)  # nobody pays more than that for the other's waiting


def test_a_quota_is_what_a_kernel_does_alone() -> None:
    def quota(blocks: int) -> float:
        seen = kernel_view(5, blocks=blocks)
        return warp_quota(view_of(seen, solo_rate=lambda number, count: 10.0 * number + count), seen)

    assert quota(132 * 4) == 54.0
    assert quota(132 * 9) == 54.0
    assert quota(133) == 52.0  # no SM holds more than 2 of 133 blocks
    assert quota(1) == 51.0


# ---- context switches ------------------------------------------------------------------------------------------------


GPU = tiny(4)
NEWCOMER_US = 5.0


def switched(blocks: int, policy: str = "smk:mode=p") -> Result:
    """A fills the GPU with 4 blocks an SM; later B comes, and each is to have 2."""
    late = TimesArrivals(kind="times", times_us=(NEWCOMER_US,))
    a = stream("a", kernel("a", 64, 401.0, threads=256))
    return played(policy, a, stream("b", kernel("b", blocks, 41.0, threads=256), arrivals=late), gpu=GPU)


def save_us() -> float:
    """Registers and reserved shared memory of a block of 256 threads, at a quarter of the DRAM bandwidth."""
    return (256 * 64 * 4 + 1024) / (GPU.model.dram_sustained_gb_per_s * 1e3 / 4)


def test_a_newcomer_waits_until_the_blocks_before_it_are_saved() -> None:
    result = switched(16)
    assert run_of(result, "b").start_us == pytest.approx(NEWCOMER_US + 1.0 + 2 * save_us(), rel=1e-12)
    assert [span[0] for span in spans(result, "b")] == [0, 1, 2, 3]
    assert len({span[2] for span in spans(result, "b")}) == 1


def test_one_block_to_save_takes_half_the_time() -> None:
    result = switched(1)
    assert run_of(result, "b").start_us == pytest.approx(NEWCOMER_US + 1.0 + save_us(), rel=1e-12)


def test_draining_saves_nothing() -> None:
    result = switched(16, "smk:mode=p,preempt=drain")
    assert run_of(result, "b").start_us == pytest.approx(1.0 + 100.0, rel=0.01)  # A's first wave of four has ended
