"""The schedules that IOS published (Ding et al., MLSys'21): read into a graph and its stages.

A file is one network at one batch size, as the authors' optimizer writes it [V]: blocks, each with an enter node (the
exit node of the block before), inner nodes, an exit node, and `stages`: lists of groups of names that run side by side.
A schedule may merge convolutions of the same input into one; their names are then in `hint_name`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpusim.choose.streams import Lanes, Stage, as_lanes
from gpusim.common.errors import InputError, validating
from gpusim.common.files import read_bytes
from gpusim.trace.graph import Graph, ordered
from gpusim.trace.text import text_of

Size = Annotated[int, Field(ge=1, le=10**6)]
Shape = tuple[Size, Size, Size]  # channels, height, width of one sample


class Operator(BaseModel):
    """One operator of a network, merged convolutions counted once."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: Literal["placeholder", "conv", "pool", "identity", "relu", "element", "sequential"]
    name: str
    hint_name: str = ""
    inputs: list[list[tuple[str, int, int]]] = Field(default_factory=list)  # of each term: who, from, to which channel
    out_channels: Size | None = None
    kernel: tuple[Size, Size] | None = None
    stride: tuple[Size, Size] | None = None
    output_shape: Shape

    @property
    def reads(self) -> tuple[str, ...]:
        """The operators whose outputs it reads."""
        return tuple(dict.fromkeys(name for term in self.inputs for name, _, _ in term))


class _Block(BaseModel):
    model_config = ConfigDict(extra="ignore")

    enter_node: Operator
    inner_nodes: list[Operator]
    exit_node: Operator
    stages: list[list[list[str]]]


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    blocks: list[_Block]


@dataclass(frozen=True)
class Schedule:
    """A published schedule."""

    network: str  # its name
    operators: Mapping[str, Operator]  # by name, merged convolutions as one
    graph: Graph  # what waits for what
    # first to last; the groups of one run side by side, the operators of a group one after the other
    stages: tuple[Stage, ...]

    @property
    def lanes(self) -> Lanes:
        """The schedule as streams (`as_lanes`)."""
        return as_lanes(self.stages)


def load_schedule(path: str | os.PathLike[str]) -> Schedule:
    """Read a schedule of IOS (`.json`, `.json.gz`).

    Raises:
        InputError: no such file, another format, or stages that do not run every operator once, after what it reads.
    """
    source = Path(path)
    with validating(_File, source):
        read = _File.model_validate_json(text_of(read_bytes(source), source))
    operators = {op.name: op for block in read.blocks for op in (*block.inner_nodes, block.exit_node)}
    enters = {block.enter_node.name for block in read.blocks} - operators.keys()  # the network's input
    stages = tuple(tuple(tuple(group) for group in stage) for block in read.blocks for stage in block.stages)
    ended: set[str] = set(enters)
    for n, stage in enumerate(stages):
        for group in stage:
            seen = set(ended)
            for name in group:
                if name not in operators or name in seen:
                    problem = f"runs {name}, which " + ("ran before" if name in seen else "is no operator")
                    raise InputError(source, f"stage {n}", problem, "every operator once")
                missing = [other for other in operators[name].reads if other not in seen]
                if missing:
                    raise InputError(source, f"stage {n}", f"runs {name} before {missing[0]}", "what it reads first")
                seen.add(name)
        ended.update(chain.from_iterable(stage))
    left = operators.keys() - ended
    if left:
        raise InputError(source, "stages", f"leave out {min(left)}", "every operator once")
    waits = {name: tuple(other for other in op.reads if other in operators) for name, op in operators.items()}
    return Schedule(read.name, operators, ordered(waits), stages)


def main(folder: Path) -> None:
    """Print what the schedules of a folder hold."""
    for path in sorted(folder.glob("*.json.gz")):
        schedule = load_schedule(path)
        counts = len(schedule.operators), len(schedule.stages), max(map(len, schedule.stages))
        print("{}: {} operators, {} stages, {} groups at most".format(path.name, *counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
