"""Read a trace from a file. Errors name the place in the file."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpusim.common.errors import InputError, expected_one_of, kinds, quote, show
from gpusim.common.files import path_of, read_bytes
from gpusim.trace.fields import PartsRead, trace_error
from gpusim.trace.format import FORMAT_VERSIONS, Trace
from gpusim.trace.operations import Stream
from gpusim.trace.text import MAX_KEYS, Walk, parse_json, refuse_repeated, text_of

SAMPLE = "sample:"  # before the name of a trace that ships with the package
SAMPLES = ("googlenet_forward", "inception_3a", "pair_3a_3x3_precomp_5x5_fft_tiling")
MOST_COMPARED = 4096  # characters, of how what may have been read before begins
_OBJECTS = re.compile(r"\[?[ \t\n\r]*\{")  # how one or several begin
_OPERATIONS = kinds(Stream.model_fields["operations"])  # by their kind
_AN_OBJECT: dict[str, Any] = {}  # stands for any


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace.

    Args:
        path: a `.json` or `.json.gz` file; gzip is also recognised by its first bytes. Or the name of one of `SAMPLES`,
            as ``sample:inception_3a``.

    Raises:
        InputError: one line with the file, the place in it, what is wrong and what was expected.
    """
    source = sample(path[len(SAMPLE) :]) if isinstance(path, str) and path.startswith(SAMPLE) else path
    source = path_of(source, "trace")
    return parse_trace(read_bytes(source), source)


def sample(name: str) -> Path:
    """The file of one of `SAMPLES`."""
    if name not in SAMPLES:
        raise InputError(None, f"{SAMPLE}{name}", "is no sample", expected_one_of(SAMPLES, name))
    return sample_folder() / f"{name}.json.gz"


def sample_folder() -> Path:
    """The folder of the samples: in an installed package its own, else the traces of the source tree."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "samples"
    return inside if inside.is_dir() else package.parent / "traces"


def trace_of(given: Trace | str | os.PathLike[str]) -> Trace:
    """Return a trace that is given as an object or as the path of its file."""
    if isinstance(given, Trace):
        return given
    if isinstance(given, str | os.PathLike):
        return load_trace(given)
    raise InputError(None, "trace", f"is {quote(given)}", "a Trace, or the path of a file")


def parse_trace(data: bytes, path: str | os.PathLike[str] | None = None) -> Trace:
    """Read a trace from the bytes of a file, plain or gzip; `path` names the file in errors."""
    source = None if path is None else Path(path)
    text = text_of(data, source)
    del data  # as large as the text
    with suppress(ValueError, RecursionError):
        return _Reading(text).trace()
    require_content(text, source)
    try:  # the place of what is wrong counts from the outermost object
        return Trace.model_validate_json(text, context=PartsRead())
    except ValidationError as error:
        raise trace_error(error, Trace, source) from None


@dataclass(slots=True)
class _Part:
    """One or several objects in an operation: their first place in the text, and what was read from it."""

    start: int
    end: int
    value: Any


class _Reading:
    """Reader of the text of a trace. Equal texts inside operations are read once.

    A ValueError or RecursionError says only that the text is wrong.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._walk = Walk(text)
        self._parts: dict[tuple[str, int], _Part] = {}  # the last of those that begin in one way
        self._read = PartsRead()

    def trace(self) -> Trace:
        """The trace."""
        content, end = self._walk.members(0, self._of_trace)
        if end < len(self._text) or type(content.get("version")) is not int:
            raise ValueError
        return Trace.model_validate(content)

    def _of_trace(self, key: str, at: int) -> tuple[Any, int]:
        return self._walk.elements(at, self._stream) if key == "streams" else self._walk.value(at)

    def _stream(self, at: int) -> tuple[Any, int]:
        return self._walk.members(at, self._of_stream)

    def _of_stream(self, key: str, at: int) -> tuple[Any, int]:
        return self._walk.elements(at, self._operation) if key == "operations" else self._walk.value(at)

    def _operation(self, at: int) -> tuple[Any, int]:
        content, end = self._walk.members(at, self._of_operation)
        kind = content.get("kind")
        if not isinstance(kind, str) or kind not in _OPERATIONS:
            raise ValueError
        parts = [(key, value) for key, value in content.items() if type(value) is _Part]
        content.update((key, part.value) for key, part in parts)
        operation = _OPERATIONS[kind].model_validate(content, context=self._read)
        for key, part in parts:
            part.value = getattr(operation, key)
        return operation, end

    def _of_operation(self, key: str, at: int) -> tuple[Any, int]:
        """Return the value of a key of an operation, as a `_Part` where it may recur."""
        text = self._text
        if not _OBJECTS.match(text, at):
            return self._walk.value(at)
        first = text[at : text.find("}", at, at + MOST_COMPARED) + 1]  # tells most parts apart; empty: none is near
        begins = key, hash(first)
        known = self._parts.get(begins)
        if known is not None:
            end = at + known.end - known.start
            if text[at:end] == text[known.start : known.end]:
                return known, end
        value, end = self._walk.value(at)
        part = self._parts[begins] = _Part(at, end, value)
        return part, end


def require_content(text: str, source: Path | None) -> None:
    """Refuse a text that is no JSON, has a key twice in an object (JSON readers drop one), or another version."""
    outermost: dict[str, Any] = {}
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal outermost, repeated
        if len(pairs) > MAX_KEYS:
            raise InputError(source, "", f"has an object of {len(pairs)} keys", f"at most {MAX_KEYS}")
        outermost = dict(pairs)
        repeated |= len(outermost) < len(pairs)
        return _AN_OBJECT

    content = parse_json(text, source, look)
    if repeated:
        refuse_repeated(text, source)
    if content is not _AN_OBJECT:
        raise InputError(source, "", f"is {show(content)}", "an object with version, name, device, …")
    known = " or ".join(map(str, FORMAT_VERSIONS))
    if "version" not in outermost:
        raise InputError(source, "version", "missing", f"{known}, a version of the trace format")
    version = outermost["version"]
    if type(version) is not int or version not in FORMAT_VERSIONS:
        expected = f"{known}, the versions of the trace format that this gpusim reads"
        raise InputError(source, "version", f"is {show(version)}", expected)
