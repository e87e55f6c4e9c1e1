"""JSON traces in Chrome's form, event by event: files of gigabytes in a few megabytes of memory.

Profilers write JSON that a strict parser refuses: control characters and paths of Windows in texts, and bare `N/A`,
`inf` or `nan` where a number should be. All are read here. A file that ends early, as that of a killed program does, is
refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError
from gpusim.io import source

EVENTS = "traceEvents"
LONGEST_VALUE = 2**26  # characters of one event or of one member beside the events

_BLANK = " \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*")
_BARE_WORD = re.compile(r"-?(?:N/A|inf|nan)(?![A-Za-z])")
_LOOKAHEAD = 16  # characters: a literal or an escape that is cut fails so close to the end
_CUT = re.compile(r'[-+.\\"\w]*\Z')  # what is left of such a one, where nothing follows


def members(path: Path) -> Iterator[tuple[str, Any]]:
    """The members of a trace as pairs of name and value; each event comes as a pair of its own under `EVENTS`.

    A file that is one list is a list of events.
    """
    window = _Window(path)
    opening = window.peek()
    if opening == "[":
        yield from _events(window)
    elif opening == "{":
        for _ in window.items("{", "}"):
            name = window.value()
            window.take(":")
            if name == EVENTS and window.peek() == "[":
                yield from _events(window)
            else:
                yield str(name), window.value()
    else:
        raise InputError(path, "", "is empty" if not opening else "is not JSON", "a profile in JSON")
    if window.peek():
        raise InputError(path, window.place(), "goes on after the end of the JSON", "one trace")


def _events(window: _Window) -> Iterator[tuple[str, Any]]:
    for _ in window.items("[", "]"):
        yield EVENTS, window.value()
        window.count += 1


class _Window:
    """A part of the file's text that moves on; values are parsed at its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0  # events read
        self._pieces = source.text(path)
        self._text = ""
        self._at = 0
        self._passed = 0  # characters dropped
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self._blanks: Callable[[str, int], re.Match[str]] = _SPACE.match  # type: ignore[assignment]  # always matches

    def place(self, at: int | None = None) -> str:
        """Where the window is, or a position in it."""
        return f"character {self._passed + (self._at if at is None else at)}, after {self.count} events"

    def peek(self) -> str:
        """The next character that is no blank; empty at the end of the file."""
        if self._at < len(self._text) and self._text[self._at] not in _BLANK:
            return self._text[self._at]
        while True:
            self._at = self._blanks(self._text, self._at).end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(1):
                return ""

    def take(self, character: str) -> None:
        found = self.peek()
        if not found:
            raise self._cut_short()
        if found != character:
            raise InputError(self.path, self.place(), f"has {found!r}", f"{character!r}, as JSON has it there")
        self._at += 1

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Yield before each item of a list or an object; a comma after the last item is accepted."""
        self.take(opening)
        more = self.peek() != closing
        while more:
            yield
            more = self.peek() == ","
            if more:
                self.take(",")
                more = self.peek() != closing
        self.take(closing)

    def value(self) -> Any:
        if not self.peek():
            raise self._cut_short()
        wanted = source.CHUNK_BYTES
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._mend(error):
                    continue
                fault = InputError(self.path, self.place(error.pos), f"is not JSON ({error.msg})")
                unended = error.msg.startswith("Unterminated string")
                if unended or _CUT.match(self._text, error.pos):
                    fault = self._cut_short()
                at_end = unended or error.pos >= len(self._text) - _LOOKAHEAD
                if not at_end or not self._more(wanted):
                    raise fault from None
            except (RecursionError, ValueError):
                raise InputError(self.path, self.place(), "is nested or long beyond measure", "a trace event") from None
            else:
                if end < len(self._text) or not self._more(wanted):  # a number at the end might go on
                    self._at = end
                    return value
            wanted *= 2
            if len(self._text) - self._at > LONGEST_VALUE:
                raise InputError(self.path, self.place(), f"is longer than {LONGEST_VALUE} characters", "a trace event")

    def _mend(self, error: json.JSONDecodeError) -> bool:
        """Put null for a bare word that is no JSON, and a second backslash where one begins no escape.

        Says whether there is something new to parse.
        """
        position = error.pos
        if len(self._text) - position < _LOOKAHEAD and self._more(_LOOKAHEAD, keep=True):
            return True
        if error.msg.startswith("Invalid \\"):
            backslash = self._text.rindex("\\", self._at, position + 1)
            self._text = f"{self._text[:backslash]}\\{self._text[backslash:]}"
            return True
        match = _BARE_WORD.match(self._text, position)
        if match is None:
            return False
        self._text = f"{self._text[:position]}null{self._text[match.end() :]}"
        return True

    def _more(self, wanted: int, keep: bool = False) -> bool:
        """Read at least that many more characters if the file has them; return whether any were read."""
        new, length = [], 0
        while length < wanted and (piece := next(self._pieces, None)) is not None:
            new.append(piece)
            length += len(piece)
        if not keep:
            self._passed += self._at
            self._text, self._at = self._text[self._at :], 0
        self._text += "".join(new)
        return length > 0

    def _cut_short(self) -> InputError:
        problem = f"ends in the middle of the JSON, after {self.count} events"
        return InputError(self.path, "", problem, "a whole file: of a program that was killed, record again")
