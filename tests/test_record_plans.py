"""Plans measured on a GPU: runs of the program become one table, turns of a plan its makespans."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.plans import makespans_us, medians
from gpusim.common.errors import InputError
from gpusim.common.files import zipped

HEADER = "name,plan,turn,step,op,stream,sms,ms_end,ms_makespan\n"


def table(*makespans_ms: float) -> str:
    """What the program prints of a plan with two steps, in as many turns."""
    rows = [
        f"m,p,{turn},{step},m/{step}/fwd/GEMM/FMA,{step},132,{ms / 2:.6f},{ms:.6f}\n"
        for turn, ms in enumerate(makespans_ms)
        for step in range(2)
    ]
    return HEADER + "".join(rows)


def test_the_median_of_runs_is_of_each_time() -> None:
    runs = [table(0.3, 0.1).splitlines(), table(0.1, 0.1).splitlines(), table(0.2, 0.4).splitlines()]
    assert "".join(medians(runs)) == table(0.2, 0.1)


def test_a_plan_has_a_makespan_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv.gz"
    path.write_bytes(zipped((table(0.2, 0.1) + table(0.5).replace("m,p", "m,q").removeprefix(HEADER)).encode()))
    assert makespans_us(path) == {("m", "p"): pytest.approx([200.0, 100.0]), ("m", "q"): pytest.approx([500.0])}


def test_a_table_that_is_no_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv.gz"
    path.write_text(table(0.2))
    with pytest.raises(InputError, match="gzip"):
        makespans_us(path)
