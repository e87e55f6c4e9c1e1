"""Measure PyTorch callables, and make rows of their times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median_high
from tempfile import TemporaryDirectory

from gpusim.common.files import write_table
from gpusim.lab.record.ops_file import OpCall
from gpusim.lab.record.torch_gpu import Gpu, Queue, Side

STEP_SMS = 8  # green contexts come in such steps on today's GPUs
MOST_LAUNCHES = 1000  # behind a flag, of one stream: a GPU's queue held 1,200, and 2,325 hung
OF_SMS = 132  # what numbers of SMs in the recorders are parts of
PAIR_COLUMNS = ("a", "na", "b", "nb", "mode", "sms_a", "sms_b", "ms_a", "ms_b", "ms_makespan")


def parts_of(sm_count: int, parts: Sequence[int]) -> list[int]:
    """Numbers of SMs that are such parts of a GPU as `parts` are of 132, in steps of green contexts, each once."""
    wanted = [max(1, round(part * sm_count / OF_SMS / STEP_SMS)) * STEP_SMS for part in parts]
    return [sms for sms in dict.fromkeys(wanted) if sms < sm_count]


def together_ms(gpu: Gpu, sides: Sequence[Side], repeats: int, cold: bool = False) -> list[float]:
    """When each of some streams ended, from the release of all; medians of several runs; cold: with nothing in L2."""
    return [median_high(ends) for ends in zip(*(gpu.ends_ms(sides, cold) for _ in range(repeats)), strict=True)]


def pair_row(
    pair: tuple[str, str], mode: str, sides: Sequence[Side], ends_ms: Sequence[float], makespan_ms: float | None = None
) -> dict[str, object]:
    """A row of pairs.csv: what ran where, and how long; None: until the last one ended."""
    names, ((a, on_a), (b, on_b)) = pair, sides
    condition = {"a": names[0], "na": len(a), "b": names[1], "nb": len(b), "mode": mode}
    makespan_ms = max(ends_ms) if makespan_ms is None else makespan_ms
    times = {"ms_a": ends_ms[0], "ms_b": ends_ms[1], "ms_makespan": makespan_ms}
    return condition | {"sms_a": on_a.sms, "sms_b": on_b.sms} | {column: f"{ms:.6f}" for column, ms in times.items()}


def write_profile(gpu: Gpu, call: OpCall, queue: Queue, passes: int, path: Path, shapes: bool = False) -> int:
    """Write PyTorch's profile of some passes, compressed; return how many kernels it holds."""
    with TemporaryDirectory() as scratch:
        plain = Path(scratch) / "profile.json"
        events = gpu.profile(call, queue, passes, plain, shapes)
        write_table(path, plain.read_text(encoding="utf-8"))
    return sum(event.get("cat") == "kernel" for event in events)
