"""What L2 serves blocks that do not start together: `python experiments/h100_microbench/apart.py`.

It prints two tables. lockstep.csv is of lockstep.cu: blocks that read the same tiles start at random times within a
span. handover.csv is of PyTorch's matrix products and attention. They start on an idle GPU or in a green context, or
as another kernel leaves the SMs (handover.cu). `apart.py record` records both; it needs an H100, nvcc, ncu and PyTorch.
"""

from __future__ import annotations

import csv
import ctypes
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from experiments.rows import lines, to_csv
from gpusim.common.files import write_text

HERE = Path(__file__).resolve().parent
LOCKSTEP, HANDOVER = HERE / "lockstep.csv", HERE / "handover.csv"
READS, L1, DRAM = "lts__t_sectors_op_read.sum", "l1tex__m_xbar2l1tex_read_bytes.sum", "dram__bytes_read.sum"
PROFILE = ("ncu", "--cache-control", "none", "--clock-control", "none", "--csv", "--page", "raw", "--metrics")
SMS, PAIRS = 132, 66
GREEN_SMS = (96, 64, 32)
HELD_NS, HOLD_NS = 20_000_000, 400_000  # until the host has launched all; longer than any block
STARTS = ((0, 0), (1, 3000), (8, 3000), (33, 3000), (66, 300), (66, 1000), (66, 3000))  # pairs that are late, and ns
PRODUCTS = {  # rows, reduction, columns; BF16 but for the last
    "512x1024x4096": (512, 1024, 4096),
    "512x4096x1024": (512, 4096, 1024),
    "512x1024x3072": (512, 1024, 3072),
    "512x1024x1024": (512, 1024, 1024),
    "4096x4096x1024": (4096, 4096, 1024),
    "1024x8192x1280": (1024, 8192, 1280),
    "256x14336x4096": (256, 14336, 4096),
    "256x4096x14336": (256, 4096, 14336),
    "1024x4096x1024 tf32": (1024, 4096, 1024),
}
ATTENTION = {"attention of 1": 1, "attention of 8": 8}  # batches of 16 heads of 512 tokens
Row = dict[str, str]


def write(path: Path, found: Sequence[Row]) -> None:
    """Write a table."""
    write_text(path, to_csv(tuple(found[0]), found))


def counted(text: str) -> list[dict[str, float]]:
    """The counters of each kernel or range, from what Nsight Compute printed; the row of units is left out."""
    table = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    known = [row for row in table if row["ID"]]
    return [{name: float(row[name].replace(",", "")) for name in (READS, L1, DRAM)} for row in known]


def l2_share(counters: dict[str, float]) -> float:
    """Bytes that L2 serves over those that SMs get. Of a byte from DRAM L2 counts a half more, which is left out."""
    return (32.0 * counters[READS] - 0.5 * counters[DRAM]) / counters[L1]


# ---- recording ---------------------------------------------------------------------------------------------------


def record() -> None:
    """Record both tables."""
    with TemporaryDirectory() as scratch:
        built = Path(scratch)
        subprocess.run(["nvcc", "-O2", "-arch=sm_90a", "-o", built / "lockstep", HERE / "lockstep.cu"], check=True)
        subprocess.run([built / "lockstep", built / "timed.csv"], check=True)
        counts = ncu((built / "lockstep", built / "counted.csv", "counted"))
        timed = zip(lines(built / "timed.csv"), counts, strict=True)
        write(LOCKSTEP, [row | {"l2_share": f"{l2_share(one):.3f}"} for row, one in timed])
        library = built / "handover.so"
        options = ("-O2", "-arch=sm_90a", "-shared", "-Xcompiler", "-fPIC")
        subprocess.run(["nvcc", *options, "-o", library, HERE / "handover.cu"], check=True)
        here = (sys.executable, __file__, "cases", library, built / "cases.csv")
        counts = ncu(here, "--replay-mode", "app-range")
        cases = zip(lines(built / "cases.csv"), counts, strict=True)
        write(HANDOVER, [row | {"l2_share": f"{l2_share(one):.3f}"} for row, one in cases])


def ncu(command: Iterable[object], *options: str) -> list[dict[str, float]]:
    """The counters of what a command runs on the GPU."""
    profiled = [*PROFILE, ",".join((READS, L1, DRAM)), *options, *map(str, command)]
    return counted(subprocess.run(profiled, check=True, capture_output=True, text=True).stdout)


