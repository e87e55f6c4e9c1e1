"""A selection on the terminal, as JSON, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from math import fsum
from typing import TYPE_CHECKING, Any

from gpusim.choose.judge import Candidate, gain_percent
from gpusim.choose.plan import STREAMS, PlannedWork, as_steps, planned_trace, tensor_bytes, unknown_workspaces
from gpusim.choose.profile import complements, contended, profile
from gpusim.choose.search import PLAIN, Selection
from gpusim.common.tables import (
    Column,
    counted,
    grouped,
    number,
    picked,
    print_left_out,
    print_line,
    print_rows,
    shortened,
)
from gpusim.results.error_band import HowWrong, error_band
from gpusim.results.metrics import times_as_long
from gpusim.results.result import Result
from gpusim.results.runs import BOUND_TITLES
from gpusim.results.style import COLOURS, grid, legend_below, new_figure, time_unit, titled
from gpusim.trace.format import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JSON_VERSION = 2  # of what `as_json` gives
MIB = 2**20
MOST_STEPS = 24  # operations in the table of the plan
MOST_PAIRS = 8
NAME_WIDTH = 34


@dataclass(frozen=True)
class Together:
    """Two operations that had blocks on the GPU at once."""

    operations: tuple[str, str]  # their ids
    overlap_us: float  # for how long
    complement: tuple[str, ...]  # resources of which one takes most and the other leaves the most
    contend: tuple[str, ...]  # resources that both together ask for more than there is of


def plan_trace(selection: Selection, candidate: Candidate | None = None) -> Trace:
    """A plan of a selection as a trace; its notes say under which policy it is as planned. Default: the best."""
    plan = (candidate or selection.best).plan
    trace = selection.work.trace
    note = f"{trace.notes}\nPlanned by gpusim select for {selection.gpu.name}: as planned under --policy {plan.policy}"
    return planned_trace(selection.work, plan, note.strip())


def replayed(selection: Selection) -> Result:
    """The replay of the best plan."""
    return selection.session.replay(plan_trace(selection), selection.best.plan.policy)


def together(selection: Selection, result: Result) -> list[Together]:
    """Which operations ran beside one another, the longest first."""
    runs = grouped(result.kernel_runs, lambda run: run.operation)
    algorithms = selection.best.plan.algorithms
    profiles = {id: profile(selection.bounds.models(id, algorithms.get(id, "")), selection.gpu) for id in runs}
    found = []
    for a, b in combinations(runs, 2):
        pairs = product(runs[a], runs[b])
        overlap = fsum(max(0.0, min(p.end_us, q.end_us) - max(p.start_us, q.start_us)) for p, q in pairs)
        if overlap > 0.0:
            mine, its = profiles[a], profiles[b]
            found.append(Together((a, b), overlap, tuple(complements(mine, its)), tuple(contended(mine, its))))
    return sorted(found, key=lambda one: -one.overlap_us)


# ---- for programs


def as_json(selection: Selection) -> dict[str, Any]:
    """The selection as `gpusim select --json` prints it."""
    best, result = selection.best, replayed(selection)
    band = _co_run_error(selection, result)
    return {
        "version": JSON_VERSION,
        "trace": selection.work.trace.name,
        "gpu": selection.gpu.name,
        **picked(selection, "objective", "order"),
        "makespan_us": best.makespan_us,
        **_starts_json(best),
        "speedup_vs_serial": result.metrics["speedup"],
        "memory_bytes": known_memory_bytes(selection, best),
        "memory_limit_bytes": selection.limit_bytes,
        "tensor_bytes": tensor_bytes(selection.work),
        "bound_us": selection.bound.us,
        "bound_by": selection.bound.by,
        **picked(selection, "gap", "complete", "replays"),
        "error_band": band.plain,
        "error_band_reason": band.reason or None,
        # slower than what else is recommended; a tie with that; a gain; or unmeasured: no such choices were measured
        "verdict": _verdict(selection),
        "gain_over_plain_percent": None if selection.plain is None else selection.expected_gain,
        "predicted_gain_of_found_percent": None if selection.plain is None else selection.gain,
        "chosen_error": None if selection.error is None else asdict(selection.error),
        "found": _candidate_json(selection, selection.found, plan=True),
        "plan": plan_json(selection, best),
        "together": [asdict(pair) for pair in together(selection, result)],
        "baselines": [{"name": name, **_candidate_json(selection, one)} for name, one in selection.baselines],
        "frontier": [_candidate_json(selection, one, plan=True) for one in selection.frontier],
    }


def _verdict(selection: Selection) -> str:
    if selection.slower:
        return "slower"
    return "tie" if selection.tie else "unmeasured" if selection.error is None else "gain"


def plan_json(selection: Selection, candidate: Candidate) -> dict[str, Any]:
    """A plan as a framework could follow it."""
    plan = candidate.plan
    return {
        "policy": plan.policy,
        "streams": [
            {"name": f"s{n}", "sms": None if sms is None else list(sms), "operations": list(lane)}
            for n, (lane, sms) in enumerate(zip(plan.lanes, plan.sm_sets(), strict=True))
        ],
        "operations": as_steps(selection.work, plan),
    }


def _candidate_json(selection: Selection, one: Candidate, plan: bool = False) -> dict[str, Any]:
    times, memory = {"makespan_us": one.makespan_us, **_starts_json(one)}, known_memory_bytes(selection, one)
    more = {"plan": plan_json(selection, one)} if plan else {}
    return {**times, "memory_bytes": memory, "policy": one.plan.policy, **more}


def _starts_json(one: Candidate) -> dict[str, Any]:
    """Makespans over the start orders: mean, least and most; us."""
    return {
        "expected_us": one.expected_us,
        "least_us": min(one.starts_us),
        "most_us": max(one.starts_us),
        "start_orders": len(one.starts_us),
    }


def known_memory_bytes(selection: Selection, candidate: Candidate) -> int | None:
    """The most that the workspaces of a plan can hold at once; None where one of them is not known."""
    return None if unknown_workspaces(selection.work, candidate.plan) else candidate.memory_bytes


# ---- on the terminal


def print_selection(selection: Selection) -> None:
    """Print the plan, what it gains, why, how far from the bound it is, and the frontier."""
    work, result = selection.work, replayed(selection)
    print_line(
        f"{work.trace.name} on {selection.gpu.name} ({selection.gpu.title}): "
        f"{counted(len(work.operations), 'operation')}, {_choices(work)}"
    )
    for line in _summary(selection, result):
        print_line(line)
    print()
    _print_plan(selection, result)
    print_left_out(len(work.operations) - MOST_STEPS, "operations")
    pairs = together(selection, result)
    if pairs:
        print()
        _print_together(pairs[:MOST_PAIRS])
        print_left_out(len(pairs) - MOST_PAIRS, "pairs")
    print()
    _print_baselines(selection)
    print()
    _print_frontier(selection)


def _choices(work: PlannedWork) -> str:
    algorithms, divisions = (sum(map(len, found.values())) for found in (work.algorithms, work.divisions))
    divided = f", {counted(divisions, 'division')} of the batch among them" if work.divisions else ""
    return f"{counted(len(work.algorithms), 'convolution')} with {counted(algorithms, 'algorithm')}{divided}"


def _summary(selection: Selection, result: Result) -> list[str]:
    best, found = selection.best, selection.found
    limit = "no limit" if selection.limit_bytes is None else f"limit {_size(selection.limit_bytes)}"
    tensors = tensor_bytes(selection.work)
    beside = "" if tensors is None else f"; tensors of the convolutions beside it: {_size(tensors)}"
    held = f"{_size(known_memory_bytes(selection, best))} of workspaces that may be live at once"
    if unknown := unknown_workspaces(selection.work, best.plan):
        held = f"unknown: the trace lacks the workspace of {counted(len(unknown), 'algorithm')} of the plan"
    searched = "all plans looked at" if selection.complete else f"best of {counted(selection.replays, 'plan')} replayed"
    fastest = dict(selection.baselines).get("serial, fastest")
    gain = f"{result.metrics['speedup']:.3f}x over serial by the same algorithms"
    if fastest is not None:
        gain += f", {times_as_long(fastest.makespan_us, best.makespan_us):.3f}x over serial by the fastest"
    return [
        f"makespan {number(best.makespan_us)} µs launched in this order, {gain}",
        *_starts_lines(best),
        *_chosen_lines(selection, result),
        f"bound {number(selection.bound.us)} µs, by {selection.bound.by}: no plan is faster; the best plan found is at "
        f"most {100 * selection.gap:.1f} % above the best ({number(found.expected_us)} µs; {searched})",
        f"memory {held} ({limit}){beside}",
        f"sharing: {_sharing(best)}",
    ]


def _starts_lines(best: Candidate) -> list[str]:
    """The makespan over the start orders, where there are several."""
    if len(best.starts_us) == 1:
        return []
    return [
        f"expected {number(best.expected_us)} µs: mean over {len(best.starts_us)} orders in which its streams may "
        f"start, {number(min(best.starts_us))} to {number(max(best.starts_us))} µs"
    ]


def _chosen_lines(selection: Selection, result: Result) -> list[str]:
    """Describe the gain of the plan over plain streams, and the error of such choices."""
    plain, error, where, best = selection.plain, selection.error, selection.gpu.name, selection.best
    if plain is None:
        return [f"model error: {_co_run_error(selection, result).text}"]
    over = "one stream" if len(plain.plan.lanes) == 1 else "plain streams"
    predicted = f"predicted to gain {selection.gain:+.1f} % over {over} ({number(plain.expected_us)} µs)"
    if selection.simpler is not None and selection.simpler is not plain:
        more = gain_percent(selection.simpler, selection.found)
        predicted += f", {more:+.1f} % over other algorithms in the same streams"
    if error is None:
        why = f"no chosen plan was measured on {where}"
        if PLAIN[0] not in dict(selection.baselines):
            why = "chosen plans were measured against plain streams, which need more memory"
        return [f"the best plan found is {predicted}; {why}; model error of co-runs nobody chose: "
                f"{_co_run_error(selection, result).text}"]  # fmt: skip
    known = (
        f"{counted(error.plans, 'chosen plan')} measured on {where} gained {error.share:.2f} times what was predicted, "
    )
    known += f"and one in ten {error.limit:.1f} points less than that"
    if selection.slower:
        wanted = "which needs least memory" if selection.objective == "memory" else "whose streams were given"
        lost = f"is expected to lose {-selection.expected_gain:.1f} % of the speed of {over}"
        return [f"slower: this plan, {wanted}, {lost}; the best plan found is {predicted} ({known})"]
    if selection.tie:
        instead = f"the recommendation is {over}"
        if selection.objective == "memory":
            instead = f"the plan of least memory is expected to gain {selection.expected_gain:+.1f} %"
        elif best is not plain and best.plan.streams == plain.plan.streams:
            instead += f" with other algorithms, expected to gain {selection.expected_gain:+.1f} %"
        elif best is not plain:
            instead = "the streams were given, so this is the plan"
        return [f"tie: the best plan found is {predicted}, which is not sure ({known}); {instead}"]
    return [f"gain: this plan is expected to gain {selection.expected_gain:+.1f} %; it is {predicted}; {known}"]


def _co_run_error(selection: Selection, result: Result) -> HowWrong:
    return error_band(result, plan_trace(selection), selection.gpu, selection.session.recorded_on)


def _sharing(candidate: Candidate) -> str:
    plan = candidate.plan
    if len(plan.lanes) == 1:
        return "one stream"
    way = "plain streams" if plan.policy == STREAMS else plan.policy
    return f"{len(plan.lanes)} streams, {way}"


def _print_plan(selection: Selection, result: Result) -> None:
    times = {run.operation: run for run in result.operation_runs}
    longest = sorted(result.kernel_runs, key=lambda run: run.solo_us)
    bound_by = {run.operation: BOUND_TITLES.get(run.bound_by, run.bound_by) for run in longest}
    columns = [
        (Column("operation", narrow="cut"), lambda step: shortened(step["operation"], NAME_WIDTH)),
        (Column("algorithm", narrow="break"), lambda step: step["algorithm"] or ""),
        (Column("stream"), lambda step: step["stream"]),
        (Column("SMs"), lambda step: "all" if step["sms"] is None else "{}–{}".format(*step["sms"])),
        (Column("start µs", right=True), lambda step: number(times[step["operation"]].start_us)),
        (Column("end", right=True), lambda step: number(times[step["operation"]].end_us)),
        (
            Column("workspace", right=True),
            lambda step: _size(step["workspace_bytes"]) if step["algorithm"] else "",
        ),
        (Column("bound by"), lambda step: bound_by.get(step["operation"], "")),
        (Column("waits for", narrow="break"), lambda step: ", ".join(step["waits_for"])),
    ]
    steps = as_steps(selection.work, selection.best.plan)[:MOST_STEPS]
    print_rows(steps, columns, "The plan, in the order of launch")


def _print_together(pairs: Sequence[Together]) -> None:
    columns = [
        (Column("operation", narrow="cut"), lambda pair: pair.operations[0]),
        (Column("beside", narrow="cut"), lambda pair: pair.operations[1]),
        (Column("for µs", right=True), lambda pair: number(pair.overlap_us)),
        (Column("complement in", narrow="break"), lambda pair: _names(pair.complement)),
        (Column("contend for", narrow="break"), lambda pair: _names(pair.contend)),
    ]
    print_rows(pairs, columns, "What ran together: one takes most of a resource, the other leaves it; or both want it")


def _names(resources: Sequence[str]) -> str:
    return ", ".join(BOUND_TITLES.get(name, name) for name in resources) or "–"


def _print_baselines(selection: Selection) -> None:
    best = selection.best.expected_us
    named = [("this plan", selection.best), *selection.baselines]
    if selection.found is not selection.best:
        named.insert(1, ("best plan found", selection.found))
    columns = [
        (Column("plan"), lambda one: one[0]),
        (Column("expected µs", right=True), lambda one: number(one[1].expected_us)),
        (Column("least", right=True), lambda one: number(min(one[1].starts_us))),
        (Column("most", right=True), lambda one: number(max(one[1].starts_us))),
        (Column("over this plan", right=True), lambda one: f"{times_as_long(one[1].expected_us, best):.3f}x"),
        (Column("memory", right=True), lambda one: _size(known_memory_bytes(selection, one[1]))),
        (Column("sharing"), lambda one: _sharing(one[1])),
    ]
    print_rows(named, columns, "Beside the baselines, under the same limit of memory")


def _print_frontier(selection: Selection) -> None:
    best = selection.best.expected_us
    columns = [
        (Column("memory", right=True), lambda one: _size(known_memory_bytes(selection, one))),
        (Column("expected µs", right=True), lambda one: number(one.expected_us)),
        (Column("over this plan", right=True), lambda one: f"{times_as_long(one.expected_us, best):.3f}x"),
        (Column("sharing"), _sharing),
    ]
    print_rows(selection.frontier, columns, "Memory against time: no plan that was replayed beats these in both")


def _size(size: int | None) -> str:
    """Bytes in words."""
    if size is None:
        return "unknown"
    if size < 1024:
        return f"{size} bytes" if size else "0"
    if size < MIB // 10:
        return f"{number(size / 1024, 0)} KiB"
    return f"{number(size / MIB)} MiB"


# ---- as a picture


def frontier_figure(selection: Selection) -> Figure:
    """Plot of makespan over memory: the Pareto frontier, the baselines of known memory, and the lower bound."""
    front, others = (
        [one for one in plans if not unknown_workspaces(selection.work, one.plan)]
        for plans in (selection.frontier, dict(selection.baselines).values())
    )
    with new_figure(2.7) as figure:
        axes = figure.subplots()
        divisor, unit = time_unit(max((one.expected_us for one in (*front, *others)), default=0.0))
        (sizes, times), (other_sizes, other_times) = (
            ([one.memory_bytes / MIB for one in plans], [one.expected_us / divisor for one in plans])
            for plans in (front, others)
        )
        label = "best plan within the memory"
        axes.step(sizes, times, where="post", color=COLOURS[0], marker="o", label=label)
        axes.plot(other_sizes, other_times, "x", color=COLOURS[2], label="baselines")
        axes.axhline(selection.bound.us / divisor, color=COLOURS[4], linestyle="--", label="lower bound")
        axes.set_xlabel("Workspace (MiB)")
        axes.set_ylabel(f"Expected makespan ({unit})")
        axes.set_ylim(bottom=0.0)
        grid(axes)
        titled(figure, f"{selection.work.trace.name} on {selection.gpu.name}")
        legend_below(figure, axes)
        return figure
