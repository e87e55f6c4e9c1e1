"""What profiles share: overlaps, directions of copies, products' names, and what is an operation's wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import gpu_names, load_gpu
from gpusim.io.conversion import _beside_others
from gpusim.io.order import dependencies
from gpusim.io.products import gpu_stem, instead_of, like_name, recording_gpu, stands_in
from gpusim.io.timeline import CLOCK_US, Activity, LaunchedKernel, Product, StreamKey, Timeline
from gpusim.io.values import copy_direction, count, finite, three, whole

WORK = LaunchedKernel("k", (1, 1, 1), (32, 1, 1), 8, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 6)), max_size=9))
def test_overlaps_are_those_of_every_pair(drawn: list[tuple[int, int, int]]) -> None:
    kernels = [Activity(0, StreamKey(str(s)), 2.0 * start, 2.0 * us, WORK, n) for n, (s, start, us) in enumerate(drawn)]
    kernels.sort(key=lambda kernel: kernel.start_us)
    overlapping = [
        any(min(a.end_us, b.end_us) - max(a.start_us, b.start_us) > CLOCK_US for b in kernels if b.stream != a.stream)
        for a in kernels
    ]
    assert _beside_others(kernels) == sum(overlapping)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 6)), max_size=9))
def test_inferred_order_is_that_of_every_pair(drawn: list[tuple[int, int, int]]) -> None:
    """What had ended before an activity started is before it: by its stream's order, by a wait, or by both in turn."""
    work = [Activity(0, StreamKey(str(s)), 1.0 * start, 1.0 * us, WORK, n) for n, (s, start, us) in enumerate(drawn)]
    found = Timeline(work).on(0)
    waits = dependencies(found, "inferred", inferred=True)
    before: list[set[int]] = []
    for n, activity in enumerate(found.activities):
        same = [m for m in range(n) if found.activities[m].stream == activity.stream]
        direct = [*same[-1:], *waits.of.get(n, [])]
        before.append(set(direct).union(*(before[m] for m in direct)))
        ended = {m for m in range(n) if found.activities[m].end_us <= activity.start_us}
        assert before[n] >= ended
        assert all(found.activities[m].end_us <= activity.start_us for m in waits.of.get(n, []))
    assert waits.contradicted == 0


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("Memcpy HtoA (Pageable -> Array)", "h2d"),
        ("Memcpy HtoH (Pageable -> Pageable)", None),
        ("Memcpy host to device [sync]", "h2d"),
        ("Memcpy device to host [async]", "d2h"),
        ("Memcpy device to device (same device) [async]", "d2d"),
        ("[CUDA memcpy PtoP]", "p2p"),
    ],
)
def test_direction_of_a_copy(name: str, direction: str | None) -> None:
    assert copy_direction(name) == direction


