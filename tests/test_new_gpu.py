"""A GPU file out of a profile: what the profile says, and of the nearest GPU what it does not, marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from profiles import refused
from test_import_kineto import kernel as kineto_kernel
from test_import_kineto import write as write_kineto
from test_import_nsys import kernel, write

from gpusim import InputError, cli, load_gpu
from gpusim.io import nsys
from gpusim.io.new_gpu import described, gpu_file, name_of
from gpusim.io.products import nearest

RTX_3060 = {  # as nsys 2025.5 wrote it
    "id": 0, "name": "NVIDIA GeForce RTX 3060", "l2CacheSize": 2359296, "totalMemory": 12488343552,
    "memoryBandwidth": 360048000000, "clockRate": 1777000000, "smCount": 28, "chipName": "GA106",
    "maxRegistersPerBlock": 65536, "maxShmemPerBlock": 49152, "maxShmemPerBlockOptin": 101376,
    "maxShmemPerSm": 102400, "maxRegistersPerSm": 65536, "maxWarpsPerSm": 48, "maxBlocksPerSm": 16,
    "maxThreadsPerBlock": 1024, "computeMajor": 8, "computeMinor": 6,
}  # fmt: skip
B300 = {"id": 0, "name": "NVIDIA B300", "totalGlobalMem": 288 * 10**9, "computeMajor": 10, "computeMinor": 0,
        "numSms": 160, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536}  # fmt: skip


def nsys_file(path: Path, **changed: object) -> Path:
    return write(path, {nsys.KERNELS: [kernel(0, 1000, 1)], nsys.GPUS: [RTX_3060 | changed]})


def kineto_file(path: Path, **changed: object) -> Path:
    return write_kineto(path, [kineto_kernel("k", 0)], deviceProperties=[B300 | changed])


def test_what_nsys_says_is_in_the_file(tmp_path: Path) -> None:
    path = nsys_file(tmp_path / "p.sqlite")
    found = described(path)
    assert name_of(found) == "rtx3060"
    (tmp_path / "rtx3060.toml").write_text(gpu_file(found, path))
    gpu = load_gpu(tmp_path / "rtx3060.toml")
    assert (gpu.sm_count, gpu.boost_clock_mhz, gpu.dram_bandwidth_gb_per_s, gpu.l2_bytes) == (
        28,
        1777.0,
        360.0,
        2359296,
    )
    assert [name for name in gpu.unverified if "." not in name] == ["sms_per_tpc", "fp32_lanes_per_sm"]


def test_what_kineto_does_not_say_is_that_of_the_nearest_gpu(tmp_path: Path) -> None:
    path = kineto_file(tmp_path / "p.json")
    (tmp_path / "mine.toml").write_text(gpu_file(described(path), path))
    gpu, b200 = load_gpu(tmp_path / "mine.toml"), load_gpu("b200")
    assert (gpu.sm_count, gpu.memory_bytes, gpu.boost_clock_mhz) == (160, 288 * 10**9, b200.boost_clock_mhz)
    assert gpu.dram_bandwidth_gb_per_s == pytest.approx(b200.dram_bandwidth_gb_per_s * 160 / b200.sm_count, rel=1e-4)
    assert {"boost_clock_mhz", "dram_bandwidth_gb_per_s", "l2_bytes", "architecture"} <= set(gpu.unverified)


def test_a_limit_that_differs_is_kept(tmp_path: Path) -> None:
    path = nsys_file(tmp_path / "p.sqlite", maxBlocksPerSm=8)
    (tmp_path / "mine.toml").write_text(gpu_file(described(path), path))
    assert load_gpu(tmp_path / "mine.toml").limits.max_blocks_per_sm == 8


def test_an_unknown_gpu_names_the_nearest_and_how_to_make_a_file(tmp_path: Path) -> None:
    assert nearest("8.6", 28).compute_capability == "8.6"
    assert nearest("10.3", 160).name == "b200"
    said = refused(nsys_file(tmp_path / "p.sqlite"))
    assert "the profile names 'NVIDIA GeForce RTX 3060' with 28 SMs" in said
    assert "the nearest is rtx3080, with 68 SMs), or a file, which `gpusim gpus new --from-profile FILE` makes" in said


def test_a_compute_capability_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = kineto_file(tmp_path / "p.json", computeMajor=99)
    with pytest.raises(InputError, match=r"compute capability: .*99\.0"):
        gpu_file(described(path), path)


def test_the_command_writes_a_gpu_that_imports_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out, trace = nsys_file(tmp_path / "p.sqlite"), tmp_path / "mine.toml", tmp_path / "t.json"
    assert cli.main(["gpus", "new", "--from-profile", str(path), "-o", str(out)]) == 0
    assert "28 SMs, compute capability 8.6" in capsys.readouterr().out
    assert cli.main(["import", str(path), "--gpu", str(out), "-o", str(trace)]) == 0
    assert json.loads(trace.read_text())["device"] == "mine"
    assert f"Give --recorded-on {out} to every command that reads this trace." in capsys.readouterr().out
    assert cli.main(["replay", str(trace), "--recorded-on", str(out), "--policy", "serial", "--no-cache"]) == 0


def test_a_file_that_is_there_is_overwritten_only_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file may have values that its owner has put right."""
    argv = ["gpus", "new", "--from-profile", str(nsys_file(tmp_path / "p.sqlite"))]
    monkeypatch.chdir(tmp_path)
    assert cli.main(argv) == 0
    (made,) = tmp_path.glob("*.toml")
    made.write_text(made.read_text() + "# mine\n")
    capsys.readouterr()
    assert cli.main(argv) == 2
    assert f"{made.name}: is there already; expected -o FILE.toml" in capsys.readouterr().err
    assert made.read_text().endswith("# mine\n")
    assert cli.main([*argv, "-o", made.name]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["new"], "gpus new: lacks --from-profile"),
        (["h200", "-o", "x.toml"], "--out: is given without new"),
        (["h200", "--device", "0"], "--device: is given without new"),
        (["new", "--from-profile", "P", "-o", "x.json"], "expected a file that ends in .toml"),
        (["new", "--from-profile", "P", "-o", "h200.toml"], "is named 'h200', as a GPU that ships"),
        (["new", "--from-profile", "P", "--device", "3"], "GPU 3 is not described; expected one of 0"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = nsys_file(tmp_path / "p.sqlite")
    assert cli.main(["gpus", *(str(path) if word == "P" else word for word in arguments)]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_gpu_that_ships_is_its_own_nearest(tmp_path: Path) -> None:
    path = kineto_file(tmp_path / "p.json", name="NVIDIA H200", numSms=132, computeMajor=9, totalGlobalMem=141 * 10**9)
    written = gpu_file(described(path), path)
    assert "as of h200, the nearest GPU" in written and "gh200" not in written


def test_a_file_that_describes_no_gpu_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="is no profile that describes a GPU; expected a profile of nsys"):
        described(tmp_path / "a.csv")
    with pytest.raises(InputError, match="does not describe its GPU"):
        described(write(tmp_path / "b.sqlite", {nsys.KERNELS: [kernel(0, 1000, 1)]}))
