"""GPCs and kernels in thread block clusters: which SMs are in one, which launches are in clusters, and where these run.

The GPU by hand has two GPCs of 8 SMs, 0 to 7 and 8 to 15, and two pairs that hold no cluster of more than two; a launch
takes 1 us.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tiny import kernel, played, spans, stream, tiny

from gpusim import load_gpu
from gpusim.calibrate.blocks import cluster_blocks, is_persistent, tiles
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.transfer import transferred
from gpusim.engine.several_gpus import together
from gpusim.hardware.gpcs import most_clusters, numbered
from gpusim.hardware.gpu import GPU as GPUModel
from gpusim.policies.interface import Grant, Partition, Policy, View
from gpusim.results.result import Result
from gpusim.trace.kernels import KernelLaunch, Mix

GPU = replace(tiny(20), sms_per_gpc=(8, 8, 2, 2))
MICROBENCH = Path(__file__).resolve().parents[1] / "experiments" / "h200_microbench"
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


def run_on(sms: Sequence[int], launch: KernelLaunch, gpu: GPUModel = GPU) -> Result:
    operation = kernel("k", 1, 11.0).model_copy(update={"kernel": launch})
    return played(On(frozenset(sms)), stream("a", operation), gpu=gpu)


# ---- GPCs


def test_sms_are_numbered_by_eights_of_each_gpc_in_turn() -> None:
    assert numbered((8, 18, 16, 2), 44) == (0,) * 8 + (1,) * 8 + (2,) * 8 + (1,) * 8 + (2,) * 8 + (1,) * 2 + (3,) * 2
    assert numbered((8, 2), 13) == (0,) * 8 + (1,) * 2 + (2,) * 3  # more SMs begin over again
    assert numbered((), 3) == (0, 0, 0)


def test_that_is_how_green_contexts_take_the_gpcs_of_an_h200() -> None:
    """Both by what was measured: the SMs of each GPC, and in which green context, of 8 to 128 SMs, an SM came first."""
    with (MICROBENCH / "topology.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    measured = sorted(rows, key=lambda row: int(row["smallest_green_context"] or 132))
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(row["gpc_group"], len(numbers)) for row in measured]
    assert tuple(found) == load_gpu("h200").gpc_of_sm


def test_clusters_fit_as_measured() -> None:
    """In green contexts and beside them; of 3 blocks up to a fifth and of 5 a third fewer in large green contexts."""
    gpcs = load_gpu("h200").gpc_of_sm
    with (MICROBENCH / "clusters.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 144
    for row in rows:
        sms, blocks, used = int(row["sms"]), int(row["cluster_blocks"]), int(row["sms_used"])
        part = gpcs[:sms] if row["part"] == "first" else gpcs[-sms:]
        room = blocks * most_clusters(part, blocks)
        if row["part"] == "first" and sms >= 72 and blocks in (3, 5):
            assert (0.8 if blocks == 3 else 0.67) * room < used < room
        else:
            assert used == room


# ---- which launches are in clusters


@pytest.mark.parametrize(
    ("grid", "shared_bytes", "blocks", "persistent"),
    [
        ((15, 8), OUT_OF_REACH_BEFORE, 8, True),
        ((15, 7), OUT_OF_REACH_BEFORE, 7, True),
        ((30, 4), OUT_OF_REACH_BEFORE, 4, True),
        ((39, 3), OUT_OF_REACH_BEFORE, 3, True),
        ((4, 8), OUT_OF_REACH_BEFORE, 4, False),  # x comes first
        ((4, 24), OUT_OF_REACH_BEFORE, 4, False),
        ((4, 33), OUT_OF_REACH_BEFORE, 1, True),  # more than can be there at once
        ((16, 8), OUT_OF_REACH_BEFORE, 1, False),  # more than can be there at once
        ((33, 4), OUT_OF_REACH_BEFORE, 1, True),
        ((120, 1), OUT_OF_REACH_BEFORE, 4, True),
        ((110, 1), OUT_OF_REACH_BEFORE, 1, False),  # clusters of 5 could have as many SMs
        ((132, 1), OUT_OF_REACH_BEFORE, 1, True),
        ((108, 1), OUT_OF_REACH_BEFORE, 1, False),
        ((66, 2), OUT_OF_REACH_BEFORE, 1, True),  # any pair of SMs holds a cluster of two
        ((13, 9), OUT_OF_REACH_BEFORE, 1, False),  # no cluster is larger than 8 on every GPU
        ((15, 8), 163 << 10, 1, False),
    ],
)
def test_what_is_taken_to_launch_in_clusters(
    grid: tuple[int, int], shared_bytes: int, blocks: int, persistent: bool
) -> None:
    launch = clustered(*grid, shared_bytes=shared_bytes)
    assert cluster_blocks(launch, 1, load_gpu("h200")) == blocks
    assert is_persistent(launch, 1, load_gpu("h200")) == persistent
    assert cluster_blocks(launch, 2, load_gpu("h200")) == 1  # of which an SM holds two
    assert not is_persistent(launch, 2, load_gpu("h200"))


def test_a_gpu_that_names_no_gpcs_holds_clusters_anywhere() -> None:
    gpu = replace(tiny(20), sms_per_gpc=())
    assert gpu.gpc_of_sm == (0,) * 20
    assert cluster_blocks(clustered(16), 1, GPU) == 4
    assert cluster_blocks(clustered(16), 1, gpu) == 1
    assert spans(run_on((7, 8, 15), clustered(1, 3), gpu), "k") == [(sm, 1, 1.0, 11.0) for sm in (7, 8, 15)]


@pytest.mark.parametrize("sms", [100, 132])
def test_of_several_gpus_each_has_gpcs_of_its_own(sms: int) -> None:
    one = replace(load_gpu("h200"), sm_count=sms)
    both = together(one, 2).gpc_of_sm
    assert both[:sms] == one.gpc_of_sm
    assert both[sms:] == tuple(gpc + max(one.gpc_of_sm) + 1 for gpc in one.gpc_of_sm)


def test_on_another_gpu_that_one_s_gpcs_count() -> None:
    model = anchored(clustered(3, 4), GPU)
    larger = replace(tiny(40), name="larger", sms_per_gpc=(20, 20))
    assert (model.cluster_blocks, model.persistent) == (3, True)
    assert transferred(model, clustered(3, 4), GPU, larger, "").cluster_blocks == 3
    assert transferred(anchored(clustered(20), GPU), clustered(20), GPU, larger, "").cluster_blocks == 1


# ---- where they run


def test_the_next_cluster_starts_as_soon_as_a_gpc_has_room_for_it() -> None:
    """Two of three blocks fit on a GPC of 8 and two more SMs; for the third two SMs were always free."""
    found = spans(run_on(range(10), clustered(3, 3)), "k")
    assert [(sm, blocks) for sm, blocks, _, _ in found] == [(0, 2), *((sm, 1) for sm in range(1, 8))]
    assert {(start, end) for sm, _, start, end in found if sm in (6, 7)} == {(11.0, 21.0)}
    assert max(end for *_, end in found) == 21.0


def test_two_clusters_go_to_two_gpcs() -> None:
    two = spans(run_on(range(20), clustered(2, 3)), "k")
    assert two == [(sm, 1, 1.0, 11.0) for sm in (0, 1, 2, 8, 9, 10)]


def test_a_cluster_waits_until_a_gpc_has_as_many_sms_and_holds_up_what_comes_after() -> None:
    """14 blocks leave six SMs, of which no three are in one GPC."""
    result = played(
        "leftover",
        stream("a", kernel("l", 14, 31.0)),
        stream("b", kernel("k", 1, 11.0).model_copy(update={"kernel": clustered(1, 3)})),
        stream("c", kernel("m", 1, 11.0)),
        gpu=GPU,
    )
    assert spans(result, "l") == [(sm, 1, 1.0, 31.0) for sm in range(14)]
    assert spans(result, "k") == [(sm, 1, 31.0, 41.0) for sm in (0, 1, 2)]
    assert spans(result, "m")[0][2] == 31.0


@dataclass
class Queued(Policy):
    """Each stream a queue of its own."""

    name = "queued"
    summary = "a queue a stream"

    def partition(self, view: View) -> Partition:
        return Partition(tuple(Grant(each.id, queue=each.stream_index) for each in view.kernels))


def test_another_queue_goes_on_while_a_cluster_waits() -> None:
    """l leaves six SMs, no three of them in one GPC: both waves of m run there."""
    result = played(
        Queued(),
        stream("a", kernel("l", 14, 31.0)),
        stream("b", kernel("k", 1, 11.0).model_copy(update={"kernel": clustered(1, 3)})),
        stream("c", kernel("m", 12, 11.0)),
        gpu=GPU,
    )
    assert spans(result, "m") == [(sm, 2, 1.0, 21.0) for sm in range(14, 20)]
    assert spans(result, "k") == [(sm, 1, 31.0, 41.0) for sm in (0, 1, 2)]


# ---- persistent kernels


def test_a_persistent_kernel_shares_its_work_among_the_sms_it_gets() -> None:
    """12 blocks of 8 tiles of 1.25 us on 9 SMs, which hold two clusters of three.

    The first six blocks do 15 tiles each; the others find only their own first tile. As SM 0 is free, so are 6 and 7.
    """
    found = spans(run_on(range(9), clustered(3, 4)), "k")
    assert found[:4] == [(sm, 2, 1.0, 21.0) for sm in range(4)]
    assert found[4:] == [(4, 1, 1.0, 19.75), (5, 1, 1.0, 19.75), (6, 1, 19.75, 21.0), (7, 1, 19.75, 21.0)]


def test_one_without_clusters_has_all_its_sms() -> None:
    found = spans(run_on(range(15, 20), clustered(20)), "k")
    assert found == [(sm, 4, 1.0, 41.0) for sm in range(15, 20)]


def test_where_no_cluster_fits_its_blocks_start_by_themselves() -> None:
    assert spans(run_on((18, 19), clustered(3, 4)), "k") == [(18, 6, 1.0, 61.0), (19, 6, 1.0, 61.0)]


def test_blocks_that_start_late_take_what_is_left() -> None:
    """Of 20 blocks of 8 us ten wait for another kernel's 4 us; then 20 do the 120 us of work that are left, in 6 us."""
    result = played(
        "leftover",
        stream("a", kernel("l", 10, 5.0)),
        stream("b", kernel("k", 1, 9.0).model_copy(update={"kernel": clustered(20, duration_us=9.0)})),
        gpu=GPU,
    )
    assert spans(result, "l") == [(sm, 1, 1.0, 5.0) for sm in range(10)]
    assert spans(result, "k") == [(sm, 1, 5.0, 11.0) for sm in range(10)] + [(sm, 1, 1.0, 11.0) for sm in range(10, 20)]


