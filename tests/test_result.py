"""What a result and a trace look like in a Python session: a line, not their rows."""

from __future__ import annotations

from pathlib import Path

import gpusim

TABLE_1 = Path(__file__).parents[1] / "traces" / "spaa20_table1.json"


def test_a_result_and_a_trace_are_a_line() -> None:
    trace = gpusim.load_trace(TABLE_1)
    assert repr(trace) == str(trace) == "Trace(name='spaa20_table1', device='k40c', streams=2, kernels=2)"
    result = gpusim.replay(trace, gpusim.load_gpu("k40c"), policy="serial")
    makespan = f"{result.makespan_us:.1f}"
    assert repr(result) == f"Result(trace='spaa20_table1', policy='serial', makespan_us={makespan})"
