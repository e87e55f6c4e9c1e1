"""Fits kept between runs: a kernel that was fitted to its recording once is not fitted again.

Each kernel has a small file in the user's cache folder, named by a hash of everything that can change a fit: the
launch, the GPU that it was recorded on, and the sources of the fit and of all that it imports. A lost file costs only
the time of a fit: a damaged file counts as absent, a fit that cannot be written is not kept, the oldest files are
removed when there are too many, and processes that share the folder never see a partly written file.

A file holds only the numbers that the fit found; the rest follows from the launch and the GPU. A file with a number
that no fit of this launch can find counts as absent, whoever wrote it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from gpusim.calibrate.fit import AGE_PREFERENCES, SPREADS, unfitted
from gpusim.calibrate.scaling import LOADS
from gpusim.common import fingerprint
from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write, read_bytes
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import waves
from gpusim.trace.kernels import KernelLaunch

OFF = "GPUSIM_NO_CACHE"  # an environment variable: where it is set to anything, nothing is kept or looked for
MOST_FITS = 10_000  # kept; one takes less than 1 KB
MOST_BYTES = 2**12  # of one
OF_MODEL = (
    *("unit_us", "age_preference", "spread", "ramp_work", "start_us", "sm_start_us"),
    *("issue_us", "dram_share_us", "l2_share_us", "l2_apart_us"),
)
OF_LOAD = ("dram", "l2")
OF_DEMAND = ("latency", "service_demand", "block_us")
MOST_START_US = 10.0  # of a block
MOST_OFF = 10.0  # factor by which a time that a fit found may be off its estimate from the recording


def cache_folder() -> Path:
    """Return gpusim's folder in the user's cache directory."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        base = Path(given)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "gpusim"


def user_fits() -> Fits | None:
    """The fits of this user; None where the environment says so, or there is no home.

    With the fits, what our sources mean is kept from now on.
    """
    if os.environ.get(OFF):
        return None
    try:
        folder = cache_folder()
    except RuntimeError:  # no home
        return None
    fingerprint.keep_in(folder)
    return Fits(folder / "fits")


class Fits:
    """A cache of fits in a folder, made when the first fit is stored; beyond ``most`` the oldest are deleted."""

    def __init__(self, folder: Path, most: int = MOST_FITS) -> None:
        self._folder = folder
        self._most = most
        self._gpus: dict[GPU, str] = {}  # and the sources, as hashes
        self._held: int | None = None  # about how many files are there

    def find(self, launch: KernelLaunch, gpu: GPU) -> KernelModel | None:
        """The fit of a launch recorded on a GPU, as it was kept; None where there is none."""
        try:
            check, _, content = read_bytes(self._file(launch, gpu), MOST_BYTES).partition(b"\n")
            if check != _checksum(content):
                return None
            return _model(json.loads(content), launch, gpu)
        except (InputError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def keep(self, launch: KernelLaunch, gpu: GPU, model: KernelModel) -> None:
        """Keep a fit, where the folder can be written to."""
        content = json.dumps(_numbers(model)).encode()
        with suppress(InputError, OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._file(launch, gpu), "wb") as file:
                file.write(_checksum(content) + b"\n" + content)
            self._forget_oldest()

    def _file(self, launch: KernelLaunch, gpu: GPU) -> Path:
        if gpu not in self._gpus:
            self._gpus[gpu] = fingerprint.data(gpu) + fingerprint.sources("gpusim.calibrate.scaling")
        described = json.dumps(launch, default=vars, sort_keys=True)  # a serializer would first have to be built
        key = sha256((self._gpus[gpu] + described).encode()).hexdigest()
        return self._folder / f"{key}.json"

    def _forget_oldest(self) -> None:
        """Remove the oldest tenth when there are too many."""
        if self._held is None:
            self._held = sum(1 for _ in os.scandir(self._folder))
        else:
            self._held += 1
        if self._held <= self._most:
            return
        by_age = sorted(os.scandir(self._folder), key=lambda entry: (_written_ns(entry), entry.name))
        for entry in by_age[: len(by_age) - self._most * 9 // 10]:
            with suppress(OSError):
                os.unlink(entry.path)
        self._held = None


def _written_ns(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_mtime_ns
    except OSError:  # another process removed it
        return 0


def _checksum(content: bytes) -> bytes:
    return sha256(content).hexdigest().encode()


def _numbers(model: KernelModel) -> dict[str, float]:
    parts = ((model, OF_MODEL), (model.load, OF_LOAD), (model.demand, OF_DEMAND))
    return {name: getattr(part, name) for part, names in parts for name in names}


def _model(kept: dict[str, float], launch: KernelLaunch, gpu: GPU) -> KernelModel | None:
    """The model of a launch with the numbers that were kept; None where no fit of it can have found one of them."""
    model, ramp_us, _ = unfitted(launch, gpu)
    if any(type(kept[name]) is not type(number) for name, number in _numbers(model).items()):
        return None
    of_lists = {"age_preference": AGE_PREFERENCES, "spread": (0.0, *SPREADS)}
    if not all(kept[name] in values for name, values in of_lists.items()):
        return None
    if not all(least <= kept[name] <= most for name, (least, most) in _limits(kept, model, ramp_us, launch).items()):
        return None
    return replace(
        model,
        **{name: kept[name] for name in OF_MODEL},  # type: ignore[arg-type]
        load=model.load._replace(**{name: kept[name] for name in OF_LOAD}),
        demand=replace(model.demand, **{name: kept[name] for name in OF_DEMAND}),  # type: ignore[arg-type]
    )


def _limits(
    kept: dict[str, float], model: KernelModel, ramp_us: float, launch: KernelLaunch
) -> dict[str, tuple[float, float]]:
    """Least and most of each number that a fit of a launch can find, from its model before the fit.

    Only scaling points change the loads and turns that the counters give.
    """
    working_us = launch.duration_us - model.latency_us
    block_us = working_us / max(1.0, waves(model.blocks, model.blocks_per_sm, model.sm_count))
    lives = block_us / MOST_OFF, block_us * MOST_OFF
    most_share_us = MOST_OFF * working_us / model.blocks
    demand, load = model.demand, model.load
    limits = {
        "unit_us": (lives[0] / MOST_OFF, lives[1]),  # memory may be most of a block's time
        "block_us": lives,
        "ramp_work": (0.0, MOST_OFF * ramp_us / block_us),
        "start_us": (0.0, MOST_START_US),
        "sm_start_us": (0.0, MOST_START_US),
        "issue_us": (0.0, most_share_us * model.sm_count),
        "dram_share_us": (0.0, most_share_us),
        "l2_share_us": (0.0, most_share_us),
        "l2_apart_us": (0.0, MOST_OFF * most_share_us),
    }
    if launch.scaling is None:
        given = {"dram": load.dram, "l2": load.l2, "latency": demand.latency, "service_demand": demand.service_demand}
        return limits | {name: (value, value) for name, value in given.items()}
    most_load, most_time = max(LOADS), max(1.0, *demand.demands)
    return limits | {
        "dram": (0.0, load.dram * most_load),
        "l2": (0.0, load.l2 * most_load),
        "service_demand": (demand.demands[demand.bound], most_time),
        "latency": (kept["service_demand"], most_time),
    }
