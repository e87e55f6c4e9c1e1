"""What variants of the model patch: each function switches one mechanism off, or builds it another way, for good.

Call one in a process of its own: the package has no switch for any of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpusim.calibrate import blocks, carveouts, fit, scaling
from gpusim.calibrate.carveouts import Carveouts
from gpusim.engine import sm_array
from gpusim.engine.device import Device
from gpusim.hardware.gpu import GPU
from gpusim.io import importing
from gpusim.io.borrowing import Borrowed
from gpusim.lab import validate
from gpusim.lab.dataset import Op
from gpusim.lab.validate import Condition, Predictor
from gpusim.model import contention, context, memory
from gpusim.model import kernel as kernel_model
from gpusim.policies.interface import Partition, View
from gpusim.trace.kernels import KernelLaunch, WarpStalls
from gpusim.trace.operations import Convolution

HEAVY = 1e6  # times the load that a kernel puts on memory, as which no other is larger


def put(module: Any, name: str, value: Any) -> None:
    """Replace what must be there: a patch of nothing would score as the model itself."""
    if not hasattr(module, name):
        raise AttributeError(f"{module} has no {name} to patch")
    setattr(module, name, value)


def no_age() -> None:
    """Old blocks do not go before young ones."""
    put(fit, "AGE_PREFERENCES", fit.AGE_PREFERENCES[:1])


def no_seniority() -> None:
    """Of two kernels on an SM either is the older one as often."""
    put(contention, "chance_older", lambda first, second: 0.5)


def first_is_older() -> None:
    """The kernel that was first on an SM is always the older one."""
    put(contention, "chance_older", lambda first, second: 1.0)


def no_bursts() -> None:
    """No warp issues several instructions in a row."""
    put(contention, "burst_length", lambda wait: 1.0)


def no_operands() -> None:
    """Tensor instructions block nobody while their operands are read."""
    put(contention, "blocked_slots", lambda issue, tensor: 0.0)


def no_together() -> None:
    """Warps of a kernel do not issue in bursts of all of them."""
    known = contention.use_of
    put(contention, "use_of", lambda kernel, count, time: known(kernel, count, time)._replace(together=0.0))


def no_code_on_sms() -> None:
    """All blocks of a kernel fetch code again that the caches have lost."""
    put(fit, "SM_CODE_BYTES", -1.0)


def no_hit_queue() -> None:
    """Hits in L2 take as long however full it is."""
    put(memory, "HIT_QUEUE", 0.0)


def no_full_queue() -> None:
    """L2 is as busy as its counters say, and the queue to it never full."""
    put(contention, "FULL_QUEUE_STALLS", math.inf)


def queues_of_any_length() -> None:
    """Stall reasons do not limit how much of a recorded time was waiting for memory."""
    put(fit, "queued_shares", lambda *recorded: (1.0, 0.0))


def service_stays_hidden() -> None:
    """Free memory saves a kernel all its waits for queues of memory."""
    put(fit, "_time_without_queues", lambda kernel, residents, reads, throttled: 1.0 - reads - throttled)


def barriers_not_queued() -> None:
    """Warps at barriers wait for no queue of DRAM."""
    put(fit, "dram_fullness", lambda busy: 0.0)


def no_intake() -> None:
    """An SM takes in any number of bytes a cycle."""
    put(fit, "_taking_in", lambda launch, working_us, gpu: 0.0)


def no_hidden_waits() -> None:
    """Waits for DRAM that turns hid are no latency."""
    put(contention, "DRAM_LATENCY_CYCLES", 0.0)


def no_l1_queue() -> None:
    """Long scoreboard is latency, whatever binds."""
    known = contention._latency_share

    def latency_share(stalls: Any, total: float, competing: float, resident: float, _: float, *rest: Any) -> float:
        return known(stalls, total, competing, resident, 0.0, *rest)

    put(contention, "_latency_share", latency_share)


def barriers_of_all_warps() -> None:
    """Barriers are waiting for turns wherever several warps compete, also of a block alone on its SM."""
    known = contention._latency_share
    put(
        contention,
        "_latency_share",
        lambda stalls, total, competing, _, *rest: known(stalls, total, competing, competing, *rest),
    )


def no_sets_in_l1() -> None:
    """L1 holds what each kernel read, whatever is beside it."""
    put(contention, "_in_l1", lambda *counted: (0.0, 0.0, 0.0))


def no_read_queues() -> None:
    """Reads of a kernel alone wait only as its loads of L2 and DRAM say."""
    put(fit, "_reads_longer", lambda launch, gpu: 0.0)


def active_as_counted() -> None:
    """Active cycles of kernels in graphs are as a profiler counted them."""
    put(fit, "_active_within", lambda working_us, launch, gpu: launch)


def no_power_limit() -> None:
    """No recording is taken to have been held back by the power limit."""
    put(fit, "_held_clock", lambda launch, free, gpu: 1.0)


def no_age_limit() -> None:
    """Old blocks may progress faster than alone on their SM."""
    known = kernel_model.age_shares
    put(kernel_model, "age_shares", lambda count, preference, most: known(count, preference))


def in_proportion() -> None:
    """An SM's throughput does not depend on its residents."""
    known = fit.warp_demand

    def warp_demand(mix: Any, warps: int, residents: float, *rest: Any, **more: Any) -> contention.WarpDemand:
        kernel = known(mix, warps, residents, *rest, **more)
        demand = 1.0 / contention.competing_warps(residents, kernel.warps_per_scheduler, kernel.one_wave)
        return replace(kernel, latency=demand, service_demand=demand)

    put(fit, "warp_demand", warp_demand)


