"""The content of a report: built from a comparison, written to a file beside its tables, and read from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from gpusim import __version__
from gpusim.common.errors import InputError, one_line, validating
from gpusim.common.files import read_bytes
from gpusim.common.strict import Strict
from gpusim.common.tables import counted, short_name
from gpusim.hardware.gpu import GPU
from gpusim.model.launchable import launch_footprint, launch_occupancy
from gpusim.model.occupancy import Footprint, exceeded
from gpusim.results.comparison import Comparison, Entry
from gpusim.results.plots import USE_TITLES, without_kernels
from gpusim.results.result import Result
from gpusim.results.runs import USES, ProgramRun, StreamRun
from gpusim.results.style import in_words
from gpusim.results.verdict import verdict
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch

FILE = "report.json"  # in the folder that `gpusim replay --out` writes
MOST_RUNS = 10_000  # kernels, copies and host work of a replay that a page shows
MOST_HELD = 1_000  # kernels of a replay up to which what each SM held is shown
LARGEST_BYTES = 2**28  # of a file of `FILE`'s kind
FULL = ("registers", "shared memory", "threads", "block slots")
POLICY = "the policy, or the carve-out that the SM is set to"
REASONS = (*FULL, POLICY)
LIMITERS = {"registers": 0, "shared_memory": 1, "warps": 2, "blocks": 3}  # as `Occupancy` calls them

Residents = tuple[tuple[int, int], ...]  # row of a kernel and its blocks

Text = Annotated[str, AfterValidator(one_line)]  # nothing that hides or turns round what follows
Time = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]  # us
Real = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class KernelName(NamedTuple):
    """A kernel of the trace: operation, whole and short name, and whether its demands are estimated."""

    operation: Text
    name: Text
    short: Text
    estimated: bool


class ReportedLaunch(NamedTuple):
    """One launch as replayed, as `gpusim.results.runs.KernelRun`; stream and kernel by their places."""

    stream: Count
    kernel: Count
    request: Count
    blocks: Count
    ready_us: Time
    start_us: Time
    dispatched_us: Time
    end_us: Time
    solo_us: Time
    waited_us: Time
    sharing_us: Real
    bound_by: Text


TIMES = tuple(name for name in ReportedLaunch._fields if name.endswith("_us"))


class Other(NamedTuple):
    """A copy or work on the host; the stream by its place."""

    stream: Count
    operation: Text
    kind: Text
    start_us: Time
    end_us: Time


class StreamTimes(NamedTuple):
    """When a stream's or program's first block started and its last one ended, and its slowdown."""

    start_us: Time
    end_us: Time
    slowdown: Time


class Resident(NamedTuple):
    """Blocks of a run (by its place) on an SM, and why it takes no more: a place in `REASONS`."""

    run: Count
    blocks: Count
    why: Annotated[int, Field(ge=0, le=4)]


class Residency(Strict):
    """Resident blocks of each SM over time."""

    mixes: list[list[Resident]]  # what SMs held at one time or another
    # of each SM, in turns, the time since its last change in ns and the place of the mix that it then held
    sms: list[list[Count]]


class PolicyReport(Strict):
    """One policy."""

    policy: Text  # its name with parameters, as given
    title: Text  # the same in words
    makespan_us: Time  # as in the comparison, and the speedup
    speedup: Time
    speedup_mark: Text = ""  # behind the speedup, as `gpusim.results.comparison.Entry.mark`
    how_wrong: Text  # the model error, or the reason why it is unknown; in percent where it is known
    error_percent: Time | None
    sharing: dict[Text, Real]  # STP, ANTT and fairness, where streams restart
    # what each of `gpusim.results.gains.PARTS` contributes to the makespan saved over serial
    gain_us: dict[Text, Real] | None
    streams: list[StreamTimes]  # of each stream
    programs: list[StreamTimes] = Field(default_factory=list)  # of each program that the page shows
    runs: list[ReportedLaunch]  # in the order of becoming ready, as the others
    others: list[Other]
    left_out: Count  # how many of both are not shown
    bin_us: Time  # the width of the bins of use
    use_percent: dict[Text, list[Time]]  # of each use that is known, mean over the SMs in each bin, %
    residency: Residency | None  # None where it was not kept


class Content(Strict):
    """All that a page shows; programs where they say more than streams.

    ``gpusim`` is the version that made it, ``command`` the replay that it is of; ``policies`` are best first.
    """

    version: Literal[1]
    gpusim: Text = ""
    command: Text = ""
    verdict: Text = ""
    trace: Text
    gpu: Text
    sms: Count
    counts: Text
    notes: list[Text]
    streams: list[Text]
    programs: list[Text] = Field(default_factory=list)
    kernels: list[KernelName]
    uses: dict[Text, Text]
    policies: list[PolicyReport]


def residents_shown(trace: Trace) -> bool:
    """Whether a trace is small enough to show the resident blocks of each SM."""
    requests = {stream.name: 1 if stream.arrivals is None else stream.arrivals.requests for stream in trace.streams}
    launches = ((stream, len(op.launches())) for stream in trace.streams for op in stream.operations)
    return sum(requests[stream.name] * count for stream, count in launches) <= MOST_HELD


def content_of(comparison: Comparison, command: str = "") -> Content:
    """The content of a page; with the resident blocks of each SM where the results have them."""
    trace, gpu = comparison.trace, comparison.gpu
    launches = {(op.id, i): launch for op in trace.operations() for i, launch in enumerate(op.launches())}
    places = {key: place for place, key in enumerate(launches)}
    held = cache(lambda key: hold(launches[key], gpu))
    policies = []
    for entry in comparison.entries:
        runs = entry.result.kernel_runs
        keys = [(run.operation, run.index) for run in runs]
        holds = [] if entry.result.residents is None else [held(key) for key in keys]
        policies.append(_policy(entry, comparison, [places[key] for key in keys], holds))
    best = comparison.entries[0].result
    parts = (trace.streams, "stream"), (best.operation_runs, "operation"), (best.kernel_runs, "kernel")
    return Content(
        version=1,
        gpusim=__version__,
        command=command,
        verdict=verdict(comparison),
        trace=trace.name,
        gpu=f"{gpu.title} ({gpu.name})",
        sms=gpu.sm_count,
        counts=", ".join(counted(len(found), what) for found, what in parts),
        notes=comparison.notes,
        streams=list(best.stream_titles.values()),
        programs=[run.program for run in best.program_runs if best.has_programs],
        kernels=[KernelName(op, one.name, short_name(one.name), one.estimated) for (op, _), one in launches.items()],
        uses={use: USE_TITLES[use] for use in USES},
        policies=policies,
    )


def _policy(entry: Entry, comparison: Comparison, kernels: Sequence[int], holds: Sequence[Hold]) -> PolicyReport:
    result = entry.result
    streams = {run.stream: place for place, run in enumerate(result.stream_runs)}
    others, band = without_kernels(result), entry.how_wrong.band
    return PolicyReport(
        policy=result.policy,
        title=in_words(result.policy),
        makespan_us=_short(result.makespan_us),
        speedup=entry.speedup_vs_serial,
        speedup_mark=entry.mark,
        how_wrong=entry.how_wrong.text,
        error_percent=None if band is None else band.mape_percent,
        sharing={name: value for name, value in entry.sharing.items() if value is not None},
        gain_us=None if entry.gain_us is None else dict(entry.gain_us),
        streams=[_times(run) for run in result.stream_runs],
        programs=[_times(run) for run in result.program_runs if result.has_programs],
        runs=[
            ReportedLaunch._make(
                (
                    *(streams[run.stream], kernel, run.request, run.blocks),
                    *(_short(getattr(run, name)) for name in TIMES),
                    run.bound_by,
                )
            )
            for run, kernel in zip(result.kernel_runs[:MOST_RUNS], kernels, strict=False)
        ],
        others=[
            Other(streams[op.stream], op.operation, op.kind, _short(op.start_us), _short(op.end_us))
            for op in others[:MOST_RUNS]
        ],
        left_out=max(0, len(result.kernel_runs) - MOST_RUNS) + max(0, len(others) - MOST_RUNS),
        bin_us=result.usage.bin_us,
        use_percent={
            use: [round(100.0 * share, 2) for share in result.usage.of_device(use)]
            for use in USES
            if use not in result.usage.unknown
        },
        residency=_residency(result, holds, comparison.gpu),
    )


def _times(run: StreamRun | ProgramRun) -> StreamTimes:
    return StreamTimes(_short(run.start_us), _short(run.end_us), run.slowdown)


def _residency(result: Result, holds: Sequence[Hold], gpu: GPU) -> Residency | None:
    if result.residents is None:
        return None
    mixes: dict[Residents, int] = {}
    sms = []
    for held in result.residents:
        turns: list[int] = []
        last = 0
        for at_us, mix in held:
            at = round(at_us * 1e3)
            turns += (at - last, mixes.setdefault(mix, len(mixes)))
            last = at
        sms.append(turns)
    shown = [[Resident(*one, why) for one, why in zip(mix, why_no_more(mix, holds, gpu), strict=True)] for mix in mixes]
    return Residency(mixes=shown, sms=sms)


def _short(us: float) -> float:
    """The time in us, rounded to the nanoseconds that a page shows."""
    return round(us, 3)


def content_text(content: Content) -> str:
    """The content as JSON in a line; the same content gives the same text."""
    return json.dumps(content.model_dump(mode="json"), ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def content_in(folder: str | Path) -> Content:
    """Read the content of a page from the folder of a replay."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise InputError(folder, "", f"holds no {FILE}", "a trace, or a folder that `gpusim replay --out` wrote")
    with validating(Content, path):
        content = Content.model_validate_json(read_bytes(path, LARGEST_BYTES))
    _require_places(content, path)
    return content


