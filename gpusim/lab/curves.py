"""Time over one quantity: the SMs of the first of two streams, or the blocks of a kernel that an SM may hold.

Predicted for a trace, by replays; for a dataset (`gpusim.lab.dataset`) as `gpusim validate` does, beside measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpusim.common.errors import InputError, closest, expected_one_of, quote, the_first
from gpusim.common.progress import tracked
from gpusim.common.tables import counted
from gpusim.hardware.gpu import GPU
from gpusim.lab.dataset import Dataset
from gpusim.lab.names import call_in_words
from gpusim.lab.validate import Condition, Predictor, conditions, measurements
from gpusim.policies.oracles import OracleInterSM
from gpusim.policies.quota import Quota
from gpusim.results.error_band import HowWrong, error_band
from gpusim.session import Session
from gpusim.trace.edit import select
from gpusim.trace.format import Trace

UNDIVIDED = {"serial": "one after the other", "leftover": "together, SMs not divided"}  # policies, in words
MOST_NAMED = 6  # of the names that would have been right
LEAST_SMS = 8  # of a part: the fewest that a dataset's green contexts had


@dataclass(frozen=True)
class Curve:
    """Times over a quantity that is varied, such as the blocks that an SM may hold; the last is as many as fit."""

    title: str  # of what, where
    predicted_us: Mapping[int, float]  # time by number, ascending
    measured_us: Mapping[int, float] = field(default_factory=dict)  # likewise; empty where nothing was measured
    # the error found for replays like these; None where the measurement stands beside them
    how_wrong: HowWrong | None = None


@dataclass(frozen=True)
class SplitCurve(Curve):
    """Makespan of two streams against the SMs of the first; the second has the others."""

    streams: tuple[str, str] = ("", "")  # the two
    sm_count: int = 0  # SMs of the GPU
    # predicted makespan by how else they ran, in the words of `UNDIVIDED`
    undivided_us: Mapping[str, float] = field(default_factory=dict)
    measured_undivided_us: Mapping[str, float] = field(default_factory=dict)  # likewise, as measured


# ---- of a trace


def split_of_trace(trace: Trace, gpu: GPU) -> SplitCurve:
    """Every division of the SMs between the two streams of a trace, in steps of a TPC, held throughout."""
    names = [stream.name for stream in trace.streams]
    if len(names) != 2:
        problem = f"leaves {counted(len(names), 'stream')}: {', '.join(names)}"
        raise InputError(None, "streams", problem, "two streams")
    session = Session(gpu)
    divide, step = OracleInterSM(), gpu.sms_per_tpc
    sizes = range(step, gpu.sm_count - step + 1, step)
    policies = [divide.division(names, (sms, gpu.sm_count - sms), False) for sms in sizes]
    found = list(tracked(session.makespans_us(trace, policies), len(sizes), "splits"))
    best = session.replay(trace, policies[found.index(min(found))])
    return SplitCurve(
        f"{trace.name} on {gpu.name}",
        dict(zip(sizes, found, strict=True)),
        how_wrong=error_band(best, trace, gpu),
        streams=(names[0], names[1]),
        sm_count=gpu.sm_count,
        undivided_us={words: session.makespan_us(trace, name) for name, words in UNDIVIDED.items()},
    )


def residency_of_trace(trace: Trace, gpu: GPU, operation: str | None) -> Curve:
    """An operation alone, by its id or the only one, with ever fewer blocks of its kernels allowed on an SM."""
    ids = [op.id for op in trace.operations() if op.launches()]
    if not ids:
        raise InputError(None, trace.name, "launches no kernels", "a trace with an operation that does")
    if operation is None and len(ids) != 1:
        raise InputError(None, "operation", "missing", f"one of {the_first(ids, MOST_NAMED)}")
    if operation is not None and operation not in ids:
        expected = expected_one_of(ids, operation, most=MOST_NAMED)
        raise InputError(None, "operation", f"is {quote(operation)}", expected)
    alone = select(trace, operations=[operation or ids[0]])
    (stream,) = (stream for stream in alone.streams if stream.operations)
    session = Session(gpu)
    kernels = session.kernels(trace)
    most = max(kernels.model(launch, op.id).blocks_per_sm for op in stream.operations for launch in op.launches())
    found = {
        blocks: session.replay(alone, f"{Quota.name}:blocks={stream.name}:{blocks}") for blocks in range(1, most + 1)
    }
    return Curve(
        f"{stream.operations[0].id} of {trace.name} on {gpu.name}",
        {blocks: result.makespan_us for blocks, result in found.items()},
        how_wrong=error_band(found[1], alone, gpu),
    )


# ---- of a dataset


def split_of_dataset(dataset: Dataset, ops: Sequence[str]) -> SplitCurve:
    """Two ops that were measured so: queues of calls on disjoint SMs (green contexts), with as many calls."""
    measured = [condition for condition in conditions(dataset) if condition.experiment == "green"]
    pairs = {tuple(op for (op,) in condition.ops): condition for condition in measured}
    if tuple(ops) not in pairs:
        some = the_first((" ".join(pair) for pair in pairs), MOST_NAMED)
        raise InputError(dataset.folder, "operation", _given(ops), f"two that were measured together: {some}")
    one = pairs[tuple(ops)]
    pair_key = one.key.rsplit("|", 2)[0]
    times = measurements(dataset)
    predictor, most = Predictor(dataset), dataset.gpu.sm_count
    step = dataset.gpu.sms_per_tpc
    sizes = range(LEAST_SMS, most - LEAST_SMS + 1, step)
    predicted = {
        sms: _ms(predictor, Condition("green", pair_key, one.ops, one.calls, sms=(sms, most - sms)))
        for sms in tracked(sizes, len(sizes), "splits")
    }
    together = Condition("streams", pair_key, one.ops, one.calls)
    return SplitCurve(
        f"Two queues of calls on {dataset.gpu.name}, the SMs divided",
        {sms: 1e3 * ms for sms, ms in predicted.items()},
        {c.sms[0]: 1e3 * times["green", c.key] for c in measured if c.key.startswith(f"{pair_key}|")},
        streams=(_calls(ops[0], one.calls[0]), _calls(ops[1], one.calls[1])),
        sm_count=most,
        undivided_us={UNDIVIDED["leftover"]: 1e3 * _ms(predictor, together)},
        measured_undivided_us={
            words: 1e3 * times[mode, pair_key]
            for mode, words in (("alone", UNDIVIDED["serial"]), ("streams", UNDIVIDED["leftover"]))
            if (mode, pair_key) in times
        },
    )


def residency_of_dataset(dataset: Dataset, ops: Sequence[str]) -> Curve:
    """An op that was measured so: a call with ever less shared memory left for its blocks."""
    measured = [condition for condition in conditions(dataset) if condition.experiment == "residency_curve"]
    known = list(dict.fromkeys(condition.ops[0][0] for condition in measured))
    if len(ops) != 1 or ops[0] not in known:
        near = closest(" ".join(ops), known) if ops else ""
        some = the_first(known, MOST_NAMED)
        expected = f"one whose blocks were limited: {some}" + (f"; did you mean {near}?" if near else "")
        raise InputError(dataset.folder, "operation", _given(ops), expected)
    mine = sorted((c for c in measured if c.ops[0][0] == ops[0]), key=lambda condition: condition.blocks)
    times, predictor = measurements(dataset), Predictor(dataset)
    return Curve(
        f"{call_in_words(ops[0])} on {dataset.gpu.name}",
        {c.blocks[0]: 1e3 * _ms(predictor, c) for c in mine},
        {c.blocks[0]: 1e3 * times["residency_curve", c.key] for c in mine},
    )


def _ms(predictor: Predictor, condition: Condition) -> float:
    return predictor.predict(condition)[condition.experiment]


def _calls(op: str, count: int) -> str:
    return f"{call_in_words(op).partition(', ')[0]}, {count} call{'s' * (count != 1)}"


def _given(names: Sequence[str]) -> str:
    return f"is {' and '.join(names)}" if names else "missing"
