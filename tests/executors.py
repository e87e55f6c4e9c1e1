"""Executors for tests of sweeps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future


class Here(Executor):
    """Computes in this process, when asked."""

    def submit(self, function: Callable[..., object], /, *args: object, **kwargs: object) -> Future[object]:  # type: ignore[override]
        future: Future[object] = Future()
        future.set_result(function(*args, **kwargs))
        return future