def test_blocks_that_wait_while_some_end_start_when_all_have() -> None:
    """Of 42 tiles on 20 SMs 18 blocks do 2 and two 3, in 10 us; on 18 SMs the last two wait for all, and do their own.

    The first 18 do 40 tiles, of 10/3 us: two each, and four of them a third; their end at 10 us is that of all.
    """
    cycles = {"active_cycles_min": 2 / 3, "active_cycles_avg": 0.69, "active_cycles_max": 1.0}
    launch = clustered(20).model_copy(update={"mix": Mix(**cycles)})
    assert tiles(launch, 1, GPU) == 42
    assert spans(run_on(range(20), launch), "k")[-1] == (19, 1, 1.0, pytest.approx(1.0 + 20 / 3))
    found = spans(run_on(range(18), launch), "k")
    assert max(end for *_, end in found) == pytest.approx(1.0 + 4 * 10 / 3)
    assert sorted(blocks for _, blocks, _, _ in found) == [1] * 16 + [2] * 2


def test_waiting_blocks_without_clusters_find_no_tile() -> None:
    """The same 42 tiles, with blocks that are counted as no clusters: 18 SMs do them as they go, 3 at most."""
    cycles = {"active_cycles_min": 2 / 3, "active_cycles_avg": 0.69, "active_cycles_max": 1.0}
    launch = clustered(20).model_copy(update={"mix": Mix(cluster=(1, 1, 1), **cycles)})
    assert tiles(launch, 1, GPU) == 42
    assert max(end for *_, end in spans(run_on(range(18), launch), "k")) == pytest.approx(1.0 + 3 * 10 / 3)


def test_clusters_are_as_recorded() -> None:
    launch = clustered(20).model_copy(update={"mix": Mix(cluster=(2, 1, 1))})
    assert cluster_blocks(launch, 1, GPU) == 2
    assert cluster_blocks(launch, 2, GPU) == 2
    assert cluster_blocks(clustered(15, 8).model_copy(update={"mix": Mix(cluster=(1, 1, 1))}), 1, load_gpu("h200")) == 1


def test_alone_it_takes_what_was_recorded() -> None:
    operation = kernel("k", 1, 11.0).model_copy(update={"kernel": clustered(3, 4)})
    found = spans(played("leftover", stream("a", operation), gpu=GPU), "k")
    assert found == [(sm, 1, 1.0, 11.0) for sm in (*range(6), *range(8, 14))]
