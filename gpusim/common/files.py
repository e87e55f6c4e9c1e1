"""Reading, with a limit, and writing files: every failure is one clear `InputError`, none is left half written."""

from __future__ import annotations

import gzip
import io
import json
import os
import secrets
import shutil
import stat
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EISDIR, ENOENT
from hashlib import sha256
from os import strerror
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal

from gpusim.common.errors import InputError, quote

MAX_BYTES = 2**31  # of one file, as it is and decompressed: a trace of 10^6 kernels with all counters has 1.2e9
MAX_SETTINGS_BYTES = 2**18  # of a file that a person writes: GPU, experiment, policy
TRACE_ENDINGS = (".json", ".json.gz")
MAX_DOTS = 256  # in a line of TOML
MAX_EXPANSION = 200  # times what a compressed file has; traces have up to 60 times
FREE_EXPANSION_BYTES = 2**24  # that a compressed file may hold however small it is
CHUNK_BYTES = 2**20
_REGULAR = "a regular file that can be read"


class TooLarge(Exception):
    """A file holds more than its reader takes."""


def path_of(given: object, what: str) -> Path:
    """Return a path that is given as text or as one; ``what`` it is of is for the message."""
    if not isinstance(given, str | os.PathLike) or given == "":
        raise InputError(None, what, f"is {quote(given)}", "the path of a file")
    return Path(given)


@contextmanager
def opened(path: str | Path, expected: str = _REGULAR) -> Iterator[BinaryIO]:
    """Open a regular file to read its bytes, following links; never wait for a pipe or a device."""
    try:
        # without waiting, even if it is a pipe without a writer
        at_once = getattr(os, "O_NONBLOCK", 0)
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(path, "", "is no regular file", expected)
            yield file
    except InputError:
        raise
    except (OSError, ValueError, zlib.error) as error:
        raise InputError(path, "", f"cannot be read ({_reason(error)})", expected) from None


def pieces(
    file: BinaryIO | gzip.GzipFile, path: str | Path | None, most: int, size: int = CHUNK_BYTES
) -> Iterator[bytes]:
    """Read an open file to its end, at most ``size`` bytes at a time; its path is for messages.

    Raises `TooLarge` where it has more than ``most`` bytes.
    """
    total = 0
    try:
        while piece := file.read(size):
            total += len(piece)
            if total > most:
                raise TooLarge
            yield piece
    except EOFError:
        raise InputError(path, "", "gzip data is cut short", "a complete gzip file") from None


def most_unpacked(packed_bytes: int, most: int, expansion: int, free_bytes: int) -> int:
    """Bytes that a compressed file may hold: ``free_bytes`` and ``expansion`` times its size, but at most ``most``."""
    return min(most, free_bytes + expansion * packed_bytes)


