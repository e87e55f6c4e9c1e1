"""What a GPU is: the limits of its SMs, its rates and the constants of the model.

A GPU file, `gpus/NAME.toml`, says of every value where it is from, and whether that was verified:
`sm_count = { value = 132, source = "..." }`, with `verified = false` where the source was not read or others
disagree. `GPU` is what the simulator reads; `GPUFile` is the strict model of the file (its JSON Schema:
`GPUFile.model_json_schema()`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpusim.errors import InputError, from_pydantic, quote
from gpusim.files import is_file, read_toml

FP32_OPERATIONS_PER_LANE_AND_CYCLE = 2  # a fused multiply-add counts as two

_PEAK_TOLERANCE = 0.02

# Share of its DRAM peak that the H200 sustains: 4600 of 4800 GB/s. Stands in where no one measured.
_H200_SUSTAINED_SHARE = 4600 / 4800

Text = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
Count = Annotated[int, Field(ge=1, le=100_000)]
SMCount = Annotated[int, Field(ge=1, le=4096)]  # 16 times what any GPU has, for what-ifs
Bytes = Annotated[int, Field(ge=1, le=2**50)]
ClockMhz = Annotated[float, Field(ge=1, le=20_000)]
Tflops = Annotated[float, Field(ge=0.001, le=1_000_000)]
BandwidthGbPerS = Annotated[float, Field(ge=0.1, le=1_000_000)]
CarveoutsKib = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0, le=2**20)], ...], Field(strict=False, min_length=1)
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SMLimits(_Strict):
    """What one SM can hold and how it is handed out, by compute capability (`sm_limits`).

    The numbers and the allocation units are those of NVIDIA's cuda_occupancy.h (12.9.79 and 13.5.37) and of
    arch_traits.h in CCCL 13.3.5; for compute capability 3.5 and 3.7 some are recalled (`unverified_limits`).
    """

    warp_size: Count = Field(description="threads in a warp")
    max_threads_per_sm: Count = Field(description="threads resident on an SM")
    max_warps_per_sm: Count = Field(description="warps resident on an SM")
    max_blocks_per_sm: Count = Field(description="thread blocks resident on an SM (block slots)")
    max_threads_per_block: Count = Field(description="threads in a thread block")
    registers_per_sm: Bytes = Field(description="32-bit registers of an SM")
    registers_per_block: Bytes = Field(description="32-bit registers that one thread block may allocate")
    max_registers_per_thread: Count = Field(description="registers of a thread that the compiler may use")
    register_allocation_unit: Count = Field(description="registers; a warp's are rounded up to a multiple of it")
    sub_partitions: Count = Field(description="sub-partitions of an SM, each with its share of the registers")
    shared_memory_per_sm_bytes: Bytes = Field(description="shared memory of an SM at its largest carve-out")
    shared_memory_per_block_default_bytes: Bytes = Field(description="shared memory of a block without opting in")
    shared_memory_per_block_optin_bytes: Bytes = Field(description="shared memory of a block that opts in")
    shared_memory_reserved_per_block_bytes: Annotated[int, Field(ge=0, le=2**30)] = Field(
        description="shared memory that the driver takes for itself in every block"
    )
    shared_memory_allocation_unit_bytes: Count = Field(
        description="bytes; a block's shared memory, the driver's included, is rounded up to a multiple of it"
    )
    shared_memory_carveouts_kib: CarveoutsKib = Field(
        description="KiB of shared memory that an SM can be set to, ascending; one size where it is fixed"
    )
    max_resident_grids: Count = Field(description="kernels that run at once on the GPU")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for smaller, larger in _ORDERED_LIMITS:
            least, most = getattr(self, smaller), getattr(self, larger)
            if least > most:
                raise InputError(None, smaller, f"{least} is above {larger}", f"at most {most}")
        self._check_threads_and_registers()
        self._check_shared_memory()
        return self

    def _check_threads_and_registers(self) -> None:
        threads = self.max_warps_per_sm * self.warp_size
        if self.max_threads_per_sm != threads:
            problem = f"{self.max_threads_per_sm} contradicts max_warps_per_sm, {self.max_warps_per_sm}"
            raise InputError(None, "max_threads_per_sm", problem, f"warps x {self.warp_size} = {threads}")
        if self.registers_per_sm % self.sub_partitions:
            problem = f"{self.registers_per_sm} does not divide into sub-partitions"
            raise InputError(None, "registers_per_sm", problem, f"a multiple of {self.sub_partitions}")

    def _check_shared_memory(self) -> None:
        per_sm = self.shared_memory_per_sm_bytes
        reserved = self.shared_memory_reserved_per_block_bytes
        if self.shared_memory_per_block_optin_bytes + reserved > per_sm:
            problem = f"{self.shared_memory_per_block_optin_bytes} is above what an SM has"
            expected = f"at most shared_memory_per_sm_bytes less the driver's {reserved}, {per_sm - reserved}"
            raise InputError(None, "shared_memory_per_block_optin_bytes", problem, expected)
        sizes = list(self.shared_memory_carveouts_kib)
        if sizes != sorted(set(sizes)) or sizes[-1] * 1024 != per_sm:
            expected = f"ascending sizes up to shared_memory_per_sm_bytes, {per_sm / 1024:g} KiB"
            raise InputError(None, "shared_memory_carveouts_kib", f"has {quote(sizes)}", expected)


_ORDERED_LIMITS = (
    ("warp_size", "max_threads_per_block"),
    ("max_threads_per_block", "max_threads_per_sm"),
    ("registers_per_block", "registers_per_sm"),
    ("shared_memory_per_block_default_bytes", "shared_memory_per_block_optin_bytes"),
)


def _capability(
    *,
    warps: int = 64,
    blocks: int = 32,
    carveouts_kib: tuple[int, ...],
    optin: bool = True,
    registers_per_sm: int = 65536,
    registers_per_block: int = 65536,
    sub_partitions: int = 4,
    reserved_bytes: int = 1024,
    shared_unit_bytes: int = 128,
    resident_grids: int = 128,
) -> dict[str, Any]:
    """One row of the table below: the values that most compute capabilities share are the defaults."""
    shared_per_sm = carveouts_kib[-1] * 1024
    return {
        "warp_size": 32,
        "max_threads_per_sm": 32 * warps,
        "max_warps_per_sm": warps,
        "max_blocks_per_sm": blocks,
        "max_threads_per_block": 1024,
        "registers_per_sm": registers_per_sm,
        "registers_per_block": registers_per_block,
        "max_registers_per_thread": 255,
        "register_allocation_unit": 256,
        "sub_partitions": sub_partitions,
        "shared_memory_per_sm_bytes": shared_per_sm,
        "shared_memory_per_block_default_bytes": 48 * 1024,
        "shared_memory_per_block_optin_bytes": shared_per_sm - reserved_bytes if optin else 48 * 1024,
        "shared_memory_reserved_per_block_bytes": reserved_bytes,
        "shared_memory_allocation_unit_bytes": shared_unit_bytes,
        "shared_memory_carveouts_kib": carveouts_kib,
        "max_resident_grids": resident_grids,
    }


_KEPLER: dict[str, Any] = {
    "blocks": 16, "optin": False, "reserved_bytes": 0, "shared_unit_bytes": 256, "resident_grids": 32,
}  # fmt: skip
_MAXWELL: dict[str, Any] = {
    "optin": False,
    "reserved_bytes": 0,
    "shared_unit_bytes": 256,
    "resident_grids": 32,
}
_PASCAL: dict[str, Any] = _MAXWELL | {"resident_grids": 128}
_VOLTA: dict[str, Any] = {"reserved_bytes": 0, "shared_unit_bytes": 256}
_UP_TO_100 = (0, 8, 16, 32, 64, 100)
_UP_TO_164 = (0, 8, 16, 32, 64, 100, 132, 164)
_UP_TO_228 = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)

_CAPABILITIES: Mapping[str, dict[str, Any]] = {
    "3.5": _capability(carveouts_kib=(16, 32, 48), **_KEPLER),
    "3.7": _capability(carveouts_kib=(80, 96, 112), registers_per_sm=131072, **_KEPLER),
    "5.0": _capability(carveouts_kib=(64,), **_MAXWELL),
    "5.2": _capability(carveouts_kib=(96,), **_MAXWELL),
    "5.3": _capability(carveouts_kib=(64,), registers_per_block=32768, **_MAXWELL),
    "6.0": _capability(carveouts_kib=(64,), sub_partitions=2, **_PASCAL),
    "6.1": _capability(carveouts_kib=(96,), **_PASCAL),
    "6.2": _capability(carveouts_kib=(64,), registers_per_block=32768, **_PASCAL),
    "7.0": _capability(carveouts_kib=(0, 8, 16, 32, 64, 96), **_VOLTA),
    "7.5": _capability(warps=32, blocks=16, carveouts_kib=(32, 64), **_VOLTA),
    "8.0": _capability(carveouts_kib=_UP_TO_164),
    "8.6": _capability(warps=48, blocks=16, carveouts_kib=_UP_TO_100),
    "8.7": _capability(warps=48, blocks=16, carveouts_kib=_UP_TO_164),
    "8.9": _capability(warps=48, blocks=24, carveouts_kib=_UP_TO_100),
    "9.0": _capability(carveouts_kib=_UP_TO_228),
    "10.0": _capability(carveouts_kib=_UP_TO_228),
    "10.3": _capability(carveouts_kib=_UP_TO_228),
    "11.0": _capability(warps=48, blocks=24, carveouts_kib=_UP_TO_228),
    "12.0": _capability(warps=48, blocks=24, carveouts_kib=_UP_TO_100),
    "12.1": _capability(warps=48, blocks=24, carveouts_kib=_UP_TO_100),
}

_RECALLED_KEPLER = (
    "max_threads_per_sm",
    "max_warps_per_sm",
    "shared_memory_per_sm_bytes",
    "shared_memory_carveouts_kib",
)
_RECALLED_LIMITS: Mapping[str, tuple[str, ...]] = {
    "3.5": (*_RECALLED_KEPLER, "registers_per_sm"),
    "3.7": _RECALLED_KEPLER,
}


def compute_capabilities() -> tuple[str, ...]:
    """Returns the compute capabilities whose SM limits are known, oldest first."""
    return tuple(_CAPABILITIES)


def sm_limits(compute_capability: str) -> SMLimits:
    """Returns the SM limits of a compute capability such as "9.0".

    Raises:
        InputError: the compute capability is not one of `compute_capabilities()`.
    """
    _require_known(compute_capability)
    return SMLimits.model_validate(_CAPABILITIES[compute_capability])


def unverified_limits(compute_capability: str) -> tuple[str, ...]:
    """Returns which limits of a compute capability are recalled and not read ([M] in the table's source)."""
    return _RECALLED_LIMITS.get(compute_capability, ())


def _require_known(compute_capability: str) -> None:
    if compute_capability not in _CAPABILITIES:
        raise InputError(
            None,
            "compute_capability",
            f"unknown compute capability {quote(compute_capability)}",
            f"one of {', '.join(_CAPABILITIES)}",
        )


class ModelConstants(_Strict):
    """The few constants of the contention model, each a property of the GPU and none of a kernel.

    Defaults are the H200's; a GPU file that does not give a constant takes the default, unverified. The unit
    of each is under `unit` in the JSON Schema.
    """

    dram_sustained_gb_per_s: BandwidthGbPerS = Field(
        description="DRAM bandwidth that kernels sustain, reads and writes together; "
        "where a file does not give it, the H200's share of its peak (4600 of 4800)",
        json_schema_extra={"unit": "GB/s"},
    )
    launch_latency_us: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=4.0,
        description="part of a kernel's recorded duration in which none of its blocks runs, whatever the SMs",
        json_schema_extra={"unit": "us"},
    )
    event_overhead_us: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=4.6,
        description="what a measurement from event to event adds to a sequence of calls, however long",
        json_schema_extra={"unit": "us"},
    )
    l2_sustained_share: Annotated[float, Field(ge=0.01, le=1.5)] = Field(
        default=0.97,
        description="share of its counted peak that L2 sustains",
        json_schema_extra={"unit": "1"},
    )
    l2_read_gb_per_s: BandwidthGbPerS = Field(
        default=6000.0,
        description="reads that L2 sustains for convolution kernels; a plain stream gets more (h200_microbench)",
        json_schema_extra={"unit": "GB/s"},
    )
    l2_write_gb_per_s: BandwidthGbPerS = Field(
        default=5000.0,
        description="plain writes that L2 sustains",
        json_schema_extra={"unit": "GB/s"},
    )
    l2_atomic_gb_per_s: BandwidthGbPerS = Field(
        default=2600.0,
        description="traffic of atomics and reductions that L2 sustains",
        json_schema_extra={"unit": "GB/s"},
    )
    sustained_issue_share: Annotated[float, Field(ge=0.01, le=1)] = Field(
        default=0.9,
        description="share of an SM's issue slots, pipes and data paths that co-resident warps can keep busy",
        json_schema_extra={"unit": "1"},
    )
    barrier_turn_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.7,
        description="share of barrier stalls that is waiting for other warps' turns and not latency",
        json_schema_extra={"unit": "1"},
    )
    short_scoreboard_turn_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.75,
        description="the same share of short-scoreboard stalls (shared memory, special functions)",
        json_schema_extra={"unit": "1"},
    )
    long_scoreboard_turn_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0,
        description="the same share of long-scoreboard stalls (L1TEX), with the L1 path fully busy",
        json_schema_extra={"unit": "1"},
    )
    block_jitter: Annotated[float, Field(ge=0, le=0.3)] = Field(
        default=0.02,
        description="standard deviation of a block's work over the mean of its launch",
        json_schema_extra={"unit": "1"},
    )


