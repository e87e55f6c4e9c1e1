"""Resumable work: tasks whose answers are known are not computed again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from typing import TypeVar

from gpusim.common.progress import tracked
from gpusim.sweeps.workers import Executors, answers

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

    An identity is a hash of everything that can change the answer to a task. ``doing`` names the work in progress
    messages. The other arguments are those of `gpusim.sweeps.workers.answers`.
    """
    missing = [(identity, task) for identity, task in wanted.items() if identity not in found]
    with closing(answers(missing, partial(_of_pair, compute), executors, width)) as coming:
        for (identity, _), answer in tracked(coming, len(missing), doing):
            yield identity, answer


def _of_pair(compute: Callable[[T], R], pair: tuple[str, T]) -> R:
    return compute(pair[1])
