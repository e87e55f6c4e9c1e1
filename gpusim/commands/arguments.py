"""Types of command-line arguments. Each refuses a wrong value with one clear line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, TypeVar

import gpusim
from gpusim.common.errors import InputError, faults_of, quote
from gpusim.common.files import read_text, require_output
from gpusim.common.numbers import MICROSECONDS, finite_number, whole_number
from gpusim.common.tables import counted
from gpusim.results.style import COLUMN, PAGE, Style, picture_format, styled

T = TypeVar("T")
DETAILS = ("saved", "streams", "kernels", "programs")  # tables that `gpusim replay` prints where asked for
REQUESTS = 100  # of a program for which --arrivals gives a rate: enough for the 99th percentile of their latencies


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number of at least ``least`` and, where there is a limit, at most ``most``: `type` of an argument."""

    def read(text: str) -> int:
        try:
            value = whole_number(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            limit = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"is {quote(text)}; expected a whole number {limit}")
        return value

    return read


def gpu_from(name_or_path: str, option: str = "--gpu") -> gpusim.GPU:
    """The GPU that an option names."""
    try:
        return gpusim.load_gpu(name_or_path)
    except InputError as error:
        if error.path is not None:
            raise
        from gpusim.io.products import instead_of

        raise InputError(None, option, error.problem, instead_of(name_or_path)) from None


def read_trace(path: str) -> gpusim.Trace:
    """The trace of a file; of a profile the error says how to import it."""
    try:
        return gpusim.load_trace(path)
    except InputError as error:
        from gpusim.io.importing import no_trace

        raise no_trace(path, error) from None


def _read_profile(recorded_on: gpusim.GPU | None, remarks: list[str], path: str) -> gpusim.Trace:
    """The trace of a file, or of a profile, which is imported; what the import decided is added to the remarks."""
    try:
        return read_trace(path)
    except InputError:
        from gpusim.io.importing import profile_format

        kind = profile_format(path)
        if kind is None:
            raise
    with as_options(gpu="--recorded-on"):  # --gpu is of the replay
        imported = gpusim.import_profile(path, kind, recorded_on)
    remarks += [f"{path}: {remark}" for remark in imported.remarks]
    return imported.trace


def parts_of(trace: gpusim.Trace) -> tuple[str, str, str]:
    """How many streams, operations and kernels a trace has."""
    operations = sum(len(stream.operations) for stream in trace.streams)
    streams = counted(len(trace.streams), "stream")
    return streams, counted(operations, "operation"), counted(trace.kernel_count(), "kernel")


def trace_from(paths: Sequence[str], read: Callable[[str], gpusim.Trace] = read_trace) -> gpusim.Trace:
    """The trace of a file, or those of several side by side, each a program named after its file.

    All have to be recorded on one GPU.
    """
    from gpusim.trace.edit import merge
    from gpusim.trace.programs import name_of_file

    traces = [read(path) for path in paths]
    names = [name_of_file(path) for path in paths]
    with told_with(paths):
        return traces[0] if len(traces) == 1 else merge(traces, names)


def gpu_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the GPU, the GPU of the recording, and the cache."""
    parser.add_argument(
        "--gpu", metavar="NAME|PATH", help="a GPU of `gpusim gpus`, or a GPU file; default: the GPU of the recording"
    )
    parser.add_argument(
        "--recorded-on", metavar="NAME|PATH", help="the GPU of the recording, if the trace names one that does not ship"
    )
    what_if_argument(parser)
    parser.add_argument("--no-cache", action="store_true", help="fit and replay all again, and keep nothing for later")


def what_if_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--what-if``."""
    parser.add_argument(
        "--what-if",
        action="append",
        type=_change,
        metavar="KEY=VALUE|KEY=x2",
        help="change a number of the GPU: to a value, by a factor, or to that of a GPU that ships, as sm_count=x2; "
        "repeatable",
    )


def _change(text: str) -> tuple[str, str]:
    """A number of a GPU, and how it changes: `type` of an argument."""
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"is {quote(text)}; expected KEY=VALUE, such as sm_count=x2")
    return key, value


def changed(gpu: gpusim.GPU, changes: Sequence[tuple[str, str]] | None) -> gpusim.GPU:
    """The GPU with the changes that ``--what-if`` gives."""
    values: dict[str, float | str] = {}
    for key, text in changes or ():
        if key in values:
            raise InputError(None, "--what-if", f"changes {key} twice", "each number once")
        try:
            number = finite_number(text)
            values[key] = int(number) if number.is_integer() else number
        except ValueError:
            values[key] = text
    try:
        return gpusim.what_if(gpu, values) if values else gpu
    except InputError as error:
        raise error.at(place=f"--what-if: {error.place}") from None