def no_ramp() -> None:
    """The first blocks of a kernel take no longer than later ones. Lost code takes as long."""
    known = fit._before_work_us
    put(fit, "_before_work_us", lambda *launch: (known(*launch)[0], 0.0))


def first_blocks_as_in_streams() -> None:
    """What a kernel of a graph starts sooner, its first blocks take longer."""
    put(fit, "_cold_us", lambda launch, gpu: -(launch.load_us or 0.0))


def longer_ramps() -> None:
    """The first blocks take 1 us longer than what they wait for."""
    known = fit._before_work_us

    def before_work_us(launch: KernelLaunch, *rest: Any) -> tuple[float, float]:
        latency_us, ramp_us = known(launch, *rest)
        return latency_us, max(ramp_us, min(ramp_us + 1.0, fit.LATENCY_SHARE * launch.duration_us - latency_us))

    put(fit, "_before_work_us", before_work_us)


def ramps_take_turns() -> None:
    """Ramps are lengthened where more of a kernel's blocks share an SM."""
    put(kernel_model.KernelModel, "_ramps", lambda model: (model.ramp_work,) * model.blocks_per_sm)


def without_stalls() -> None:
    """Latency is what the busiest pipe leaves; no stalls tell of turns and bursts."""
    known = fit.warp_demand

    def warp_demand(mix: Any, *rest: Any, **more: Any) -> contention.WarpDemand:
        return known(mix if mix is None else mix.model_copy(update={"stalls": None}), *rest, **more)

    put(fit, "warp_demand", warp_demand)


def power(p: float) -> Callable[[], None]:
    """Latency and service demands of every kernel add with one exponent."""

    def patch() -> None:
        known = fit.warp_demand

        def warp_demand(mix: Any, warps: int, residents: float, *rest: Any, **more: Any) -> contention.WarpDemand:
            kernel = known(mix, warps, residents, *rest, **more)
            competing = contention.competing_warps(residents, kernel.warps_per_scheduler, kernel.one_wave)
            if competing > contention.FEWEST_TURNS:
                left = max(0.0, 1.0 - kernel.latency**p)
                demand = max(kernel.demands[kernel.bound], (left / (competing**p - 1.0)) ** (1.0 / p))
                kernel = replace(kernel, service_demand=demand)
            return kernel

        def time(kernel: contention.WarpDemand, queue: float) -> float:
            return float(max(kernel.latency**p + queue**p - kernel.service_demand**p, 1e-12) ** (1.0 / p))

        put(fit, "warp_demand", warp_demand)
        put(contention, "_time", time)

    return patch


