"""Progress on standard error, only on a terminal: the name of a step, its completed share and remaining time."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from gpusim.common.errors import InputError, one_line, quote
from gpusim.common.tables import shortened

Step = Callable[[str], None]
Watcher = Callable[[float], None]  # told the share of the work that is done, 0 to 1

SHOWN_EVERY_S = 0.5
_watcher = ContextVar[Watcher | None]("watcher", default=None)

T = TypeVar("T")


def no_step(name: str) -> None:
    """Show nothing, for a process without a terminal."""


def require_step(step: object) -> None:
    """Refuse what cannot be called with the name of a step."""
    if not callable(step):
        raise InputError(None, "step", f"is {quote(step)}", "a function that takes the name of a step")


@contextmanager
def named_steps() -> Iterator[Step]:
    """Yield a function that shows the name of the current step in place of the last one; none is left behind."""
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


def _remaining(step: Step, name: str) -> Watcher:
    """Return a function that shows the completed share of a step that begins now, and the remaining time."""
    start = shown = time.monotonic()

    def watch(share: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if share > 0.0 and now >= shown + SHOWN_EVERY_S:
            shown = now
            step(f"{name}: {share:.0%}, about {(now - start) * (1.0 - share) / share:.0f} s left")

    return watch


@contextmanager
def _watching(told: Watcher | None) -> Iterator[None]:
    """Within the block `watcher` gives a function, or None."""
    token = _watcher.set(told)
    try:
        yield
    finally:
        _watcher.reset(token)


def estimated(step: Step, name: str) -> AbstractContextManager[None]:
    """Show the name of a step. While it runs, `watcher` adds the completed share and the remaining time."""
    step(name)
    return _watching(watcher() if step is no_step else _remaining(step, name))


def unwatched() -> AbstractContextManager[None]:
    """Hide the progress of the block, which is a part of work whose progress is shown as a whole."""
    return _watching(None)


def watcher() -> Watcher | None:
    """Return the function that takes the completed share of the work; None where nothing is shown."""
    return _watcher.get()


def tracked(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Yield the items; if progress is shown, show the share of ``total`` that were yielded, and the remaining time."""
    with named_steps() as step:
        step(what)
        watch = _remaining(step, what)
        for n, item in enumerate(items, 1):
            yield item
            watch(min(1.0, n / total))
