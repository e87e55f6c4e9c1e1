"""GPUs: the limits of their SMs, their rates and the constants of the model.

A GPU file, `gpus/NAME.toml`, gives the source of every value, and whether it was verified:
`sm_count = { value = 132, source = "..." }`, with `verified = false` where the source was not read or others
disagree. The simulator reads a `GPU`. `GPUFile` is the strict model of the file (its JSON Schema:
`GPUFile.model_json_schema()`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from gpusim.common.errors import InputError, checked, expected_one_of, faults_of, quote, validating
from gpusim.common.files import data_folder, parse_toml, path_of, read_text
from gpusim.common.strict import Strict
from gpusim.hardware.compute_capability import CAPABILITIES, Bytes, Count, SMLimits, require_known, unverified_limits
from gpusim.hardware.gpcs import numbered
from gpusim.hardware.host_costs import HostCosts, HostService

FP32_OPERATIONS_PER_LANE_AND_CYCLE = 2  # a fused multiply-add counts as two

_PEAK_TOLERANCE = 0.02
_NOTHING_MEASURED = HostCosts.model_construct()  # nothing to check: a validator need not be built at import

# Share of its DRAM peak that the H200 sustains: 4600 of 4800 GB/s. Stands in where no one measured.
_H200_SUSTAINED_SHARE = 4600 / 4800

Text = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
SMCount = Annotated[int, Field(ge=1, le=4096)]  # 16 times what any GPU has, for what-ifs
SMCounts = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=4096)], ...], Field(strict=False, min_length=1, max_length=4096)
]
ClockMhz = Annotated[float, Field(ge=1, le=20_000)]
Tflops = Annotated[float, Field(ge=0.001, le=1_000_000)]
BandwidthGbPerS = Annotated[float, Field(ge=0.1, le=1_000_000)]
TimeUs = Annotated[float, Field(ge=0, le=1000)]
Share = Annotated[float, Field(ge=0, le=1)]


def _constant(default: Any, unit: str, description: str) -> Any:
    """A constant of the model; default: ``...`` where it depends on the rest of the file."""
    return Field(default=default, description=description, json_schema_extra={"unit": unit})


class ModelConstants(Strict):
    """Constants of the contention model. Each is a property of the GPU, and none of a kernel.

    Defaults are the H200's; a GPU file that does not give a constant takes the default, unverified. The unit
    of each is under `unit` in the JSON Schema.
    """

    dram_sustained_gb_per_s: BandwidthGbPerS = _constant(
        ...,
        "GB/s",
        "DRAM bandwidth that kernels sustain, reads and writes together; "
        "where a file does not give it, the H200's share of its peak (4600 of 4800)",
    )
    launch_latency_us: TimeUs = _constant(
        1.7, "us", "part of a kernel's recorded duration in which none of its blocks runs, whatever the SMs"
    )
    graph_latency_us: TimeUs = _constant(
        0.9, "us", "the same of a kernel of a CUDA graph: from the end of a kernel to the first block of the next"
    )
    event_overhead_us: TimeUs = _constant(
        1.5, "us", "what a measurement from event to event adds to a sequence of calls, however long"
    )
    switch_us: TimeUs = _constant(
        0.5,
        "us",
        "what a call takes longer after a different one than after itself, whatever L2 holds: "
        "instructions and constants that are loaded anew",
    )
    kernel_gap_us: TimeUs = _constant(
        0.0,
        "us",
        "what a kernel of a stream comes later than its recorded duration says, after another one: profilers do not "
        "count it; a GPU file that does not give it has none",
    )
    copy_gap_us: TimeUs = _constant(
        0.0,
        "us",
        "what a copy between host and device keeps its stream beyond its recorded time, in which bytes move; "
        "a GPU file that does not give it has none",
    )
    memset_gap_us: TimeUs = _constant(
        0.0,
        "us",
        "the same of a memset of up to 4 KiB, which is no kernel of its own; a GPU file that does not give it has none",
    )
    stream_turn_us: TimeUs = _constant(
        0.0,
        "us",
        "what the start of a kernel is later, on the mean, for each other stream that has a kernel under way or waits "
        "for another; in green contexts half of it, where there are several; a GPU file that does not give it has none",
    )
    block_delay_us: TimeUs = _constant(
        0.0,
        "us",
        "how much later blocks end that wait for data all the time, for each launch of a CUDA graph in another stream; "
        "a GPU file that does not give it has none",
    )
    tensor_clock_share: Annotated[float, Field(gt=0, le=1)] = _constant(
        1.0,
        "1",
        "clock of the SMs while some of them compute on tensor cores, over their clock otherwise; "
        "a GPU file that does not give it keeps its clock",
    )
    l2_kept_share: Share = _constant(
        0.36,
        "1",
        "share of L2 that calls in turn may touch together so that each finds all its tensors there again; "
        "where they touch twice as much, it finds nothing",
    )
    l2_sustained_share: Annotated[float, Field(ge=0.01, le=1.5)] = _constant(
        0.97, "1", "share of its counted peak that L2 sustains"
    )
    l2_read_gb_per_s: BandwidthGbPerS = _constant(9500.0, "GB/s", "reads that L2 sustains")
    l2_atomic_gb_per_s: BandwidthGbPerS = _constant(
        2600.0, "GB/s", "traffic of atomics and reductions that L2 sustains"
    )
    sustained_issue_share: Annotated[float, Field(ge=0.01, le=1)] = _constant(
        0.92,
        "1",
        "share of an SM's issue slots that co-resident warps can keep busy; its pipes and L1 data path they can fill",
    )
    waiting_turn_share: Share = _constant(
        0.75,
        "1",
        "share of barrier and short-scoreboard stalls (shared memory, special functions) that is waiting for other "
        "warps' turns and not latency, where many warps compete",
    )
    block_starts_per_us: Annotated[float, Field(ge=0)] = _constant(
        0.0, "blocks/us", "blocks that the device can start; 0: no limit is known"
    )
    sm_block_starts_per_us: Annotated[float, Field(ge=0)] = _constant(
        0.0, "blocks/us", "blocks that one SM can start; 0: no limit is known"
    )
    block_jitter: Annotated[float, Field(ge=0, le=0.3)] = _constant(
        0.02, "1", "standard deviation of a block's work over the mean of its launch"
    )

    @property
    def tensor_cycle(self) -> float:
        """Cycle of the SMs while some of them compute on tensor cores, over their cycle otherwise."""
        return 1.0 / self.tensor_clock_share


class SourcedValue(Strict):
    """A value of any type with its source; another class checks the type."""

    source: Text = Field(description="where the value is from")
    verified: bool = Field(default=True, description="false where the source was not read, or others disagree")
    value: Any


class SourcedText(SourcedValue):
    """A text."""

    value: Text


class SourcedCount(SourcedValue):
    """A whole number of things."""

    value: Count


class SourcedSMCount(SourcedValue):
    """A number of SMs."""

    value: SMCount


class SourcedSMCounts(SourcedValue):
    """Numbers of SMs."""

    value: SMCounts


class SourcedBytes(SourcedValue):
    """A size in bytes."""

    value: Bytes


class SourcedClock(SourcedValue):
    """A clock in MHz."""

    value: ClockMhz


class SourcedTflops(SourcedValue):
    """A rate in TFLOP/s (1e12 operations a second)."""

    value: Tflops


class SourcedBandwidth(SourcedValue):
    """A bandwidth in GB/s (1e9 bytes a second)."""

    value: BandwidthGbPerS


def _list_keys(section: type[BaseModel]) -> Any:
    """Return a JSON Schema hook that lists the keys of one section of a GPU file, each with its source."""

    def write(schema: dict[str, Any]) -> None:
        entries = {}
        for key, value in section.model_json_schema()["properties"].items():
            value.pop("default", None)
            entry = SourcedValue.model_json_schema()
            del entry["description"]
            entry["properties"]["value"] = value
            entries[key] = entry | {"title": key}
        schema["properties"] = entries
        schema["additionalProperties"] = False

    return write


class GPUFile(Strict):
    """A GPU file, version 1: every value with its source. Numbers are per GPU unless the key says per SM."""

    version: Literal[1] = Field(description="version of this format")
    title: Text = Field(description="the product, and which of its variants")
    architecture: SourcedText = Field(description="the chip, such as GH100")
    compute_capability: SourcedText = Field(description='text, such as "9.0"; sets the limits of an SM')
    sm_count: SourcedSMCount = Field(description="SMs")
    sms_per_tpc: SourcedSMCount = Field(description="SMs in a TPC, the unit in which SMs can be masked")
    sms_per_gpc: SourcedSMCounts | None = Field(
        default=None,
        description="SMs of each GPC, or other group of SMs beyond which no thread block cluster reaches, over again "
        "where sm_count is more than all of them; absent: a cluster may be on any SMs",
    )
    base_clock_mhz: SourcedClock | None = Field(default=None, description="MHz; absent where none was found")
    boost_clock_mhz: SourcedClock = Field(description="MHz, of the SMs")
    fp32_lanes_per_sm: SourcedCount = Field(description="FP32 multiply-adds an SM can start a cycle")
    fp32_published_tflops: SourcedTflops | None = Field(
        default=None,
        description="TFLOP/s; the maker's FP32 peak, within 2 % of SMs x lanes x 2 x boost clock",
    )
    tensor_fp16_tflops: SourcedTflops | None = Field(
        default=None, description="TFLOP/s; dense FP16 tensor peak with FP32 accumulation"
    )
    tensor_tf32_tflops: SourcedTflops | None = Field(default=None, description="TFLOP/s; dense TF32 tensor peak")
    dram_bandwidth_gb_per_s: SourcedBandwidth = Field(description="GB/s (1e9 bytes), peak")
    l2_bytes: SourcedBytes = Field(description="bytes of L2 cache")
    memory_bytes: SourcedBytes = Field(description="bytes of device memory")
    limits: dict[str, SourcedValue] = Field(
        default={},
        description="limits of an SM that differ from those of the compute capability",
        json_schema_extra=_list_keys(SMLimits),
    )
    model: dict[str, SourcedValue] = Field(
        default={},
        description="constants of the contention model",
        json_schema_extra=_list_keys(ModelConstants),
    )
    host: HostCosts = Field(
        default_factory=lambda: _NOTHING_MEASURED, description="what the host pays for allocations, copies and launches"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_known(self.compute_capability.value)
        sms, tpc = self.sm_count.value, self.sms_per_tpc.value
        if sms % tpc:
            problem = f"{sms} SMs do not make whole TPCs"
            raise InputError(None, "sm_count", problem, f"a multiple of sms_per_tpc, {tpc}")
        boost, base = self.boost_clock_mhz.value, _optional(self.base_clock_mhz)
        if base is not None and boost < base:
            problem = f"{boost:g} is below base_clock_mhz"
            raise InputError(None, "boost_clock_mhz", problem, f"at least {base:g}")
        l2, memory = self.l2_bytes.value, self.memory_bytes.value
        if l2 > memory:
            raise InputError(None, "l2_bytes", f"{l2} is above memory_bytes", f"at most {memory}")
        self._check_published_peak()
        return self

    def _check_published_peak(self) -> None:
        published = _optional(self.fp32_published_tflops)
        lanes = self.fp32_lanes_per_sm.value
        derived = fp32_peak_tflops(self.sm_count.value, lanes, self.boost_clock_mhz.value)
        if published is not None and abs(derived - published) > _PEAK_TOLERANCE * published:
            problem = f"{published:g} contradicts sm_count x fp32_lanes_per_sm x 2 x boost_clock_mhz"
            raise InputError(None, "fp32_published_tflops", problem, f"{derived:.4g} within 2 %")


def fp32_peak_tflops(sm_count: int, fp32_lanes_per_sm: int, clock_mhz: float) -> float:
    """Return the FP32 peak in TFLOP/s: SMs x lanes x 2 (a multiply-add) x clock."""
    return sm_count * fp32_lanes_per_sm * FP32_OPERATIONS_PER_LANE_AND_CYCLE * clock_mhz * 1e6 / 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """One GPU as the simulator sees it; `gpusim.hardware.what_if.what_if` returns a changed copy.

    `dataclasses.replace` changes fields of the GPU itself; ``limits`` and ``model`` are pydantic models, which
    ``limits.model_copy(update={…})`` changes without checks.

    Attributes:
        name: the stem of its file, such as "h200".
        title: the product, and which of its variants.
        architecture: the chip.
        compute_capability: text, such as "9.0".
        sm_count: SMs.
        sms_per_tpc: SMs in a TPC, the unit in which SMs can be masked.
        sms_per_gpc: SMs of each GPC, the group of SMs that holds a whole thread block cluster; empty if a cluster may
            use any SMs.
        base_clock_mhz: MHz, or None if unknown.
        boost_clock_mhz: MHz.
        fp32_lanes_per_sm: FP32 multiply-adds that an SM can start per cycle.
        tensor_fp16_tflops: dense FP16 tensor peak with FP32 accumulation, or None.
        tensor_tf32_tflops: dense TF32 tensor peak, or None.
        dram_bandwidth_gb_per_s: peak, in 1e9 bytes per second.
        l2_bytes: L2 cache.
        memory_bytes: device memory.
        limits: what an SM can hold.
        model: constants of the contention model.
        host: measured times of host services, such as copies and allocations.
        unverified: names of the values without a verified source, such as "l2_bytes" or "model.launch_gap_us".
    """

    name: str
    title: str
    architecture: str
    compute_capability: str
    sm_count: int
    sms_per_tpc: int
    sms_per_gpc: tuple[int, ...] = ()
    base_clock_mhz: float | None = None
    boost_clock_mhz: float
    fp32_lanes_per_sm: int
    tensor_fp16_tflops: float | None = None
    tensor_tf32_tflops: float | None = None
    dram_bandwidth_gb_per_s: float
    l2_bytes: int
    memory_bytes: int
    limits: SMLimits
    model: ModelConstants
    unverified: tuple[str, ...]
    host: HostCosts = _NOTHING_MEASURED

    @property
    def gpc_of_sm(self) -> tuple[int, ...]:
        """The GPC of each SM, as `gpusim.hardware.gpcs` numbers them."""
        return numbered(self.sms_per_gpc, self.sm_count)

    def part(self, sms: int | None) -> GPU:
        """Return this GPU with so many of its SMs, and all of its L2 and DRAM; None: all of it."""
        return self if sms in (None, self.sm_count) else replace(self, sm_count=sms)

    @property
    def kept_l2_bytes(self) -> float:
        """Bytes of L2 that consecutive calls may touch so that each finds its tensors there again; at least 1."""
        return max(1.0, self.model.l2_kept_share * self.l2_bytes)

    @property
    def fp32_peak_tflops(self) -> float:
        """FP32 peak at the boost clock, TFLOP/s."""
        return fp32_peak_tflops(self.sm_count, self.fp32_lanes_per_sm, self.boost_clock_mhz)

    def host_us(self, service: HostService, size_bytes: int, place: str) -> float:
        """Return the time of a host service for a number of bytes, us; errors name ``place``, which asks for it."""
        costs = self.host.of(service)
        if costs is None:
            expected = f"a duration, or a GPU whose file gives host.{service} (`gpusim record host`)"
            raise InputError(None, place, f"gives no duration_us, nor does {self.name} say what it takes", expected)
        return costs.us_of(size_bytes)


def gpu_names() -> tuple[str, ...]:
    """Return the names of the GPUs that ship with the package, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def load_gpu(name_or_path: str | Path) -> GPU:
    """Return a GPU that ships with the package, or one from a user's file.

    Args:
        name_or_path: a name among `gpu_names()`, or the path of a GPU file (TOML).

    Raises:
        InputError: no such GPU, or the file is malformed or contradicts itself.
    """
    path = _file_of(name_or_path)
    return _built(path, read_text(path))