def loads_times(dram: float, l2: float) -> Callable[[], None]:
    """What blocks ask of DRAM and of L2 is multiplied by 0 or 1."""

    def patch() -> None:
        dram_bytes, left_bytes, l2_us = fit._dram_bytes, fit._left_bytes, fit._l2_us
        put(fit, "_dram_bytes", lambda launch: dram * dram_bytes(launch))
        put(fit, "_left_bytes", lambda launch, working_us, gpu: dram * left_bytes(launch, working_us, gpu))
        put(fit, "_l2_us", lambda mix, gpu: l2 * l2_us(mix, gpu))

    return patch


def no_left_writes() -> None:
    """DRAM writes no more than was counted."""
    put(fit, "_left_bytes", lambda launch, working_us, gpu: 0.0)


def any_memory_part() -> None:
    """What keeps an SM busy does not limit how much of a recorded time was waiting for memory."""
    known = memory.loads_beside
    put(fit, "loads_beside", lambda dram_busy, l2_busy, least_free, *queues: known(dram_busy, l2_busy, 0.0, *queues))


def no_carveouts() -> None:
    """Every SM holds all its shared memory for every kernel."""

    def largest(launch: KernelLaunch, gpu: GPU, _: GPU) -> Carveouts:
        return Carveouts(gpu.limits.shared_memory_per_sm_bytes, 0, gpu.limits.shared_memory_per_sm_bytes)

    no_asked_carveouts()
    put(fit, "carveouts", largest)


def no_asked_carveouts() -> None:
    """Drivers size the carve-out for every kernel."""
    put(carveouts, "_asked_bytes", lambda *_: None)


def carveouts_as_set() -> None:
    """A kernel joins others only where the SM is set to what an idle one would be set to for it."""
    known = fit.carveouts

    def as_set(*arguments: Any) -> Carveouts:
        found = known(*arguments)
        return found._replace(least=found.idle)

    put(fit, "carveouts", as_set)


def registers_summed() -> None:
    """Several kernels share an SM's registers as a whole."""
    put(sm_array, "register_blocks", lambda limits, others, block: limits.max_blocks_per_sm)


def never_cold() -> None:
    """L2 keeps the tensors of all calls."""
    known = context._lengthened
    put(context, "_lengthened", lambda selected, switch_us, lost_share: known(selected, switch_us, 0.0))


def touched_as_told() -> None:
    """Calls touch only what their trace tells."""
    put(context, "_moved_bytes", lambda kernel: 0.0)


def no_graphs() -> None:
    """Kernels of a profile start as in a stream."""
    known = context._of_graph
    put(context, "_of_graph", lambda stream, constants, _: known(stream, constants, constants.kernel_gap_us))


def always_in_step() -> None:
    """L2 serves the blocks of a kernel as in its recording, whenever they start."""
    put(fit, "_apart", lambda mix, gpu: 1.0)


def one_load_under_way() -> None:
    """Kernels that stage no data feel DRAM before it is full, however many loads they have under way."""
    known = fit._felt_early
    put(fit, "_felt_early", lambda recorded, longer: known(recorded, 1.0))


def dram_felt_early() -> None:
    """Kernels that read ahead feel DRAM before it is full."""
    put(fit, "read_ahead", lambda dram, l2, free, early: (dram, l2, 1.0))


def no_tiles() -> None:
    """Blocks of persistent kernels share no work."""
    put(blocks, "is_persistent", lambda launch, blocks_per_sm, gpu: False)


def tiles_uncounted() -> None:
    """Each block of a persistent kernel has as many tiles as where no counter tells."""

    def tiles(launch: KernelLaunch, blocks_per_sm: int, gpu: GPU) -> int:
        shared = not launch.block_lengths and blocks.is_persistent(launch, blocks_per_sm, gpu)
        return launch.blocks * (blocks.TILES_OF_A_BLOCK if shared else 1)

    put(fit, "tiles", tiles)


