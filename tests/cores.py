"""The engine's core as tests use it: compiled and plain, on SMs whose rates are simple enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpusim.engine import compiled
from gpusim.engine import core as used_core
from gpusim.engine.tables import NEVER
from gpusim.model.memory import MemoryLoad, MemoryWait

Mix = tuple[tuple[int, int], ...]
Rates = Callable[[Mix], Sequence[float]]


@cache
def plain_core() -> ModuleType:
    """core.py itself, whether or not a compiled one stands beside it."""
    return compiled.plain_core("gpusim_plain_core")


def is_compiled() -> bool:
    return not compiled.is_plain(used_core)


def cores() -> list[ModuleType]:
    """The plain core, and the compiled one if there is one."""
    return [plain_core(), used_core] if is_compiled() else [plain_core()]


def core_name(core: ModuleType) -> str:
    return "plain" if core is plain_core() else "compiled"


on_every_core = pytest.mark.parametrize("core", cores(), ids=core_name)


def own_pace(*paces: float) -> Rates:
    """Every block of slot k progresses at paces[k], whoever is beside it."""
    return lambda mix: [paces[slot] for slot, _ in mix]


def shared_pace(mix: Mix) -> Sequence[float]:
    """Processor sharing: the residents of an SM share one unit of progress a microsecond."""
    return [1.0 / sum(count for _, count in mix)] * len(mix)


def array_of(
    core: ModuleType,
    sms: int = 1,
    limits: tuple[int, int, int, int] = (65536, 65536, 64, 32),
    slots: int = 4,
    rates: Rates = shared_pace,
    order: list[int] | None = None,
    domains: list[int] | None = None,
    capacity: Sequence[float] = (NEVER, NEVER),
    load: Callable[[Mix], tuple[float, float]] = lambda mix: (0.0, 0.0),
    slowdowns: Callable[[int, float, float, float], dict[int, float]] | None = None,
    tensor_cycle: float = 1.0,
    gpcs: Sequence[int] = (),
    shares: Callable[[int], Sequence[float]] = lambda count: [1.0] * count,
    most_beside: Callable[[Mix, int], int] | None = None,
) -> Any:
    """SMs whose blocks progress as `rates` says, shared among the blocks of a kernel as `shares` says."""

    def resolve(mix: Mix) -> tuple[list[list[float]], float, float]:
        by_age = [[rate * share for share in shares(count)] for rate, (_, count) in zip(rates(mix), mix, strict=True)]
        return (by_age, *load(mix))

    domains = domains or [0] * sms
    return core.SMArray(
        sms,
        limits[3],
        slots,
        limits,
        order or list(range(sms)),
        domains,
        list(capacity),
        resolve,
        most_beside or (lambda others, slot: limits[3]),
        slowdowns or (lambda domain, dram, l2, *cycles: dict.fromkeys(range(slots), 1.0)),
        tensor_cycle,
        0.02,
        gpcs=gpcs,
    )


def submit(
    array: Any,
    slot: int,
    blocks: int,
    *,
    caps: int | list[int] = 32,
    need: tuple[int, int, int, int] = (0, 0, 1, 1),
    carveout: int = 65536,
    jitter: float = 0.0,
    seed: int = 1,
    issue: float = 0.0,
    dram: float = 0.0,
    l2: float = 0.0,
    own_dram: float = 0.0,
    load_dram: float = 0.0,
    wait: MemoryWait | None = None,
    least_carveout: int | None = None,
    most_carveout: int = 1 << 40,
    ramps: Sequence[float] = (),
    on_tensor_cores: bool = False,
    held_clock: float = 1.0,
    block_power: float = 0.0,
    pieces: int = 1,
    late_last: bool = False,
    cluster: int = 1,
) -> None:
    """Make a launch known with its caps; who may place blocks is for `line` to say.

    Without ``least_carveout`` it joins others where their SM is set to no less than it wants itself.
    """
    least = carveout if least_carveout is None else least_carveout
    model = SimpleNamespace(
        blocks=blocks,
        need=need,
        carveout_bytes=carveout,
        least_carveout_bytes=least,
        most_carveout_bytes=most_carveout,
        jitter=jitter,
        seed=seed,
        issue_us=issue,
        dram_share_us=dram,
        l2_share_us=l2,
        l2_apart_us=0.0,
        own_load=MemoryLoad(own_dram, 0.0),
        load=MemoryLoad(load_dram, 0.0),
        wait=wait or MemoryWait(),
        unit_us=1.0,
        ramps=ramps,
        on_tensor_cores=on_tensor_cores,
        held_clock=held_clock,
        block_power=block_power,
        tiles=pieces * blocks,
        late_last=late_last,
        row=blocks,
        lengths=(),
        start_us=0.0,
        sm_start_us=0.0,
        cluster_blocks=cluster,
    )
    array.submit(slot, model)
    sms = len(array.residents_by_sm(slot))
    array.set_caps(slot, [caps] * sms if isinstance(caps, int) else caps)


def line(array: Any, *slots: int, queues: list[int] | None = None) -> None:
    """Let these slots place blocks, in this order."""
    array.set_dispatch_order(list(slots), queues or [0] * len(slots))
    array.dispatch()


def ends(array: Any, until: float = 1e300) -> list[tuple[int, float]]:
    """(slot, time) of every launch that ends by `until`."""
    found = []
    while (slot := array.advance(until)) >= 0:
        found.append((slot, array.now))
    return found


def slow_anew(array: Any, *factors: float) -> None:
    """From now on slot k is slowed by ``factors[k]``; a launch that may place no block makes the array ask."""
    array.set_slowdowns(lambda domain, dram, l2, *cycles: dict(enumerate(factors)))
    submit(array, len(factors), 1, caps=0)
    array.dispatch()