def sources_of(name_or_path: str | Path) -> dict[str, str]:
    """Where the values of a GPU file are from, by name, as ``model.switch_us``; arguments and errors as `load_gpu`."""
    path = _file_of(name_or_path)
    file = _parsed(path, read_text(path))
    entries = {key: getattr(file, key) for key in GPUFile.model_fields}
    for place in ("limits", "model"):
        entries |= {f"{place}.{key}": entry for key, entry in entries[place].items()}
    return {name: entry.source for name, entry in entries.items() if isinstance(entry, SourcedValue)}


def load_shipped_gpu(name: str) -> GPU:
    """Return a GPU that ships, by its name. The device of a trace never names a file."""
    if name not in gpu_names():
        expected = expected_one_of(
            gpu_names(), name, "or its file as the GPU of the recording (recorded_on, --recorded-on)"
        )
        raise InputError(None, "device", f"is {quote(name)}, which does not ship", expected)
    return load_gpu(name)


def _folder() -> Path:
    return data_folder("gpus", "gpus")


def _file_of(name_or_path: str | Path) -> Path:
    if isinstance(name_or_path, str) and name_or_path in gpu_names():
        return _folder() / f"{name_or_path}.toml"
    path = path_of(name_or_path, "gpu")
    if len(path.parts) == 1 and path.suffix != ".toml" and not os.path.isfile(path):
        expected = expected_one_of(gpu_names(), name_or_path, "or the path of a GPU file")
        raise InputError(None, "", f"unknown GPU {quote(str(name_or_path))}", expected)
    return path


