"""The one error that bad input raises, and how it reads: `FILE: PLACE: what was wrong; expected ...`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_LONGEST_QUOTE = 60
_MOST_MEANT = 3  # names that begin as somebody wrote
_BOUNDS = {  # of a number, as pydantic says it and as we do; the longer ones first
    "greater than or equal to ": "a number of at least ",
    "less than or equal to ": "a number of at most ",
    "greater than ": "a number above ",
    "less than ": "a number below ",
}
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
        parts = [str(self.path) if self.path is not None else "", _cut(str(self.place)), _cut(str(self.problem))]
        line = ": ".join(part for part in parts if part)
        return one_line(f"{line}; expected {self.expected}" if self.expected else line)


def _cut(text: str) -> str:
    """A text without its middle where it is too long for a line."""
    half = _LONGEST_PART // 2
    return text if len(text) <= _LONGEST_PART else f"{text[:half]} … {text[-half:]}"


def quote(value: object) -> str:
    """Returns `value` as it may stand in a message: its repr, shortened to a line's worth."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # such as an integer of more digits than Python prints
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "..."


def expected_one_of(names: Iterable[str], given: object, other: str = "") -> str:
    """Return the expectation for an unknown name: all, ``other``, and the closest."""
    known = list(names)
    expected = ", ".join([f"one of {', '.join(known)}" if known else "none", *([other] if other else [])])
    close = closest(given, known)
    return f"{expected}; did you mean {close}?" if close else expected


def closest(given: object, names: Iterable[str]) -> str:
    """Returns the name that somebody who wrote `given` most likely meant; empty where none is close.

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
    """Returns an exception that somebody else's code raised as text: its class, and what it says if it can."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return name
    return f"{name}: {text}" if text else name


def from_pydantic(path: str | Path | None, error: ValidationError, model: type[BaseModel] | None = None) -> InputError:
    """Return the first problem of a failed pydantic validation of a file as an `InputError`.

    A validator may raise an `InputError` itself (it is a `ValueError`): its place then counts from where the validator
    stands, and its problem and expectation are kept. Of a ``model`` an unknown key is told the known ones.
    """
    first = first_problem(error)
    kind = first["type"]
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, InputError):
        return InputError(path, _place((*first["loc"], raised.place)), raised.problem, raised.expected)
    place = _place(first["loc"])
    if kind == "missing":
        return InputError(path, place, "missing", "this key")
    if kind == "extra_forbidden":
        owner = None if model is None else _owner(model, first["loc"])
        expected = "no such key here" if owner is None else expected_one_of(owner.model_fields, first["loc"][-1])
        return InputError(path, place, "unknown key", expected)
    message = first["msg"]
    for prefix in ("Input should be ", "Value error, "):
        message = message.removeprefix(prefix)
    for theirs, ours in _BOUNDS.items():
        if message.startswith(theirs):
            message = ours + message.removeprefix(theirs)
            break
    return InputError(path, place, f"has {quote(first['input'])}", message)


def first_problem(error: ValidationError) -> ErrorDetails:
    """Returns the first problem that pydantic found; of a misspelt key that it is unknown, not that one is missing."""
    first, *others = error.errors(include_url=False)
    if first["type"] == "missing":
        *where, key = first["loc"]
        for other in others:
            beside = other["type"] == "extra_forbidden" and [*other["loc"][:-1]] == where
            if beside and closest(other["loc"][-1], [str(key)]):
                return other
    return first


def _owner(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel] | None:
    """The model that has the last field of a pydantic location; None where that is not known."""
    from pydantic import BaseModel

    kind: Any = model
    for step in loc[:-1]:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(str(step))
            kind = None if field is None else field.annotation
        else:  # of a list or a table, what it holds
            kind = (get_args(kind) or [None])[-1]
        if get_origin(kind) is UnionType:  # of `X | None`, X
            kind = get_args(kind)[0]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _place(loc: Iterable[str | int]) -> str:
    """Writes a pydantic location as a path: `streams[0].name`."""
    place = ""
    for step in loc:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step:
            place += f".{step}" if place else step
    return place


def one_line(text: str) -> str:
    """Returns a text without what would break or hide a line (newlines, control characters, half surrogates)."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
