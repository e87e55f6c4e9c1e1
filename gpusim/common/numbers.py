"""Numbers that users give: as text in plain digits, without what Python alone reads, such as ``1_0``; as objects."""

from __future__ import annotations

import math
from numbers import Integral

MOST_DIGITS = 40  # of one number
MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}  # in one of each unit of time


def whole_number(text: str) -> int:
    """A whole number; ValueError where the text is none, or has more than `MOST_DIGITS` digits."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > MOST_DIGITS:
        raise ValueError(text)
    return int(text)


def finite_number(text: str) -> float:
    """A finite real number; ValueError where the text is none."""
    value = float(text)
    if not text.isascii() or "_" in text or not math.isfinite(value):
        raise ValueError(text)
    return value


def is_whole(value: object, most: float = math.inf) -> bool:
    """Whether a value is a whole number from 0 to ``most``: of Python or numpy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) <= most
