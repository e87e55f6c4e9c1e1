"""Faults of a trace or a part of one, in one line: the place, the fault, and what was expected."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gpusim.common.errors import InputError, expected_one_of, first_problem
from gpusim.trace.text import place_in, show

ID_PATTERN = r"^[A-Za-z0-9_./:-]+$"
STREAM_PATTERN = r"^(main|internal(0|[1-9][0-9]?))$"
NAME_PATTERN = r"^[A-Za-z0-9_./-]+$"


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in the type of a field: of ``tuple[Kernel | Copy, ...]`` both."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def kinds(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """The classes that an element of a field may be, by their kind; none where it is of one class."""
    found = list(models_in(field.annotation))
    return {get_args(one.model_fields["kind"].annotation)[0]: one for one in found} if len(found) > 1 else {}


def trace_error(error: ValidationError, of: type[BaseModel], path: str | os.PathLike[str] | None = None) -> InputError:
    """The first fault that pydantic found in a trace, or a part of one that is to be an ``of``, as an InputError."""
    return told(first_problem(error), of, path)


def told(
    error: ErrorDetails,
    of: type[BaseModel],
    path: str | os.PathLike[str] | None = None,
    within: tuple[int | str, ...] = (),
) -> InputError:
    """A fault that pydantic found in an ``of``, or in the part of one that ``within`` locates."""
    loc = (*within, *error["loc"])
    place, owner = _place(loc, of)
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, InputError):
        place = ".".join(part for part in (place, raised.place) if part)
        problem, expected = raised.problem, raised.expected
    else:
        problem, expected = _explain({**error, "loc": loc}, owner)
        if error["type"].startswith("union_tag"):
            place += ".kind"
    return InputError(None if path is None else Path(path), place, problem, expected)


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
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
}
_PATTERNS = {
    STREAM_PATTERN: "main, internal0, internal1, …",
    ID_PATTERN: "letters, digits, _ . / - :",
    NAME_PATTERN: "letters, digits, _ . / -",
}


def _place(loc: tuple[int | str, ...], outermost: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """Pydantic's location as `streams[0].operations[3].kernel.grid`, and the model whose field its last name is.

    Pydantic puts the tag of a union (kernel, copy, poisson, …) into the location; the file has no such level.
    """
    place = ""
    owner = model = outermost
    tagged: Mapping[str, type[BaseModel]] = {}
    for part in loc:
        if isinstance(part, int):
            place += f"[{part}]"
        elif tagged:
            model, tagged = tagged.get(part, model), {}
        else:
            place, owner = place_in(place, part), model
            field = model.model_fields.get(part)
            model = next(models_in(field.annotation), model) if field is not None else model
            tagged = {} if field is None else kinds(field)
    return place, owner


def _explain(error: ErrorDetails, owner: type[BaseModel]) -> tuple[str, str]:
    """Return the fault and what was expected, in the words of an InputError."""
    kind, context = error["type"], error.get("ctx", {})
    names = [part for part in error["loc"] if isinstance(part, str)]
    field = owner.model_fields.get(names[-1]) if names else None
    extra = field.json_schema_extra if field is not None else None
    tags = kinds(field) if field is not None else {}
    suffix = f" ({extra['unit']})" if isinstance(extra, dict) and "unit" in extra else ""
    if kind == "missing":
        if field is None or isinstance(error["loc"][-1], int):
            return "missing", "a value here"
        return "missing", f"{field.description}{suffix}"
    if kind == "extra_forbidden":
        return "is an unknown field", expected_one_of(owner.model_fields, error["loc"][-1])
    if kind == "union_tag_not_found":
        return "missing", "one of " + ", ".join(tags)
    if kind == "union_tag_invalid":
        return f"is {show(context['tag'])}", expected_one_of(tags, context["tag"])
    if kind == "json_invalid":
        return f"is not JSON ({context['error']})", "a trace in JSON"
    problem = f"is {show(error['input'])}"
    if kind == "string_pattern_mismatch":
        return problem, _PATTERNS.get(str(context["pattern"]), f"text like {context['pattern']}")
    if kind in _LIMITS:
        return problem, _LIMITS[kind].format(**context) + suffix
    return problem, error["msg"].replace("\n", " ") + suffix
