"""Plans are judged by replaying them; every plan is replayed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpusim.choose.bound import Bounds
from gpusim.choose.plan import Plan, Work, memory_bytes, planned_trace
from gpusim.hardware.gpcs import most_clusters

SAME = 1e-9  # relative: makespans this near are equal


def is_less(some_us: float, other_us: float) -> bool:
    """Whether a time is shorter than another by more than rounding."""
    return some_us < other_us * (1.0 - SAME)


@dataclass(frozen=True)
class Candidate:
    """A plan that was replayed."""

    plan: Plan  # the plan
    makespan_us: float  # of its replay
    memory_bytes: int  # the most that its workspaces can hold at once
    ends_us: tuple[float, ...]  # when each of its streams ended


class Judge:
    """Replays plans for some work on a GPU, at most ``most`` of them.

    `limit_bytes` is the limit of their workspaces; None: no limit.
    """

    def __init__(self, work: Work, bounds: Bounds, limit_bytes: int | None, most: int) -> None:
        self.work = work
        self.bounds = bounds
        self.session = bounds.session
        self.gpu = bounds.session.gpu
        self.limit_bytes = limit_bytes
        self.most = self.left = most
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

        [V] of 215 plans that were run on an H200 it refused the three of which that is not true, and no others.
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
        """The plan, replayed."""
        known = self._seen.get(plan.key)
        if known is None:
            self.left -= 1
            ends = tuple(self.session.stream_ends_us(planned_trace(self.work, plan), plan.policy).values())
            known = self._seen[plan.key] = Candidate(plan, max(ends), memory_bytes(self.work, plan), ends)
        return known

    def better(self, plan: Plan, than: Candidate) -> Candidate | None:
        """The plan, replayed, if it is better; None where it is not, breaks the limit or no replay is left.

        A plan whose lower bound is no better is not replayed.
        """
        if not self.allows(plan) or not is_less(self.bounds.of_plan(self.work, plan), than.makespan_us):
            return None
        if plan.key not in self._seen and self.left <= 0:
            return None
        found = self.replayed(plan)
        return found if is_less(found.makespan_us, than.makespan_us) else None


def frontier(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The Pareto frontier of memory and makespan, by ascending memory."""
    found: list[Candidate] = []
    for one in sorted(candidates, key=lambda c: (c.memory_bytes, c.makespan_us)):
        if not found or is_less(one.makespan_us, found[-1].makespan_us):
            found.append(one)
    return found
