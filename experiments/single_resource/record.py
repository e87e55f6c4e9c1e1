"""Record kernels of one resource, and pairs of them in two streams: `python experiments/single_resource/record.py`.

It builds pairs.cu, times its kernels, and counts each under Nsight Compute. For each set of sizes it writes
SIZES_kernels.csv, SIZES_pairs.csv and SIZES_ncu.csv.gz beside itself. It needs an NVIDIA GPU, nvcc and ncu, and takes
a minute.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpusim.common.files import MAX_BYTES, read_text, write_table
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.own_program import DEVICE_COUNTERS
from gpusim.lab.record.toolchain import FROM_START, build, require_ncu, run, under_ncu

HERE = Path(__file__).resolve().parent
SIZES = ("published", "other")
LEAST_CAPABILITY = 7.0
BUSIEST = "sm__throughput.avg.pct_of_peak_sustained_active"


def main() -> None:
    """Time the kernels and their pairs on this machine's GPU, and count each kernel."""
    require_ncu()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = folder / "pairs"
        build(HERE / "pairs.cu", program, LEAST_CAPABILITY)
        for sizes in SIZES:
            command = [str(program), str(folder), sizes]
            run(command, "the kernels")
            metrics = (*COUNTERS, *DEVICE_COUNTERS, BUSIEST)
            log = under_ncu([*command, "profile"], folder / "ncu.csv", metrics, *FROM_START)
            for name in ("kernels.csv", "pairs.csv"):
                write_table(HERE / f"{sizes}_{name}", read_text(folder / name, MAX_BYTES))
            write_table(HERE / f"{sizes}_ncu.csv.gz", log)


if __name__ == "__main__":
    main()
