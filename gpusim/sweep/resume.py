"""Long work that goes on where it was cut off: tasks whose answers are known are not computed again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from typing import TypeVar

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
    """Compute the tasks whose answers are not there yet, and hand on the answers as they come.

    Args:
        wanted: tasks by identity, a hash of everything that can change what comes of one.
        found: answers that are there, by identity.
        compute: gives the answer to a task (`gpusim.sweep.workers.answers`).
        executors: where to compute.
        width: tasks handed out at a time.
        doing: what somebody who watches is told.

    Yields:
        The identity of a task and its answer, or what was raised.
    """
    missing = [(identity, task) for identity, task in wanted.items() if identity not in found]
    with closing(answers(missing, partial(_of_pair, compute), executors, width)) as coming:
        for (identity, _), answer in tracked(coming, len(missing), doing):
            yield identity, answer


def _of_pair(compute: Callable[[T], R], pair: tuple[str, T]) -> R:
    return compute(pair[1])
