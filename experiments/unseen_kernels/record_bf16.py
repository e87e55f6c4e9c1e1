"""Record ops_bf16.py on this machine's GPU: `python experiments/unseen_kernels/record_bf16.py DIR`.

What `gpusim record ops_bf16.py --outcomes --out DIR` records, and `priorities.csv`: every pair of `pairs.csv` in two
streams, one of which has a higher priority. Its columns are those of `pairs.csv`. A mode says which call is urgent and
which was launched first.
"""

import sys
from pathlib import Path

from experiments.rows import lines
from gpusim.common.files import write_text
from gpusim.common.spreadsheet import records
from gpusim.lab.record.ops import record_ops
from gpusim.lab.record.ops_file import made, read_ops
from gpusim.lab.record.ops_gpu import PAIR_COLUMNS, pair_row, together_ms
from gpusim.lab.record.torch_gpu import Gpu, Queue, Side

HERE = Path(__file__).resolve().parent
OPS, PAIRS = HERE / "ops_bf16.py", "pairs.csv"
REPEATS = 9


def main(folder: Path) -> None:
    """Record everything. Priorities follow the pairs, before Nsight Compute, which changes times for a while."""
    gpu = Gpu()
    for line in record_ops(OPS, folder, True, lambda: gpu):
        print(line, flush=True)
        if line.startswith(str(folder / PAIRS)):
            write_priorities(gpu, folder)


def write_priorities(gpu: Gpu, folder: Path) -> None:
    """Write priorities.csv for the pairs of pairs.csv."""
    import torch

    usual = gpu.queue()
    stream = torch.cuda.Stream(priority=-1)
    urgent = Queue(stream, stream.cuda_stream, gpu.sm_count)
    ops, rows = read_ops(OPS), []
    calls = {name: made(ops, "OPS", name) for name in ops.ops}
    pairs = [row for row in lines(folder / PAIRS) if row["mode"] == "streams"]
    for row in pairs:
        pair = row["a"], row["b"]
        work = [[calls[name]] * int(row[count]) for name, count in zip(pair, ("na", "nb"), strict=True)]
        for at, name in enumerate(("a", "b")):
            queues = (urgent, usual) if at == 0 else (usual, urgent)
            sides: list[Side] = list(zip(work, queues, strict=True))
            rows.append(pair_row(pair, f"{name}_urgent", sides, together_ms(gpu, sides, REPEATS)))
            ends = together_ms(gpu, sides[::-1], REPEATS)[::-1]
            rows.append(pair_row(pair, f"{name}_urgent_b_first", sides, ends))
    write_text(folder / "priorities.csv", records(PAIR_COLUMNS, rows))
    print(f"{folder / 'priorities.csv'}: {len(rows)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
