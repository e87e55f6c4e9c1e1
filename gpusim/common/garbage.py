"""How often Python's garbage collector runs."""

import gc

COLLECT_AFTER = 200_000  # objects, not 700: looking for cycles, of which replays make few, took a tenth of their time


def collect_seldom() -> None:
    """Look for cycles seldom in this process, which must be the package's own: a command or a worker."""
    gc.set_threshold(COLLECT_AFTER)
