"""Executors of tasks: processes of this machine, a cluster, or any other executor.

The caller gets the answers as they arrive. If a worker dies, the tasks under way are tried again, half as many at a
time, and so on. Only a task that ends its worker by itself is given up.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, TypeVar

from gpusim.common.cores import LocalPool
from gpusim.common.errors import InputError, quote
from gpusim.common.progress import tracked

Executors = Callable[[], Executor]  # starts an executor; called again where the one before has broken
AHEAD = 2  # tasks a worker that are handed out before they are needed
CONNECT_S = 30  # that the scheduler of a cluster may take to answer
WORKERS_S = 30  # that a cluster may be without workers
LOOK_S = 5  # between looks at whether it has some
ADDRESS = re.compile(r"([a-z]+://)?[^/\s]+:\d+")
EXPECTED_ADDRESS = "the address of a dask scheduler, such as tcp://HOST:8786"
DIED = "the worker died with this task alone (killed, or out of memory?)"

T = TypeVar("T")
R = TypeVar("R")
Named = tuple[str, T]  # a task with its identity


class WorkerDied(RuntimeError):
    """Raised for a task that ends every worker that gets it."""


def computed(
    wanted: Mapping[str, T],
    found: Mapping[str, R],
    compute: Callable[[T], R],
    executors: Executors,
    width: int,
    doing: str = "replaying",
) -> Generator[tuple[str, R | Exception]]:
    """Compute the wanted tasks that are not found yet, ``width`` handed out at a time.

    Yields the identity of each, a hash of everything that can change its answer, with the answer, or what was raised.
    Workers get copies of the tasks and import ``compute``. `WorkerDied` says that a task alone ended its worker twice.
    Workers that die before they compute anything are refused. ``doing`` names the work in progress messages.
    """
    missing = [task for task in wanted.items() if task[0] not in found]
    with closing(_answers(missing, compute, executors, width)) as coming:
        yield from tracked(coming, len(missing), doing)


def _answers(
    tasks: Iterable[Named[T]], compute: Callable[[T], R], executors: Executors, width: int
) -> Generator[tuple[str, R | Exception]]:
    waiting = deque(tasks)
    some = False
    while waiting:
        lost: list[Named[T]] = []
        with _started(executors) as executor:
            for answer in _until_broken(waiting, compute, executor, width, lost):
                some = True
                yield answer
        if lost and not some:
            _require_workers(executors)
        if lost and width == 1:
            yield lost[0][0], _once_more(lost[0], compute, executors)
        elif lost:
            yield from _answers(lost, compute, executors, width // 2)


def _once_more(task: Named[T], compute: Callable[[T], R], executors: Executors) -> R | Exception:
    """Return the answer to a task that was lost by itself. A second loss is its own fault."""
    with _started(executors) as executor:
        for _, answer in _until_broken(deque([task]), compute, executor, 1, []):
            return answer
    return WorkerDied(DIED)


def _until_broken(
    waiting: deque[Named[T]], compute: Callable[[T], R], executor: Executor, width: int, lost: list[Named[T]]
) -> Iterator[tuple[str, R | Exception]]:
    """Yield answers until all tasks are done or the executor breaks. Tasks under way are then added to ``lost``."""
    running: dict[Future[R], Named[T]] = {}
    while running or (waiting and not lost):
        while waiting and len(running) < width and not lost:
            task = waiting.popleft()
            try:
                running[executor.submit(compute, task[1])] = task
            except BrokenExecutor:
                lost.append(task)
        done: set[Future[R]] = set()
        while running and not (done := wait_for(running, LOOK_S, FIRST_COMPLETED).done):
            if isinstance(executor, _ClusterExecutor):
                executor.require_workers()
        for future in done:
            task = running.pop(future)
            try:
                answer = future.result()
            except (BrokenExecutor, CancelledError):
                lost.append(task)
            except Exception as error:
                if type(error).__name__ == "KilledWorker":  # dask's, of every task that its workers had with them
                    lost.append(task)
                else:  # such as a task that cannot be sent
                    yield task[0], error
            else:
                yield task[0], answer


def _require_workers(executors: Executors) -> None:
    """Refuse workers that cannot start at all, which is no fault of a task."""
    with _started(executors) as executor:
        try:
            executor.submit(os.getpid).result()
        except BrokenExecutor:
            raise InputError(None, "workers", "die as they start", "memory for them") from None


@contextmanager
def _started(executors: Executors) -> Iterator[Executor]:
    """Start an executor. An exception leaves it at once, whatever it still computes."""
    executor = executors()
    whole = False
    try:
        yield executor
        whole = True
    finally:
        executor.shutdown(wait=whole, cancel_futures=True)


# ---- processes of this machine


def local(jobs: int, tasks_per_process: int | None = None) -> tuple[Executors, int]:
    """Worker processes on this machine, and how many tasks are submitted to them at a time.

    After ``tasks_per_process`` tasks another process takes the place of one; None: never.
    """
    return partial(LocalPool, jobs, tasks_per_process), AHEAD * jobs


# ---- a cluster


class _ClusterExecutor(Executor):
    """A dask client as an executor. A lost scheduler gives one clear line.

    The executor of dask reports an error if a worker dies while it holds an answer.
    """

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self._address = address
        self._asked: dict[Future[Any], Any] = {}  # dask's future of each answer that is not there yet

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `Executor.submit`."""
        if self._client.status != "running":
            expected = "a scheduler that stays; what is done is kept, run it again to go on"
            raise InputError(None, "cluster", f"{self._address} is gone", expected)
        answer: Future[Any] = Future()
        self._asked[answer] = asked = self._client.submit(partial(function, **kwargs), *args, pure=False)
        asked.add_done_callback(partial(self._hand_on, answer))
        return answer

    def _hand_on(self, answer: Future[Any], asked: Any) -> None:
        """Hand on the answers of dask. An answer that was lost with its worker is computed again."""
        try:
            result = asked.result()
        except BaseException as error:  # that of a future that was given up is no `Exception`
            answer.set_exception(CancelledError() if asked.cancelled() else error)
        else:
            answer.set_result(result)
        del self._asked[answer]

    def require_workers(self) -> None:
        """Wait for a worker; there has to be one."""
        try:
            self._client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError:
            problem = f"{self._address} has no workers"
            raise InputError(None, "cluster", problem, f"one within {WORKERS_S} s") from None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As of any executor; without waiting, tasks under way are given up."""
        if wait:
            wait_for(list(self._asked))
        else:
            self._client.cancel(list(self._asked.values()))


@contextmanager
def cluster(address: str) -> Iterator[tuple[Executors, int]]:
    """A dask cluster by its scheduler's address: executors, and how many tasks its workers can have at a time."""
    try:
        from distributed import Client
    except ImportError:
        problem = "dask.distributed is not installed"
        raise InputError(None, "cluster", problem, "pip install 'gpusim[cluster]'") from None
    if not ADDRESS.fullmatch(address):
        raise InputError(None, "cluster", f"{quote(address)} is no address", EXPECTED_ADDRESS)
    connect: Any = Client
    for name in ["distributed", *logging.root.manager.loggerDict]:
        if name.partition(".")[0] == "distributed":  # what goes wrong is told in one line of ours
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        client = connect(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        problem = f"{address} does not answer ({type(error).__name__})"
        raise InputError(None, "cluster", problem, EXPECTED_ADDRESS) from None
    with client:
        _ClusterExecutor(client, address).require_workers()
        threads = sum(client.nthreads().values())
        yield lambda: _ClusterExecutor(client, address), AHEAD * threads
