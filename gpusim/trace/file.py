"""Reading a trace from a file; what is wrong with it is told by its place in the file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import (
    ValidationError,
)
from pydantic_core import ErrorDetails

from gpusim.common.errors import InputError, expected_one_of, first_problem
from gpusim.common.files import read_bytes
from gpusim.trace.fields import ID_PATTERN, NAME_PATTERN, STREAM_PATTERN, Strict, models_in
from gpusim.trace.format import FORMAT_VERSION, Trace
from gpusim.trace.operations import Stream, kinds
from gpusim.trace.text import MAX_KEYS, parse_json, place_in, refuse_repeated, show, text_of


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
    content = _content(text, source)
    with suppress(ValidationError):
        return Trace.model_validate(content)
    try:  # the place of what is wrong counts from the outermost object
        return Trace.model_validate_json(text, context={})
    except ValidationError as error:
        raise trace_error(error, source) from None


_FAULTY = object()  # stands for an operation with a fault: no field takes it


def _content(text: str, source: Path | None) -> dict[str, Any]:
    """What a text of JSON holds, each operation read as soon as it ends: the text of a long one is ten times as large.

    Raises:
        InputError: it is not JSON, has a key twice in an object (JSON readers drop one silently) or another version.
    """
    outermost: dict[str, Any] = {}
    parts: dict[Any, Any] = {}  # that recur
    repeated = False

    def read(pairs: list[tuple[str, Any]]) -> Any:
        nonlocal outermost, repeated
        if len(pairs) > MAX_KEYS:
            raise InputError(source, "", f"has an object of {len(pairs)} keys", f"at most {MAX_KEYS}")
        outermost = {key: tuple(value) if type(value) is list else value for key, value in pairs}
        repeated |= len(outermost) != len(pairs)
        kind = outermost.get("kind")
        model = _KINDS["operations"].get(kind) if isinstance(kind, str) else None
        if model is None:
            return outermost
        try:
            return model.model_validate(outermost, context=parts)
        except ValidationError:
            return _FAULTY

    content = parse_json(text, source, read)
    if repeated:
        refuse_repeated(text, source)
    if isinstance(content, list | str | int | float | None):
        raise InputError(source, "", f"is {show(content)}", "an object with version, name, device, …")
    if "version" not in outermost:
        raise InputError(source, "version", "missing", f"{FORMAT_VERSION}, the version of the trace format")
    version = outermost["version"]
    if type(version) is not int or version != FORMAT_VERSION:
        expected = f"{FORMAT_VERSION}, the only trace format this gpusim reads"
        raise InputError(source, "version", f"is {show(version)}", expected)
    return outermost


def trace_error(error: ValidationError, path: str | os.PathLike[str] | None = None) -> InputError:
    """The first fault that pydantic found in a trace as a one-line InputError."""
    first = first_problem(error)
    place, owner = _place(first["loc"])
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, InputError):
        place = ".".join(part for part in (place, raised.place) if part)
        problem, expected = raised.problem, raised.expected
    else:
        problem, expected = _explain(first, owner)
        if first["type"].startswith("union_tag"):
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
    """Pydantic's location as `streams[0].operations[3].kernel.grid`, and the model that has its last name.

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
