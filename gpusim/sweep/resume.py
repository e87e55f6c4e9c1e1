"""Long work that goes on where it was cut off: what came of each task is kept, under a hash of what can change it.

A sweep keeps its outcomes in its table. Studies whose rows are of another kind keep them in a journal: a file of JSON
lines, each with the identity of a task and its answer, appended as answers come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write
from gpusim.common.progress import tracked
from gpusim.sweep.workers import Executors, answers

T = TypeVar("T")
R = TypeVar("R")


def computed(
    wanted: Mapping[str, T],
    found: Mapping[str, R],
    compute: Callable[[T], R],
    executors: Executors,
    width: int,
    doing: str = "replaying",
) -> Generator[tuple[str, R | Exception]]:
    """Compute the wanted tasks, by identity, that are not found yet; yield each with its answer, or what was raised.

    An identity is a hash of everything that can change what comes of a task; ``doing`` is what somebody who watches is
    told. The other arguments are those of `gpusim.sweep.workers.answers`.
    """
    missing = [(identity, task) for identity, task in wanted.items() if identity not in found]
    with closing(answers(missing, partial(_of_pair, compute), executors, width)) as coming:
        for (identity, _), answer in tracked(coming, len(missing), doing):
            yield identity, answer


def _of_pair(compute: Callable[[T], R], pair: tuple[str, T]) -> R:
    return compute(pair[1])


def resumed(
    journal: Path,
    wanted: Mapping[str, T],
    compute: Callable[[T], R],
    executors: Executors,
    width: int,
    doing: str = "replaying",
) -> dict[str, R]:
    """Return answers to all tasks by identity, those that a journal holds taken over and the others appended to it.

    ``compute`` gives plain data, such as JSON has: lists (no tuples), numbers, text. What the journal holds of other
    tasks goes. The arguments are those of `computed`.

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