@pytest.mark.parametrize(
    ("name", "sm_count", "memory_gb", "stem"),
    [
        ("Tesla V100-DGXS-32GB", 80, 34, "v100"),
        ("Tesla V100-SXM2-16GB", None, None, "v100"),
        ("Tesla V100S-PCIE-32GB", 80, 34, None),
        ("NVIDIA A100-PG509-200", 108, 42, "a100-40"),
        ("NVIDIA A100-SXM4-80GB", 108, 85, "a100-80"),
        ("NVIDIA A100 80GB PCIe", 108, 85, "a100-80"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 5, None),
        ("NVIDIA H100 80GB HBM3", 132, 85, "h100-sxm"),
        ("NVIDIA H100 PCIe", 114, 85, "h100-pcie"),
        ("NVIDIA H100 NVL", 132, 99, None),
        ("NVIDIA H200", 132, 150, "h200"),
        ("NVIDIA GH200 480GB", 132, 102, "gh200"),
        ("NVIDIA GB200", 152, 190, None),
        ("NVIDIA B200", 148, 190, "b200"),
        ("NVIDIA H20", 78, 102, "h20"),
        ("NVIDIA H800", 132, 85, "h800"),
        ("NVIDIA L4", 58, 24, "l4"),
        ("NVIDIA A10", 72, 24, "a10"),
        ("NVIDIA A10G", 80, 24, None),
        ("NVIDIA A30", 56, 25, "a30"),
        ("NVIDIA A40", 84, 48, "a40"),
        ("NVIDIA RTX A6000", 84, 51, "rtxa6000"),
        ("NVIDIA RTX 6000 Ada Generation", 142, 51, None),
        ("NVIDIA GeForce RTX 2080 Ti", 68, 11, "rtx2080ti"),
        ("NVIDIA GeForce RTX 3080", 68, 10, "rtx3080"),
        ("NVIDIA GeForce RTX 3080 Ti", 80, 12, None),
        ("NVIDIA GeForce RTX 4080 SUPER", 80, 16, None),
        ("NVIDIA GeForce RTX 5090", 170, 34, "rtx5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, 102, "rtxpro6000"),
        ("Orin", 16, 64, "orin"),
        ("NVIDIA TITAN V", 80, 12, "titanv"),
        ("NVIDIA GeForce RTX 3090", 82, 25, "rtx3090"),
        ("NVIDIA GeForce RTX 3090 Ti", 84, 25, None),
        ("NVIDIA GeForce RTX 4090", 128, 25, "rtx4090"),
        ("NVIDIA GeForce RTX 4090 D", 114, 25, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 76, 17, None),
        ("NVIDIA L40S", 142, 48, "l40s"),
        ("NVIDIA L40", 142, 48, "l40"),
        ("Tesla T4", 40, 16, "t4"),
        ("Tesla P100-PCIE-16GB", 56, 17, "p100"),
        ("Tesla K80", 13, 12, "k80"),
        ("Tesla K40c", 15, 12, "k40c"),
        ("Quadro RTX 8000", 72, 48, None),
    ],
)
def test_name_of_a_product(name: str, sm_count: int | None, memory_gb: int | None, stem: str | None) -> None:
    memory = None if memory_gb is None else memory_gb * 10**9
    assert gpu_stem(Product(name, sm_count, memory)) == stem
    assert stem is None or stem in gpu_names()


def test_a_profile_of_an_instance_is_refused_with_the_way_to_replay_one() -> None:
    with pytest.raises(InputError, match=r"an instance .* expected a profile of the whole GPU"):
        recording_gpu(Product("NVIDIA H200 MIG 3g.71gb", 60), None, Path("profile.json"))


@pytest.mark.parametrize(
    ("name", "gpu", "other"),
    [
        ("NVIDIA TITAN Xp", "p100", True),
        ("Tesla P100-PCIE-16GB", "p100", False),
        ("Tesla V100-SXM2-16GB", "p100", True),
        ("NVIDIA A100-PG509-200", "a100-80", False),
        ("NVIDIA A100-SXM4-40GB", "a100-80", True),
        ("NVIDIA H100 PCIe", "h100-sxm", True),
        (None, "p100", False),
    ],
)
def test_gpu_that_stands_in_for_another_product(name: str | None, gpu: str, other: bool) -> None:
    assert stands_in(Product(name), load_gpu(gpu)) is other


def test_values_as_profilers_write_them() -> None:
    assert [finite(value) for value in ("1.5", 2, "inf", None, True, "x", 10**400)] == [1.5, 2.0, *[None] * 5]
    assert [whole(value) for value in ("3", 4.0, 4.5, "", [], 2**70)] == [3, 4, None, None, None, 2**70]
    assert [three(value) for value in ("[4,1,1]", [4, 1, 1], ["4", "1", "1"], "(4, 1, 1)")] == [(4, 1, 1)] * 4
    assert [three(value) for value in ([0, 1, 1], [1, 1], "1", None, {}, "[-1,a,b]")] == [None] * 6
    assert [three(value) for value in ("[-4,5,6]", "[1.5,2]", "[1_6,1,1]", "[٤,1,1]")] == [None] * 4
    assert [finite(value) for value in ("1_0", "١٢", b"12", "1e400")] == [None] * 4
    assert [whole(value) for value in ("1_0", "١٢", "²", "-3", "12345678901234567891")] == [
        *[None] * 3, -3, 12345678901234567891,
    ]  # fmt: skip
    assert [count(value) for value in (None, "", " ", "16", 0, "1_6", "abc", -1, 1.5)] == [0, 0, 0, 16, 0, *[None] * 4]


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("b100", "b200"),  # and not v100, which is spelled more alike
        ("rtx3070", "rtx3080"),
        ("h2000", "h200"),
        ("H200", "h200"),
        ("a100", "a100-40 or a100-80"),
        ("a800", "a100-40 or a100-80"),
        ("l20", "l40 or l40s"),
        ("a6000", "rtxa6000"),
        ("4090", "rtx4090"),
        ("titan", "titanv"),
        ("Tesla K40c", "k40c"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA GeForce RTX 3060", "rtx3080"),
        ("NVIDIA B100", "b200"),
        ("gb300", "b200"),
        ("rtx6000", "rtxa6000 or rtxpro6000"),
        ("NVIDIA H100 80GB HBM3 MIG", "h100-pcie or h100-sxm"),
        ("100", ""),  # of too many
        ("m40", ""),  # none of its series ships
        ("h" + "9" * 400, ""),
        ("rtx²", ""),
    ],
)
def test_the_gpus_whose_names_are_like_an_unknown_one(name: str, like: str) -> None:
    assert like_name(name) == like
    assert instead_of(name).endswith(f"; the nearest is {like}" if like else "` makes")
