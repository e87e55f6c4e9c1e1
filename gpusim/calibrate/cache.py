"""Fits kept between runs: a kernel that was fitted to its recording once is not fitted again.

Each kernel has a small file in the user's cache folder, named by a hash of everything that can change a fit: the
launch, the GPU that it was recorded on, and the sources of the fit and of all that it imports. A lost file costs only
the time of a fit: a damaged file counts as absent, a fit that cannot be written is not kept, the oldest files are
removed when there are too many, and processes that share the folder never see a partly written file.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import fields
from hashlib import sha256
from pathlib import Path

from gpusim.common import fingerprint
from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write, read_bytes
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import MemoryLoad, WarpDemand
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import Footprint
from gpusim.trace.kernels import KernelLaunch

OFF = "GPUSIM_NO_CACHE"  # an environment variable: where it is set to anything, nothing is kept or looked for
MOST_FITS = 10_000  # kept; one takes 1 to 2 KB
MOST_BYTES = 2**16  # of one


def cache_folder() -> Path:
    """The folder of the fits, within the user's cache folder on this system."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        base = Path(given)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "gpusim" / "fits"


def user_fits() -> Fits | None:
    """The fits of this user; None where the environment says so, or there is no home."""
    if os.environ.get(OFF):
        return None
    try:
        return Fits(cache_folder())
    except RuntimeError:  # no home
        return None


class Fits:
    """Fits in a folder.

    Args:
        folder: made when the first is kept.
        most: fits that it may hold; the oldest go.
    """

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
            return _model(json.loads(content))
        except (InputError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def keep(self, launch: KernelLaunch, gpu: GPU, model: KernelModel) -> None:
        """Keep a fit, where the folder can be written to."""
        content = json.dumps(model, default=_fields).encode()
        if len(content) > MOST_BYTES // 2:  # a name of many characters
            return
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


def _fields(part: KernelModel | WarpDemand | Footprint | MemoryLoad) -> dict[str, object]:
    return {field.name: getattr(part, field.name) for field in fields(part) if field.init}


def _model(kept: dict[str, object]) -> KernelModel:
    """Rebuilds a model from the fields that were kept; the others are derived from them."""
    demand, foot, load = kept["demand"], kept["footprint"], kept["load"]
    if not (isinstance(demand, dict) and isinstance(foot, dict) and isinstance(load, dict)):
        raise TypeError
    kept["demand"] = WarpDemand(**{**demand, "demands": tuple(demand["demands"])})
    kept["footprint"] = Footprint(**foot)
    kept["load"] = MemoryLoad(**load)
    return KernelModel(**kept)  # type: ignore[arg-type]
