"""The errors that replays quote, by experiment, size of the calls and what binds their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from math import ceil, floor, fsum, inf
from typing import Any

from gpusim.results.error_band import SHARING, Calls

SIZES_US = (0.0, 25.0, 50.0, 100.0)  # least mean times of a call, of the classes by which errors are told apart
FEWEST_POINTS = 10  # measured, for an error to be quoted


def bands(points: Sequence[tuple[str, Calls, float]]) -> dict[str, Any]:
    """What was measured, for `validated.json`.

    Args:
        points: of each scored prediction the experiment (a name in `SHARING`), the work, the absolute error in percent.

    Returns:
        ``bands``: for each experiment and class of size, from and to which mean time of a call (us) it reaches, how
        many points it has and their mean error, once of all and once for each resource that binds (``bound``; of all
        it is None); ``kinds``: what bound the kernels that were measured, by `SHARING`.
    """
    found, kinds = [], dict[str, set[str]]()
    for experiment, sharing in SHARING.items():
        mine = [(work, error) for name, work, error in points if name == experiment]
        seen = Counter(kind for work, _ in mine for kind in work.kinds)
        kinds.setdefault(sharing, set()).update(kind for kind, count in seen.items() if count >= FEWEST_POINTS)
        sizes = [work.call_us for work, _ in mine]
        for (least, most), bound in product(pairwise((*SIZES_US, inf)), (None, *sorted({w.bound for w, _ in mine}))):
            errors = [e for work, e in mine if least <= work.call_us < most and bound in (None, work.bound)]
            if len(errors) >= FEWEST_POINTS:
                found.append(
                    {
                        "experiment": experiment,
                        "from_us": max(least, floor(min(sizes))),
                        "to_us": min(most, ceil(max(sizes))),
                        "bound": bound,
                        "points": len(errors),
                        "mape_percent": round(fsum(errors) / len(errors), 2),
                    }
                )
    return {"bands": found, "kinds": {sharing: sorted(names) for sharing, names in kinds.items()}}
