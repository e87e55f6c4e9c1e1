"""Traces as text: JSON that is checked before it is parsed, and a layout for people."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError, place_in, show
from gpusim.common.files import MAX_BYTES, decompressed

# Limits of the text of a trace, checked before it is parsed: parsing takes memory for every object and list.
LEAST_BYTES_PER_GROUP = 16  # text for each object or list; the shortest kernels take 22
FREE_GROUPS = 2**12  # brackets beyond that, such as those in names
MAX_KEYS = 64  # of one object; a mix has 28


def text_of(data: bytes, source: Path | None) -> str:
    """The JSON text of a file's bytes."""
    if data[:2] == b"\x1f\x8b" or (source is not None and source.suffix == ".gz"):
        data = decompressed(data, source)
    if len(data) > MAX_BYTES:
        raise InputError(source, "", "is too large", f"at most {MAX_BYTES:,} bytes of JSON")
    if not data.strip():
        raise InputError(source, "", "is empty", "a trace in JSON")
    if data.count(b"{") + data.count(b"[") > FREE_GROUPS + len(data) // LEAST_BYTES_PER_GROUP:
        problem = f"has more than one object or list in {LEAST_BYTES_PER_GROUP} bytes"
        raise InputError(source, "", problem, "a trace in JSON")
    try:
        return data.decode("utf-8-sig")  # Windows programs begin a text with a mark
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8 text"
        raise InputError(source, "", problem, "a trace in JSON, UTF-8 or gzip of it") from None


def content_of(text: str, source: Path | None) -> Any:
    """Return what a JSON text holds; refuse a key that is given twice in an object, of which JSON readers drop one."""
    repeated: list[tuple[dict[str, Any], str]] = []  # objects, the first to end first, and the key

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > MAX_KEYS:
            raise InputError(source, "", f"has an object of {len(pairs)} keys", f"at most {MAX_KEYS}")
        found = dict(pairs)
        if len(found) < len(pairs):
            key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            repeated.append((found, key))
        return found

    try:
        content = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        expected = "a trace in JSON, which `gpusim import` makes of a profile"
        raise InputError(source, place, f"is not JSON ({error.msg})", expected) from None
    except InputError:
        raise
    except RecursionError:
        raise InputError(source, "", "is nested too deeply", "a trace in JSON") from None
    except ValueError:
        raise InputError(source, "", "has a number with too many digits", "a trace in JSON") from None
    for owner, key in repeated:
        raise InputError(source, _find(content, owner), f"key {show(key)} given twice", "each key once")
    return content


def _find(content: Any, wanted: Any) -> str:
    """The path of the object `wanted` inside JSON content, such as `streams[0].operations[3]`."""
    stack: list[tuple[Any, str]] = [(content, "")]
    while stack:
        value, place = stack.pop()
        if value is wanted:
            return place
        if isinstance(value, dict):
            stack.extend((child, place_in(place, key)) for key, child in value.items())
        elif isinstance(value, list):
            stack.extend((child, f"{place}[{n}]") for n, child in enumerate(value))
    return ""


_line = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def layout(value: Any, indent: str = "", width: int = 110) -> str:
    """Return JSON for people: short values on one line, longer ones broken and indented."""
    if not isinstance(value, dict | list) or not value:
        return _line(value)
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{_line(key)}: {layout(item, inner, width)}" for key, item in value.items()]
        opening, closing = "{", "}"
    else:
        items = [layout(item, inner, width) for item in value]
        opening, closing = "[", "]"
    line = f"{opening}{', '.join(items)}{closing}"
    if len(indent) + len(line) <= width and "\n" not in line:
        return line
    body = f",\n{inner}".join(items)
    return f"{opening}\n{inner}{body}\n{indent}{closing}"