@contextmanager
def trace_and_session(
    args: argparse.Namespace, paths: Sequence[str], seed: int = 0, profiles: bool = False
) -> Iterator[tuple[gpusim.Trace, gpusim.Session]]:
    """Give the trace of some files, as `trace_from`, and a session to replay it in, of arguments with `gpu_arguments`.

    With ``profiles`` a file may be a profile, which is imported. What imports decided is told on stderr at the end,
    where nothing failed: a failure is one line. Errors of the trace that are found meanwhile name its files.
    """
    from gpusim.hardware.gpu import load_shipped_gpu

    remarks: list[str] = []
    recorded_on = None if args.recorded_on is None else gpu_from(args.recorded_on, "--recorded-on")
    trace = trace_from(paths, partial(_read_profile, recorded_on, remarks) if profiles else read_trace)
    with told_with(paths):
        gpu = gpu_from(args.gpu) if args.gpu is not None else recorded_on or load_shipped_gpu(trace.device)
        if args.what_if and gpu.name == trace.device:  # the changed one has a name of its own
            recorded_on = recorded_on or gpu
        yield trace, gpusim.Session(changed(gpu, args.what_if), recorded_on, seed, cache=not args.no_cache)
    for remark in remarks:
        print(remark, file=sys.stderr)


@contextmanager
def as_options(**named: str) -> Iterator[None]:
    """Call arguments of Python by the options of a command, as ``targets="--slo"``, in errors that the block raises."""
    try:
        yield
    except InputError as error:
        if error.place in named:
            raise error.at(place=named[error.place]) from None
        raise


@contextmanager
def told_with(paths: Sequence[str]) -> Iterator[None]:
    """Name the files of a trace in errors that are raised in the block."""
    try:
        yield
    except InputError as error:
        of_trace = error.place.startswith(("streams[", "programs[", "device", "trace"))
        if error.path is None and of_trace:
            raise error.at(" + ".join(paths)) from None
        raise


def given(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return those of some options that were given, as they were written; 0 counts as not given."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(args, name)]


def of_program(expected: str, read: Callable[[str], T]) -> Callable[[str], tuple[str, T]]:
    """A value for a program, as PROGRAM=VALUE: `type` of an argument; messages call the value ``expected``."""

    def pair(text: str) -> tuple[str, T]:
        name, equals, value = text.rpartition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"is {quote(text)}; expected PROGRAM={expected}")
        try:
            return name, read(value)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(f"is {quote(text)}; expected PROGRAM={expected}") from None
        except InputError as error:  # is a ValueError, whose text argparse leaves out
            raise argparse.ArgumentTypeError(str(error)) from None

    return pair


@dataclass(frozen=True)
class Arriving:
    """When requests of a program arrive, and the argument that says so."""

    text: str
    requests: gpusim.PoissonArrivals | gpusim.TimesArrivals


ARRIVALS = "every:TIME (in us, or such as 5ms), poisson:PER_S, or a FILE.csv of times"
_TIME_COLUMNS = {"time_us": 1.0, "us": 1.0, "time_ms": 1e3, "ms": 1e3, "time_s": 1e6, "s": 1e6}


def target_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--slo``."""
    parser.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar="PROGRAM=x1.2|PROGRAM=5ms",
        help="a target of a program: its largest slowdown over its isolated run, or the longest time of a pass; with "
        "--arrivals the time is the 95th percentile of its requests, and the slowdown their mean (advise only); replay "
        "runs each program once, advise lets it restart; repeatable",
    )


def arrivals_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--arrivals``."""
    parser.add_argument(
        "--arrivals",
        action="append",
        type=of_program(ARRIVALS, arrivals),
        metavar="PROGRAM=every:TIME|poisson:PER_S|FILE.csv",
        help=f"requests of a program: {REQUESTS} of them, one every TIME (in us, or such as 5ms), or PER_S per second "
        "at random; or one at each time of a file: one time per line, us, or a column time_us, time_ms or time_s; "
        "repeatable",
    )


def arrivals(text: str) -> Arriving:
    """When requests arrive: `type` of an argument."""
    kind, colon, value = text.partition(":")
    if colon and kind == "poisson":
        return Arriving(text, gpusim.PoissonArrivals(rate_per_s=positive(value), count=REQUESTS, seed=0))
    if colon and kind == "every":
        number = re.fullmatch(r"(.*?)(us|ms|s)?", value.strip())
        assert number is not None
        interval_us = positive(number[1]) * MICROSECONDS[number[2] or "us"]
        return Arriving(text, gpusim.TimesArrivals(times_us=tuple(interval_us * n for n in range(REQUESTS))))
    if text.lower().endswith(".csv"):
        return Arriving(text, _times(Path(text)))
    raise argparse.ArgumentTypeError("is none of them")


