"""Partitions that NVIDIA GPUs enforce for a stream or a process: green contexts, MPS, MIG and TPC masks.

All of these are set up before the work starts and stay as they are: a part whose stream has nothing to do stands
idle. A green context and a TPC mask belong to a stream, so that kernels which a library launches on streams of its
own run anywhere (seen on the H200); an MPS client or a MIG instance is a process and holds these too. The parts of
different streams are different queues for the hardware: nobody waits behind another's line [D]. Where parts overlap,
room goes to the kernel that came first; within one process (TPC masks) to the higher priority, which across processes
has no effect (Amert et al., RTSS'17 [V]).

Which SMs a part is made of is not documented: parts are laid out in device order one after the other [D].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor
from typing import ClassVar

from gpusim.common.errors import InputError
from gpusim.common.tables import counted
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import IN_ORDER, Domains, Partition, View, parameter
from gpusim.policies.spatial import confined, in_a_row, sm_counts
from gpusim.policies.tools.notes import not_used
from gpusim.policies.tools.programs import Divides, divided_by
from gpusim.policies.tools.values import decimal, hexadecimal, one_each, plus_separated, wrong


@dataclass
class Parts(Divides):
    """Parts of the GPU fixed before the replay, one for each stream; streams beyond them wait for a free one."""

    # whether kernels on streams that a library opened itself are held to the part, too
    holds_internal: ClassVar[bool] = True
    one_process: ClassVar[bool] = False  # whether all streams are of one process, so that their priorities count
    shown: ClassVar[bool] = True  # whether a program that queries the SMs of the GPU is told those of its part
    _parts: list[frozenset[int]] = field(default_factory=list, init=False, repr=False)
    _sm_count: int = field(default=0, init=False, repr=False)
    _streams: list[str] = field(default_factory=list, init=False, repr=False)
    _holder: list[int] = field(default_factory=list, init=False, repr=False)
    _outside: set[int] = field(default_factory=set, init=False, repr=False)  # kernels that no part holds
    _rounded: str = field(default="", init=False, repr=False)  # the parameter that could not be given as it is

    @abstractmethod
    def parts(self, gpu: GPU, streams: Sequence[str]) -> list[frozenset[int]]:
        """SMs of each part, in the order of the streams; fewer parts than streams make some streams wait."""

    def shows_sms(self) -> bool:
        """A green context, an MPS limit and a MIG instance do."""
        return self.shown

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Lay out the parts."""
        self._parts = self.parts(gpu, streams)
        self._sm_count = gpu.sm_count
        self._streams = list(streams)
        self._holder = list(range(len(self._parts)))

    def partition(self, view: View) -> Partition:
        """Hold each stream to its part; a part whose stream has ended goes to the one that waits longest."""
        waiting = sorted((k.id, k.stream_index) for k in view.kernels if k.stream_index not in self._holder)
        for _, stream in waiting:
            ended = [i for i, holder in enumerate(self._holder) if self._streams[holder] not in view.streams]
            if ended and stream not in self._holder:
                self._holder[ended[0]] = stream
        if not self.holds_internal:
            self._outside.update(kernel.id for kernel in view.kernels if kernel.internal)
        sms = {holder: self._parts[i] for i, holder in enumerate(self._holder)}
        return confined(view, sms, internal=self.holds_internal, by_priority=self.one_process)

    def notes(self) -> tuple[str, ...]:
        """Where the parts are not what was asked for, are fewer than the streams, or leave SMs or kernels out."""
        parts, streams = len(self._parts), len(self._streams)
        unused = self._sm_count - len(frozenset().union(*self._parts))
        found = []
        if self._rounded:
            found.append(f"{self._rounded} gives {'+'.join(str(len(part)) for part in self._parts)} SMs")
        if parts < streams:
            found.append(f"{counted(parts, 'part')} for {streams} streams: the others wait until one has ended")
        free = counted(len(self._outside), "kernel")
        outside = (f"{free} on streams that a library opened ran outside their stream's part",) if self._outside else ()
        return (*found, *not_used(unused, self._sm_count), *outside)


