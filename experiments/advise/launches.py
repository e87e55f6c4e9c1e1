"""What launches of another program cost a program: `python experiments/advise/launches.py` prints it.

Programs ran beside kernels of one block that only spin, in streams and on SMs of their own (recording/beside_spins.py).
Such kernels use neither memory nor SMs that the program needs. The less often they are launched, the less the program
slows down, so it is their launches that cost it something.

Two programs also took turns kernel by kernel in one CUDA graph of one stream, so that no two kernels ran at once
(recording/interleaved.py). In turns a kernel finds code and data of the other program in the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import ceil, fsum
from statistics import fmean

import numpy as np

import gpusim
from experiments.advise.run import HERE, PROGRAMS, repeated, session_of
from experiments.rows import lines
from gpusim.common.tables import grouped
from gpusim.model.memory import CODE_LATENCY, LOST_TO_LAUNCH
from gpusim.results.result import Result
from gpusim.trace.edit import merge
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls
from gpusim.trace.operations import Kernel, Stream
from gpusim.trace.programs import Program

GPU = "h200"
PASSES = 2  # of the whole order: the first one is warm-up
SPLIT = "inter-sm:sms=104+28"
MARGIN = 1.3  # so much longer than measured the spinning kernels go on in a replay
STAYS_US = 1000.0  # that a block stays
NAMED = 20  # characters of a kernel's name, which the recording cuts
STARTED_US = 0.7  # of the duration that a profile would give a kernel that spins, beyond its spinning


@cache
def program(name: str) -> Trace:
    """A program of advise on the H200."""
    return gpusim.load_trace(PROGRAMS / f"{GPU}_{name}.json.gz")


# ---- beside kernels that spin


def spinning(spin_us: float, count: int) -> Trace:
    """A program of kernels of one warp that only spins."""
    cycles = 1980.0 * spin_us
    mix = Mix(
        issue_cycles=20.0, alu_cycles=5.0, fma_cycles=1.0, tensor_cycles=0.0, lsu_cycles=1.0, l1_cycles=1.0,
        active_cycles_min=0.0, active_cycles_avg=cycles / 132, active_cycles_max=cycles, achieved_warps_per_sm=1.0,
        warp_instructions=60.0, dram_read_bytes=0.0, dram_write_bytes=0.0, l1_read_bytes=0.0, l1_write_bytes=0.0,
        l2_read_bytes=0.0, l2_write_bytes=0.0, l2_bytes=0.0,
        stalls=WarpStalls(wait=2.0, selected=1.0, no_instruction=0.0, imc_miss=0.0),
    )  # fmt: skip
    duration_us = spin_us + STARTED_US
    launch = KernelLaunch(
        name="spin", grid=(1, 1, 1), block=(32, 1, 1), registers_per_thread=16, duration_us=duration_us, mix=mix
    )
    operations = tuple(Kernel(id=f"spin{n}", kernel=launch) for n in range(count))
    stream = Stream(name="spin", operations=operations)
    return Trace(
        version=2, name="spin", device=GPU, streams=(stream,), programs=(Program(name="spin", streams=("spin",)),)
    )


def beside_spins() -> Iterator[str]:
    """Each program beside kernels of one block: how much longer a pass takes, and what each of their launches costs."""
    yield f"{'sharing':<10}{'program':<15}{'spins, us':>10}{'longer':>9}{'predicted':>11}{'us per launch beside':>22}"
    session = session_of(GPU)
    for row in lines(HERE / "recording" / "beside_spins.csv"):
        spin_us, alone_us, us = int(row["spin_ns"]) / 1e3, float(row["alone_us"]), float(row["beside_us"])
        if row["blocks"] != "1":
            continue
        count = ceil(MARGIN * us / spin_us) + 1
        policy = SPLIT if row["sharing"] == "SM split" else "leftover"
        one = program(row["program"])
        apart = merge([one, spinning(spin_us, 1)], ["a", "b"], "apart")
        both = merge([one, spinning(spin_us, count)], ["a", "b"], "both")
        after, beside = (session.replay(trace, policy, keep=()).program_runs[0].end_us for trace in (apart, both))
        cost = (us - alone_us) / (us / float(row["period_us"]))
        longer = f"{100 * (us / alone_us - 1):+8.1f}%{100 * (beside / after - 1):+10.1f}%"
        yield f"{row['sharing']:<10}{row['program']:<15}{spin_us:>10g}{longer}{cost:22.2f}"


def code_us(name: str) -> list[float]:
    """How much longer the kernels of a program wait for code after a launch of another program, predicted, us."""
    trace = program(name)
    kernels = session_of(GPU).kernels(trace)
    models = [kernels.model(launch, op.id) for op in trace.operations() for launch in op.launches()]
    return [LOST_TO_LAUNCH * (CODE_LATENCY - 1.0) * model.wait.code * model.solo_us for model in models]


def by_kernel() -> Iterator[str]:
    """How much longer kernels take beside kernels that spin for 2 us: quartiles of a program's kernels, us."""
    title = f"{'kernels of':<15}{'kernels':>8}{'least':>8}{'lower':>8}{'median':>8}{'upper':>8}{'most':>8}"
    yield f"{title}{'mean':>8}{'of code, predicted':>20}"
    rows = lines(HERE / "recording" / "kernels_beside_spins.csv")
    for name, of in grouped(rows, lambda row: row["program"]).items():
        longer = [
            float(row["beside_us"]) + float(row["beside_gap_us"]) - float(row["alone_us"]) - float(row["alone_gap_us"])
            for row in of
        ]
        quartiles = "".join(f"{us:8.2f}" for us in np.percentile(longer, (0, 25, 50, 75, 100)))
        yield f"{name:<15}{len(of):>8}{quartiles}{fmean(longer):8.2f}{fmean(code_us(name)):20.2f}"


