"""Reading and writing files: every failure is one clear `InputError`, no file is left half written."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, overload

from gpusim.errors import InputError


def read_bytes(path: str | Path) -> bytes:
    """Returns the whole content of a file.

    Raises:
        InputError: the file is missing, is a folder, or cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(path, "", f"cannot be read ({_reason(error)})", "a readable file") from None


def is_file(path: str | Path) -> bool:
    """Whether there is such a file; not, where no file can have such a name."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def read_text(path: str | Path) -> str:
    """Returns the whole content of a UTF-8 file.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(path, f"byte {error.start}", "is not UTF-8", "text in UTF-8") from None


@overload
@contextmanager
def atomic_write(path: str | Path, mode: Literal["w"] = "w") -> Iterator[IO[str]]: ...
@overload
@contextmanager
def atomic_write(path: str | Path, mode: Literal["wb"]) -> Iterator[IO[bytes]]: ...
@contextmanager
def atomic_write(path: str | Path, mode: Literal["w", "wb"] = "w") -> Iterator[IO[Any]]:
    """Opens a file that appears under its name only once it is whole.

    What is written goes to a temporary file beside `path`, which replaces `path` when the block ends and is
    removed when the block raises. A link is followed; a device such as /dev/stdout is written straight.

    Args:
        path: the file to write; its folder must exist.
        mode: "w" for UTF-8 text with newlines as written, "wb" for bytes.

    Yields:
        The open file.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        target = Path(os.path.realpath(path))
        straight = target.exists() and not target.is_file() and not target.is_dir()
        temporary = target if straight else target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    try:
        with _open_new(temporary, mode, straight) as file:
            yield file
        if not straight:
            if target.exists():
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
    except OSError as error:
        # A failed write names no file; an error that names another file is not about this one.
        if error.filename is None or str(error.filename) in (str(temporary), str(target)):
            raise unwritable(path, error) from None
        raise
    finally:
        if not straight:
            with suppress(OSError):
                temporary.unlink()


def require_new_folder(path: str | Path) -> None:
    """Refuses a folder that `whole_folder` would not write.

    Raises:
        InputError: there is something at `path` other than an empty folder.
    """
    target = Path(path)
    expected = "the name of a new folder, or of an empty one"
    try:
        if target.is_dir():
            if any(target.iterdir()):
                raise InputError(path, "", "exists and is not empty", expected)
        elif target.exists() or target.is_symlink():
            raise InputError(path, "", "exists and is no folder", expected)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(path, "", f"cannot be written ({_reason(error)})", expected) from None


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Makes a folder that appears under its name only once all that is in it is written.

    What is written goes to a temporary folder beside `path`, which is renamed when the block ends and removed when
    the block raises. Folders above it are made where they are missing.

    Args:
        path: the folder; there may be an empty one.

    Yields:
        The temporary folder.

    Raises:
        InputError: `path` exists and is not empty, or something in it cannot be written.
    """
    require_new_folder(path)
    target = Path(path).absolute()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if target.is_dir():
            target.rmdir()
        os.rename(temporary, target)
    except OSError as error:
        raise InputError(path, "", f"cannot be written ({_reason(error)})", "a folder that may be written to") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _open_new(path: Path, mode: Literal["w", "wb"], straight: bool) -> IO[Any]:
    """Opens `path` for writing: a new file, unless it is a device to write to straight."""
    flags = mode if straight else mode.replace("w", "x")
    return path.open(flags) if "b" in mode else path.open(flags, encoding="utf-8", newline="\n")


def unwritable(path: str | Path, error: OSError | ValueError) -> InputError:
    """Returns what to raise where a file cannot be written."""
    return InputError(path, "", f"cannot be written ({_reason(error)})", "a file in a folder that may be written to")


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