def read_bytes(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """Return the whole content of a regular file of at most ``most`` bytes; never wait for a pipe or a device."""
    with opened(path) as file:
        data = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
    if len(data) > most:
        raise InputError(path, "", "is too large", f"at most {most:,} bytes")
    return data


def decompressed(data: bytes, path: str | Path | None) -> bytes:
    """Return the content of gzip data, all members of it. It is never held beyond the limit.

    The limit is `MAX_BYTES`, and `MAX_EXPANSION` times the data beyond the first `FREE_EXPANSION_BYTES`.
    """
    most = most_unpacked(len(data), MAX_BYTES, MAX_EXPANSION, FREE_EXPANSION_BYTES)
    content = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content.writelines(pieces(file, path, most))
    except TooLarge:
        problem = f"is too large once decompressed from {len(data):,} bytes"
        raise InputError(path, "", problem, f"at most {most:,} bytes") from None
    except (OSError, zlib.error) as error:
        raise InputError(path, "", f"is not valid gzip ({error})", "a gzip file, or one named without .gz") from None
    return content.getvalue()


def read_text(path: str | Path, most: int = MAX_SETTINGS_BYTES) -> str:
    """Return the whole content of a UTF-8 file."""
    return utf8(read_bytes(path, most), path)


def is_gzip(path: str | Path) -> bool:
    """Whether a file's name ends in .gz, in any case."""
    return str(path).lower().endswith(".gz")


def read_table(path: str | Path) -> str:
    """Return the text of a UTF-8 file, decompressed where its name ends in .gz."""
    data = read_bytes(path)
    return utf8(decompressed(data, path) if is_gzip(path) else data, path)


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Return the content of a TOML file that a person writes; ``what`` it should be is for messages."""
    return parse_toml(read_text(path), path, what)


def parse_toml(text: str, path: str | Path, what: str) -> dict[str, Any]:
    """As `read_toml`, of the text that was read."""
    if text.lstrip().startswith("{"):
        raise InputError(path, "", "is JSON", f"{what} in TOML")
    for n, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MAX_DOTS:  # the time that tomllib takes for a key grows with their square
            raise InputError(path, f"line {n}", f"has more than {MAX_DOTS} dots", "shorter lines")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(path, "", f"is not TOML: {error}", f"{what} in TOML") from None


def utf8(data: bytes, path: str | Path | None) -> str:
    """Return the text that a file holds, without the mark that Windows programs put before it."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(path, f"byte {error.start}", "is not UTF-8", "text in UTF-8") from None


@contextmanager
def atomic_write(path: str | Path, mode: Literal["w", "wb"] = "w") -> Iterator[IO[Any]]:
    """Open a file that appears under its name only once it is whole; text is UTF-8 with newlines as written.

    What is written goes to a temporary file beside `path`, which replaces `path` when the block ends and is removed
    when the block raises. A link is followed; a device such as /dev/stdout is written straight.
    """
    try:
        target = Path(os.path.realpath(path))
        # a pipe has no real path
        straight = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
        temporary = Path(path) if straight else target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    try:
        flags = mode if straight else mode.replace("w", "x")  # a device is written to straight
        text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
        with temporary.open(flags, **text) as file:
            yield file
        if not straight:
            if target.exists():
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
    except BrokenPipeError:  # whoever read it has enough
        raise
    except OSError as error:
        # A failed write names no file; an error that names another file is not about this one.
        if error.filename is None or str(error.filename) in (str(temporary), str(target)):
            raise unwritable(path, error) from None
        raise
    finally:
        if not straight:
            with suppress(OSError):
                temporary.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write a file whole, as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(text)


def read_kept(path: Path, most_bytes: int, salt: bytes = b"") -> Any:
    """Return the plain data of a file that `write_kept` wrote; None where there is none, or not as it was written."""
    with suppress(InputError, ValueError, RecursionError):
        check, _, content = read_bytes(path, most_bytes).partition(b"\n")
        if check == _checksum(salt + content):
            return json.loads(content)
    return None


def write_kept(path: Path, data: Any, most_bytes: int, salt: bytes = b"") -> None:
    """Write plain data with a checksum, if they are no more than so many bytes and the folder can be written to."""
    content = json.dumps(data).encode()
    whole = _checksum(salt + content) + b"\n" + content
    if len(whole) <= most_bytes:
        with suppress(InputError, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, "wb") as file:
                file.write(whole)


def _checksum(content: bytes) -> bytes:
    return sha256(content).hexdigest().encode()


def write_table(path: str | Path, text: str) -> None:
    """Write a UTF-8 file whole, gzip where its name ends in .gz: what `read_table` reads."""
    data = text.encode()
    with atomic_write(path, "wb") as file:
        file.write(zipped(data) if is_gzip(path) else data)


def zipped(data: bytes) -> bytes:
    """Compress by gzip without file name and time, so that the same data gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def require_new_folder(path: str | Path) -> None:
    """Refuse a folder that `whole_folder` would not write."""
    target = Path(path)
    expected = "the name of a new folder, or of an empty one"
    problem = ""
    try:
        if target.is_dir():
            problem = "exists and is not empty" if any(target.iterdir()) else ""
        elif target.exists() or target.is_symlink():
            problem = "exists and is no folder"
    except (OSError, ValueError) as error:
        problem = f"cannot be written ({_reason(error)})"
    if problem:
        raise InputError(path, "", problem, expected)


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Make a folder that appears under its name only once all that is in it is written; give the temporary folder.

    That is beside `path`, renamed when the block ends and removed when the block raises. Folders above it are made
    where they are missing. What `require_new_folder` refuses stays as it is.
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


def data_folder(inside: str, beside: str) -> Path:
    """A folder of files that ship: ``inside`` the package where it is installed, ``beside`` it in a source tree."""
    package = Path(__file__).resolve().parents[1]
    return package / inside if (package / inside).is_dir() else package.parent / beside


def make_folder(path: Path) -> None:
    """Create a folder and its parents, those that do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(path, "", f"cannot be made ({_reason(error)})", "a folder that may be written to") from None


def require_ending(path: str | Path, endings: tuple[str, ...]) -> None:
    """Refuse the name of a file to write that says it is something else; a device such as /dev/stdout has no ending."""
    if not str(path).lower().endswith(endings) and not str(path).startswith("/dev/"):
        raise InputError(path, "", "cannot be written to", f"a file that ends in {' or '.join(endings)}")


def require_output(path: str | Path, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse the name of a file to write, before long work whose result it is to hold."""
    if not os.path.isdir(Path(path).absolute().parent):
        raise unwritable(path, FileNotFoundError(ENOENT, strerror(ENOENT)))
    if os.path.isdir(path):
        raise unwritable(path, IsADirectoryError(EISDIR, strerror(EISDIR)))
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise InputError(path, "", "is read as well as written", "another file to write to")


def require_two_outputs(one: Path | None, other: Path | None) -> None:
    """Refuse a file that is also the other output of a command, or is in that folder, before either is written.

    ``one`` is a file, or a folder that the command makes; ``other`` is a file.
    """
    if one is None or other is None:
        return
    first, second = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    if first == second or first in second.parents:
        problem = "is written twice" if first == second else f"is in {one}, which is written as well"
        raise InputError(other, "", problem, "another name")


def unwritable(path: str | Path, error: OSError | ValueError) -> InputError:
    """Return what to raise where a file cannot be written."""
    return InputError(path, "", f"cannot be written ({_reason(error)})", "a file in a folder that may be written to")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
