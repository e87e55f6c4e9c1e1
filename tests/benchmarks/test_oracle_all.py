"""Every shipped trace against one simpy process a block: minutes in all, so run with `pytest -m benchmark`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import traces
from test_engine_oracle import POLICIES, TOLERANCE, TRACES, both

from gpusim import load_trace
from gpusim.trace.format import Trace

SHIPPED = sorted(path for pattern in ("*.json", "*.json.gz") for path in TRACES.glob(pattern))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name.split(".")[0])
def test_shipped_traces(path: Path) -> None:
    fast, slow = both(load_trace(path), "leftover")
    assert fast.makespan_us == pytest.approx(slow.makespan_us, rel=TOLERANCE)


@settings(max_examples=300, phases=[Phase.explicit, Phase.generate])
@given(trace=traces(max_streams=8, max_operations=6, max_blocks_x=1000), policy=st.sampled_from(POLICIES))
def test_many_random_traces(trace: Trace, policy: str) -> None:
    fast, slow = both(trace, policy)
    assert fast.makespan_us == pytest.approx(slow.makespan_us, rel=TOLERANCE, abs=1e-9)
