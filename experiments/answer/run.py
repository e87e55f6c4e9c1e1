"""The numbers of docs/answer.md: `python experiments/answer/run.py`.

Fills its blocks from the tables of the other studies, so run those first, and works out what fits beside what on an SM.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from math import fsum
from pathlib import Path

import gpusim
from experiments.inception_choice import report as modules_report
from experiments.inception_choice.report import Row as ModuleRow
from experiments.inception_choice.run import STUDY as MODULES
from experiments.markdown import bullet, filled, table, wrapped
from experiments.networks_choice import report as networks_report
from experiments.networks_choice.run import STUDY as NETWORKS
from experiments.policy_study import report as policy_report
from experiments.policy_study.run import STUDY as POLICIES
from experiments.spaa20_27_cases import report as cases_report
from experiments.spaa20_27_cases.run import STUDY as CASES
from experiments.study import TRACES
from gpusim.calibrate.kernels import Kernels
from gpusim.choose.bound import Bounds
from gpusim.choose.moves import fastest
from gpusim.choose.profile import in_words, profile
from gpusim.choose.search import work_of
from gpusim.common.files import write_text
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import exceeded
from gpusim.results.error_band import measured_errors, span
from gpusim.results.metrics import geometric_mean
from gpusim.trace.edit import with_selected
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, Stream

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "answer.md"
GPUS = ("k40c", "h200")
NETWORK = "googlenet_forward.json.gz"
FFT = "FFT_TILING/FMA"
KINDS = {
    "modules_streams": "branches in streams",
    "streams": "two streams",
    "green": "SM splits",
    "quota": "two kernels mixed on an SM",
}


# ---- what fits beside what -------------------------------------------------------------------------------------------


def longest_kernels(gpu: GPU) -> tuple[dict[str, KernelModel], list[tuple[str, str]]]:
    """Of each convolution the longest kernel of its fastest algorithm; and independent ones in both orders."""
    trace = gpusim.load_trace(TRACES / NETWORK)
    work = work_of(trace, gpu)
    bounds = Bounds(work, gpusim.Session(gpu, cache=True))
    fast = fastest(work, bounds)
    models = {id: max(bounds.models(id, name), key=lambda model: model.solo_us) for id, name in fast.items()}
    return models, [pair for pair in permutations(models, 2) if work.graph.independent(*pair)]


@cache
def refusals(name: str) -> Counter[str]:
    """What keeps a block of one convolution off an SM that another has filled, over all ordered pairs.

    ``""``: it fits; ``few``: the other has too few blocks to fill every SM.
    """
    gpu = gpusim.load_gpu(name)
    models, pairs = longest_kernels(gpu)
    found = Counter[str]()
    for a, b in pairs:
        first, second = models[a], models[b]
        if first.blocks < first.blocks_per_sm * first.sm_count:
            found["few"] += 1
        else:
            found[exceeded(gpu, [(first.footprint, first.blocks_per_sm), (second.footprint, 1)]) or ""] += 1
    return found


RESOURCES = {"registers": "registers", "shared_memory": "shared memory", "warps": "warps", "blocks": "block slots"}


def limits() -> str:
    """The table of `refusals`."""
    words = RESOURCES
    cells, lines = [], []
    for name in GPUS:
        found = refusals(name)
        total = sum(found.values())
        shares = {key: 100 * found[key] / total for key in (*words, "few", "")}
        cells.append([name, str(total), *(f"{share:.0f} %" for share in shares.values())])
        refused = max(words, key=lambda key: found[key])
        lines.append(
            f"{name}: the second finds no room in {fsum(shares[key] for key in words):.0f} % of the pairs, most "
            f"often for want of {words[refused]}; in {shares['few']:.0f} % the first does not fill the GPU by itself."
        )
    titles = ["GPU", "ordered pairs", *words.values(), "the first does not fill the GPU", "a block fits"]
    return f"{table(titles, cells)}\n\n{wrapped(' '.join(lines))}"


def bound_alone(trace: Trace, gpu: GPU, id: str) -> str:
    """What binds the kernels of a convolution by FFT_TILING alone, by share of their time."""
    streams = [
        Stream(
            name=op.id,
            operations=(with_selected(op, chosen(op, FFT)).model_copy(update={"depends_on": ()}),),
        )
        for op in trace.operations()
        if isinstance(op, Convolution) and op.id == id
    ]
    alone = trace.model_copy(update={"streams": tuple(streams)})
    us = dict[str, float]()
    for run in gpusim.replay(alone, gpu, "serial").kernel_runs:
        us[run.bound_by] = us.get(run.bound_by, 0.0) + run.end_us - run.start_us
    most = sorted(us, key=lambda name: -us[name])[:2]
    return ", ".join(f"{in_words(name)} {100 * us[name] / sum(us.values()):.0f} %" for name in most)


def chosen(op: Convolution, algorithm: str) -> ConvolutionAlgorithm:
    """An algorithm of a convolution by its name."""
    return next(one for one in (op.selected, *op.alternatives) if one.algorithm == algorithm)


def fft() -> str:
    """What FFT_TILING for the 3x3 and the 5x5 of the first module keeps busy and waits for on both GPUs."""
    cells, verdicts = [], []
    for gpu_name, file in (("k40c", "spaa20_table1.json"), ("h200", "inception_3a.json.gz")):
        trace, gpu = gpusim.load_trace(TRACES / file), gpusim.load_gpu(gpu_name)
        kernels = Kernels(gpu, gpu)
        for op in trace.operations():
            if isinstance(op, Convolution) and op.id in ("3a.3x3", "3a.5x5"):
                known = profile([kernels.model(kernel, op.id) for kernel in chosen(op, FFT).kernels], gpu)
                issue = known.share("issue")
                busy = [f"{100 * known.share(name):.0f} %" if known.counted else "?" for name in ("l1", "L2", "DRAM")]
                stalls = f"{100 * known.memory_stalls:.1f} %"
                binds = bound_alone(trace, gpu, op.id) if known.counted else "?"
                cells.append([gpu_name, op.id, f"{100 * issue:.0f} %", *busy, stalls, binds])
                verdicts.append((gpu_name, issue, known.memory_stalls, known.busiest))
    head = [
        "GPU",
        "FFT_TILING of",
        "issue slots busy",
        "L1 path",
        "L2",
        "DRAM",
        "stalls on memory",
        "bound by, of its time",
    ]
    slots = all(busiest == "issue" for gpu, _, _, busiest in verdicts if gpu == "h200")
    least = min(issue for gpu, issue, _, _ in verdicts if gpu == "h200")
    most = max(issue for gpu, issue, _, _ in verdicts if gpu == "k40c")
    waits = {gpu: [stall for name, _, stall, _ in verdicts if name == gpu] for gpu in GPUS}
    text = (
        f"On the K40 its issue slots are busy for at most {100 * most:.0f} % of the time, and "
        f"{100 * min(waits['k40c']):.0f} to {100 * max(waits['k40c']):.0f} % of the stalls wait for memory. On the "
        f"H200 they are busy for at least {100 * least:.0f} %, "
        + ("more than anything else of the SM or of memory" if slots else "and something else is busier")
        + f", and {100 * min(waits['h200']):.0f} to {100 * max(waits['h200']):.0f} % of the stalls wait for memory."
    )
    return f"{table(head, cells)}\n\n{wrapped(text)}"


# ---- what there is to gain -------------------------------------------------------------------------------------------


def gains() -> str:
    """The gain of each way, by GPU and batch, and the verdicts."""
    (rows,) = MODULES.read()
    cells = []
    for gpu, batch in modules_report.GROUPS:
        mine = modules_report.chosen(rows, gpu, batch)
        line = [f"{gpu}, batch {batch}", str(len(mine))]
        for way in modules_report.WAYS:
            found, word = modules_report.compare(mine, way, "serial")
            line.append(f"{found}: {word}")
        bound = geometric_mean([row.gain("bound") for row in mine])
        cells.append([*line, f"{100 * (bound - 1):.0f} %"])
    names = [
        "streams",
        "SM split",
        "mix on an SM",
        "best that hardware can be told",
        "best of all",
        "no plan gains more than",
    ]
    return table(["inception modules", "", *names], cells)


def short() -> str:
    """The answer in a few lines."""
    (rows,) = MODULES.read()
    lines = []
    for name in GPUS:
        found = refusals(name)
        refused = 100 * sum(found[key] for key in RESOURCES) / sum(found.values())
        most = max(RESOURCES, key=lambda key: found[key])
        few = 100 * found["few"] / sum(found.values())
        text = (
            f"**{name}**: a second convolution finds no room on an SM in {refused:.0f} % of the pairs, most often for "
        )
        text += f"want of {RESOURCES[most]}; in {few:.0f} % the first does not fill the SMs."
        for gpu, batch in modules_report.GROUPS:
            if gpu == name:
                mine = modules_report.chosen(rows, gpu, batch)
                ways = {"streams": "plain streams", "hardware": "what it can be told", "plan": "anything"}
                told = [f"by {words} {modules_report.compare(mine, way, 'serial')[0]}" for way, words in ways.items()]
                text += f" To gain in an inception module at batch {batch}: {', '.join(told)}."
        lines.append(bullet(text))
    seen, _, _ = CASES.read()
    for name in GPUS:
        mine = [cases_report.faster(case) for case in seen if case.gpu == name]
        text = f"**{name}**: {len(mine)} pairs of convolutions have algorithms that complement one another (the paper: "
        text += f"27); {sum(one['same'] for one in mine)} gain by it over the same algorithms in turn, "
        text += f"{sum(one['streams'] for one in mine)} over the fastest algorithms in two streams."
        lines.append(bullet(text))
    return "\n".join(lines)


def modules() -> str:
    """The gain of the best plan that hardware can be told, by module."""
    (rows,) = MODULES.read()
    names = sorted({row.module for row in rows})
    cells = []
    for gpu, batch in modules_report.GROUPS:
        mine = {row.module: row for row in modules_report.chosen(rows, gpu, batch)}
        for way in ("streams", "plan"):
            gain = [f"{100 * (mine[name].gain(way) - 1):+.0f} %" if name in mine else "" for name in names]
            cells.append([f"{gpu}, batch {batch}", "streams" if way == "streams" else "best of all", *gain])
    return table(["", "", *names], cells)


def levers() -> str:
    """What each lever adds to those before it."""
    (rows,) = MODULES.read()
    return f"{modules_report.lever_table(rows)}\n\n{_lever_text(rows)}"


def _lever_text(rows: Sequence[ModuleRow]) -> str:
    lines = []
    for gpu, batch in modules_report.GROUPS:
        steps = modules_report.mean_steps(modules_report.chosen(rows, gpu, batch))
        ordered = sorted(steps, key=lambda lever: -steps[lever])
        none = [lever for lever in steps if steps[lever] < 1.0 + 0.005]
        text = f"{gpu}, batch {batch}: most is from {ordered[0]}, then {ordered[1]}"
        lines.append(bullet(text + (f"; {', '.join(none)} add less than half a per cent." if none else ".")))
    return "\n".join(lines)


def memory() -> str:
    """Within how much workspace."""
    return modules_report.memory_table(*MODULES.read())


def networks() -> str:
    """Streams and plans for whole networks."""
    return networks_report.verdict_table(*NETWORKS.read())


def cases() -> str:
    """The paper's 27 cases."""
    seen, counts, _ = CASES.read()
    better = sum(cases_report.faster(case)["streams"] for case in seen)
    text = (
        f"{better} of {len(seen)} cases on both GPUs are faster than what a framework could do, two streams with the "
    )
    text += "fastest algorithms: "
    text += (
        "mostly, an algorithm chosen for its resources costs more than sharing wins back."
        if better < len(seen) / 2
        else "mostly, an algorithm chosen for its resources costs less than sharing wins back."
    )
    return f"{cases_report.count_table(seen, counts)}\n\n{wrapped(text)}"


