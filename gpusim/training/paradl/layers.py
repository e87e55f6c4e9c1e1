"""Sizes of layers, from the network's graph, and their times, from a table or a trace."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpusim.common.errors import InputError, quote
from gpusim.common.spreadsheet import count_in, number_in, recorded_rows
from gpusim.trace.fields import MAX_DURATION_US
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution
from gpusim.training.networks.network import Network
from gpusim.training.paradl.divide import CHANNEL, FILTER, ROWS, WHOLE

MEASURED = Path(__file__).with_name("layers")  # one table a GPU
COLUMNS = ("network", "layer", "divided", "parts", "batch", "forward_us", "backward_us")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of elements of a layer's tensors."""

    x: int  # of its inputs, one sample
    y: int  # of its output, one sample
    w: int  # parameters


def sizes(network: Network) -> dict[str, Sizes]:
    """Sizes of every layer, which has to have some."""
    found = {}
    for node in network.nodes:
        given, made = network.inputs(node), network.shapes[node.name]
        found[node.name] = Sizes(sum(shape.elements for shape in given), made.elements, node.layer.parameters(given))
    empty = [name for name, size in found.items() if size.x <= 0 or size.y <= 0]
    if empty or not found:
        place = f"{network.name}: layer {empty[0]}" if empty else network.name
        raise InputError(None, place, "has no sizes", "layers with channels, height and width")
    return found


class LayerTimes:
    """Forward and backward times (us) of layers alone on one GPU, for each kind of division and batch size."""

    def __init__(self, gpu: str, rows: Iterable[tuple[str, str, int, int, float, float]]) -> None:
        """Take rows of (layer, divided into what, parts, samples, forward us, backward us)."""
        self.gpu = gpu
        self._times: dict[tuple[str, int], dict[int, dict[str, tuple[float, float]]]] = {}
        for layer, divided, parts, batch, forward_us, backward_us in rows:
            self._times.setdefault((divided, parts), {}).setdefault(batch, {})[layer] = (forward_us, backward_us)

    def curve(self, layers: Collection[str], divided: str, parts: int) -> BatchCurve:
        """The sum over some layers by batch, of each rank's part.

        Where that number of parts was not measured, the time of the nearest smaller number, or of the whole layer, is
        divided in proportion, as in the report.
        """
        fewer = sorted((n for how, n in self._times if how == divided and n <= parts), reverse=True)
        for source in [*((divided, n) for n in fewer), (WHOLE, 1)]:
            tables = self._times.get(source, {})
            whole = {batch: table for batch, table in tables.items() if all(layer in table for layer in layers)}
            if whole:
                break
        else:
            known = {layer for table in self._times.get((WHOLE, 1), {}).values() for layer in table}
            missing = next((layer for layer in layers if layer not in known), next(iter(layers), ""))
            raise InputError(None, f"layer {missing}", "has no times at a batch that all others have", "a row for it")
        share = source[1] / parts
        batches = sorted(whole)
        sums = [
            [share * math.fsum(whole[batch][layer][way] for layer in layers) for batch in batches] for way in (0, 1)
        ]
        return BatchCurve(batches, sums[0], sums[1])

    def update_us(self, parameters: int) -> float:
        """Time to update all of a network's parameters; where no table says, 3 x 4 bytes each at 4 TB/s [D]."""
        for table in self._times.get((WHOLE, 1), {}).values():
            if "update" in table:
                return math.fsum(table["update"])
        return parameters * 12 / 4e6


@dataclass(frozen=True)
class BatchCurve:
    """Forward and backward time (us) by batch size: linear between measured sizes, proportional beyond."""

    batches: list[int]
    forward_us: list[float]
    backward_us: list[float]

    def at(self, batch: float) -> tuple[float, float]:
        """Forward and backward time of a batch."""
        first, last = self.batches[0], self.batches[-1]
        held = min(max(batch, first), last)
        forward = float(np.interp(held, self.batches, self.forward_us))
        backward = float(np.interp(held, self.batches, self.backward_us))
        return forward * batch / held, backward * batch / held


def measured_times(network: Network, gpu: str) -> LayerTimes:
    """Times that ship for a network on a GPU."""
    path = MEASURED / f"{gpu}.csv.gz"
    if path.is_file():
        rows = _rows(path, network.name)
        if rows:
            return LayerTimes(gpu, rows)
    raise InputError(
        None, "layers", f"no times of {network.name} on a {gpu} ship", "a table (CSV) or a recorded training trace"
    )


def read_times(path: str | Path, network: Network, gpu: str) -> LayerTimes:
    """Times of a CSV file with `COLUMNS`, measured on the GPU that is meant."""
    rows = _rows(path, network.name)
    if not rows:
        raise InputError(path, "network", f"no row is of {network.name}", "times of its layers")
    return LayerTimes(gpu, rows)


def traced_times(network: Network, trace: Trace, operation_us: Mapping[str, float], gpu: str) -> LayerTimes:
    """Times of a recorded training iteration; the ids of its operations are layer/direction.

    ``operation_us`` has the isolated time of each operation, as replayed; the batch is that of the convolutions.
    """
    batches = {operation.shape.batch for operation in trace.operations() if isinstance(operation, Convolution)}
    place = f"trace {trace.name}"
    if len(batches) != 1:
        raise InputError(None, place, f"has convolutions of {len(batches)} batch sizes", "those of one iteration")
    names = {node.name for node in network.nodes}
    found = {name: [0.0, 0.0] for name in names}
    for id, took_us in operation_us.items():
        named, _, direction = id.rpartition("/")
        layer = next((name for name in _prefixes(named) if name in names), None)
        if layer is None:
            raise InputError(None, f"{place}: operation {id}", f"is of no layer of {network.name}", "its layers")
        found[layer][not direction.startswith("fwd")] += took_us
    if not any(backward for _, backward in found.values()):
        raise InputError(None, place, "has no backward pass", "a recorded training iteration")
    (batch,) = batches
    return LayerTimes(gpu, [(name, WHOLE, 1, batch, *us) for name, us in found.items()])  # type: ignore[misc]


def _prefixes(name: str) -> Iterable[str]:
    """The name and its prefixes: biases, summed gradients and parts of concatenations are named layer.part."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _rows(path: str | Path, network: str) -> list[tuple[str, str, int, int, float, float]]:
    found: dict[tuple[str, str, int, int], tuple[float, float]] = {}
    for place, row in recorded_rows(Path(path), COLUMNS, "a table of times of layers"):
        if row["network"] == network:
            if row["divided"] not in (WHOLE, FILTER, CHANNEL, ROWS):
                expected = f"{WHOLE}, {FILTER}, {CHANNEL} or {ROWS}"
                raise InputError(path, place, f"divided is {quote(row['divided'])}", expected)
            parts, batch = (count_in(row, column, 1, path, place) for column in ("parts", "batch"))
            part = row["layer"], row["divided"], parts, batch
            if part in found:
                raise InputError(path, place, "is another row of the same part", "one of each")
            forward_us, backward_us = (
                number_in(row, column, path, place, 0.0, MAX_DURATION_US) for column in ("forward_us", "backward_us")
            )
            found[part] = forward_us, backward_us
    if found and not any(any(us) for us in found.values()):
        raise InputError(path, network, "takes no time at all", "times above 0")
    return [(*part, *us) for part, us in found.items()]
