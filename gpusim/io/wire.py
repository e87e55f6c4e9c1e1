"""The encoding of protobuf messages (https://protobuf.dev/programming-guides/encoding): fields one after the other."""

from __future__ import annotations

from functools import lru_cache
from struct import pack

_LOW_BITS = 14
_LOW = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << _LOW_BITS)]  # lowest two bytes of longer numbers


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Return a field: a whole number (not a fixed one), a double, a text, or an encoded message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return varint(number << 3 | 1) + pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed64(number: int, value: int) -> bytes:
    """Return a field of type fixed64."""
    return varint(number << 3 | 1) + pack("<Q", value)


@lru_cache(1 << 14)
def varint(value: int) -> bytes:
    """Return a number, 0 or more, in as few bytes of seven bits as it needs, lowest first."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def ascending_varint(value: int) -> bytes:
    """Return what `varint` does, faster where it is called with numbers that grow slowly: these share high bits."""
    high = value >> _LOW_BITS
    return _LOW[value & (1 << _LOW_BITS) - 1] + varint(high) if high else varint(value)
