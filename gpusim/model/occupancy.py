"""How many blocks of a kernel fit on one SM, and what stops the next one.

The rule is that of NVIDIA's cuda_occupancy.h (12.9.79 and 13.5.37 agree), restated; the numbers are in
`gpusim.hardware.gpu.SMLimits`. For several kernels on one SM there is no published rule: shared memory, warps and block
slots are summed over the SM, registers over each sub-partition (`register_blocks`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike

from gpusim.common.errors import InputError, quote
from gpusim.hardware.compute_capability import SMLimits
from gpusim.hardware.gpu import GPU, gpu_of


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many blocks of one kernel fit on an SM.

    Attributes:
        blocks_per_sm: resident blocks of this kernel alone; 0 when it cannot launch.
        limiter: the resource that stops the next block (or the launch), a key of `limits`; where several do,
            the first in their order.
        limits: blocks that each resource alone allows: "warps", "registers", "shared_memory", "blocks" (block
            slots). 0 where the launch fails for it, None where the resource is not used and does not limit.
    """

    blocks_per_sm: int
    limiter: str
    limits: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resources of an SM that one resident block holds."""

    warps: int  # warps, the last one whole
    registers: int  # 32-bit registers as allocated
    shared_memory_bytes: int  # static, dynamic and the driver's shared memory, as allocated

    @property
    def need(self) -> tuple[int, int, int, int]:
        """Registers, shared memory bytes, warps and block slots, in the order of `SMLimits.capacity`."""
        return self.registers, self.shared_memory_bytes, self.warps, 1


def occupancy(
    gpu: GPU | str | PathLike[str],
    *,
    threads_per_block: int,
    registers_per_thread: int,
    shared_memory_per_block: int,
) -> Occupancy:
    """Return the number of blocks of a kernel that fit on one SM of `gpu`, at the largest shared-memory carve-out.

    The kernel is assumed to opt in to the large shared-memory size of a block, and to use one barrier per block
    (`__syncthreads`), which never limits.

    Args:
        gpu: the GPU, its name or the path of its file.
        threads_per_block: at least 1.
        registers_per_thread: 32-bit registers; 0 means that they do not limit.
        shared_memory_per_block: static plus dynamic shared memory in bytes, without the reserve of the driver.

    Raises:
        InputError: an argument is not a whole number, or is negative, or there are 0 threads.
    """
    gpu = gpu_of(gpu)
    threads = _whole("threads_per_block", threads_per_block, least=1)
    registers = _whole("registers_per_thread", registers_per_thread, least=0)
    shared = _whole("shared_memory_per_block", shared_memory_per_block, least=0)
    limits = {
        "warps": _warp_limit(gpu.limits, threads),
        "registers": _register_limit(gpu, threads, registers),
        "shared_memory": _shared_memory_limit(gpu.limits, shared),
        "blocks": gpu.limits.max_blocks_per_sm,
    }
    blocks, limiter = min(
        ((limit, name) for name, limit in limits.items() if limit is not None), key=operator.itemgetter(0)
    )
    return Occupancy(blocks_per_sm=blocks, limiter=limiter, limits=limits)


def footprint(gpu: GPU, threads_per_block: int, registers_per_thread: int, shared_memory_per_block: int) -> Footprint:
    """Return the resources that one resident block allocates on an SM of `gpu`, whether or not it can launch.

    Shared memory is static and dynamic together, bytes.
    """
    threads = _whole("threads_per_block", threads_per_block, least=1)
    registers = _whole("registers_per_thread", registers_per_thread, least=0)
    shared = _whole("shared_memory_per_block", shared_memory_per_block, least=0)
    warps = _warps(gpu.limits, threads)
    return Footprint(
        warps=warps,
        registers=warps * _registers_per_warp(gpu.limits, registers),
        shared_memory_bytes=_shared_memory(gpu.limits, shared),
    )


def waves(blocks: int, blocks_per_sm: int, sm_count: int) -> float:
    """Blocks of a launch over those that the SMs hold at once when they hold nothing else."""
    return blocks / (blocks_per_sm * sm_count)


def most_resident(blocks: int, blocks_per_sm: int, sm_count: int) -> int:
    """Most blocks of a launch on one SM where SMs hold nothing else: its occupancy, or fewer where these are all."""
    return min(blocks_per_sm, -(-blocks // sm_count))


def register_blocks(limits: SMLimits, others: Iterable[tuple[Footprint, int]], block: Footprint) -> int:
    """Return how many blocks of a kernel the registers of one SM hold beside resident blocks of other kernels.

    Warps go to the sub-partitions in turn. Each has its own share of the registers; if one has no room, no block
    starts. The others' blocks count as placed before, kernel by kernel [D]; beside one block all 49 pairs of
    experiments/h200_microbench, `registers.csv`, agree. For a kernel alone it is the rule of `occupancy`.
    """
    if block.registers == 0:
        return limits.max_blocks_per_sm
    free = [limits.registers_per_sm // limits.sub_partitions] * limits.sub_partitions
    placed = 0  # warps
    for other, count in others:
        each, one_more = divmod(count * other.warps, limits.sub_partitions)
        for number in range(limits.sub_partitions):
            warps = each + ((number - placed) % limits.sub_partitions < one_more)
            free[number] -= warps * (other.registers // other.warps)
        placed += count * other.warps
    per_warp = block.registers // block.warps
    warps = min(
        (number - placed) % limits.sub_partitions + limits.sub_partitions * max(0, registers // per_warp)
        for number, registers in enumerate(free)
    )
    return warps // block.warps


def exceeded(gpu: GPU, residents: Iterable[tuple[Footprint, int]]) -> str | None:
    """Return which resource a mix of resident blocks, a number of each kernel, would exceed on one SM; None: it fits.

    Warps, allocated shared memory and slots are each summed over all residents and compared with the SM's total; of
    registers each kernel has what the others leave (`register_blocks`), so that a block that ends can be replaced. It
    is the first that is exceeded of "warps", "registers", "shared_memory" and "blocks".
    """
    residents = [(block, count) for block, count in residents if count]
    warps = sum(count * block.warps for block, count in residents)
    shared = sum(count * block.shared_memory_bytes for block, count in residents)
    blocks = sum(count for _, count in residents)
    limits = gpu.limits
    if warps > limits.max_warps_per_sm:
        return "warps"
    for i, (block, count) in enumerate(residents):
        if block.registers and count > register_blocks(limits, residents[:i] + residents[i + 1 :], block):
            return "registers"
    if shared > limits.shared_memory_per_sm_bytes:
        return "shared_memory"
    return "blocks" if blocks > limits.max_blocks_per_sm else None


def fits(gpu: GPU, residents: Iterable[tuple[Footprint, int]]) -> bool:
    """Return whether a mix of resident blocks fits one SM: `exceeded` is None."""
    return exceeded(gpu, residents) is None


def _warp_limit(limits: SMLimits, threads: int) -> int:
    if threads > limits.max_threads_per_block:
        return 0
    return limits.max_warps_per_sm // _warps(limits, threads)


def _register_limit(gpu: GPU, threads: int, registers: int) -> int | None:
    """Blocks that the registers allow; each sub-partition holds whole warps out of its own share."""
    if registers == 0:
        return None
    if registers > gpu.limits.max_registers_per_thread:
        return 0
    blocks = _register_blocks(gpu.limits, threads, registers, gpu.limits.sub_partitions)
    if gpu.compute_capability == "6.0" and _register_blocks(gpu.limits, threads, registers, 4) == 0:
        # On GP100, with 2 sub-partitions, the driver refuses kernels that no other Pascal, with 4, could run.
        return 0
    return blocks


def _register_blocks(limits: SMLimits, threads: int, registers: int, sub_partitions: int) -> int:
    warps = _warps(limits, threads)
    per_warp = _registers_per_warp(limits, registers)
    if per_warp * _round_up(warps, sub_partitions) > limits.registers_per_block:
        return 0
    warps_per_sub_partition = limits.registers_per_sm // sub_partitions // per_warp
    return warps_per_sub_partition * sub_partitions // warps


def _shared_memory_limit(limits: SMLimits, shared: int) -> int | None:
    allocated = _shared_memory(limits, shared)
    if allocated == 0:
        return None
    if allocated > limits.shared_memory_per_block_optin_bytes + limits.shared_memory_reserved_per_block_bytes:
        return 0
    return limits.shared_memory_per_sm_bytes // allocated


def _warps(limits: SMLimits, threads: int) -> int:
    return -(-threads // limits.warp_size)


def _registers_per_warp(limits: SMLimits, registers: int) -> int:
    return _round_up(limits.warp_size * registers, limits.register_allocation_unit)


def _shared_memory(limits: SMLimits, shared: int) -> int:
    """Shared memory that a block of `shared` static and dynamic bytes allocates."""
    with_reserve = shared + limits.shared_memory_reserved_per_block_bytes
    return _round_up(with_reserve, limits.shared_memory_allocation_unit_bytes)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _whole(name: str, value: object, *, least: int) -> int:
    """Return `value` as an int; any integer type will do (numpy's too), a bool will not."""
    expected = f"a whole number of at least {least}"
    if isinstance(value, bool):
        raise InputError(None, name, f"is {quote(value)}", expected)
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what has no __index__ raises
    except TypeError:
        raise InputError(None, name, f"is {quote(value)}", expected) from None
    if number < least:
        raise InputError(None, name, f"is {quote(number)}", expected)
    return number
