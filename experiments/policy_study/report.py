"""The table, the picture and the text of the study; every number in them is from its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum
from pathlib import Path
from random import Random
from typing import ClassVar

from experiments.compare import CONFIDENCE, UNMEASURED, Compared, compared
from experiments.markdown import table
from experiments.policy_study.workloads import (
    CLASSES,
    COMPUTE,
    JOB,
    KERNELS,
    MEMORY,
    REQUEST,
    REQUESTS,
    Chosen,
    bound,
    models,
)
from gpusim.policies.registry import policies
from gpusim.policies.tools.mixes import Resources
from gpusim.policies.warped_slicer import best_sum, kept_points, progress_at, water_fill
from gpusim.results.error_band import measured_errors
from gpusim.results.metrics import geometric_mean
from gpusim.results.style import COLOURS, GREY, HATCHES, PAGE, Style, legend_below, new_figure, save_figure, styled

ALL = "all"
COMPLEMENTARY = CLASSES[1]
CLEAR = 0.01  # a difference that we speak of, relative
LIMITED = "mitigation="
SLIGHT = 0.001  # a difference that is more than rounding
RANDOM_CASES, RANDOM_SEED = 2000, 1
ROOM: Resources = (64, 64, 64, 32)  # of an SM, in the random cases


@dataclass(frozen=True)
class Claim:
    """What a paper reports, and the same comparison here.

    Attributes:
        paper: who.
        said: what they report, with how sure we are of it.
        policy, over: what is compared with what, by STP; ``serial``: with taking turns, whose STP is 1.
        kind: over which pairs.
    """

    paper: str
    said: str
    policy: str
    over: str
    kind: str = ALL


@dataclass(frozen=True)
class Row:
    """One pair under one policy.

    Attributes:
        gpu, pair: where and what.
        kind: such as ``compute + memory``.
        policy: as on the command line.
        stp, antt, fairness: while both jobs restart until each has ended once; 0 for an oracle, which is for run-once.
        first, second: normalised progress of the two meanwhile.
        speedup: of both jobs run once, over one after the other.
        note: for an oracle, what it found.
    """

    DIGITS: ClassVar[int] = 5

    gpu: str
    pair: str
    kind: str
    policy: str
    stp: float
    antt: float
    fairness: float
    first: float
    second: float
    speedup: float
    note: str


@dataclass(frozen=True)
class Module:
    """The branches of one network module under one policy, run once.

    Attributes:
        module: name of the trace.
        policy: as on the command line.
        speedup: over one branch after the other.
        slowdown: the largest of a branch.
        note: for an oracle, what it found.
    """

    DIGITS: ClassVar[int] = 5

    module: str
    policy: str
    speedup: float
    slowdown: float
    note: str


@dataclass(frozen=True)
class Latency:
    """Latency-critical requests beside a best-effort job under one policy.

    Attributes:
        load: of the requests alone.
        policy: as on the command line; ``alone``: without the job.
        p50_us, p95_us, p99_us: latency of the requests.
        job: progress of the job until the last request ended, normalised: 1 is as if it had the GPU to itself.
    """

    DIGITS: ClassVar[int] = 5

    load: float
    policy: str
    p50_us: float
    p95_us: float
    p99_us: float
    job: float


CLAIMS = (
    Claim("Adriaens et al., HPCA'12", "up to 1.19x over taking turns [A]", "inter-sm:rule=profile", "serial"),
    Claim(
        "Xu et al., ISCA'16 (Warped-Slicer)", "+23 % over its baseline [V], left-over [M]", "warped-slicer", "leftover"
    ),
    Claim("the same", "against an even SM split", "warped-slicer", "inter-sm"),
    Claim("Wang et al., HPCA'16 (SMK)", "+52 % over no sharing [A]", "smk", "serial", COMPLEMENTARY),
    Claim("the same", "+17 % over the prior art [A]", "smk", "inter-sm", COMPLEMENTARY),
    Claim("the same", "without issue quotas (SMK-P)", "smk:mode=p", "inter-sm", COMPLEMENTARY),
    Claim("Zhao et al., ICS'18 (CD-Search)", "+10.4 % over an even SM split [A]", "cd-search", "inter-sm"),
    Claim("Park et al., ASPLOS'17 (Maestro)", "+20.2 % over spatial [A]", "maestro", "inter-sm"),
    Claim("the same", "+13.9 % over SMK [A]", "maestro", "smk"),
    Claim("Dai et al., HPCA'18", "+24.6 % on Warped-Slicer [M]", "warped-slicer:mitigation=dmil", "warped-slicer"),
    Claim("the same", "+27.2 % on SMK [M]", "smk:mitigation=dmil", "smk"),
)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def chosen(rows: Sequence[Row], gpu: str, policy: str, kind: str = ALL) -> list[Row]:
    """Rows of one policy on one GPU, of pairs of a class or of all."""
    return [row for row in rows if (row.gpu, row.policy) == (gpu, policy) and kind in (ALL, row.kind)]


def mean_stp(rows: Sequence[Row], gpu: str, policy: str, kind: str = ALL) -> float:
    """Geometric mean of STP; taking turns has 1."""
    return 1.0 if policy == "serial" else geometric_mean([row.stp for row in chosen(rows, gpu, policy, kind)])


def replayed(rows: Sequence[Row], gpu: str) -> list[str]:
    """The policies that have an STP, best first."""
    names = dict.fromkeys(row.policy for row in rows if row.gpu == gpu and row.stp > 0.0)
    return sorted(names, key=lambda name: -mean_stp(rows, gpu, name))


def oracle_row(rows: Sequence[Row], row: Row) -> Row | None:
    """The oracle of a row's policy on the same pair; None where its policy has none."""
    name = f"oracle-{policies()[row.policy.partition(':')[0]].family}"
    found = [r for r in rows if (r.gpu, r.pair) == (row.gpu, row.pair) and r.policy.partition(":")[0] == name]
    return found[0] if found else None


