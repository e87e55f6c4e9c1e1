"""What every test shares: repeatable property tests, the measurements beside us, and benchmarks."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import browser as chromium
import pytest
from cores import core_name, cores
from executors import Here
from hypothesis import HealthCheck, settings

from gpusim.calibrate import kernels
from gpusim.engine import sm_array
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.trace import file
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch

REPOSITORY = Path(__file__).resolve().parent.parent
BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"

# No test reads or writes the cache of the user who runs it, or is without one: those of one run share one.
os.environ.pop("GPUSIM_NO_CACHE", None)
if "PYTEST_XDIST_WORKER" not in os.environ:
    CACHE = tempfile.TemporaryDirectory(prefix="gpusim-tests-", ignore_cleanup_errors=True)
    os.environ["XDG_CACHE_HOME"] = CACHE.name

gc.disable()  # until all is imported and collected, of which nothing is garbage

# Workers and the commands that tests start share compiled sources, even where Python is told to write none.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples on every run and every machine, whatever profile hypothesis itself would choose there.
settings.register_profile(
    "release",
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("everyday", settings.get_profile("release"), max_examples=25)
settings.load_profile("everyday")

# A kernel that a test of this process has fitted on a core is not fitted again on that core: sessions share it.
FIT = kernels.fitted
FITTED: dict[tuple[KernelLaunch, GPU, object], KernelModel] = {}


def fitted_once(launch: KernelLaunch, gpu: GPU, place: str = "") -> KernelModel:
    """As `gpusim.calibrate.scaling.fitted`."""
    key = launch, gpu, sm_array.SMArray
    model = FITTED.get(key)
    if model is None:
        model = FITTED[key] = FIT(launch, gpu, place)
    return model


kernels.fitted = fitted_once

# A trace that ships and that a test of this process has read is not read again while its bytes are the same.
READ = file.parse_trace
TRACES = REPOSITORY / "traces"
SHIPPED: dict[bytes, Trace] = {}


def read_once(data: bytes, path: str | os.PathLike[str] | None = None) -> Trace:
    """As `gpusim.trace.file.parse_trace`."""
    if path is None or Path(path).parent.resolve() != TRACES:
        return READ(data, path)
    trace = SHIPPED.get(data)
    if trace is None:
        trace = SHIPPED[data] = READ(data, path)
    return trace


file.parse_trace = read_once
LEFT_OUT = (
    "Left out: tests marked release (.ci/run runs them: pytest -m release), and most examples of property tests "
    "(pytest -m hypothesis --hypothesis-profile=release)"
)
# Whatever modules are loaded and whatever they say: hypothesis would draw constants from their sources.
PROVIDERS: Any = sys.modules.get("hypothesis.internal.conjecture.providers")
if hasattr(PROVIDERS, "_get_local_constants"):
    NO_CONSTANTS = PROVIDERS._local_constants
    PROVIDERS._get_local_constants = lambda: NO_CONSTANTS


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Spare the garbage collector all that was imported and collected: it would look through it again and again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies under tests/benchmarks, and what opens a browser, so that every day leaves both out."""
    for item in items:
        if BENCHMARKS in item.path.parents:
            item.add_marker(pytest.mark.benchmark)
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.release)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Timings are taken in one process; other tests in as many as there are cores."""
    return 0 if config.option.markexpr == "benchmark" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says what the everyday suite does not run."""
    if "not release" in config.option.markexpr:
        terminalreporter.write_line(LEFT_OUT)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of measurements beside the repository; without it, a test that needs it is skipped."""
    folder = REPOSITORY.parent / "shared"
    if not (folder / "h200").is_dir():
        pytest.skip("needs ../shared")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """One page in a headless Chromium, for the tests of a module."""
    program = chromium.executable()
    if program is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    with chromium.Browser(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(params=cores(), ids=core_name)
def core(request: pytest.FixtureRequest) -> ModuleType:
    """The core of the engine: plain, and compiled where one was built."""
    module: ModuleType = request.param
    return module


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gpusim replay --out` leaves its pictures empty; tests/test_cli_replay.py and tests/test_plots.py draw."""
    for picture in ("gantt", "usage"):
        monkeypatch.setattr(f"gpusim.results.plots.{picture}", lambda result: None)
    monkeypatch.setattr("gpusim.commands.replay_folder.save_figure", lambda figure, path: path.touch())


@pytest.fixture
def sweeps_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gpusim sweep` computes in this process; tests/test_sweep_robustness.py starts processes."""
    monkeypatch.setattr("gpusim.sweeps.workers.local", lambda jobs: (Here, 1))
