"""The best static division of each kind, found by replaying all; `gpusim.studies.oracle` searches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Partition, Policy, View
from gpusim.policies.tools.values import wrong

OBJECTIVES = ("makespan", "stp")
OBJECTIVE_HELP = "makespan (shortest, streams run once) or stp (largest, streams restart)"
REPLAYS_HELP = "most divisions to replay where there are three streams or more; with two, all are"


@dataclass
class Oracle(Policy):
    """A search over divisions of one kind. It is no rule: a replay cannot run it, a search by replays can.

    Class attributes:
        named: policies of this kind that are static too; the search tries them as well, so that none beats it.
    """

    named: ClassVar[tuple[str, ...]] = ()
    objective: str = field(default="makespan", metadata={"help": OBJECTIVE_HELP})
    replays: int = field(default=300, metadata={"help": REPLAYS_HELP})

    def __post_init__(self) -> None:
        """Check what needs no trace."""
        if self.objective not in OBJECTIVES:
            raise wrong(self.name, f"objective={self.objective} is unknown", f"one of {', '.join(OBJECTIVES)}")
        if self.replays < 1:
            raise wrong(self.name, f"replays={self.replays} is below 1", "how many to try at most")

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
    summary = (
        "the best static SM split, by replaying every one for two streams and by local search for more: the bound "
        "that SM-split policies are measured by"
    )
    family = "inter-sm"
    named = ("inter-sm",)
    step: int | None = field(default=None, metadata={"help": "SMs by which splits differ; default: a TPC"})

    def __post_init__(self) -> None:
        """Check what needs no trace."""
        super().__post_init__()
        if self.step is not None and self.step < 1:
            raise wrong(self.name, f"step={self.step} is below 1", "a number of SMs")

    def division(self, streams: Sequence[str], counts: Sequence[int], adapts: bool) -> str:
        """An explicit SM split."""
        return f"inter-sm:sms={'+'.join(map(str, counts))}" + (",dynamic=true" if adapts else "")


@dataclass
class OracleIntraSM(Oracle):
    """The best block quota."""

    name = "oracle-intra-sm"
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
