"""A session works out once what its replays share, and every way in gives the same."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import kernel, stream, tiny, trace

import gpusim
from gpusim import InputError, Session
from gpusim.calibrate import kernels as calibration
from gpusim.engine import replay as engine
from gpusim.policies import registry
from gpusim.trace.format import Trace

TABLE_1 = Path(__file__).resolve().parent.parent / "traces" / "spaa20_table1.json"


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Any]]:
    """Counts calls: gives the list that the first arguments of each are added to."""

    def counted(of: Any, name: str) -> list[Any]:
        calls: list[Any] = []
        function = getattr(of, name)
        monkeypatch.setattr(of, name, lambda *args, **more: (calls.append(args[0]), function(*args, **more))[1])
        return calls

    return counted


def two() -> Trace:
    return trace(stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))


def test_kernels_are_fitted_once_and_a_trace_is_worked_out_once(count: Callable[[Any, str], list[Any]]) -> None:
    fits, contexts = count(calibration, "fitted"), count(calibration, "in_context")
    session, made = Session(tiny()), two()
    for policy in ("leftover", "inter-sm", "oracle-inter-sm"):
        session.replay(made, policy)
    session.seeded(3).replay(made, "leftover", restart=True)
    assert (len(fits), len(contexts)) == (2, 1)


def test_the_text_of_a_policy_is_read_once(count: Callable[[Any, str], list[Any]]) -> None:
    read = count(registry, "_arguments")
    Session(tiny()).compare(two(), ["leftover", "serial", "inter-sm:sms=3+1"], restart=True)
    assert len(read) == 3


def test_an_oracle_searches_once_for_both_ways_to_run(count: Callable[[Any, str], list[Any]]) -> None:
    ends = count(engine, "stream_ends")
    session, made = Session(tiny()), two()
    once = session.replay(made, "oracle-inter-sm")
    searched = len(ends)
    again = session.replay(made, "oracle-inter-sm", restart=True)
    assert len(ends) == searched > 3
    assert again.division == once.division and again.passes is not None
    assert session.replay(made, "oracle-inter-sm:step=2").makespan_us >= once.makespan_us
    assert len(ends) == searched, "each of its splits was replayed before"


def test_a_session_gives_what_one_call_gives() -> None:
    session = Session("k40c")
    for policy in ("leftover", "serial"):
        assert session.replay(TABLE_1, policy) == gpusim.replay(TABLE_1, "k40c", policy)
    mine, other = session.compare(TABLE_1), gpusim.compare(TABLE_1)
    assert mine.table.equals(other.table) and mine.notes == other.notes
    made = two()
    assert Session(tiny(), seed=np.int64(2)).replay(made) == Session(tiny()).seeded(2).replay(made)
    assert Session(tiny()).on(tiny(8)).replay(made) == Session(tiny(8), tiny()).replay(made)


def test_a_result_holds_what_was_asked_for() -> None:
    session, made = Session(tiny()), two()
    usual, bare = session.replay(made), session.replay(made, keep=())
    assert usual.placements and usual.residents is None and usual.serial_us == session.serial_us(made) == 32.0
    assert not bare.placements and bare.serial_us is None and "speedup" not in bare.metrics
    assert pickle.loads(pickle.dumps(usual)).metrics == usual.metrics
    assert (
        session.makespan_us(made, "leftover")
        == usual.makespan_us
        == max(session.stream_ends_us(made, "leftover").values())
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"restart": "x"}, "restart: is 'x'; expected True or False"),
        ({"keep": 5}, "keep: is 5; expected a list of some of placements, residents, serial"),
        ({"keep": "serial"}, "keep: is 'serial'; expected a list of some of placements, residents, serial"),
        ({"keep": ["rows"]}, "keep: is ['rows']; expected a list of some of placements, residents, serial"),
    ],
)
def test_what_a_result_cannot_hold(wrong: dict[str, Any], said: str) -> None:
    session, made = Session(tiny()), two()
    for replayed in (session.replay, session.compare):
        with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
            replayed(made, "leftover", **wrong)


def test_more_traces_than_are_remembered() -> None:
    session = Session(tiny())
    found = {session.replay(two()).makespan_us for _ in range(100)}
    assert found == {31.0} and len(session._traces) <= 64


def test_a_seed_that_is_none() -> None:
    with pytest.raises(InputError, match=r"^seed: is -1; expected a whole number from 0 to 2147483647$"):
        Session("h200", seed=-1)
