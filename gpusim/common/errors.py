"""The one error that bad input raises, and how it reads: `FILE: PLACE: what was wrong; expected ...`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound="BaseModel")

_LONGEST_QUOTE = 60
_MOST_MEANT = 3  # names that begin as somebody wrote
_LONGEST_PART = 400  # characters of a place or a problem: names and cells of files in them may have any length


class InputError(ValueError):
    """Wrong input of a user: a file, a value in it, or an argument.

    It prints as one line of printable text. The command line prints that line on stderr and exits with 2.

    Attributes:
        path: the file of the input, or None.
        place: place in the file, such as `streams[0].operations[2].grid`, or the argument's name; may be empty.
        problem: the fault.
        expected: description of correct input; may be empty.
    """

    def __init__(self, path: str | Path | None, place: str, problem: str, expected: str = "") -> None:
        super().__init__(path, place, problem, expected)
        self.path = path
        self.place = place
        self.problem = problem
        self.expected = expected

    def __str__(self) -> str:
        given = ("" if self.path is None else self.path, self.place, self.problem)
        parts = [_cut(str(part)) for part in given]
        line = ": ".join(part for part in parts if part)
        return one_line(f"{line}; expected {self.expected}" if self.expected else line)

    def at(self, path: str | Path | None = None, place: str | None = None, problem: str | None = None) -> InputError:
        """The same fault with another file, place or problem; what is None stays."""
        return InputError(
            self.path if path is None else path,
            self.place if place is None else place,
            self.problem if problem is None else problem,
            self.expected,
        )


@contextmanager
def faults_of(path: str | Path | None = None, place: str | None = None) -> Iterator[None]:
    """Add a path, if an `InputError` of the block has none, and a place, if one is given."""
    try:
        yield
    except InputError as error:
        raise error.at(error.path or path, place) from None


def _cut(text: str) -> str:
    """A text without its middle where it is too long for a line."""
    half = _LONGEST_PART // 2
    return text if len(text) <= _LONGEST_PART else f"{text[:half]} … {text[-half:]}"


def quote(value: object) -> str:
    """Return `value` as it may stand in a message: its repr, shortened to a line's worth."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # such as an integer of more digits than Python prints
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "..."


def expected_one_of(names: Iterable[str], given: object, other: str = "", most: int | None = None) -> str:
    """Return the expectation for an unknown name: all or the first ``most``, ``other``, and the closest."""
    known = list(names)
    shown = the_first(known, len(known) if most is None else most)
    expected = ", ".join([f"one of {shown}" if known else "none", *([other] if other else [])])
    close = closest(given, known)
    return f"{expected}; did you mean {close}?" if close else expected


def the_first(names: Iterable[str], most: int) -> str:
    """Some names in a row, and how many more there are than ``most``."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def closest(given: object, names: Iterable[str]) -> str:
    """Return the name that somebody who wrote `given` most likely meant; empty where none is close.

    Where up to `_MOST_MEANT` names begin so, it is these: ``a100-40 or a100-80`` of ``a100``.
    """
    from difflib import get_close_matches

    known = list(dict.fromkeys(names))
    wanted = str(given)[:_LONGEST_QUOTE].lower()
    begun = [name for name in known if name.lower().startswith(wanted)]
    if wanted and 0 < len(begun) <= _MOST_MEANT:
        return " or ".join(begun)
    by_letters = {name.lower(): name for name in reversed(known)}
    found = get_close_matches(wanted, by_letters, n=1)
    return by_letters[found[0]] if found else ""


def described(error: BaseException) -> str:
    """Return an exception from user code or a library as text: its class, and its message if it has one."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return name
    return f"{name}: {text}" if text else name