def behind_oracle(rows: Sequence[Row], gpu: str, policy: str) -> float | None:
    """How much longer than the best static division of its kind jobs that run once take; below 0: less long."""
    factors = [
        best.speedup / row.speedup for row in chosen(rows, gpu, policy) if (best := oracle_row(rows, row)) is not None
    ]
    return geometric_mean(factors) - 1.0 if factors else None


# ---- the page --------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Row], modules: Sequence[Module], waits: Sequence[Latency]) -> dict[str, object]:
    """What the page says."""
    known = [kernel for kernel in KERNELS if kernel.gpu == "h200"]
    compute = sum(bound(kernel) == COMPUTE for kernel in known)
    worse, lost = max_min_against_sum(RANDOM_CASES)
    fair, fast = _both_objectives(rows)
    other = [pair for pair in fair if abs(fast[pair].stp / fair[pair].stp - 1.0) > SLIGHT]
    beaten = _beaten_oracles(rows)
    moving, limited = ([one for one in beaten if (LIMITED in one[1].policy) == limits] for limits in (False, True))
    return {
        "kernels": len(known),
        "compute": compute,
        "memory": len(known) - compute,
        "kernel_table": _kernel_table(known),
        "h200": _policy_table(rows, "h200", CLASSES),
        "confidence": 100 * CONFIDENCE,
        "error": _error_words(),
        "ranks": rank_table(rows, "h200"),
        "claims": claim_table(rows),
        "worse": worse,
        "random_cases": RANDOM_CASES,
        "lost": 100 * lost,
        "slight": 100 * SLIGHT,
        "other": len(other),
        "pairs": len(fair),
        "objectives": _objective_table(sorted(other, key=lambda p: fair[p].stp / fast[p].stp), fair, fast),
        "clear": 100 * CLEAR,
        "moving": _times(moving),
        "moving_table": _beaten_table(moving),
        "limited": LIMITED,
        "limited_times": _times(limited),
        "limited_table": _beaten_table(limited),
        "modules": _module_table(modules),
        "beaten": _module_beaten(modules),
        "k40c": _pair_table(rows, "k40c"),
        "requests": REQUESTS,
        "request": REQUEST.split(".")[0],
        "job": JOB.split(".")[0],
        "latencies": _latency_table(waits),
    }


def _error_words() -> str:
    known = error("h200")
    if known is None:
        return f"above {100 * UNMEASURED:.0f} % (this version of the model was not scored, hence the *?*)"
    return f"above the model's error for long calls in the kind of sharing that it predicts worst, {100 * known:.1f} %"