class Sourced(_Strict):
    """Where one value of a GPU file is from; the kinds of value follow."""

    source: Text = Field(description="where the value is from")
    verified: bool = Field(default=True, description="false where the source was not read, or others disagree")


class SourcedValue(Sourced):
    """Any value: that of a key which another model knows."""

    value: Any


class SourcedText(Sourced):
    """A text."""

    value: Text


class SourcedCount(Sourced):
    """A whole number of things."""

    value: Count


class SourcedSMCount(Sourced):
    """A number of SMs."""

    value: SMCount


class SourcedBytes(Sourced):
    """A size in bytes."""

    value: Bytes


class SourcedClock(Sourced):
    """A clock in MHz."""

    value: ClockMhz


class SourcedTflops(Sourced):
    """A rate in TFLOP/s (1e12 operations a second)."""

    value: Tflops


class SourcedBandwidth(Sourced):
    """A bandwidth in GB/s (1e9 bytes a second)."""

    value: BandwidthGbPerS


def _list_keys(section: type[BaseModel]) -> Any:
    """Returns a schema hook that lists the keys of a part of the file: those of `section`, each sourced."""

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


class GPUFile(_Strict):
    """A GPU file, version 1: every value with its source. Numbers are per GPU unless the key says per SM."""

    version: Literal[1] = Field(description="version of this format")
    title: Text = Field(description="the product, and which of its variants")
    architecture: SourcedText = Field(description="the chip, such as GH100")
    compute_capability: SourcedText = Field(description='text, such as "9.0"; sets the limits of an SM')
    sm_count: SourcedSMCount = Field(description="SMs")
    sms_per_tpc: SourcedSMCount = Field(description="SMs in a TPC, the unit in which SMs can be masked")
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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _require_known(self.compute_capability.value)
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
    """Returns the FP32 peak in TFLOP/s: SMs x lanes x 2 (a multiply-add) x clock."""
    return sm_count * fp32_lanes_per_sm * FP32_OPERATIONS_PER_LANE_AND_CYCLE * clock_mhz * 1e6 / 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """One GPU as the simulator sees it. `dataclasses.replace` makes a what-if of it.

    Attributes:
        name: the stem of its file, such as "h200".
        title: the product, and which of its variants.
        architecture: the chip.
        compute_capability: text, such as "9.0".
        sm_count: SMs.
        sms_per_tpc: SMs in a TPC, the unit in which SMs can be masked.
        base_clock_mhz: MHz, or None where none was found.
        boost_clock_mhz: MHz.
        fp32_lanes_per_sm: FP32 multiply-adds an SM can start a cycle.
        tensor_fp16_tflops: dense FP16 tensor peak with FP32 accumulation, or None.
        tensor_tf32_tflops: dense TF32 tensor peak, or None.
        dram_bandwidth_gb_per_s: peak, in 1e9 bytes a second.
        l2_bytes: L2 cache.
        memory_bytes: device memory.
        limits: what an SM can hold.
        model: constants of the contention model.
        unverified: names of the values that nobody verified, such as "l2_bytes" or "model.launch_gap_us".
    """

    name: str
    title: str
    architecture: str
    compute_capability: str
    sm_count: int
    sms_per_tpc: int
    base_clock_mhz: float | None
    boost_clock_mhz: float
    fp32_lanes_per_sm: int
    tensor_fp16_tflops: float | None
    tensor_tf32_tflops: float | None
    dram_bandwidth_gb_per_s: float
    l2_bytes: int
    memory_bytes: int
    limits: SMLimits
    model: ModelConstants
    unverified: tuple[str, ...]

    @property
    def fp32_peak_tflops(self) -> float:
        """FP32 peak at the boost clock, TFLOP/s."""
        return fp32_peak_tflops(self.sm_count, self.fp32_lanes_per_sm, self.boost_clock_mhz)


