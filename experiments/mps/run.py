"""Which SMs do processes under MPS get, and which kernels do they run there? `python experiments/mps/run.py`.

`rates.csv` has the rate of kernels that FMAs bind, in one to four processes with percentages of an H200. `calls.csv`
has the time of PyTorch calls under a percentage, and in a green context of about as many SMs. `programs/` has passes of
whole programs, recorded under percentages; experiments/advise measured them in processes. It writes README.md and the
tables result*.csv beside itself (or to --out DIR).

    python experiments/mps/record.py DIR   # measures: needs an NVIDIA GPU of one's own, MPS, PyTorch and nvcc
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.advise import run as advise
from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Run, Study
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import load_gpu
from gpusim.policies.limits import Mps
from gpusim.trace.edit import merge

HERE = Path(__file__).resolve().parent
GPU, MPS, GREEN, WHOLE = "h200", "MPS", "green context", "100"
LEAST_PERCENT = 7  # below which processes get more than their percentage
GEMM = "gemm/2048x2048x2048"  # a call with different kernels


@dataclass(frozen=True, slots=True)
class Rate:
    """A process beside others.

    Attributes:
        percents: of all processes, joined by +.
        percent: of this one.
        sms: that the policy `mps` gives it; those that it shares count in equal parts.
        measured_sms: that its rate stands for, over that of a process that is alone on the whole GPU.
    """

    percents: str
    percent: int
    sms: float
    measured_sms: float


def rates() -> Iterator[Rate]:
    """Every row of rates.csv."""
    gpu, rows = load_gpu(GPU), lines(HERE / "rates.csv")
    (whole,) = (float(row["kernels_per_s"]) for row in rows if row["percents"] == WHOLE)
    for percents, mine in grouped(rows, lambda row: row["percents"]).items():
        parts = Mps(percent=percents).parts(gpu, [str(i) for i in range(len(mine))])
        held = Counter(sm for part in parts for sm in part)
        for part, row in zip(parts, mine, strict=True):
            sms = fsum(1.0 / held[sm] for sm in part)
            yield Rate(percents, int(row["percent"]), sms, gpu.sm_count * float(row["kernels_per_s"]) / whole)


@dataclass(frozen=True, slots=True)
class Called:
    """A call in a process under MPS and in a green context of as many SMs.

    Attributes:
        call: its name.
        sms: that CUDA tells the process.
        mps_us: its time there.
        green_us: its time in the green context.
    """

    call: str
    sms: int
    mps_us: float
    green_us: float


def calls() -> Iterator[Called]:
    """Every call at every number of SMs that both have."""
    known = {(row["context"], row["call"], int(row["sms"])): float(row["us"]) for row in lines(HERE / "calls.csv")}
    for (context, call, sms), us in known.items():
        if context == MPS and (GREEN, call, sms) in known:
            yield Called(call, sms, us, known[GREEN, call, sms])


@dataclass(frozen=True, slots=True)
class Ran:
    """Programs in processes with percentages, predicted from two recordings.

    Attributes:
        programs: with their passes; one is alone.
        percents: of the processes.
        measured_us: makespan, host time included.
        whole_us: predicted from recordings on the whole GPU.
        own_us: predicted from recordings under these percentages.
    """

    programs: str
    percents: str
    measured_us: float
    whole_us: float
    own_us: float

    @property
    def whole_percent(self) -> float:
        """Error of the prediction from the whole GPU."""
        return 100.0 * (self.whole_us / self.measured_us - 1.0)

    @property
    def own_percent(self) -> float:
        """Error of the prediction from the percentages."""
        return 100.0 * (self.own_us / self.measured_us - 1.0)


def programs() -> Iterator[Ran]:
    """Every program and pair of advise's measurements that was recorded under the percentages, too."""
    for pair, found in advise.measured().items():
        for one in found:
            percents = one.setting.removeprefix("MPS ").removesuffix(" %").split("+")
            if pair.gpu != GPU or not all(map(Path.is_file, map(_own, (pair.a, pair.b), percents))):
                continue
            parts = [(pair.a, pair.passes_a, percents[0]), (pair.b, pair.passes_b, percents[1])]
            if one.mechanism == "MPS":
                yield _ran(parts, one.makespan_us)
            elif one.mechanism == "isolated process":
                for part, us in zip(parts, (one.a_us, one.b_us), strict=True):
                    yield _ran([part], us)


