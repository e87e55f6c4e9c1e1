"""`gpusim policies`: the policies, each in a sentence, with their parameters; one of them in full."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from gpusim.commands.arguments import json_flag
from gpusim.common.errors import one_line

if TYPE_CHECKING:
    from gpusim.policies.interface import Policy

MOST_COLUMNS = 120
SOURCE = re.compile(r" \(([^()]+)\)$")  # at the end of a summary
SAMPLE = re.compile(r"\bas ([\w+:]*\d\w*)")  # in the description of a parameter: a value has a digit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "policy", nargs="?", metavar="NAME", help="this one in full: its source, what validated it, an example"
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Prints every policy, or all of one."""
    from gpusim.common.tables import print_json, print_line
    from gpusim.policies.registry import policies, policy_class, split_name

    if args.policy is not None:
        name, _ = split_name(args.policy)
        policy = policy_class(name)
        if args.json:
            print_json(_whole(name, policy))
        else:
            _print_whole(_whole(name, policy), policy)
        return
    if args.json:
        print_json([_plain(name, policy) for name, policy in policies().items()])
        return
    for name, policy in policies().items():
        print_line(name)
        print(_indented(policy.summary, 4))
        _print_parameters(policy)


def _plain(name: str, policy: type[Policy]) -> dict[str, Any]:
    from dataclasses import asdict

    from gpusim.policies.registry import parameters_of

    parameters = [asdict(parameter) for parameter in parameters_of(policy)]
    summary = getattr(policy, "summary", "")
    return {"name": name, "summary": summary, "validated_as": list(policy.validated_as), "parameters": parameters}


def _whole(name: str, policy: type[Policy]) -> dict[str, Any]:
    """All that is known of a policy: the errors are the least and most (%) of each experiment, by GPU."""
    from gpusim.results.error_band import measured_errors

    plain = _plain(name, policy)
    source = SOURCE.search(plain["summary"])
    return plain | {
        "source": source[1] if source else None,
        "refuted": policy.refuted or None,
        "validated_as": {experiment: measured_errors(experiment) for experiment in policy.validated_as},
        "example": f"gpusim replay TRACE --policy {_example(name, policy)}",
    }


def _example(name: str, policy: type[Policy]) -> str:
    """The policy with the first of its parameters whose description shows a value, or that has a default."""
    from gpusim.policies.registry import parameters_of

    for parameter in parameters_of(policy):
        sample = SAMPLE.search(parameter.description)
        value = sample[1] if sample else parameter.default
        if value:
            return f"{name}:{parameter.name}={value}"
    return name


def _print_whole(content: dict[str, Any], policy: type[Policy]) -> None:
    from gpusim.common.tables import print_line

    print_line(content["name"])
    print(_indented(SOURCE.sub("", content["summary"]), 4))
    print(_indented(f"source: {content['source'] or 'none given'}", 4))
    print(f"    parameters:{'' if content['parameters'] else ' none'}")
    _print_parameters(policy)
    measured = [f"measured, and not predicted: {policy.refuted}"] if policy.refuted else []
    for line in measured or _validation(content["validated_as"]):
        print(_indented(line, 4))
    print(_indented(f"example: {content['example']}", 4))


def _validation(experiments: dict[str, dict[str, tuple[float, float]]]) -> list[str]:
    from gpusim.results.error_band import SHARING, STALE, span

    if not experiments:
        return ["never validated: no experiment shared a GPU as it does"]
    lines = []
    for experiment, errors in experiments.items():
        found = [f"\N{PLUS-MINUS SIGN}{span(low, high)} % on {gpu}" for gpu, (low, high) in errors.items()]
        lines.append(f"validated as {experiment} ({SHARING[experiment]}): {', '.join(found) or STALE}")
    return lines


def _print_parameters(policy: type[Policy]) -> None:
    from gpusim.policies.registry import parameters_of

    for parameter in parameters_of(policy):
        default = f", default {parameter.default}" if parameter.default else ""
        about = f": {parameter.description}" if parameter.description else ""
        print(_indented(f"{parameter.name} ({parameter.kind}{default}){about}", 8))


def _indented(text: str, columns: int) -> str:
    width = min(MOST_COLUMNS, shutil.get_terminal_size((MOST_COLUMNS, 24)).columns)
    return textwrap.fill(
        one_line(text),
        max(40, width),
        initial_indent=" " * columns,
        subsequent_indent=" " * columns,
        break_on_hyphens=False,
    )
