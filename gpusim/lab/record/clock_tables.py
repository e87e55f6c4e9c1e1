"""Tables of the SMs' clock, from a log of the microbenchmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from gpusim.lab.record.block_log import Recording, Row, spread

SLOW_CLOCK = 0.97  # of the clock otherwise, under which an SM counts as slow


def clock_table(recording: Recording) -> Iterator[Row]:
    """SM clock beside blocks of each kind of arithmetic: how many SMs are slow, least and greatest clock."""
    alone = recording.clocks_per_ns * 1000
    for (_, case), launches in recording.cases("clock").items():
        load, blocks = (text.rpartition("=")[2] for text in case.split("/"))
        mhz: dict[int, list[float]] = defaultdict(list)
        for launch in launches:
            if launch.role == "watch":
                rates = launch.life_clocks / (launch.ends_ns - launch.starts_ns).astype(np.float64) * 1000
                for sm, rate in zip(launch.blocks["smid"], rates, strict=True):
                    mhz[int(sm)].append(float(rate))
        seen = np.array([np.median(values) for values in mhz.values()])
        row = {"load": load, "blocks": int(blocks), "sms_seen": len(seen)}
        row |= {"sms_slow": int((seen < SLOW_CLOCK * alone).sum())}
        yield row | {"mhz_lowest": round(float(seen.min())), "mhz_highest": round(float(seen.max()))}


def beside_table(recording: Recording) -> Iterator[Row]:
    """Life of a block beside blocks on other SMs that spin, or compute on tensor cores."""
    lives: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, case), launches in recording.cases("life_beside").items():
        for launch in launches:
            if launch.role == "watch":
                lives[launch.kernel, case.rpartition("=")[2]].extend((launch.ends_ns - launch.starts_ns) / 1000.0)
    for (kernel, load), values in lives.items():
        yield {"kernel": kernel, "beside": load} | spread(np.array(values), "life_us", 2)
