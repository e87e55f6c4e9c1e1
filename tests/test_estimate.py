"""Kernels without counters: FLOP and bytes of operators by hand, and the demands that follow from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny

from gpusim import Session, Trace, advise, compare, load_gpu, load_trace, replay
from gpusim.calibrate.assumptions import warning
from gpusim.io.importing import import_profile
from gpusim.io.operators import Operator, operator_of, work_of
from gpusim.model.estimate import BOUND, KNOWN, MOST, Assumption, assumed, estimable, filled, operation_of, use_of
from gpusim.results.comparison import as_json
from gpusim.trace.kernels import KernelLaunch, Mix, Work
from gpusim.trace.operations import Kernel

H100 = load_gpu("h100-sxm")
BF16, FP32 = "c10::BFloat16", "float"


def operator(name: str, *shapes: tuple[int, ...], kind: str = BF16, values: tuple[str, ...] = ()) -> Operator:
    return Operator(f"aten::{name}", shapes, (kind,) * len(shapes), values)


@pytest.mark.parametrize(
    ("given", "flop", "read", "written"),
    [
        (operator("mm", (8, 16), (16, 4)), 2 * 8 * 16 * 4, 2 * (128 + 64), 2 * 32),
        (operator("addmm", (4,), (8, 16), (16, 4), kind=FP32), 2 * 8 * 16 * 4, 4 * (4 + 128 + 64), 4 * 32),
        (operator("bmm", (3, 8, 16), (3, 16, 4)), 3 * 2 * 8 * 16 * 4, 2 * 3 * (128 + 64), 2 * 3 * 32),
        (operator("add", (8, 16), (8, 16), kind=FP32), 128, 2 * 512, 512),
        (operator("silu", (8, 16)), 128, 256, 256),
        (operator("sum", (8, 16)), 128, 256, 0),
        (Operator("aten::embedding", ((1000, 16), (8,)), (FP32, "long")), 0, 8 * 16 * 4 + 8 * 8, 8 * 16 * 4),
        (
            operator("_scaled_dot_product_flash_attention", *[(2, 4, 32, 8)] * 3, values=("", "", "", "0.", "False")),
            4 * 2 * 4 * 32 * 32 * 8, 3 * 2 * 2048, 2 * 2048,
        ),
        (
            operator("_scaled_dot_product_flash_attention", *[(2, 4, 32, 8)] * 3, values=("", "", "", "0.", "True")),
            4 * 2 * 4 * 32 * 32 * 8 / 2, 3 * 2 * 2048, 2 * 2048,
        ),
        (
            operator("_flash_attention_forward", (2, 1, 4, 8), (2, 32, 4, 8), (2, 32, 4, 8)),
            4 * 2 * 4 * 1 * 32 * 8, 2 * (64 + 2 * 2048), 2 * 64,
        ),
        (
            operator("cudnn_convolution", (2, 8, 14, 14), (16, 8, 3, 3), kind=FP32,
                     values=("", "", "[1, 1]", "[2, 2]", "[1, 1]", "1")),
            2 * (2 * 16 * 7 * 7) * 8 * 9, 4 * (2 * 8 * 196 + 16 * 72), 4 * 2 * 16 * 49,
        ),
    ],
)  # fmt: skip
def test_work_by_hand(given: Operator, flop: float, read: float, written: float) -> None:
    work = work_of(given)
    assert work is not None
    assert (work.flop, work.read_bytes, work.write_bytes) == (flop, read, written)


@pytest.mark.parametrize(
    "given",
    [
        operator("mm"),
        operator("mm", (8,), (4,)),
        operator("mm", (8, 16)),
        operator("cudnn_convolution", (2, 8, 14, 14)),
        operator("cudnn_convolution", (2, 8, 1, 1), (16, 8, 3, 3)),
        operator("_flash_attention_forward", (2, 8), (2, 8), (2, 8)),
        operator("add", (8, 16), kind="c10::complex<float>"),
    ],
)
def test_inputs_that_tell_nothing(given: Operator) -> None:
    assert work_of(given) is None


@pytest.mark.parametrize("dims", [None, "8", [["a"]], [[-1]], [[2**60]], [[1] * 100], [[True, 2]], [None], {}])
def test_sizes_that_cannot_be(dims: Any) -> None:
    assert work_of(operator_of("aten::add", {"Input Dims": dims, "Input type": [BF16]})) is None


def test_names_tell_only_the_operation() -> None:
    names = {
        "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_TNT": "product",
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32": "product",
        "void pytorch_flash::flash_fwd_kernel<x>": "attention",
        "cudnn_generated_fort_native_sdpa_sm80": "attention",
        "void at::native::vectorized_elementwise_kernel<4>": "streamed",
        "void cublasLt::splitKreduce_kernel<32>": "streamed",
        "my_kernel": None,
    }
    assert {name: operation_of(name) for name in names} == names


# ---- demands


def launch(name: str = "nvjet_x", us: float = 100.0, work: Work | None = None, **more: Any) -> KernelLaunch:
    return KernelLaunch(
        name=name, grid=(1320, 1, 1), block=(256, 1, 1), registers_per_thread=64, duration_us=us, work=work, **more
    )


def work(flop: float = 0.0, read: float = 0.0, written: float = 0.0, kind: str = "16-bit") -> Work:
    return Work(flop=flop, read_bytes=read, write_bytes=written, arithmetic=kind)


def test_a_product_at_half_of_the_peak() -> None:
    """Tensor cores do 4096 FLOP of 16 bits a cycle and SM, half of that of TF32; FP32 lanes 256."""
    seconds = (100.0 - H100.model.launch_latency_us) / 1e6
    peak = 4096 * 132 * H100.boost_clock_mhz * 1e6
    use = use_of(launch(work=work(0.5 * peak * seconds)), H100)
    assert use is not None and use.on_tensor_cores and use.arithmetic == pytest.approx(0.5) and not use.settled
    use = use_of(launch(work=work(0.4 * peak * seconds, kind="32-bit")), H100)
    assert use is not None and use.on_tensor_cores and use.arithmetic == pytest.approx(0.8) and use.settled
    use = use_of(launch(work=work(0.8 * peak / 16 * seconds, kind="32-bit")), H100)
    assert use is not None and not use.on_tensor_cores and use.arithmetic == pytest.approx(0.8, rel=0.01)


def test_l2_keeps_a_part_of_what_a_launch_touches() -> None:
    seconds = (100.0 - H100.model.launch_latency_us) / 1e6
    peak = H100.dram_bandwidth_gb_per_s * 1e9 * seconds
    few, many = H100.l2_bytes / 3, 0.9 * peak
    for moved, missed in ((few, few / 2), (many, many - H100.l2_bytes / 3)):
        use = use_of(launch(work=work(1.0, moved / 2, moved / 2)), H100)
        assert use is not None
        assert use.dram == pytest.approx(missed / peak) and use.hits == pytest.approx(moved / missed)


def test_what_is_filled_in_is_marked() -> None:
    bare = launch(work=work(1e9, 1e6, 1e6))
    found = filled(bare, H100)
    assert found.mix is not None and found.mix.estimated and found.estimated and found.uncounted == bare.uncounted
    assert filled(found, H100) == found
    counted = launch(mix=Mix(issue_cycles=1.0))
    paper = launch(mix=Mix(alu_utilisation_percent=40.0))
    unknown = launch(name="my_kernel")
    for one in (counted, paper, unknown):
        assert filled(one, H100) is one
    assert estimable(unknown) and not estimable(counted) and not estimable(paper)


def test_demands_are_shares_of_the_time() -> None:
    found = assumed(launch(name="my_kernel"), H100, "memory").mix
    assert found is not None and found.dram_read_bytes is not None and found.dram_write_bytes is not None
    us = 100.0 - H100.model.launch_latency_us
    moved = 1320 * (found.dram_read_bytes + found.dram_write_bytes)
    assert moved == pytest.approx(BOUND * us * H100.dram_bandwidth_gb_per_s * 1e3) and found.fma_cycles == 0.0
    found = assumed(launch(name="my_kernel"), H100, "compute").mix
    assert found is not None and found.fma_cycles is not None and found.active_cycles_avg is not None
    assert found.fma_cycles * 10 == pytest.approx(BOUND * found.active_cycles_avg) and found.dram_read_bytes == 0.0


def test_nothing_is_assumed_where_the_work_tells() -> None:
    seconds = 96e-6
    enough = work(MOST * 4096 * 132 * H100.boost_clock_mhz * 1e6 * seconds)
    known, bare = launch(work=enough), launch()
    use = use_of(known, H100)
    assert use is not None and use.arithmetic >= KNOWN
    assert assumed(known, H100, "memory") == assumed(known, H100, "compute") == filled(known, H100)
    assert assumed(bare, H100, "memory") != assumed(bare, H100, "compute")


# ---- from a profile to a replay


def profile(path: Path) -> Path:
    """A product whose operator launches two kernels, and a kernel of no operator."""
    events: list[dict[str, Any]] = [
        {
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1,
            "args": {"External id": 5, "Input Dims": [[4096, 1024], [1024, 3072]], "Input type": [BF16, BF16]},
        }
    ]  # fmt: skip
    for n, (name, external, us) in enumerate((("splitKreduce", 5, 5.0), ("nvjet_a", 5, 60.0), ("my_kernel", 9, 30.0))):
        args = {"device": 0, "stream": 7, "correlation": n + 1, "External id": external, "grid": [1320, 1, 1]}
        args |= {"block": [128, 1, 1], "registers per thread": 64, "shared memory": 0}
        events.append({"ph": "X", "cat": "kernel", "name": name, "ts": 100 * n, "dur": us, "args": args})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_the_longest_kernel_of_an_operator_gets_its_work(tmp_path: Path) -> None:
    trace = import_profile(profile(tmp_path / "a.json"), gpu=H100).trace
    found = {one.name: one.work for one in trace.launches()}
    assert found["splitKreduce"] is None and found["my_kernel"] is None
    assert found["nvjet_a"] is not None and found["nvjet_a"].flop == 2.0 * 4096 * 1024 * 3072
    trace.save(tmp_path / "trace.json")
    assert replay(tmp_path / "trace.json", H100, "serial").makespan_us == pytest.approx(95.0, rel=0.01)


# ---- the range of an answer


def side_by_side(*launches: KernelLaunch) -> Trace:
    streams = [tiny.stream(chr(97 + i), Kernel(id=f"k{i}", kernel=one)) for i, one in enumerate(launches)]
    return tiny.trace(*streams, device="h100-sxm")


def test_an_answer_has_a_range_where_kernels_have_no_counters() -> None:
    trace = side_by_side(launch(name="one"), launch(name="other"))
    found = compare(trace, H100, ["serial", "leftover"])
    assert found.assumed_us.keys() == {"serial", "leftover"}
    for entry in found.entries:
        least, most = found.assumed_us[entry.result.policy]
        assert least <= entry.result.makespan_us <= most
    assert sum("2 of 2 kernels have no counters" in note for note in found.notes) == 1
    assert all("assumed_us" in one for one in as_json(found)["results"])


def test_no_range_where_all_is_known() -> None:
    enough = work(MOST * 4096 * 132 * H100.boost_clock_mhz * 1e6 * 96e-6)
    counted = load_trace(Path(__file__).parent.parent / "traces" / "inception_3a.json.gz")
    for trace in (side_by_side(launch(work=enough), launch(work=enough)), counted):
        assert Session(trace.device).extremes(trace) == {}
    found = compare(side_by_side(launch(work=enough), launch(work=enough)), H100, ["serial"])
    assert found.assumed_us == {} and not any("no counters" in note for note in found.notes)
    assert not any("assumed_us" in one for one in as_json(found)["results"])


def test_the_warning_is_one_line() -> None:
    trace = side_by_side(launch())
    both: dict[Assumption, str] = {"compute": "even", "memory": "serial"}
    assert warning(trace, "even", (1.0, 2.0), both) == (
        "1 of 1 kernels have no counters: `even` takes 1.0 to 2.0 µs, and the best depends on what limits them: "
        "`even` for arithmetic, `serial` for memory"
    )
    same: dict[Assumption, str] = {"compute": "even", "memory": "even"}
    assert warning(trace, "even", (1.0, 2.0), same).endswith("and is best whether arithmetic or memory limits them")


def test_only_settings_that_keep_the_targets_are_compared_under_the_assumptions() -> None:
    trace, steps = side_by_side(launch(name="one"), launch(name="other")), list[str]()
    found = advise([trace], H100, targets=["a=x1.5"], jobs=1, step=steps.append)
    kept = sum(found.meets(choice) for choice in found.choices)
    assert 0 < kept < len(found.choices) and steps[-1] == f"{2 * kept} of {2 * kept} settings replayed"


def test_advice_says_what_it_rests_on() -> None:
    trace = side_by_side(launch(name="one"), launch(name="other"))
    found = advise([trace], H100, jobs=1)
    assert found.assumption.startswith("2 of 2 kernels have no counters: ")
    enough = launch(work=work(MOST * 4096 * 132 * H100.boost_clock_mhz * 1e6 * 96e-6))
    assert advise([side_by_side(enough, enough)], H100, jobs=1).assumption == ""
