"""The parts of the bound of all plans: programs, the progress of many mixes at once, streams, and what mixes earn."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from test_choose_bound import bounded

from gpusim.choose.lanes_bound import least_in_any_lanes, least_in_lanes
from gpusim.choose.least import KernelBounds, Least
from gpusim.choose.mixes_array import MixArrays
from gpusim.choose.mixes_bound import Option, OptionKernel, linear_program, one_by_one_us, option_kernel, progress_in
from gpusim.choose.simplex import maximum
from gpusim.model.contention import mix_times
from gpusim.model.kernel import KernelModel
from gpusim.model.mixing import Use, progress
from gpusim.model.occupancy import Footprint
from gpusim.trace.graph import Graph


@examples(100)
@given(st.integers(0, 2**32 - 1))
def test_a_program_is_solved(seed: int) -> None:
    """Against all corners of two variables: where two constraints bind, or one and an axis, or none."""
    random = np.random.default_rng(seed)
    rows, most, target = random.uniform(0.1, 1.0, (4, 2)), random.uniform(0.0, 1.0, 4), random.uniform(0.0, 1.0, 2)
    every, ends = np.vstack([rows, np.eye(2)]), np.append(most, [0.0, 0.0])
    corners = [np.linalg.solve(every[[a, b]], ends[[a, b]]) for a, b in permutations(range(6), 2) if a < b]
    able = [one for one in corners if (rows @ one <= most + 1e-9).all() and (one >= -1e-9).all()]
    found = maximum(target, rows, most)
    assert (rows @ found <= most + 1e-6).all()
    assert target @ found == pytest.approx(max(target @ one for one in able), abs=1e-5)


def test_a_program_without_limits_ends() -> None:
    assert maximum(np.array([1.0]), np.array([[-1.0]]), np.array([1.0])).tolist() == [0.0]


SHARES = st.floats(0.0, 1.0)
USES = st.builds(
    Use,
    issue=SHARES,
    pipes=st.tuples(SHARES, SHARES),
    operands=st.sampled_from([0.0, 0.3]),
    path=st.sampled_from([0.0, 0.4, 0.9]),
    visit=st.floats(0.1, 3.0),
    cycles=st.sampled_from([0.0, 4.0, 50.0]),
    burst=st.floats(1.0, 30.0),
    together=SHARES,
    warps=st.floats(0.25, 8.0),
    slowest_counts=st.booleans(),
)


@examples(200)
@given(st.lists(USES, min_size=1, max_size=4))
def test_many_mixes_progress_as_the_model_says(uses: list[Use]) -> None:
    mixes = list(permutations(range(len(uses))))
    expected = [progress([uses[n] for n in mix]) for mix in mixes]
    np.testing.assert_allclose(MixArrays(uses, np.array(mixes).T).progress().T, expected, rtol=1e-9)


# ---- streams


def steps(*us: float, spread: float = 0.0) -> list[Least]:
    each = tuple(KernelBounds(one, 0.0, 0.0 if n else spread) for n, one in enumerate(us))
    return [Least(sum(us), (0.0, 0.0, 0.0), 0.0, each)]


BESIDE = Graph({"a": (), "b": ()})


def test_a_kernel_waits_for_the_streams_that_are_not_done() -> None:
    """Two streams of 3 kernels of 5 us: the first ones start together, later ones wait 1 us for the other stream."""
    choices = {"a": steps(5.0, 5.0, 5.0), "b": steps(5.0, 5.0, 5.0)}
    assert least_in_lanes(BESIDE.with_order([["a"], ["b"]]), [["a"], ["b"]], choices, 1.0, False) == 17.0
    assert least_in_lanes(BESIDE.with_order([["a"], ["b"]]), [["a"], ["b"]], choices, 1.0, True) == 15.0
    assert least_in_lanes(BESIDE.with_order([["a", "b"]]), [["a", "b"]], choices, 1.0, False) == 30.0
    assert least_in_any_lanes(BESIDE, choices, 1.0, 4) == 15.0


def test_a_kernel_may_start_later_where_that_is_sooner() -> None:
    """The other stream ends 0.5 us after the kernel could start: then it need not wait for a turn of 1 us."""
    choices = {"a": steps(5.0, 5.0), "b": steps(5.5)}
    assert least_in_lanes(BESIDE.with_order([["a"], ["b"]]), [["a"], ["b"]], choices, 1.0, False) == 10.5


def test_streams_with_sms_of_their_own_share_them() -> None:
    """A kernel that keeps all 4 SMs busy for 4 us takes 8 us on 2. Without SMs of their own turns cost less than that.

    One that 4 SMs do in 1 us takes its 5 us on 2 as well: then no stream waits for turns.
    """
    wide, narrow = ({"a": steps(5.0, 3.0, spread=us), "b": steps(5.0, 2.5, spread=us)} for us in (4.0, 1.0))
    assert least_in_any_lanes(BESIDE, wide, 1.0, 4) == 9.0
    assert least_in_any_lanes(BESIDE, wide, 9.0, 4) == pytest.approx(11.0, abs=1e-4)
    assert least_in_any_lanes(BESIDE, narrow, 1.0, 4) == 8.0


def test_kernels_that_one_event_releases_need_not_wait_for_one_another() -> None:
    graph = Graph({"a": (), "b": ("a",), "c": ("a",)})
    choices = {"a": steps(5.0), "b": steps(5.0), "c": steps(5.0)}
    assert least_in_lanes(graph.with_order([["a", "b"], ["c"]]), [["a", "b"], ["c"]], choices, 1.0, False) == 10.0
    assert least_in_any_lanes(graph, choices, 1.0, 4) == 10.0


# ---- mixes


def work_us(models: dict[str, list[KernelModel]], *, chain: str = "") -> float:
    """Bound by the work of kernels, each the only one of an operation beside all others."""
    options = {
        id: [Option((option_kernel(one, float(one.blocks)),), 40.0, 0.0, 0.0) for one in found]
        for id, found in models.items()
    }
    graph = Graph({id: () for id in models})
    need = next(iter(models.values()))[0].need
    program = linear_program(graph, options, need, frozenset(chain), 1.0, loads=False)
    return 0.0 if program is None else program.bound()


def test_where_no_other_block_fits_the_work_adds_up() -> None:
    """Eight blocks on 4 SMs, each as long as an SM takes with one of them: by the algorithm that takes less."""
    one_us = 2.0 * mix_times([(bounded().demand, 1)])[0]
    assert work_us({"a": [bounded()]}) == pytest.approx(1.0 + 3.0 * one_us, rel=2e-3)
    assert work_us({"a": [bounded()], "b": [bounded(unit_us=6.0)]}) == pytest.approx(1.0 + 9.0 * one_us, rel=2e-3)
    assert work_us({"a": [bounded(), bounded(unit_us=2.0)]}) == pytest.approx(1.0 + 2.0 * one_us, rel=2e-3)


ROOM = (65536, 228 * 1024, 64, 32)


@st.composite
def kernels_beside(draw: st.DrawFn) -> dict[str, list[Option]]:
    """Three operations of a large and a small kernel each, of which many blocks fit an SM, by an algorithm or two."""

    def kernel(blocks: int) -> OptionKernel:
        warps = draw(st.integers(1, 4))
        footprint = Footprint(warps, draw(st.integers(1, 8)) * 1024, draw(st.integers(0, 8)) * 2048)
        most = min(r // n for r, n in zip(ROOM, footprint.need, strict=True) if n)
        busy = draw(st.lists(st.floats(0.001, 0.3), min_size=6, max_size=6))
        demand = replace(
            bounded().demand,
            warps_per_scheduler=warps / 4,
            latency=draw(st.floats(0.3, 1.0)),
            demands=tuple(busy),
            service_demand=max(busy),
            burst=draw(st.sampled_from([1.0, 4.0, 30.0])),
            cycles=draw(st.sampled_from([0.0, 20.0, 400.0])),
            together=draw(st.sampled_from([0.0, 0.5])),
            one_wave=draw(st.booleans()),
        )
        made = bounded(blocks=blocks, tiles=blocks, footprint=footprint, blocks_per_sm=most, demand=demand)
        return option_kernel(made, float(blocks))

    def option() -> Option:
        return Option((kernel(draw(st.integers(200, 2000))), kernel(1)), 40.0, 0.0, 0.0)

    return {id: [option() for _ in range(draw(st.integers(1, 2)))] for id in "abc"}


@examples(24, everyday=4)
@given(kernels_beside(), st.data())
def test_no_mix_earns_more_than_those_that_are_looked_at(options: dict[str, list[Option]], data: st.DataObject) -> None:
    """Any numbers of blocks of any kernels, small ones too: those have no price, but may slow who slows another."""
    graph = Graph({id: () for id in options})
    program = linear_program(graph, options, ROOM, frozenset(), 0.0, loads=False)
    assert program is not None and program.bound() > 0.0
    assert program.bound() <= one_by_one_us(found[0] for found in options.values()) * 1.01
    of_kernel, earns, loads = program.in_range(0, program.prices)
    priced = {id(one.model): price for one, price in zip(program.of_kernel, of_kernel, strict=True)}
    by_op = [[kernel for option, _ in found for kernel in option.kernels] for found in program.of_option]
    for _ in range(100):
        mix, room = list[tuple[Any, int]](), np.array(ROOM)
        for found in data.draw(st.permutations(by_op)):
            one = data.draw(st.sampled_from(found))
            most = min(one.model.blocks_per_sm, *(r // n for r, n in zip(room, one.model.need, strict=True) if n))
            if count := data.draw(st.integers(0, most)):
                mix.append((one, count))
                room -= count * np.array(one.model.need)
        if mix:
            rows, _ = progress_in([one for one, _ in mix], [tuple((n, count) for n, (_, count) in enumerate(mix))])
            worth = np.array([priced.get(id(one.model), 0.0) for one, _ in mix])
            assert (rows @ worth).max() <= (earns + loads) * 1.01 + 1e-6


def test_the_critical_path_has_a_price() -> None:
    assert work_us({"a": [bounded()]}, chain="a") == pytest.approx(40.0, rel=2e-3)