def _kernel_table(kernels: Sequence[Chosen]) -> str:
    columns = ["name", "of", "algorithm", "blocks", "per SM", "isolated µs", "bound", "issue", "L1 path", "L2", "DRAM"]
    return table(columns, [_kernel_cells(kernel) for kernel in kernels])


def _kernel_cells(kernel: Chosen) -> list[str]:
    model = models(kernel.gpu).model(kernel.launch, kernel.name)
    filled = model.blocks_per_sm / model.unit_us
    shares = [model.busy_us(name) * filled for name in ("issue_cycles", "l1_cycles")]
    return [
        f"`{kernel.name}`",
        kernel.operation,
        kernel.algorithm,
        str(kernel.launch.blocks),
        str(model.blocks_per_sm),
        f"{kernel.launch.duration_us:.0f}",
        bound(kernel),
        *(f"{share:.2f}" for share in (*shares, model.own_load.l2, model.own_load.dram)),
    ]


def _policy_table(rows: Sequence[Row], gpu: str, kinds: Sequence[str]) -> str:
    short = [kind.replace(COMPUTE, "C").replace(MEMORY, "M").replace(" ", "") for kind in kinds]
    columns = ["policy", "STP", *(f"STP {name}" for name in short), "ANTT", "fairness", "run once", "behind best"]
    cells = []
    for policy in replayed(rows, gpu):
        mine = chosen(rows, gpu, policy)
        behind = behind_oracle(rows, gpu, policy)
        cells.append(
            [
                f"`{policy}`",
                f"{mean_stp(rows, gpu, policy):.3f}",
                *(f"{mean_stp(rows, gpu, policy, kind):.3f}" for kind in kinds),
                f"{_mean([row.antt for row in mine]):.2f}",
                f"{_mean([row.fairness for row in mine]):.2f}",
                f"{geometric_mean([row.speedup for row in mine]):.3f}",
                "" if behind is None else f"{100 * behind:+.1f} %",
            ]
        )
    for policy in dict.fromkeys(row.policy for row in rows if row.gpu == gpu and row.stp == 0.0):
        once = geometric_mean([row.speedup for row in chosen(rows, gpu, policy)])
        cells.append([f"`{policy}`", *[""] * (len(kinds) + 3), f"{once:.3f}", "0"])
    return table(columns, cells)


def compare(rows: Sequence[Row], gpu: str, policy: str, over: str, kind: str = ALL) -> Compared:
    """STP of one policy over that of another, on the same pairs."""
    base = {row.pair: row.stp for row in chosen(rows, gpu, over, kind)}
    return compared(
        {
            tuple(row.pair.split(" + ")): row.stp / (1.0 if over == "serial" else base[row.pair])
            for row in chosen(rows, gpu, policy, kind)
        }
    )


def error(gpu: str) -> float | None:
    """Of the model, relative: for the calls predicted best, the worst of streams, splits and mixes; None: unknown."""
    found = [measured_errors(name).get(gpu) for name in ("streams", "green", "quota")]
    known = [errors[0] / 100.0 for errors in found if errors is not None]
    return max(CLEAR, *known) if known else None


def claim_table(rows: Sequence[Row]) -> str:
    """What papers report, beside the same comparison here."""
    columns = ["paper", "reports", "compared here (STP)", "pairs", "h200", "same way", "best pair", "k40c", "same way"]
    cells = []
    for claim in CLAIMS:
        ours = {gpu: compare(rows, gpu, claim.policy, claim.over, claim.kind) for gpu in ("h200", "k40c")}
        cells.append(
            [
                claim.paper,
                claim.said,
                f"`{claim.policy}` over `{claim.over}`",
                claim.kind,
                str(ours["h200"]),
                _same_way(ours["h200"], "h200"),
                _best_pair(rows, claim),
                str(ours["k40c"]),
                _same_way(ours["k40c"], "k40c"),
            ]
        )
    return table(columns, cells)


def _same_way(ours: Compared, gpu: str) -> str:
    return ours.verdict(error(gpu)).replace("gain", "yes").replace("loss", "no")


def _best_pair(rows: Sequence[Row], claim: Claim) -> str:
    over = {row.pair: row.stp for row in chosen(rows, "h200", claim.over, claim.kind)}
    gains = {
        row.pair: row.stp / over.get(row.pair, 1.0) - 1.0 for row in chosen(rows, "h200", claim.policy, claim.kind)
    }
    pair = max(gains, key=lambda name: gains[name])
    return f"{100 * gains[pair]:+.0f} % ({pair})"


