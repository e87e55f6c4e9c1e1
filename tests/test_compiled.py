"""Which core runs, what is said of it, and that compilers agree to the bit."""

from __future__ import annotations

import importlib.machinery
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from conftest import REPOSITORY
from cores import is_compiled

from gpusim.engine import compiled, core
from gpusim.trace.file import SAMPLES

PACKAGE = compiled.PACKAGE
LINE_OF_PLAIN = "gpusim: the core is not compiled; "
LINE_OF_STALE = "gpusim: the compiled core is not of these sources; "

needs_compiled = pytest.mark.skipif(not is_compiled(), reason="the core is not compiled here")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package with a small trace, without a compiled core."""
    shutil.copytree(REPOSITORY / "gpusim", tmp_path / "gpusim", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__py*"))
    shutil.copytree(REPOSITORY / "gpus", tmp_path / "gpus")
    shutil.copy(REPOSITORY / "traces" / "spaa20_table1.json", tmp_path)
    return tmp_path


def copy_compiled(tree: Path) -> None:
    shutil.copy(str(core.__file__), tree / "gpusim" / "engine")


def replayed(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpusim", "replay", "spaa20_table1.json", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)


def core_of(tree: Path) -> str:
    code = (
        "import gpusim.engine.core as core, gpusim.engine as engine; assert engine.core is core; print(core.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True)
    assert done.stderr == ""  # nothing runs yet
    return Path(done.stdout.strip()).name


@pytest.mark.release
def test_plain_python_says_so_in_one_line_and_gives_the_same_bytes(tree: Path) -> None:
    done = replayed(tree, "--json", "--policy", "leftover", "--policy", "even")
    assert done.stderr.startswith(LINE_OF_PLAIN)
    assert done.stderr.count("\n") == 1
    if is_compiled():
        copy_compiled(tree)
        quick = replayed(tree, "--json", "--policy", "leftover", "--policy", "even")
        assert (quick.stderr, quick.stdout) == ("", done.stdout)


@pytest.mark.release
@needs_compiled
def test_a_compiled_core_of_other_sources_does_not_run(tree: Path) -> None:
    copy_compiled(tree)
    for source in compiled._files(tree / "gpusim"):
        text = source.read_text()
        source.write_text(f"{text}\n# one more line\n")
        assert compiled.source_hash(tree / "gpusim") != core.BUILT_FROM, source
        source.write_text(text)
    assert core_of(tree) == Path(str(core.__file__)).name
    source.write_text(f"{text}\n# one more line\n")
    assert core_of(tree) == "core.py"
    done = replayed(tree, "--json", "--policy", "serial")
    assert done.stderr.startswith(LINE_OF_STALE)
    assert "pip install -e ." in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_compiled_core_that_cannot_be_loaded_does_not_run(tree: Path) -> None:
    (tree / "gpusim" / "engine" / f"core{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"not a library")
    assert core_of(tree) == "core.py"


def test_occupancy_says_nothing_of_the_core(tree: Path) -> None:
    arguments = ["--gpu", "h200", "--threads", "256", "--registers", "80", "--shared-memory", "0"]
    command = [sys.executable, "-m", "gpusim", "occupancy", *arguments]
    assert subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stderr == ""


@needs_compiled
def test_the_build_puts_the_hash_of_the_sources_into_the_core() -> None:
    assert compiled.source_hash() == core.BUILT_FROM
    assert not hasattr(compiled.plain_core("gpusim_plain_core_of_a_test"), "BUILT_FROM")


# ---- the build: needs setuptools, as the build's own environment has it


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    pytest.importorskip("setuptools")
    monkeypatch.chdir(REPOSITORY)
    return runpy.run_path(str(REPOSITORY / "build_backend.py"))


def copy_sources(target: Path) -> None:
    ignored = (".*", "build", "dist", "*.egg-info", "*.so", "*.pyd", "__pycache__")
    shutil.copytree(REPOSITORY, target, ignore=shutil.ignore_patterns(*ignored))


@pytest.mark.release
def test_a_source_distribution_has_all_that_the_build_reads(backend: dict[str, object], tmp_path: Path) -> None:
    copy_sources(tmp_path / "tree")
    build = "import build_backend; build_backend.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path / "tree", check=True, capture_output=True)
    (archive,) = (tmp_path / "tree" / "dist").glob("gpusim-*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    files = (*compiled._files(PACKAGE), PACKAGE / "engine" / "compiled.py")
    core_sources = {path.relative_to(REPOSITORY).as_posix() for path in files}
    assert {"pyproject.toml", "setup.py", "build_backend.py", "gpus/h200.toml", *core_sources} <= names


def emptied_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("CC", "LDSHARED"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.skipif(sys.platform == "win32", reason="zig stands in for compilers of POSIX systems")
@pytest.mark.parametrize("obtainable", [True, False])
def test_a_compiler_is_asked_for_only_where_there_is_none(
    backend: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obtainable: bool
) -> None:
    names = backend["missing_compiler"].__globals__  # type: ignore[attr-defined]
    if not Path(names["get_python_inc"](), "Python.h").is_file():
        pytest.skip("needs Python's headers")
    monkeypatch.setitem(names, "_obtainable", lambda: obtainable)
    if names["has_compiler"]():
        assert names["missing_compiler"]() == []
    names["has_compiler"].cache_clear()
    emptied_path(tmp_path, monkeypatch)
    assert names["missing_compiler"]() == (["ziglang"] if obtainable else [])
    monkeypatch.setitem(names, "get_python_inc", lambda: str(tmp_path))  # no Python.h: no compiler would help
    assert names["missing_compiler"]() == []


def test_an_editable_install_leaves_bytecode_for_the_first_run(
    backend: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpusim" / "trace").mkdir(parents=True)
    source = tmp_path / "gpusim" / "trace" / "format.py"
    source.write_text("FORMAT_VERSION = 1\n")
    build = backend["build_editable"]
    meta = build.__globals__["build_meta"]  # type: ignore[attr-defined]
    monkeypatch.setattr(meta, "build_editable", lambda *given: f"{given[0]}/gpusim.whl")
    assert build("wheels") == "wheels/gpusim.whl"  # type: ignore[operator]
    assert Path(cache_from_source(str(source))).is_file()


@pytest.mark.benchmark  # fetches a compiler of 100 MB: run with -m benchmark
@pytest.mark.skipif(sys.platform == "win32", reason="zig stands in for compilers of POSIX systems")
def test_without_a_compiler_the_wheel_has_a_compiled_core_that_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_sources(tmp_path / "tree")
    emptied_path(tmp_path, monkeypatch)
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", "dist", "./tree"], cwd=tmp_path, check=True)
    (wheel,) = (tmp_path / "dist").glob("gpusim-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (built,) = (name for name in archive.namelist() if name.startswith("gpusim/engine/core.") and ".so" in name)
        assert {f"gpusim/samples/{name}.json.gz" for name in SAMPLES} <= {*archive.namelist()}
        archive.extractall(tmp_path / "installed")
    assert core_of(tmp_path / "installed") == Path(built).name
    trace = REPOSITORY / "traces" / "inception_3a.json.gz"
    command = [sys.executable, "-m", "gpusim", "replay", str(trace), "--json"]
    found = [
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=os.environ)
        for folder in (tmp_path / "installed", REPOSITORY)
    ]
    assert found[0].stdout == found[1].stdout
    assert found[0].stderr == ""
