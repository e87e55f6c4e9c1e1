"""The studies of Li et al. and of Geisler: their figures hold by hand. Their pages: tests/test_pages.py."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
HOST = EXPERIMENTS / "h200_microbench" / "host.csv"
HOST_H100 = EXPERIMENTS / "h100_microbench" / "host.csv"


def table(name: str, title: str) -> list[list[str]]:
    """The rows of the tables under a heading of a study's page, without the first's head."""
    lines = (EXPERIMENTS / name / "README.md").read_text("utf-8").split(f"## {title}")[1].split("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows[1:]]


def test_geisler_by_hand() -> None:
    """(120.9 + 212.6 + 214.9) / 214.9; his copies' bytes; at most 41.343 of 106.929 s not allocating."""
    said = {row[0]: row[1] for row in table("geisler", "What the report says")}
    assert said["without allocating and freeing a product is over 2x as fast"] == "2.55x"
    hidden, images, pixels, digits = 100, 200, 784, 10
    shapes = [
        (hidden, images, pixels), (digits, images, hidden), (digits, hidden, images), (hidden, images, digits),
        (hidden, pixels, images),
    ]  # fmt: skip
    there, back = sum(m * k + k * n + m * n for m, n, k in shapes), sum(m * n for m, n, _ in shapes)
    assert said["copies to the GPU take 4.6 times those back"] == f"{there / back:.1f} times the bytes"
    share = 100 * (219.85 / 226.735 - 41.343 / 106.929)
    assert said["allocating and freeing is largely responsible for the CPU's time"] == f"{share:.0f} to 97 % of the run"


