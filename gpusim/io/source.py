"""Read a profile, plain or gzip, up to a limit of bytes; show progress on a terminal."""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpusim.common.errors import InputError, one_line, quote
from gpusim.common.files import TooLarge, most_unpacked, opened, pieces
from gpusim.common.progress import watcher

CHUNK_BYTES = 2**20
MOST_BYTES = 64 * 2**30  # of a profile, after decompression
TRUSTED_BYTES = 2**26  # that any gzip may unpack to
MOST_EXPANSION = 250  # beyond that: profiles pack 10 to 60 times, a bomb 1000 times
LONGEST_LINE = 2**24  # characters
GZIP = b"\x1f\x8b"
A_PROFILE = "a profile of ncu, PyTorch, JAX, nsys or nvprof, plain or gzip"

_PACKED = {b"PK\x03\x04": "a ZIP archive", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}


def of_amd(path: Path, name: str = "") -> InputError:
    """Return the error of a profile of an AMD GPU, with its name where that is known."""
    of = f" ({quote(one_line(name))})" if name else ""
    return InputError(path, "", f"is a profile of an AMD GPU{of}", "a profile of an NVIDIA GPU")


def chunks(path: Path) -> Iterator[bytes]:
    """The content of a file, unpacked where it is gzip, in pieces of at most `CHUNK_BYTES`."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(path, "", "is not a regular file", A_PROFILE)
    with opened(path, A_PROFILE) as raw:
        start = raw.read(8)
        raw.seek(0)
        for magic, kind in _PACKED.items():
            if start.startswith(magic):
                raise InputError(path, "", f"is packed ({kind})", A_PROFILE)
        size = os.fstat(raw.fileno()).st_size
        packed = start.startswith(GZIP)
        most = most_unpacked(size, MOST_BYTES, MOST_EXPANSION, TRUSTED_BYTES) if packed else MOST_BYTES
        content = gzip.GzipFile(fileobj=raw) if packed else raw
        told = watcher()
        try:
            for data in pieces(content, path, most, CHUNK_BYTES):
                if told is not None:
                    told(raw.tell() / size)
                yield data
        except TooLarge:
            if most == MOST_BYTES:
                raise InputError(path, "", "is too large", f"at most {MOST_BYTES // 2**30} GiB") from None
            problem = f"unpacks to more than {MOST_EXPANSION} times its size"
            raise InputError(path, "", problem, A_PROFILE) from None


def head(path: Path) -> bytes:
    """The first chunk; empty where the file is."""
    pieces = chunks(path)
    try:
        return next(pieces, b"")
    finally:
        pieces.close()  # type: ignore[attr-defined]  # a generator


def text(path: Path) -> Iterator[str]:
    """The content as text: UTF-8, or UTF-16 with its mark; what is neither is replaced."""
    decoder: codecs.IncrementalDecoder | None = None
    for data in chunks(path):
        if decoder is None:
            wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8-sig")(errors="replace")
        yield decoder.decode(data)
    if decoder is not None:
        yield decoder.decode(b"", final=True)


def lines(path: Path) -> Iterator[str]:
    """The content line by line, without line ends."""
    rest = ""
    for piece in text(path):
        *whole, rest = (rest + piece).replace("\r\n", "\n").split("\n")
        yield from whole
        if len(rest) > LONGEST_LINE:
            raise InputError(path, "", f"has a line of more than {LONGEST_LINE} characters", A_PROFILE)
    if rest:
        yield rest


def cells(path: Path, number: int, line: str, expected: str) -> list[str]:
    """The fields of a line of CSV."""
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise InputError(path, f"line {number}", f"is no row ({error})", expected) from None


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A file that a library can read by its path: of one in gzip, a temporary copy; errors as of `chunks`."""
    with tempfile.TemporaryDirectory() as folder:
        with opened(path, A_PROFILE) as file:
            packed = file.read(2) == GZIP
        plain = Path(folder) / "profile" if packed else path
        if packed:
            with plain.open("wb") as copy:
                copy.writelines(chunks(path))
        yield plain
