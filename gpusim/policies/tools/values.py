"""Reading policy parameters that hold one value a stream, such as ``64+68`` or ``A:2+B:3``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from gpusim.common.errors import InputError, expected_one_of, quote
from gpusim.common.numbers import MOST_DIGITS

T = TypeVar("T")

LONGEST = 10_000  # characters of a parameter


def wrong(policy: str, problem: str, expected: str) -> InputError:
    """The error of a parameter that is wrong."""
    return InputError(None, f"policy {policy}", problem, expected)


def decimal(text: str) -> Fraction:
    """A decimal number, at least 0, exactly; ValueError otherwise."""
    whole, _, rest = text.partition(".")
    if len(text) > MOST_DIGITS or not (whole + rest).isascii() or not (whole + rest).isdigit():
        raise ValueError
    return Fraction(text)


def hexadecimal(text: str) -> int:
    """A hexadecimal number, at least 0, with or without 0x; ValueError otherwise."""
    digits = text.lower().removeprefix("0x")
    if len(digits) > 1000 or not digits or any(c not in "0123456789abcdef" for c in digits):
        raise ValueError
    return int(digits, 16)


def plus_separated(policy: str, key: str, text: str, read: Callable[[str], T], what: str) -> list[T]:
    """Values between plus signs.

    Args:
        policy: name of the policy, for messages.
        key: name of the parameter.
        text: its value.
        read: makes one value of its text or raises ValueError.
        what: what one value is, for messages.

    Raises:
        InputError: a value that ``read`` refuses.
    """
    found = []
    for part in text[:LONGEST].split("+"):
        try:
            found.append(read(part.strip()))
        except (ValueError, ZeroDivisionError):
            raise wrong(policy, f"{key} has {quote(part)}", f"{what}, one a stream, joined by +") from None
    return found


def one_each(policy: str, key: str, values: Sequence[T], streams: Sequence[str]) -> list[T]:
    """One value for each stream of a trace; a single value is for all.

    Raises:
        InputError: neither one value nor one a stream.
    """
    if len(values) == 1:
        return [values[0]] * len(streams)
    if len(values) != len(streams):
        raise wrong(
            policy, f"{key} has {len(values)} values for {len(streams)} streams", f"one a stream: {', '.join(streams)}"
        )
    return list(values)


def known_stream(policy: str, key: str, stream: str, streams: Sequence[str]) -> None:
    """Check that a trace has a stream.

    Raises:
        InputError: it has not.
    """
    if stream not in streams:
        raise wrong(policy, f"{key} names stream {quote(stream)}", expected_one_of(streams, stream))