def policies() -> str:
    """Policies against plain streams on pairs of kernels that restart."""
    rows, _, _ = POLICIES.read()
    cells = []
    for name in ("inter-sm", "inter-sm:rule=profile", "even", "smk", "warped-slicer", "maestro"):
        line = [f"`{name}`"]
        for gpu in ("h200", "k40c"):
            found = policy_report.compare(rows, gpu, name, "leftover")
            line.append(f"{found}: {found.verdict(policy_report.error(gpu))}")
        cells.append(line)
    return table(["STP over plain streams", "h200, 55 pairs", "k40c, 6 pairs of the seed's table"], cells)


def bars() -> str:
    """How wrong the model is where it was measured."""
    cells = []
    for kind, words in KINDS.items():
        for source, (least, most) in measured_errors(kind).items():
            cells.append([words, source, f"{span(least, most, '±')} %"])
    if not cells:
        return "This version of the model was not scored yet."
    return table(["sharing", "GPU", "error, from the longest calls to the shortest"], cells)


BLOCKS = {
    "short": short,
    "limits": limits,
    "fft": fft,
    "gains": gains,
    "modules": modules,
    "levers": levers,
    "memory": memory,
    "networks": networks,
    "cases": cases,
    "policies": policies,
    "bars": bars,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fills the document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--out", type=Path, default=DOCUMENT, help="where to write the document")
    out = parser.parse_args(arguments).out
    text = filled(DOCUMENT.read_text(encoding="utf-8"), {name: block() for name, block in BLOCKS.items()})
    write_text(out, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
