"""A GPU file from the description of the GPU in a profile: nsys's TARGET_INFO_GPU, or Kineto's deviceProperties."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError, faults_of, one_line
from gpusim.hardware.compute_capability import CAPABILITIES, require_known
from gpusim.hardware.gpu import load_gpu
from gpusim.io import chrome, nsys, source
from gpusim.io.kineto import refuse_amd
from gpusim.io.products import gpu_stem, nearest
from gpusim.io.timeline import Product
from gpusim.io.values import finite, whole

NSYS, KINETO = "nsys, TARGET_INFO_GPU", "PyTorch's profiler, deviceProperties"
A_PROFILE = "a profile of nsys (SQLite) or of PyTorch, which describe the GPU"
NO_GPU = "does not describe its GPU (nsys: TARGET_INFO_GPU; PyTorch: deviceProperties)"

_OF_KINETO = {
    "totalGlobalMem": "memory_bytes", "numSms": "sm_count", "multiProcessorCount": "sm_count",
    "maxThreadsPerMultiprocessor": "max_threads_per_sm", "maxThreadsPerBlock": "max_threads_per_block",
    "regsPerMultiprocessor": "registers_per_sm", "regsPerBlock": "registers_per_block",
    "sharedMemPerMultiprocessor": "shared_memory_per_sm_bytes",
    "sharedMemPerBlock": "shared_memory_per_block_default_bytes",
    "sharedMemPerBlockOptin": "shared_memory_per_block_optin_bytes",
}  # fmt: skip
_OF_NSYS = {
    "totalMemory": "memory_bytes", "smCount": "sm_count", "l2CacheSize": "l2_bytes",
    "maxThreadsPerBlock": "max_threads_per_block", "maxWarpsPerSm": "max_warps_per_sm",
    "maxBlocksPerSm": "max_blocks_per_sm", "maxRegistersPerSm": "registers_per_sm",
    "maxRegistersPerBlock": "registers_per_block", "maxShmemPerSm": "shared_memory_per_sm_bytes",
    "maxShmemPerBlock": "shared_memory_per_block_default_bytes",
    "maxShmemPerBlockOptin": "shared_memory_per_block_optin_bytes",
}  # fmt: skip


@dataclass(frozen=True)
class Described:
    """Description of a GPU in a profile."""

    name: str  # the product's
    compute_capability: str  # such as ``8.6``
    values: Mapping[str, int]  # whole numbers, by their key in a GPU file
    clock_mhz: float | None  # of the SMs; None: not told
    bandwidth_gb_per_s: float | None  # of DRAM; None: not told
    chip: str  # such as ``GA106``; empty: not told
    source: str  # where in a profile that stands


def described(path: Path, device: int | None = None) -> Described:
    """The GPU that a profile was recorded on; of several the one of an index, or the first."""
    is_nsys = source.head(path).startswith(nsys.MAGIC)
    rows = {number: row for row in _rows(path, is_nsys) if (number := whole(row.get("id"))) is not None}
    if not rows:
        raise InputError(path, "", NO_GPU, A_PROFILE)
    chosen = next(iter(rows)) if device is None else device
    if chosen not in rows:
        raise InputError(None, "device", f"GPU {chosen} is not described", f"one of {', '.join(map(str, rows))}")
    row = rows[chosen]
    refuse_amd(path, row)
    major, minor = (whole(row.get(f"compute{part}")) for part in ("Major", "Minor"))
    values = {
        key: found for name, key in (_OF_NSYS if is_nsys else _OF_KINETO).items() if (found := whole(row.get(name)))
    }
    if major is None or minor is None or not values.get("sm_count"):
        raise InputError(path, "", "does not say the GPU's compute capability and number of SMs", A_PROFILE)
    clock, bandwidth = (finite(row.get(name)) for name in ("clockRate", "memoryBandwidth"))
    return Described(
        one_line(str(row.get("name") or "unnamed GPU")),
        f"{major}.{minor}",
        values,
        clock / 1e6 if is_nsys and clock else None,
        bandwidth / 1e9 if is_nsys and bandwidth else None,
        one_line(str(row.get("chipName") or "")) if is_nsys else "",
        NSYS if is_nsys else KINETO,
    )


def _rows(path: Path, is_nsys: bool) -> list[dict[str, Any]]:
    if is_nsys:
        return nsys.gpu_rows(path)
    if source.head(path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        raise InputError(path, "", "is no profile that describes a GPU", A_PROFILE)
    for name, value in chrome.members(path):
        if name in ("deviceProperties", "computeProperties") and isinstance(value, list):
            return [one for one in value if isinstance(one, dict)]
    return []


def gpu_file(found: Described, path: Path) -> str:
    """A GPU file: what the profile says, and of the nearest GPU that ships what it does not, marked as not verified."""
    with faults_of(path, "compute capability"):
        require_known(found.compute_capability)
    ships = gpu_stem(Product(found.name, found.values["sm_count"], found.values.get("memory_bytes")))
    like = load_gpu(ships) if ships else nearest(found.compute_capability, found.values["sm_count"])
    sms, bandwidth = found.values["sm_count"], found.bandwidth_gb_per_s

    def entry(key: str, told: object, otherwise: object = None, how: str = "that of") -> str:
        source = found.source if told else f"not in the profile: {how} {like.name}, the nearest GPU that ships"
        doubt = "" if told else ", verified = false"
        return f"{key} = {{ value = {json.dumps(told or otherwise)}, source = {json.dumps(source)}{doubt} }}"

    by_sms = round(like.dram_bandwidth_gb_per_s / like.sm_count * sms, 1)
    lines = [
        f"# Made by `gpusim gpus new --from-profile {one_line(path.name)}`. Replace what is not verified.",
        "version = 1",
        f"title = {json.dumps(found.name)}",
        "",
        entry("architecture", found.chip, like.architecture),
        entry("compute_capability", found.compute_capability),
        entry("sm_count", sms),
        entry("sms_per_tpc", None, like.sms_per_tpc if sms % like.sms_per_tpc == 0 else 1, "as of"),
        entry("boost_clock_mhz", found.clock_mhz, like.boost_clock_mhz),
        entry("fp32_lanes_per_sm", None, like.fp32_lanes_per_sm, "as of"),
        entry("dram_bandwidth_gb_per_s", bandwidth and round(bandwidth, 1), by_sms, "as much for each SM as"),
        entry("l2_bytes", found.values.get("l2_bytes"), like.l2_bytes),
        entry("memory_bytes", found.values.get("memory_bytes"), like.memory_bytes),
    ]
    limits = CAPABILITIES[found.compute_capability]
    other = {key: value for key, value in found.values.items() if key in limits and limits[key] != value}
    if other:
        lines += ["", "[limits]", *(entry(key, value) for key, value in other.items())]
    return "\n".join(lines) + "\n"


def name_of(found: Described) -> str:
    """A file name for a GPU, without its ending."""
    plain = re.sub(r"NVIDIA|GEFORCE|TESLA", "", found.name.upper())
    return re.sub(r"[^a-z0-9]+", "", plain.lower()) or "gpu"
