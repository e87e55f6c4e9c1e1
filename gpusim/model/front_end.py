"""The front end of the device: how long a kernel that may start waits until its stream's turn comes."""

from __future__ import annotations

CHANNELS = 8
"""Hardware queues (CUDA's default, CUDA_DEVICE_MAX_CONNECTIONS [M]): more streams than these share one."""


def turn_wait_us(streams_beside: int, turn_us: float, own_sms: bool = False) -> float:
    """How much later a kernel starts, us, for other streams that have kernels under way or wait for other streams.

    The device looks at streams that have work in turns, also at those whose kernel still runs or that wait for an
    event (experiments/h200_microbench, `dependencies.csv`). The gap between two kernels of a stream so grows with the
    streams beside it, whatever blocks they have and how long these run. It looks as if two units took some of the
    streams each, one turn for each other stream of theirs. Of streams created in a row, as those of green contexts are,
    each unit takes every other: gaps grow by 0.1, 1.1, 1.4 and 1.9 us beside 1, 2, 3 and 4 on an H200 (`turns.csv`), so
    by half a turn for each where there are several [D]. Of plain streams, between whose creation libraries create some
    of their own, most met on one unit: by 1.1 us beside one, 2.4 beside 3 (`stream_gaps.csv`). Which meet a trace does
    not hold, so `turn_us` is what another stream costs on the mean [D].

    Args:
        streams_beside: other streams that have a kernel under way, or wait for another's operation.
        turn_us: `stream_turn_us` of the GPU.
        own_sms: whether each stream has SMs of its own, in a green context.
    """
    beside = min(streams_beside, CHANNELS - 1)
    if own_sms:
        return 0.5 * turn_us * beside if beside > 1 else 0.0
    return turn_us * beside
