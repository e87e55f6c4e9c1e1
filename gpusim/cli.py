"""The command line: `gpusim COMMAND …`. Exit status: 0 done, 2 bad usage or bad input, 1 a defect of ours.

A command is a module with `add_arguments(parser)` and `run(args)`, which returns a status other than 0, and a line in
`GROUPS`. Only the module of the called command is imported. It imports heavy modules inside its functions, so that help
comes at once.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from keyword import kwlist
from typing import Any, NamedTuple, NoReturn, TextIO

from gpusim import __version__
from gpusim.common.errors import InputError, closest, expected_one_of
from gpusim.common.garbage import collect_seldom

DESCRIPTION = "Replay recorded GPU kernels under policies that share one GPU between programs."
INTERRUPTED = 130  # as a shell reports a process that Ctrl-C ended


class Command(NamedTuple):
    """One command: its name, what it does in a few words, and an example of its arguments."""

    name: str
    summary: str
    example: str

    @property
    def module(self) -> str:
        """The module that does it."""
        return f"gpusim.commands.{self.name}{'_' * (self.name in kwlist)}"


GROUPS = {
    "simulate": (
        Command("replay", "compare policies that share one GPU between programs", "sample:inception_3a"),
        Command("report", "the comparison as a page for a browser", "sample:inception_3a -o report.html"),
        Command("plot", "draw a trace, its replays, or measurements", "gantt sample:inception_3a -o gantt.png"),
        Command("policies", "list the policies, or print one in full", "warped-slicer"),
        Command("gpus", "list the GPUs, or print one in full", "h200"),
        Command("occupancy", "blocks of a kernel that fit on one SM", "--gpu h200 --threads 256 --registers 80"),
    ),
    "profiles": (
        Command("import", "make a trace of a profile of PyTorch, JAX, nsys or ncu", "profile.json -o trace.json.gz"),
        Command("trace", "show, select, merge, convert, check or start traces", "show sample:inception_3a"),
        Command(
            "record", "record kernels and co-runs on the GPU of this machine", "googlenet --batch 16 --out recording"
        ),
        Command("schema", "print the JSON Schema of a trace or a GPU file", "trace"),
    ),
    "choose": (
        Command(
            "advise", "how programs should share a GPU, and what to set", "sample:inception_3a sample:googlenet_forward"
        ),
        Command("explain", "what overlapping cost each kernel, and by which contention", "sample:inception_3a"),
        Command("select", "choose algorithms, streams and SMs within a memory limit", "sample:inception_3a"),
        Command("pairs", "find convolutions that complement each other", "sample:inception_3a"),
    ),
    "study": (
        Command("sweep", "replay every point of an experiment into one table", "experiments/sensitivity.toml"),
        Command("parallel", "predict training on many GPUs, by strategy", "resnet50 --ranks 16"),
    ),
    "measure": (
        Command("validate", "predict what a real GPU did, and print the error", "experiments/h200_validation/data"),
        Command("score", "score predictions of co-runs on the measured datasets", "--template predictions.csv"),
        Command("bench", "time replays on this machine", "--only grid"),
        Command("completion", "print a script that completes commands in a shell", "bash"),
    ),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but each command refuses unknown arguments itself, and suggests the option that was meant."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            close = closest(unknown[0], [option for action in self._actions for option in action.option_strings])
            hint = f"; did you mean {close}?" if close and unknown[0].startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Parse as argparse does, but refuse an empty argument: as a path it would mean the current folder."""
        if action.nargs != argparse.PARSER and "" in arg_strings:
            raise argparse.ArgumentError(action, "is empty; expected a value")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse's, but suggest the choice that was meant."""
        if action.choices is not None and value not in action.choices:
            expected = expected_one_of(map(str, action.choices), value)
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; expected {expected}")

    def error(self, message: str) -> NoReturn:
        """Print the usage error and exit with status 2."""
        _tell(InputError(None, self.prog, f"{message} (see `{self.prog} --help`)"))
        sys.exit(2)


class TopParser(Parser):
    """The parser of all commands, whose help lists them in groups."""

    def format_help(self) -> str:
        """Return the help: a line and an example for each command."""
        width = max(len(command.name) for command in COMMANDS)
        lines = [self.format_usage(), DESCRIPTION]
        for title, commands in GROUPS.items():
            lines.append(f"\n{title}:")
            for command in commands:
                lines.append(f"    {command.name:<{width}}  {command.summary}")
                lines.append(f"    {'':<{width}}    gpusim {command.name} {command.example}")
        lines.append("\nSamples: sample:inception_3a and others; traces of your own: gpusim import.")
        lines.append("experiments/ is a folder of the source tree.")
        return "\n".join([*lines, "Options of a command: gpusim COMMAND --help. Version: gpusim --version.", ""])


def build_parser(*chosen: str | None) -> Parser:
    """The argument parser. Only the commands in ``chosen`` get their arguments, so that the program starts fast."""
    parser = TopParser(prog="gpusim", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"gpusim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for command in COMMANDS:
        summary = f"{command.summary[0].upper()}{command.summary[1:]}."
        example = f"Example: gpusim {command.name} {command.example}"
        sub = commands.add_parser(
            command.name, help=command.summary, description=summary, epilog=example, allow_abbrev=False
        )
        if command.name in chosen:
            module = import_module(command.module)
            module.add_arguments(sub)
            whole_parser = partial(build_parser, *(command.name for command in COMMANDS))
            sub.set_defaults(run=module.run, whole_parser=whole_parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status; without ``argv`` that of this process."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    collect_seldom()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looks for them in every installed package
    _forgive_encoding()
    try:
        chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
        program: list[str] = []
        if chosen == "record" and "--" in arguments:  # a program of one's own follows
            at = arguments.index("--")
            arguments, program = arguments[:at], arguments[at + 1 :]
        args = build_parser(chosen).parse_args(arguments)
        if program:
            args.program = program
        status: int = args.run(args) or 0
        sys.stdout.flush()
        if argv is None:
            gc.freeze()  # the process ends, and its memory with it: looking for cycles in that once more takes 50 ms
        return status
    except InputError as error:
        _tell(error)
        return 2
    except BrokenPipeError:  # the reader of our output has closed it
        _drop(sys.stdout)
        return 0
    except OSError as error:
        if error.filename is not None:  # a file that nobody vouched for is a defect of ours
            raise
        _drop(sys.stdout)
        reason = error.strerror or str(error)
        _tell(InputError(None, "standard output", f"cannot be written ({reason})", "room for it"))
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _tell(error: InputError) -> None:
    """Print an error on standard error. Where that cannot be written, only the exit status tells."""
    try:
        print(error, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Discard the buffer of a stream, so that the exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _forgive_encoding() -> None:
    """Print nothing to a closed stream, and a question mark for a character that its encoding lacks."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