def gpu_names() -> tuple[str, ...]:
    """Returns the names of the GPUs that ship with the package, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def load_gpu(name_or_path: str | Path) -> GPU:
    """Returns a GPU: one that ships with the package, or a user's own.

    Args:
        name_or_path: a name among `gpu_names()`, or the path of a GPU file (TOML).

    Raises:
        InputError: no such GPU, or the file is malformed or contradicts itself.
    """
    if isinstance(name_or_path, str) and name_or_path in gpu_names():
        return _read(_folder() / f"{name_or_path}.toml")
    path = Path(name_or_path)
    if len(path.parts) == 1 and path.suffix != ".toml" and not is_file(path):
        raise InputError(
            None,
            "",
            f"unknown GPU {quote(str(name_or_path))}",
            f"one of {', '.join(gpu_names())}, or the path of a GPU file",
        )
    return _read(path)


def load_shipped_gpu(name: str) -> GPU:
    """Returns a GPU that ships by its name alone: what a trace calls its device never names a file.

    Raises:
        InputError: no such GPU ships.
    """
    if name not in gpu_names():
        expected = f"one of {', '.join(gpu_names())}, or the GPU to replay on given by name or file"
        raise InputError(None, "device", f"is {quote(name)}, which does not ship", expected)
    return load_gpu(name)


def _folder() -> Path:
    """The folder of GPU files: inside the package when installed, beside it in a source tree."""
    package = Path(__file__).resolve().parent
    inside = package / "gpus"
    return inside if inside.is_dir() else package.parent / "gpus"


def _read(path: Path) -> GPU:
    content = read_toml(path, "a GPU file")
    try:
        return _build(path.stem, GPUFile.model_validate(content))
    except ValidationError as error:
        raise from_pydantic(path, error) from None
    except InputError as error:
        raise InputError(path, error.place, error.problem, error.expected) from None


def _build(name: str, file: GPUFile) -> GPU:
    """Puts together what the file says, what its compute capability says, and the defaults of the model."""
    capability = file.compute_capability.value
    limits = _merge("limits", SMLimits, _CAPABILITIES[capability], file.limits)
    sustained = file.dram_bandwidth_gb_per_s.value * _H200_SUSTAINED_SHARE
    model = _merge("model", ModelConstants, {"dram_sustained_gb_per_s": sustained}, file.model)
    peak = file.dram_bandwidth_gb_per_s.value
    if model.dram_sustained_gb_per_s > peak:
        problem = f"{model.dram_sustained_gb_per_s:g} is above dram_bandwidth_gb_per_s"
        raise InputError(None, "model.dram_sustained_gb_per_s", problem, f"at most {peak:g}")
    return GPU(
        name=name,
        title=file.title,
        architecture=file.architecture.value,
        compute_capability=capability,
        sm_count=file.sm_count.value,
        sms_per_tpc=file.sms_per_tpc.value,
        base_clock_mhz=_optional(file.base_clock_mhz),
        boost_clock_mhz=file.boost_clock_mhz.value,
        fp32_lanes_per_sm=file.fp32_lanes_per_sm.value,
        tensor_fp16_tflops=_optional(file.tensor_fp16_tflops),
        tensor_tf32_tflops=_optional(file.tensor_tf32_tflops),
        dram_bandwidth_gb_per_s=file.dram_bandwidth_gb_per_s.value,
        l2_bytes=file.l2_bytes.value,
        memory_bytes=file.memory_bytes.value,
        limits=limits,
        model=model,
        unverified=_unverified(file),
    )


_Section = TypeVar("_Section", SMLimits, ModelConstants)


def _merge(
    place: str, section: type[_Section], defaults: Mapping[str, Any], given: Mapping[str, SourcedValue]
) -> _Section:
    """Returns `section` with a file's entries over the defaults."""
    for key in given:
        if key not in section.model_fields:
            known = ", ".join(section.model_fields)
            raise InputError(None, f"{place}.{key}", "unknown key", f"one of {known}")
    try:
        return section.model_validate({**defaults, **{key: entry.value for key, entry in given.items()}})
    except ValidationError as error:
        inner = from_pydantic(None, error)
        raise InputError(None, f"{place}.{inner.place}", inner.problem, inner.expected) from None


def _optional(entry: SourcedClock | SourcedTflops | None) -> float | None:
    return None if entry is None else entry.value


def _unverified(file: GPUFile) -> tuple[str, ...]:
    """Names what the file marks unverified, recalled limits it does not replace and defaults of the model."""
    entries = ((key, getattr(file, key)) for key in GPUFile.model_fields)
    names = [key for key, entry in entries if isinstance(entry, Sourced) and not entry.verified]
    recalled = unverified_limits(file.compute_capability.value)
    for place, given, doubtful in (
        ("limits", file.limits, recalled),
        ("model", file.model, tuple(ModelConstants.model_fields)),
    ):
        names += [f"{place}.{key}" for key, entry in given.items() if not entry.verified]
        names += [f"{place}.{key}" for key in doubtful if key not in given]
    return tuple(names)
