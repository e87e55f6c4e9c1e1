"""What an SM's shared memory is set to for a kernel: by the recording, else as the GPU's driver does."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from tiny import launch

from experiments.rows import lines
from gpusim import load_gpu
from gpusim.calibrate.carveouts import carveouts, resident_blocks
from gpusim.calibrate.fit import anchored
from gpusim.trace.kernels import Mix

KIB = 1024


@pytest.mark.parametrize(
    ("gpu", "recorded_kib", "set_to_kib", "least_kib", "most_kib"),
    [
        ("h200", None, 16, 16, 228),  # eight blocks of 1 KiB, and 1 KiB each of the driver's
        ("h200", 100, 100, 16, 228),
        ("h200", 1, 16, 16, 228),  # too little for a block: no carve-out that it ran with
        ("h200", 8, 8, 8, 8),  # less than a driver gives it: its program asked for that
        ("k40c", None, 48, 16, 48),  # eight blocks of 1 KiB
        ("k40c", 32, 32, 16, 48),
    ],
)
def test_what_an_idle_sm_is_set_to_and_what_a_kernel_joins(
    gpu: str, recorded_kib: int | None, set_to_kib: int, least_kib: int, most_kib: int
) -> None:
    """Blocks of 256 threads: eight are resident, if shared memory holds as many."""
    mix = None if recorded_kib is None else Mix(shared_memory_config_bytes=recorded_kib * KIB)
    one = launch(8, 20.0, threads=256).model_copy(update={"static_shared_memory_bytes": KIB, "mix": mix})
    model = anchored(one.model_copy(update={"registers_per_thread": 32}), load_gpu(gpu))
    assert model.blocks_per_sm == (8 if most_kib > 8 else 4)
    assert model.carveout_bytes == set_to_kib * KIB
    assert (model.least_carveout_bytes, model.most_carveout_bytes) == (least_kib * KIB, most_kib * KIB)


@pytest.mark.parametrize(
    ("recorded_on", "kib", "recorded_kib", "gpu", "expected", "blocks"),
    [
        ("a100-80", 40, 164, "h200", (228, 196, 228), 5),  # all that it had was not asked for
        ("h200", 1, 8, "a100-80", (8, 8, 8), 4),
        ("h200", 1, 8, "t4", (32, 32, 32), 4),  # its smallest, and no more blocks than warps allow
        ("h200", 1, 100, "t4", (64, 32, 64), 4),
    ],
)
def test_what_was_asked_for_is_decided_where_it_was_recorded(
    recorded_on: str, kib: int, recorded_kib: int, gpu: str, expected: tuple[int, int, int], blocks: int
) -> None:
    one = launch(8, 20.0, threads=256).model_copy(
        update={
            "static_shared_memory_bytes": kib * KIB,
            "registers_per_thread": 32,
            "mix": Mix(shared_memory_config_bytes=recorded_kib * KIB),
        }
    )
    source, target = load_gpu(recorded_on), load_gpu(gpu)
    assert carveouts(one, target, source) == tuple(size * KIB for size in expected)
    assert resident_blocks(one, target, source) == blocks


def test_blocks_that_waited_for_an_sm_find_its_carveout() -> None:
    """`handed_over.csv`: with much shared memory set on their SMs L1 is small, and blocks that need it join them."""
    rows = lines(Path(__file__).parents[1] / "experiments" / "h200_microbench" / "handed_over.csv")

    large = [row for row in rows if row["read_kib"] != "20"]  # which even a small L1 holds

    def found(started: str, what: str) -> list[int]:
        return [int(row[what]) for row in large if row["started"] == started and row[what]]

    cycles, beside = (
        {started: found(started, what) for started in ("idle", "after", "waited")}
        for what in ("cycles_of_a_pass", "late_blocks_beside")
    )
    readme = (Path(__file__).parents[1] / "experiments" / "h200_microbench" / "README.md").read_text("utf-8")
    for started in ("waited", "idle"):
        for kib in (60, 120):
            of = [
                int(row["cycles_of_a_pass"]) for row in rows if (row["started"], row["read_kib"]) == (started, str(kib))
            ]
            assert f"{median(of)}" in readme
    assert f"{min(beside['waited'])} to {max(beside['waited'])} start beside them" in readme
    for idle, after, waited in zip(cycles["idle"], cycles["after"], cycles["waited"], strict=True):
        assert 0.9 < after / idle < 1.1 and waited / idle > 2.3
    assert set(beside["idle"] + beside["after"]) == {0} and min(beside["waited"]) > 0
