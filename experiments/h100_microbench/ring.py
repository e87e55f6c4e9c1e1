"""What reading ahead hides of DRAM's queues: `python experiments/h100_microbench/ring.py` prints it from ring.csv.

Blocks of ring.cu stage tiles of 16 KiB in shared memory. They load tiles ahead, and do a fixed work for each. A row is
measured at the number of SMs that ask for what DRAM sustains, by their rate on 8 SMs. The share is the measured
throughput over the lesser of the two. Queues that are felt with an exponent e (docs/model.md) leave 2^(-1/e) of it.
"""

from __future__ import annotations

from pathlib import Path

from experiments.rows import lines

MEASURED = Path(__file__).resolve().parent / "ring.csv"
FEWEST = 8  # SMs, which do not load DRAM


def shares() -> list[tuple[int, int, int, int, float]]:
    """Tiles ahead, blocks per SM, work, SMs and share, of the cases that can fill DRAM."""
    curves: dict[tuple[int, int, int], dict[int, float]] = {}
    for row in lines(MEASURED):
        if row["data"] == "dram":
            case = int(row["stages"]) - 1, int(row["blocks_per_sm"]), int(row["work"])
            curves.setdefault(case, {})[int(row["sms"])] = float(row["gb_per_s"])
    full = max(max(curve.values()) for curve in curves.values())
    found = []
    for case, curve in curves.items():
        asked = {sms: curve[FEWEST] / FEWEST * sms for sms in curve}
        at = min(curve, key=lambda sms: abs(asked[sms] - full))
        if asked[at] > 0.9 * full:
            found.append((*case, at, curve[at] / min(asked[at], full)))
    return found


def main() -> None:
    """Print the table."""
    print("tiles ahead  blocks per SM  work  SMs  share")
    for ahead, blocks, work, sms, share in shares():
        print(f"{ahead:11}  {blocks:13}  {work:4}  {sms:3}  {share:5.2f}")


if __name__ == "__main__":
    main()
