"""Fits kept between runs: the same to the bit, under all that can change them, and safe to lose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import REPOSITORY

from gpusim import load_gpu, load_trace
from gpusim.calibrate import cache, kernels
from gpusim.calibrate.cache import Fits
from gpusim.calibrate.fit import anchored
from gpusim.cli import main
from gpusim.trace.kernels import KernelLaunch

TRACE = REPOSITORY / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
H200 = load_gpu("h200")


@pytest.fixture(scope="module")
def launch() -> KernelLaunch:
    return next(launch for op in load_trace(TRACE).operations() for launch in op.launches())


def test_a_kept_fit_is_the_fit_to_the_bit(tmp_path: Path, launch: KernelLaunch) -> None:
    model, fits = anchored(launch, H200), Fits(tmp_path / "new" / "folder")
    assert fits.find(launch, H200) is None
    fits.keep(launch, H200, model)
    assert Fits(tmp_path / "new" / "folder").find(launch, H200) == model


def test_another_launch_gpu_or_source_is_another_fit(
    tmp_path: Path, launch: KernelLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = Fits(tmp_path)
    fits.keep(launch, H200, anchored(launch, H200))
    assert fits.find(launch.model_copy(update={"duration_us": launch.duration_us + 1.0}), H200) is None
    assert fits.find(launch, replace(H200, sm_count=H200.sm_count - 2)) is None
    assert fits.find(launch, H200) is not None
    monkeypatch.setattr(cache.fingerprint, "sources", lambda *modules: "changed")
    assert Fits(tmp_path).find(launch, H200) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b"0" * 64 + b"\n{}", None])
def test_what_is_not_as_written_counts_as_absent(tmp_path: Path, launch: KernelLaunch, content: bytes | None) -> None:
    fits, model = Fits(tmp_path), anchored(launch, H200)
    fits.keep(launch, H200, model)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"jitter": 0.', b'"jitter": 1.') if content is None else content)
    assert file.read_bytes() != whole
    assert fits.find(launch, H200) is None
    fits.keep(launch, H200, model)
    assert file.read_bytes() == whole


def test_the_oldest_go(tmp_path: Path, launch: KernelLaunch) -> None:
    model, fits = anchored(launch, H200), Fits(tmp_path, most=10)
    for i in range(25):
        fits.keep(launch.model_copy(update={"name": f"k{i}"}), H200, model)
        assert len(list(tmp_path.iterdir())) <= 10
    assert fits.find(launch.model_copy(update={"name": "k24"}), H200) is not None
    assert fits.find(launch.model_copy(update={"name": "k0"}), H200) is None


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path, launch: KernelLaunch) -> None:
    (tmp_path / "file").touch()
    fits = Fits(tmp_path / "file")
    fits.keep(launch, H200, anchored(launch, H200))
    assert fits.find(launch, H200) is None


def test_a_second_run_fits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ["replay", str(TRACE), "--policy", "leftover"]
    assert main([*command, "--no-cache"]) == 0
    first = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert main(command) == 0
    assert capsys.readouterr().out == first
    assert list(tmp_path.iterdir())

    def refuse(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(kernels, "fitted", refuse)
    assert main(command) == 0
    assert capsys.readouterr().out == first