@lru_cache(maxsize=32)  # a replay asks for the same GPU some six times
def _built(path: Path, text: str) -> GPU:
    with faults_of(path):
        return _build(path.stem, _parsed(path, text))


def _parsed(path: Path, text: str) -> GPUFile:
    with faults_of(path):
        return checked(GPUFile, parse_toml(text, path, "a GPU file"), path)


def _build(name: str, file: GPUFile) -> GPU:
    """Combine the values of the file, the limits of its compute capability and the defaults of the model."""
    capability = file.compute_capability.value
    limits = _merge("limits", SMLimits, CAPABILITIES[capability], file.limits)
    sustained = file.dram_bandwidth_gb_per_s.value * _H200_SUSTAINED_SHARE
    model = _merge("model", ModelConstants, {"dram_sustained_gb_per_s": sustained}, file.model)
    peak = file.dram_bandwidth_gb_per_s.value
    if model.dram_sustained_gb_per_s > peak:
        problem = f"{model.dram_sustained_gb_per_s:g} is above dram_bandwidth_gb_per_s"
        raise InputError(None, "model.dram_sustained_gb_per_s", problem, f"at most {peak:g}")
    named = ((field.name, getattr(file, field.name, None)) for field in fields(GPU))
    values: dict[str, Any] = {key: entry.value for key, entry in named if isinstance(entry, SourcedValue)}
    values |= {"limits": limits, "model": model, "unverified": _unverified(file), "host": file.host}
    return GPU(name=name, title=file.title, **values)


