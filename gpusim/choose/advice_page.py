"""Advice on a terminal, as JSON, and as a picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from gpusim.choose.advise import TIE, UNMEASURED, Advice, SettingResult
from gpusim.choose.explain import in_shares, order_note
from gpusim.choose.serving import SEEDS, growing, looping
from gpusim.choose.settings import MECHANISMS
from gpusim.choose.targets import Target
from gpusim.common.tables import Column, number, numbers, picked, print_left_out, print_line, print_table, shortened
from gpusim.model.contention import UNKNOWN
from gpusim.results.runs import BOUND_TITLES
from gpusim.results.style import COLOURS, grid, legend_below, new_figure, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = dict(zip(MECHANISMS, "Xo^sDPv", strict=True))
UNKNOWN_ERROR = "?"  # instead of a model error
SHOWN_REASONS = 3  # why errors are not known, the most frequent
SHOWN_BOUNDS = 3  # of a program, what takes most of its kernels' time
ONCE = "runs once, from the start, as too many of its kernels would run beside the requests: targets are of this pass"
WAITING = "latency"  # the bound that is no resource: kernels that wait can share the GPU


def as_json(advice: Advice) -> dict[str, Any]:
    """The advice as `gpusim advise --json` prints it."""
    competitor, behind = advice.competitor, _behind(advice)  # an error of so much would change the answer
    return {
        "version": 1,
        "trace": advice.trace.name,
        "gpu": advice.gpu.name,
        "objective": advice.objective,
        "targets": [str(target) for target in advice.targets],
        "best": _json(advice, advice.best),
        "competitor": None if competitor is None else _json(advice, competitor),
        "competitor_worse_percent": 100 * behind if isfinite(behind) else None,
        "cost_us": advice.cost_us,
        "choices": [_json(advice, one) for one in advice.choices],
        **({"order": note} if (note := order_note(advice.trace)) else {}),
        **({"assumption": advice.assumption} if advice.assumption else {}),
        **({"unequal": advice.unequal} if advice.unequal else {}),
    }


def _json(advice: Advice, one: SettingResult) -> dict[str, Any]:
    return {
        **picked(one.setting, "mechanism", "setting", "policy", "paste"),
        **picked(one, "makespan_us", "stp", "antt", "fairness", "throughput", "slowdown", "latency_us"),
        "latency_percentiles_us": {
            name: {f"p{percent}": us for percent, us in of.items()} for name, of in one.percentiles_us.items()
        },
        "latency_interval_us": one.interval_us,
        "latency_growth": one.growth,
        "serves": one.serves,
        "model_error": one.how_wrong.percent,
        "model_error_reason": one.how_wrong.reason or None,
        "meets_slo": advice.meets(one),
        "tie": advice.ties(one),
        "pareto": one in advice.pareto,
    }


def print_advice(advice: Advice) -> None:
    """Text of an advice: the setting, the reason, what would change it, and the table of settings."""
    best = advice.best
    programs = list(best.slowdown)
    print_line(f"{', '.join(programs[:-1])} and {programs[-1]} on {advice.gpu.name}: {_sentence(best)}")
    for line in best.setting.paste:
        print_line(f"    {line}")
    for line in [*_served(advice), *_reasons(advice)]:
        print_line(line)
    for note in filter(None, (order_note(advice.trace), advice.assumption)):
        print_line(f"Note: {note}.")
    if advice.unequal:
        print_line(f"Note: {advice.unequal}: slowdowns are of one pass; --objective stp lets programs restart.")
    print()
    served = bool(best.percentiles_us)  # programs with arrivals do not restart, and have no STP
    by = {
        "makespan": "makespan",
        "stp": "STP",
        "antt": "ANTT" + ", the mean of the slowdowns" * served,
        "throughput": f"throughput of {' and '.join(advice.free)}",
    }[advice.objective]
    values = ["makespan µs", *["STP"] * (not served), *(f"{name} slowed" for name in programs), "model error"]
    columns = [Column("share by"), Column("setting"), *numbers(*values)]
    columns += [Column("targets")] * bool(advice.targets) + [Column("notes")]
    print_table(columns, [_cells(advice, one) for one in advice.leading], f"Best first by {by}")
    print_left_out(len(advice.choices) - len(advice.leading))
    for line in _legend(advice.leading):
        print_line(line)


def _legend(shown: Sequence[SettingResult]) -> list[str]:
    """The legend of the table: its columns and markers."""
    reasons = Counter(one.how_wrong.reason for one in shown if _error(one) == UNKNOWN_ERROR)
    named = [re.sub(r"^not validated(:| for) ", "", reason) for reason, _ in reasons.most_common(SHOWN_REASONS)]
    unmeasured = "; ".join(named + ["…"] * (len(reasons) > SHOWN_REASONS))
    lines = ["model error: mean error of the model on measured co-runs of the kind"]
    lines += [f"  {UNKNOWN_ERROR}: not validated, because of: {unmeasured}"] * bool(reasons)
    counted = f"a way to share without a model error counts {100 * UNMEASURED:.0f} % worse than predicted"
    lines += [f"  {UNKNOWN_ERROR}: {counted}"] * any(one.doubted for one in shown)
    best = f"tie: within {100 * TIE:.0f} % of the best, which the model cannot tell apart"
    return [*lines, f"{best}; pareto: no other slows one program less and none more"]


def _sentence(best: SettingResult) -> str:
    together = "both" if len(best.slowdown) == 2 else "all"
    return {
        "in turn": "do not share it",
        "streams": f"run {together} in streams of equal priority",
        "priority": f"run {together} in streams, {best.setting.setting}",
        "SM split": f"give each SMs of its own, {best.setting.setting}",
        "MPS": f"run {together} under MPS, {best.setting.setting}",
        "MIG": f"give each a MIG instance, {best.setting.setting}",
        "time slices": "run separate processes without MPS",
    }[best.setting.mechanism]


def _reasons(advice: Advice) -> list[str]:
    """Resource that bounds each program, and what would change the answer."""
    best, lines = advice.best, []
    for name, times in best.bound_us.items():
        total = sum(times.values())
        if total > 0.0:
            known = {bound: us for bound, us in times.items() if bound != UNKNOWN}
            parts = in_shares(known, SHOWN_BOUNDS, total)
            uncounted = times.get(UNKNOWN, 0.0) / total
            if parts:
                lines.append(f"{name}: its kernels are bound by {parts} of their time")
            if uncounted:
                lines.append(f"{name}: {100 * uncounted:.0f} % of its kernels' time has no known bound: no counters")
    of_several = [program.name for program in advice.trace.programs if len(program.streams) > 1]
    for name, causes in advice.cost_us.items():
        if sum(causes.values()) > 0.0:
            shares = in_shares(causes, SHOWN_BOUNDS)
            own = ", with what its own streams cost one another" if name in of_several else ""
            lines.append(f"{name}: this setting adds {number(sum(causes.values()))} µs to its kernels{own}: {shares}")
    first = {next(iter(times), "") for times in best.bound_us.values()}  # what bounds each program most of the time
    wanted = first.pop() if len(first) == 1 else UNKNOWN
    if wanted not in ("", UNKNOWN, WAITING):
        needing = f"{'both' if len(best.bound_us) == 2 else 'all'} need {BOUND_TITLES[wanted]} most"
        lines.append(f"{needing}: sharing gains only the time in which one of them leaves it idle")
    competitor = advice.competitor
    if competitor is not None:
        behind, other_way = _behind(advice), competitor.setting
        if behind <= TIE:
            why = "the recommended setting is simpler to set up"
            if other_way.mechanism == "streams" and advice.first:
                why = f"the few kernels of {advice.first} should not wait for others"
            elif other_way.mechanism == "in turn":
                why = "it slows the programs more, on average"
            lines.append(f"{other_way} is within {100 * TIE:.0f} % of it: a tie, and {why}")
        else:
            worse = f"closest: {other_way}, {100 * behind:.1f} % worse"
            lines.append(f"{worse}; an error of the model of that much would change the answer")
    return lines


def _behind(advice: Advice) -> float:
    """How much worse the competitor is by the objective, relative; infinite where there is none."""
    if advice.competitor is None:
        return inf
    mine, other = (one.counted(advice.objective) for one in (advice.best, advice.competitor))
    return (other - mine) / abs(mine) if mine else 0.0


def _served(advice: Advice) -> list[str]:
    """Latencies of requests under the best setting, and each target: held or missed."""
    best, lines = advice.best, []
    for name, of in best.percentiles_us.items():
        interval = best.interval_us.get(name, 0.0)
        spread = f" (p95 ± {number(interval)}, 95 % confidence over {SEEDS} seeds)" if interval else ""
        lines.append(f"{name}: " + ", ".join(f"p{percent} {number(us)} µs" for percent, us in of.items()) + spread)
        lines += growing(name, best.growth.get(name, 1.0))
    restarted = looping(advice.trace)
    others = [name for name in best.slowdown if name not in best.percentiles_us] if best.percentiles_us else []
    for name in others:
        how = "restarts until the last request arrives" if name in restarted else ONCE
        lines.append(f"{name}: no arrivals, so it {how}")
    for target in advice.targets:
        over = best.over(target)
        held = "held" if over <= 1.0 else "missed"
        lines.append(f"target {target}: {held}, at {100 * over:.0f} % of it{_doubt(best, target)}")
    return lines


def _doubt(best: SettingResult, target: Target) -> str:
    """Why a target that seems held may be missed, or the reverse; empty: nothing tells."""
    half_us = best.interval_us.get(target.program, 0.0)
    if target.latency_us is not None and abs(best.latency_us[target.program] - target.latency_us) < half_us:
        return ", within the confidence interval: too close to tell"
    if best.how_wrong.percent is not None and abs(100.0 * (best.over(target) - 1.0)) < best.how_wrong.percent:
        return f", closer than the error of makespans ({best.how_wrong.brief}): measure it, or set a stricter target"
    return ""


def _cells(advice: Advice, one: SettingResult) -> list[str]:
    said = ["recommended"] if one is advice.best else ["tie"] if advice.ties(one) else []
    said += ["pareto"] * (one in advice.pareto) + ["queue grows"] * (not one.serves)
    cells = [one.setting.mechanism, one.setting.setting, number(one.makespan_us)]
    cells += ["-" if one.stp is None else f"{one.stp:.2f}"] * (not one.percentiles_us)
    cells += [f"x{value:.2f}" for value in one.slowdown.values()] + [_error(one)]
    cells += ["held" if advice.meets(one) else "missed"] * bool(advice.targets)
    return [*cells, ", ".join(said)]


def _error(one: SettingResult) -> str:
    return UNKNOWN_ERROR if one.how_wrong.band is None else one.how_wrong.brief


def slowdowns(advice: Advice) -> Figure:
    """The slowdown of the first program against that of the second, a marker for each mechanism, the Pareto front."""
    first, second = list(advice.best.slowdown)[:2]
    known = [one for one in advice.choices if max(one.slowdown.values()) != inf]
    from matplotlib.ticker import LogLocator, NullLocator

    with new_figure(3.6) as figure:
        axes = figure.subplots()
        for at, (mechanism, marker) in enumerate(MARKERS.items()):
            mine = [one for one in known if one.setting.mechanism == mechanism]
            if mine:
                axes.plot([one.slowdown[first] for one in mine], [one.slowdown[second] for one in mine], marker,
                          color=COLOURS[at % len(COLOURS)], markeredgecolor="black", markeredgewidth=0.5,
                          markersize=4.5, label=mechanism)  # fmt: skip
        front = sorted((one.slowdown[first], one.slowdown[second]) for one in advice.pareto if one in known)
        axes.plot([a for a, _ in front], [b for _, b in front], color="black", linewidth=0.9, label="Pareto front")
        best = advice.best
        label = shortened(f"recommended: {best.setting.mechanism}, {best.setting.setting}", 36)
        axes.plot([best.slowdown[first]], [best.slowdown[second]], "o", markersize=10, markerfacecolor="none",
                  color="black", label=label)  # fmt: skip
        for target in advice.targets:
            if target.slowdown is not None and target.program in (first, second):
                draw = axes.axvline if target.program == first else axes.axhline
                draw(target.slowdown, color="black", linestyle="--", linewidth=0.9, label="target")
        for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            scale("log")
            axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel(f"Slowdown of {first}")
        axes.set_ylabel(f"Slowdown of {second}")
        titled(figure, f"{advice.trace.name} on {advice.gpu.name}")
        grid(axes)
        legend_below(figure, axes)
        return figure
