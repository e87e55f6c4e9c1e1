"""A trace under several policies: the results, compared with serial, and the model error, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from gpusim.common.tables import number, picked
from gpusim.hardware.gpu import GPU
from gpusim.results.error_band import HowWrong
from gpusim.results.metrics import (
    SHARING,
    latency_percentiles_us,
    normalised_progress,
    sharing,
    utilisation,
)
from gpusim.results.result import Result
from gpusim.trace.format import Trace
from gpusim.trace.independent import shares_nothing, waits_across_streams

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

JSON_VERSION = 1  # of what `as_json` gives
ALONE = "one stream: there is nothing to share the GPU with"
DEPENDENT = "streams wait for each other, and their slowdowns include these waits"


@dataclass(frozen=True)
class Entry:
    """One policy's result."""

    result: Result  # of the replay, programs run once
    speedup_vs_serial: float  # makespan of serial over its makespan
    how_wrong: HowWrong  # the model error on measured co-runs of this kind, or the reason why it is unknown
    rests_on_order: bool = False  # whether the speedup rests on an order between streams that was not recorded
    # of the replay in which programs restart; None where it was not asked for, or one starved
    restarted: Result | None = None
    notes: tuple[str, ...] = ()  # what a reader should know of both
    # what each of `gpusim.results.gains.PARTS` contributes to the makespan that it saves over serial; None where
    # placements were not kept
    gain_us: Mapping[str, float] | None = None
    # half of the 95 % confidence interval of the 95th percentile of latency, by program with random arrivals, from the
    # spread over their seeds; empty where it was not asked for
    latency_interval_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """A star behind a speedup that rests on an order which was not recorded."""
        return "*" if self.rests_on_order else ""

    @property
    def speedup(self) -> str:
        """The speedup over serial in words, with its mark."""
        return f"{number(self.speedup_vs_serial, 3)}x{self.mark}"

    @property
    def merit(self) -> tuple[float, float]:
        """The less, the better: by STP where streams restart, else by makespan."""
        return -round(self.sharing["stp"] or 0.0, 9), round(self.result.makespan_us, 6)

    @property
    def sharing(self) -> dict[str, float | None]:
        """STP, ANTT and fairness of the streams that restart; None each where there is no such replay."""
        if self.restarted is None:
            return dict.fromkeys(SHARING)
        return {**sharing(normalised_progress(self.restarted))}


