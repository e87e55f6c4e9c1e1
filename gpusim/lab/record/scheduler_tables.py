"""Tables of warps on the schedulers of an SM, and of the registers that these have, from a log of microbenchmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from gpusim.lab.record.block_log import Launch, Recording, Row, by_repeat, repeats

SCHEDULERS = 4
"""Warp schedulers of an SM."""

REGISTERS = 65_536
"""Of an SM."""


def scheduler_table(recording: Recording) -> Iterator[Row]:
    """Blocks a, b and c on every SM: warps on its fullest scheduler, and times over that of a warp alone on its SM.

    The warps are the most at once, mean over SMs. Times are medians over the repeats: mean life of the blocks of each,
    and time from the first start to the last end over the number of waves.
    """
    fullest: dict[str, list[float]] = defaultdict(list)
    for scalar in recording.scalars:
        if scalar["experiment"] == "schedulers":
            fullest[scalar["case"]].append(scalar["value"])
    lone_ns: dict[str, float] = {}  # by kernel: its first case is a warp alone
    for (_, case), launches in recording.cases("schedulers").items():
        groups = {role: [launch for launch in launches if launch.role == role] for role in "abc"}
        first = groups["a"][0]
        lone = lone_ns.setdefault(first.kernel, _life_ns(groups["a"]))
        waves = len(first.blocks) // (first.per_sm * recording.sm_count)
        warps = sum(of[0].per_sm * of[0].threads // 32 for of in groups.values() if of)
        spans = [max(x.ends_ns.max() for x in of) - min(x.starts_ns.min() for x in of) for of in repeats(launches)]
        row: Row = {"kernel": first.kernel}
        for role, of in groups.items():
            row |= {f"warps_{role}": of[0].threads // 32 if of else 0, f"blocks_{role}": of[0].per_sm if of else 0}
        row |= {
            "waves": waves,
            "warps": warps,
            "warps_over_4_rounded_up": -(-warps // SCHEDULERS),
            "warps_on_fullest_scheduler": round(float(np.median(fullest[case])), 3),
        }
        for role, of in groups.items():
            row[f"relative_life_{role}"] = round(_life_ns(of) / lone, 3) if of else ""
        yield row | {"relative_time_per_wave": round(float(np.median(spans)) / waves / lone, 3)}


def register_table(recording: Recording) -> Iterator[Row]:
    """Blocks of b that start at once beside one of a on every SM, and how many would were registers summed over the SM.

    Registers are by thread, as the compiler gives them; warps are allocated 256 at a time.
    """
    for launches in recording.cases("register_room").values():
        for rep, party in by_repeat(launches):
            a, b = party["a"], party["b"]
            at_once = b.blocks[b.starts_ns < min(a.ends_ns.min(), b.ends_ns.min())]
            got = np.bincount(at_once["smid"], minlength=recording.sm_count)
            held, needed = (-(-launch.registers // 8) * 8 * launch.threads for launch in (a, b))
            row: Row = {"a_warps": a.threads // 32, "a_registers": a.registers}
            row |= {"b_warps": b.threads // 32, "b_registers": b.registers, "rep": rep}
            row |= {"b_blocks_at_least": int(got.min()), "b_blocks_at_most": int(got.max())}
            yield row | {"b_blocks_if_summed": (REGISTERS - held) // needed}


def _life_ns(launches: Sequence[Launch]) -> float:
    return float(np.median([(launch.ends_ns - launch.starts_ns).mean() for launch in launches]))