def kernels(torch: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each op, with a function that launches its kernel."""
    ops = torch.nn.functional
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, (m, k, n) in PRODUCTS.items():
        kind = torch.float32 if "tf32" in name else torch.bfloat16
        a, w = (torch.randn(*size, device="cuda").to(kind) for size in ((m, k), (n, k)))
        yield name, lambda a=a, w=w: ops.linear(a, w)
    for name, batch in ATTENTION.items():
        q, k, v = (torch.randn(batch, 16, 512, 64, device="cuda").to(torch.bfloat16) for _ in range(3))
        yield name, lambda q=q, k=k, v=v: ops.scaled_dot_product_attention(q, k, v)


def cases(library: str, out: str) -> None:
    """Run every op in every way, each as one range of the profiler, and write how long its blocks lived."""
    import torch

    ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    around, cuda = ctypes.CDLL(library), torch.cuda.cudart()
    around.green.restype = ctypes.c_void_p
    around.launch_leave.argtypes, around.launch_come.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_uint]
    torch.zeros(1, device="cuda")
    around.setup()
    before, timed, after = (torch.cuda.Stream() for _ in range(3))
    streams = {SMS: timed} | {sms: torch.cuda.ExternalStream(around.green(sms)) for sms in GREEN_SMS}
    found: list[Row] = []

    def ranged(launch: Callable[[], object]) -> None:
        torch.cuda.synchronize()
        cuda.cudaProfilerStart()
        launch()
        torch.cuda.synchronize()
        cuda.cudaProfilerStop()

    def note(op: str, sms: int, handed: int, late: int, late_ns: int, life_us: str) -> None:
        values = (op, sms, handed, late, late_ns, life_us)
        columns = ("op", "sms", "handed", "late_pairs", "late_ns", "life_us")
        found.append({column: str(value) for column, value in zip(columns, values, strict=True)})

    for op, launch in kernels(torch):
        for sms, stream in streams.items():
            with torch.cuda.stream(stream):
                launch()
                ranged(launch)
            note(op, sms, 0, 0, 0, "")
        for late, late_ns in STARTS:
            rank = random.Random(1).sample(range(PAIRS), PAIRS)
            wait = [late_ns * one // (PAIRS - 1) if late == PAIRS else late_ns * (one < late) for one in rank]
            around.set((ctypes.c_uint * SMS)(*(HELD_NS + wait[sm // 2] for sm in range(SMS))))
            launch()

            def handed(launch: Callable[[], object] = launch) -> None:
                around.launch_leave(before.cuda_stream)
                with torch.cuda.stream(timed):
                    launch()
                around.launch_come(after.cuda_stream, HOLD_NS)

            ranged(handed)
            left, came = (ctypes.c_ulonglong * SMS)(), (ctypes.c_ulonglong * SMS)()
            around.times(left, came)
            lives = [(end - start) / 1e3 for start, end in zip(left, came, strict=True)]
            note(op, SMS, 1, late, late_ns, f"{median(lives):.2f}")
    write(Path(out), found)


# ---- tables ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Print both tables."""
    print("tiles: TB/s that SMs get, and bytes that L2 serves over these, by the span of starts (ns)")
    print("loads  blocks that share  strided  " + "".join(f"{span:>14}" for span in (0, 300, 1000, 3000, 10000)))
    spans: dict[tuple[str, int, int], dict[str, str]] = {}
    for row in lines(LOCKSTEP):
        if row["work"] == "0" and row["loads"] != "multicast":
            case = row["loads"], int(row["sharing"]), int(row["strided"])
            told = f"{float(row['gb_per_s']) / 1e3:.1f} {float(row['l2_share']):.2f}"
            spans.setdefault(case, {})[row["span_ns"]] = told
    for (loads, sharing, strided), told in spans.items():
        values = "".join(f"{told[span]:>14}" for span in ("0", "300", "1000", "3000", "10000"))
        print(f"{loads:5}  {sharing:17}  {strided:7}  {values}")
    print("\nkernels: bytes that L2 serves over those that SMs get, and life of a block (us)")
    print(f"{'op':20}   idle  96 SMs  64 SMs  32 SMs  handed at once    one by one in 3 us")
    by_op: dict[str, dict[tuple[str, ...], Row]] = {}
    for row in lines(HANDOVER):
        by_op.setdefault(row["op"], {})[row["handed"], row["sms"], row["late_pairs"], row["late_ns"]] = row
    for op, of in by_op.items():
        idle = [of["0", str(sms), "0", "0"]["l2_share"] for sms in (SMS, *GREEN_SMS)]
        starts = [of["1", str(SMS), late, ns] for late, ns in (("0", "0"), (str(PAIRS), "3000"))]
        told = [f"{float(row['l2_share']):.2f} {float(row['life_us']):10.1f}" for row in starts]
        print(f"{op:20}" + "".join(f"   {float(share):.2f} " for share in idle) + f"  {told[0]}         {told[1]}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record"]:
            record()
        case ["cases", library, out]:
            cases(library, out)
        case _:
            main()
