"""Serial without an event loop, against the event loop: the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import traces

from gpusim import load_gpu, load_trace
from gpusim.engine.serial import in_order, is_chain
from gpusim.session import Session
from gpusim.trace.format import Trace

H200 = load_gpu("h200")
SESSION = Session(H200)
TRACES = Path(__file__).resolve().parent.parent / "traces"


def both(trace: Trace, seed: int = 0) -> tuple[float, float]:
    """The makespan without and with the event loop."""
    session = SESSION.seeded(seed)
    return session.makespan_us(trace, "serial"), max(session.stream_ends_us(trace, "serial").values())


@pytest.mark.parametrize("name", ["inception_3a", "inception_4a", "inception_5a", "resnet50_2a", "googlenet_forward"])
@pytest.mark.parametrize("seed", [0, 3])
def test_shipped_chains(name: str, seed: int) -> None:
    """Some have a call that launches kernels on streams of its own."""
    trace = load_trace(TRACES / f"{name}.json.gz")
    assert is_chain(trace)
    without, with_loop = both(trace, seed)
    assert without == with_loop


@settings(max_examples=100)
@given(trace=traces(max_streams=5, max_operations=8, max_blocks_x=300), seed=st.sampled_from([0, 1]))
def test_random_chains(trace: Trace, seed: int) -> None:
    streams = tuple(
        stream.model_copy(update={"operations": tuple(op for op in stream.operations if op.launches())})
        for stream in trace.streams
    )
    ids = {op.id for stream in streams for op in stream.operations}
    trace = trace.model_copy(
        update={
            "streams": tuple(
                stream.model_copy(
                    update={
                        "operations": tuple(
                            op.model_copy(update={"depends_on": tuple(i for i in op.depends_on if i in ids)})
                            for op in stream.operations
                        )
                    }
                )
                for stream in streams
            )
        }
    )
    assume(ids and is_chain(trace))
    without, with_loop = both(trace, seed)
    assert without == with_loop


def test_streams_that_wait_for_one_another_take_turns() -> None:
    trace = load_trace(TRACES / "spaa20_table1.json")
    (first, *_), (second, *_) = (stream.operations for stream in trace.streams)
    waiting = first.model_copy(update={"depends_on": (second.id,)})
    streams = (
        trace.streams[0].model_copy(update={"operations": (waiting,)}),
        trace.streams[1].model_copy(update={"operations": (second,)}),
    )
    order = [op.id for op in in_order(trace.model_copy(update={"streams": streams}))]
    assert order == sorted(order, key=[second.id, first.id].index)
