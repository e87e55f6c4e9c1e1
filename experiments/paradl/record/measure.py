"""Times on the device: of a function captured once and replayed, so that no host time is in them, or called anew."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import torch

WARMUPS = 3
Action = Callable[[], Any]


def replayed_us(work: Action, calls: int, repeats: int) -> float:
    """Microseconds of one call, the median over ``repeats`` replays of a graph of ``calls`` calls."""
    if not torch.cuda.is_available():
        return called_us(work, repeats)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARMUPS):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            work()
    took = called_us(graph.replay, repeats) / calls
    del graph
    return took


def called_us(work: Action, repeats: int) -> float:
    """Microseconds of one call, the median of ``repeats`` in a row, from start to start on the device."""
    for _ in range(WARMUPS):
        work()
    if not torch.cuda.is_available():
        return median(_host_us(work) for _ in range(repeats))
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return median(1e3 * float(a.elapsed_time(b)) for a, b in pairwise(events))


def _host_us(work: Action) -> float:
    begin = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - begin)


def cleared() -> None:
    """Frees unused memory and resets the peak, so that the next peak counts only what follows."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def held_bytes() -> int:
    """Bytes that tensors occupy now."""
    return int(torch.cuda.memory_allocated()) if torch.cuda.is_available() else 0


def peak_bytes() -> int:
    """Greatest number of bytes that tensors occupied since `cleared`."""
    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0
