"""The numbers of docs/answer.md: `python experiments/answer/run.py`.

Fills its blocks from the tables of the other studies, so run those first, and works out what fits beside what on an SM.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path

from experiments.answer import evidence
from experiments.control_worth import report as control_report
from experiments.control_worth.run import STUDY as CONTROL
from experiments.hardware_check import run as plans_report
from experiments.hardware_check.run import STUDY as PLANS
from experiments.hardware_check.run import Row as PlanRow
from experiments.inception_choice import report as modules_report
from experiments.inception_choice.run import STUDY as MODULES
from experiments.markdown import bullet, filled, table, wrapped
from experiments.policy_study import report as policy_report
from experiments.policy_study.run import STUDY as POLICIES
from experiments.spaa20_27_cases import report as cases_report
from experiments.spaa20_27_cases.run import STUDY as CASES
from gpusim.common.files import write_text
from gpusim.lab.names import title
from gpusim.results.error_band import measured_errors, span
from gpusim.results.metrics import geometric_mean

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "answer.md"
KINDS = ("modules_streams", "streams", "green", "quota")


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
        "blocks of several kernels on one SM",
        "best hardware-supported",
        "best of all",
        "no plan gains more than",
    ]
    return table(["inception modules", "", *names], cells)


def short() -> str:
    """The answer in a few lines."""
    (plans,) = PLANS.read()
    numbers = CONTROL.page(*CONTROL.read())
    recommended = plans_report.choice_means(plans_report.recommended(plans))
    streams = {batch: streams_gain(plans, batch) for batch in (128, 16)}
    large = [row.module for row in plans if row.plan == plans_report.STREAMS and not row.module.endswith("_b16")]
    seen, _, _ = CASES.read()
    better = sum(cases_report.faster(case)["streams"] for case in seen if case.gpu == "h200")
    lines = [
        "**Room.** A convolution by its fastest algorithm leaves no room for a block of another on "
        f"{evidence.refused('h200'):.0f} % of an H200's SMs. Most of them lack {evidence.scarcest('h200')}. On a K40c "
        f"it is {evidence.refused('k40c'):.0f} %, and most lack {evidence.scarcest('k40c')}. "
        "The paper names this limit, and it holds.",
        "**Plain streams take most of the gain.** On an H200 at batch 128, one stream per branch of a module "
        f"gains {spread(streams[128])} over one stream, measured. {evidence.why_streams_gain(large)} "
        f"At batch 16 kernels are too small to fill the GPU, and the gain is {spread(streams[16])}.",
        "**Control adds little.** The model's choices were measured on an H100, over plain streams. Priorities gain "
        f"{numbers['priorities_gain']:+.1f} %, the order of streams {numbers['order_gain']:+.1f} %, an SM split "
        f"{numbers['masks_gain']:+.1f} %, and algorithms {numbers['algorithms_gain']:+.1f} %. Quotas on an SM, which "
        f"no GPU offers, are predicted to gain {numbers['quotas_gain']:+.1f} %. {numbers['significant']} "
        f"For {numbers['kernel_pairs']} pairs of BF16 kernels on an H200, priorities gain "
        f"{numbers['kernel_priorities']:+.1f} % and an SM split {numbers['kernel_masks']:+.1f} %. "
        f"{numbers['kernel_significant']}",
        "**A plan's predicted gain is too good.** Of the plans that were measured on an H200, those predicted best "
        f"gain {recommended['chosen_measured']:+.1f} % over plain streams, and "
        f"{recommended['chosen_predicted']:+.1f} % were predicted. So `gpusim select` recommends a plan only if its "
        "expected gain, a share of the predicted one, exceeds the error of such plans. Else it recommends plain "
        "streams, a gain of 0. Its answers were written down before their plans were measured. "
        f"{answered(numbers, 'second', 'an H100')} {answered(numbers, 'third', 'an H200')}",
        "**Algorithms that complement one another do not pay.** "
        f"{better} of {evidence.cases('h200')['any algorithms']} such pairs on an H200 are predicted to beat the "
        "fastest algorithms in two streams. The paper says that PRECOMP_GEMM is the fastest for both convolutions of "
        "its Table 1. If so, its mix of PRECOMP_GEMM and FFT_TILING gains at most "
        f"{evidence.table_1_gain():.2f}x over PRECOMP_GEMM for both.",
    ]
    return "\n".join(bullet(line) for line in lines)


def answered(numbers: Mapping[str, object], test: str, gpu: str) -> str:
    """What the answers of `gpusim select` gained in a fresh test, and what its plans gain if they are always taken."""
    names = ("mean", "worst", "always_mean", "always_worst")
    mean, worst, always, always_worst = (f"{numbers[f'{test}_{name}']:+.1f} %" for name in names)
    return (
        f"For {numbers[f'{test}_workloads']} workloads on {gpu} the recommendations gain {mean} on the mean and "
        f"{worst} at worst. The plans found, taken always, gain {always} and {always_worst} at worst."
    )


def streams_gain(rows: Sequence[PlanRow], batch: int) -> list[float]:
    """Measured gain of plain streams over one stream, both with the fastest algorithms, by module, percent."""
    mine = [row for row in rows if row.plan == plans_report.STREAMS and row.module.endswith("_b16") == (batch == 16)]
    return [100.0 * (row.measured_gain - 1.0) for row in mine]


def spread(values: Sequence[float]) -> str:
    """Mean, least and most, in words."""
    mean = fsum(values) / len(values)
    return f"{mean:+.1f} % on the mean (least {min(values):+.1f}, most {max(values):+.1f}, {len(values)} modules)"


def control() -> str:
    """Gain of each level of control."""
    rows, *_ = CONTROL.read()
    kinds = control_report.kind_table(rows, lambda one: one.measured)
    text = "The measured gain of the choice by kind of workload, mean (least to most):"
    return f"{control_report.level_table(rows)}\n\n{text}\n\n{kinds}"


def streams() -> str:
    """Plain streams over one stream in whole networks, measured on an H100."""
    rows, *_ = CONTROL.read()
    gains = control_report.network_gains(rows)
    wrong = [name for name, (predicted, measured) in gains.items() if (predicted < 0.0) != (measured < 0.0)]
    short = sum(predicted <= measured for predicted, measured in gains.values())
    text = f"Streams gain at least as much as predicted in {short} of {len(gains)} networks."
    if wrong:
        text += " The model predicts a loss where a gain was measured, or the reverse, for "
        text += ", ".join(f"`{name}`" for name in wrong) + "."
    return f"{control_report.network_table(rows)}\n\n{wrapped(text)}"


def plans() -> str:
    """The plans that were measured on an H200, and what is recommended of them."""
    (rows,) = PLANS.read()
    return plans_report.choice_table(plans_report.recommended(rows))


def modules() -> str:
    """The gain of the best hardware-supported plan, by module."""
    (rows,) = MODULES.read()
    names = sorted({row.module for row in rows})
    cells = []
    for gpu, batch in modules_report.GROUPS:
        mine = {row.module: row for row in modules_report.chosen(rows, gpu, batch)}
        for way in ("streams", "plan"):
            gain = [f"{100 * (mine[name].gain(way) - 1):+.0f} %" if name in mine else "" for name in names]
            cells.append([f"{gpu}, batch {batch}", "streams" if way == "streams" else "best of all", *gain])
    return table(["", "", *names], cells)


def memory() -> str:
    """Within how much workspace."""
    return modules_report.memory_table(*MODULES.read())


def cases() -> str:
    """The paper's 27 cases."""
    seen, counts, _ = CASES.read()
    better = sum(cases_report.faster(case)["streams"] for case in seen)
    text = (
        f"{better} of {len(seen)} cases on both GPUs are faster than two streams with the fastest algorithms, which a "
        "framework could run. Mostly, an algorithm chosen for its resources costs "
    )
    text += "more" if better < len(seen) / 2 else "less"
    text += " than sharing wins back."
    return f"{cases_report.count_table(seen, counts)}\n\n{wrapped(text)}"


def policies() -> str:
    """Policies against plain streams on pairs of kernels that restart."""
    rows, _, _ = POLICIES.read()
    cells = []
    for name in ("inter-sm", "inter-sm:rule=profile", "even", "smk", "warped-slicer", "maestro"):
        found = policy_report.compare(rows, "h200", name, "leftover")
        cells.append([f"`{name}`", f"{found}: {found.verdict(policy_report.error('h200'))}"])
    return table(["policy", "STP over plain streams, h200, 55 pairs"], cells)


def bars() -> str:
    """The model error of each kind of sharing that was measured."""
    cells = []
    for kind in KINDS:
        for source, (least, most) in measured_errors(kind).items():
            cells.append([title(kind), source, f"{span(least, most, '±')} %"])
    if not cells:
        return "This version of the model was not scored yet."
    return table(["sharing", "GPU", "error by length of calls: smallest to largest"], cells)


BLOCKS = {
    "short": short,
    "limits": evidence.limits,
    "fft": evidence.fft,
    "table1": evidence.table_1,
    "control": control,
    "plans": plans,
    "streams": streams,
    "gains": gains,
    "modules": modules,
    "memory": memory,
    "cases": cases,
    "strict": evidence.strict_cases,
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
