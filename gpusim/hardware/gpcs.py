"""GPCs: groups of SMs. A thread block cluster is inside one GPC. Also the numbering of SMs across GPCs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

GROUP = 8  # SMs in which green contexts take those of a GPC


@cache  # asked for at every kernel that is fitted
def numbered(sms_per_gpc: tuple[int, ...], sm_count: int) -> tuple[int, ...]:
    """Return the GPC of each SM, in the order in which green contexts take SMs; without sizes all SMs are one GPC.

    They take groups of eight SMs, one from each GPC in turn. The remainder of each GPC comes last (H200 and H100, [V]
    experiments/h200_microbench, `topology.csv` and `clusters.csv`). Another number of SMs than the GPCs have in all
    begins over again, or stops before [D].
    """
    if not sms_per_gpc:
        return (0,) * sm_count
    eights = max(sms // GROUP for sms in sms_per_gpc)
    whole = [gpc for turn in range(eights) for gpc, sms in enumerate(sms_per_gpc) if sms // GROUP > turn]
    order = [gpc for gpc in whole for _ in range(GROUP)]
    order += [gpc for gpc, sms in enumerate(sms_per_gpc) for _ in range(sms % GROUP)]
    again = [divmod(sm, len(order)) for sm in range(sm_count)]
    return tuple(times * len(sms_per_gpc) + order[at] for times, at in again)


def most_clusters(gpc_of_sm: Iterable[int], blocks: int) -> int:
    """Return how many clusters of a size fit on some SMs, one block per SM, by the GPC of each ([V] the same)."""
    return sum(sms // blocks for sms in Counter(gpc_of_sm).values())
