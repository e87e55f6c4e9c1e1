"""Experiments that tests of sweeps make, and how they run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from executors import Here

from gpusim.sweeps.experiment import load_experiment
from gpusim.sweeps.run import Swept, sweep

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "traces"
PAIR = TRACES / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
TABLE_1 = TRACES / "spaa20_table1.json"

Capture = pytest.CaptureFixture[str]


def written(folder: Path, text: str, name: str = "experiment.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def small(folder: Path, more: str = "", policies: str = '"leftover", "even"') -> Path:
    return written(folder, f'traces = ["{PAIR}", "{TABLE_1}"]\npolicies = [{policies}]\n{more}')


def swept(path: Path, out: Path | None = None) -> Swept:
    return sweep(load_experiment(path), out or path.with_suffix(".csv"), Here, 1)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
