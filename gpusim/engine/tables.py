"""Tables of numbers: arrays in plain Python, C arrays in the compiled core."""

from __future__ import annotations

from array import array
from typing import Any

RESOURCES = 4  # registers, shared memory, warps, block slots: in this order wherever four numbers stand together
NEVER = 1e300
_NEVER = NEVER  # the same, which the build makes a number of C


def zeros(count: int) -> array[int]:
    """Integers, all 0."""
    return array("q", [0]) * count  # by far the quickest way to make a long one


def reals(count: int, value: float = 0.0) -> array[float]:
    """Reals, all the same."""
    return array("d", [value]) * count


def unknown(count: int) -> array[int]:
    """Integers, all -1."""
    return array("q", [-1]) * count


def joined(first: array[Any], second: array[Any]) -> array[Any]:
    """Two arrays of one type, one after the other."""
    both = array(second.typecode)
    both.frombytes(memoryview(first).cast("B"))
    both.extend(second)
    return both
