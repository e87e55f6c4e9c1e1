"""What reads wait for beside a full DRAM: `python experiments/h200_microbench/under_way.py` prints it.

under_way.cu wrote under_way.csv, the latency of dependent loads beside SMs that keep bytes from DRAM under way, and
under_way_beside.csv, the time of a kernel that reads ahead beside them. By Little's law what is under way takes DRAM
its bytes over its bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.rows import lines

HERE = Path(__file__).resolve().parent
COPIES = 200  # of each warp that reads ahead in under_way_beside.csv
FULL = 0.99  # of the highest bandwidth: from then on DRAM is full


def served_us(row: dict[str, str], gb_per_s: float) -> float:
    """Time in which DRAM serves what the SMs of a row have under way, us."""
    return int(row["sms"]) * int(row["kib_per_sm"]) * 1024 / gb_per_s / 1e3


def reads() -> tuple[list[dict[str, str]], float, list[dict[str, str]]]:
    """The rows of under_way.csv, the highest bandwidth among them, GB/s, and the rows that reach it: DRAM is full."""
    rows = lines(HERE / "under_way.csv")
    most = max(float(row["gb_per_s"]) for row in rows)
    return rows, most, [row for row in rows if float(row["gb_per_s"]) >= FULL * most]


def latencies() -> Iterator[str]:
    """Latency of reads from L2 and DRAM, beside the time in which DRAM serves what is under way."""
    rows, most, all_full = reads()
    yield " SMs  KiB each    GB/s  DRAM serves it in, ns  read of L2, ns  read of DRAM, ns"
    for row in rows:
        full = "  full" if row in all_full else ""
        yield (
            f"{row['sms']:>4} {row['kib_per_sm']:>9} {row['gb_per_s']:>7} {1e3 * served_us(row, most):22.0f} "
            f"{row['l2_ns']:>15} {row['dram_ns']:>17}{full}"
        )


def summary() -> Iterator[str]:
    """How long reads wait for a full DRAM, over the time in which it serves what is under way."""
    rows, most, full = reads()
    rest = [float(row["dram_ns"]) for row in rows if row not in full]
    yield f"DRAM not full: a read from it takes {min(rest):.0f} to {max(rest):.0f} ns"
    for name, what in (("dram_ns", "a read of DRAM"), ("l2_ns", "a read of L2")):
        times = [float(row[name]) for row in full]
        shares = [ns / 1e3 / served_us(row, most) for ns, row in zip(times, full, strict=True)]
        of = f"{min(shares):.2f} to {max(shares):.2f} of the time in which DRAM serves what is under way"
        yield f"DRAM full: {what} takes {min(times):.0f} to {max(times):.0f} ns, {of}"
    shares = [share for row in lines(HERE / "under_way_beside.csv") if (share := _copy_share(row, most)) is not None]
    yield f"DRAM full: a copy of 16 KiB takes {min(shares):.2f} to {max(shares):.2f} of it"


def _copy_share(row: dict[str, str], gb_per_s: float) -> float | None:
    """Time of a copy beside a full DRAM, by Little's law, over that in which DRAM serves all that is under way."""
    if row["beside_kib_per_sm"] in ("0", "16") or row["cycles"] != "0":
        return None
    own = int(row["sms"]) * int(row["stages"]) * int(row["copy_bytes"])
    others = int(row["beside_sms"]) * int(row["beside_kib_per_sm"]) * 1024
    return float(row["us"]) * int(row["stages"]) / COPIES / ((own + others) / gb_per_s / 1e3)


def beside() -> Iterator[str]:
    """How many times as long a kernel that reads ahead takes beside them, by the copies that it has under way."""
    rows = lines(HERE / "under_way_beside.csv")
    case = ("sms", "stages", "cycles", "data")
    alone = {tuple(row[name] for name in case): float(row["us"]) for row in rows if row["beside_kib_per_sm"] == "0"}
    known = {(*(row[name] for name in case), row["beside_kib_per_sm"]): float(row["us"]) for row in rows}
    sizes = [kib for kib in dict.fromkeys(row["beside_kib_per_sm"] for row in rows) if kib != "0"]
    yield " SMs  copies ahead  cycles of work  data      beside " + " ".join(f"{kib:>6} KiB" for kib in sizes)
    for one, us in alone.items():
        times = " ".join(f"{known[*one, kib] / us:9.2f}x" for kib in sizes)
        yield f"{one[0]:>4} {one[1]:>13} {one[2]:>15}  {one[3]:<5} {'':10}{times}"


if __name__ == "__main__":
    print("\n".join((*latencies(), "", *summary(), "", *beside())))
