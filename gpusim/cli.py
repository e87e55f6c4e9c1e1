"""The command line: `gpusim COMMAND …`. Exit status: 0 done, 2 bad usage or bad input, 1 a defect of ours.

A command is a module with `add_arguments(parser)` and `run(args)`, which returns a status other than 0, and a line in
`COMMANDS`. Only the module of the command that is called is imported, and such modules import what is heavy in their
functions, so that help comes at once.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, TextIO

from gpusim import __version__
from gpusim.common.errors import InputError, closest

DESCRIPTION = "Replay recorded GPU kernel traces under policies that partition one GPU between convolutions."
INTERRUPTED = 130  # as a shell reports a process that Ctrl-C ended
COLLECT_AFTER = 200_000  # objects, not 700: looking for cycles, of which replays make few, took a tenth of their time


class Command(NamedTuple):
    """One command: its name, the module that does it, and what it does in a few words."""

    name: str
    module: str
    summary: str


COMMANDS = (
    Command("replay", "gpusim.commands.replay", "replay a trace under policies and compare them"),
    Command("report", "gpusim.commands.report", "a page that compares policies, to open in a browser"),
    Command(
        "occupancy", "gpusim.commands.occupancy", "how many blocks of a kernel fit on one SM, and what stops the next"
    ),
    Command("gpus", "gpusim.commands.gpus", "the GPUs that ship, and what is known of them; or one of them in full"),
    Command("policies", "gpusim.commands.policies", "the policies, each in a sentence, or one of them in full"),
    Command("schema", "gpusim.commands.schema", "JSON Schema of a trace or of a GPU file"),
    Command("validate", "gpusim.commands.validate", "predict what a real GPU did, and print the error"),
    Command("import", "gpusim.commands.import_", "make a trace of a profile: ncu, PyTorch, nsys, nvprof"),
    Command("trace", "gpusim.commands.trace", "what is in a trace; select, merge, convert and check traces"),
    Command("select", "gpusim.commands.select", "choose algorithms, streams and SMs within a limit of memory"),
    Command("advise", "gpusim.commands.advise", "how programs should share a GPU, and what to set for it"),
    Command("explain", "gpusim.commands.explain", "what overlapping cost each kernel, and by which contention"),
    Command("pairs", "gpusim.commands.pairs", "convolutions and algorithms that complement one another"),
    Command("record", "gpusim.commands.record", "measure a GPU on this machine"),
    Command("parallel", "gpusim.commands.parallel", "what training a network on many GPUs costs, by strategy"),
    Command("sweep", "gpusim.commands.sweep", "replay every point of an experiment into one table"),
    Command("plot", "gpusim.commands.plot", "draw a trace, its replays, or measurements beside predictions"),
    Command("bench", "gpusim.commands.bench", "how fast replays are on this machine"),
    Command("completion", "gpusim.commands.completion", "a script that completes commands in bash, zsh or fish"),
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but a command itself complains of what it does not know, and says what may be meant."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            close = closest(unknown[0], [option for action in self._actions for option in action.option_strings])
            hint = f"; did you mean {close}?" if close and unknown[0].startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage error and exit with status 2."""
        _tell(InputError(None, self.prog, f"{message} (see `{self.prog} --help`)"))
        sys.exit(2)


def build_parser(*chosen: str | None) -> Parser:
    """The parser of all commands; only those of ``chosen`` know their arguments."""
    parser = Parser(prog="gpusim", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"gpusim {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.summary, description=_sentence(command.summary), allow_abbrev=False
        )
        if command.name in chosen:
            module = import_module(command.module)
            module.add_arguments(sub)
            sub.set_defaults(run=module.run, whole_parser=_whole_parser)
    return parser


def _whole_parser() -> Parser:
    return build_parser(*(command.name for command in COMMANDS))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status.

    Args:
        argv: arguments after the program's name; those of this process when None.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    gc.set_threshold(COLLECT_AFTER)
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
    """Prints what is wrong on standard error; where that cannot be written, the exit status has to do."""
    try:
        print(error, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Discards what is buffered for a stream, so that the exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _forgive_encoding() -> None:
    """Where the terminal's encoding lacks a character, print a question mark instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."
