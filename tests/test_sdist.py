"""A source distribution holds all that its tests need, and nothing that a run has left behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.release
ROOT = Path(__file__).resolve().parent.parent
SOURCE = ("gpusim", "gpus", "traces", "experiments", "docs", "tests", ".ci", ".github")
LEFT_BEHIND = (
    "experiments/mine.csv",
    "experiments/.mine.csv.lock",
    "gpusim/engine/core.so",
    "traces/__pycache__/x.pyc",
)
GENERATED = {"PKG-INFO", "setup.cfg"}
BUILD = """
import sys
sys.modules["Cython"] = None  # the core's C source is no part of it, and making it takes long
import build_backend
print(build_backend.build_sdist(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a source distribution unpacks to, made of a copy in which files were left behind."""
    pytest.importorskip("setuptools", minversion="77")
    copy, out = tmp_path_factory.mktemp("copy") / "gpusim", tmp_path_factory.mktemp("out")
    for part in SOURCE:
        shutil.copytree(ROOT / part, copy / part)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, copy)
    for name in LEFT_BEHIND:
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).touch()
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=copy, capture_output=True, check=True)
    (archive,) = out.iterdir()
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later have it
        packed.extractall(out)
    return out / archive.name.removesuffix(".tar.gz")


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_it_is_the_repository(unpacked: Path) -> None:
    """All that git tracks, and nothing that git ignores."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout")
    held = {name for name in files(unpacked) - GENERATED if not name.startswith("gpusim.egg-info/")}
    tracked = listed("--cached")
    assert tracked - held == set()
    assert held - tracked - listed("--others", "--exclude-standard") == set()


def listed(*which: str) -> set[str]:
    """Files of the checkout as git lists them."""
    done = subprocess.run(["git", "ls-files", *which], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).exists()}


def test_nothing_that_a_run_left_behind_is_in_it(unpacked: Path) -> None:
    assert not files(unpacked) & set(LEFT_BEHIND)


def test_its_tests_run(unpacked: Path) -> None:
    """A few of them, on the package that is in it."""
    chosen = ["tests/test_gpu.py", "tests/test_program_view.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
