"""The output of the page in this folder: a trace under some policies, as `gpusim replay` compares them.

It needs neither NumPy nor a compiler. So it has no bound on the makespan, and no parts of the saved time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO

from gpusim.commands.replay_tables import print_comparison
from gpusim.common.errors import InputError
from gpusim.results.comparison import Comparison, Entry
from gpusim.results.error_band import error_band
from gpusim.results.metrics import times_as_long
from gpusim.session import opened


def compared(path: str, policies: Sequence[str], step: Callable[[str], object]) -> str:
    """Return the comparison of policies on a trace as text, or why there is none; ``step`` is told of each step."""
    entries = []
    try:
        step("fitting kernels to their recording")
        trace, session = opened(path, None)
        serial_us = session.serial_us(trace)
        for policy in policies:
            step(f"replaying under {policy}")
            result = session.replay(trace, policy)
            gain, error = times_as_long(serial_us, result.makespan_us), error_band(result, trace, session.gpu)
            entries.append(Entry(result, gain, error, notes=result.notes))
    except InputError as error:
        return str(error)
    printed = StringIO()
    with redirect_stdout(printed):
        print_comparison(Comparison(trace, session.gpu, tuple(sorted(entries, key=lambda entry: entry.merit))))
    return printed.getvalue().rpartition("\n\n")[0]  # without the hint at options of the command
