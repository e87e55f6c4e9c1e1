"""The best static division of each kind, found by replaying all; `gpusim.studies.oracle` searches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Partition, Policy, View, parameter
from gpusim.policies.tools.values import wrong

OBJECTIVES = ("makespan", "stp")


@dataclass
class Oracle(Policy):
    """A search over divisions of one kind. It is no rule: a replay cannot run it, a search by replays can.

    Class attributes:
        named: policies of this kind that are static too; the search tries them as well, so that none beats it.
    """

    named: ClassVar[tuple[str, ...]] = ()
    objective: str = parameter(
        "makespan", "makespan (shortest, streams run once) or stp (largest, streams restart)", one_of=OBJECTIVES
    )
    replays: int = parameter(
        300, "most divisions to replay where there are three streams or more; with two, all are", least=1
    )

    @abstractmethod
    def division(self, streams: Sequence[str], counts: Sequence[int], adapts: bool) -> str:
        """The policy that divides the GPU so; ``adapts``: a stream that is gone leaves its part to the others."""

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Refuse: one replay is no search.

        Raises:
            InputError: always.
        """
        raise wrong(
            self.name, "is a search by many replays", "gpusim.replay or gpusim.studies.oracle.search, which do it"
        )

    def partition(self, view: View) -> Partition:
        """Never called: `prepare` refuses."""
        return Partition(())


@dataclass
class OracleInterSM(Oracle):
    """The best split of the SMs."""

    name = "oracle-inter-sm"
    validated_as = ("green", "sm_curve")
    summary = (
        "the best static SM split, by replaying every one for two streams and by local search for more: the bound "
        "that SM-split policies are measured by"
    )
    family = "inter-sm"
    named = ("inter-sm",)
    step: int | None = parameter(None, "SMs by which splits differ; default: a TPC", least=1)

    def division(self, streams: Sequence[str], counts: Sequence[int], adapts: bool) -> str:
        """An explicit SM split."""
        return f"inter-sm:sms={'+'.join(map(str, counts))}" + (",dynamic=true" if adapts else "")


@dataclass
class OracleIntraSM(Oracle):
    """The best block quota."""

    name = "oracle-intra-sm"
    validated_as = ("quota", "green")
    summary = (
        "the best static block quota of each stream on every SM, by replaying every one for two streams and by local "
        "search for more: the bound that intra-SM policies are measured by"
    )
    family = "intra-sm"
    named = ("even",)

    def division(self, streams: Sequence[str], counts: Sequence[int], adapts: bool) -> str:
        """An explicit quota."""
        quotas = "+".join(f"{stream}:{count}" for stream, count in zip(streams, counts, strict=True))
        return f"quota:blocks={quotas}" + (",release=true" if adapts else "")