def _own(name: str, percent: str) -> Path:
    return HERE / "programs" / f"{name}_{percent}.json.gz"


def _ran(parts: Sequence[tuple[str, int, str]], measured_us: float) -> Ran:
    percents = "+".join(percent for _, _, percent in parts)
    whole = [advise.PROGRAMS / f"{GPU}_{name}.json.gz" for name, _, _ in parts]
    own = [_own(name, percent) for name, _, percent in parts]
    predicted = []
    for paths in (whole, own):
        traces = [
            advise.repeated(gpusim.load_trace(path), passes) for path, (_, passes, _) in zip(paths, parts, strict=True)
        ]
        trace = merge(traces, [name for name, _, _ in parts])
        predicted.append(_session().makespan_us(trace, f"mps:by=program,percent={percents}"))
    return Ran(" + ".join(f"{passes} {name}" for name, passes, _ in parts), percents, measured_us, *predicted)


@cache
def _session() -> gpusim.Session:
    return gpusim.Session(GPU)


def page(found: Sequence[Rate], called: Sequence[Called], ran: Sequence[Ran]) -> dict[str, object]:
    """What the page says."""
    isolated, together = [[row for row in ran if ("+" in row.percents) == several] for several in (False, True)]
    alone = [row for row in found if "+" not in row.percents]
    apart = [row for row in found if "+" in row.percents and _sum(row) <= 100]
    over = [row for row in found if _sum(row) > 100]
    ratios = {(row.call, row.sms): row.mps_us / row.green_us for row in called}
    same = [abs(ratio - 1.0) for (call, _), ratio in ratios.items() if not call.startswith("gemm")]
    gemms = [ratio for (call, _), ratio in ratios.items() if call == GEMM]
    return {
        "alone": f"{100 * fmean(_off(row) for row in alone if row.percent >= LEAST_PERCENT):.1f}",
        "apart": f"{100 * fmean(map(_off, apart)):.1f}",
        "over": f"{100 * fmean(map(_off, over)):.1f}",
        "least": ", ".join(
            f"{row.measured_sms:.1f} for {row.percent} %" for row in alone if row.percent < LEAST_PERCENT
        ),
        "same": f"{100 * fmean(same):.1f}",
        "gemm_least": f"{min(gemms):.2f}",
        "gemm_most": f"{max(gemms):.2f}",
        "rates": table(
            ("percentages", "policy `mps`: SMs", "measured"),
            [
                (
                    percents,
                    *(" + ".join(f"{getattr(row, name):.1f}" for row in mine) for name in ("sms", "measured_sms")),
                )
                for percents, mine in grouped(found, lambda row: row.percents).items()
            ],
        ),
        **{
            f"{name}_{source}": f"{fmean(abs(getattr(row, f'{source}_percent')) for row in of):.1f}"
            for name, of in (("isolated", isolated), ("together", together))
            for source in ("whole", "own")
        },
        "isolated_bias": f"{fmean(row.own_percent for row in isolated):+.1f}",
        "short": sum(row.own_percent < 0.0 for row in together),
        "pairs": len(together),
        "programs": table(
            ("programs", "percentages", "measured µs", "from the whole GPU", "from the percentages"),
            [
                (
                    row.programs,
                    row.percents,
                    f"{row.measured_us:,.0f}",
                    f"{row.whole_percent:+.1f} %",
                    f"{row.own_percent:+.1f} %",
                )
                for row in ran
            ],
        ),
        "calls": table(
            ("call", *(f"{sms} SMs" for sms in dict.fromkeys(row.sms for row in called))),
            [
                (f"`{call}`", *(f"{row.mps_us:.1f} ({row.green_us:.1f})" for row in mine))
                for call, mine in grouped(called, lambda row: row.call).items()
            ],
        ),
    }


def _sum(row: Rate) -> int:
    return sum(map(int, row.percents.split("+")))


def _off(row: Rate) -> float:
    return abs(row.sms / row.measured_sms - 1.0)


def rows(_: Run) -> Mapping[str, Iterable[object]]:
    """All tables."""
    return {"result.csv": list(rates()), "result_calls.csv": list(calls()), "result_programs.csv": list(programs())}


TABLES = {"result.csv": Rate, "result_calls.csv": Called, "result_programs.csv": Ran}
STUDY = Study(__file__, __doc__, TABLES, rows, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