@dataclass
class GreenContext(Parts):
    """A green context a stream: an SM split in the sizes that the driver makes, fixed while it runs."""

    name = "green-context"
    summary = (
        "SM split in the sizes that CUDA green contexts have, fixed while it runs, library-internal streams not held "
        "(CUDA 12.4 driver API, cuDevSmResourceSplitByCount)"
    )
    family = "inter-sm"
    validated_as = ("green", "sm_curve")
    holds_internal = False
    sms: str | None = parameter(
        None,
        "SMs of each stream, as 64+68, in sizes that the driver makes; one may be the rest",
        of_streams=IN_ORDER,
    )

    def parts(self, gpu: GPU, streams: Sequence[str]) -> list[frozenset[int]]:
        """Even groups as cuDevSmResourceSplitByCount makes them, or as given; the last also gets the remainder."""
        least, multiple = green_sizes(gpu)
        if self.sms is not None:
            return in_a_row(self._given(gpu, streams, least, multiple))
        groups = min(len(streams), gpu.sm_count // least)
        if groups == 0:
            raise wrong(self.name, f"makes no group of {least} SMs on {gpu.name}", "a larger GPU")
        size = gpu.sm_count // groups // multiple * multiple
        return in_a_row([size] * (groups - 1) + [gpu.sm_count - size * (groups - 1)])

    def _given(self, gpu: GPU, streams: Sequence[str], least: int, multiple: int) -> list[int]:
        given = sm_counts(self.name, str(self.sms), gpu, streams)
        others = [count for count in given if count < least or count % multiple]  # only the rest may have such a size
        if len(others) > (1 if sum(given) == gpu.sm_count else 0):
            near = _nearest_sizes(given, gpu.sm_count, least, multiple)
            nearest = "" if near is None else f"; the nearest: sms={'+'.join(map(str, near))}"
            sizes = f"at least {least} SMs and a multiple of {multiple} each; one may be the rest"
            raise wrong(self.name, f"sms={self.sms} cannot be granted on {gpu.name}", f"{sizes}{nearest}")
        return given


def _nearest_sizes(given: Sequence[int], sm_count: int, least: int, multiple: int) -> list[int] | None:
    """The sizes that the driver makes that are nearest to those asked for; None: the GPU has no room for them."""
    if least * len(given) > sm_count:
        return None
    sizes = [max(least, (2 * count + multiple) // (2 * multiple) * multiple) for count in given]
    while sum(sizes[:-1]) + least > sm_count:
        largest = max(range(len(sizes) - 1), key=lambda i: sizes[i])
        sizes[largest] -= multiple
    rest = sm_count - sum(sizes[:-1])
    return [*sizes[:-1], min((size for size in (sizes[-1], rest) if size <= rest), key=lambda n: abs(n - given[-1]))]


def green_sizes(gpu: GPU) -> tuple[int, int]:
    """Least SMs of a green context, from Pascal on, and what their number is a multiple of (CUDA 12.4 to 12.9 [V])."""
    major = int(gpu.compute_capability.split(".")[0])
    if major < 6:
        raise wrong("green-context", f"{gpu.name} has compute capability {gpu.compute_capability}", "6.0 or later")
    return {6: (1, 1), 7: (2, 2), 8: (4, 2)}.get(major, (8, 8))


@dataclass
class Mps(Parts):
    """Processes under the Multi-Process Service, each with an active-thread percentage."""

    name = "mps"
    validated_as = ("green",)
    summary = (
        "processes under MPS, each limited to a percentage of the SMs; limits may overlap "
        "(NVIDIA MPS, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)"
    )
    percent: str = parameter(
        "100",
        "active-thread percentage of each stream, as 50+50, or one for all: a limit, no reservation",
        of_streams=IN_ORDER,
    )
    by: str | None = divided_by(None)

    def parts(self, gpu: GPU, streams: Sequence[str]) -> list[frozenset[int]]:
        """Whole TPCs, rounded down, but at least one ([V] experiments/mps, on an H200).

        Each part starts where the one before it ends, round and round the device: they overlap where they must [V].
        """
        read = plus_separated(self.name, "percent", self.percent, decimal, "a percentage")
        shares = one_each(self.name, "percent", read, streams)
        if not all(0 < share <= 100 for share in shares):
            raise wrong(self.name, f"percent={self.percent} is out of range", "more than 0 and at most 100 each")
        sets, start, tpc = [], 0, gpu.sms_per_tpc
        for share in shares:
            count = min(gpu.sm_count, tpc * max(1, floor(share * gpu.sm_count / 100 / tpc)))
            sets.append(frozenset((start + i) % gpu.sm_count for i in range(count)))
            start += count
            if count * 100 != share * gpu.sm_count:
                self._rounded = f"percent={self.percent}"
        return sets


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A MIG profile."""

    sms: int  # of an instance
    eighths: int  # its memory slices, eighths of L2 and DRAM; of L2 `DOUBLE` has one
    starts: tuple[int, ...]  # slices at which an instance may start
    id: int  # of ``nvidia-smi mig -cgi``


DOUBLE = "1g2m"  # one compute slice with two memory slices, which NVIDIA names by its memory: 1g.20gb of an H100


def _sevenths(
    one: int, two: int, three: int, four: int, seven: int, double: int | None = None
) -> dict[str, MigProfile]:
    """Profiles of a GPU of seven compute slices, by their SMs."""
    return {
        "1g": MigProfile(one, 1, (0, 1, 2, 3, 4, 5, 6), 19),
        **({} if double is None else {DOUBLE: MigProfile(double, 2, (0, 2, 4, 6), 15)}),
        "2g": MigProfile(two, 2, (0, 2, 4), 14),
        "3g": MigProfile(three, 4, (0, 4), 9),
        "4g": MigProfile(four, 4, (0,), 5),
        "7g": MigProfile(seven, 8, (0,), 0),
    }


def _quarters(one: int, two: int, four: int) -> dict[str, MigProfile]:
    """Profiles of a GPU of four compute slices, by their SMs."""
    return {
        "1g": MigProfile(one, 2, (0, 2, 4, 6), 14),
        "2g": MigProfile(two, 4, (0, 4), 5),
        "4g": MigProfile(four, 8, (0,), 0),
    }


# By compute capability and SMs of the GPU. SMs and ids: lists of ``nvidia-smi mig -lgip`` that users of the A30, A100,
# H100, H200 (github.com/NVIDIA/mig-parted, issue 120), B200 (pull request 166) and RTX PRO 6000 published [V]; those of
# the B200's 3g, 4g and 7g and of the RTX PRO 6000's 4g were not seen there: recalled [M]. Eighths of memory and L2:
# NVIDIA's MIG user guide, "Supported MIG Profiles" [V]. Starts: lists of ``nvidia-smi mig -lgipp`` of the A100 and H100
# [V]; of quarters and `DOUBLE` they follow from the sizes [D]. `DOUBLE` of the A100 and H100 PCIe was not seen.
MIG_PROFILES = {
    ("8.0", 56): _quarters(14, 28, 56),
    ("8.0", 108): _sevenths(14, 28, 42, 56, 98),
    ("9.0", 114): _sevenths(14, 30, 46, 62, 114),
    ("9.0", 132): _sevenths(16, 32, 60, 64, 132, double=26),
    ("10.0", 148): _sevenths(18, 36, 70, 72, 148, double=30),
    ("12.0", 188): _quarters(46, 94, 188),
}


@dataclass
class Mig(Parts):
    """A MIG instance for each process: SMs and a slice of L2 and DRAM of its own."""

    name = "mig"
    summary = (
        "one MIG instance per process, each with its SMs and its own slice of L2 and DRAM (NVIDIA Multi-Instance GPU)"
    )
    slices: str | None = parameter(
        None,
        "profile of each stream, as 3g+4g; default: the largest that all streams can have, but for 1g2m",
        of_streams=IN_ORDER,
    )
    by: str | None = divided_by(None)
    _shares: list[float] = field(default_factory=list, init=False, repr=False)

    def parts(self, gpu: GPU, streams: Sequence[str]) -> list[frozenset[int]]:
        """SMs of the instances, one after the other."""
        profiles = mig_profiles(gpu)
        chosen = self._chosen(profiles, streams)
        self._shares = [profiles[name].eighths / 8 for name in chosen]
        return in_a_row([profiles[name].sms for name in chosen])

    def instances(self) -> list[tuple[int, float]]:
        """SMs of each instance, and its share of L2 and DRAM; after `prepare`."""
        return [(len(part), share) for part, share in zip(self._parts, self._shares, strict=True)]

    def memory_domains(self, gpu: GPU, streams: Sequence[str]) -> Domains:
        """Each instance has its eighths of L2 and DRAM to itself; unused SMs count to the first."""
        unused = frozenset(range(gpu.sm_count)).difference(*self._parts)
        return list(zip([self._parts[0] | unused, *self._parts[1:]], self._shares, strict=True))

    def _chosen(self, profiles: dict[str, MigProfile], streams: Sequence[str]) -> list[str]:
        if self.slices is None:
            count = min(len(streams), max(len(one.starts) for one in profiles.values()))  # others wait
            equal = [name for name, one in profiles.items() if name != DOUBLE and placeable([one] * count)]
            return [equal[-1]] * count

        def known(text: str) -> str:
            if text not in profiles:
                raise ValueError
            return text

        names = plus_separated(self.name, "slices", self.slices, known, f"one of {', '.join(profiles)}")
        chosen = one_each(self.name, "slices", names, streams)
        if not placeable([profiles[name] for name in chosen]):
            raise wrong(self.name, f"slices={self.slices} do not fit the GPU together", "such as 3g+4g or 2g+2g+3g")
        return chosen


def mig_profiles(gpu: GPU) -> dict[str, MigProfile]:
    """The MIG profiles of a GPU, which has to have some."""
    profiles = MIG_PROFILES.get((gpu.compute_capability, gpu.sm_count))
    if profiles is None:
        raise InputError(
            None, "policy mig", f"{gpu.name} has no MIG profiles", "an A30, A100, H100, H200, B200 or RTX PRO 6000"
        )
    return profiles


def placeable(profiles: Sequence[MigProfile]) -> bool:
    """Whether instances of these profiles fit beside one another, each from an eighth where it may start."""

    def place(rest: Sequence[MigProfile], taken: frozenset[int]) -> bool:
        if not rest:
            return True
        return any(
            place(rest[1:], taken | mine)
            for mine in (frozenset(range(start, start + rest[0].eighths)) for start in rest[0].starts)
            if not mine & taken
        )

    return len(profiles) <= 7 and place(sorted(profiles, key=lambda p: -p.eighths), frozenset())


@dataclass
class TpcMask(Parts):
    """Each stream has a mask of TPCs on which its blocks may run, as libsmctrl sets it."""

    name = "tpc-mask"
    validated_as = ("green",)
    summary = (
        "each stream kept off the TPCs whose bits are set in its mask; masks may overlap "
        "(libsmctrl; Bakita and Anderson, RTAS'23)"
    )
    holds_internal = False
    one_process = True
    shown = False
    masks: str = parameter(
        "0",
        "mask of each stream, hexadecimal, as 0xff+0xff00, or one for all; bit t set: TPC t disabled",
        of_streams=IN_ORDER,
    )

    def parts(self, gpu: GPU, streams: Sequence[str]) -> list[frozenset[int]]:
        """SMs of the TPCs that are left; TPC t is SMs t x n to t x n + n - 1 of n SMs a TPC."""
        read = plus_separated(self.name, "masks", self.masks, hexadecimal, "a hexadecimal mask")
        sets = [
            frozenset(sm for sm in range(gpu.sm_count) if not mask >> (sm // gpu.sms_per_tpc) & 1)
            for mask in one_each(self.name, "masks", read, streams)
        ]
        if not all(sets):
            raise wrong(self.name, f"masks={self.masks} disables all TPCs of a stream", "at least one TPC each")
        return sets
