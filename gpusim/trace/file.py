"""Reading a trace from a file; what is wrong with it is told by its place in the file."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import (
    ValidationError,
)
from pydantic_core import ErrorDetails

from gpusim.common.errors import InputError, expected_one_of, first_problem
from gpusim.common.files import read_bytes
from gpusim.trace.fields import ID_PATTERN, NAME_PATTERN, STREAM_PATTERN, PartsRead, Strict, models_in
from gpusim.trace.format import FORMAT_VERSION, Trace
from gpusim.trace.operations import Stream, kinds
from gpusim.trace.text import MAX_KEYS, Walk, parse_json, place_in, refuse_repeated, show, text_of

MOST_COMPARED = 4096  # characters, of how what may have been read before begins
_OBJECTS = re.compile(r"\[?[ \t\n\r]*\{")  # how one or several begin
_AN_OBJECT: dict[str, Any] = {}  # stands for any


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace.

    Args:
        path: a `.json` or `.json.gz` file; gzip is also recognised by its first bytes.

    Raises:
        InputError: one line with the file, the place in it, what is wrong and what was expected.
    """
    return parse_trace(read_bytes(Path(path)), path)


def parse_trace(data: bytes, path: str | os.PathLike[str] | None = None) -> Trace:
    """Read a trace from the bytes of a file, plain or gzip; `path` names the file in errors.

    Raises:
        InputError: as `load_trace`.
    """
    source = None if path is None else Path(path)
    text = text_of(data, source)
    del data  # as large as the text
    with suppress(ValueError, RecursionError):
        return _Reading(text).trace()
    require_content(text, source)
    try:  # the place of what is wrong counts from the outermost object
        return Trace.model_validate_json(text, context=PartsRead())
    except ValidationError as error:
        raise trace_error(error, source) from None


@dataclass(slots=True)
class _Part:
    """An object or several in an operation: where the text has it first, and what it was read as."""

    start: int
    end: int
    value: Any


class _Reading:
    """Reads the text of a trace; what is in operations and recurs letter by letter is read once.

    A ValueError or RecursionError says only that something is wrong.
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
        if not isinstance(kind, str) or kind not in _KINDS["operations"]:
            raise ValueError
        parts = [(key, value) for key, value in content.items() if type(value) is _Part]
        content.update((key, part.value) for key, part in parts)
        operation = _KINDS["operations"][kind].model_validate(content, context=self._read)
        for key, part in parts:
            part.value = getattr(operation, key)
        return operation, end

    def _of_operation(self, key: str, at: int) -> tuple[Any, int]:
        """The value of a key of an operation, a `_Part` where it may recur."""
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
    """Refuse a text that is no JSON, has a key twice in an object (JSON readers drop one silently), or another version.

    Raises:
        InputError: it is one of these.
    """
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
    if "version" not in outermost:
        raise InputError(source, "version", "missing", f"{FORMAT_VERSION}, the version of the trace format")
    version = outermost["version"]
    if type(version) is not int or version != FORMAT_VERSION:
        expected = f"{FORMAT_VERSION}, the only trace format this gpusim reads"
        raise InputError(source, "version", f"is {show(version)}", expected)


def trace_error(error: ValidationError, path: str | os.PathLike[str] | None = None) -> InputError:
    """The first fault that pydantic found in a trace as a one-line InputError."""
    return told(first_problem(error), path)


def told(
    error: ErrorDetails, path: str | os.PathLike[str] | None = None, within: tuple[int | str, ...] = ()
) -> InputError:
    """A fault that pydantic found in a trace, or in the part of it that ``within`` locates."""
    place, owner = _place((*within, *error["loc"]))
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, InputError):
        place = ".".join(part for part in (place, raised.place) if part)
        problem, expected = raised.problem, raised.expected
    else:
        problem, expected = _explain({**error, "loc": (*within, *error["loc"])}, owner)
        if error["type"].startswith("union_tag"):
            place += ".kind"
    return InputError(None if path is None else Path(path), place, problem, expected)


_KINDS = {field: kinds(field) for field in ("operations", "arrivals")}  # by the fields that hold them
_LIMITS = {
    "greater_than": "a number > {gt:.12g}",
    "greater_than_equal": "a number >= {ge:.12g}",
    "less_than": "a number < {lt:.12g}",
    "less_than_equal": "a number <= {le:.12g}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "literal_error": "{expected}",
}
_PATTERNS = {
    STREAM_PATTERN: "main, internal0, internal1, …",
    ID_PATTERN: "letters, digits, _ . / - :",
    NAME_PATTERN: "letters, digits, _ . / -",
}


def _place(loc: tuple[int | str, ...]) -> tuple[str, type[Strict]]:
    """Pydantic's location as `streams[0].operations[3].kernel.grid`, and the model whose field its last name is.

    Pydantic puts the tag of a union (kernel, copy, poisson, …) into the location; the file has no such level.
    """
    place = ""
    owner: type[Strict] = Trace
    model: type[Strict] = Trace
    tagged: dict[str, type[Strict]] = {}
    for part in loc:
        if isinstance(part, int):
            place += f"[{part}]"
        elif tagged:
            model, tagged = tagged.get(part, model), {}
        else:
            place, owner = place_in(place, part), model
            field = model.model_fields.get(part)
            model = next(models_in(field.annotation), model) if field is not None else model
            tagged = _KINDS.get(part, {}) if owner is Stream else {}
    return place, owner


def _explain(error: ErrorDetails, owner: type[Strict]) -> tuple[str, str]:
    """What was wrong and what was expected, in the words of an InputError."""
    kind, context = error["type"], error.get("ctx", {})
    names = [part for part in error["loc"] if isinstance(part, str)]
    field = owner.model_fields.get(names[-1]) if names else None
    extra = field.json_schema_extra if field is not None else None
    suffix = f" ({extra['unit']})" if isinstance(extra, dict) and "unit" in extra else ""
    if kind == "missing":
        if field is None or isinstance(error["loc"][-1], int):
            return "missing", "a value here"
        return "missing", f"{field.description}{suffix}"
    if kind == "extra_forbidden":
        return "is an unknown field", expected_one_of(owner.model_fields, error["loc"][-1])
    if kind == "union_tag_not_found":
        return "missing", "one of " + ", ".join(_KINDS[names[-1]])
    if kind == "union_tag_invalid":
        return f"is {show(context['tag'])}", expected_one_of(_KINDS[names[-1]], context["tag"])
    if kind == "json_invalid":
        return f"is not JSON ({context['error']})", "a trace in JSON"
    problem = f"is {show(error['input'])}"
    if kind == "string_pattern_mismatch":
        return problem, _PATTERNS.get(str(context["pattern"]), f"text like {context['pattern']}")
    if kind in _LIMITS:
        return problem, _LIMITS[kind].format(**context) + suffix
    return problem, error["msg"].replace("\n", " ") + suffix
