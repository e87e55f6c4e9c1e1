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
        raise _unwritable(path, error) from None
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
            raise _unwritable(path, error) from None
        raise
    finally:
        if not straight:
            with suppress(OSError):
                temporary.unlink()


def _open_new(path: Path, mode: Literal["w", "wb"], straight: bool) -> IO[Any]:
    """Opens `path` for writing: a new file, unless it is a device to write to straight."""
    flags = mode if straight else mode.replace("w", "x")
    return path.open(flags) if "b" in mode else path.open(flags, encoding="utf-8", newline="\n")


def _unwritable(path: str | Path, error: OSError | ValueError) -> InputError:
    return InputError(path, "", f"cannot be written ({_reason(error)})", "a file in a folder that may be written to")


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
