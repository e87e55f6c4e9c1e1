"""`gpusim policies`: the policies by family, one line each; or one of them in full."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import gpusim
from gpusim.commands.arguments import json_flag
from gpusim.common.errors import one_line
from gpusim.common.tables import print_json, print_line, shortened

MOST_COLUMNS = 120
LINE = 80  # characters of a line in the list
FAMILIES = {
    "No partitioning": {
        "serial": "one kernel at a time, stream after stream",
        "leftover": "plain CUDA streams: blocks placed in order of arrival",
        "time-slicing": "processes share the whole GPU by time",
    },
    "SM split: each stream has SMs of its own": {
        "inter-sm": "even, by a rule, or as given",
        "green-context": "the sizes that CUDA green contexts have",
        "cd-search": "moves SMs from memory-bound to compute-bound kernels",
        "right-size": "the fewest SMs within a tolerance of each kernel's time",
        "latency-target": "the fewest SMs that hold a target; others the rest",
        "tpc-stealing": "idle TPCs are lent to other streams",
    },
    "Blocks of several kernels on one SM": {
        "even": "equal shares of every SM for all kernels",
        "quota": "at most so many blocks of each stream, as given",
        "smk": "blocks by dominant-resource fairness, partial preemption",
        "warped-slicer": "blocks that make the least relative progress largest",
        "maestro": "hill climbing over SM split and blocks per SM",
    },
    "What NVIDIA's software offers": {
        "mps": "each process limited to a percentage of the SMs",
        "mig": "an instance per process, with its SMs, L2 and DRAM",
        "tpc-mask": "each stream kept off masked TPCs (libsmctrl)",
    },
    "Which kernels may run together": {
        "interference-aware": "only kernels whose joint demand fits the GPU",
        "orion": "best-effort kernels beside latency-critical ones if unlike",
        "reef": "latency-critical kernels evict best-effort blocks",
    },
    "Oracles: the best of all divisions": {
        "oracle-inter-sm": "best static SM split",
        "oracle-intra-sm": "best static blocks of each stream per SM",
    },
}
SOURCE = re.compile(r" \(([^()]+)\)$")  # at the end of a summary
SHADOW = "(a shadow of "  # how the source of a policy begins that takes only its idea from a paper
SAMPLE = re.compile(r"\bas ([\w+:]*\d\w*)")  # in the description of a parameter: a value has a digit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy", nargs="?", metavar="NAME", help="print this one in full: parameters, source, validation, example"
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Print one line per policy, or one policy in full."""
    from gpusim.policies.registry import policies, policy_class, split_name

    if args.policy is not None:
        name, _ = split_name(args.policy)
        content = _whole(name, policy_class(name))
        if args.json:
            return print_json(content)
        _print_whole(content)
    elif args.json:
        print_json([_plain(name, policy) for name, policy in policies().items()])
    else:
        _print_families(policies())


def _print_families(known: Mapping[str, type[gpusim.Policy]]) -> None:
    """Print one line for each policy, by family; those of installed packages last."""
    shipped = {name for lines in FAMILIES.values() for name in lines}
    others = {name: SOURCE.sub("", policy.summary) for name, policy in known.items() if name not in shipped}
    shadows = {name for name, policy in known.items() if SHADOW in policy.summary}
    width = max(map(len, known))
    for title, lines in (FAMILIES | {"Others": others}).items():
        if lines:
            print_line(title)
            for name, line in lines.items():
                text = "* " * (name in shadows) + line
                print_line(f"  {name:<{width}}  {shortened(text, LINE - width - 4)}")
            print()
    print_line("* a shadow: only the idea is a paper's, the rule is ours")
    print_line("gpusim policies NAME: parameters, source, validation and an example.")


def _plain(name: str, policy: type[gpusim.Policy]) -> dict[str, Any]:
    from gpusim.policies.registry import parameters_of

    parameters = [asdict(parameter) for parameter in parameters_of(policy)]
    summary = getattr(policy, "summary", "")
    return {"name": name, "summary": summary, "validated_as": list(policy.validated_as), "parameters": parameters}


def _whole(name: str, policy: type[gpusim.Policy]) -> dict[str, Any]:
    """Return one policy in full, with the smallest and largest error (%) of each experiment, by GPU."""
    from gpusim.results.error_band import measured_errors

    plain = _plain(name, policy)
    source = SOURCE.search(plain["summary"])
    return plain | {
        "source": source[1] if source else None,
        "validated_as": {experiment: measured_errors(experiment) for experiment in policy.validated_as},
        "example": f"gpusim replay TRACE --policy {_example(name, plain['parameters'])}",
    }


def _example(name: str, parameters: list[dict[str, Any]]) -> str:
    """Return the policy with an example of a parameter: the first that shows a value or has a default."""
    for one in parameters:
        sample = SAMPLE.search(one["description"])
        value = sample[1] if sample else one["default"]
        if value:
            return f"{name}:{one['name']}={value}"
    return name


def _print_whole(content: dict[str, Any]) -> None:
    print_line(content["name"])
    print(_indented(SOURCE.sub("", content["summary"]), 4))
    print(_indented(f"source: {content['source'] or 'none given'}", 4))
    print(f"    parameters:{'' if content['parameters'] else ' none'}")
    for one in content["parameters"]:
        default = f", default {one['default']}" if one["default"] else ""
        about = f": {one['description']}" if one["description"] else ""
        print(_indented(f"{one['name']} ({one['kind']}{default}){about}", 8))
    for line in _validation(content["validated_as"]):
        print(_indented(line, 4))
    print(_indented(f"example: {content['example']}", 4))


def _validation(experiments: dict[str, dict[str, tuple[float, float]]]) -> list[str]:
    from gpusim.results.error_band import STALE, TITLES, span

    if not experiments:
        return ["not validated: it has no error band; docs/policies.md says what was measured"]
    lines = []
    for experiment, errors in experiments.items():
        found = [f"\N{PLUS-MINUS SIGN}{span(low, high)} % on {gpu}" for gpu, (low, high) in errors.items()]
        lines.append(f"model error as {TITLES[experiment]}: {', '.join(found) or STALE}")
    return lines


def _indented(text: str, columns: int) -> str:
    width = min(MOST_COLUMNS, shutil.get_terminal_size((MOST_COLUMNS, 24)).columns)
    return textwrap.fill(
        one_line(text),
        max(40, width),
        initial_indent=" " * columns,
        subsequent_indent=" " * columns,
        break_on_hyphens=False,
    )
