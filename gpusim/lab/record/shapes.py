"""Layers to record: a network by name, or convolutions and layers listed in a TOML or CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from gpusim.common.errors import InputError, quote
from gpusim.common.files import read_toml
from gpusim.common.numbers import whole_number
from gpusim.common.spreadsheet import table_rows
from gpusim.training.networks.network import Network
from gpusim.training.networks.steps import CONVOLUTION, CallWork, Direction, Step, forward, training_iteration
from gpusim.training.networks.zoo import NETWORKS, network

LAYERS = ("MAX_POOL", "AVERAGE_POOL", "RELU", "LRN", "BATCH_NORM", "BATCH_NORM_INFERENCE", "BIAS", "ADD", "TO_NHWC",
          "TO_NCHW")  # fmt: skip
NO_BACKWARD = ("BATCH_NORM_INFERENCE", "ADD", "TO_NHWC", "TO_NCHW")
NEEDED = ("name", "channels", "height")
# The others, each with the column whose value it takes where it is left out, or a number.
SIZES: dict[str, str | int] = {
    "width": "height",
    "out_channels": "channels",
    "filter_height": 1,
    "filter_width": "filter_height",
    "padding_height": 0,
    "padding_width": "padding_height",
    "stride": 1,
}
AN_ENTRY = f"{', '.join(NEEDED)} and, where wanted, kind, {', '.join(SIZES)}"


@dataclass(frozen=True)
class Subject:
    """Shapes to record."""

    name: str  # a network's, or a file's without its ending
    steps: list[Step]  # of a pass; of a list of shapes, steps that wait for nothing
    network: Network | None = None  # None for a list of shapes


def subject(what: str, batch: int, training: bool) -> Subject:
    """Return the calls that a recording covers, by the name of a network or the file that lists them."""
    if what in NETWORKS:
        net = network(what)
        steps = training_iteration(net, batch) if training else forward(net, batch)
        return Subject(what, steps, net)
    path = Path(what)
    if path.suffix in (".toml", ".csv"):
        return Subject(path.stem, _steps(_listed(path, batch), training))
    expected = f"one of {', '.join(NETWORKS)}, or a .toml or .csv of shapes"
    raise InputError(None, "", f"unknown network {quote(what)}", expected)


def _steps(works: Mapping[str, CallWork], training: bool) -> list[Step]:
    steps = []
    for name, work in works.items():
        backward = ("bwd_data", "bwd_filter") if work.kind == CONVOLUTION else ("bwd",)
        more = backward if training and work.kind not in NO_BACKWARD else ()
        for direction in ("fwd", *more):
            turned = replace(work, direction=cast(Direction, direction))
            steps.append(Step(f"{name}/{direction}", name, turned, ()))
    return steps


def _listed(path: Path, batch: int) -> dict[str, CallWork]:
    entries = dict(_rows(path) if path.suffix == ".csv" else _tables(path))
    if not entries:
        raise InputError(path, "", "lists no layers", "[[layer]] tables, or rows of a CSV")
    works: dict[str, CallWork] = {}
    for place, entry in entries.items():
        if not isinstance(entry, dict):
            raise InputError(path, place, "is no table", AN_ENTRY)
        name, work = _entry(path, place, entry, batch)
        if name in works:
            raise InputError(path, place, f"has the name {quote(name)} again", "one layer of a name")
        works[name] = work
    return works


def _tables(path: Path) -> Iterator[tuple[str, Any]]:
    layers = read_toml(path, "[[layer]] tables").get("layer", [])
    for n, layer in enumerate(layers if isinstance(layers, list) else (), 1):
        yield f"layer {n}", layer


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with table_rows(path) as reader:
        titles = list(reader.fieldnames or ())
        if twice := [title for title in titles if titles.count(title) > 1]:
            raise InputError(path, "line 1", f"has the column {quote(twice[0])} twice", "each column once")
        for row in reader:
            if None in row:
                raise InputError(path, f"line {reader.line_num}", "has more cells than columns", ",".join(titles))
            yield f"line {reader.line_num}", dict(row)


def _entry(path: Path, place: str, entry: Mapping[str, Any], batch: int) -> tuple[str, CallWork]:
    given = {key: value for key, value in entry.items() if value not in ("", None)}
    wrong = [key for key in given if key not in (*NEEDED, "kind", *SIZES)]
    missing = [key for key in NEEDED if key not in given]
    if wrong or missing:
        problem = f"has the unknown key {quote(wrong[0])}" if wrong else f"lacks {missing[0]}"
        raise InputError(path, place, problem, AN_ENTRY)
    name, kind = str(given["name"]), str(given.get("kind", CONVOLUTION)).upper()
    if not name.replace(".", "").replace("_", "").replace("-", "").isalnum() or not name.isascii():
        raise InputError(path, f"{place}.name", f"is {quote(name)}", "letters, digits, '.', '_' and '-'")
    if kind not in (CONVOLUTION, *LAYERS):
        raise InputError(path, f"{place}.kind", f"is {quote(kind)}", f"convolution, {', '.join(LAYERS).lower()}")
    sizes = {key: _size(path, place, key, given[key]) for key in ("channels", "height", *SIZES) if key in given}
    for key, default in SIZES.items():
        sizes.setdefault(key, sizes[default] if isinstance(default, str) else default)
    kernel = sizes["filter_height"], sizes["filter_width"]
    padding = sizes["padding_height"], sizes["padding_width"]
    work = CallWork(
        kind, "fwd", batch, sizes["channels"], sizes["height"], sizes["width"], sizes["out_channels"], kernel, padding,
        sizes["stride"],
    )  # fmt: skip
    padded = (size + 2 * pad for size, pad in zip((work.height, work.width), padding, strict=True))
    if any(size < window for size, window in zip(padded, kernel, strict=True)):
        raise InputError(path, place, "has a filter larger than its padded input", "one that fits")
    return name, work


def _size(path: Path, place: str, key: str, value: Any) -> int:
    least = 0 if key.startswith("padding") else 1
    try:
        number = whole_number(str(value))
    except ValueError:
        number = -1
    if not least <= number <= 10**6:
        raise InputError(path, f"{place}.{key}", f"is {quote(value)}", f"a whole number from {least} to 1000000")
    return number
