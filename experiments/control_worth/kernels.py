"""Pairs of BF16 kernels: what priorities and SM splits gain over plain streams.

They were measured on an H200 for experiments/unseen_kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from experiments.control_worth.report import Row, gain, of_pairs
from experiments.rows import lines
from experiments.unseen_kernels.run import BF16_CASE
from gpusim.common.tables import grouped
from gpusim.lab.validate import Condition, Confined, Predictor
from gpusim.policies.hardware import Leftover
from gpusim.session import Session
from gpusim.trace.format import Trace

LEVELS = ("priorities", "masks")
PLAIN = ("streams", "streams_b_first")  # modes of pairs.csv: the streams start in either order
FILES = ("pairs.csv", "priorities.csv")


def rows() -> Iterator[Row]:
    """Every pair under every setting that needs control over the GPU, against plain streams."""
    for pair in dict.fromkeys((row["a"], row["b"]) for row in recorded()):
        yield from of_pair(*pair)


def recorded() -> list[dict[str, str]]:
    """What was measured of all pairs."""
    return [row for name in FILES for row in lines(Path(BF16_CASE.folder) / name)]


def of_pair(a: str, b: str) -> Iterator[Row]:
    """The rows of one pair of kernels."""
    session, predictor = _at_hand()
    found = [row for row in recorded() if (row["a"], row["b"]) == (a, b) and row["mode"] != "alone"]
    for mine in grouped(found, _pair).values():
        yield from _of_pair(mine, session, predictor)


@cache
def _at_hand() -> tuple[Session, Predictor]:
    return Session(BF16_CASE.gpu), Predictor(BF16_CASE.load())


def _pair(row: Mapping[str, str]) -> tuple[str, ...]:
    return row["a"], row["na"], row["b"], row["nb"]


def _of_pair(measured: Sequence[Mapping[str, str]], session: Session, predictor: Predictor) -> Iterator[Row]:
    a, a_calls, b, b_calls = _pair(measured[0])
    calls = int(a_calls), int(b_calls)
    trace = predictor.trace(Condition("streams", "pair", ((a,), (b,)), calls))
    plans = grouped(measured, _plan)
    plain_us, plain_measured_us = _expected_us(trace, session), fmean(_measured_us(plans.pop("")))
    alone_us = session.makespan_us(trace, "serial") / sum(calls)
    for plan, mine in plans.items():
        level, us = _predicted(plan, mine[0], trace, session)
        times = _measured_us(mine)
        yield Row(
            workload=f"{a_calls} x {a} + {b_calls} x {b}",
            level=level,
            plan=plan,
            sharing=mine[0]["mode"],
            predicted_us=us,
            measured_us=fmean(times),
            least_us=min(times),
            most_us=max(times),
            predicted_gain=gain(plain_us, us),
            measured_gain=gain(plain_measured_us, fmean(times)),
            operation_us=alone_us,
        )


def _plan(row: Mapping[str, str]) -> str:
    """What a row needs control for; empty: plain streams. Which stream was launched first is no choice."""
    if row["mode"] in PLAIN:
        return ""
    return f"{row['sms_a']}+{row['sms_b']}" if row["mode"] == "green" else row["mode"].removesuffix("_b_first")


def _predicted(plan: str, row: Mapping[str, str], trace: Trace, session: Session) -> tuple[str, float]:
    """Level of control and expected makespan of a plan, us."""
    if row["mode"] == "green":
        sms = int(row["sms_a"]), int(row["sms_b"])
        return "masks", session.makespan_us(trace, Confined(sms)) + session.gpu.model.event_overhead_us
    return "priorities", _expected_us(trace, session, urgent=plan[0])


def _expected_us(trace: Trace, session: Session, urgent: str = "") -> float:
    """Makespan in plain streams, the mean over both orders of their start; ``urgent``: the stream of high priority."""
    streams = [one.model_copy(update={"priority": int(one.name == urgent)}) for one in trace.streams]
    orders = (trace.model_copy(update={"streams": tuple(one)}) for one in (streams, streams[::-1]))
    return fmean(session.makespan_us(one, Leftover()) for one in orders) + session.gpu.model.event_overhead_us


def _measured_us(rows: Sequence[Mapping[str, str]]) -> list[float]:
    return [float(row["ms_makespan"]) * 1e3 for row in rows]


def page(found: Sequence[Row]) -> dict[str, object]:
    """What the page says of them."""
    return of_pairs("kernel", found, LEVELS)