def _require_places(content: Content, path: Path) -> None:
    """Refuse positions of streams, kernels, runs and mixes that do not exist."""
    for i, policy in enumerate(content.policies):
        residency = policy.residency or Residency(mixes=[], sms=[])
        places: Mapping[str, tuple[Iterable[int], int]] = {
            "streams": (
                chain((run.stream for run in policy.runs), (op.stream for op in policy.others)),
                len(content.streams),
            ),
            "kernels": ((run.kernel for run in policy.runs), len(content.kernels)),
            "runs": ((one.run for mix in residency.mixes for one in mix), len(policy.runs)),
            "mixes": ((place for turns in residency.sms for place in turns[1::2]), len(residency.mixes)),
        }
        for what, (found, there_are) in places.items():
            if max(found, default=-1) >= there_are:
                raise InputError(path, f"policies[{i}]", f"names {what} that are not there", "as it was written")
        rows = len(policy.streams), len(policy.programs)
        if rows != (len(content.streams), len(content.programs)) or any(len(turns) % 2 for turns in residency.sms):
            raise InputError(path, f"policies[{i}]", "is not whole", "as it was written")
    if not content.policies:
        raise InputError(path, "policies", "is empty", "as it was written")


# ---- why an SM takes no more blocks of a kernel


class Hold(NamedTuple):
    """Resources of one resident block of a kernel, and the limit of resident blocks."""

    footprint: Footprint  # what one block holds
    blocks_per_sm: int  # most resident blocks of this kernel alone
    limiter: int  # which of `FULL` that is for


def hold(launch: KernelLaunch, gpu: GPU) -> Hold:
    """Resources that a resident block of a launch holds on a GPU."""
    fit = launch_occupancy(launch, gpu)
    return Hold(launch_footprint(launch, gpu), fit.blocks_per_sm, LIMITERS[fit.limiter])


def why_no_more(mix: Residents, holds: Sequence[Hold], gpu: GPU) -> tuple[int, ...]:
    """For each kernel that an SM holds why it takes no further block of it, if there is one: a place in `REASONS`.

    The carve-out of an SM depends on the first kernel that came to it while it was idle. That is not looked up here:
    shared memory counts as full where the largest carve-out would be.
    """
    return tuple(_reason([(holds[other], count) for other, count in mix], at, gpu) for at in range(len(mix)))


def _reason(residents: Sequence[tuple[Hold, int]], at: int, gpu: GPU) -> int:
    of, blocks = residents[at]
    one_more = [(hold.footprint, count + (n == at)) for n, (hold, count) in enumerate(residents)]
    exceeds = exceeded(gpu, one_more)
    if exceeds is not None:
        return LIMITERS[exceeds]
    return of.limiter if blocks >= of.blocks_per_sm else REASONS.index(POLICY)