@contextmanager
def validating(model: type[BaseModel] | None, path: str | Path | None = None) -> Iterator[None]:
    """Raise the first fault that pydantic finds in a ``model`` in the block as an `InputError`, as `told` does."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        raise told(_first_problem(error), model, path) from None


def checked(model: type[M], content: object, path: str | Path | None = None) -> M:
    """Return the content of a file as a ``model``; its first fault is an `InputError`."""
    with validating(model, path):
        return model.model_validate(content)


def _first_problem(error: ValidationError) -> ErrorDetails:
    """Return the first problem that pydantic found. A misspelt key counts as unknown, not as a missing one."""
    first, *others = error.errors(include_url=False)
    if first["type"] == "missing":
        *where, key = first["loc"]
        for other in others:
            beside = other["type"] == "extra_forbidden" and [*other["loc"][:-1]] == where
            if beside and closest(other["loc"][-1], [str(key)]):
                return other
    return first


def told(error: ErrorDetails, model: type[BaseModel] | None, path: str | Path | None) -> InputError:
    """Return a fault that pydantic found in a ``model``.

    A validator may raise an `InputError` itself (it is a `ValueError`): its place then counts from where the validator
    stands, and its problem and expectation are kept.
    """
    place, owner = _place(error["loc"], model)
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, InputError):
        return raised.at(path, ".".join(filter(None, (place, raised.place))))
    if error["type"].startswith("union_tag"):
        place += ".kind"
    return InputError(path, place, *_explain(error, owner))


def described_pattern(pattern: str, words: str) -> str:
    """Register the words that messages use for a pattern, and return the pattern."""
    _PATTERNS[pattern] = words
    return pattern


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in the type of a field: of ``tuple[Kernel | Copy, ...]`` both."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def kinds(field: FieldInfo | None) -> dict[str, type[BaseModel]]:
    """The classes that an element of a field may be, by their kind; none where it is of one class."""
    found = [] if field is None else [one for one in models_in(field.annotation) if "kind" in one.model_fields]
    return {get_args(one.model_fields["kind"].annotation)[0]: one for one in found} if len(found) > 1 else {}


def _place(loc: Iterable[str | int], outermost: type[BaseModel] | None) -> tuple[str, type[BaseModel] | None]:
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
            field = None if model is None else model.model_fields.get(part)
            model = model if field is None else next(models_in(field.annotation), model)
            tagged = kinds(field)
    return place, owner


def _explain(error: ErrorDetails, owner: type[BaseModel] | None) -> tuple[str, str]:
    """Return the fault and what was expected, in the words of an `InputError`."""
    kind, loc, context = error["type"], error["loc"], error.get("ctx", {})
    names = [part for part in loc if isinstance(part, str)]
    field = owner.model_fields.get(names[-1]) if owner is not None and names else None
    extra = field.json_schema_extra if field is not None else None
    suffix = f" ({extra['unit']})" if isinstance(extra, dict) and "unit" in extra else ""
    if kind == "missing":
        if isinstance(loc[-1], int):
            return "missing", "a value here"
        return "missing", f"{(field and field.description) or 'this key'}{suffix}"
    if kind == "extra_forbidden":
        expected = "no such key here" if owner is None else expected_one_of(owner.model_fields, loc[-1])
        return "unknown key", expected
    if kind == "union_tag_not_found":
        return "missing", "one of " + ", ".join(kinds(field))
    if kind == "union_tag_invalid":
        return f"is {show(context['tag'])}", expected_one_of(kinds(field), context["tag"])
    if kind == "json_invalid":
        return f"is not JSON ({context['error']})", "JSON"
    problem = f"is {show(error['input'])}"
    if kind == "string_pattern_mismatch":
        return problem, _PATTERNS.get(context["pattern"], f"text like {context['pattern']}")
    if kind in _LIMITS:
        return problem, _LIMITS[kind].format(**context) + suffix
    message = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return problem, message.replace("\n", " ") + suffix


_PATTERNS: dict[str, str] = {}  # words for each, from `described_pattern`
_LIMITS = {  # kinds of pydantic's faults, in our words
    "greater_than": "a number above {gt:.12g}",
    "greater_than_equal": "a number of at least {ge:.12g}",
    "less_than": "a number below {lt:.12g}",
    "less_than_equal": "a number of at most {le:.12g}",
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
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
}


def place_in(place: str, key: str) -> str:
    """The path of a key within an object at some path, such as `streams[0].name`."""
    plain = key.isidentifier() and len(key) <= _LONGEST_QUOTE
    return f"{place}.{key}".lstrip(".") if plain else f"{place}[{show(key)}]"


def show(value: Any) -> str:
    """A value on one short line: the size of a list or object, the JSON text of anything else."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return quote(value)


def one_line(text: str) -> str:
    """Return a text without what would break or hide a line (newlines, control characters, half surrogates)."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
