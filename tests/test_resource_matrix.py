"""The study of the resource matrix, on a made-up recording of two kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.resource_matrix import run as study
from gpusim import load_gpu
from gpusim.calibrate.kernels import Kernels
from gpusim.calibrate.scaling import confined_us
from gpusim.common.errors import InputError
from gpusim.common.files import write_table
from gpusim.io.ncu import REQUIRED
from gpusim.lab import resource_matrix
from gpusim.lab.record.counters import COUNTERS
from gpusim.session import Session

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "resource_matrix"
KERNELS = ("fma1/4", "dram_read4/8")
ISOLATED_US = {"fma1/4": 200.0, "dram_read4/8": 100.0}
PAIRED_US = {"fma1/4": 220.0, "dram_read4/8": 150.0}
LATER_US = 5.0


def _write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    write_table(path, "".join(",".join(map(str, row)) + "\n" for row in (columns, *rows)))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording on an H200: both kernels advance evenly; their counters are small numbers."""
    folder = tmp_path_factory.mktemp("data") / "h200"
    folder.mkdir()
    done = [f"done_{step}_us" for step in range(1, 17)]
    isolated = [
        (name, part, run, 132 if part == "all" else 66, us, *(us * step / 16 for step in range(1, 17)))
        for name, us in ISOLATED_US.items()
        for part in ("all", "first", "second")
        for run in range(3)
    ]
    _write(folder / "isolated.csv.gz", ("kernel", "placement", "run", "sms", "us", *done), isolated)
    kernels = []
    for name in KERNELS:
        blocks = 132 * int(name.split("/")[1])
        counted = dict.fromkeys(COUNTERS, "1") | {"launch__grid_size": str(blocks)}
        counted |= {"launch__shared_mem_per_block_dynamic": "0", "sm__warps_active.avg.per_cycle_active": "16"}
        counted |= {"sm__cycles_active.avg": "300000", "sm__cycles_active.max": "300000"}
        text = {"Kernel Name": "load", "Grid Size": f'"({blocks}, 1, 1)"', "Block Size": '"(128, 1, 1)"'}
        kernels.append({"kernel": name} | text | {"launch__registers_per_thread": "32"} | counted)
        assert not set(REQUIRED) - set(kernels[-1])
    _write(folder / "counters.csv.gz", list(kernels[0]), [list(row.values()) for row in kernels])
    columns = "first,second,placement,run,first_end_us,second_start_us,second_end_us,first_done_before,"
    columns += "first_done_after,second_done_before,second_done_after,first_sms,second_sms,shared_sms"
    pairs = [
        (a, b, placement, run, PAIRED_US[a], LATER_US, LATER_US + PAIRED_US[b] + run, 0, 1, 0, 1, 132, 132,
         132 if placement == "same" else 0)
        for a, b in (KERNELS, KERNELS[::-1])
        for placement in ("same", "disjoint")
        for run in (-1, 0, 1)
    ]  # fmt: skip
    _write(folder / "pairs.csv.gz", columns.split(","), pairs)
    return folder.parent


def test_the_study_scores_both_kernels_of_each_pair(data: Path, tmp_path: Path) -> None:
    rows = resource_matrix.points(data / "h200")
    assert len(rows) == 8
    found = {(row.kernel, row.placement, row.order): row for row in rows}
    for kernel in KERNELS:
        for order in ("first", "second"):
            row = found[kernel, "same", order]
            assert row.measured == pytest.approx(PAIRED_US[kernel] / ISOLATED_US[kernel])
            assert 0.9 < row.predicted < 3.0
            assert row.co_resident == 1.0
    row = found["fma1/4", "same", "first"]
    assert row.shared == pytest.approx(150.0 / 220.0, rel=1e-5)
    assert row.while_both == pytest.approx(150.0 / 200.0)  # of the work that was done meanwhile
    assert "| h200 | the same SMs | 4 |" in str(study.page(rows, study.by_resource(rows))["totals"])
    study.draw("h200", rows, [], tmp_path / "heat.png")
    assert (tmp_path / "heat.png").stat().st_size > 10_000


def test_the_table_of_resources_is_that_of_the_points() -> None:
    points, errors = study.STUDY.read()
    found = study.by_resource(points)
    names = [{(one.gpu, one.placement, one.resource, one.beside): one for one in rows} for rows in (found, errors)]
    assert names[0].keys() == names[1].keys()
    for name, one in names[0].items():  # the table is rounded, so of equals another may come first
        assert one.kernels == names[1][name].kernels
        assert one.mape_percent == pytest.approx(names[1][name].mape_percent, rel=1e-3, abs=1e-3)


def test_a_kernel_beside_nothing_takes_its_isolated_time(data: Path) -> None:
    """The prediction that slowdowns are relative to is that of the same kernel with the same SMs."""
    gpu = load_gpu("h200")
    matrix = resource_matrix.Matrix(data / "h200", gpu)
    assert matrix.later_us == LATER_US
    matrix.later_us = 1000.0
    session = Session(gpu)
    model = Kernels(gpu, gpu).model(matrix.launches["fma1/4"], "")
    assert confined_us(model, 132, gpu) - model.latency_us == pytest.approx(200.0, rel=1e-3)
    both = resource_matrix.predicted_us(matrix, session, ("fma1/4", "fma1/4"), "same", (132, 132))
    assert both == pytest.approx((200.0, 200.0), rel=1e-2)
    split = resource_matrix.predicted_us(matrix, session, ("fma1/4", "dram_read4/8"), "disjoint", (66, 66))
    assert split[0] == pytest.approx(confined_us(model, 66, gpu) - model.latency_us, rel=1e-2)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"isolated\.csv\.gz: file: is missing; expected what gpusim record"):
        resource_matrix.Matrix(tmp_path, load_gpu("h200"))


def test_the_errors_of_a_pair_of_resources() -> None:
    def point(measured: float, predicted: float) -> object:
        return resource_matrix.Point("h200", "fma1/4", "barrier/1", "same", "first", 1.0, 1.0, measured, predicted, 1.0)

    (errors,) = study.by_resource([point(1.0, 1.1), point(2.0, 1.6)])
    assert (errors.resource, errors.beside, errors.kernels) == ("FP32", "barriers", 2)
    assert (errors.mape_percent, errors.bias_percent) == (pytest.approx(15.0), pytest.approx(-5.0))
    assert errors.p95_percent == pytest.approx(19.5)
