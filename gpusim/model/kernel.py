"""A kernel launch as it is replayed: its blocks, what they hold and demand, how long one takes; and mixes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import fsum

from gpusim.model.contention import SHARED, WarpDemand, age_shares, mix_times, time_at
from gpusim.model.memory import MemoryLoad, MemoryWait, memory_slowdown
from gpusim.model.occupancy import Footprint, most_resident
from gpusim.trace.fields import MAX_BLOCK_LENGTHS

OTHER_POWER = 0.75  # of the limit: a kernel on all SMs that it does not hold back [D] (experiments/power)


@dataclass(frozen=True, slots=True)
class KernelModel:
    """A launch as the engine replays it."""

    name: str  # of the kernel
    stream: str  # main, or internal0, internal1, …: a stream that a library opens itself
    memory_stall_share: float  # share of its warps' stalls that wait for memory, 0 to 1
    blocks: int  # thread blocks
    tiles: int  # of its work: one a block where each does its own; else more, that its blocks share as they go
    in_graph: bool  # of CUDA, where it starts sooner than in a stream and waits for no other stream's turn
    late_last: bool  # its blocks that wait while some end start when all that run have ended
    row: int  # blocks of a row of the grid (x)
    spread: float  # how much longer than the mean the last blocks of a row take, and shorter the first ones
    given_lengths: tuple[float, ...]  # how long blocks take along a row, where the trace says it; empty: by ``spread``
    start_us: float  # that the device takes to start a block, before it may start the next; 0: none
    sm_start_us: float  # the same of one SM
    footprint: Footprint  # what a resident block holds of an SM
    blocks_per_sm: int  # most resident blocks of this kernel alone
    sm_count: int  # SMs of the GPU that it is replayed on
    cluster_blocks: int  # blocks that start together, on SMs of one GPC; 1: each starts by itself
    carveout_bytes: int  # shared memory that an idle SM is set to for it
    least_carveout_bytes: int  # shared memory that an SM with other blocks must be set to for its own to join them,
    most_carveout_bytes: int  # and may be set to
    demand: WarpDemand  # of its warps on an SM
    on_tensor_cores: bool  # whether it computes on tensor cores
    held_clock: float  # clock of the SMs that the power limit left it in the recording, over that without one
    unit_us: float  # time of a block that progresses as recorded, with L2 and DRAM free
    load: MemoryLoad  # what one such block adds to the load of L2 and DRAM
    wait: MemoryWait  # what of its time is latency of L2 and DRAM; `own_under_way` follows from the rest
    instruction_share: float  # share of `wait.code` that is waits for instructions; the others are for constants
    resident_share: float  # mean resident blocks of an SM alone, as recorded, over the most
    age_preference: float  # how strongly old blocks go before young ones
    jitter: float  # standard deviation of a block's work
    latency_us: float  # launch latency: no block runs
    # work that each block that starts before any has ended has beside its own, where an SM has the most of them
    ramp_work: float
    issue_us: float  # SM-time of all issue slots that a block needs
    dram_share_us: float  # share of the sustained DRAM bandwidth x time that a block needs
    l2_share_us: float  # the same of what L2 sustains
    # the same, if that is more, where its blocks do not start together on idle SMs: then no two SMs that ask for the
    # same data at one time get it from L2 once
    l2_apart_us: float
    solo_us: float  # what it takes alone on the whole GPU: the recorded duration on the recording GPU
    seed: int  # of the jitter; the same for the same launch
    # load of its blocks when it has the whole device to itself: it follows from the rest
    own_load: MemoryLoad = field(init=False)
    # the same where only one, two, … of them share an SM; empty: none has any. It follows from the rest.
    ramps: tuple[float, ...] = field(init=False)
    # time of a block that has its SM to itself, with L2 and DRAM free. It follows from the rest.
    single_us: float = field(init=False)
    # the kernel where its blocks do not start together; None: it is the same
    scattered: KernelModel | None = field(init=False, repr=False, compare=False)
    # what caches know this object by. It is hashed sooner than the fields, and no other object ever has it, as
    # another may have the ``id`` of one that is gone.
    identity: object = field(init=False, repr=False, compare=False, default_factory=object)

    def __post_init__(self) -> None:
        residents = self.resident_share * self.most_resident
        blocks = residents * self.sm_count
        alone = blocks / time_at(self.demand, residents)
        object.__setattr__(self, "own_load", self.load._replace(dram=self.load.dram * alone, l2=self.load.l2 * alone))
        under_way = min(1.0, self.own_load.dram) * blocks * self.wait.under_way
        object.__setattr__(self, "wait", self.wait._replace(own_under_way=under_way))
        object.__setattr__(self, "ramps", self._ramps() if self.ramp_work > 0.0 else ())
        object.__setattr__(self, "single_us", self.unit_us * (self._time(1) if self.age_preference > 0.0 else 1.0))
        more = replace(self, l2_share_us=self.l2_apart_us) if self.l2_apart_us > self.l2_share_us else None
        object.__setattr__(self, "scattered", more)

    def starting(self, room: int) -> KernelModel:
        """The kernel that arrives where so many of its blocks can start at once, on SMs that hold nothing else."""
        return self if self.scattered is None or room >= self.blocks else self.scattered

    @property
    def most_resident(self) -> int:
        """Most resident blocks of an SM when it has the device to itself."""
        return most_resident(self.blocks, self.blocks_per_sm, self.sm_count)

    def _ramps(self) -> tuple[float, ...]:
        """The ramp by the first blocks on an SM.

        It is time that all of them wait for caches together, as long however many they are, and not turn by turn.
        """
        times = [self._time(count) for count in range(1, self.blocks_per_sm + 1)]
        whole = self.ramp_work * times[self.most_resident - 1]
        return tuple(whole / time for time in times)

    @property
    def full_pace(self) -> float:
        """Throughput of the kernel alone with the most resident blocks, L2 and DRAM idle; 1: one block as recorded."""
        return self._on_all_sms(self._pace)

    def _pace(self, residents: int) -> float:
        """Throughput of an SM that holds only so many of its blocks; 0 of no blocks."""
        return residents / self._time(residents) if residents else 0.0

    def _most_pace(self, residents: int) -> float:
        """Highest throughput of an SM with up to so many blocks: fewer do more where they fill schedulers equally."""
        return max((self._pace(fewer) for fewer in range(1, residents + 1)), default=0.0)

    def _on_all_sms(self, pace: Callable[[int], float]) -> float:
        """Sum over the SMs of a throughput, each with the blocks that are resident where the kernel runs alone."""
        most = self.most_resident
        full = min(self.sm_count, self.blocks - (most - 1) * self.sm_count)  # SMs that hold the most; others 1 less
        return full * pace(most) + (self.sm_count - full) * pace(most - 1)

    def _time(self, residents: int) -> float:
        """Time per instruction on an SM that holds only so many of its blocks, relative to the recording."""
        return mix_times([(self.demand, residents)])[0]

    def by_age(self, count: int, rate: float) -> list[float]:
        """Progress of its blocks on an SM, the oldest first; ``rate`` is that of the mean one.

        None progresses faster than alone on the SM.
        """
        if self.age_preference == 0.0:
            return [rate] * count
        most = max(1.0, 1.0 / (self.single_us * rate))
        return [rate * share for share in age_shares(count, self.age_preference, most)]

    @property
    def full_load(self) -> MemoryLoad:
        """Load on L2 and DRAM by all resident blocks of the kernel alone, before contention for either slows them."""
        return MemoryLoad(self.load.dram * self.full_pace, self.load.l2 * self.full_pace)

    @property
    def most_share_us(self) -> float:
        """Share x us of a memory that a block uses where the kernel, alone, keeps it busy without a pause."""
        pace = self.full_pace
        if self.demand.one_wave:
            pace = self._on_all_sms(self._most_pace)
        return self.unit_us * memory_slowdown(self.load.dram * pace, self.load.l2 * pace, self.own_load) / pace

    def slowdown(self, dram: float, l2: float, tensor_cycle: float, power_cycle: float) -> float:
        """`memory_slowdown` of it; on tensor cores it was recorded at the cycle that they and its power cause."""
        cycle = self.held_clock if self.on_tensor_cores else tensor_cycle
        return memory_slowdown(dram, l2, self.own_load, cycle * power_cycle)

    @property
    def block_power(self) -> float:
        """Power of a resident block at the full clock, over the limit of the GPU.

        A kernel that the limit held back drew all of it then, with the blocks that it had on the SMs.
        """
        if self.held_clock < 1.0:
            cube = self.held_clock * self.held_clock * self.held_clock
            return 1.0 / cube / min(self.blocks, self.blocks_per_sm * self.sm_count)
        return OTHER_POWER / (self.blocks_per_sm * self.sm_count)

    @property
    def need(self) -> tuple[int, int, int, int]:
        """Registers, shared memory bytes, warps and block slots of one resident block."""
        return self.footprint.need

    @property
    def lengths(self) -> tuple[float, ...]:
        """Times of blocks along a row of the grid, over the mean; empty: all equal."""
        given = self.given_lengths
        if not given and self.spread > 0.0:
            count = min(self.row, MAX_BLOCK_LENGTHS)
            given = tuple(1.0 + self.spread * ((2 * i + 1) / count - 1.0) for i in range(count))
        mean = fsum(given) / len(given) if given else 1.0
        return tuple(one / mean for one in given)

    @property
    def persistent(self) -> bool:
        """Whether its blocks share its work: a block goes on with the next tile of its kernel that none has taken."""
        return self.tiles > self.blocks

    def busy_us(self, resource: str) -> float:
        """Time of a shared resource of an SM (a name in `gpusim.model.contention.SHARED`) that one block takes."""
        return self.demand.warps_per_scheduler * self.demand.demands[SHARED.index(resource)] * self.unit_us


def loads_at(residents: Sequence[tuple[KernelModel, int]], rates: Sequence[float]) -> list[tuple[float, float]]:
    """Load of DRAM and L2 by each kernel of a mix, from the progress of one block of each (1/us)."""
    return [
        (count * rate * model.unit_us * model.load.dram, count * rate * model.unit_us * model.load.l2)
        for (model, count), rate in zip(residents, rates, strict=True)
    ]


def mix_rates(
    residents: list[tuple[KernelModel, int]], least: Sequence[float] = ()
) -> tuple[list[float], float, float]:
    """Progress of one block of each kernel of a mix (1/us, mean over its blocks), and the mix's memory loads.

    ``least`` limits how fast each may be, as in `mix_times`.
    """
    times = mix_times([(model.demand, count) for model, count in residents], least)
    rates, dram, l2 = [], [], []
    for (model, count), time in zip(residents, times, strict=True):
        rates.append(1.0 / (model.unit_us * time))
        dram.append(count * model.load.dram / time)
        l2.append(count * model.load.l2 / time)
    return rates, fsum(dram), fsum(l2)
