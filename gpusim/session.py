"""A session: a GPU with the fits and times of recorded kernels on it. All replays go through a session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cache, cached_property, partial
from os import PathLike
from typing import Any, Literal, TypeVar, get_args

from pydantic import TypeAdapter

from gpusim.calibrate.assumptions import WORDS, extremes
from gpusim.calibrate.assumptions import Assumption as Assumption
from gpusim.calibrate.assumptions import warning as warning
from gpusim.calibrate.cache import user_fits
from gpusim.calibrate.kernels import Kernels
from gpusim.common import fingerprint
from gpusim.common.errors import InputError, quote
from gpusim.common.kept import user_kept
from gpusim.common.numbers import is_whole
from gpusim.common.progress import Step, estimated, no_step, require_step
from gpusim.engine import replay as engine
from gpusim.engine.code import CachedCode as CachedCode
from gpusim.engine.isolated import Isolated
from gpusim.engine.replay import Starved as Starved
from gpusim.engine.several_gpus import parts, policies_of
from gpusim.hardware.gpu import GPU, gpu_of, load_shipped_gpu, recorded_by
from gpusim.policies.checks import name_of, shipped
from gpusim.policies.hardware import Serial
from gpusim.policies.interface import Policy
from gpusim.policies.oracles import Oracle
from gpusim.policies.registry import Given, Spec, each_once, spec_of
from gpusim.results.comparison import Comparison, Entry
from gpusim.results.error_band import error_band, was_measured
from gpusim.results.gains import gain_us, sm_time
from gpusim.results.metrics import BASELINE, DEFAULT_POLICIES, normalised_progress, sharing, times_as_long
from gpusim.results.result import Result
from gpusim.trace.file import trace_of
from gpusim.trace.format import StreamOrder, Trace
from gpusim.trace.independent import require_independent

Keep = Literal["placements", "residents", "serial"]
"""What a result may hold beside its rows: where the blocks of each launch ran, which is most of the memory that a long
replay takes; what each SM held over time; the makespan under serial, which takes one more replay of a trace."""
USUAL: tuple[Keep, ...] = ("placements", "serial")
AnyTrace = Trace | str | PathLike[str]  # a trace, or the path of its file
AnyGPU = GPU | str | PathLike[str]  # a GPU, its name or the path of its file

T = TypeVar("T")

MOST_SEED = 2**31 - 1
KEPT = 64  # traces that a session remembers
MANY_KERNELS = 100  # of a trace, from which on processes are worth their start
MOST_PLACED = 20_000  # launches, of which where their blocks ran is kept to tell how wrong an answer may be
ORDER_NOTES: dict[StreamOrder, str] = {
    "inferred": "the source records no waits between streams: their order is inferred from the recorded times",
    "independent": "streams are taken as independent: what they wait for was not recorded or left out",
}


class _Traced:
    """A trace in a session: what its replays share."""

    def __init__(self, trace: Trace, kernels: Kernels, isolated: Isolated) -> None:
        self.trace = trace
        self.played = kernels.worked_out(trace)  # its kernels as long as they take after the others
        self.kernels = kernels  # on the GPU, jittered as fitted
        self.serial_us: dict[int, float] = {}  # makespan under serial, by seed
        # what oracles found, by oracle: for each GPU the best division as a policy, and the notes on it
        self.divisions: dict[str, tuple[dict[int, str], tuple[str, ...]]] = {}
        self.scores: dict[tuple[str, int, str], float] = {}  # the lower the better, by objective, seed and policy
        self._isolated = isolated

    @cached_property
    def hash(self) -> str:
        """A hash of all that the trace holds."""
        return fingerprint.data(self.trace)

    @cached_property
    def recorded_sms(self) -> tuple[int, ...]:
        """As of `Trace.recorded_sms`."""
        return self.trace.recorded_sms()

    @cached_property
    def isolated_us(self) -> dict[str, float]:
        """Makespan of each stream alone on the whole GPU, caches as they are beside the other streams."""
        return {stream.name: self._isolated.stream_us(self.played, stream) for stream in self.played.streams}

    @cached_property
    def programs_us(self) -> dict[str, float]:
        """Makespan of each program alone on the whole GPU, caches as they are beside the other programs."""
        return {
            one.name: self.isolated_us[one.streams[0]]
            if len(one.streams) == 1
            else self._isolated.program_us(self.played, one)
            for one in self.played.programs
        }

    def most_blocks(self) -> list[int]:
        """Of each stream, the most blocks of one of its kernels that an SM holds."""
        return [
            max(
                (self.kernels.model(one, op.id).blocks_per_sm for op in stream.operations for one in op.launches()),
                default=1,
            )
            for stream in self.played.streams
        ]


class Session:
    """Replays traces on one GPU. It fits each kernel once, and computes isolated times and the serial baseline once.

    Args:
        gpu: where to replay: a GPU, its name or the path of its file.
        recorded_on: the GPU that traces were recorded on; None: the one that each trace names.
        seed: random seed of block-duration jitter; 0: as fitted to the recording.
        cache: whether to use what the user's cache keeps of earlier fits and replays, and to keep new ones there.
    """

    def __init__(self, gpu: AnyGPU, recorded_on: AnyGPU | None = None, seed: int = 0, *, cache: bool = False) -> None:
        _require_seed(seed)
        _require_bool("cache", cache)
        self.gpu = gpu_of(gpu)
        self.recorded_on = None if recorded_on is None else gpu_of(recorded_on, "recorded_on")
        self.seed = int(seed)
        self._fits = user_fits() if cache else None
        self._kept = user_kept("replays") if cache else None
        self._like: Session | None = None
        self._kernels: dict[str, tuple[Kernels, Isolated]] = {}  # by the device that traces name
        self._traces: dict[int, _Traced] = {}  # by id, the one asked for last at the end

    def seeded(self, seed: int) -> Session:
        """The same session with another seed; what it knows is shared.

        Raises:
            InputError: it is no whole number, or out of range.
        """
        _require_seed(seed)
        other = copy(self)
        other.seed, other._traces = int(seed), self._traces
        return other

    def __getstate__(self) -> dict[str, object]:
        """What another process needs: not what is found by the ids of traces, which are others there."""
        return self.__dict__ | {"_traces": {}}

    def on(self, gpu: AnyGPU) -> Session:
        """A session on another GPU for the same recordings; what was fitted to them is shared."""
        other = Session(gpu, self.recorded_on, self.seed)
        other._fits, other._kept, other._like = self._fits, self._kept, self
        return other

    # ---- replays

    def replay(
        self,
        trace: AnyTrace,
        policy: str | Spec | Given | Policy = "leftover",
        *,
        restart: bool | int = False,
        keep: Collection[Keep] = USUAL,
        only_disturbed: bool = False,
    ) -> Result:
        """Replay a trace under a policy; arguments and errors as of `gpusim.replay`.

        ``restart`` may also be how often each program is to end: the more, the less counts that they start together.
        ``only_disturbed``: as of `gpusim.engine.replay.replay`.
        An oracle replays many divisions and gives the best; it always keeps placements.
        """
        _require_wanted(restart, keep)
        asked, trace = spec_of(policy) if isinstance(policy, str) else policy, trace_of(trace)
        made = asked.make() if isinstance(asked, Spec | Given) else asked
        traced = self._traced(trace)
        notes: tuple[str, ...] = ()
        division = ""
        if isinstance(made, Oracle):
            found, notes = self._divisions(trace, made)
            policies = {at: spec_of(text).make() for at, text in found.items()}
            several = len(found) > 1
            division = "; ".join(f"GPU {at}: {text}" if several else text for at, text in found.items())
            keep = {*keep, "placements"}
        else:
            policies = policies_of(made, trace)
        result = self._run(trace, policies, restart, keep, only_disturbed)
        if not restart and type(made) is Serial:
            traced.serial_us.setdefault(self.seed, result.makespan_us)
        return replace(
            result,
            policy=asked.text if isinstance(asked, Spec | Given) else name_of(made),
            notes=(*self._recording_notes(trace), *result.notes, *notes),
            division=division,
            serial_us=self.serial_us(trace) if "serial" in keep and not restart else None,
        )

    def compare(
        self,
        trace: AnyTrace,
        policies: str | Policy | Sequence[str | Policy] = DEFAULT_POLICIES,
        *,
        restart: bool = False,
        keep: Collection[Keep] = USUAL,
        step: Step = no_step,
    ) -> Comparison:
        """Replay a trace under each policy, and under serial for the speedups; arguments as of `gpusim.compare`.

        A policy that is given twice counts once. Serial is always kept, and so are the placements of a short trace.
        ``step`` is called with the name of each step before it starts.
        """
        _require_bool("restart", restart)
        _require_wanted(restart, keep)
        require_step(step)
        trace = trace_of(trace)
        specs = self._checked(trace, policies)
        step("fitting kernels to their recording")
        programs_us = self._traced(trace).programs_us
        if restart:
            require_independent(trace, programs_us)
        if trace.kernel_count() <= MOST_PLACED:
            keep = {*keep, "placements"}
        keep = {*keep, "serial"}
        results: dict[str, Result] = {}
        wanted = {spec.text: spec for spec in specs}
        baseline = {BASELINE: wanted.get(BASELINE) or spec_of(BASELINE)} if "placements" in keep else {}
        runs = sorted((baseline | wanted).values(), key=lambda spec: spec.text != BASELINE)
        for i, spec in enumerate(runs):
            with estimated(step, f"replaying under {spec.text} ({i + 1} of {len(runs)})"):
                results[spec.text] = self.replay(trace, spec, keep=keep)
        serial = results.get(BASELINE)
        serial_time = sm_time(serial) if serial else None
        entries: list[Entry] = []
        for spec in specs:
            step(f"comparing {spec.text}")
            result = results[spec.text]
            again, notes = self._restarted(trace, spec, result, step) if restart else (None, ())
            entries.append(
                Entry(
                    result,
                    speedup_vs_serial=times_as_long(self.serial_us(trace), result.makespan_us),
                    how_wrong=error_band(result, trace, self.gpu, self.recorded_on),
                    rests_on_order=trace.order is not None and spec.text != BASELINE,
                    restarted=again,
                    notes=(*result.notes, *notes),
                    gain_us=gain_us(serial_time, sm_time(result)),
                )
            )
        entries.sort(key=lambda entry: entry.merit)
        spans, notes = self._assumed(trace, wanted, [entry.result for entry in entries], step)
        return Comparison(
            trace,
            self.gpu,
            tuple(entries),
            restart,
            self.seed,
            self.recorded_on,
            assumed_us=spans,
            more_notes=notes,
        )

    def makespan_us(self, trace: AnyTrace, policy: str | Policy) -> float:
        """Only the makespan of a replay."""
        trace = trace_of(trace)
        ends = self.stream_ends_us(trace, policy)
        return max((ends[stream.name] for stream in trace.streams if stream.operations), default=0.0)

    def makespans_us(self, trace: AnyTrace, policies: Sequence[str]) -> Iterator[float]:
        """Only the makespan of a replay under each policy, in order; of a long trace on all cores."""
        trace = trace_of(trace)
        self._checked(trace, policies)
        return self._scores(trace, policies, "makespan")

    def stream_ends_us(self, trace: AnyTrace, policy: str | Policy) -> dict[str, float]:
        """Only the end of each stream in a replay."""
        trace, made = trace_of(trace), spec_of(policy).make() if isinstance(policy, str) else policy
        return engine.stream_ends(self._traced(trace).played, self.gpu, policies_of(made, trace), self.kernels(trace))

    # ---- what replays share

    def kernels(self, trace: AnyTrace) -> Kernels:
        """The kernels of a trace as replayed."""
        return self._kernels_of(trace_of(trace))[0].seeded(self.seed)

    def isolated_us(self, trace: AnyTrace) -> Mapping[str, float]:
        """Time from release to end of each stream alone on the whole GPU, its dependencies on others dropped."""
        return self._traced(trace_of(trace)).isolated_us

    def programs_us(self, trace: AnyTrace) -> dict[str, float]:
        """Isolated time of each program, its streams beside one another."""
        return self._traced(trace_of(trace)).programs_us

    def operations_us(self, trace: AnyTrace) -> dict[str, float]:
        """Isolated time of each operation, by id; caches are as in the recording."""
        trace = trace_of(trace)
        isolated = self._kernels_of(trace)[1]
        return {op.id: isolated.operation_us(trace, op) for op in trace.operations()}

    def serial_us(self, trace: AnyTrace) -> float:
        """Makespan under serial, the baseline of speedups."""
        trace = trace_of(trace)
        known = self._traced(trace).serial_us
        if self.seed not in known:
            known[self.seed] = self.makespan_us(trace, Serial())
        return known[self.seed]

    def extremes(self, trace: AnyTrace) -> dict[Assumption, Trace]:
        """Return the trace twice: as if arithmetic, and as if memory, had bound the kernels without counters.

        Empty where nothing depends on that.
        """
        trace = trace_of(trace)
        return extremes(trace, self._recorder(trace))

    # ---- within

    def _assumed(
        self, trace: Trace, specs: Mapping[str, Spec | Given], results: Sequence[Result], step: Step
    ) -> tuple[dict[str, tuple[float, float]], tuple[str, ...]]:
        """Least and most makespan of each policy over what may bind kernels without counters, and what to say of it."""
        if sum(bool(stream.operations) for stream in trace.streams) < 2:
            return {}, ()  # nothing shares the GPU
        spans = {result.policy: [result.makespan_us] for result in results}
        winners: dict[Assumption, str] = {}
        for assumption, other in self.extremes(trace).items():
            step(f"replaying as if {WORDS[assumption]} bound the kernels without counters")
            found = {policy: self.replay(other, spec, keep=()).makespan_us for policy, spec in specs.items()}
            winners[assumption] = min(found, key=lambda policy: round(found[policy], 6))
            for policy, us in found.items():
                spans[policy].append(us)
        if not winners:
            return {}, ()
        within = {policy: (min(us), max(us)) for policy, us in spans.items()}
        best = results[0].policy
        return within, (warning(trace, best, within[best], winners),)

    def _recorder(self, trace: Trace) -> GPU:
        if self._like is not None:
            return self._like._recorder(trace)
        return self.recorded_on or recorded_by(trace.device, self.gpu)

    def _kernels_of(self, trace: Trace) -> tuple[Kernels, Isolated]:
        """The kernels recorded on the GPU of a trace, jittered as fitted, and their isolated times."""
        if trace.device not in self._kernels:
            like = None if self._like is None else self._like._kernels_of(trace)[0]
            kernels = Kernels(self._recorder(trace), self.gpu, like=like, fits=self._fits)
            self._kernels[trace.device] = kernels, Isolated(self.gpu, kernels)
        return self._kernels[trace.device]

    def _traced(self, trace: Trace) -> _Traced:
        """Kernels and times known for a trace; the least recently used traces are forgotten."""
        known = self._traces.pop(id(trace), None) or _Traced(trace, *self._kernels_of(trace))
        self._traces[id(trace)] = known
        if len(self._traces) > KEPT:
            del self._traces[next(iter(self._traces))]
        return known

    def _checked(self, trace: Trace, policies: str | Policy | Sequence[str | Policy]) -> list[Spec | Given]:
        """Policies by their text, each once; what is wrong with one shows before the first is replayed."""
        several = [policies] if isinstance(policies, str | Policy) else policies
        if not (isinstance(several, Sequence) and several and all(isinstance(one, str | Policy) for one in several)):
            expected = "names of policies, such as ['serial', 'leftover'], or policy objects"
            raise InputError(None, "policies", f"is {quote(policies)}", expected)
        specs = each_once(several)
        for spec in specs:
            made = spec.make()
            if not isinstance(made, Oracle):
                for at, one in policies_of(made, trace).items():
                    one.prepare(self.gpu, [stream.name for stream in trace.streams if stream.gpu == at])
        return specs

    def _run(
        self,
        trace: Trace,
        policies: Mapping[int, Policy],
        restart: int,
        keep: Collection[Keep],
        only_disturbed: bool = False,
    ) -> Result:
        """A replay as the engine knows it, under one policy for each GPU."""
        traced, kernels = self._traced(trace), self.kernels(trace)
        if restart:
            require_independent(trace, traced.programs_us)
        on = traced.played, self.gpu, policies, kernels, traced.isolated_us, traced.programs_us
        return engine.replay(*on, restart=restart, keep=keep, only_disturbed=only_disturbed)

    def _restarted(
        self, trace: Trace, spec: Spec | Given, once: Result, step: Step
    ) -> tuple[Result | None, tuple[str, ...]]:
        """The same with programs that restart, and why there is none."""
        try:
            with estimated(step, f"replaying under {once.division or spec.text}, programs restarting"):
                return self.replay(trace, spec, restart=True, keep=()), ()
        except Starved as error:
            return None, (f"no STP: {error.problem}",)

    def _divisions(self, trace: Trace, oracle: Oracle) -> tuple[dict[int, str], tuple[str, ...]]:
        """The best division of each GPU, as a policy, and notes on how they were found.

        GPUs that wait for one another are refused, and with ``objective=stp`` programs that cannot restart.
        """
        traced, key = self._traced(trace), f"{oracle!r} {self.seed}"
        if key in traced.divisions:
            return traced.divisions[key]
        if oracle.objective == "stp":
            require_independent(trace, traced.programs_us)
        found: dict[int, str] = {}
        notes: list[str] = []
        for part in parts(trace, self.gpu):
            if len(part.gpus) > 1:
                waiting = f"GPUs {', '.join(map(str, part.gpus))} wait for one another"
                raise InputError(None, f"policy {oracle.name}", waiting, "GPUs that do not: each is divided by itself")
            (at,) = part.gpus
            mine = self._traced(part.trace)
            score = partial(self._scores, part.trace, objective=oracle.objective)
            found[at], note = oracle.search(self.gpu, mine.isolated_us, mine.most_blocks(), score)
            notes.append(note)
        if len(found) > 1:
            notes = [f"GPU {at}: {note}" for at, note in zip(found, notes, strict=True)]
        traced.divisions[key] = found, tuple(notes)
        return traced.divisions[key]

    def _scores(self, trace: Trace, policies: Sequence[str], objective: str) -> Iterator[float]:
        """How good policies are by an objective of oracles, the lower the better; each is replayed once."""
        from gpusim.common.cores import FORKS, in_order

        known, seed = self._traced(trace).scores, self.seed
        new = [text for text in dict.fromkeys(policies) if (objective, seed, text) not in known]
        self.isolated_us(trace)  # fits its kernels once, for all processes
        long = trace.kernel_count() >= MANY_KERNELS
        scores = in_order(partial(self._score, trace, objective), new, None if long and FORKS else 1)
        coming = zip(new, scores, strict=True)
        for text in policies:
            while (objective, seed, text) not in known:
                replayed, score = next(coming)
                known[objective, seed, replayed] = score
            yield known[objective, seed, text]

    def _score(self, trace: Trace, objective: str, policy: str) -> float:
        """As of `_replayed_score`, or as kept."""
        replay = partial(self._replayed_score, trace, objective, policy)
        return self.kept(trace, policy, objective, "gpusim.session", float, replay)

    def kept(self, trace: Trace, policy: str, asked: str, module: str, kind: type[T], replay: Callable[[], T]) -> T:
        """A result of replays of a trace under a policy: as it was kept for this user, or else replayed now, and kept.

        ``asked`` tells it from all else that the ``module`` finds so. A session without the cache keeps nothing, and
        nothing is kept of policies of users, whose files may change.
        """
        if self._kept is None or not shipped(spec_of(policy).policy):
            return replay()
        given = self._traced(trace).hash, self.gpu, self._recorder(trace), self.seed
        key = fingerprint.data([fingerprint.sources(module, "gpusim.policies"), *given, policy, asked])
        plain: TypeAdapter[T] = _plain_data(kind)  # type: ignore[arg-type]  # every type is hashable
        with suppress(ValueError):  # as of any validation
            return plain.validate_python(self._kept.find(key))
        found = replay()
        self._kept.keep(key, plain.dump_python(found, mode="json"))
        return found

    def _replayed_score(self, trace: Trace, objective: str, policy: str) -> float:
        """The makespan; or STP of programs that restart, below 0; 0 where one of them starves."""
        if objective != "stp":
            return self.makespan_us(trace, policy)
        try:
            result = self._run(trace, policies_of(spec_of(policy).make(), trace), True, ())
        except Starved:
            return 0.0
        return -sharing(normalised_progress(result))["stp"]

    def _recording_notes(self, trace: Trace) -> tuple[str, ...]:
        """Notes about the GPU on which the kernels were fitted."""
        device, gpu = self._recorder(trace), self.gpu
        notes = []
        if trace.order is not None:
            notes.append(f"{ORDER_NOTES[trace.order]}, and speedups marked * rest on that")
        if trace.stands_for is not None:
            notes.append(f"recorded on {trace.stands_for}, taken as recorded on {trace.device}: not validated")
        if parts := ", ".join(map(str, self._traced(trace).recorded_sms)):
            notes.append(
                f"kernels recorded on {parts} of {device.sm_count} SMs: replays on other numbers are not validated, "
                "and speedups are over the same kernels on all SMs, where libraries may choose others"
            )
        if device.name != trace.device:
            notes.append(f"taken as recorded on {device.name}; the trace says {trace.device}")
        if device != gpu:
            doubt = "" if was_measured(device, gpu) else ": not validated"
            notes.append(f"recorded on {device.name}, replayed on {gpu.name}{doubt}")
            launches = [launch for operation in trace.operations() for launch in operation.launches()]
            estimated = sum(launch.estimated for launch in launches)
            communicating = sum(bool(launch.communicates) for launch in launches)
            if communicating:
                notes.append(
                    f"{communicating} of {len(launches)} kernels exchange data with other GPUs: recorded durations kept"
                )
            if estimated:
                notes.append(f"{estimated} of {len(launches)} kernels have no counters: estimated on {gpu.name}")
        return tuple(notes)


@cache
def _plain_data(kind: Any) -> TypeAdapter[Any]:
    """To and from plain data; making it takes longer than using it."""
    return TypeAdapter(kind)


def _require_seed(seed: object) -> None:
    """Refuse a seed that is no whole number, or out of range."""
    if not is_whole(seed, MOST_SEED):
        raise InputError(None, "seed", f"is {quote(seed)}", f"a whole number from 0 to {MOST_SEED}")


def _require_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(None, name, f"is {quote(value)}", "True or False")


def _require_wanted(restart: object, keep: object) -> None:
    """Refuse values of ``restart`` and ``keep`` that have another type or unknown names."""
    if not isinstance(restart, int) or restart < 0:
        raise InputError(None, "restart", f"is {quote(restart)}", "True or False")
    known = get_args(Keep)
    if isinstance(keep, str) or not isinstance(keep, Collection) or not all(one in known for one in keep):
        raise InputError(None, "keep", f"is {quote(keep)}", f"a list of some of {', '.join(known)}")


# ---- one call


def opened(
    trace: AnyTrace, gpu: Session | AnyGPU | None, recorded_on: AnyGPU | None = None, seed: int = 0
) -> tuple[Trace, Session]:
    """The trace and the session to replay it in: ``gpu`` if that is one, else a new one. Arguments as of `replay`."""
    found = trace_of(trace)
    if isinstance(gpu, Session):
        return found, gpu
    device = None if recorded_on is None else gpu_of(recorded_on, "recorded_on")
    return found, Session(gpu if gpu is not None else device or load_shipped_gpu(found.device), device, seed)


def replay(
    trace: AnyTrace,
    gpu: AnyGPU | None = None,
    policy: str | Policy = "leftover",
    *,
    seed: int = 0,
    recorded_on: AnyGPU | None = None,
    restart: bool = False,
    keep: Collection[Keep] = USUAL,
) -> Result:
    """Replay a trace under a policy. For many replays make one `Session`, which fits each kernel once.

    Args:
        trace: the trace: a `Trace`, the path of its file, or ``sample:NAME``.
        gpu: the GPU of the replay: a `GPU`, its name or the path of its file; None: the GPU of the recording.
        policy: a name with parameters, such as ``"inter-sm:sms=64+68"``, or a fresh `Policy` object.
        seed: random seed of block-duration jitter; 0: as fitted to the recording.
        recorded_on: the GPU of the recording, if the trace names one that does not ship.
        restart: whether every program starts again when its streams have ended, until each has ended once. STP, ANTT
            and fairness need it. Programs that wait for one another, or have arrivals, cannot restart.
        keep: additional data in the result: ``placements`` (where blocks ran), ``residents`` (blocks on each SM),
            ``serial`` (the makespan under serial, which takes one more replay).

    Raises:
        InputError: a kernel that fits no SM, an unknown policy or parameter, a policy that leaves kernels waiting for
            ever, programs that cannot restart.
    """
    _require_bool("restart", restart)
    found, session = opened(trace, gpu, recorded_on, seed)
    return session.replay(found, policy, restart=restart, keep=keep)


def compare(
    trace: AnyTrace,
    gpu: AnyGPU | None = None,
    policies: str | Policy | Sequence[str | Policy] = DEFAULT_POLICIES,
    *,
    seed: int = 0,
    recorded_on: AnyGPU | None = None,
    restart: bool = False,
    keep: Collection[Keep] = USUAL,
) -> Comparison:
    """Replay a trace under each policy, and compare the results. `Comparison.table` is a DataFrame.

    Other arguments, and errors, are those of `replay`.

    Args:
        trace: the trace.
        gpu: the GPU of the replay.
        policies: names with parameters or fresh `Policy` objects, or one of these; serial is replayed anyway, for the
            speedups.
        seed: random seed of block-duration jitter.
        recorded_on: the GPU of the recording.
        restart: whether to replay it again with programs that restart, for STP, ANTT and fairness.
        keep: additional data in the results.
    """
    found, session = opened(trace, gpu, recorded_on, seed)
    return session.compare(found, policies, restart=restart, keep=keep)
