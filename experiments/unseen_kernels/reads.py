"""What reads wait beside the calls of ops_bf16.py, measured and as the model has it.

`python experiments/unseen_kernels/reads.py` prints it.
`record_reads.py` wrote `reads_beside.csv` on an H200: cycles of reads that 32 SMs made one after another, of 64 KiB
that L2 holds or of 1 GiB, while a call ran again and again on the other 100 SMs.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum
from pathlib import Path

import gpusim
from experiments.markdown import table
from experiments.rows import lines
from gpusim.lab.dataset import Recordings
from gpusim.model.memory import HIT_QUEUE, MISS_LATENCY, STREAM_QUEUE, dram_queue
from gpusim.trace.format import Trace
from gpusim.trace.operations import Kernel, Stream

HERE = Path(__file__).resolve().parent
GPU, RECORDED = "h200", HERE / "h200"
TITLES = ("call on the other SMs", "DRAM busy", "L2 busy", "a read of DRAM", "model", "a read of L2", "model")


def repeated(call: str, recordings: Recordings, times: int) -> Trace:
    """A call so many times, its kernels one after the other."""
    launches = [launch.model_copy(update={"stream": "main"}) for launch in recordings.op(call).kernels] * times
    operations = tuple(Kernel(id=str(at), kernel=launch) for at, launch in enumerate(launches))
    return Trace(name=call, device=recordings.gpu.name, streams=(Stream(name="calls", operations=operations),))


def rows() -> Iterator[tuple[str, ...]]:
    """Calls by how much longer reads of DRAM take beside them: its loads, and the times of reads over those alone."""
    gpu = gpusim.load_gpu(GPU)
    session, recordings = gpusim.Session(gpu), Recordings(RECORDED, gpu)
    alone, *beside = lines(HERE / "reads_beside.csv")

    def longer(row: dict[str, str], level: str) -> float:
        return float(row[f"{level}_cycles"]) / float(alone[f"{level}_cycles"])

    for row in sorted(beside, key=lambda row: -longer(row, "dram")):
        trace = repeated(row["call"], recordings, 1)
        kernels = session.kernels(trace)
        models = [kernels.model(launch, op.id) for op in trace.operations() for launch in op.launches()]
        us, sms = float(row["call_us"]), int(row["sms"])
        dram = fsum(one.dram_share_us * one.blocks for one in models) / us
        l2 = fsum(one.l2_share_us * one.blocks for one in models) / us
        longest = max(models, key=lambda one: one.solo_us)
        residents = min(longest.blocks, longest.blocks_per_sm * sms)
        queue = dram_queue(dram, longest.wait.under_way * residents * min(1.0, longest.own_load.dram))
        yield (
            f"`{row['call']}`",
            f"{dram:.2f}",
            f"{l2:.2f}",
            f"{longer(row, 'dram'):.2f}",
            f"{1.0 + STREAM_QUEUE * dram * dram + queue:.2f}",
            f"{longer(row, 'l2'):.2f}",
            f"{1.0 + HIT_QUEUE * l2 + MISS_LATENCY * queue:.2f}",
        )


if __name__ == "__main__":
    print(table(TITLES, list(rows())))
