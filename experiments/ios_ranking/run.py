"""Do streams rank as IOS's paper ranks them? `python experiments/ios_ranking/run.py [--ios FOLDER]`.

Ding et al. (MLSys'21) rank one stream, greedy stages and their own stages on four networks at batch 1 on a V100. This
replays recorded forward passes of GoogLeNet in the same three ways, in the trace's own streams, and as Nimble and Opara
would. It writes result.csv beside itself; the README says what came out and what cannot be ranked. With the folder of
the authors' schedules it prints what these hold.
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from gpusim.calibrate.cache import user_fits
from gpusim.calibrate.kernels import Kernels
from gpusim.choose.ios import load_schedule
from gpusim.choose.search import WAYS, in_streams
from gpusim.common.files import write_text
from gpusim.hardware.gpu import load_gpu
from gpusim.trace.file import load_trace

HERE = Path(__file__).resolve().parent
TRACES = ("googlenet_b1_forward", "googlenet_b16_forward", "googlenet_forward")


def ranking() -> list[dict[str, str]]:
    """A row a trace: its makespan (us) in streams made in each way."""
    gpu, rows = load_gpu("h200"), []
    for name in TRACES:
        trace = load_trace(HERE.parent.parent / "traces" / f"{name}.json.gz")
        kernels = Kernels(gpu, gpu, fits=user_fits())
        found = {way: in_streams(trace, gpu, way, kernels=kernels).makespan_us for way in WAYS}
        rows.append({"trace": name, **{f"{way}_us": f"{us:.1f}" for way, us in found.items()}})
        print(rows[-1], flush=True)
    return rows


def published(folder: Path) -> None:
    """Prints what the authors' schedules hold."""
    for path in sorted(folder.glob("*.json.gz")):
        schedule = load_schedule(path)
        counts = len(schedule.operators), len(schedule.stages), max(map(len, schedule.stages))
        print("{}: {} operators, {} stages, {} groups at most".format(path.name, *counts))


def main() -> int:
    """Writes result.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ios", type=Path, help="folder with the schedules of the authors' repository")
    args = parser.parse_args()
    if args.ios is not None:
        published(args.ios)
        return 0
    rows = ranking()
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(HERE / "result.csv", text.getvalue())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