def test_geislers_what_ifs_are_predicted_as_they_were_measured() -> None:
    """Where copies are pinned and overlap within 20 %; every variant in the measured order, for one rank."""
    with open(EXPERIMENTS / "geisler" / "result.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["machine"] == "h200"]
    assert len(rows) == 30
    for row in rows:
        if row["variant"] == "and copies overlap":
            assert float(row["predicted_us"]) == pytest.approx(float(row["measured_us"]), rel=0.2)
    for neurons in ("100", "1000"):
        one = [row for row in rows if (row["neurons"], row["ranks"]) == (neurons, "1")]
        by = [sorted(one, key=lambda row: -float(row[column])) for column in ("predicted_us", "measured_us")]
        assert by[0] == by[1]


def test_li2016_by_hand() -> None:
    """cuda-convnet2: 3,712 registers a warp become 3,840, of which 16,384 in each of four parts of an SM hold 4."""
    said = {row[0]: (row[1], row[2]) for row in table("li2016", "What they say")}
    assert said["116 registers leave cuda-convnet2 17 warps of 64"] == ("16", "yes")
    assert said["fig. 3d: below a filter of 7 GEMM is faster, by 1.21 to 2.62x"] == ("1.3 to 2.6x", "yes")
    assert said["fig. 3d: above 7 FFT is faster, by 1.15 to 19x"] == ("2.1 to 4.3x", "yes")
    rooms = {row[0]: row[3:8] for row in table("li2016", "Occupancy of a K40c")}
    assert said["fig. 3a: FFT is 1.4 to 9.7x as fast at any batch, filter 11"] == (
        "3.0x at batch 64, 3.1x at 128",
        "yes",
    )
    (memory,) = [found for claim, found in said.items() if claim.startswith("fig. 5: direct convolution takes")]
    inputs, outputs, filters = 512 * 3 * 128**2, 512 * 64 * 118**2, 64 * 3 * 11**2
    most = 4 * (inputs + outputs + filters) / 2**20
    assert memory == (f"tensors take 8 to {most:,.0f} MiB, {2 * most:,.0f} with their gradients", "yes")
    (outlier,) = [found for claim, found in said.items() if claim.startswith("fig. 7: Theano-CorrMM")]
    per_byte = 2 * 96 * 3 * 3**2 * 126**2 / (4 * 128**2 * 3)
    assert outlier[0].startswith(f"operations per byte of images: {per_byte:,.0f} in Conv2,") and outlier[1] == "yes"
    assert rooms["cuda-convnet2"] == [
        "9.4",
        "18.8",
        "25.0",
        "25.0",
        "0.0",
    ]  # by shared memory, then registers
    assert rooms["Theano-fft"] == ["31.2", "62.5", "100.0", "100.0", "100.0"]  # 10 blocks of 4.5 KiB


@pytest.mark.parametrize(("gpu", "recorded"), [("h200", HOST), ("h100-sxm", HOST_H100)])
def test_host_costs_are_what_was_recorded(gpu: str, recorded: Path) -> None:
    from gpusim import load_gpu
    from gpusim.lab.record.host import SERVICES, section, times_of

    tables = times_of(recorded.read_text("utf-8").splitlines())
    host = load_gpu(gpu).host
    for service in SERVICES:
        costs = getattr(host, service)
        assert costs is not None
        assert list(costs.bytes) == sorted(tables[service])
        assert costs.us == pytest.approx([tables[service][size] for size in costs.bytes], rel=1e-3)
    text = (EXPERIMENTS.parent / "gpus" / f"{gpu}.toml").read_text("utf-8")
    origin = f"gpusim record host: {recorded.relative_to(EXPERIMENTS.parent).as_posix()}"
    assert section(tables, origin).strip() in text


@pytest.mark.parametrize("recorded", [HOST, HOST_H100])
def test_copies_take_turns_in_one_direction_and_not_in_two(recorded: Path) -> None:
    """What the copy engines of a replay assume, measured: two copies of 128 MiB, each some 2,440 us alone."""
    from gpusim.lab.record.host import times_of

    tables = times_of(recorded.read_text("utf-8").splitlines())
    size = 128 * 2**20
    alone = tables["h2d_pinned"][2 * size] / 2
    assert tables["h2d_beside_h2d"][size] == pytest.approx(2 * alone, rel=0.02)
    assert tables["h2d_beside_d2h"][size] < 1.25 * alone


def test_record_host_says_what_is_missing_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpusim.cli import main

    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["record", "host", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("nvcc: not found on PATH; expected the compiler of the CUDA toolkit")
    assert not (tmp_path / "out").exists()


def test_times_of_something_else_are_refused() -> None:
    from gpusim.common.errors import InputError
    from gpusim.lab.record.host import times_of

    with pytest.raises(InputError, match="printed something else"):
        times_of(["call,bytes,us", "free,many,1"])


def test_cosmoflow_by_hand() -> None:
    """Parameters of its eight layers; their all-reduce among 4 ranks at 50 GB/s, 9 us a message."""
    convolutions = ((4, 16), (16, 32), (32, 64), (64, 128), (128, 256))
    dense = ((256 * 4**3, 128), (128, 64), (64, 4))
    parameters = sum(n * (m * 27 + 1) for m, n in convolutions) + sum((m + 1) * n for m, n in dense)
    with (EXPERIMENTS / "paradl" / "cosmoflow.csv").open(newline="", encoding="utf-8") as file:
        rows = {(row["size"], row["ranks"], row["strategy"]): row for row in csv.DictReader(file)}
    data = rows["128", "4", "data"]
    assert float(data["communication_ms"]) == pytest.approx(6 * (9 + parameters / 50e3) / 1e3, abs=0.005)
    values = [(16 + 4, 128), (16, 128), (32 + 16, 64), (32, 64), (64 + 32, 32), (64, 32), (128 + 64, 16), (128, 16)]
    values += [(256 + 128, 8), (256, 8)]
    held = sum(n * size**3 for n, size in values) + sum(n * (s // 2) ** 3 for n, s in values[1::2])
    held += sum(m + n for m, n in dense)
    assert float(data["memory_gb"]) == pytest.approx(8 * (held + parameters) / 1e9, abs=0.005)
    assert ("128", "8", "spatial") not in rows and float(rows["512", "4", "spatial"]["memory_gb"]) < 16
