"""Whole programs in BF16: what priorities and SM splits gain over plain streams (measured in experiments/advise)."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.advise import run as advise
from experiments.control_worth.report import Row, gain, of_pairs
from gpusim.common.tables import grouped

MECHANISMS = {"priority": "priorities", "SM split": "masks"}  # of experiments/advise: the level that it needs


def rows(measured: Iterable[advise.Row]) -> list[Row]:
    """Every pair under every setting that needs control over the GPU, against plain streams."""
    found = []
    for (gpu, pair), mine in grouped(measured, lambda one: (one.gpu, one.pair)).items():
        plain = next((one for one in mine if one.mechanism == "streams"), None)
        if plain is None:  # two processes
            continue
        for one in mine:
            if one.mechanism in MECHANISMS:
                found.append(_row(f"{gpu}: {pair}", one, plain))
    return found


def _row(workload: str, one: advise.Row, plain: advise.Row) -> Row:
    return Row(
        workload=workload,
        level=MECHANISMS[one.mechanism],
        plan=one.setting,
        sharing=one.mechanism,
        predicted_us=one.predicted_us,
        measured_us=one.measured_us,
        least_us=one.measured_us,
        most_us=one.measured_us,
        predicted_gain=gain(plain.predicted_us, one.predicted_us),
        measured_gain=gain(plain.measured_us, one.measured_us),
        operation_us=0.0,
    )


def page() -> dict[str, object]:
    """What the page says of them."""
    (measured,) = advise.STUDY.read()
    found = rows(measured)
    both = len(_programs(found, "h200") & _programs(found, "h100"))
    return {"program_both": both, **of_pairs("program", found, tuple(MECHANISMS.values()))}


def _programs(rows: Iterable[Row], gpu: str) -> set[tuple[str, ...]]:
    """Pairs that ran on a GPU, by the names of their programs."""
    pairs = (row.workload.removeprefix(f"{gpu}: ") for row in rows if row.workload.startswith(f"{gpu}: "))
    return {tuple(side.partition(" ")[2] for side in pair.split(" + ")) for pair in pairs}
