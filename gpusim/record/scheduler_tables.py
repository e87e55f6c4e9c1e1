"""The table of warps on the schedulers of an SM, from a log of the microbenchmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from gpusim.record.block_log import Launch, Recording, Table

SCHEDULERS = 4
"""Warp schedulers of an SM (as in microbench.cu)."""


def scheduler_table(recording: Recording) -> Table:
    """Blocks a and b on every SM: warps on its fullest scheduler, and times over that of a warp alone on its SM.

    Times are medians over the repeats: mean life of the blocks of a and of b, and time from the first start to the last
    end over the number of waves.
    """
    fullest: dict[str, list[float]] = defaultdict(list)
    for scalar in recording.scalars:
        if scalar["experiment"] == "schedulers":
            fullest[scalar["case"]].append(scalar["value"])
    table: Table = []
    lone_ns: dict[str, float] = {}  # by kernel: its first case is a warp alone
    for (_, case), launches in recording.cases("schedulers").items():
        a, b = ([launch for launch in launches if launch.role == role] for role in "ab")
        waves = len(a[0].blocks) // (a[0].per_sm * recording.sm_count)
        warps = sum(of[0].per_sm * of[0].threads // 32 for of in (a, b) if of)
        lone = lone_ns.setdefault(a[0].kernel, _life_ns(a))
        spans = [_span_ns([launch for launch in launches if launch.rep == first.rep]) for first in a]
        table.append(
            {
                "kernel": a[0].kernel,
                "warps_a": a[0].threads // 32,
                "blocks_a": a[0].per_sm,
                "warps_b": b[0].threads // 32 if b else 0,
                "blocks_b": b[0].per_sm if b else 0,
                "waves": waves,
                "warps": warps,
                "warps_over_4_rounded_up": -(-warps // SCHEDULERS),
                "warps_on_fullest_scheduler": round(float(np.median(fullest[case])), 3),
                "relative_life_a": round(_life_ns(a) / lone, 3),
                "relative_life_b": round(_life_ns(b) / lone, 3) if b else "",
                "relative_time_per_wave": round(float(np.median(spans)) / waves / lone, 3),
            }
        )
    return table


def _life_ns(launches: Sequence[Launch]) -> float:
    return float(np.median([(launch.ends_ns - launch.starts_ns).mean() for launch in launches]))


def _span_ns(launches: Sequence[Launch]) -> float:
    return float(max(x.ends_ns.max() for x in launches) - min(x.starts_ns.min() for x in launches))
