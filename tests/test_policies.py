"""What holds of every policy: nothing is lost, a lone stream runs as under serial, each explains itself."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, traces
from views import kernel

from gpusim import load_gpu, load_trace
from gpusim.policies.oracles import Oracle
from gpusim.policies.registry import parameters_of, policies, policy_from
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.format import Trace

H200 = load_gpu("h200")
SESSION = Session(H200)
WITHOUT_TURNS = replace(H200, model=H200.model.model_copy(update={"stream_turn_us": 0.0}))
NO_TURNS = Session(WITHOUT_TURNS, WITHOUT_TURNS)
TRACES = Path(__file__).resolve().parent.parent / "traces"

RULES = sorted(name for name, policy in policies().items() if not issubclass(policy, Oracle))
VARIANTS = [
    "leftover:channels=1",
    "leftover:channels=3",
    "leftover:channels=0",
    "inter-sm:rule=smart-even",
    "inter-sm:rule=rounds",
    "inter-sm:rule=profile",
    "inter-sm:granularity=40",
    "mps:percent=30",
    "mps:percent=12.5",
    "mig:slices=1g",
    "tpc-mask:masks=ffffffffffffff0",
    "quota:blocks=branch0:1",
    "quota:blocks=branch0:2,release=true",
]
PARTS = {"mps:percent=30", "mps:percent=12.5", "mig:slices=1g", "tpc-mask:masks=ffffffffffffff0"}
NEVER_WHOLE = PARTS | {"quota:blocks=branch0:1"}


def nothing_is_lost(trace: Trace, result: Result) -> None:
    """Every operation of every request ran, and every block of every launch was placed once."""
    launches = {(op.id, i): launch for op in trace.operations() for i, launch in enumerate(op.launches())}
    operations = {s.name: len(s.operations) for s in trace.streams}
    assert len(result.operation_runs) == sum(operations[request.stream] for request in result.request_runs)
    placed = [0] * len(result.kernel_runs)
    for placement in result.placements:
        placed[placement.run] += placement.blocks
    for run, blocks in zip(result.kernel_runs, placed, strict=True):
        model = SESSION.kernels(trace).model(launches[(run.operation, run.index)], "")
        assert blocks == run.blocks
        assert run.blocks == model.blocks


@examples(40)
@given(trace=traces(max_streams=8), policy=st.sampled_from(RULES + VARIANTS))
def test_no_policy_loses_work(trace: Trace, policy: str) -> None:
    if "branch0" in policy and trace.streams[0].name != "branch0":
        return
    if policy == "mig:slices=1g" and len(trace.streams) > 7:
        policy = "mig"
    nothing_is_lost(trace, SESSION.replay(trace, policy))


@examples(20)
@given(trace=traces(max_streams=3, max_operations=4, with_arrivals=True), policy=st.sampled_from(RULES + VARIANTS))
def test_no_policy_loses_requests(trace: Trace, policy: str) -> None:
    if "branch0" in policy and trace.streams[0].name != "branch0":
        return
    nothing_is_lost(trace, SESSION.replay(trace, policy))


@examples(25)
@given(trace=traces(max_streams=1, max_operations=5), policy=st.sampled_from(RULES + VARIANTS))
def test_a_stream_alone_runs_as_under_serial(trace: Trace, policy: str) -> None:
    """But for the turns of streams that a library opens itself: with SMs of their own they wait for half as many."""
    if policy in NEVER_WHOLE or ("branch0" in policy and trace.streams[0].name != "branch0"):
        return
    serial, result = NO_TURNS.replay(trace, "serial"), NO_TURNS.replay(trace, policy)
    assert result.makespan_us == serial.makespan_us
    assert result.kernel_runs == serial.kernel_runs


@pytest.mark.parametrize("policy", RULES + [v for v in VARIANTS if "branch0" not in v])
def test_every_policy_replays_a_module(policy: str) -> None:
    trace = load_trace(TRACES / "inception_3a.json.gz")
    nothing_is_lost(trace, SESSION.replay(trace, policy))


@pytest.mark.parametrize("name", sorted(policies()))
def test_every_policy_explains_itself(name: str) -> None:
    policy = policies()[name]
    assert policy.name == name
    assert policy.summary and "\n" not in policy.summary and not policy.summary.endswith(".")
    known = {parameter.name: parameter for parameter in parameters_of(policy)}
    assert set(known) == {f.name for f in fields(policy) if f.init}
    assert all(parameter.description for parameter in known.values())
    assert type(policy_from(name)) is policy


def test_a_launch_is_the_same_later_but_for_how_far_it_is() -> None:
    before = kernel(3, queued=(2.0, 1), operation="conv")
    assert before.later(5, 7, True) == before._replace(waiting=5, resident=7, started=True)
    assert before.later(5, 7, False) == before._replace(waiting=5, resident=7, started=False)