@dataclass(frozen=True)
class Comparison:
    """One trace on one GPU under several policies, best first.

    Attributes:
        trace: the replayed trace.
        gpu: the GPU of the replay.
        entries: one per policy, sorted by STP where programs restart, else by makespan.
        restart: whether the trace was also replayed with programs that restart.
        seed: random seed of block-duration jitter.
        recorded_on: the GPU of the recording, where the trace does not name it.
        bound_us: lower bound on the makespan under any policy; None where it is not known.
        bound_by: the resource, or the critical path, that sets this bound.
        assumed_us: least and most makespan of each policy over the assumptions about kernels without counters; empty
            if all kernels have counters.
        more_notes: notes about these assumptions.
    """

    trace: Trace
    gpu: GPU
    entries: tuple[Entry, ...]
    restart: bool = False
    seed: int = 0
    recorded_on: GPU | None = None
    bound_us: float | None = None
    bound_by: str = ""
    assumed_us: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    more_notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        best = self.entries[0].result
        makespan = f"best={best.policy!r}, makespan_us={best.makespan_us:.1f}"
        return f"Comparison(trace={self.trace.name!r}, gpu={self.gpu.name!r}, {makespan})"

    def __getitem__(self, policy: str) -> Entry:
        """The entry of a policy."""
        return {entry.result.policy: entry for entry in self.entries}[policy]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each policy, best first.

        Columns: ``policy``, ``makespan_us``, ``speedup`` over serial, ``model_error`` and ``model_error_reason``. Where
            programs restart there are also ``stp``, ``antt`` and ``fairness``. ``model_error`` is the mean absolute
            error in percent on comparable measured co-runs, NaN where none was measured; the reason is then in
            ``model_error_reason``.
        """
        import pandas as pd

        rows = [
            {
                **picked(entry.result, "policy", "makespan_us"),
                "speedup": entry.speedup_vs_serial,
                **(entry.sharing if self.restart else {}),
                "model_error": entry.how_wrong.percent,
                "model_error_reason": entry.how_wrong.reason,
            }
            for entry in self.entries
        ]
        return pd.DataFrame(rows).astype({"model_error": float})

    def plot(self) -> Figure:
        """The makespans as bars, with the model's error where it is known: a matplotlib figure."""
        from gpusim.results.plots import PolicyBar, policies

        bars = [PolicyBar(e.result.policy, e.result.makespan_us, e.speedup, e.how_wrong) for e in self.entries]
        return policies(f"{self.trace.name} on {self.gpu.name}", bars)

    @property
    def notes(self) -> list[str]:
        """Remarks on the results, each once. A remark on some policies begins with their names."""
        notes = self.attributed(lambda entry: entry.notes)
        if self.seed:
            notes.insert(0, f"seed {self.seed}: the jitter of blocks is another than fitted to the recording")
        of_trace = {ALONE: shares_nothing(self.trace), DEPENDENT: waits_across_streams(self.trace)}
        return [*(note for note, holds in of_trace.items() if holds), *notes, *self.more_notes]

    def attributed(self, remarks: Callable[[Entry], Iterable[str]]) -> list[str]:
        """Return the remarks on entries, each once; one that is not on all of them begins with their policies."""
        owners: dict[str, list[str]] = {}
        for entry in self.entries:
            for remark in remarks(entry):
                owners.setdefault(remark, []).append(entry.result.policy)
        every = len(self.entries)
        return [remark if len(of) == every else f"{', '.join(of)}: {remark}" for remark, of in owners.items()]

    def _repr_html_(self) -> str:
        """The table and the notes, for a notebook."""
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<p>{escape(self.trace.name)} on {escape(self.gpu.name)}</p>{self.table.to_html()}<ul>{notes}</ul>"

    def noted(self, *notes: str) -> Comparison:
        """Return a copy with more notes on every result."""
        return replace(self, entries=tuple(replace(one, notes=(*notes, *one.notes)) for one in self.entries))


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as `gpusim replay --json` prints it."""
    recorded_on = comparison.recorded_on
    return {
        "version": JSON_VERSION,
        "trace": comparison.trace.name,
        "gpu": comparison.gpu.name,
        "recorded_on": comparison.trace.device if recorded_on is None else recorded_on.name,
        "seed": comparison.seed,
        "bound_us": comparison.bound_us,
        "results": [_entry_json(entry, comparison.assumed_us.get(entry.result.policy)) for entry in comparison.entries],
    }


def _entry_json(entry: Entry, assumed_us: tuple[float, float] | None) -> dict[str, Any]:
    """A policy's result; ``assumed_us``: the span of its makespan where kernels have no counters."""
    result = entry.result
    latencies = {
        program: {f"p{percent}": us for percent, us in of.items()}
        for program, of in latency_percentiles_us(result).items()
    }
    return {
        **picked(result, "policy", "makespan_us"),
        "speedup_vs_serial": entry.speedup_vs_serial,
        "gain_us": entry.gain_us,
        **entry.sharing,
        "error_band": entry.how_wrong.plain,
        "error_band_reason": entry.how_wrong.reason or None,
        "streams": {run.stream: picked(run, "start_us", "end_us") for run in result.stream_runs},
        "programs": {
            run.program: picked(run, "start_us", "end_us", "slowdown", "streams") for run in result.program_runs
        },
        "slowdowns": {run.stream: run.slowdown for run in result.stream_runs},
        "utilisation": utilisation(result),
        "notes": list(entry.notes),
        "kernels": [run._asdict() for run in result.kernel_runs],
        **({"latency_percentiles_us": latencies} if latencies else {}),
        **({"latency_interval_us": dict(entry.latency_interval_us)} if entry.latency_interval_us else {}),
        **({} if assumed_us is None else {"assumed_us": list(assumed_us)}),
    }
