"""What an SM reads where few SMs work: `python experiments/h100_microbench/ahead.py` prints it, measured and predicted.

ahead.cu wrote ahead.csv: reads of one SM by how it asks, by the bytes that it has under way, and by the number of
SMs. Its kernels of several waves (`waves`) load tiles ahead of their use. decode.py wrote decode.csv: attention of a
decode step on parts of the SMs. ahead_counters.csv has counters of both, and of products, on all SMs and on 20 of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import fsum
from pathlib import Path
from statistics import fmean

from experiments.rows import lines
from gpusim.io.ncu import STALL_COUNTER, launch_from_counters
from gpusim.lab.validate import Confined
from gpusim.session import Session
from gpusim.trace.format import Stream, Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel

HERE = Path(__file__).resolve().parent
SMS = (8, 16, 24, 32, 48, 64, 96, 132)
ALL, FEW = 132, 20
REASONS = ("long_scoreboard", "barrier", "short_scoreboard", "wait", "selected")


def reads() -> Iterator[str]:
    """GB/s of one SM, from DRAM, by the number of SMs."""
    yield "GB/s of an SM from DRAM       KB under way" + "".join(f"{sms:7}" for sms in SMS)
    found: dict[tuple[str, int, int], dict[int, str]] = {}
    for row in lines(HERE / "ahead.csv"):
        if row["data"] == "dram" and row["work"] == "0" and row["side"] != "rest":
            case = row["kind"], int(row["blocks_per_sm"]), int(row["under_way_kb"])
            found.setdefault(case, {})[int(row["sms"])] = row["gb_per_s_sm"]
    for (kind, blocks, kilobytes), rates in sorted(found.items()):
        under_way = blocks * kilobytes
        yield f"{kind:22} x {blocks:2} {under_way:14}" + "".join(f"{float(rates[sms]):7.1f}" for sms in SMS)


def counted(sms: int) -> dict[tuple[str, str], Mapping[str, str]]:
    """Counters of kernels on so many SMs, by kind and work."""
    rows = lines(HERE / "ahead_counters.csv")
    return {(row["kind"], row["work"]): row for row in rows if row["sms"] == str(sms)}


def waits() -> Iterator[str]:
    """Bytes that an SM takes in, and cycles of an instruction by stall reason, on all SMs and on few."""
    yield f"{'cycles per instruction':28} work  SMs  bytes/cycle    all " + " ".join(
        f"{reason:>16}" for reason in REASONS
    )
    few = counted(FEW)
    for (kind, work), row in counted(ALL).items():
        for sms, one in ((ALL, row), (FEW, few[kind, work])):
            cycles = {name: float(one[STALL_COUNTER.format(name)]) for name in REASONS}
            every = fsum(float(value) for name, value in one.items() if name.startswith(STALL_COUNTER.split("{")[0]))
            read = float(one["l1tex__m_xbar2l1tex_read_bytes.sum"]) / sms / float(one["sm__cycles_active.avg"])
            yield f"{kind:28} {work:>4} {sms:4} {read:12.1f} {every:6.1f} " + " ".join(
                f"{cycles[name]:16.2f}" for name in REASONS
            )


def measured() -> dict[tuple[str, str], dict[int, float]]:
    """Time in µs of each kernel of several waves, and of each call of decode.csv, by the number of SMs."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in lines(HERE / "ahead.csv"):
        if row["kind"].startswith("waves") and row["side"] != "rest":
            found.setdefault((row["kind"], row["work"]), {})[int(row["sms"])] = float(row["us"])
    for row in lines(HERE / "decode.csv"):
        if row["side"] != "rest":
            found.setdefault((row["op"], "0"), {})[int(row["sms"])] = float(row["us"])
    return found


def _trace(launch: KernelLaunch) -> Trace:
    operation = Kernel(id="x", kernel=launch)
    return Trace(name="ahead", device="h100-sxm", streams=(Stream(name="main", operations=(operation,)),))


def errors() -> Iterator[str]:
    """Error of the predicted time on parts of the SMs, of a kernel that is known from its time on all of them."""
    session, times = Session("h100-sxm"), measured()
    yield f"{'error of the time, %':28} work" + "".join(f"{sms:6}" for sms in SMS[:-1])
    every: dict[str, list[float]] = {}
    for (kind, work), row in counted(ALL).items():
        if (kind, work) not in times:
            continue
        of = times[kind, work]
        launch = launch_from_counters(row, ALL, "main").model_copy(update={"duration_us": of[ALL]})
        found = []
        for sms in SMS[:-1]:
            predicted = session.replay(_trace(launch), Confined((sms,))).makespan_us
            found.append(100.0 * (predicted / of[sms] - 1.0))
        every.setdefault(kind.split()[0], []).extend(found)
        yield f"{kind:28} {work:>4}" + "".join(f"{one:+6.0f}" for one in found)
    for kind, of_kind in every.items():
        yield f"mean absolute error, {kind}: {fmean(map(abs, of_kind)):.1f} %"


def main() -> None:
    """Print the tables."""
    for table in (reads(), waits(), errors()):
        print("\n".join(table), end="\n\n")


if __name__ == "__main__":
    main()
