"""Kernels in thread block clusters: which launches are taken for such, and which SMs run their blocks.

The GPU by hand has 20 SMs, of which 18 hold clusters; a launch takes 1 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from tiny import kernel, played, spans, stream, tiny

from gpusim import load_gpu
from gpusim.calibrate.fit import anchored, usable_sms
from gpusim.calibrate.transfer import transferred
from gpusim.policies.interface import Grant, Partition, Policy, View
from gpusim.results.result import Result
from gpusim.trace.kernels import KernelLaunch

GPU = tiny(20, cluster_sm_share=0.91)
OUT_OF_REACH_BEFORE = 200 << 10  # shared memory that no block could have before there were clusters


def clustered(*grid: int, duration_us: float = 11.0, shared_bytes: int = OUT_OF_REACH_BEFORE) -> KernelLaunch:
    """A launch of which one block fills an SM."""
    x, y, z = (*grid, 1, 1, 1)[:3]
    return KernelLaunch(
        name="k",
        grid=(x, y, z),
        block=(1024, 1, 1),
        registers_per_thread=64,
        dynamic_shared_memory_bytes=shared_bytes,
        duration_us=duration_us,
    )


@dataclass
class On(Policy):
    """Everything on some SMs, as in a green context."""

    sms: frozenset[int] = frozenset()
    name = "on"
    summary = "on some SMs"

    def shows_sms(self) -> bool:
        return True

    def partition(self, view: View) -> Partition:
        return Partition(tuple(Grant(each.id, sms=self.sms) for each in view.kernels))


def run_on(sms: Sequence[int], launch: KernelLaunch) -> Result:
    operation = kernel("k", 1, 11.0).model_copy(update={"kernel": launch})
    return played(On(frozenset(sms)), stream("a", operation), gpu=GPU)


@pytest.mark.parametrize(
    ("grid", "shared_bytes", "sms"),
    [
        ((15, 8), OUT_OF_REACH_BEFORE, 120),
        ((15, 7), OUT_OF_REACH_BEFORE, 120),
        ((30, 4), OUT_OF_REACH_BEFORE, 120),
        ((3, 8), OUT_OF_REACH_BEFORE, 120),
        ((120, 1), OUT_OF_REACH_BEFORE, 120),
        ((132, 1), OUT_OF_REACH_BEFORE, 132),
        ((110, 1), OUT_OF_REACH_BEFORE, 132),
        ((66, 2), OUT_OF_REACH_BEFORE, 132),  # a pair of SMs holds a cluster of two
        ((13, 9), OUT_OF_REACH_BEFORE, 132),  # no cluster is larger than 8 on every GPU
        ((15, 8), 163 << 10, 132),
    ],
)
def test_what_is_taken_to_launch_in_clusters(grid: tuple[int, int], shared_bytes: int, sms: int) -> None:
    launch = clustered(*grid, shared_bytes=shared_bytes)
    assert usable_sms(launch, 1, load_gpu("h200")) == sms
    assert usable_sms(launch, 2, load_gpu("h200")) == 132  # of which an SM holds two


def test_a_gpu_that_gives_no_share_has_all_sms_for_clusters() -> None:
    assert load_gpu("p100").cluster_sms == load_gpu("p100").sm_count
    assert tiny(1, cluster_sm_share=0.9).cluster_sms == 1
    assert (GPU.cluster_sms, usable_sms(clustered(6, 3), 1, GPU)) == (18, 18)


def test_a_persistent_kernel_in_clusters_divides_its_work_among_the_sms_that_hold_them() -> None:
    """18 blocks of 10 us; of the last five SMs three hold clusters, so that three blocks do six blocks' work each."""
    assert spans(run_on(range(15, 20), clustered(6, 3)), "k") == [(sm, 1, 1.0, 61.0) for sm in (15, 16, 17)]
    assert spans(run_on(range(9), clustered(6, 3)), "k") == [(sm, 1, 1.0, 21.0) for sm in range(9)]


def test_one_without_clusters_has_all_its_sms() -> None:
    assert spans(run_on(range(15, 20), clustered(20)), "k") == [(sm, 1, 1.0, 41.0) for sm in range(15, 20)]


def test_where_no_sm_of_its_own_holds_clusters_it_runs_on_what_there_is() -> None:
    assert spans(run_on((18, 19), clustered(6, 3)), "k") == [(sm, 1, 1.0, 91.0) for sm in (18, 19)]


def test_alone_it_takes_what_was_recorded_and_leaves_the_other_sms_to_others() -> None:
    waves = kernel("k", 1, 21.0).model_copy(update={"kernel": clustered(12, 3, duration_us=21.0)})
    alone = played("leftover", stream("a", waves), gpu=GPU)
    assert spans(alone, "k") == [(sm, 2, 1.0, 21.0) for sm in range(18)]
    together = played("leftover", stream("a", waves), stream("b", kernel("l", 2, 11.0)), gpu=GPU)
    assert spans(together, "k") == [(sm, 2, 1.0, 21.0) for sm in range(18)]
    assert spans(together, "l") == [(sm, 1, 11.0, 21.0) for sm in (18, 19)]  # k's last blocks are placed at 11


def test_on_another_gpu_that_one_s_sms_count() -> None:
    model = anchored(clustered(6, 3), GPU)
    larger = replace(tiny(40, cluster_sm_share=0.75), name="larger")
    assert (model.usable_sms, model.persistent) == (18, True)
    assert transferred(model, clustered(6, 3), GPU, larger, "").usable_sms == 30
    assert transferred(anchored(clustered(20), GPU), clustered(20), GPU, larger, "").usable_sms == 40