def no_late_last() -> None:
    """Blocks that wait for an SM of a persistent kernel start as one is free."""
    known = fit._shape
    put(fit, "_shape", lambda *launch: replace(known(*launch), late_last=False))


def always_late_last() -> None:
    """Blocks that wait for an SM of a persistent kernel find a tile there, in clusters or not."""
    put(fit, "waits_for_all", lambda launch, gpu: launch.blocks == gpu.sm_count)


def no_differing_sms() -> None:
    """SMs of a persistent kernel with as many tiles are active equally long."""
    put(blocks, "SMS_DIFFER", 0.0)


def no_last_blocks() -> None:
    """No block of a reduction goes on alone."""
    put(fit, "last_blocks", lambda launch, gpu: (launch.mix, 0.0))


def no_reading_once() -> None:
    """Blocks whose shared memory holds all that they read read ahead, too."""
    put(fit, "_reads_once", lambda launch: False)


def no_unequal_blocks() -> None:
    """All blocks of a kernel are as long, but for the jitter."""
    put(fit, "UNEQUAL", math.inf)


def clusters_anywhere() -> None:
    """Blocks of clusters start by themselves, on any SM."""
    known = fit._shape
    put(fit, "_shape", lambda *launch: replace(known(*launch), cluster_blocks=1))