def rank_table(rows: Sequence[Row], gpu: str) -> str:
    """Every policy against plain streams and against the best of all."""
    names = replayed(rows, gpu)
    cells = []
    for name in names:
        line = [f"`{name}`"]
        for over in ("leftover", names[0]):
            found = compare(rows, gpu, name, over)
            line += ["", ""] if name == over else [str(found), found.verdict(error(gpu))]
        cells.append(line)
    return table(["policy", "over `leftover`", "", f"over `{names[0]}`, the best mean", ""], cells)


def _both_objectives(rows: Sequence[Row]) -> tuple[dict[tuple[str, str], Row], dict[tuple[str, str], Row]]:
    """Warped-Slicer on every pair: least progress as large as can be, and the sum."""
    fair, fast = (
        {(row.gpu, row.pair): row for row in rows if row.policy == policy}
        for policy in ("warped-slicer", "warped-slicer:objective=stp")
    )
    return fair, fast


def _objective_table(
    pairs: Sequence[tuple[str, str]], fair: Mapping[tuple[str, str], Row], fast: Mapping[tuple[str, str], Row]
) -> str:
    cells = [
        [*pair, *(f"{value:.3f}" for row in (fair[pair], fast[pair]) for value in (row.stp, row.fairness))]
        for pair in pairs
    ]
    return table(["GPU", "pair", "max-min: STP", "fairness", "sum: STP", "fairness"], cells)


def _within_room(needs: Sequence[Resources], counts: Sequence[int]) -> bool:
    """Whether so many blocks of each kernel are within `ROOM` by what they need, summed."""
    return all(
        sum(count * each[r] for each, count in zip(needs, counts, strict=True)) <= most for r, most in enumerate(ROOM)
    )


def max_min_against_sum(cases: int) -> tuple[int, float]:
    """How often water-filling's sum of progress is below the best sum on random curves, and its mean loss then."""
    random = Random(RANDOM_SEED)
    losses = []
    for _ in range(cases):
        kernels = random.randint(2, 3)
        curves = [kept_points([random.random() for _ in range(random.randint(1, 16))]) for _ in range(kernels)]
        needs = [(random.randint(0, 16), random.randint(0, 16), random.randint(1, 16), 1) for _ in range(kernels)]
        together = partial(_within_room, needs)
        fair, fast = water_fill(curves, together), best_sum(curves, together)
        if fair is not None and fast is not None:
            sums = [
                fsum(progress_at(curve, count) for curve, count in zip(curves, counts, strict=True))
                for counts in (fair, fast)
            ]
            losses.append(1.0 - sums[0] / sums[1])
    worse = [loss for loss in losses if loss > 1e-9]
    return len(worse), _mean(worse)


def _beaten_oracles(rows: Sequence[Row]) -> list[tuple[float, Row, Row]]:
    """By what factor which row is faster than which oracle of its kind, where it is clearly; the clearest first."""
    found = []
    for row in rows:
        best = oracle_row(rows, row) if row.gpu == "h200" and row.stp > 0.0 else None
        if best is not None and row.speedup > best.speedup * (1.0 + CLEAR):
            found.append((row.speedup / best.speedup, row, best))
    return sorted(found, key=lambda entry: (-entry[0], entry[1].pair, entry[1].policy))


def _times(found: Sequence[tuple[float, Row, Row]]) -> str:
    """How often, and what the table below it has."""
    times = f"{len(found)} time{'s' * (len(found) != 1)}"
    return f"{times}, the clearest:" if found else f"{times}."


def _beaten_table(found: Sequence[tuple[float, Row, Row]]) -> str:
    if not found:
        return ""
    columns = ["policy", "pair", "run once", "best static", "which was"]
    cells = [
        [f"`{row.policy}`", row.pair, f"{row.speedup:.3f}", f"{best.speedup:.3f}", f"`{best.note}`"]
        for _, row, best in found[:5]
    ]
    return table(columns, cells)


