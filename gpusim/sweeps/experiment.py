"""Experiment files in TOML: every combination of traces, GPUs, changes of GPUs, policies and seeds.

    traces = ["../traces/inception_*.json.gz"]   # relative to this file
    workload = "operation-pairs"                 # or "trace" (the default), "stream-pairs"
    restart = true                               # streams restart, too: STP, ANTT, fairness (default: run once only)
    gpus = ["h200"]                              # default: the GPU that each trace was recorded on
    policies = ["leftover", { name = "inter-sm", sms = ["44+88", "66+66"] }]
    seeds = [0, 1]                               # default: [0], as fitted to the recording

    [[parameters]]                               # of the GPU: see `gpusim.hardware.what_if`
    sm_count = ["x0.5", "x1", "x2"]
    registers_per_sm = ["x1", "x2"]

Several values make every combination; several `[[parameters]]` follow one another.

A sweep runs the code of the policies that its experiment names. That code has to be installed, or in the folder of the
experiment or below it, links followed. The current folder does not count. The caller may allow other folders. Loading
runs none of the code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from gpusim.common.errors import InputError, checked, expected_one_of, faults_of, one_line, quote
from gpusim.common.files import read_toml
from gpusim.common.fingerprint import module_spec
from gpusim.common.strict import Strict
from gpusim.hardware.gpu import GPU, gpu_names, load_gpu
from gpusim.hardware.what_if import QUANTITIES, amount
from gpusim.policies.registry import OutsideCode, code_of, policy_from, split_file
from gpusim.sweeps.compute import policy_source
from gpusim.sweeps.workload import WorkloadKind

Text = Annotated[str, Field(min_length=1, max_length=500)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Scalar = bool | int | float | str
Item = TypeVar("Item")

MAX_COMBINATIONS = 10**5  # of the values of one table


class _ExperimentFile(Strict):
    traces: Annotated[list[Text], Field(min_length=1)]
    workload: WorkloadKind = "trace"
    restart: bool = False
    gpus: list[Text] = Field(default_factory=list)
    policies: Annotated[list[Any], Field(min_length=1)]
    parameters: Any = Field(default_factory=list)
    seeds: Annotated[list[Seed], Field(min_length=1, default_factory=lambda: [0])]


@dataclass(frozen=True, slots=True)
class Source:
    """A trace to read: its name in the table, and its file."""

    label: str
    path: Path


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy."""

    label: str  # what the table calls it
    text: str  # what makes it, from any folder
    source: str  # `policy_source` of it
    code: OutsideCode | None  # of a policy that is no part of gpusim


@dataclass(frozen=True, slots=True)
class Experiment:
    """A parsed experiment file, with all its traces, GPUs and policies resolved."""

    path: Path  # the file
    sources: tuple[Source, ...]  # its traces, each once
    workload: WorkloadKind  # what of each trace to replay
    restart: bool  # replay it once more, streams restarting, for STP, ANTT and fairness
    gpus: tuple[GPU, ...]  # GPUs by name; empty: for each trace the one it was recorded on
    policies: tuple[PolicyChoice, ...]  # each once
    # changes of the GPU, one after the other; a GPU as it is where there are none
    parameters: tuple[Mapping[str, float | str], ...]
    seeds: tuple[int, ...]  # each once

    @property
    def varied(self) -> tuple[str, ...]:
        """Quantities of the GPU that the experiment changes, in the order of `QUANTITIES`."""
        return tuple(name for name in QUANTITIES if any(name in changes for changes in self.parameters))

    @property
    def code(self) -> tuple[OutsideCode, ...]:
        """Code of others that a sweep of this experiment runs, each once."""
        return _once(policy.code for policy in self.policies if policy.code is not None)


def load_experiment(path: str | Path, code_from: Iterable[str | Path] = ()) -> Experiment:
    """Read an experiment, and run none of the code that it names.

    Its policies may also come from the folders ``code_from``: from them and what is below them.
    """
    file = checked(_ExperimentFile, read_toml(path, "an experiment"), path)
    folder = Path(path).parent
    allowed = [Path(one).resolve() for one in (folder, *code_from)]
    tables = file.parameters if isinstance(file.parameters, list) else [file.parameters]
    with faults_of(path):
        return Experiment(
            path=Path(path),
            sources=_sources(folder, file.traces),
            workload=file.workload,
            restart=file.restart,
            gpus=_gpus(folder, file.gpus),
            policies=_once(c for n, given in enumerate(file.policies) for c in _choices(folder, given, n, allowed)),
            parameters=tuple(change for n, table in enumerate(tables) for change in _changes(table, n)) or ({},),
            seeds=_once(file.seeds),
        )


def _sources(folder: Path, patterns: Sequence[str]) -> tuple[Source, ...]:
    found: dict[str, Path] = {}
    for n, pattern in enumerate(patterns):
        matched = _matches(folder, pattern)
        if not matched:
            raise InputError(None, f"traces[{n}]", f"{quote(pattern)} matches no file", "traces, relative to this file")
        for path in matched:
            if not any(path.samefile(other) for other in found.values()):
                name = path.relative_to(folder) if path.is_relative_to(folder) else path
                found[name.as_posix()] = path
    stems = [path.name.removesuffix(".gz").removesuffix(".json") for path in found.values()]
    return tuple(
        Source(one_line(stem if stems.count(stem) == 1 else name), path)
        for stem, (name, path) in zip(stems, found.items(), strict=True)
    )


