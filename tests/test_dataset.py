"""A dataset that is wrong is refused with one line that says where."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import dataset_sample as sample
import pytest

from gpusim import cli
from gpusim.common.errors import InputError
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.dataset import OUTCOMES, Dataset
from gpusim.lab.validate import Predictor, conditions, measurements

WAVES = "launch__waves_per_multiprocessor"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.build(tmp_path_factory.mktemp("dataset"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "dataset"))


def _lacks(name: str, column: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        sample.edit(folder / name, lambda row: row.pop(column) and None)

    return spoil


def _sets(name: str, column: str, value: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        sample.edit(folder / name, lambda row: row.update({column: value}))

    return spoil


def _sets_first(name: str, column: str, value: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        rows = sample.read(folder / name)
        rows[0][column] = value
        sample.write(folder / name, rows)

    return spoil


def _again(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        rows = sample.read(folder / name)
        sample.write(folder / name, [*rows, rows[-1]])

    return spoil


def _header_only(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        header = ",".join(sample.read(path)[0]) + "\n"
        path.write_bytes(gzip.compress(header.encode()) if name.endswith(".gz") else header.encode())

    return spoil


def _cut(folder: Path) -> None:
    path = folder / "kernels.csv.gz"
    path.write_bytes(path.read_bytes()[:-2000])


def _garbled(folder: Path) -> None:
    path = folder / "kernels.csv.gz"
    whole = bytearray(path.read_bytes())
    whole[200:400] = bytes(200)
    path.write_bytes(bytes(whole))


def _not_gzip(folder: Path) -> None:
    (folder / "kernels.csv.gz").write_bytes(gzip.decompress((folder / "kernels.csv.gz").read_bytes()))


def _short_line(folder: Path) -> None:
    with (folder / "sm_curve.csv").open("a") as file:
        file.write("googlenet,8\n")


def _long_line(folder: Path) -> None:
    with (folder / "sm_curve.csv").open("a") as file:
        file.write(f"{sample.STAIRCASE},8,1.0,2.0\n")


def _no_outcomes(folder: Path) -> None:
    for name in OUTCOMES:
        (folder / name).unlink()


def _binary(folder: Path) -> None:
    (folder / "sm_curve.csv").write_bytes(b"op,sms,ms\n\xff\xfe\x00")


def _nothing_bound(folder: Path) -> None:
    sample.edit(folder / "convolutions.csv", lambda row: row.update(gpu_bound="False"))
    (folder / "modules.csv").unlink()


BAD = {
    "no folder": (shutil.rmtree, ("convolutions.csv", "missing")),
    "no kernels": (lambda f: (f / "kernels.csv.gz").unlink(), ("kernels.csv.gz", "missing")),
    "no outcomes": (_no_outcomes, ("no outcome file",)),
    "empty file": (lambda f: (f / "quota.csv").write_text(""), ("quota.csv", "header", "lacks")),
    "column of a condition": (_lacks("sm_curve.csv", "sms"), ("sm_curve.csv", "lacks sms")),
    "column of an outcome": (_lacks("pairs.csv", "ms_makespan"), ("pairs.csv", "lacks ms_makespan")),
    "column of the calls": (_lacks("convolutions.csv", "gpu_bound"), ("convolutions.csv", "lacks gpu_bound")),
    "counter": (_lacks("kernels.csv.gz", "smsp__inst_executed.sum"), ("kernels.csv.gz", "smsp__inst_executed.sum")),
    "unknown op": (_sets("sm_curve.csv", "op", "net/none"), ("sm_curve.csv", "net/none", "unknown")),
    "unknown op in a branch": (_sets("modules.csv", "ops", "net/none"), ("modules.csv", "net/none", "unknown")),
    "kernel of an unknown op": (_sets("kernels.csv.gz", "op", "net/none"), ("kernels.csv.gz", "net/none", "unknown")),
    "another GPU": (_sets("kernels.csv.gz", WAVES, "17.5"), ("kernels.csv.gz", "17.5 waves", "h200 gives")),
    "waves NaN": (_sets("kernels.csv.gz", WAVES, "nan"), ("kernels.csv.gz", "is nan")),
    "cut off": (_cut, ("kernels.csv.gz", "gzip data is cut short")),
    "garbled": (_garbled, ("kernels.csv.gz",)),
    "not gzip": (_not_gzip, ("kernels.csv.gz", "is not valid gzip")),
    "too few fields": (_short_line, ("sm_curve.csv", "line 5", "too few or too many")),
    "too many fields": (_long_line, ("sm_curve.csv", "line 5", "too few or too many")),
    "not text": (_binary, ("sm_curve.csv",)),
    "outcome NaN": (_sets("sm_curve.csv", "ms", "nan"), ("sm_curve.csv", f"{sample.STAIRCASE}|8", "ms is nan")),
    "outcome empty": (_sets("quota.csv", "ms_b", ""), ("quota.csv", "ms_b is empty")),
    "outcome zero": (_sets("modules.csv", "ms_makespan", "0"), ("modules.csv", "res5a|implicit", "from 1e-06")),
    "SMs no number": (_sets("sm_curve.csv", "sms", "many"), ("sm_curve.csv", "line 2", "sms is many")),
    "SMs of a fraction": (_sets("sm_curve.csv", "sms", "8.5"), ("sm_curve.csv", "sms is 8.5")),
    "no SM": (_sets("sm_curve.csv", "sms", "0"), ("sm_curve.csv", "sms is 0", "at least 1")),
    "too many SMs": (_sets_first("sm_curve.csv", "sms", "133"), ("sm_curve.csv", "133 SMs", "at most 132")),
    "no release": (_sets("quota.csv", "ms_release", "nan"), ("quota.csv", "ms_release is nan")),
    "nothing scored": (_nothing_bound, ("hold nothing to predict",)),
    "time NaN": (_sets("convolutions.csv", "ms_stream_run1", "nan"), ("convolutions.csv", "ms_stream_run1 is nan")),
    "unsupported": (_sets("convolutions.csv", "supported", "False"), ("convolutions.csv", "not supported")),
    "counter NaN": (_sets("kernels.csv.gz", "dram__bytes_read.sum", "nan"), ("kernels.csv.gz", "dram_read")),
    "counter a word": (_sets("kernels.csv.gz", "dram__bytes_read.sum", "n/a"), ("kernels.csv.gz", "kernel 0", "n/a")),
    "counter infinite": (_sets("kernels.csv.gz", "dram__bytes_read.sum", "inf"), ("kernel 0", "dram_read")),
    "hit rate infinite": (_sets("kernels.csv.gz", "lts__t_sector_hit_rate.pct", "inf"), ("kernel 0", "l2_hit")),
    "hit rate NaN": (_sets("kernels.csv.gz", "lts__t_sector_hit_rate.pct", "nan"), ("kernel 0", "l2_hit")),
    "counter negative": (_sets("kernels.csv.gz", "lts__t_bytes.sum", "-1"), ("kernel 0", "l2_bytes")),
    "no blocks": (_sets("kernels.csv.gz", "launch__grid_size", "0"), ("kernel 0", "cannot be")),
    "no duration": (_sets("kernels.csv.gz", "gpu__time_duration.sum", "0"), ("kernel 0", "duration_us")),
    "stream of no name": (_sets("kernels.csv.gz", "stream", "second"), ("kernel 0", "stream")),
    "op empty": (_sets_first("convolutions.csv", "op", ""), ("convolutions.csv", "line 2", "'' as op")),
    "op of two words": (_sets_first("convolutions.csv", "op", "a b"), ("convolutions.csv", "'a b' as op")),
    "op twice": (_again("convolutions.csv"), ("convolutions.csv", "again", "each op once")),
    "gpu_bound maybe": (_sets("convolutions.csv", "gpu_bound", "maybe"), ("gpu_bound is maybe", "True or False")),
    "supported yes": (_sets("convolutions.csv", "supported", "yes"), ("supported is yes", "True or False")),
    "call time negative": (_sets("convolutions.csv", "ms_stream_run2", "-0.1"), ("ms_stream_run2 is -0.1",)),
    "call time zero": (_sets("convolutions.csv", "ms_stream_run1", "0"), ("ms_stream_run1 is 0", "from 1e-06")),
    "outcome shorter than a clock's tick": (_sets("sm_curve.csv", "ms", "1e-320"), ("ms is 1e-320", "from 1e-06")),
    "outcome with underscores": (_sets("sm_curve.csv", "ms", "1_0"), ("ms is 1_0", "a number")),
    "call time of years": (_sets("convolutions.csv", "ms_stream_run1", "1e300"), ("ms_stream_run1 is 1e300",)),
    "kernel twice": (_again("kernels.csv.gz"), ("kernels.csv.gz", "again", "each kernel once")),
    "kernel left out": (_sets("kernels.csv.gz", "index_in_op", "1"), ("kernels.csv.gz",)),
    "kernel of no number": (_sets("kernels.csv.gz", "index_in_op", "x"), ("line 2", "index_in_op is x")),
    "kernel of no op": (_sets_first("kernels.csv.gz", "op", ""), ("kernels.csv.gz", "an empty op is unknown")),
    "outcome of no op": (_sets_first("sm_curve.csv", "op", ""), ("sm_curve.csv", "line 2", "an empty op is unknown")),
    "pair with no b": (_sets_first("pairs.csv", "b", ""), ("pairs.csv", "line 2", "an empty op is unknown")),
    "branch with no ops": (_sets_first("modules.csv", "ops", " "), ("modules.csv", "an empty op is unknown")),
    "mode of a pair": (_sets_first("pairs.csv", "mode", "stream"), ("mode is stream", "streams_b_first")),
    "mode of a module": (_sets_first("modules.csv", "mode", ""), ("modules.csv", "mode is empty", "serial, streams")),
    "outcome twice": (_again("sm_curve.csv"), ("sm_curve.csv", "line 5", "the same as line 4")),
    "branch twice": (_again("modules.csv"), ("modules.csv", "measures the same as")),
    "outcome negative": (_sets_first("pairs.csv", "ms_makespan", "-1"), ("pairs.csv", "ms_makespan is -1")),
    "outcome infinite": (_sets_first("quota.csv", "ms_a", "inf"), ("quota.csv", "ms_a is inf")),
    "no calls": (_sets_first("pairs.csv", "na", "0"), ("pairs.csv", "na is 0", "at least 1")),
    "kA of none": (_sets_first("quota.csv", "kA", "0"), ("quota.csv", "kA is 0", "at least 1")),
    "kA above what fits": (_sets_first("quota.csv", "kA", "33"), ("quota.csv", "kA is 33", "fits on an SM")),
    "blocks above what fits": (
        _sets("residency_curve.csv", "blocks_per_sm", "999"),
        ("residency_curve.csv", "blocks_per_sm is 999", "fits on an SM"),
    ),
    "end of a negative": (_sets_first("pairs.csv", "ms_a", "-1"), ("pairs.csv", "ms_a is -1", "from 1e-06")),
    "end of a branch NaN": (_sets_first("modules.csv", "ms_end", "nan"), ("modules.csv", "ms_end is nan")),
    "SMs of one alone": (_sets_first("pairs.csv", "sms_a", "999"), ("pairs.csv", "sms_a is 999", "at most 132")),
    "release negative": (_sets("quota.csv", "ms_release", "-1"), ("quota.csv", "ms_release is -1")),
    "calls but their header": (_header_only("convolutions.csv"), ("convolutions.csv", "no rows below its header")),
    "kernels but their header": (_header_only("kernels.csv.gz"), ("kernels.csv.gz", "no rows below its header")),
    "outcomes but their header": (_header_only("sm_curve.csv"), ("sm_curve.csv", "no rows below its header")),
    "grid in words": (_sets("kernels.csv.gz", "Grid Size", "big"), ("kernels.csv.gz", "kernel 0")),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refused_with_one_line(case: str, folder: Path) -> None:
    spoil, said = BAD[case]
    spoil(folder)
    with pytest.raises(InputError) as caught:
        _use(folder)
    line = str(caught.value)
    assert "\n" not in line and line.startswith(str(folder))
    assert "; expected " in line
    for part in said:
        assert part in line


def _use(folder: Path) -> None:
    """All that scoring does, but for the replays."""
    dataset = Dataset(folder, load_gpu("h200"))
    wanted = conditions(dataset)
    measurements(dataset)
    predictor = Predictor(dataset)
    for condition in wanted:
        predictor.nothing(condition)


@pytest.mark.parametrize("case", ["counter", "another GPU", "cut off", "outcome NaN", "counter NaN"])
def test_command_says_so_and_writes_nothing(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BAD[case][0](folder)
    before = sorted(folder.parent.rglob("*"))
    rows = folder.parent / "rows.csv"
    assert cli.main(["validate", str(folder), "--rows", str(rows)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(str(folder))
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize("gpu", ["a100-40", "h100-pcie", "rtx4090", "k40c"])
def test_recorded_on_another_gpu(gpu: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The waves that were recorded do not come out of other numbers of SMs."""
    assert cli.main(["validate", str(folder), "--gpu", gpu]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "kernels.csv.gz" in err and f"{gpu} gives" in err


@pytest.mark.parametrize("case", ["byte order mark", "CRLF"])
def test_text_as_other_programs_write_it(case: str, original: Path, folder: Path) -> None:
    for path in folder.glob("*.csv*"):
        packed = path.suffix == ".gz"
        content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        content = b"\xef\xbb\xbf" + content if case == "byte order mark" else content.replace(b"\n", b"\r\n")
        path.write_bytes(gzip.compress(content) if packed else content)
    changed, plain = (Dataset(one, load_gpu("h200")) for one in (folder, original))
    assert changed.outcomes == plain.outcomes
    assert changed.op(sample.STAIRCASE) == plain.op(sample.STAIRCASE)


def test_a_call_shorter_than_its_events(folder: Path) -> None:
    """Nothing is left for its kernels."""
    sample.edit(folder / "convolutions.csv", lambda row: row.update(ms_stream_run1="1e-6", ms_stream_run2="1e-6"))
    dataset = Dataset(folder, load_gpu("h200"))
    with pytest.raises(InputError, match=r"convolutions.csv: .* takes 0.001 us a call; expected more than"):
        Predictor(dataset).predict(conditions(dataset)[0])


def test_unknown_gpu(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(folder), "--gpu", "h300"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_reads_what_was_recorded() -> None:
    """Every recorded op has its kernels, and each kernel its counters."""
    dataset = Dataset(sample.RECORDED, load_gpu("h200"))
    op = dataset.op(sample.STAIRCASE)
    assert op.gpu_bound and len(op.kernels) == 1
    assert op.kernels[0].blocks == 392 and op.kernels[0].threads_per_block == 128
    assert op.ms == pytest.approx(0.35, rel=0.02)
    assert set(dataset.outcomes) == set(OUTCOMES)


@pytest.mark.parametrize("name", OUTCOMES)
def test_any_outcome_file_may_be_missing(name: str, folder: Path) -> None:
    (folder / name).unlink()
    dataset = Dataset(folder, load_gpu("h200"))
    assert name not in dataset.outcomes
    assert {(row.experiment) for row in conditions(dataset)}


def _unprofiled(folder: Path, op: str, bound: str) -> None:
    """Takes the kernels of an op away."""
    sample.edit(folder / "convolutions.csv", lambda row: row.update(gpu_bound=bound) if row["op"] == op else None)
    rows = [row for row in sample.read(folder / "kernels.csv.gz") if row["op"] != op]
    sample.write(folder / "kernels.csv.gz", rows)


def test_a_call_that_was_timed_and_not_profiled_is_no_fault_where_nothing_needs_it(folder: Path) -> None:
    """As `gpusim record --algorithms fastest` writes it."""
    (folder / "residency_curve.csv").unlink()
    _unprofiled(folder, sample.RESIDENCY, "False")
    dataset = Dataset(folder, load_gpu("h200"))
    assert conditions(dataset)
    with pytest.raises(InputError, match=f"{sample.RESIDENCY}: has no kernels"):
        dataset.op(sample.RESIDENCY)


@pytest.mark.parametrize("bound", ["True", "False"])
def test_an_outcome_of_a_call_without_kernels_is_refused(bound: str, folder: Path) -> None:
    _unprofiled(folder, sample.RESIDENCY, bound)
    with pytest.raises(InputError, match=r"kernels\.csv\.gz: .*has no kernels"):
        Dataset(folder, load_gpu("h200"))


def test_what_was_recorded_with_outcomes_is_read() -> None:
    recorded = sample.RECORDED.parents[1] / "recordings" / "googlenet_b16"
    dataset = Dataset(recorded, load_gpu("h200"))
    assert {"sm_curve.csv", "residency_curve.csv", "pairs.csv", "modules.csv"} == dataset.outcomes.keys()
    kinds = {condition.experiment for condition in conditions(dataset)}
    assert {"modules_serial", "modules_streams", "green", "residency_curve"} <= kinds
