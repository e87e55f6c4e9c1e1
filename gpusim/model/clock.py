"""The clock of the SMs under the power limit of a GPU."""

from __future__ import annotations

ROOT_STEPS = 8  # of Newton's method: a cube root of at most 8 is then exact to rounding


def power_cycle(power: float) -> float:
    """Cycle of the SMs under a power limit, over their cycle without one: at least 1.

    Power grows with the cube of the clock, because the voltage grows with it ([V] experiments/power).

    Args:
        power: that all blocks on the SMs would draw at the full clock, over the limit.
    """
    if power <= 1.0:
        return 1.0
    root = 1.0
    for _ in range(ROOT_STEPS):
        root = (2.0 * root + power / (root * root)) / 3.0
    return root
