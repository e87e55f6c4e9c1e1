"""Values as profilers write them: numbers, extents, names of GPUs and of copies."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any, Literal

from gpusim.common.numbers import finite_number, whole_number

Direction = Literal["h2d", "d2h", "d2d", "p2p", "memset"]

_DEVICE = re.compile(r"(.*?)\s*\((\d+)\)\s*$")
_LONGEST_DEVICE = 200  # characters
_BETWEEN_BRACKETS_AND_COMMAS = re.compile(r"""[^\s,;x()\[\]{}'"]+""")
_DIRECTIONS_BY_NAME: tuple[tuple[str, Direction], ...] = (
    (r"h(?:ost)?\W*to\W*(?:d|a)|htod|htoa", "h2d"),
    (r"(?:device|array|d|a)\W*to\W*h|dtoh|atoh", "d2h"),
    (r"p(?:eer)?\W*to\W*p|ptop", "p2p"),
)


def finite(value: Any) -> float | None:
    """A finite number, given as one or as text in plain digits such as "12.5"; None for anything else."""
    if isinstance(value, bool | bytes):
        return None
    try:
        number = finite_number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def whole(value: Any) -> int | None:
    """A whole number, given as `finite` takes it; None for anything else."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return whole_number(value)  # a float keeps 15 digits
    number = finite(value)
    return None if number is None or number != int(number) else int(number)


def count(value: Any) -> int | None:
    """A whole number of at least 0, and 0 for nothing or an empty text; None for anything else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return 0
    number = whole(value)
    return None if number is None or number < 0 else number


def three(value: Any) -> tuple[int, int, int] | None:
    """Three extents of at least 1 from a list or a text such as `[3136,4,1]`; None where it holds no such extents."""
    parts = _BETWEEN_BRACKETS_AND_COMMAS.findall(value) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or len(parts) != 3:
        return None
    numbers = [whole(part) for part in parts]
    x, y, z = numbers
    return (x, y, z) if x and y and z and min(x, y, z) > 0 else None


def device_of(text: str) -> tuple[int, str | None]:
    """Return the index and the name of a GPU such as ``NVIDIA H200 (0)``; 0 and None for other text."""
    match = _DEVICE.match(text[:_LONGEST_DEVICE])
    return (int(match[2]), match[1]) if match else (0, None)


def copy_direction(name: str) -> Direction | None:
    """The direction that the name of a copy tells; None for a copy that no GPU makes (host to host)."""
    lower = name.lower()
    if re.search(r"htoh|host\W*to\W*host", lower):
        return None
    return next((direction for pattern, direction in _DIRECTIONS_BY_NAME if re.search(pattern, lower)), "d2d")
