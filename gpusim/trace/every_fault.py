"""Every fault of a trace that cannot be read, where reading it stops at the first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpusim.common.errors import InputError, told
from gpusim.common.files import read_bytes
from gpusim.trace.checks import faults
from gpusim.trace.fields import Strict
from gpusim.trace.file import require_content
from gpusim.trace.format import Trace
from gpusim.trace.operations import Stream
from gpusim.trace.programs import Program
from gpusim.trace.text import text_of


def every_fault(path: str, first: InputError) -> Iterator[InputError]:
    """Yield the faults of a file that is no trace, part by part; those between operations where each part is right.

    It is ``first``, why it could not be read, alone where the file does not hold the parts of a trace.
    """
    source = Path(path)
    try:
        text = text_of(read_bytes(source), source)
        content = require_content(text, source)
    except InputError:
        yield first
        return
    several = _faults(content, source)
    yield next(several, first)
    yield from several


def _faults(content: dict[str, Any], source: Path) -> Iterator[InputError]:
    streams = content.get("streams")
    if not isinstance(streams, list):
        return
    sound = True
    for error in _errors(content, streams):
        sound = False
        yield told(error, Trace, source)
    if sound:
        read = [Stream.model_validate_json(json.dumps(stream)) for stream in streams]
        programs = [Program.model_validate_json(json.dumps(program)) for program in content.get("programs", ())]
        for fault in faults(read, programs, content["version"]):
            yield fault.at(source)


def _errors(content: dict[str, Any], streams: list[Any]) -> Iterator[ErrorDetails]:
    """Faults that pydantic finds in each part read by itself."""
    for error in _wrong(Trace, {**content, "streams": []}):
        if error["loc"]:  # else that there are no operations
            yield error
    for s, stream in enumerate(streams):
        operations = stream.get("operations") if isinstance(stream, dict) else None
        parts = operations if isinstance(operations, list) else []
        for error in _wrong(Stream, {**stream, "operations": []} if parts else stream):
            yield {**error, "loc": ("streams", s, *error["loc"])}
        for o, operation in enumerate(parts):
            for error in _wrong(Stream, {"name": "one", "operations": [operation]}):
                yield {**error, "loc": ("streams", s, "operations", o, *error["loc"][2:])}


def _wrong(model: type[Strict], part: Any) -> list[ErrorDetails]:
    try:
        model.model_validate_json(json.dumps(part))
    except ValidationError as error:
        return error.errors(include_url=False)
    return []
