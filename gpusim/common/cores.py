"""Tasks on all cores of this machine: worker processes that share what the tasks need, and answers in order."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, TypeVar

from gpusim.common.garbage import collect_seldom
from gpusim.common.progress import unwatched

RESEND_S = 1.0  # after which a worker that was told to end is told again
FORKS = sys.platform == "linux"  # a worker begins as a copy of its parent, in milliseconds and from any script

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


class LocalPool(ProcessPoolExecutor):
    """Processes that end with their parent, however that ends, and when nobody waits for them."""

    def __init__(self, jobs: int, tasks_per_process: int | None = None) -> None:
        leash, self._hand = Pipe(duplex=False)
        super().__init__(jobs, Spawn(), _on_a_leash, (leash,), max_tasks_per_child=tasks_per_process)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task. A worker process that this starts ignores the SIGINT of a Ctrl-C."""
        with _ctrl_c_later():
            return super().submit(function, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor.shutdown`; without waiting, running tasks are abandoned."""
        if not wait:
            self._hand.close()
        super().shutdown(wait, cancel_futures=cancel_futures)


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Defer Ctrl-C, and block it in processes started in the block, where the system supports it.

    Blocked in this thread alone it would still interrupt it: the system may deliver it to a thread of a library.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    came: list[int] = []
    interrupted = threading.current_thread() is threading.main_thread()  # no other thread ever is
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if interrupted else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _on_a_leash(leash: Connection) -> None:
    """End this process when its parent closes the pipe. Ctrl-C and standard output belong to the parent."""
    collect_seldom()
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_when_closed, args=(leash,), daemon=True).start()


def _leave_when_closed(leash: Connection) -> None:
    try:
        leash.poll(None)
    finally:
        os._exit(1)


def in_order(compute: Callable[[T], R], tasks: Sequence[T], jobs: int | None = None) -> Iterator[R]:
    """Compute tasks on several cores, by default on all, and yield the answers in the order of the tasks.

    A worker process computes its tasks by itself, without further workers. It is sent ``compute`` once, so whatever all
    tasks share belongs there: ``compute`` may be a method of an object, or a `functools.partial` of a function.
    """
    alone = multiprocessing.parent_process() is not None
    workers = min(1 if alone else jobs or os.cpu_count() or 1, len(tasks))
    if workers < 2:
        for task in tasks:
            with unwatched():
                answer = compute(task)
            yield answer
        return
    context = multiprocessing.get_context("fork") if FORKS else Spawn()
    with ProcessPoolExecutor(workers, context, _begin, (compute,)) as pool:
        try:
            yield from pool.map(_in_worker, tasks)
        except BaseException:  # Ctrl-C, a task that failed, or a caller that needs no more: nobody waits for the rest
            begun = list((pool._processes or {}).values())
            for worker in begun:
                worker.terminate()
            for worker in begun:
                _ended(worker)
            raise


def _ended(worker: BaseProcess) -> None:
    """Wait for a worker that was terminated: a signal just before it waits for a task does not wake it, so again."""
    worker.join(RESEND_S)
    while worker.is_alive():
        worker.terminate()
        worker.join(RESEND_S)


_OF_WORKER: list[Callable[[Any], Any]] = []  # of this process, where it is a worker


def _begin(compute: Callable[[T], R]) -> None:
    gc.freeze()  # the worker need not look through what it has of its parent
    collect_seldom()
    signal.signal(signal.SIGTERM, _leave)
    _OF_WORKER.append(compute)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave(*_: object) -> None:
    """End what this worker computes; a file that is half written is removed on the way."""
    raise SystemExit


def _leave_with_parent() -> None:
    """End this process when its parent has ended, however that was: a worker would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _in_worker(task: Any) -> Any:
    with unwatched():
        return _OF_WORKER[-1](task)