def _pair_table(rows: Sequence[Row], gpu: str) -> str:
    names = list(dict.fromkeys(row.pair for row in rows if row.gpu == gpu))
    columns = ["policy", *names, "STP", "run once"]
    cells = []
    for policy in replayed(rows, gpu):
        mine = {row.pair: row for row in chosen(rows, gpu, policy)}
        speedup = geometric_mean([row.speedup for row in mine.values()])
        figures = [*(mine[pair].stp for pair in names), mean_stp(rows, gpu, policy), speedup]
        cells.append([f"`{policy}`", *(f"{figure:.3f}" for figure in figures)])
    for policy in dict.fromkeys(row.policy for row in rows if row.gpu == gpu and row.stp == 0.0):
        speedup = geometric_mean([row.speedup for row in chosen(rows, gpu, policy)])
        cells.append([f"`{policy}`", *[""] * (len(names) + 1), f"{speedup:.3f}"])
    return table(columns, cells)


def _module_table(rows: Sequence[Module]) -> str:
    modules = list(dict.fromkeys(row.module for row in rows))
    speedups = {(row.module, row.policy): row.speedup for row in rows}
    means = {name: geometric_mean([speedups[module, name] for module in modules]) for _, name in speedups}
    columns = ["policy", "mean", *(module.replace("inception_", "").replace("resnet50_", "r") for module in modules)]
    cells = [
        [f"`{name}`", f"{means[name]:.3f}", *(f"{speedups[module, name]:.2f}" for module in modules)]
        for name in sorted(means, key=lambda name: -means[name])
    ]
    return table(columns, cells)


def _module_beaten(rows: Sequence[Module]) -> str:
    """How often, and where most clearly, a policy is faster than both oracles of a module."""
    best: dict[str, float] = {}
    for row in rows:
        if is_oracle(row.policy):
            best[row.module] = max(best.get(row.module, 0.0), row.speedup)
    beaten = [
        (row.speedup / best[row.module], row.policy, row.module)
        for row in rows
        if not is_oracle(row.policy) and row.policy != "leftover" and row.speedup > best[row.module] * (1.0 + CLEAR)
    ]
    times = f"{len(beaten)} time{'s' * (len(beaten) != 1)}"
    if not beaten:
        return times
    factor, name, module = max(beaten)
    return f"{times}; the clearest is `{name}` on {module}, {100 * (factor - 1):.1f} % faster"


def is_oracle(policy: str) -> bool:
    """Whether a policy is a search over static divisions."""
    return policy.startswith("oracle-")


def _latency_table(rows: Sequence[Latency]) -> str:
    columns = ["load of the requests", "policy", "p50 µs", "p95 µs", "p99 µs", "job's progress"]
    cells = [
        [
            f"{100 * row.load:.0f} %",
            f"`{row.policy}`",
            *(f"{value:,.0f}" for value in (row.p50_us, row.p95_us, row.p99_us)),
            "" if row.policy == "alone" else f"{row.job:.3f}",
        ]
        for row in sorted(rows, key=lambda row: (row.load, row.policy != "alone", row.p99_us))
    ]
    return table(columns, cells)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


# ---- picture ---------------------------------------------------------------------------------------------------------


def draw(rows: Sequence[Row], _modules: Sequence[Module], _waits: Sequence[Latency], path: Path) -> None:
    """STP of every policy: one bar per class of pairs (geometric mean), and every pair as a dot."""
    names = replayed(rows, "h200")
    with styled(Style(PAGE)), new_figure(0.3 * len(names) + 1.0) as figure:
        axes = figure.add_subplot()
        height = 0.8 / len(CLASSES)
        for i, kind in enumerate(CLASSES):
            place = [n + (i - 1) * height for n in range(len(names))]
            means = [mean_stp(rows, "h200", name, kind) for name in names]
            axes.barh(
                place,
                [mean - 1.0 for mean in means],
                height,
                left=1.0,
                color=COLOURS[i],
                hatch=HATCHES[i],
                edgecolor="white",
                label=kind,
            )
            _dots(axes.plot, rows, names, place, kind)
        axes.axvline(1.0, color=GREY, linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlabel("STP; 1: time-sharing")
        legend_below(figure, axes, 4)
        save_figure(figure, path)


def _dots(
    plot: Callable[..., object], rows: Sequence[Row], names: Sequence[str], place: Sequence[float], kind: str
) -> None:
    for at, name in zip(place, names, strict=True):
        values = [row.stp for row in chosen(rows, "h200", name, kind)]
        plot(values, [at] * len(values), linestyle="none", marker=".", markersize=2, color="#333333", alpha=0.5)
