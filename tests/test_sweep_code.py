"""Which code of others an experiment may run, and when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from executors import Here

from gpusim import cli
from gpusim.common.errors import InputError
from gpusim.policies import registry
from gpusim.policies.hardware import Leftover
from gpusim.sweeps import compute
from gpusim.sweeps.experiment import load_experiment
from gpusim.sweeps.run import Swept, points, sweep

ROOT = Path(__file__).resolve().parent.parent
TABLE_1 = ROOT / "traces" / "spaa20_table1.json"
REFUSED = (
    "is neither beside the experiment nor installed; expected such a policy, "
    "or its folder as --code-from (in Python code_from)"
)

Capture = pytest.CaptureFixture[str]

POLICY = """
from pathlib import Path

from gpusim.policies.hardware import Leftover

with Path({log!r}).open("a") as log:
    log.write("ran\\n")


class Mine(Leftover):
    summary = "mine"
"""


class Folders:
    """An experiment in a folder of its own, policies wherever they are put, and how often one of them ran."""

    def __init__(self, root: Path) -> None:
        self.experiments = root / "experiments"
        self.elsewhere = root / "elsewhere"
        self.experiments.mkdir()
        self.elsewhere.mkdir()
        self._log = root / "log"

    def policy(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(POLICY.format(log=str(self._log)))
        return path

    def experiment(self, policy: str, seeds: str = "[0]") -> Path:
        path = self.experiments / "e.toml"
        path.write_text(f'traces = ["{TABLE_1}"]\npolicies = ["{policy}"]\nseeds = {seeds}\n')
        return path

    @property
    def ran(self) -> int:
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


@pytest.fixture
def modules(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes modules of a folder importable until the test ends."""

    def importable(folder: Path) -> None:
        monkeypatch.syspath_prepend(str(folder))

    for name in ("made_up_policy", "made_up_policies", "made_up_policies.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importable


def swept(path: Path, *code_from: Path) -> Swept:
    return sweep(load_experiment(path, code_from), path.with_suffix(".csv"), Here, 1)


def refused(path: Path, *code_from: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_experiment(path, code_from)
    assert str(caught.value).startswith(f"{path}: policies[0]: ")
    return str(caught.value)


@pytest.mark.parametrize("where", ["mine.py", "below/more/mine.py"])
def test_policies_beside_an_experiment_and_below_run(folders: Folders, where: str) -> None:
    folders.policy(folders.experiments / where)
    assert not swept(folders.experiment(f"{where}:Mine")).failures


@pytest.mark.release
@pytest.mark.parametrize("name", ["../elsewhere/mine.py", "below/../../elsewhere/mine.py", "{elsewhere}/mine.py"])
def test_policies_of_other_folders_do_not_run_unless_allowed(folders: Folders, name: str, capsys: Capture) -> None:
    mine = folders.policy(folders.elsewhere / "mine.py")
    (folders.experiments / "below").mkdir()
    path = folders.experiment(f"{name.format(elsewhere=folders.elsewhere)}:Mine")
    assert refused(path).endswith(f"{mine} {REFUSED}")
    assert cli.main(["sweep", str(path), "--jobs", "1", "--code-from", str(folders.experiments)]) == 2
    assert capsys.readouterr().err == f"{path}: policies[0]: {mine} {REFUSED}\n"
    assert folders.ran == 0 and not path.with_suffix(".csv").exists()
    assert cli.main(["sweep", str(path), "--jobs", "1", "--code-from", str(folders.elsewhere)]) == 0
    assert folders.ran > 0


def test_links_are_followed_before_anything_is_allowed(folders: Folders) -> None:
    mine = folders.policy(folders.elsewhere / "mine.py")
    (folders.experiments / "link.py").symlink_to(mine)
    (folders.experiments / "below").symlink_to(folders.elsewhere)
    for name in ("link.py", "below/mine.py"):
        assert refused(folders.experiment(f"{name}:Mine")).endswith(f"{mine} {REFUSED}")
    assert folders.ran == 0
    code = registry.code_of(f"{folders.experiments / 'link.py'}:Mine")
    assert code is not None and code.file == mine
    linked = folders.elsewhere / "experiments"
    linked.symlink_to(folders.experiments)
    folders.policy(folders.experiments / "own.py")
    folders.experiment("own.py:Mine")
    assert not swept(linked / "e.toml").failures, "the folder itself may be reached by a link"


def test_a_folder_whose_name_begins_alike_is_another(folders: Folders) -> None:
    folders.policy(folders.experiments.with_name("experiments2") / "mine.py")
    assert REFUSED in refused(folders.experiment("../experiments2/mine.py:Mine"))


def test_installed_modules_run(folders: Folders, modules: Callable[[Path], None]) -> None:
    folders.policy(folders.elsewhere / "made_up_policies" / "inner.py")
    (folders.elsewhere / "made_up_policies" / "__init__.py").write_text("")
    modules(folders.elsewhere)
    assert not swept(folders.experiment("made_up_policies.inner:Mine")).failures


@pytest.mark.parametrize("module", ["made_up_policy", "made_up_policies.inner", "made_up_namespace.inner"])
def test_modules_of_the_current_folder_do_not_run_unless_allowed(
    folders: Folders, modules: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    here = folders.elsewhere
    for name in ("made_up_policy.py", "made_up_policies/__init__.py", "made_up_policies/inner.py"):
        folders.policy(here / name)
    folders.policy(here / "made_up_namespace" / "inner.py")
    monkeypatch.chdir(here)
    for entry in (str(here), ""):  # as python -m and an empty part of PYTHONPATH have it
        modules(Path(entry))
        path = folders.experiment(f"{module}:Mine")
        assert refused(path).endswith(f".py) {REFUSED}")
        assert folders.ran == 0, "not even the packages that it is in"
    assert load_experiment(path, [here]).code[0].module == module
    assert folders.ran == 0
    monkeypatch.chdir(folders.experiments)
    assert load_experiment(path).code[0].module == module, "installed, seen from another folder"


def test_a_module_beside_the_experiment_runs_from_the_current_folder(
    folders: Folders, modules: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.policy(folders.experiments / "made_up_policy.py")
    monkeypatch.chdir(folders.experiments)
    modules(folders.experiments)
    assert not swept(folders.experiment("made_up_policy:Mine")).failures


def test_what_installed_packages_offer_runs_from_any_folder(
    folders: Folders, modules: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.policy(folders.elsewhere / "made_up_policy.py")
    modules(folders.elsewhere)
    monkeypatch.chdir(folders.elsewhere)
    offered = type("Offered", (Leftover,), {"__module__": "made_up_policy", "name": "offered"})
    monkeypatch.setattr(registry, "policies", lambda: {"offered": offered, "serial": Leftover})
    (code,) = load_experiment(folders.experiment("offered")).code
    assert (code.module, code.offered) == ("made_up_policy", True)


@pytest.mark.parametrize("name", ["no_such_module", "sys", ".relative", "", "made up", "a..b"])
def test_modules_that_there_are_not_are_one_line(folders: Folders, name: str) -> None:
    assert refused(folders.experiment(f"{name}:Mine")).endswith(" expected a module with the policy's class")


def test_what_will_run_is_listed_before_it_runs(folders: Folders) -> None:
    mine = folders.experiments / "mine.py"
    mine.write_text("import sys\n\nprint('runs now', file=sys.stderr)\nraise RuntimeError('no more')\n")
    path = folders.experiment("mine.py:Mine")
    command = [sys.executable, "-m", "gpusim", "sweep", str(path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        f"gpusim sweep: runs the policies in {mine}",
        "runs now",
        f"{path}: policies mine.py:Mine: cannot be run: RuntimeError: no more; "
        "expected a Python file with the policy's class",
    ]


def test_each_file_is_listed_once_and_gpusims_own_policies_are_not(folders: Folders, capsys: Capture) -> None:
    mine = folders.policy(folders.experiments / "mine.py")
    path = folders.experiment('serial", "mine.py:Mine", "mine.py:Mine:first=5x5')
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if " runs " in line] == [
        f"gpusim sweep: runs the policies in {mine}"
    ]


def test_code_runs_once_a_point_and_once_before(folders: Folders) -> None:
    folders.policy(folders.experiments / "mine.py")
    path = folders.experiment("mine.py:Mine", seeds="[0, 1, 2]")
    experiment = load_experiment(path)
    asked = points(experiment)
    assert folders.ran == 0, "neither who a point is nor what an experiment asks for"
    swept(path)
    assert folders.ran == 1 + len(asked) == 4


def test_a_worker_runs_no_other_code_than_was_allowed(folders: Folders) -> None:
    mine = folders.policy(folders.experiments / "mine.py")
    (point,) = points(load_experiment(folders.experiment("mine.py:Mine")))
    mine.write_text(mine.read_text() + "ANOTHER = 1\n")
    assert point.task is not None
    assert "is not what it was when the sweep began" in compute.compute(point.task).error
    assert folders.ran == 0


def test_a_file_edited_within_its_timestamp_runs_as_it_is(folders: Folders) -> None:
    """Python takes a compiled file for that of a source of the same time and size."""
    mine = folders.experiments / "mine.py"
    for first in ("3x3", "5x5"):
        mine.write_text(
            f"from gpusim.policies.hardware import Leftover\n\n\nclass Mine(Leftover):\n    x = '{first}'\n"
        )
        os.utime(mine, (1e9, 1e9))
        assert type(registry.policy_from(f"{mine}:Mine")).x == first  # type: ignore[attr-defined]


def test_what_a_policy_prints_is_not_among_what_a_sweep_prints(folders: Folders, capsys: Capture) -> None:
    mine = folders.policy(folders.experiments / "mine.py")
    mine.write_text(mine.read_text() + "\n\nprint('hello')\n")
    assert cli.main(["sweep", str(folders.experiment("mine.py:Mine")), "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == 0


def test_a_policy_that_cannot_be_made_is_one_line(folders: Folders) -> None:
    mine = folders.policy(folders.experiments / "mine.py")
    mine.write_text(mine.read_text() + "\n    def __post_init__(self):\n        1 / 0\n")
    with pytest.raises(InputError, match=r"making it raised ZeroDivisionError: division by zero \(mine.py, line \d+\)"):
        swept(folders.experiment("mine.py:Mine"))


def test_a_colon_in_the_folders_name(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    folders = Folders(tmp_path / "a:b")
    folders.policy(folders.experiments / "mine.py")
    assert not swept(folders.experiment("mine.py:Mine:first=5x5")).failures