def theoretical_residency() -> None:
    """Recorded at occupancy, not sm__warps_active."""

    def residents(launch: Any, foot: Any, blocks_per_sm: int, gpu: GPU) -> float:
        return float(min(blocks_per_sm, -(-launch.blocks // gpu.sm_count)))

    put(fit, "_recorded_residents", residents)


def enqueue_order() -> None:
    """Streams start in the order of enqueuing, not the mean over orders."""
    known = Predictor.predict

    def predict(self: Predictor, condition: Condition) -> dict[str, float]:
        if not condition.experiment.startswith(("streams", "green", "modules_streams")):
            return known(self, condition)
        order = list(range(len(condition.ops)))
        if condition.experiment == "streams_b_first":
            order.reverse()
        overhead = self._gpu.model.event_overhead_us
        in_order = validate._InOrder(tuple(order), validate.RELEASE_MARKS * overhead, condition.sms)
        return {condition.experiment: (self._makespan(condition, in_order) + overhead) / 1e3}

    put(Predictor, "predict", predict)


def no_waits_beside() -> None:
    """Reads take as long beside other kernels' traffic as without it."""
    known = fit._wait
    put(fit, "_wait", lambda *launch: known(*launch)._replace(share=0.0, ahead=0.0))


def no_dram_queue() -> None:
    """Nothing is under way to a full DRAM, for which reads would wait."""
    known = fit._wait
    put(fit, "_wait", lambda *launch: known(*launch)._replace(under_way=0.0))


def no_launch_waits() -> None:
    """Launches of CUDA graphs wait for nothing in memory."""
    put(Device, "_memory_wait_us", lambda *launch: 0.0)


def never_late() -> None:
    """What a kernel reads ahead is there in time, however long reads take."""
    known = fit._wait
    put(fit, "_wait", lambda *launch: known(*launch)._replace(ahead=0.0))


def no_head_of_line() -> None:
    """A kernel's blocks start beside an earlier kernel's that wait."""
    known = validate._InOrder.partition

    def partition(self: Any, view: View) -> Partition:
        found, stream = known(self, view), {kernel.id: kernel.stream_index for kernel in view.kernels}
        return replace(found, grants=tuple(replace(one, queue=stream[one.kernel]) for one in found.grants))

    put(validate._InOrder, "partition", partition)


def no_hold() -> None:
    """Waiting blocks of high priority hold nobody back."""
    known = validate._PriorityEntry.partition

    def partition(self: Any, view: View) -> Partition:
        found = known(self, view)
        of = {kernel.id: kernel.stream_index for kernel in view.kernels}
        return replace(found, grants=tuple(replace(grant, queue=of[grant.kernel]) for grant in found.grants))

    put(validate._PriorityEntry, "partition", partition)


def no_lost_code() -> None:
    """Caches keep the code of every kernel."""
    put(fit, "_code_share", lambda *launch: 0.0)


def launches_keep_code() -> None:
    """Launches of other programs empty no caches of code."""
    put(memory, "LOST_TO_LAUNCH", 0.0)


def sms_keep_code() -> None:
    """Kernels of other programs on the same SMs take the place of no code there."""
    put(memory, "LOST_ON_SMS", 0.0)


def all_code_lost() -> None:
    """The caches of SMs keep no constants where L2 has lost them."""
    put(fit, "instruction_share", lambda mix: 1.0)


def no_reading_ahead() -> None:
    """A kernel waits for the whole latency of all that it reads."""
    put(fit, "_exposed", lambda *launch: 1.0)


def no_block_ends() -> None:
    """The start and the end of a block alone on its SM may have been waiting for memory."""
    put(fit, "BLOCK_ENDS_CYCLES", 0.0)


def no_borrowing() -> None:
    """Kernels without counters get none from another launch of theirs."""
    put(importing, "borrow", lambda *timeline: Borrowed({}, {}))


def no_lost_contents() -> None:
    """Traffic of others takes nothing from L2 that a kernel reads."""
    known = fit._wait
    put(fit, "_wait", lambda *launch: known(*launch)._replace(passing=0.0))


def no_service_limit() -> None:
    """What DRAM and L2 serve is counted nowhere: it has no limit, and lengthens no reads of others."""
    known = scaling.anchored

    def anchored(*launch: Any) -> kernel_model.KernelModel:
        return replace(known(*launch), dram_share_us=0.0, l2_share_us=0.0, l2_apart_us=0.0)

    put(scaling, "anchored", anchored)


def as_if_heavy() -> None:
    """A kernel of little traffic slows down as much as any other."""
    known = kernel_model.KernelModel.__post_init__

    def post_init(model: kernel_model.KernelModel) -> None:
        known(model)
        own = model.own_load
        object.__setattr__(model, "own_load", own._replace(dram=HEAVY * own.dram, l2=HEAVY * own.l2))

    put(kernel_model.KernelModel, "__post_init__", post_init)


def stalls_alone() -> None:
    """The time of an instruction is the sum of its stalls, though it issues less often."""
    known = contention._latency_share

    def latency_share(stalls: WarpStalls, _: float, *rest: Any) -> float:
        total = math.fsum(getattr(stalls, reason) or 0.0 for reason in WarpStalls.model_fields)
        return known(stalls, total, *rest)

    put(contention, "_latency_share", latency_share)


def few_warps_hide() -> None:
    """Latency and turns add as squares where too few warps compete to tell."""
    put(contention, "UNSEEN_SERIAL_SHARE", 0.0)


def all_waits_queued() -> None:
    """All waits for reads may have been queues of L2 and DRAM."""
    put(contention, "QUEUED_SHARE", 1.0)


def no_other_pipes() -> None:
    """Integer multiplies, special functions, FP64 and what was not counted fill no pipe."""
    put(contention, "_busy_elsewhere", lambda *mix: [0.0] * (len(contention.OTHER_PIPES) + 1))


def no_uncounted_pipe() -> None:
    """An SM that is busier than all its counted pipes has none that was not counted."""
    put(contention, "UNCOUNTED", math.inf)


def counted_clusters() -> None:
    """Only launches whose clusters were counted have any."""
    known = blocks.cluster_blocks

    def cluster_blocks(launch: KernelLaunch, *rest: Any) -> int:
        return known(launch, *rest) if launch.mix is not None and launch.mix.cluster is not None else 1

    for module in (fit, blocks):
        put(module, "cluster_blocks", cluster_blocks)


def no_start_bound() -> None:
    """No recording is taken to have been bound by the starts of its blocks."""
    put(fit, "START_BOUND", math.inf)


def one_stream_of_a_library() -> None:
    """Kernels on streams of a library itself run one after the other."""
    known = validate._convolution

    def convolution(op: Op, kernels: Sequence[KernelLaunch]) -> Convolution:
        return known(op, tuple(kernel.model_copy(update={"stream": "main"}) for kernel in kernels))

    put(validate, "_convolution", convolution)