def recorded_by(device: str, gpu: GPU) -> GPU:
    """Return the GPU that a trace was recorded on: ``gpu`` itself if it is that one, else a shipped one."""
    if device in gpu_names():
        shipped = load_gpu(device)
        return gpu if shipped == gpu else shipped
    if device != gpu.name:
        expected = f"one of {', '.join(gpu_names())}, or that GPU's file as the GPU of the recording"
        raise InputError(None, "device", f"is {quote(device)}", expected)
    return gpu


def gpu_of(given: GPU | str | os.PathLike[str], place: str = "gpu") -> GPU:
    """Return a GPU that is given as an object, by the name of one that ships, or by the path of a file.

    Args:
        given: the object, the name or the path.
        place: what errors call it.
    """
    if isinstance(given, GPU):
        return given
    if isinstance(given, str | os.PathLike):
        return load_gpu(given if isinstance(given, str) else Path(given))
    raise InputError(None, place, f"is {quote(given)}", "a GPU, the name of one that ships, or the path of a file")


_Section = TypeVar("_Section", SMLimits, ModelConstants)


def _merge(
    place: str, section: type[_Section], defaults: Mapping[str, Any], given: Mapping[str, SourcedValue]
) -> _Section:
    """Return `section` with a file's entries over the defaults."""
    for key in given:
        if key not in section.model_fields:
            raise InputError(None, f"{place}.{key}", "unknown key", expected_one_of(section.model_fields, key))
    try:
        with validating(None):
            return section.model_validate({**defaults, **{key: entry.value for key, entry in given.items()}})
    except InputError as error:
        raise error.at(place=f"{place}.{error.place}") from None


def _optional(entry: SourcedClock | SourcedTflops | None) -> float | None:
    return None if entry is None else entry.value


def _unverified(file: GPUFile) -> tuple[str, ...]:
    """Name what the file marks unverified, recalled limits it does not replace and defaults of the model."""
    entries = ((key, getattr(file, key)) for key in GPUFile.model_fields)
    names = [key for key, entry in entries if isinstance(entry, SourcedValue) and not entry.verified]
    recalled = unverified_limits(file.compute_capability.value)
    for place, given, doubtful in (
        ("limits", file.limits, recalled),
        ("model", file.model, tuple(ModelConstants.model_fields)),
    ):
        names += [f"{place}.{key}" for key, entry in given.items() if not entry.verified]
        names += [f"{place}.{key}" for key in doubtful if key not in given]
    return tuple(names)
