"""Do streams rank as IOS's paper ranks them? `python experiments/ios_ranking/run.py [--ios FOLDER]`.

Ding et al. (MLSys'21) rank one stream, greedy stages and their own stages on four networks at batch 1 on a V100. This
replays recorded forward passes of GoogLeNet in the same three ways, in the trace's own streams, and as Nimble and Opara
would. It writes result.csv and what README.md says of it beside itself. With the folder of the authors' schedules it
prints what these hold.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping
from pathlib import Path

from gpusim.choose.ios import load_schedule
from gpusim.choose.search import WAYS, in_streams
from gpusim.common.files import write_text
from gpusim.common.markdown import bullet, filled, table
from gpusim.hardware.gpu import load_gpu
from gpusim.session import Session
from gpusim.trace.file import load_trace

HERE = Path(__file__).resolve().parent
TRACES = {
    "googlenet_b1_forward": "GoogLeNet, batch 1, all layers",
    "googlenet_b16_forward": "GoogLeNet, batch 16, all layers",
    "googlenet_forward": "GoogLeNet, batch 128, convolutions only",
}
TITLES = {
    "sequential": "sequential",
    "greedy": "greedy",
    "ios": "IOS",
    "branches": "own branches",
    "nimble": "Nimble",
    "opara": "Opara",
}
MODEL_ERROR = 0.05  # relative, of such streams, about (docs/model.md)
Times = Mapping[str, Mapping[str, float]]  # us, by trace and way


def ranking() -> list[dict[str, str]]:
    """A row a trace: its makespan (us) in streams made in each way."""
    gpu, rows = load_gpu("h200"), []
    for name in TRACES:
        trace = load_trace(HERE.parent.parent / "traces" / f"{name}.json.gz")
        session = Session(gpu, cache=True)
        found = {way: in_streams(trace, session, way).makespan_us for way in WAYS}
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
    """Writes result.csv and the page."""
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
    write_page(HERE)
    return 0


def write_page(folder: Path) -> None:
    """README.md with the table and what it shows, from result.csv in a folder."""
    with (folder / "result.csv").open(encoding="utf-8", newline="") as file:
        found = {row["trace"]: {way: float(row[f"{way}_us"]) for way in TITLES} for row in csv.DictReader(file)}
    blocks = {"replayed": replayed(found), "shown": shown(found)}
    write_text(folder / "README.md", filled((HERE / "README.md").read_text(encoding="utf-8"), blocks))


def replayed(found: Times) -> str:
    """The table."""
    rows = [[TRACES[trace], *(f"{times[way]:,.0f}" for way in TITLES)] for trace, times in found.items()]
    return table(["us, replayed", *TITLES.values()], rows)


def shown(found: Times) -> str:
    """The paper's order, and IOS's stages against a stream for each branch."""
    ordered = all(times["sequential"] > times["greedy"] > times["ios"] for times in found.values())
    gains = each(found, "sequential", "greedy"), each(found, "sequential", "ios")
    furthest = max(abs(times["branches"] / times["ios"] - 1.0) for times in found.values())
    doubt = (
        "Such differences are below the error of the model (docs/model.md): they are ties."
        if furthest < MODEL_ERROR
        else "Some of these differences exceed the error of the model (docs/model.md)."
    )
    return "\n".join(
        (
            bullet(
                f"The order of the paper, sequential, greedy, IOS, {'comes' if ordered else 'does not come'} out at "
                f"every batch size. Greedy stages are {gains[0]} times as fast as one stream, IOS's {gains[1]} times."
            ),
            bullet(
                f"IOS's stages are {each(found, 'branches', 'ios')} times as fast as a stream for each branch. A stage "
                f"ends with its longest group, while streams run on. {doubt}"
            ),
        )
    )


def each(found: Times, slow: str, fast: str) -> str:
    """How many times as fast one way is as another, batch by batch."""
    return ", ".join(f"{times[slow] / times[fast]:.2f}" for times in found.values())


if __name__ == "__main__":
    raise SystemExit(main())