def _times(path: Path) -> gpusim.TimesArrivals:
    """Requests at the times of a file: its only column, or the column with the name of a time."""
    import csv

    reader = csv.reader(read_text(path).splitlines())
    rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    if not rows:
        raise InputError(path, "", "holds no times", "one on each line, us")
    names = [cell.strip().lower() for cell in rows[0][1]]
    columns = [n for n, name in enumerate(names) if name in _TIME_COLUMNS]
    if len(columns) > 1:
        given = " and ".join(names[n] for n in columns)
        raise InputError(path, f"line {rows[0][0]}", f"has {given}", "one column of times")
    column = columns[0] if columns else None
    scale = 1.0 if column is None else _TIME_COLUMNS[names[column]]
    found: list[float] = []
    for n, row in rows[column is not None :]:
        if column is None and (cells := sum(bool(cell.strip()) for cell in row)) > 1:
            expected = "one time on each line, us, or a first line with time_us, time_ms or time_s"
            raise InputError(path, f"line {n}", f"has {cells} values", expected)
        cell = row[column or 0].strip() if len(row) > (column or 0) else ""
        try:
            at = finite_number(cell) * scale
        except ValueError:
            expected = (
                "a time, us" if column is not None else "a time, us, or a first line with time_us, time_ms or time_s"
            )
            raise InputError(path, f"line {n}", f"is {quote(cell)}", expected) from None
        if at < (found[-1] if found else 0.0):
            before = f"{found[-1] / scale:g}" if found else "0"
            raise InputError(path, f"line {n}", f"is {cell}, before {before}", "times from 0 that ascend")
        found.append(at)
    with faults_of(path):
        return gpusim.TimesArrivals(times_us=tuple(found))


def with_settings(trace: gpusim.Trace, args: argparse.Namespace) -> gpusim.Trace:
    """The trace with the priorities and arrivals of its programs that arguments give."""
    from gpusim.trace.edit import with_settings_of

    if args.arrivals and args.restart:
        raise InputError(None, "--arrivals", "is given with --restart", "one of them")
    for setting, given in (("priority", args.priority), ("arrivals", args.arrivals)):
        values: dict[str, Any] = dict(given or ())
        if len(values) < len(given or ()):
            raise InputError(None, f"--{setting}", "names a program twice", "each program once")
        if setting == "arrivals":
            for seed, name in enumerate(sorted(values)):  # random ones with a seed of their own, so that times differ
                requests = values[name].requests
                values[name] = requests.model_copy(update={"seed": seed} if requests.kind == "poisson" else {})
        settings = {name: {setting: value} for name, value in values.items()}
        if settings:
            trace = with_settings_of(trace, settings, f"--{setting}")
    return trace


def positive(text: str) -> float:
    """A finite number above 0, as the `type` of an argument."""
    return _number(text, lambda value: value > 0.0, "a number above 0")


def share(text: str) -> float:
    """A share of something, above 0 and at most 1, as the `type` of an argument."""
    return _number(text, lambda value: 0.0 < value <= 1.0, "a share, above 0 and at most 1")


def inches(text: str) -> float:
    """A width from 2 to 20 inches, as the `type` of an argument."""
    return _number(text, lambda value: 2.0 <= value <= 20.0, "2in to 20in", unit="in")


def _number(text: str, holds: Callable[[float], bool], expected: str, unit: str = "") -> float:
    try:
        value = finite_number(text.removesuffix(unit))
    except ValueError:
        value = nan
    if not holds(value):
        raise argparse.ArgumentTypeError(f"is {quote(text)}; expected {expected}")
    return value


SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
LEAST_MEMORY = 2**20  # bytes that somebody means who writes a number of bytes of memory without a unit


def byte_size(text: str) -> int:
    """Bytes from text such as ``8602`` or ``8KiB``, as the `type` of an argument."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", text.strip())
    unit = SIZES.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise argparse.ArgumentTypeError(f"is {quote(text)}; expected bytes, 0 or more, such as 512MiB, 1.5GB or 0")
    return int(float(found[1]) * unit)


def memory_size(text: str) -> int:
    """As `byte_size`, but a small number needs its unit, because most of these sizes are MiB."""
    size = byte_size(text)
    if 0 < size < LEAST_MEMORY and not text.rstrip()[-1].isalpha():
        given = text.strip()
        raise argparse.ArgumentTypeError(f"is {quote(text)} without a unit; expected {given}MiB, or {given}B for bytes")
    return size


def require_picture(path: Path | None, sources: Iterable[str | Path]) -> None:
    """Check, before anything is computed, that a picture, if asked for, can be written over no file that is read."""
    if path is not None:
        picture_format(path)
        require_output(path, sources)


def picture_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for width, style and title of a picture; `drawn_as` reads them."""
    parser.add_argument(
        "--width",
        type=inches,
        metavar="INCHES",
        help="width of the picture: 3.35in (one column, the default), 7in (a page) or another",
    )
    parser.add_argument(
        "--style",
        choices=("paper", "screen"),
        default="paper",
        help="paper (default): text of 8 points, 3.35 inches wide; screen: text of 10 points, 7 inches wide",
    )
    parser.add_argument("--no-title", action="store_true", help="leave the title to the caption")


def drawn_as(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Draw the pictures of the block as the arguments of `picture_arguments` say."""
    usual = COLUMN if args.style == "paper" else PAGE
    return styled(Style(args.width or usual, args.style, not args.no_title))


def details(text: str) -> tuple[str, ...]:
    """The tables to print after the first: `type` of an argument."""
    known = {name: (name,) for name in DETAILS} | {"gains": ("saved",), "all": DETAILS}
    names = text.split(",")
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        expected = f"some of {', '.join(DETAILS)}, separated by commas, or all"
        raise argparse.ArgumentTypeError(f"has {quote(wrong)}; expected {expected}")
    return tuple(table for name in names for table in known[name])


def json_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")
