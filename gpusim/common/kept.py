"""Results of long computations, kept between runs in the user's cache folder, in small files.

Each is named by a hash of everything that can change it, which the caller makes. A lost file costs only the time to
compute it again: a damaged file counts as absent, one that cannot be written is not kept, the oldest files are removed
when there are too many, and processes that share the folder never see a partly written file.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpusim.common import fingerprint
from gpusim.common.files import read_kept, write_kept

OFF = "GPUSIM_NO_CACHE"  # an environment variable: where it is set to anything, nothing is kept or looked for
MOST_FILES = 10_000  # kept in a folder
MOST_BYTES = 2**16  # of one


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


def user_kept(name: str) -> Kept | None:
    """The cache of this user with a name; None where the environment says so, or there is no home.

    With it, the meanings of our sources are kept from now on.
    """
    if os.environ.get(OFF):
        return None
    try:
        folder = cache_folder()
    except RuntimeError:  # no home
        return None
    fingerprint.keep_in(folder)
    return Kept(folder / name)


class Kept:
    """Plain data in the files of a folder, made when the first is kept; beyond ``most`` the oldest are deleted."""

    def __init__(self, folder: Path, most: int = MOST_FILES) -> None:
        self._folder = folder
        self._most = most
        self._held: int | None = None  # about how many files are there

    def find(self, key: str) -> Any:
        """The data kept under a key; None where there are none, or not as they were written."""
        return read_kept(self._file(key), MOST_BYTES)

    def keep(self, key: str, data: Any) -> None:
        """Keep plain data under a key, if they are small and the folder can be written to."""
        write_kept(self._file(key), data, MOST_BYTES)
        with suppress(OSError):
            self._forget_oldest()

    def _file(self, key: str) -> Path:
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
