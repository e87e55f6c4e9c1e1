"""Answers of long work, kept as they come: a file of JSON lines, each the identity of a task and its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write
from gpusim.sweeps.workers import Executors, computed

T = TypeVar("T")
R = TypeVar("R")


def resumed(
    journal: Path,
    wanted: Mapping[str, T],
    compute: Callable[[T], R],
    executors: Executors,
    width: int,
    doing: str = "replaying",
) -> dict[str, R]:
    """Answers to all tasks, those that a journal holds taken over and the others appended to it.

    Args:
        journal: the file; what it holds of other tasks goes.
        wanted: tasks by identity.
        compute: gives plain data, such as JSON has: lists (no tuples), numbers, text.
        executors: where to compute (`gpusim.sweeps.workers`).
        width: tasks handed out at a time.
        doing: what somebody who watches is told.

    Returns:
        Answers by identity, in the order of ``wanted``.

    Raises:
        Exception: whatever a task raises; what was computed until then is in the journal.
    """
    found: dict[str, R] = {key: answer for key, answer in _read(journal).items() if key in wanted}
    with _appending(journal, found) as append:
        for identity, answer in computed(wanted, found, compute, executors, width, doing):
            if isinstance(answer, Exception):
                raise answer
            append(identity, answer)
            found[identity] = answer
    return {identity: found[identity] for identity in wanted}


def _read(journal: Path) -> dict[str, Any]:
    """Whole lines of a journal; the last may have been cut off as it was written."""
    if not journal.is_file():
        return {}
    found = {}
    for n, line in enumerate(journal.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        if line.endswith("\n"):
            try:
                identity, found[identity] = json.loads(line)
            except (ValueError, TypeError):
                raise InputError(journal, f"line {n}", "is no kept answer", "a file of this; delete it") from None
    return found


@contextmanager
def _appending(journal: Path, found: Mapping[str, Any]) -> Iterator[Callable[[str, Any], None]]:
    """Begin a journal with what is known, then append, each line there even if this process dies next."""
    with atomic_write(journal) as file:
        file.writelines(_line(identity, answer) for identity, answer in found.items())
    with journal.open("a", encoding="utf-8") as file:

        def append(identity: str, answer: Any) -> None:
            file.write(_line(identity, answer))
            file.flush()

        yield append


def _line(identity: str, answer: Any) -> str:
    return json.dumps([identity, answer]) + "\n"
