"""Progress on standard error, only on a terminal: the name of a step, or a bar with an estimate of what is left."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gpusim.common.errors import one_line
from gpusim.common.tables import shortened

Step = Callable[[str], None]

T = TypeVar("T")


def no_step(name: str) -> None:
    """Shows nothing: for where nobody watches."""


@contextmanager
def named_steps() -> Iterator[Step]:
    """Gives a function that shows the name of what is being done, in place of the name before; none is left behind."""
    if not sys.stderr.isatty():
        yield no_step
        return
    try:
        yield _show
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _show(name: str) -> None:
    line = shortened(one_line(name), shutil.get_terminal_size().columns - 1)
    print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def tracked(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Passes items on, and shows how many of ``total`` have passed while somebody watches."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, total=total, console=Console(stderr=True), transient=True)
