"""The one error that bad input raises, and how it reads: `FILE: PLACE: what was wrong; expected ...`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_LONGEST_QUOTE = 60


class InputError(ValueError):
    """Something that a user gave is wrong: a file, a value in it, or an argument.

    It prints as one line of printable text. The command line prints that line on stderr and exits with 2.

    Attributes:
        path: the file the input came from, or None.
        place: where in it, such as `streams[0].operations[2].grid`, or the argument's name; may be empty.
        problem: what was wrong.
        expected: what would have been right; may be empty.
    """

    def __init__(self, path: str | Path | None, place: str, problem: str, expected: str = "") -> None:
        super().__init__(path, place, problem, expected)
        self.path = path
        self.place = place
        self.problem = problem
        self.expected = expected

    def __str__(self) -> str:
        parts = [str(self.path) if self.path is not None else "", self.place, self.problem]
        line = ": ".join(part for part in parts if part)
        return one_line(f"{line}; expected {self.expected}" if self.expected else line)


def quote(value: object) -> str:
    """Returns `value` as it may stand in a message: its repr, shortened to a line's worth."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # such as an integer of more digits than Python prints
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "..."


def described(error: BaseException) -> str:
    """Returns an exception that somebody else's code raised as text: its class, and what it says if it can."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return name
    return f"{name}: {text}" if text else name


def from_pydantic(path: str | Path | None, error: ValidationError) -> InputError:
    """Returns the first problem of a failed pydantic validation as an `InputError`.

    A validator may raise an `InputError` itself (it is a `ValueError`): its place then counts from where the
    validator stands, and its problem and expectation are kept.

    Args:
        path: the file that was validated, or None.
        error: what pydantic raised.
    """
    first = error.errors(include_url=False)[0]
    kind = first["type"]
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, InputError):
        return InputError(path, _place((*first["loc"], raised.place)), raised.problem, raised.expected)
    place = _place(first["loc"])
    if kind == "missing":
        return InputError(path, place, "missing", "this key")
    if kind == "extra_forbidden":
        return InputError(path, place, "unknown key", "no such key here")
    message = first["msg"]
    for prefix in ("Input should be ", "Value error, "):
        message = message.removeprefix(prefix)
    return InputError(path, place, f"has {quote(first['input'])}", message)


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
