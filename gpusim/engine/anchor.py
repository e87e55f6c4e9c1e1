"""From a recorded launch to what the engine replays: its blocks, what they ask for, and how long one takes.

The recording fixes the scale: the launch is replayed once alone on the GPU that it was recorded on, and the time of
a block is chosen so that this takes the recorded duration. How strongly old blocks go before young ones is chosen
so that the mean resident warps of that replay come closest to the recorded ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpusim.contention import (
    SHARED,
    MemoryLoad,
    Sharing,
    age_shares,
    memory_stretch,
    mix_times,
    sharing,
    unstretched,
)
from gpusim.engine.compiled import tell_if_plain
from gpusim.engine.core import NEVER, MixRates, SMArray
from gpusim.engine.core import Mix as SlotMix
from gpusim.errors import InputError
from gpusim.gpu import GPU
from gpusim.occupancy import Footprint, footprint, occupancy
from gpusim.trace import KernelLaunch, Mix

AGE_PREFERENCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
SEEDS = (1, 2, 3)  # of the jitter: which of them tells how the tail of the recorded run fell
GOOD_FIT = 0.03  # a misfit small enough to look no further
PARSIMONY = 0.01  # by how much a stronger preference must fit better
PERSISTENT_SHARE = 0.9  # of the SMs that a persistent kernel's grid covers at least [D]
LATENCY_SHARE = 0.8  # of a recorded duration that launch latency may be at most
LOAD_STEP = 0.02  # of a memory domain, after which its stretch is worked out anew


@dataclass(frozen=True, slots=True)
class KernelModel:
    """A launch as the engine replays it.

    Attributes:
        launch: as recorded.
        blocks: thread blocks.
        persistent: its grid is sized to the SMs that it may use, and its blocks divide the work.
        footprint: what a resident block holds of an SM.
        blocks_per_sm: most resident blocks of this kernel alone.
        carveout_bytes: shared memory that an idle SM is set to for it.
        sharing: what its warps ask of an SM.
        unit_us: time of a block that progresses as recorded, with L2 and DRAM free.
        load: what one such block adds to the load of L2 and DRAM.
        own_load: load of all its blocks when it has the whole device.
        age_preference: how strongly old blocks go before young ones.
        jitter: standard deviation of a block's work.
        latency_us: launch latency.
        issue_us: SM-time of all issue slots that a block needs.
        dram_share_us: share of the sustained DRAM bandwidth x time that a block needs.
        solo_us: what it takes alone on the whole GPU: the recorded duration on the recording GPU.
        seed: of the jitter; the same for the same launch.
    """

    launch: KernelLaunch
    blocks: int
    persistent: bool
    footprint: Footprint
    blocks_per_sm: int
    carveout_bytes: int
    sharing: Sharing
    unit_us: float
    load: MemoryLoad
    own_load: MemoryLoad
    age_preference: float
    jitter: float
    latency_us: float
    issue_us: float
    dram_share_us: float
    solo_us: float
    seed: int

    @property
    def need(self) -> tuple[int, int, int, int]:
        """Registers, shared memory bytes, warps and block slots of one resident block."""
        f = self.footprint
        return (f.registers, f.shared_memory_bytes, f.warps, f.slots)

    def on(self, sms: int) -> KernelModel:
        """The kernel as it launches on some SMs: a persistent one has no more blocks than SMs, each doing more."""
        if not self.persistent or not 0 < sms < self.blocks:
            return self
        more = self.blocks / sms
        return replace(
            self,
            blocks=sms,
            unit_us=self.unit_us * more,
            issue_us=self.issue_us * more,
            dram_share_us=self.dram_share_us * more,
        )

    def busy_us(self, resource: str) -> float:
        """Time of a shared resource of an SM (a name in `gpusim.contention.SHARED`) that one block takes."""
        return self.sharing.warps_per_scheduler * self.sharing.demands[SHARED.index(resource)] * self.unit_us


def mix_rates(
    residents: list[tuple[KernelModel, int]], least: Sequence[float] = ()
) -> tuple[list[float], float, float]:
    """Progress of one block of each kernel of a mix (1/us, mean over its blocks), and the mix's memory loads.

    ``least`` limits how fast each may be, as in `mix_times`.
    """
    times = mix_times([(model.sharing, count) for model, count in residents], least)
    rates = [1.0 / (model.unit_us * time) for (model, _), time in zip(residents, times, strict=True)]
    dram = sum(count * model.load.dram / time for (model, count), time in zip(residents, times, strict=True))
    l2 = sum(count * model.load.l2 / time for (model, count), time in zip(residents, times, strict=True))
    return rates, dram, l2


def anchored(launch: KernelLaunch, gpu: GPU, place: str = "") -> KernelModel:
    """A launch as replayed on the GPU that it was recorded on.

    Raises:
        InputError: no SM of the GPU holds one of its blocks.
    """
    model = _shape(launch, gpu, place)
    recorded = launch.duration_us
    latency = min(gpu.model.launch_latency_us, LATENCY_SHARE * recorded)
    best, makespan = _fitted(model, gpu)
    unit = best.unit_us * (recorded - latency) / makespan
    dram_bytes = _dram_bytes(launch)
    return replace(
        best,
        unit_us=unit,
        latency_us=latency,
        solo_us=recorded,
        issue_us=_issue_us(launch, gpu),
        dram_share_us=dram_bytes / (gpu.model.dram_sustained_gb_per_s * 1e3),
    )


def _fitted(model: KernelModel, gpu: GPU) -> tuple[KernelModel, float]:
    """The kernel with the age preference and seed that replay its recording best, and its makespan alone (us)."""
    best, best_misfit, best_us = model, NEVER, 0.0
    for preference in _preferences(model):
        for seed in SEEDS if model.launch.mix is not None else SEEDS[:1]:
            tried = replace(model, age_preference=preference, seed=seed)
            makespan, residents, active = run_alone(tried, gpu)
            misfit = _misfit(tried, residents, active)
            if misfit < best_misfit - PARSIMONY:
                best, best_misfit, best_us = tried, misfit, makespan
            if best_misfit < GOOD_FIT:
                return best, best_us
    return best, best_us


def run_alone(model: KernelModel, gpu: GPU) -> tuple[float, float, float]:
    """Replay one launch alone on the whole GPU, without launch latency.

    Returns:
        Makespan (us), mean resident blocks of an SM while it was active, and the SMs' mean active share of the
        makespan.
    """

    def resolve(mix: SlotMix) -> MixRates:
        count = mix[0][1]
        rates, dram, l2 = mix_rates([(model, count)])
        return [[rates[0] * share for share in age_shares(count, model.age_preference)]], dram, l2

    def stretch(_domain: int, dram: float, l2: float) -> dict[int, float]:
        return {0: memory_stretch(dram, l2, model.own_load)}

    array = sm_array(gpu, 1, resolve, stretch)
    array.submit(0, model.blocks, model.need, model.carveout_bytes, model.jitter, model.seed, 0.0, 0.0)
    array.set_caps(0, [model.blocks_per_sm] * gpu.sm_count)
    array.set_line([0], [0])
    array.dispatch()
    array.advance(NEVER)
    held, active = array.block_time(), sum(end - start for _, _, start, end in array.spans(0))
    return array.now, held / active, active / gpu.sm_count / array.now


def sm_array(gpu: GPU, slots: int, resolve, stretch, domains: list[int] | None = None) -> SMArray:  # type: ignore[no-untyped-def]
    """The SMs of a GPU, empty."""
    tell_if_plain()
    limits = gpu.limits
    domains = domains if domains is not None else [0] * gpu.sm_count
    return SMArray(
        gpu.sm_count,
        limits.max_blocks_per_sm,
        slots,
        (
            limits.registers_per_sm,
            limits.shared_memory_per_sm_bytes,
            limits.max_warps_per_sm,
            limits.max_blocks_per_sm,
        ),
        list(range(gpu.sm_count)),
        domains,
        max(domains) + 1,
        resolve,
        stretch,
        LOAD_STEP,
    )


def is_persistent(launch: KernelLaunch, blocks_per_sm: int, sm_count: int) -> bool:
    """Whether a launch looks persistent: one block a SM, on about every SM, that share the work as they go [D]."""
    return blocks_per_sm == 1 and PERSISTENT_SHARE * sm_count <= launch.blocks <= sm_count


def _shape(launch: KernelLaunch, gpu: GPU, place: str) -> KernelModel:
    shared = launch.shared_memory_per_block_bytes
    fit = occupancy(
        gpu,
        threads_per_block=launch.threads_per_block,
        registers_per_thread=launch.registers_per_thread,
        shared_memory_per_block=shared,
    )
    if fit.blocks_per_sm == 0:
        raise InputError(
            None,
            place or f"kernel {launch.name[:60]}",
            f"a block of it fits no SM of {gpu.name} ({fit.limiter})",
            "a kernel that this GPU can launch",
        )
    foot = footprint(gpu, launch.threads_per_block, launch.registers_per_thread, shared)
    residents = _recorded_residents(launch, foot, fit.blocks_per_sm, gpu)
    kernel = sharing(
        launch.mix,
        foot.warps,
        residents,
        launch.blocks / gpu.sm_count,
        gpu.limits.sub_partitions,
        gpu.model,
    )
    load, own, free = _memory(launch, kernel, residents, fit.blocks_per_sm, gpu)
    return KernelModel(
        launch=launch,
        blocks=launch.blocks,
        persistent=is_persistent(launch, fit.blocks_per_sm, gpu.sm_count),
        footprint=foot,
        blocks_per_sm=fit.blocks_per_sm,
        carveout_bytes=carveout(launch, foot, fit.blocks_per_sm, gpu),
        sharing=kernel,
        unit_us=free,
        load=load,
        own_load=own,
        age_preference=0.0,
        jitter=gpu.model.block_jitter,
        latency_us=0.0,
        issue_us=0.0,
        dram_share_us=0.0,
        solo_us=launch.duration_us,
        seed=1,
    )


def _recorded_residents(launch: KernelLaunch, foot: Footprint, blocks_per_sm: int, gpu: GPU) -> float:
    most = float(min(blocks_per_sm, -(-launch.blocks // gpu.sm_count)))
    warps = launch.mix.achieved_warps_per_sm if launch.mix is not None else None
    return max(1.0, min(most, warps / foot.warps)) if warps else most


def _memory(
    launch: KernelLaunch, kernel: Sharing, residents: float, blocks_per_sm: int, gpu: GPU
) -> tuple[MemoryLoad, MemoryLoad, float]:
    """Load of one block, load of the whole launch, and the share of its time left when L2 and DRAM are free."""
    duration = launch.duration_us
    dram = _dram_bytes(launch) * launch.blocks / duration / 1e3 / gpu.model.dram_sustained_gb_per_s
    l2 = _l2_us(launch.mix, gpu) * launch.blocks / (duration * _active_share(launch.mix))
    free = unstretched(dram, l2)
    dram, l2 = min(dram, 0.985) / free, min(l2, 0.985) / free
    whole, low = residents * gpu.sm_count, int(residents)
    time = mix_times([(kernel, low)])[0]
    if residents > low:
        time += (residents - low) * (mix_times([(kernel, low + 1)])[0] - time)
    block = MemoryLoad(dram * time / whole, l2 * time / whole)
    return block, MemoryLoad(dram, l2), free


def _issue_us(launch: KernelLaunch, gpu: GPU) -> float:
    """SM-time of all issue slots for one block; without the counter, the arithmetic utilisation stands in [D]."""
    mix = launch.mix
    if mix is not None and mix.issue_cycles is not None:
        return mix.issue_cycles / gpu.boost_clock_mhz
    busy = (mix.alu_utilisation_percent or 0.0) / 100.0 if mix is not None else 0.0
    return busy * launch.duration_us * gpu.sm_count / launch.blocks


def _active_share(mix: Mix | None) -> float:
    """Mean active cycles of the SMs over the most: L2 was busy while they were."""
    if mix is None or not mix.active_cycles_avg or not mix.active_cycles_max:
        return 1.0
    return min(1.0, mix.active_cycles_avg / mix.active_cycles_max)


def _l2_us(mix: Mix | None, gpu: GPU) -> float:
    """Time that L2 would be fully busy with one block: by counted throughput, by reads, by writes or by atomics."""
    if mix is None:
        return 0.0
    written = mix.l2_write_bytes or 0.0
    plain = written + mix.l2_read_bytes if mix.l2_read_bytes is not None else (mix.l2_bytes or 0.0)
    atomic = max(0.0, (mix.l2_bytes or 0.0) - plain)
    return max(
        (mix.l2_busy_us or 0.0) / gpu.model.l2_sustained_share,
        (mix.l2_read_bytes or 0.0) / (gpu.model.l2_read_gb_per_s * 1e3),
        written / (gpu.model.l2_write_gb_per_s * 1e3),
        atomic / (gpu.model.l2_atomic_gb_per_s * 1e3),
    )


def _dram_bytes(launch: KernelLaunch) -> float:
    mix = launch.mix
    return (mix.dram_read_bytes or 0.0) + (mix.dram_write_bytes or 0.0) if mix is not None else 0.0


def carveout(launch: KernelLaunch, foot: Footprint, blocks_per_sm: int, gpu: GPU) -> int:
    """Shared memory of an SM while this kernel runs: all that there is, whatever the kernel asks for [D].

    The H200 sets an idle SM to the carve-out of the kernel that comes first and keeps it while blocks run
    (experiments/h200_microbench), but co-runs of cuDNN kernels are predicted better without that rule than with it:
    variant `held-carveout` of experiments/h200_validation replays it with what the recording says of this launch.
    """
    return gpu.limits.shared_memory_per_sm_bytes


def _preferences(model: KernelModel) -> tuple[float, ...]:
    mix = model.launch.mix
    if mix is None or mix.achieved_warps_per_sm is None or model.blocks_per_sm == 1:
        return AGE_PREFERENCES[:1]
    return AGE_PREFERENCES


def _misfit(model: KernelModel, residents: float, active: float) -> float:
    """How far mean resident warps and the active share of the SMs are from the recorded ones."""
    mix = model.launch.mix
    if mix is None or mix.achieved_warps_per_sm is None:
        return 0.0
    misfit = abs(residents * model.footprint.warps / max(mix.achieved_warps_per_sm, 1e-9) - 1.0)
    if mix.active_cycles_avg and mix.active_cycles_max:
        misfit += abs(active * mix.active_cycles_max / mix.active_cycles_avg - 1.0)
    return misfit
