"""Progress with an estimate of what is left, on standard error and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def tracked(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Passes items on, and shows how many of ``total`` have passed while somebody watches."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, total=total, console=Console(stderr=True), transient=True)
