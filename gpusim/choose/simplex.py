"""The simplex method for small linear programs whose variables may all be 0."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
PIVOTS = 5_000  # at most
SHIFT = 1e-7  # by which limits are apart, so that no step is of length 0
SMALL = 1e-9


def maximum(target: Reals, rows: Reals, most: Reals) -> Reals:
    """Variables of at least 0 that make ``target @ x`` large, such that about ``rows @ x <= most``.

    The limits are at least 0. The caller checks the constraints: limits are shifted by up to `SHIFT`, and the number of
    pivots is limited.
    """
    count, width = rows.shape
    table = np.empty((count + 1, width + 1))  # a column for each variable that is 0, a row for each that is not
    table[:count, :width], table[:count, -1] = rows, most + SHIFT * (1.0 + np.arange(count) * 0.6180339887 % 1.0)
    table[-1, :width], table[-1, -1] = -target, 0.0
    zero, others = np.arange(width), np.arange(width, width + count)
    for _ in range(PIVOTS):
        enters = int(np.argmin(table[-1, :-1]))
        able = table[:count, enters] > SMALL
        if table[-1, enters] >= -SMALL or not able.any():
            break
        ratios = np.full(count, np.inf)
        ratios[able] = table[:count, -1][able] / table[:count, enters][able]
        leaves = int(np.argmin(ratios))
        column, pivot = table[:, enters].copy(), table[leaves, enters]
        row = table[leaves] / pivot
        table -= np.outer(column, row)
        table[:, enters] = -column / pivot
        row[enters] = 1.0 / pivot
        table[leaves] = row
        zero[enters], others[leaves] = others[leaves], zero[enters]
    found = np.zeros(width + count)
    found[others] = np.maximum(table[:count, -1], 0.0)
    return found[:width]
