"""Plans are judged by replaying them in each start order; every plan is judged once.

Start orders are the orders in which the streams of a plan begin, if the program does not control it. The branches of an
inception module wait for the layer before it. The GPU releases such streams in an order that depends on the hardware
queue of each stream ([V] experiments/hardware_check). A plan is therefore judged by the mean over orders, unless the
host launches in its own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from gpusim.choose.bound import Bounds
from gpusim.choose.plan import Plan, PlannedWork, memory_bytes, planned_trace
from gpusim.hardware.gpcs import most_clusters

Order = Literal["any", "host"]
ORDERS: tuple[Order, ...] = ("any", "host")
MOST_ORDERS = 4  # start orders that a plan is replayed in: beyond four streams evenly spaced rotations
SAME = 1e-9  # relative: makespans this near are equal


def is_less(some_us: float, other_us: float) -> bool:
    """Whether a time is shorter than another by more than rounding."""
    return some_us < other_us * (1.0 - SAME)


@dataclass(frozen=True)
class Candidate:
    """A plan that was replayed."""

    plan: Plan  # its streams in the start order with the least makespan
    makespan_us: float  # in that order, which is the replay of the plan as a trace
    memory_bytes: int  # the most that its workspaces can hold at once
    ends_us: tuple[float, ...]  # when each of its streams ended, in that order
    starts_us: tuple[float, ...]  # makespan in each start order that was replayed

    @property
    def expected_us(self) -> float:
        """Mean makespan over the start orders, by which plans are compared."""
        return fmean(self.starts_us)


def gain_percent(plain: Candidate, plan: Candidate) -> float:
    """How much less time a plan is expected to take than another, as a gain in percent."""
    return 100.0 * (plain.expected_us / plan.expected_us - 1.0) if plan.expected_us > 0.0 else 0.0


def has_start_orders(plan: Plan, order: Order) -> bool:
    """Whether a plan runs in several start orders: streams with SMs of their own do not compete for the first SMs."""
    return order == "any" and len(plan.lanes) > 1 and not plan.sms


def unordered(plan: Plan) -> Plan:
    """The plan with its streams sorted: one plan for all orders of the same streams."""
    return replace(plan, lanes=tuple(sorted(plan.lanes)))


def key_of(plan: Plan, order: Order) -> tuple[object, ...]:
    """A key that is equal for plans that are judged alike."""
    return unordered(plan).key if has_start_orders(plan, order) else plan.key


def started(plan: Plan, order: Order) -> Iterator[Plan]:
    """Yield the plan once for each start order, its streams in that order.

    Rotations, so that each stream is first once and last once; of more than `MOST_ORDERS` streams some of them.
    """
    if not has_start_orders(plan, order):
        yield plan
        return
    lanes = unordered(plan).lanes
    count = min(len(lanes), MOST_ORDERS)
    for n in range(count):
        shift = n * len(lanes) // count
        yield replace(plan, lanes=lanes[shift:] + lanes[:shift])


class Judge:
    """Judges plans for some work on a GPU, at most ``most`` of them.

    `limit_bytes` is the limit of their workspaces; None: no limit. `order`: whether the host decides in which order
    streams start; else a plan is judged by the mean over orders.
    """

    def __init__(
        self, work: PlannedWork, bounds: Bounds, limit_bytes: int | None, most: int, order: Order = "host"
    ) -> None:
        self.work = work
        self.bounds = bounds
        self.session = bounds.session
        self.gpu = bounds.session.gpu
        self.limit_bytes = limit_bytes
        self.most = self.left = most
        self.order: Order = order
        self._seen: dict[tuple[object, ...], Candidate] = {}

    @property
    def seen(self) -> list[Candidate]:
        """All plans that were replayed, in the order in which they were."""
        return list(self._seen.values())

    def allows(self, plan: Plan) -> bool:
        """Whether the workspaces of a plan are within the memory limit, and the GPU launches all its kernels."""
        if self.limit_bytes is not None and memory_bytes(self.work, plan) > self.limit_bytes:
            return False
        return self.launches(plan)

    def launches(self, plan: Plan) -> bool:
        """Whether the GPU launches all kernels of a plan: on its SMs each kernel in clusters has a GPC that holds one.

        [V] An H200 refused three of 215 plans, exactly those that break this rule.
        """
        return all(
            most_clusters(self.gpu.gpc_of_sm[sms[0] : sms[1] + 1], model.cluster_blocks) > 0
            for lane, sms in zip(plan.lanes, plan.sm_sets(), strict=True)
            if sms is not None
            for id in lane
            for model in self.bounds.models(id, plan.algorithms.get(id, ""))
            if model.cluster_blocks > 1
        )

    def replayed(self, plan: Plan) -> Candidate:
        """The plan, replayed in each start order."""
        key = key_of(plan, self.order)
        known = self._seen.get(key)
        if known is None:
            self.left -= 1
            runs = []
            for one in started(plan, self.order):
                ends = self.session.stream_ends_us(planned_trace(self.work, one), one.policy)
                runs.append((max(ends.values()), one, tuple(ends.values())))
            us, best, ends_us = min(runs, key=lambda run: run[0])
            starts_us = tuple(run[0] for run in runs)
            known = self._seen[key] = Candidate(best, us, memory_bytes(self.work, plan), ends_us, starts_us)
        return known

    def better(self, plan: Plan, than: Candidate) -> Candidate | None:
        """Replay a plan; None if it is not faster, exceeds the memory limit, or no replays are left.

        A plan is not replayed if its lower bound is no faster.
        """
        if not self.allows(plan) or not is_less(self.bounds.of_plan(self.work, plan), than.expected_us):
            return None
        if key_of(plan, self.order) not in self._seen and self.left <= 0:
            return None
        found = self.replayed(plan)
        return found if is_less(found.expected_us, than.expected_us) else None


def frontier(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The Pareto frontier of memory and expected makespan, by ascending memory."""
    found: list[Candidate] = []
    for one in sorted(candidates, key=lambda c: (c.memory_bytes, c.expected_us)):
        if not found or is_less(one.expected_us, found[-1].expected_us):
            found.append(one)
    return found
