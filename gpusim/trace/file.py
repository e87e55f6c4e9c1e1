"""Read a trace from a file. Errors name the place in the file."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpusim.common.errors import InputError, expected_one_of, kinds, quote, show
from gpusim.common.files import path_of, read_bytes
from gpusim.trace.fields import PartsRead, trace_error, tuples
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
    with suppress(ValueError, TypeError, RecursionError):
        return _read(text)
    require_content(text, source)
    try:  # the place of what is wrong counts from the outermost object
        return Trace.model_validate_json(text, context=PartsRead())
    except ValidationError as error:
        raise trace_error(error, Trace, source) from None


def _read(text: str) -> Trace:
    """Read a trace, its operations one by one. A ValueError, TypeError or RecursionError says only that it is wrong."""
    read = PartsRead()

    def made(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) < len(pairs) or len(pairs) > MAX_KEYS:
            raise ValueError
        found.update((key, tuples(value)) for key, value in pairs if type(value) is list)
        if "id" not in found:
            return found
        if found.get("kind") not in _OPERATIONS:
            raise ValueError
        return _OPERATIONS[found["kind"]].model_validate(found, context=read)

    content = json.loads(text, object_pairs_hook=made)
    if not isinstance(content, dict) or type(content.get("version")) is not int:
        raise ValueError
    return Trace.model_validate(content)


def require_content(text: str, source: Path | None) -> dict[str, Any]:
    """Return what the text of a trace holds; refuse what is no JSON of a version that is known."""
    content = content_of(text, source)
    if not isinstance(content, dict):
        raise InputError(source, "", f"is {show(content)}", "an object with version, name, device, …")
    known = " or ".join(map(str, FORMAT_VERSIONS))
    if "version" not in content:
        raise InputError(source, "version", "missing", f"{known}, a version of the trace format")
    version = content["version"]
    if type(version) is not int or version not in FORMAT_VERSIONS:
        expected = f"{known}, the versions of the trace format that this gpusim reads"
        raise InputError(source, "version", f"is {show(version)}", expected)
    return content
