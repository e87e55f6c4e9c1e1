"""`gpusim policies`: the policies, each in a sentence, with their parameters."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import TYPE_CHECKING

from gpusim.commands.arguments import json_flag
from gpusim.errors import one_line

if TYPE_CHECKING:
    from gpusim.policies.base import Parameter

MOST_COLUMNS = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Prints every policy."""
    from dataclasses import asdict

    from gpusim.policies.registry import parameters_of, policies
    from gpusim.tables import print_json, print_line

    found = [(name, policy.summary, parameters_of(policy)) for name, policy in policies().items()]
    if args.json:
        print_json(
            [
                {"name": name, "summary": summary, "parameters": [asdict(parameter) for parameter in parameters]}
                for name, summary, parameters in found
            ]
        )
        return 0
    for name, summary, parameters in found:
        print_line(name)
        print(_indented(summary, 4))
        for parameter in parameters:
            print(_indented(_explained(parameter), 8))
    return 0


def _explained(parameter: Parameter) -> str:
    default = f", default {parameter.default}" if parameter.default else ""
    about = f": {parameter.description}" if parameter.description else ""
    return f"{parameter.name} ({parameter.kind}{default}){about}"


def _indented(text: str, columns: int) -> str:
    width = min(MOST_COLUMNS, shutil.get_terminal_size((MOST_COLUMNS, 24)).columns)
    return textwrap.fill(
        one_line(text),
        max(40, width),
        initial_indent=" " * columns,
        subsequent_indent=" " * columns,
        break_on_hyphens=False,
    )
