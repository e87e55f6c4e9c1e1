"""Records convolutions for micro-batches, on this machine's GPU: `python experiments/micro_batches/record.py FOLDER`.

GoogLeNet's inception 3a and 4a, forward, at batch 128 and at micro-batches of 8 to 64: every algorithm of cuDNN is
timed; profiled are all at batch 128, and of the micro-batches those that none beats in both time and workspace. Then
whole batches are timed that are done in micro-batches (chains.cu). What FOLDER has is not recorded again. Needs what
`gpusim record` needs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from gpusim.common.files import write_text
from gpusim.lab.record.calls import ALGORITHMS, MATHS, Call
from gpusim.lab.record.program import LEAST_CAPABILITY, BuiltProgram
from gpusim.lab.record.recording import Recording
from gpusim.lab.record.toolchain import build, run
from gpusim.training.networks.steps import CONVOLUTION, CallWork, forward
from gpusim.training.networks.zoo import network

HERE = Path(__file__).parent
BATCH = 128
SIZES = (64, 32, 16, 8)
MODULES = ("3a", "4a")
GRADIENTS = ("3a.3x3", "3a.5x5")  # whose gradient of the filter is timed, too
MIXED = (64, 32, 16, 16)
NEAR = 1.05  # an algorithm is profiled unless one with no more workspace is faster by more than this


def works(module: str) -> Iterator[tuple[str, CallWork]]:
    """The convolutions of a module at the whole batch, by layer."""
    for step in forward(network("googlenet"), BATCH):
        if step.work.kind == CONVOLUTION and step.layer.startswith(f"{module}."):
            yield step.layer, step.work
            if step.layer in GRADIENTS:
                yield step.layer, replace(step.work, direction="bwd_filter")


def calls_of(layer: str, work: CallWork, batch: int) -> list[Call]:
    """Every algorithm of a convolution at a batch size."""
    name, sized = f"googlenet_b{batch}", replace(work, batch=batch)
    return [Call(name, layer, sized, algorithm, math) for algorithm in ALGORITHMS[work.direction] for math in MATHS]


def front(recording: Recording, calls: Sequence[Call]) -> list[Call]:
    """Of the supported calls of one work those that no other beats in both time and workspace."""
    found, best_ms = list[Call](), float("inf")
    ranked = [call for group in recording.ranked(calls) for call in group]
    for _, same in groupby(sorted(ranked, key=lambda c: _workspace(recording, c)), lambda c: _workspace(recording, c)):
        group = list(same)
        best_ms = min(best_ms, *(_ms(recording, call) for call in group))
        found += [call for call in group if _ms(recording, call) <= NEAR * best_ms]
    return found


def _workspace(recording: Recording, call: Call) -> int:
    return int(recording.timing(call)["workspace_bytes"])


def _ms(recording: Recording, call: Call) -> float:
    return float(recording.timing(call)["ms_cold"])


def chains(recording: Recording) -> Iterator[tuple[str, list[Call]]]:
    """Batches in micro-batches to time: of each size the fastest algorithm of either arithmetic, and a mixed one."""
    for module in MODULES:
        for layer, work in works(module):
            fastest: dict[tuple[int, str], Call] = {}
            for size in (BATCH, *SIZES):
                for group in recording.ranked(calls_of(layer, work, size)):
                    for call in group[::-1]:
                        fastest[size, call.math] = fastest[size, "any"] = call
            for (size, math), call in fastest.items():
                if math != "any":
                    parts = f"{BATCH // size}x{size}:{call.algorithm}/{math}"
                    yield f"{layer}/{work.direction}/{parts}", [call] * (BATCH // size)
            mixed = [fastest[size, "any"] for size in MIXED]
            yield f"{layer}/{work.direction}/mixed", mixed


def time_chains(recording: Recording, calls: Sequence[Call], scratch: Path) -> None:
    """Writes chains.csv."""
    program, listed, wanted = scratch / "chains", scratch / "calls.txt", scratch / "chains.txt"
    build(HERE / "chains.cu", program, LEAST_CAPABILITY, "cudnn", "cuda")
    listed.write_text("".join(f"{call.line}\n" for call in calls), encoding="utf-8")
    found = list(chains(recording))
    wanted.write_text("".join(f"{name} {' '.join(part.op for part in parts)}\n" for name, parts in found), "utf-8")
    write_text(recording.folder / "chains.csv", run([str(program), str(listed), str(wanted)], "chains"))
    write_text(recording.folder / "chains.txt", wanted.read_text("utf-8"))


def main(folder: Path) -> None:
    """Records."""
    every = {
        (module, size): [calls_of(layer, work, size) for layer, work in works(module)]
        for module in MODULES
        for size in (BATCH, *SIZES)
    }
    calls = [call for found in every.values() for group in found for call in group]
    with tempfile.TemporaryDirectory() as scratch:
        recording, program = Recording(folder), BuiltProgram(Path(scratch))
        recording.describe({"what": "micro-batches", "device": program.device()})
        for call, measured in program.time(recording.untimed(calls)):
            recording.add_timing(call, measured)
        recording.write_calls()
        time_chains(recording, calls, Path(scratch))
        for module in MODULES:
            parts = [call for size in SIZES for group in every[module, size] for call in front(recording, group)]
            whole = [call for group in every[module, BATCH] for call in group]
            whole = [call for group in recording.ranked(whole) for call in group]
            wanted = [call for call in (*parts, *whole) if call.work.direction == "fwd"]
            for rows in program.profile(recording.unprofiled(wanted)):
                recording.add_kernels(rows)
                recording.write_calls()
        recording.write_calls()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
