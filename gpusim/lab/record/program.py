"""The program of `convolutions/`: built and run on this machine's GPU, its calls timed and profiled."""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import read_text
from gpusim.lab.record.calls import Call
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.recording import Row, kernel_rows
from gpusim.lab.record.toolchain import FROM_START, build, explain, listed, require_ncu, run, under_ncu

SOURCE = Path(__file__).parent / "convolutions" / "main.cu"
LEAST_CAPABILITY = 7.0  # for the waits at a gate
PROFILED_TOGETHER = 40  # calls of one run under ncu
CRASHES = 3  # of calls one after the other: taken for the machine's fault, and not theirs


class BuiltProgram:
    """The program, built when it is first needed, in a folder for it and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def path(self) -> Path:
        """The program itself."""
        program = self.folder / "convolutions"
        build(SOURCE, program, LEAST_CAPABILITY, "cudnn", "cuda")
        return program

    def device(self) -> dict[str, str]:
        """Return the names and versions of the GPU and its libraries."""
        lines = run([str(self.path), "device"], "the recorder").splitlines()
        return dict(line.split(" ", 1) for line in lines if " " in line)

    def time(self, calls: Sequence[Call]) -> Iterator[tuple[Call, Row]]:
        """Yield calls, timed one after the other, each with its printed output.

        One that ends the program is not supported, and the rest go on, unless the program ends again and again.
        """
        left, crashes = list(calls), 0
        while left:
            lines = self.lines("time", left)
            try:
                for row in csv.DictReader(lines):
                    yield left.pop(0), row
                    crashes = 0
                if left:
                    raise InputError(None, "the recorder", f"left out {left[0].op}", "a line for each call")
            except InputError as error:
                crashes += 1
                if not left or crashes == CRASHES or error.place == "GPU":
                    raise
                call = left.pop(0)
                yield call, {"op": call.op, "supported": "False", "why": error.problem}

    def lines(self, what: str, calls: Sequence[Call], *conditions: str) -> Iterator[str]:
        """Yield the lines that the program prints for some calls, under conditions where ``what`` takes any."""
        files = [self._calls_file(calls)]
        if conditions:
            files.append(listed(self.folder / f"{what}.txt", conditions))
        yield from self.printed(what, *files)

    def printed(self, what: str, *files: Path) -> Iterator[str]:
        """Yield the lines that the program prints as it runs; it reads files with calls and, for some, conditions."""
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
            subprocess.Popen(
                [str(self.path), what, *map(str, files)], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as program,
        ):
            assert program.stdout is not None
            yield from program.stdout
            status = program.wait()
            errors.seek(0)
            said = errors.read()
        if status:
            raise explain(said, status, "the recorder")
        sys.stderr.write(said)  # what the GPU or its libraries refuse

    def profile(self, calls: Sequence[Call]) -> Iterator[list[Row]]:
        """Profile calls with Nsight Compute, some at a time; return the rows of their kernels.

        A run that fails is tried again in halves; a call that fails alone is left out, with a word on standard error.
        """
        if calls:
            require_ncu()
        waiting = [calls[begin : begin + PROFILED_TOGETHER] for begin in range(0, len(calls), PROFILED_TOGETHER)][::-1]
        failures = 0
        while waiting:
            group = waiting.pop()
            try:
                rows = self._profiled(group)
            except InputError as error:
                half = len(group) // 2
                if half:
                    waiting += [group[half:], group[:half]]
                failures += not half
                if failures == CRASHES or error.place in ("GPU", "ncu"):
                    raise
                if not half:
                    print(f"{group[0].op}: not profiled ({error.problem})", file=sys.stderr)
            else:
                failures = 0
                yield rows

    def _profiled(self, calls: Sequence[Call]) -> list[Row]:
        streams = self.folder / "streams.csv"
        command = [str(self.path), "once", str(self._calls_file(calls)), str(streams)]
        log = under_ncu(command, self.folder / "ncu.csv", COUNTERS, *FROM_START)
        if "ERR_NVGPUCTRPERM" in log:
            raise explain(log, 1, "ncu")
        return kernel_rows(log, {row["stream"]: row["op"] for row in csv.DictReader(read_text(streams).splitlines())})

    def _calls_file(self, calls: Iterable[Call]) -> Path:
        return listed(self.folder / "calls.txt", (call.line for call in calls))
