"""Reads beside a full DRAM, as measured: what is printed of them, and Little's law."""

from __future__ import annotations

import pytest

from experiments.h200_microbench import under_way as study


def test_what_is_under_way_takes_dram_its_bytes_over_its_bandwidth() -> None:
    """130 SMs with 192 KiB each at 4.7 TB/s: 5.4 us."""
    row = {"sms": "130", "kib_per_sm": "192"}
    assert study.served_us(row, 4719.0) == pytest.approx(130 * 192 * 1024 / 4719e3)


def test_reads_of_a_full_dram_wait_for_what_is_under_way() -> None:
    _, most, full = study.reads()
    assert len(full) == 11
    for row in full:
        assert 0.5 < float(row["dram_ns"]) / 1e3 / study.served_us(row, most) < 0.65
    assert sum("full" in line for line in study.latencies()) == 11


def test_a_kernel_that_reads_further_ahead_is_slowed_less() -> None:
    (two, eight) = (
        next(line for line in study.beside() if line.split()[:4] == ["16", copies, "1000", "dram"])
        for copies in ("2", "8")
    )
    assert float(two.split()[-1].rstrip("x")) > 4.0 > 1.3 > float(eight.split()[-1].rstrip("x"))
