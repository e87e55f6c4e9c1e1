"""Tasks on all cores of this machine: worker processes that share what the tasks need, and answers in order."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, TypeVar

from gpusim.common.progress import unwatched

FORKS = sys.platform == "linux"  # a worker begins as a copy of its parent, in milliseconds and from any script

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class _SpawnedProcess(SpawnProcess):
    """A process that does not run the user's script again, which then needs no guard: all tasks are of gpusim."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class Spawn(SpawnContext):
    """Start processes afresh, not as copies of their parent."""

    Process = _SpawnedProcess


def in_order(compute: Callable[[S, T], R], shared: S, tasks: Sequence[T], jobs: int | None = None) -> Iterator[R]:
    """Compute tasks on several cores, and yield the answers in the order of the tasks.

    A worker process computes its tasks by itself, without further workers.

    Args:
        compute: a function of a module.
        shared: its first argument, the same for all tasks; workers have a copy of it.
        tasks: its second argument.
        jobs: processes; None: one for each core.
    """
    alone = multiprocessing.parent_process() is not None
    workers = min(1 if alone else jobs or os.cpu_count() or 1, len(tasks))
    if workers < 2:
        for task in tasks:
            with unwatched():
                answer = compute(shared, task)
            yield answer
        return
    context = multiprocessing.get_context("fork") if FORKS else Spawn()
    with ProcessPoolExecutor(workers, context, _begin, (compute, shared)) as pool:
        yield from pool.map(_in_worker, tasks)


_OF_WORKER: list[tuple[Callable[[Any, Any], Any], Any]] = []  # of this process, where it is a worker


def _begin(compute: Callable[[S, T], R], shared: S) -> None:
    _OF_WORKER.append((compute, shared))


def _in_worker(task: Any) -> Any:
    compute, shared = _OF_WORKER[-1]
    with unwatched():
        return compute(shared, task)
