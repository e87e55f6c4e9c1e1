"""`gpusim completion`: a script that completes commands, options, policies, GPUs and files in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

SHELLS = ("bash", "zsh", "fish")
GPU, POLICY = "NAME|PATH", "NAME[:key=value,…]"  # what stands for them in help
FILES = ("TRACE", "FILE", "FILE.csv", "EXPERIMENT.toml", "SOURCE", "WHAT", "NAME|FILE")
FOLDERS = ("DIR", "FOLDER", "DATASET")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> None:
    """Print the script for the parser of all commands, which ``args.whole_parser`` makes."""
    print(script(args.shell, args.whole_parser))


def script(shell: str, whole_parser: Callable[[], argparse.ArgumentParser]) -> str:
    """Return the script for a shell. The parser that is given can no longer parse after that."""
    import shtab

    from gpusim.hardware.gpu import gpu_names
    from gpusim.policies.registry import policies

    parser = whole_parser()
    for action in _actions(parser):
        if action.metavar == GPU:
            action.choices = gpu_names()
        elif action.metavar == POLICY:
            action.choices = tuple(policies())
        elif action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    text: str = shtab.complete(parser, shell=shell)
    return text


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
