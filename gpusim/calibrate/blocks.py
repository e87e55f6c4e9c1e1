"""Blocks of a launch as its grid and active cycles show them: clusters, tiles of persistent kernels, last blocks."""

from __future__ import annotations

from math import prod

from gpusim.hardware.compute_capability import CAPABILITIES
from gpusim.hardware.gpcs import most_clusters
from gpusim.hardware.gpu import GPU
from gpusim.trace.kernels import KernelLaunch, Mix

CLUSTERS = range(3, 9)  # blocks of a cluster that does not fit on a lone TPC; more than 8 are not portable
MOST_BEFORE_CLUSTERS = CAPABILITIES["8.0"]["shared_memory_per_block_optin_bytes"]  # came with compute capability 9.0
TILES_OF_A_BLOCK = 8  # of a persistent kernel, where no counter tells [D]
MOST_TILES = 16  # of a block: finer ones make no step that could be seen
SMS_DIFFER = 0.03  # of a tile, by which active cycles of SMs with as many tiles differ, on the mean [D]
EQUAL_BLOCKS = 0.04  # by how much SMs with a block each may differ where all do as much [D]
LAST_OF = 4  # blocks of an SM, at least, where some are last ones: of fewer, one more or less shows as much [D]
FEW_RESULTS = 0.25  # of the SMs have a last block, at most: otherwise blocks differ in length [D]
LONG_SMS = 2.5  # SMs that were active for longer, at most, for each block of a row of the grid [D]
SHORT_REST = 0.3  # of the longest active time: a shorter rest is no work of last blocks [D]


def is_persistent(launch: KernelLaunch, blocks_per_sm: int, gpu: GPU) -> bool:
    """Whether a launch looks persistent: one block on each SM, or on each that its clusters can have [D]."""
    if blocks_per_sm > 1:
        return False
    return launch.blocks in (gpu.sm_count, _cluster_sms(cluster_blocks(launch, blocks_per_sm, gpu), gpu))


def tiles(launch: KernelLaunch, blocks_per_sm: int, gpu: GPU) -> int:
    """Return the tiles of a launch: more tiles than blocks if blocks share the work as they go, else one per block.

    Blocks of a persistent kernel differ by at most one tile. The SM with the fewest active cycles therefore gives the
    length of a tile, and the mean SM gives their number [D]. If some SMs have no block, the others did half a tile less
    than the most, on the mean. If all blocks of recorded clusters did the same work, each has one tile [D].
    """
    blocks = launch.blocks
    if launch.block_lengths or not is_persistent(launch, blocks_per_sm, gpu):
        return blocks
    mix = launch.mix
    if mix is None or not mix.active_cycles_avg or not mix.active_cycles_max or mix.active_cycles_min is None:
        return TILES_OF_A_BLOCK * blocks
    mean = mix.active_cycles_avg / mix.active_cycles_max
    if blocks == gpu.sm_count:
        tile = 1.0 - mix.active_cycles_min / mix.active_cycles_max
        most = _whole_tiles(tile)
        fewer = min(1.0, max(0.0, (1.0 - mean) / tile - SMS_DIFFER)) if tile > 0.0 else 0.0
    else:
        spread = 1.0 - min(1.0, mean * gpu.sm_count / blocks)
        if spread < EQUAL_BLOCKS and mix.cluster is not None:
            return blocks
        most, fewer = _whole_tiles(2.0 * spread), 0.5
    return max(blocks, round(blocks * (most - fewer))) if most > 1 else blocks


def _whole_tiles(tile: float) -> int:
    """Tiles of the block that has most, from the share of its time that one takes."""
    return max(1, min(MOST_TILES, round(1.0 / max(tile, 1.0 / MOST_TILES))))


def waits_for_all(launch: KernelLaunch, gpu: GPU) -> bool:
    """Whether blocks of a persistent kernel that find no free SM start only when all others have ended.

    Each of them has a first tile of its own then. If recorded blocks are no clusters, others have taken all tiles [D].
    """
    return launch.blocks == gpu.sm_count and (launch.mix is None or launch.mix.cluster != (1, 1, 1))


def cluster_blocks(launch: KernelLaunch, blocks_per_sm: int, gpu: GPU) -> int:
    """Return the blocks per cluster of a launch, 1 for a launch without clusters.

    If the recording does not tell, clusters of more than two blocks are guessed [D]. Such a kernel has one block per SM
    and more shared memory than a block could have before clusters existed. Its grid has 3 to 8 blocks in x or y, which
    form one cluster; or one dimension, with as many blocks as clusters of the largest size can have.
    """
    if launch.mix is not None and launch.mix.cluster is not None:
        return prod(launch.mix.cluster)
    if blocks_per_sm > 1 or launch.shared_memory_per_block_bytes <= MOST_BEFORE_CLUSTERS:
        return 1
    for blocks in launch.grid[:2]:
        if blocks in CLUSTERS:
            return blocks if launch.blocks <= _cluster_sms(blocks, gpu) else 1
    most = _cluster_sms(CLUSTERS[-1], gpu)
    if launch.grid != (most, 1, 1) or not gpu.sms_per_gpc:
        return 1
    return next(blocks for blocks in CLUSTERS if _cluster_sms(blocks, gpu) == most)


def _cluster_sms(blocks: int, gpu: GPU) -> int:
    """Return the SMs that clusters of this size can occupy at once, with one block per SM."""
    return blocks * most_clusters(gpu.gpc_of_sm, blocks)


def last_blocks(launch: KernelLaunch, gpu: GPU) -> tuple[Mix | None, float]:
    """Return the counters without what last blocks do alone, and the share of the work's time that this takes.

    In a reduction across blocks the last one of each result adds up what the others have left in memory. A few SMs are
    then active for much longer than the mean, and no SM for much less [D].
    """
    mix, row = launch.mix, launch.grid[0]
    if (
        mix is None
        or launch.block_lengths
        or launch.blocks < LAST_OF * gpu.sm_count
        or row > FEW_RESULTS * gpu.sm_count
    ):
        return mix, 0.0
    least, mean, most = mix.active_cycles_min, mix.active_cycles_avg, mix.active_cycles_max
    if least is None or mean is None or most is None or most <= mean:
        return mix, 0.0
    last = row / gpu.sm_count
    others = (mean - last * most) / (1.0 - last)
    longest = 2.0 * others - least  # they spread as far above their mean as below
    many = mean - least > LONG_SMS * last * (most - least)
    if many or others < least or not 0.0 < longest <= (1.0 - SHORT_REST) * most:
        return mix, 0.0
    update = {"active_cycles_avg": others, "active_cycles_max": longest}
    return mix.model_copy(update=update), 1.0 - longest / most
