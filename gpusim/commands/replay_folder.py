"""Files that `gpusim replay --out` writes for a comparison."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpusim.common.files import whole_folder
from gpusim.common.progress import Step
from gpusim.common.spreadsheet import write_csv
from gpusim.common.tables import json_text, picked
from gpusim.io.report.content import FILE, content_of, content_text
from gpusim.results.comparison import Comparison, as_json
from gpusim.results.metrics import metrics, normalised_progress
from gpusim.results.result import Result
from gpusim.results.runs import USES, KernelRun, ProgramRun, StreamRun
from gpusim.results.style import save_figure


def write_comparison(comparison: Comparison, folder: str | Path, step: Step, command: str) -> None:
    """Write results.json, the content of a page, and a folder per policy with tables and pictures; all or nothing.

    The comparison has placements. ``command`` is the command line of the replay.
    """
    with whole_folder(folder) as root:
        names = folder_names([entry.result.policy for entry in comparison.entries])
        content = as_json(comparison)
        for entry, name, row in zip(comparison.entries, names, content["results"], strict=True):
            step(f"drawing {entry.result.policy}")
            (root / name).mkdir()
            _write_result(entry.result, root / name)
            if entry.restarted is not None:
                _write_restarted(entry.restarted, root / name / "restart.csv")
            row |= {"folder": name, "metrics": metrics(entry.result)}
            del row["kernels"]  # a table of their own
        (root / FILE).write_text(content_text(content_of(comparison, command)), encoding="utf-8")
        (root / "results.json").write_text(json_text(content) + "\n", encoding="utf-8")


def folder_names(policies: Sequence[str]) -> list[str]:
    """A distinct folder name for each policy."""
    names: list[str] = []
    for policy in policies:
        name = re.sub(r"[^A-Za-z0-9=+.,_-]+", "_", policy).strip("._") or "policy"
        taken = [other for other in names if other == name or re.fullmatch(re.escape(name) + r"~\d+", other)]
        names.append(f"{name}~{len(taken) + 1}" if taken else name)
    return names


def _write_result(result: Result, folder: Path) -> None:
    from gpusim.results.plots import gantt, usage

    _write_runs(folder / "kernels.csv", KernelRun._fields, result.kernel_runs)
    _write_runs(folder / "streams.csv", [*StreamRun._fields, "slowdown"], result.stream_runs)
    if result.has_programs:
        own = [name for name in ProgramRun._fields if name != "streams"]
        _write_runs(folder / "programs.csv", [*own, "slowdown"], result.program_runs)
    write_csv(folder / "usage.csv", ["sm", "start_us", "end_us", *USES], _usage_rows(result))
    save_figure(gantt(result), folder / "gantt.png")
    save_figure(usage(result), folder / "usage.png")


def _write_restarted(result: Result, path: Path) -> None:
    passes, progress = result.passes or {}, normalised_progress(result)
    rows = ([name, result.makespan_us, count, progress[name]] for name, count in passes.items())
    write_csv(path, ["program", "until_us", "passes", "normalised_progress"], rows)


def _usage_rows(result: Result) -> Iterable[list[object]]:
    """The device (mean over the SMs) and then each SM, bin by bin; shares from 0 to 1, blank where unknown."""
    usage = result.usage
    device = zip(*(usage.of_device(use) for use in USES), strict=True)
    for place, bins in (("device", device), *enumerate(usage.shares)):
        for b, shares in enumerate(bins):
            known = ("" if use in usage.unknown else f"{share:.6g}" for use, share in zip(USES, shares, strict=True))
            yield [place, b * usage.bin_us, (b + 1) * usage.bin_us, *known]


def _write_runs(path: Path, columns: Sequence[str], runs: Iterable[object]) -> None:
    write_csv(path, columns, (tuple(picked(run, *columns).values()) for run in runs))
