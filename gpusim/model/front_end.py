"""The front end of the device: how long a kernel that may start waits until its stream's turn comes."""

from __future__ import annotations

CHANNELS = 8
"""Hardware queues (CUDA's default, CUDA_DEVICE_MAX_CONNECTIONS [M]): more streams than these share one."""


def turn_wait_us(streams_beside: int, turn_us: float) -> float:
    """How much later a kernel starts, us, for other streams that have kernels under way or wait for other streams.

    The device looks at streams that have work in turns, also at those whose kernel still runs or that wait for an
    event (experiments/h200_microbench, `dependencies.csv`). The gap between two kernels of a stream so grows with the
    streams beside it, whatever blocks they have, how long these run and whether green contexts hold them. It looks as
    if two units took some of the streams each, one turn of about 1.2 us for each other stream of theirs. Of streams
    created in a row each unit takes every other: gaps grow by 0.1, 1.1, 1.4 and 1.9 us beside 1, 2, 3 and 4 on an H200
    (`turns.csv`). Of two streams with cuDNN calls most met on one unit: by 1.1 us on the mean, 2.4 beside 3
    (`stream_gaps.csv`). Which meet a trace does not hold, so `turn_us` is what another stream costs on the mean [D].

    Args:
        streams_beside: other streams that have a kernel under way, or wait for another's operation.
        turn_us: `stream_turn_us` of the GPU.
    """
    return turn_us * min(streams_beside, CHANNELS - 1)
