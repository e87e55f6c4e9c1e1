"""Do streams rank as IOS's paper ranks them? `python experiments/ios_ranking/run.py`.

Ding et al. (MLSys'21) rank one stream, greedy stages and their own stages on four networks at batch 1 on a V100. This
replays recorded forward passes of GoogLeNet in the same three ways, in the trace's own streams, and as Nimble and Opara
would. It writes result.csv and README.md beside itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.markdown import table
from experiments.study import TRACES, Run, Study
from gpusim.choose.search import in_streams
from gpusim.hardware.gpu import load_gpu
from gpusim.session import Session
from gpusim.trace.file import load_trace

NAMES = {
    "googlenet_b1_forward": "GoogLeNet, batch 1, all layers",
    "googlenet_b16_forward": "GoogLeNet, batch 16, all layers",
    "googlenet_forward": "GoogLeNet, batch 128, convolutions only",
}
WAYS = ("sequential", "branches", "nimble", "opara", "greedy", "ios")  # as the columns of the table
TITLES = {
    "sequential": "sequential",
    "greedy": "greedy",
    "ios": "IOS",
    "branches": "own branches",
    "nimble": "Nimble",
    "opara": "Opara",
}
MODEL_ERROR = 0.05  # relative, of such streams, about (docs/model.md)


@dataclass(frozen=True)
class Ranked:
    """A trace's makespan (us) in streams made in each way."""

    trace: str
    sequential_us: float
    branches_us: float
    nimble_us: float
    opara_us: float
    greedy_us: float
    ios_us: float

    def us(self, way: str) -> float:
        """The makespan in streams made in one way."""
        return float(getattr(self, f"{way}_us"))


def rows(run: Run) -> dict[str, list[Ranked]]:
    """Every trace in streams made in each way."""
    gpu, found = load_gpu("h200"), []
    for name in NAMES:
        trace = load_trace(TRACES / f"{name}.json.gz")
        session = Session(gpu, cache=True)
        found.append(Ranked(name, *(round(in_streams(trace, session, way).expected_us, 1) for way in WAYS)))
        print(found[-1], flush=True)
    return {"result.csv": found}


def page(found: Sequence[Ranked]) -> dict[str, object]:
    """What the page says."""
    cells = [[NAMES[row.trace], *(f"{row.us(way):,.0f}" for way in TITLES)] for row in found]
    ordered = all(row.us("sequential") > row.us("greedy") > row.us("ios") for row in found)
    furthest = max(abs(row.us("branches") / row.us("ios") - 1.0) for row in found)
    return {
        "replayed": table(["µs, replayed", *TITLES.values()], cells),
        "order": "comes" if ordered else "does not come",
        "greedy": each(found, "sequential", "greedy"),
        "ios": each(found, "sequential", "ios"),
        "branches": each(found, "branches", "ios"),
        "doubt": "Such differences are below the error of the model (docs/model.md): they are ties."
        if furthest < MODEL_ERROR
        else "Some of these differences exceed the error of the model (docs/model.md).",
    }


def each(found: Sequence[Ranked], slow: str, fast: str) -> str:
    """How many times as fast one way is as another, batch by batch."""
    return ", ".join(f"{row.us(slow) / row.us(fast):.2f}" for row in found)


STUDY = Study(__file__, __doc__, {"result.csv": Ranked}, rows, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
