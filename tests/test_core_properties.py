"""The core by itself, property by property: limits, conservation, and the compiled core against the plain one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
from cores import Mix, array_of, is_compiled, line, on_every_core, plain_core, submit
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import gpusim.engine.core as used_core
from gpusim.engine.launches import jitter_factor

SLOTS = 5


@dataclass(frozen=True)
class Launch:
    blocks: int
    need: tuple[int, int, int, int]
    caps: tuple[int, ...]
    carveout: int
    least_carveout: int
    ramp: float
    jitter: float
    queue: int
    pace: float
    pieces: int
    cluster: int


@dataclass(frozen=True)
class Scene:
    """SMs, launches, and what is done to them: (time step, what, slot, SM, number)."""

    sms: int
    limits: tuple[int, int, int, int]
    domains: tuple[int, ...]
    gpcs: tuple[int, ...]
    preference: float
    launches: tuple[Launch, ...]
    steps: tuple[tuple[float, str, int, int, int], ...]

    def has(self, *kinds: str) -> bool:
        """Whether any of its steps is of one of these kinds."""
        return any(what in kinds for _, what, *_ in self.steps)


@st.composite
def scenes(draw: st.DrawFn, most_blocks: int = 60) -> Scene:
    sms = draw(st.integers(1, 7))
    limits = (64, 64, draw(st.integers(4, 16)), draw(st.integers(2, 8)))
    small = st.integers(0, 24)
    launches = [
        Launch(
            blocks=draw(st.integers(1, most_blocks)),
            need=(draw(small), draw(small), draw(st.integers(1, 4)), 1),
            caps=tuple(draw(st.lists(st.integers(0, 8), min_size=sms, max_size=sms))),
            carveout=draw(st.sampled_from([24, 32, 48, 64])),
            least_carveout=draw(st.sampled_from([0, 24, 48])),
            ramp=draw(st.sampled_from([0.0, 0.3])),
            jitter=draw(st.sampled_from([0.0, 0.02, 0.1])),
            queue=draw(st.integers(0, 2)),
            pace=draw(st.sampled_from([1.0, 0.5, 0.3, 2.0, 0.01])),
            pieces=draw(st.sampled_from([1, 1, 4])),
            cluster=draw(st.sampled_from([1, 1, 2, 3])),
        )
        for _ in range(draw(st.integers(1, SLOTS)))
    ]
    steps = st.tuples(
        st.sampled_from([0.0, 0.1, 0.37, 1.0, 5.0]),
        st.sampled_from(["line", "evict", "caps", "wait"]),
        st.integers(0, len(launches) - 1),
        st.integers(0, sms - 1),
        st.integers(0, 8),
    )
    return Scene(
        sms,
        limits,
        tuple(draw(st.lists(st.integers(0, 1), min_size=sms, max_size=sms))),
        tuple(draw(st.lists(st.integers(0, 1), min_size=sms, max_size=sms))),
        draw(st.sampled_from([0.0, 0.1, 0.4])),
        tuple(launches),
        tuple(draw(st.lists(steps, max_size=8))),
    )


def built(core: ModuleType, scene: Scene) -> Any:
    paces = [launch.pace for launch in scene.launches]

    def rates(mix: Mix) -> list[float]:
        total = sum(count for _, count in mix)
        return [paces[slot] / (0.5 + 0.5 * total) for slot, _ in mix]

    def shares(count: int) -> list[float]:
        weights = [(1.0 - scene.preference) ** i for i in range(count)]
        return [count * weight / sum(weights) for weight in weights]

    array = array_of(
        core,
        scene.sms,
        scene.limits,
        SLOTS,
        rates,
        domains=list(scene.domains),
        gpcs=scene.gpcs,
        load=lambda mix: (0.03 * sum(n for _, n in mix), 0.02 * len(mix)),
        slowdowns=lambda domain, dram, l2, *cycles: {
            slot: 1.0 + dram * dram + 0.1 * slot * l2 for slot in range(SLOTS)
        },
        shares=shares,
    )
    for slot, launch in enumerate(scene.launches):
        submit(
            array,
            slot,
            launch.blocks,
            caps=list(launch.caps),
            need=launch.need,
            carveout=launch.carveout,
            least_carveout=launch.least_carveout,
            ramps=[launch.ramp / count for count in range(1, scene.limits[3] + 1)],
            jitter=launch.jitter,
            seed=slot,
            issue=0.25,
            dram=0.125,
            pieces=launch.pieces,
            cluster=launch.cluster,
        )
    line(array, *range(len(scene.launches)), queues=[launch.queue for launch in scene.launches])
    return array


def observed(array: Any, scene: Scene) -> tuple[Any, ...]:
    slots = range(len(scene.launches))
    return (
        array.now,
        array.next_due(),
        [array.free(sm) for sm in range(scene.sms)],
        [array.mix_of(sm) for sm in range(scene.sms)],
        [array.load_at(sm) for sm in range(scene.sms)],
        [(array.waiting_blocks(k), array.resident_blocks(k), array.unfinished_blocks(k)) for k in slots],
        [(array.started_at(k), array.dispatched(k), array.spans(k), array.work_left_by_sm(k)) for k in slots],
    )


def played(core: ModuleType, scene: Scene, check: Any = lambda array, ended: None) -> list[Any]:
    """All that can be seen while the steps of a scene are played, and then until nothing moves."""
    array = built(core, scene)
    ended: set[int] = set()
    seen = [observed(array, scene)]
    check(array, ended)
    for passed, what, slot, sm, number in (*scene.steps, (1e4, "wait", 0, 0, 0)):
        until = array.now + passed
        while (end := array.advance(until)) >= 0:
            ended.add(end)
            seen.append((end, observed(array, scene)))
            check(array, ended)
        if what == "evict" and slot not in ended:
            array.evict(slot, sm, number, 0.25)
            array.dispatch()
        if what == "caps" and slot not in ended:
            array.set_caps(slot, [number] * scene.sms)
        if what in ("line", "caps"):
            first = [slot] if slot not in ended else []
            rest = [k for k in range(len(scene.launches)) if k not in ended and k != slot]
            line(array, *first, *rest, queues=[scene.launches[k].queue for k in (*first, *rest)])
        seen.append(observed(array, scene))
        check(array, ended)
    seen.append(array.usage())
    return seen


@on_every_core
@given(scene=scenes())
def test_no_sm_ever_holds_more_than_it_has(core: ModuleType, scene: Scene) -> None:
    def check(array: Any, ended: set[int]) -> None:
        for sm in range(scene.sms):
            mix = array.mix_of(sm)
            held = [sum(count * scene.launches[slot].need[r] for slot, count in mix) for r in range(4)]
            free = array.free(sm)
            assert all(room >= 0 for room in free)
            assert all(held[r] + free[r] == scene.limits[r] for r in (0, 2, 3))
            assert held[1] + free[1] <= scene.limits[1]
            if mix:
                assert held[1] + free[1] in {launch.carveout for launch in scene.launches}
            assert all(count > 0 and array.residents_by_sm(slot)[sm] == count for slot, count in mix)

    played(core, scene, check)


@on_every_core
@given(scene=scenes())
def test_every_block_is_waiting_resident_or_done(core: ModuleType, scene: Scene) -> None:
    def check(array: Any, ended: set[int]) -> None:
        for slot, launch in enumerate(scene.launches):
            resident = array.resident_blocks(slot)
            assert resident == sum(array.residents_by_sm(slot))
            assert array.unfinished_blocks(slot) == array.waiting_blocks(slot) + resident
            done = sum(blocks for _, blocks, _, _ in array.spans(slot))
            assert all(0.0 <= start <= end <= array.now for _, _, start, end in array.spans(slot))
            assert done + array.unfinished_blocks(slot) == launch.blocks
            assert (array.unfinished_blocks(slot) == 0) == (slot in ended)

    played(core, scene, check)


@on_every_core
@given(scene=scenes())
def test_caps_hold_for_every_block_that_starts(core: ModuleType, scene: Scene) -> None:
    if scene.has("caps", "evict"):
        return

    def check(array: Any, ended: set[int]) -> None:
        for slot, launch in enumerate(scene.launches):
            assert all(n <= cap for n, cap in zip(array.residents_by_sm(slot), launch.caps, strict=True))

    played(core, scene, check)


@on_every_core
@given(scene=scenes())
def test_whole_clusters_start_at_once(core: ModuleType, scene: Scene) -> None:
    """Where some GPC may hold one and nothing is moved, as many blocks of a launch have started as clusters have."""
    if scene.has("caps", "evict"):
        return

    def check(array: Any, ended: set[int]) -> None:
        for slot, launch in enumerate(scene.launches):
            usable = [gpc for gpc, cap in zip(scene.gpcs, launch.caps, strict=True) if cap > 0]
            if launch.pieces == 1 and any(usable.count(gpc) >= launch.cluster for gpc in usable):
                started = launch.blocks - array.waiting_blocks(slot)
                assert started in (launch.blocks, started // launch.cluster * launch.cluster)

    played(core, scene, check)


@on_every_core
@given(scene=scenes())
def test_work_is_conserved(core: ModuleType, scene: Scene) -> None:
    """The history of issue slots holds the work of every block, no less and no more.

    A ramp is work beside that of the blocks.
    Of a stretch that is skipped each block counts as the mean one, hence the tolerance where blocks jitter.
    """
    if scene.has("evict"):
        return
    scene = replace(scene, launches=tuple(replace(launch, ramp=0.0) for launch in scene.launches))
    array = built(core, scene)
    while array.advance(1e4) >= 0:
        pass
    width, flat = array.usage()
    left = sum(array.unfinished_blocks(slot) for slot in range(len(scene.launches)))
    if left == 0:
        work = sum(
            jitter_factor(slot, piece, launch.jitter) / launch.pieces
            for slot, launch in enumerate(scene.launches)
            for piece in range(launch.blocks * launch.pieces)
        )
        tolerance = max(launch.jitter for launch in scene.launches) or 1e-6
        assert width > 0
        assert sum(flat[4::7]) == pytest.approx(0.25 * work, rel=tolerance)
        assert sum(flat[5::7]) == pytest.approx(0.125 * work, rel=tolerance)


@pytest.mark.skipif(not is_compiled(), reason="the core is not compiled here")
@examples(200, everyday=30)
@given(scene=scenes(most_blocks=400))
def test_compiled_and_plain_core_agree_to_the_bit(scene: Scene) -> None:
    assert played(used_core, scene) == played(plain_core(), scene)


@given(scene=scenes(most_blocks=200))
def test_the_same_scene_twice_is_the_same(scene: Scene) -> None:
    assert played(used_core, scene) == played(used_core, scene)