def _matches(folder: Path, pattern: str) -> list[Path]:
    path = folder / pattern
    try:
        if os.path.isfile(path):
            return [path]
        root = Path(path.anchor) if Path(pattern).is_absolute() else folder
        return sorted(found for found in root.glob(str(path.relative_to(root))) if found.is_file())
    except (ValueError, OSError, IndexError):  # nothing that a file can be called
        return []


def _gpus(folder: Path, names: Sequence[str]) -> tuple[GPU, ...]:
    found = _once(_gpu(folder, name, f"gpus[{n}]") for n, name in enumerate(names))
    called = [gpu.name for gpu in found]
    for name in called:
        if called.count(name) > 1:
            raise InputError(None, "gpus", f"has two GPUs called {quote(name)}", "a name of its own for each")
    return found


def _gpu(folder: Path, name: str, place: str) -> GPU:
    if name in gpu_names():
        return load_gpu(name)
    path = folder / name
    if not os.path.isfile(path):
        problem = f"{quote(name)} is no GPU"
        raise InputError(None, place, problem, expected_one_of(gpu_names(), name, "or a file relative to this one"))
    return load_gpu(path)


def _choices(folder: Path, given: object, n: int, allowed: Sequence[Path]) -> Iterator[PolicyChoice]:
    """The policies of one entry, those of gpusim itself tried."""
    place = f"policies[{n}]"
    for label in [given] if isinstance(given, str) else _policy_texts(_table(given, place, "a text"), place):
        if label != one_line(label):
            raise InputError(None, place, f"is {quote(label)}", "text that can be printed on a line")
        file, rest = split_file(label)
        text = str((folder / file).resolve()) + rest if file else label
        try:
            code = code_of(text)
            if code is None:
                policy_from(text)
            else:
                _require_allowed(code, allowed)
            yield PolicyChoice(label, text, policy_source(text), code)
        except InputError as error:
            named = f"{place}: {error.place.removeprefix('policy ')}" if error.place.startswith("policy ") else place
            raise error.at(place=named) from None


def _require_allowed(code: OutsideCode, folders: Sequence[Path]) -> None:
    """Refuse code that is neither installed nor below an allowed folder."""
    if code.offered or any(code.file.is_relative_to(folder) for folder in folders):
        return
    if not code.module or _of_current_folder(code.module):
        problem = f"{code} is neither beside the experiment nor installed"
        raise InputError(None, "", problem, "such a policy, or its folder as --code-from (in Python code_from)")


def _of_current_folder(module: str) -> bool:
    """Whether a module is found only through the current folder."""
    spec = module_spec(module.partition(".")[0])
    assert spec is not None  # its file was found
    found = spec.submodule_search_locations or [str(spec.origin)]
    return any(Path(path).absolute().parent.resolve() == Path.cwd().resolve() for path in found)


def _policy_texts(table: Mapping[str, Sequence[Scalar]], place: str) -> Iterator[str]:
    (name, *others) = table.get("name", [None])
    if not isinstance(name, str) or others:
        problem = "is not one text" if "name" in table else "missing"
        raise InputError(None, f"{place}.name", problem, "the name of a policy")
    for chosen in _combinations({key: values for key, values in table.items() if key != "name"}, place):
        typed = {key: str(value).lower() if isinstance(value, bool) else value for key, value in chosen.items()}
        yield name + ":" * bool(typed) + ",".join(f"{key}={value}" for key, value in typed.items())


def _changes(given: object, n: int) -> Iterator[dict[str, Any]]:
    place = f"parameters[{n}]"
    table = _table(given, place)
    any_gpu = load_gpu(gpu_names()[0])  # for whether a value is one at all
    for name, values in table.items():
        for value in values:
            with faults_of(place=f"{place}.{name}"):
                amount(any_gpu, name, value)
    yield from _combinations(table, place)


def _table(given: object, place: str, other: str = "") -> dict[str, Sequence[Scalar]]:
    """A table with a value or a list of values under each key, all as lists."""
    if not isinstance(given, dict):
        raise InputError(None, place, f"is {quote(given)}", f"{other} or a table".removeprefix(" or "))
    table: dict[str, Sequence[Scalar]] = {}
    for key, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, Scalar) for one in values):
            raise InputError(None, f"{place}.{key}", f"is {quote(value)}", "a value, or a list of some")
        table[key] = values
    return table


def _combinations(table: Mapping[str, Sequence[Scalar]], place: str) -> Iterator[dict[str, Scalar]]:
    count = prod(len(values) for values in table.values())
    if count > MAX_COMBINATIONS:
        raise InputError(None, place, f"makes {count} combinations", f"at most {MAX_COMBINATIONS}")
    for chosen in product(*table.values()):
        yield dict(zip(table, chosen, strict=True))


def _once(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(items))
