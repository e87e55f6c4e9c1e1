"""A cluster: its GPUs, how many a node has, and the costs of messages within a node and between nodes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpusim.common.errors import InputError, checked, expected_one_of, faults_of, quote
from gpusim.common.files import read_toml
from gpusim.common.strict import Strict
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.training.paradl.equations import Link, Links

FOLDER = Path(__file__).with_name("clusters")


Positive = Annotated[float, Field(gt=0, le=1e15)]
Messages = tuple[Annotated[tuple[Positive, Positive], Field(strict=False)], ...]


class Among(Strict):
    """Times of messages in a ring of more than two ranks."""

    ranks: Annotated[int, Field(ge=3, le=1024, description="of the ring")]
    measured: Messages = Field(strict=False, min_length=1, description="[bytes, us] of a message, ascending")


class Rate(Strict):
    """The cost of a message: a latency, and a time for each byte."""

    alpha_us: Annotated[float, Field(ge=0, le=1e6, description="latency of a message, us")]
    gb_per_s: Annotated[float, Field(gt=0, le=1e6, description="bandwidth of one direction, 1e9 bytes a second")]
    source: Annotated[str, Field(min_length=1, description="where they are from")]
    measured: Messages = Field(
        default=(),
        strict=False,
        description="[bytes, us] of a message, ascending; where given, instead of the two",
    )
    among: tuple[Among, ...] = Field(
        default=(), strict=False, description="the same in rings of more ranks, by their number, ascending"
    )

    @property
    def link(self) -> Link:
        """As the equations take it."""
        among = tuple((ring.ranks, ring.measured) for ring in self.among)
        return Link(self.alpha_us, 1e-3 / self.gb_per_s, self.measured, among)

    @model_validator(mode="after")
    def _ascending(self) -> Rate:
        for messages in (self.measured, *(ring.measured for ring in self.among)):
            sizes = [size for size, _ in messages]
            if sorted(set(sizes)) != sizes:
                raise ValueError("measured: sizes must ascend")
        ranks = [ring.ranks for ring in self.among]
        if sorted(set(ranks)) != ranks:
            raise ValueError("among: ranks must ascend")
        return self


class Level(Strict):
    """The links of a level: one rate for all collectives, or one for each."""

    any: Rate | None = Field(default=None, description="of collectives that have none of their own")
    all_reduce: Rate | None = None
    all_gather: Rate | None = None
    send_receive: Rate | None = None

    def links(self, place: str) -> Links:
        """As the equations take them; every collective has to have a rate."""
        found = {}
        for name in ("all_reduce", "all_gather", "send_receive"):
            rate = getattr(self, name) or self.any
            if rate is None:
                raise InputError(None, f"{place}.{name}", "missing", f"a rate, or {place}.any for all collectives")
            found[name] = rate.link
        return Links(**found)


class ClusterFile(Strict):
    """A cluster file, version 1."""

    version: Literal[1] = Field(description="version of this format")
    title: Annotated[str, Field(min_length=1, description="what it is")]
    gpu: Annotated[
        str, Field(min_length=1, description="a GPU of `gpusim gpus`, or a GPU file, NAME.toml, beside this one")
    ]
    gpus_per_node: Annotated[int, Field(ge=1, le=1024, description="GPUs that the node's links join")]
    node: Level = Field(description="links within a node")
    network: Level = Field(description="links between nodes")


@dataclass(frozen=True)
class Cluster:
    """A cluster as the oracle sees it."""

    name: str  # stem of its file
    title: str  # what it is
    gpu: GPU  # each of its GPUs
    gpus_per_node: int  # GPUs that are connected by the links of a node
    node: Links  # links within a node
    network: Links  # links between nodes

    def links(self, ranks: int) -> Links:
        """The slowest links of a ring of neighbouring ranks."""
        return self.node if ranks <= self.gpus_per_node else self.network


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters that ship, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Load a cluster by the name of one that ships, or from a file."""
    if isinstance(name_or_path, str) and name_or_path in cluster_names():
        return _read(FOLDER / f"{name_or_path}.toml")
    path = Path(name_or_path)
    if len(path.parts) == 1 and path.suffix != ".toml" and not os.path.isfile(path):
        expected = expected_one_of(cluster_names(), name_or_path, "or the path of a cluster file")
        raise InputError(None, "cluster", f"unknown cluster {quote(str(name_or_path))}", expected)
    return _read(path)


def _read(path: Path) -> Cluster:
    file = checked(ClusterFile, read_toml(path, "a cluster file"), path)
    with faults_of(path):
        gpu = load_gpu(path.parent / file.gpu if file.gpu.endswith(".toml") else file.gpu)
        node, network = file.node.links("node"), file.network.links("network")
    return Cluster(path.stem, file.title, gpu, file.gpus_per_node, node, network)
