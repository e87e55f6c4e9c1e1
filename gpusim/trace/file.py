"""Read a trace from a file. Errors name the place in the file."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError, expected_one_of, kinds, quote, show, validating
from gpusim.common.files import data_folder, path_of, read_bytes
from gpusim.trace.fields import PartsRead
from gpusim.trace.format import FORMAT_VERSIONS, Trace
from gpusim.trace.operations import Stream
from gpusim.trace.text import MAX_KEYS, content_of, text_of

SAMPLE = "sample:"  # before the name of a trace that ships with the package
SAMPLES = ("googlenet_forward", "inception_3a", "pair_3a_3x3_precomp_5x5_fft_tiling")
_OPERATIONS = kinds(Stream.model_fields["operations"])  # by their kind


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
    return data_folder("samples", "traces")


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
    with suppress(ValueError, TypeError, RecursionError):
        content = json.loads(text, object_pairs_hook=_Reading())
        if isinstance(content, dict) and type(content.get("version")) is int:
            return Trace.model_validate(content)
    require_content(text, source)
    with validating(Trace, source):  # the place of what is wrong counts from the outermost object
        return Trace.model_validate_json(text, context=PartsRead())


class _Object(dict[str, Any]):
    """An object of the text. Equal ones inside operations are one, so that each is told by its identity."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


class _Reading:
    """Maker of the objects of the text of a trace, the inner ones first. Equal ones in operations are validated once.

    A ValueError, TypeError (a list in a list) or RecursionError says only that the text is wrong.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[Any, ...], _Object] = {}  # inside operations, by keys, values and types
        self._made: dict[int, Any] = {}  # what was read from each of these, by its id
        self._read = PartsRead()

    def __call__(self, pairs: list[tuple[str, Any]]) -> Any:
        """Return an object from its keys and values: an operation read, any other as it is, arrays as tuples."""
        found = _Object(pairs)
        if len(found) < len(pairs) or len(pairs) > MAX_KEYS:
            raise ValueError
        for key, value in pairs:
            if type(value) is list:
                found[key] = tuple(value)
        if "id" in found:
            return self._operation(found)
        if "operations" in found or "streams" in found:
            return found
        values = found.values()  # 1, 1.0 and True are equal
        types = [tuple(map(type, value)) if type(value) is tuple else type(value) for value in values]
        return self._objects.setdefault((*found, *values, *types), found)

    def _operation(self, found: _Object) -> Any:
        if found.get("kind") not in _OPERATIONS:
            raise ValueError
        parts = {key: value if type(value) is tuple else (value,) for key, value in found.items()}
        parts = {key: value for key, value in parts.items() if value and type(value[0]) is _Object}
        content = dict(found)
        for key, value in parts.items():
            known = tuple(self._made.get(id(part), part) for part in value)
            content[key] = known if type(found[key]) is tuple else known[0]
        operation = _OPERATIONS[found["kind"]].model_validate(content, context=self._read)
        for key, value in parts.items():
            read = getattr(operation, key)
            self._made.update(zip(map(id, value), read if type(found[key]) is tuple else (read,), strict=True))
        return operation


def require_content(text: str, source: Path | None) -> dict[str, Any]:
    """Parse the text of a trace; refuse text that is not JSON, profiles and unknown versions."""
    content = content_of(text, source)
    if not isinstance(content, dict):
        raise InputError(source, "", f"is {show(content)}", "an object with version, name, device, …")
    known = " or ".join(map(str, FORMAT_VERSIONS))
    if "traceEvents" in content:
        raise InputError(source, "", "is a profile, not a trace", "a trace, which import_profile makes of it")
    if "version" not in content:
        raise InputError(source, "version", "missing", f"{known}, a version of the trace format")
    version = content["version"]
    if type(version) is not int or version not in FORMAT_VERSIONS:
        expected = f"{known}, the versions of the trace format that this gpusim reads"
        raise InputError(source, "version", f"is {show(version)}", expected)
    return content
