"""The clock of the SMs under the power limit, measured and by the model's rule: `python experiments/power/run.py`.

A BF16 product of 8192 x 8192 matrices ran on some SMs of an H100, isolated and beside other kernels, while NVML read
the clock (`power.csv`). It also ran 120 times after a pause (`bursts.csv`). It writes README.md, result.csv and
clock.png beside itself (or to --out DIR).

    python experiments/power/record.py   # measures: needs an NVIDIA GPU, PyTorch and nvcc
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Study
from gpusim.common.tables import grouped
from gpusim.model.clock import power_cycle
from gpusim.model.kernel import OTHER_POWER
from gpusim.results.style import COLOURS, GREY, legend_below, new_figure, save_figure

HERE = Path(__file__).resolve().parent
FULL_MHZ = 1980.0  # of an H100 without a limit, as NVML reads it
SMS = 132
NAMES = {
    "nothing": "nothing",
    "copy": "copy",
    "fp32_product": "FP32 product",
    "gelu": "GELU",
    "product": "BF16 product",
}


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock while a product runs on some SMs.

    Attributes:
        sms: of the product.
        beside: what runs on the other SMs.
        watts: of the GPU.
        measured_mhz: clock of the SMs.
        predicted_mhz: the same, from the clock on all SMs.
    """

    sms: int
    beside: str
    watts: float
    measured_mhz: float
    predicted_mhz: float


def clocks() -> Iterator[Clock]:
    """Every condition of power.csv but kernels on all SMs."""
    rows = [row for row in lines(HERE / "power.csv") if row["load"] == "product"]
    whole = next(float(row["mhz"]) for row in rows if int(row["sms"]) == SMS)
    power = (FULL_MHZ / whole) ** 3
    others = {"nothing": 0.0, "product": power}
    for row in rows:
        sms = int(row["sms"])
        drawn = (sms * power + (SMS - sms) * others.get(row["beside"], OTHER_POWER)) / SMS
        if sms < SMS:
            mhz = FULL_MHZ / power_cycle(drawn)
            yield Clock(sms, row["beside"], float(row["watts"]), float(row["mhz"]), mhz)


def page(rows: Sequence[Clock]) -> dict[str, object]:
    """What the page says."""
    whole = {row["load"]: row for row in lines(HERE / "power.csv") if int(row["sms"]) == SMS}
    burst = [(float(row["start_us"]), float(row["us"])) for row in lines(HERE / "bursts.csv")]
    early = [us for start, us in burst[1:] if start < 3e4]
    return {
        "whole_mhz": f"{float(whole['product']['mhz']):.0f}",
        "whole_watts": f"{float(whole['product']['watts']):.0f}",
        "fp32_watts": f"{float(whole['fp32_product']['watts']):.0f}",
        "copy_watts": f"{float(whole['copy']['watts']):.0f}",
        "early_us": f"{fmean(early):.0f}",
        "late_us": f"{max(us for _, us in burst[1:]):.0f}",
        "after_ms": f"{next(start for start, us in burst[1:] if us > 1.05 * fmean(early)) / 1e3:.0f}",
        "other_power": f"{OTHER_POWER:g}",
        "errors": table(
            ("beside the product", "conditions", "mean error %", "bias %"),
            [
                (NAMES[name], str(len(of)), f"{fmean(map(abs, errors)):.1f}", f"{fmean(errors):+.1f}")
                for name, of in grouped(rows, lambda row: row.beside).items()
                for errors in [[100.0 * (row.predicted_mhz / row.measured_mhz - 1.0) for row in of]]
            ],
        ),
        "clocks": table(
            ("SMs", *(f"{NAMES[name]}, MHz" for name in NAMES)),
            [
                (str(sms), *(f"{row.measured_mhz:.0f} ({row.predicted_mhz:.0f})" for row in of))
                for sms, of in grouped(rows, lambda row: row.sms).items()
            ],
        ),
    }


def draw(rows: Sequence[Clock], path: Path) -> None:
    """Measured clocks as points, the rule as lines."""
    with new_figure(2.8) as figure:
        axes = figure.subplots()
        of_name = grouped(rows, lambda row: row.beside).items()
        for (name, of), colour, marker in zip(of_name, COLOURS, "o^sDv", strict=False):
            at = [row.sms for row in of]
            axes.plot(at, [row.predicted_mhz for row in of], color=colour)
            axes.plot(at, [row.measured_mhz for row in of], marker, color=colour, label=NAMES[name])
        axes.plot([], [], color=GREY, label="rule")
        axes.set_xlabel("SMs of the product")
        axes.set_ylabel("Clock of the SMs (MHz)")
        legend_below(figure, axes, 3, title="Beside the product")
        save_figure(figure, path)


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Clock},
    lambda _: {"result.csv": list(clocks())},
    page,
    {"clock.png": draw},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
