"""Fits kept between runs: the same to the bit, under all that can change them, and safe to lose or to be forged."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import REPOSITORY
from hypothesis import given
from strategies import examples
from strategies import kernels as launches

from gpusim import load_gpu, load_trace
from gpusim.calibrate import cache, kernels
from gpusim.calibrate.cache import Fits
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.scaling import confined_us, fitted
from gpusim.cli import main
from gpusim.common.kept import Kept
from gpusim.trace.kernels import KernelLaunch, ScalingPoint

TRACE = REPOSITORY / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
H200 = load_gpu("h200")


@pytest.fixture(scope="module")
def launch() -> KernelLaunch:
    return next(launch for op in load_trace(TRACE).operations() for launch in op.launches())


def test_a_kept_fit_is_the_fit_to_the_bit(tmp_path: Path, launch: KernelLaunch) -> None:
    model, fits = anchored(launch, H200), Fits(Kept(tmp_path / "new" / "folder"))
    assert fits.find(launch, H200) is None
    fits.keep(launch, H200, model)
    assert Fits(Kept(tmp_path / "new" / "folder")).find(launch, H200) == model


def test_another_launch_gpu_or_source_is_another_fit(
    tmp_path: Path, launch: KernelLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = Fits(Kept(tmp_path))
    fits.keep(launch, H200, anchored(launch, H200))
    assert fits.find(launch.model_copy(update={"duration_us": launch.duration_us + 1.0}), H200) is None
    assert fits.find(launch, replace(H200, sm_count=H200.sm_count - 2)) is None
    assert fits.find(launch, H200) is not None
    monkeypatch.setattr(cache.fingerprint, "sources", lambda *modules: "changed")
    assert Fits(Kept(tmp_path)).find(launch, H200) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b"0" * 64 + b"\n{}", None])
def test_what_is_not_as_written_counts_as_absent(tmp_path: Path, launch: KernelLaunch, content: bytes | None) -> None:
    fits, model = Fits(Kept(tmp_path)), anchored(launch, H200)
    fits.keep(launch, H200, model)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"unit_us": 1', b'"unit_us": 2') if content is None else content)
    assert file.read_bytes() != whole
    assert fits.find(launch, H200) is None
    fits.keep(launch, H200, model)
    assert file.read_bytes() == whole


def written(folder: Path, content: object) -> None:
    """Put something else into the only file, with its checksum."""
    (file,) = folder.iterdir()
    data = json.dumps(content).encode()
    file.write_bytes(sha256(data).hexdigest().encode() + b"\n" + data)


def kept(folder: Path) -> dict[str, Any]:
    (file,) = folder.iterdir()
    content: dict[str, Any] = json.loads(file.read_bytes().partition(b"\n")[2])
    return content


TIMES = [0.0, -1.0, 1e-300, 1e9]
SHARES = [-1.0, -1e-300, 1e6]
GIVEN = [0.0, -1.0, 100.0]  # by the counters, where there are no scaling points
NUMBERS = {
    **dict.fromkeys(("unit_us", "block_us"), TIMES),
    **dict.fromkeys(
        ("ramp_work", "start_us", "sm_start_us", "issue_us", "dram_share_us", "l2_share_us", "l2_apart_us"), SHARES
    ),
    **dict.fromkeys(("dram", "l2", "latency", "service_demand"), GIVEN),
    "spread": [-0.4, 0.5, 2.0],
    "age_preference": [-0.02, 0.03, 1.0],
}
NO_NUMBERS = [float("nan"), float("inf"), float("-inf"), None, True, "1.0", [], [1.0], {}]


@pytest.mark.parametrize("name", NUMBERS)
def test_an_entry_with_a_number_that_no_fit_finds_is_fitted_again(
    tmp_path: Path, launch: KernelLaunch, name: str
) -> None:
    """Whoever wrote it: its checksum is right."""
    fits, model = Fits(Kept(tmp_path)), anchored(launch, H200)
    fits.keep(launch, H200, model)
    sound = kept(tmp_path)
    assert set(sound) == set(NUMBERS)
    for wrong in (*NUMBERS[name], *NO_NUMBERS):
        written(tmp_path, {**sound, name: wrong})
        assert fits.find(launch, H200) is None, wrong
    assert kernels.Kernels(H200, H200, fits=fits).model(launch, "") == model
    assert kept(tmp_path) == sound
    written(tmp_path, {other: number for other, number in sound.items() if other != name})
    assert fits.find(launch, H200) is None


@pytest.mark.parametrize(
    "content", [None, 1.0, "x", [], [[]] * 12, {}, {"unit_us": 1.0}, {"unit_us": {"unit_us": 1.0}}]
)
def test_an_entry_of_another_form_counts_as_absent(tmp_path: Path, launch: KernelLaunch, content: object) -> None:
    fits = Fits(Kept(tmp_path))
    fits.keep(launch, H200, anchored(launch, H200))
    written(tmp_path, content)
    assert fits.find(launch, H200) is None


def test_what_an_entry_says_of_anything_but_the_fit_is_not_read(tmp_path: Path, launch: KernelLaunch) -> None:
    fits, model = Fits(Kept(tmp_path)), anchored(launch, H200)
    fits.keep(launch, H200, model)
    written(
        tmp_path, {**kept(tmp_path), "blocks": 0, "sm_count": 10**9, "name": "x", "solo_us": -1.0, "own_load": None}
    )
    assert fits.find(launch, H200) == model


def test_scaling_points_change_loads_turns_and_ramp_within_what_is_tried(tmp_path: Path, launch: KernelLaunch) -> None:
    plain = anchored(launch, H200)
    point = ScalingPoint(sms=32, duration_us=0.8 * confined_us(plain, 32, H200))
    told = launch.model_copy(update={"scaling": (point,)})
    fits, model = Fits(Kept(tmp_path)), fitted(told, H200)
    assert model != plain
    fits.keep(told, H200, model)
    assert fits.find(told, H200) == model
    sound, held = kept(tmp_path), plain.demand.demands[plain.demand.bound]
    for changed in (
        {"dram": 3.1 * plain.load.dram},
        {"dram": -1e-300},
        {"l2": 3.1 * plain.load.l2},
        {"latency": 0.99 * sound["service_demand"]},
        {"latency": 1.1},
        {"service_demand": 0.99 * held},
        {"service_demand": 1.1, "latency": 1.1},
        {"ramp_work": 100.0 * max(1.0, sound["ramp_work"])},
    ):
        written(tmp_path, {**sound, **changed})
        assert fits.find(told, H200) is None, changed
    written(tmp_path, {**sound, "dram": 2.9 * plain.load.dram})
    assert fits.find(told, H200) is not None


@examples(50)
@given(launch=launches())
def test_what_is_found_of_any_launch_is_its_fit(launch: KernelLaunch) -> None:
    with TemporaryDirectory() as folder:
        fits, model = Fits(Kept(Path(folder))), anchored(launch, H200)
        fits.keep(launch, H200, model)
        assert fits.find(launch, H200) in (model, None)


def test_every_fit_of_a_trace_that_ships_is_found_again(tmp_path: Path) -> None:
    fits = Fits(Kept(tmp_path))
    for op in load_trace(REPOSITORY / "traces" / "inception_3a.json.gz").operations():
        for launch in op.launches():
            model = anchored(launch, H200)
            fits.keep(launch, H200, model)
            assert fits.find(launch, H200) == model


def test_the_oldest_go(tmp_path: Path, launch: KernelLaunch) -> None:
    model, fits = anchored(launch, H200), Fits(Kept(tmp_path, most=10))
    for i in range(25):
        fits.keep(launch.model_copy(update={"name": f"k{i}"}), H200, model)
        assert len(list(tmp_path.iterdir())) <= 10
    assert fits.find(launch.model_copy(update={"name": "k24"}), H200) is not None
    assert fits.find(launch.model_copy(update={"name": "k0"}), H200) is None


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path, launch: KernelLaunch) -> None:
    (tmp_path / "file").touch()
    fits = Fits(Kept(tmp_path / "file"))
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
