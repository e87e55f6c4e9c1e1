"""Limits of one SM and its units of allocation, by compute capability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from gpusim.common.errors import InputError, quote
from gpusim.common.strict import Strict

Count = Annotated[int, Field(ge=1, le=100_000)]
Bytes = Annotated[int, Field(ge=1, le=2**50)]
CarveoutsKib = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0, le=2**20)], ...], Field(strict=False, min_length=1)
]


class SMLimits(Strict):
    """Limits of one SM and its units of allocation, by compute capability.

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

    @property
    def capacity(self) -> tuple[int, int, int, int]:
        """Return what resident blocks share on an SM: registers, bytes of shared memory, warps and block slots."""
        return self.registers_per_sm, self.shared_memory_per_sm_bytes, self.max_warps_per_sm, self.max_blocks_per_sm

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


_MAXWELL: dict[str, Any] = {"optin": False, "reserved_bytes": 0, "shared_unit_bytes": 256, "resident_grids": 32}
_KEPLER: dict[str, Any] = _MAXWELL | {"blocks": 16}
_PASCAL: dict[str, Any] = _MAXWELL | {"resident_grids": 128}
_VOLTA: dict[str, Any] = {"reserved_bytes": 0, "shared_unit_bytes": 256}
_UP_TO_100 = (0, 8, 16, 32, 64, 100)
_UP_TO_164 = (0, 8, 16, 32, 64, 100, 132, 164)
_UP_TO_228 = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)

CAPABILITIES: Mapping[str, dict[str, Any]] = {  # limits of an SM, oldest first
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
    "max_threads_per_sm", "max_warps_per_sm", "shared_memory_per_sm_bytes", "shared_memory_carveouts_kib",
)  # fmt: skip
_RECALLED_LIMITS: Mapping[str, tuple[str, ...]] = {
    "3.5": (*_RECALLED_KEPLER, "registers_per_sm"),
    "3.7": _RECALLED_KEPLER,
}


def unverified_limits(compute_capability: str) -> tuple[str, ...]:
    """Return the limits of a compute capability that are recalled and not read ([M] in the table's source)."""
    return _RECALLED_LIMITS.get(compute_capability, ())


def require_known(compute_capability: str) -> None:
    """Refuse a compute capability whose limits are not known."""
    if compute_capability not in CAPABILITIES:
        problem, expected = (
            f"unknown compute capability {quote(compute_capability)}",
            f"one of {', '.join(CAPABILITIES)}",
        )
        raise InputError(None, "compute_capability", problem, expected)
