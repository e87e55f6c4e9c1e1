"""Changed GPUs (what-if): more SMs, a larger register file, more shared memory, more DRAM bandwidth.

A change also changes the numbers that depend on it, so that the GPU could be built:

* `dram_bandwidth_gb_per_s`: the bandwidth that kernels sustain keeps its share of the peak.
* `shared_memory_per_sm_bytes`: an SM can be set to its new size and to the carve-outs below it; a block that could have
  all of an SM can still, any other keeps its limit where it fits.
* `registers_per_sm`: a block may have no more than there are.
* `max_warps_per_sm`: threads of an SM follow, and a block has no more than these.

Nothing else follows. L2 stays the same with more SMs or more DRAM bandwidth. (If the trace is of another chip, the rate
of L2 is assumed to scale with DRAM.) Kernels keep their recorded demand (`gpusim.calibrate.transfer`). No such GPU was
ever measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from typing import Any

from gpusim.common.errors import InputError, checked, expected_one_of, faults_of, quote, validating
from gpusim.hardware.compute_capability import SMLimits
from gpusim.hardware.gpu import GPU, GPUFile, gpu_names, gpu_of, load_gpu

OF_GPU = ("sm_count", "sms_per_tpc", "boost_clock_mhz", "fp32_lanes_per_sm", "dram_bandwidth_gb_per_s")
OF_SM = (
    "max_warps_per_sm",
    "max_blocks_per_sm",
    "registers_per_sm",
    "shared_memory_per_sm_bytes",
    "shared_memory_per_block_optin_bytes",
)
QUANTITIES = (*OF_GPU, *OF_SM)  # fields of `GPU` and of `SMLimits` that a what-if can change
_RATES = ("boost_clock_mhz", "dram_bandwidth_gb_per_s")  # the others are whole numbers


def value_of(gpu: GPU, quantity: str) -> float:
    """Return the value of one of `QUANTITIES` of a GPU."""
    value: float = getattr(gpu if quantity in OF_GPU else gpu.limits, quantity)
    return value


def what_if(gpu: GPU | str | PathLike[str], changes: Mapping[str, float | str]) -> GPU:
    """Return a GPU with some numbers changed, and with the changes in its name: ``h200 with sm_count=66``.

    Args:
        gpu: the GPU as it is, its name or the path of its file.
        changes: by name of `QUANTITIES` a number; a factor such as ``"x0.5"``, rounded to whole units (SMs to TPCs,
            shared memory to KiB); or the name of a GPU that ships, for its value.

    Raises:
        InputError: an unknown quantity, or a value that no GPU can have.
    """
    gpu = gpu_of(gpu)
    if not isinstance(changes, Mapping):
        raise InputError(None, "changes", f"is {quote(changes)}", 'numbers by quantity, such as {"sm_count": 66}')
    amounts = {quantity: amount(gpu, quantity, value) for quantity, value in changes.items()}
    limits = _limits(gpu.limits, {name: value for name, value in amounts.items() if name in OF_SM})
    of_gpu = {name: _checked(name, value) for name, value in amounts.items() if name in OF_GPU}
    changed = replace(gpu, limits=limits, model=_model(gpu, of_gpu), **of_gpu)
    if changed.sm_count % changed.sms_per_tpc:
        expected = f"a multiple of sms_per_tpc, {changed.sms_per_tpc}, or another sms_per_tpc with it"
        raise InputError(None, "sm_count", f"{changed.sm_count} SMs do not make whole TPCs", expected)
    values = {quantity: value_of(changed, quantity) for quantity in changes}
    differ = [f"{name}={value:.12g}" for name, value in values.items() if value != value_of(gpu, name)]
    return replace(changed, name=f"{gpu.name} with {', '.join(differ)}") if differ else changed


def amount(gpu: GPU, quantity: str, value: float | str) -> float:
    """Return the value that a change of one of `QUANTITIES` gives, whether or not it is valid."""
    if quantity not in QUANTITIES:
        raise InputError(None, quantity, "cannot be changed", expected_one_of(QUANTITIES, quantity))
    if isinstance(value, str):
        value = _read(gpu, quantity, value)
    if isinstance(value, bool) or not isinstance(value, Real) or not -1e300 < value < 1e300:
        raise InputError(None, quantity, f"is {quote(value)}", "a number")
    return int(value) if isinstance(value, Integral) else float(value)


def _read(gpu: GPU, quantity: str, text: str) -> float:
    """Return the value of a text such as ``x0.5`` or ``h200``."""
    if text in gpu_names():
        return value_of(load_gpu(text), quantity)
    try:
        factor = float(text.removeprefix("x")) if text.startswith("x") else math.nan
    except ValueError:
        factor = math.nan
    if not (factor > 0.0 and math.isfinite(factor)):
        raise InputError(None, quantity, f"is {quote(text)}", "a number, xFACTOR such as x0.5, or the name of a GPU")
    scaled = factor * value_of(gpu, quantity)
    unit = {"sm_count": gpu.sms_per_tpc, "shared_memory_per_sm_bytes": 1024}.get(quantity, 1)
    return scaled if quantity in _RATES else unit * max(1, round(scaled / unit))


def _checked(quantity: str, value: float) -> Any:
    """Return a value that is valid in a GPU file."""
    kind = GPUFile.model_fields[quantity].annotation
    assert kind is not None
    with faults_of(place=quantity), validating(None):
        return kind.model_validate({"value": value, "source": "a what-if"}).value


def _model(gpu: GPU, of_gpu: Mapping[str, Any]) -> Any:
    peak = of_gpu.get("dram_bandwidth_gb_per_s", gpu.dram_bandwidth_gb_per_s)
    sustained = gpu.model.dram_sustained_gb_per_s * peak / gpu.dram_bandwidth_gb_per_s
    return gpu.model.model_copy(update={"dram_sustained_gb_per_s": sustained})


def _limits(limits: SMLimits, amounts: Mapping[str, float]) -> SMLimits:
    new = {**limits.model_dump(), **amounts}
    new["max_threads_per_sm"] = new["max_warps_per_sm"] * limits.warp_size
    new["max_threads_per_block"] = min(limits.max_threads_per_block, new["max_threads_per_sm"])
    new["registers_per_block"] = min(limits.registers_per_block, new["registers_per_sm"])
    if "shared_memory_per_sm_bytes" in amounts:
        new |= _shared_memory(limits, new["shared_memory_per_sm_bytes"], amounts)
    return checked(SMLimits, new)


def _shared_memory(limits: SMLimits, per_sm: float, amounts: Mapping[str, float]) -> dict[str, Any]:
    """Return the values that depend on the shared memory of an SM: carve-outs, and the limit of a block."""
    if per_sm % 1024:
        raise InputError(None, "shared_memory_per_sm_bytes", f"is {per_sm:g}", "a multiple of 1024")
    most = per_sm - limits.shared_memory_reserved_per_block_bytes
    whole = limits.shared_memory_per_sm_bytes - limits.shared_memory_reserved_per_block_bytes
    now = limits.shared_memory_per_block_optin_bytes
    optin = amounts.get("shared_memory_per_block_optin_bytes", most if now == whole else min(now, most))
    kib = int(per_sm) // 1024
    return {
        "shared_memory_carveouts_kib": (*(size for size in limits.shared_memory_carveouts_kib if size < kib), kib),
        "shared_memory_per_block_optin_bytes": optin,
        "shared_memory_per_block_default_bytes": min(limits.shared_memory_per_block_default_bytes, optin),
    }
