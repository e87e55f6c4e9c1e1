"""How long advice takes: two programs of 300 kernels, 16 settings, 10 passes under an even split: 20 s on two cores.

Time is that of the processor, so that other work on the machine does not count.

pytest -m benchmark tests/benchmarks/test_advise_speed.py -s
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpusim import Program, Trace, load_gpu, load_trace
from gpusim.choose.advise import advise
from gpusim.choose.settings import settings
from gpusim.session import Session
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream

PROGRAMS = Path(__file__).resolve().parents[2] / "experiments" / "advise" / "programs"
KERNELS, SETTINGS, PASSES, CORES, LIMIT_S = 300, 16, 10, 2, 20.0


def program(name: str, of: list[KernelLaunch]) -> Program:
    """A program of `KERNELS` kernels: some launches again and again."""
    repeated = (of * (KERNELS // len(of) + 1))[:KERNELS]
    operations = tuple(Kernel(id=f"{name}/{i}", kind="kernel", kernel=one) for i, one in enumerate(repeated))
    return Program(name=name, streams=[Stream(name=name, operations=operations)])


def launches(name: str) -> list[KernelLaunch]:
    """Kernels of a recorded program, the shortest first."""
    return sorted(load_trace(PROGRAMS / f"h200_{name}.json.gz").launches(), key=lambda launch: launch.duration_us)


def cpu_s() -> float:
    """Seconds of all cores that this process and those that it started have had."""
    return sum(os.times()[:4])


@pytest.mark.parametrize("counted", [True, False])
def test_advice_is_quick(counted: bool) -> None:
    long, short = launches("convnext_tiny")[-100:], launches("generate")[:50]
    if not counted:
        long, short = ([one.model_copy(update={"mix": None}) for one in of] for of in (long, short))
    trace = Trace(name="two", device="h200", programs=[program("long", long), program("short", short)])
    gpu = load_gpu("h200")
    ways = [one for one in settings(gpu, ["long", "short"]) if one.mechanism in ("streams", "SM split")]
    assert len(ways) == SETTINGS
    session, before = Session(gpu), cpu_s()
    advice = advise([trace], session, jobs=CORES, ways=ways)
    took = cpu_s() - before
    (even,) = [one for one in advice.choices if one.setting.parts == (64, 68)]
    passes = even.latency_us["long"] / even.latency_us["short"]
    print(f"{'with' if counted else 'without'} counters: {took:.1f} s of the processor, {passes:.1f} passes")
    assert passes > PASSES
    assert took < CORES * LIMIT_S
