"""The encoding of protobuf messages (https://protobuf.dev/programming-guides/encoding): fields one after the other."""

from __future__ import annotations

from collections.abc import Iterator
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


Value = int | bytes  # of a field that is read


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Return number and value of each field of a message: a whole number, or the bytes of anything else.

    Raises:
        ValueError: it is no message, or cut short.
    """
    at, size = 0, len(message)
    while at < size:
        key, at = _number(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _number(message, at)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            length, at = _number(message, at)
        if length is None or at + length > size:
            raise ValueError("it is no protobuf message, or is cut short")
        yield key >> 3, message[at : at + length]
        at += length


def as_bytes(value: Value) -> bytes:
    """Return a value that is bytes; a ValueError says that it is none."""
    if isinstance(value, int):
        raise ValueError("a number stands where a message should be")
    return value


def as_number(value: Value) -> int:
    """Return a value that is a whole number; a ValueError says that it is none."""
    if isinstance(value, bytes):
        raise ValueError("bytes stand where a number should be")
    return value


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for n, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * n
        if byte < 128:
            return value, at + n + 1
    raise ValueError("it is no protobuf message, or is cut short")