# ---- beside a block that stays


def beside_a_block() -> Iterator[str]:
    """Each program in a stream beside a block that stays for 1 ms: how much longer its kernels take, by kind, us."""
    yield f"{'kernels beside a block':<24}{'kind':<22}{'kernels':>8}{'alone, us':>11}{'longer':>9}{'predicted':>11}"
    session = session_of(GPU)
    rows = lines(HERE / "recording" / "kernels_beside_a_block.csv")
    for name, of in grouped(rows, lambda row: row["program"]).items():
        one = program(name)
        count = ceil(PASSES * session.makespan_us(one, "leftover") / STAYS_US) + 1
        both = merge([one, spinning(STAYS_US, count)], ["a", "b"], "both")
        alone, beside = (_kernels_us(session.replay(trace, "leftover", keep=())) for trace in (one, both))
        kernels = session.kernels(one)
        measured = _in_order(of, [(op.id, launch) for op in one.operations() for launch in op.launches()])
        clustered = {id for id, launch, _ in measured if kernels.model(launch, id).cluster_blocks > 1}
        for kind, wanted in (("of clusters", True), ("others", False)):
            its = [one for one in measured if (one[0] in clustered) == wanted]
            us = [(float(row["alone_us"]), float(row["beside_us"])) for _, _, row in its]
            longer = fsum(beside[id] - alone[id] for id, _, _ in its)
            sums = f"{fsum(a for a, _ in us):11.0f}{fsum(b - a for a, b in us):+9.1f}{longer:+11.1f}"
            yield f"{name:<24}{kind:<22}{len(its):>8}{sums}"


def _kernels_us(result: Result) -> dict[str, float]:
    """Time of each kernel, by the id that it has in its own program."""
    runs = (run for run in result.kernel_runs if run.kernel != "spin")
    return {run.operation.removeprefix("a/"): run.end_us - run.start_us for run in runs}


def _in_order(
    rows: Iterable[dict[str, str]], launches: Sequence[tuple[str, KernelLaunch]]
) -> list[tuple[str, KernelLaunch, dict[str, str]]]:
    """The kernels of a program with their rows, which also have its memory sets."""
    coming, found = iter(rows), []
    for id, launch in launches:
        row = next(row for row in coming if row["kernel"][:NAMED] == launch.name[:NAMED])
        found.append((id, launch, row))
    return found


# ---- kernel by kernel in turns


def in_turns(trace: Trace, order: str) -> Trace:
    """A trace of the programs a and b whose kernels run one at a time, in the order of a text of a's and b's."""
    kernels = {
        stream.name[0]: iter([one.id for one in stream.operations if one.kind == "kernel"]) for stream in trace.streams
    }
    waits = {one: before for before, one in pairwise([next(kernels[name]) for name in order])}
    streams = (
        stream.model_copy(
            update={
                "operations": tuple(
                    one.model_copy(update={"depends_on": (*one.depends_on, waits[one.id])}) if one.id in waits else one
                    for one in stream.operations
                )
            }
        )
        for stream in trace.streams
    )
    return trace.model_copy(update={"streams": tuple(streams)})


def predicted_us(row: dict[str, str]) -> tuple[float, float]:
    """Time of the passes one after the other, and kernel by kernel in turns."""
    session = session_of(GPU)
    programs = [(program(row[of]), int(row[f"passes_{of}"])) for of in "ab"]
    apart_us = fsum(passes * session.makespan_us(one, "leftover") for one, passes in programs)
    both = merge([repeated(one, PASSES * passes) for one, passes in programs], ["a", "b"], "in turns")
    runs = session.replay(in_turns(both, PASSES * row["order"]), "serial", keep=()).kernel_runs
    ends = sorted(run.end_us for run in runs)
    return apart_us, ends[-1] - ends[-1 - len(row["order"])]


def turns() -> Iterator[str]:
    """Each pair: how much longer its kernels take in turns, measured and predicted."""
    yield f"{'kernel by kernel':<36}{'kernels':>8}{'apart, us':>11}{'in turns':>10}{'longer':>9}{'predicted':>11}"
    for row in lines(HERE / "recording" / "interleaved.csv"):
        apart_us, turns_us = float(row["one_after_other_us"]), float(row["interleaved_us"])
        predicted = predicted_us(row)
        who = f"{row['passes_a']} x {row['a']} + {row['passes_b']} x {row['b']}"
        longer = f"{100 * (turns_us / apart_us - 1):+8.1f}%{100 * (predicted[1] / predicted[0] - 1):+10.1f}%"
        yield f"{who:<36}{len(row['order']):>8}{apart_us:11.0f}{turns_us:10.0f}{longer}"


if __name__ == "__main__":
    print("\n".join((*beside_spins(), "", *by_kernel(), "", *beside_a_block(), "", *turns())))
