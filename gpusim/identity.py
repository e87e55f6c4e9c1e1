"""What can change a result, as a short text: hashes of sources and of plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gpusim.errors import quote

PACKAGE = Path(__file__).resolve().parent


def digest(content: Any) -> str:
    """A hash of plain data, of pydantic models and of dataclasses of these."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_plain).encode()).hexdigest()


def sources_digest(names: Iterable[str]) -> str:
    """A hash of sources of the package (.py, .pxd), however their lines end.

    Args:
        names: files and folders in the package, such as ``engine``.
    """
    found = hashlib.sha256()
    for name in names:
        path = PACKAGE / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".pxd"):
                content = file.read_bytes().replace(b"\r\n", b"\n")
                found.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + content + b"\0")
    return found.hexdigest()


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{quote(value)} has no identity")
