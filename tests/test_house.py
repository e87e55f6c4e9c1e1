"""The house: what its folders are, and which way their imports point."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gpusim"
ROOMS = (  # each imports only from itself and those after it
    "commands",
    "sweeps",
    "choose",
    "lab",
    "training",
    "session",
    "io",
    "calibrate",
    "engine",
    "policies",
    "results",
    "model",
    "trace",
    "hardware",
    "common",
)
ENTRY_POINTS = ("__init__", "__main__", "cli")  # files beside the folders: they may import anything
BESIDE = "common"  # errors, files, tables: every room may use them
MOST_ARROWS = 60  # from room to room
MOST_AT_THE_TOP = 20
MOST_LINES = 600


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file, wherever in it, type checking included."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports."""
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        else:
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in known or node.module in known:
                    yield whole if whole in known else str(node.module)


def room(module: str) -> str:
    """The folder of a module, or its own name where it stands beside the folders."""
    return module.split(".")[1] if "." in module else "__init__"


def test_every_room_is_in_the_list():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert folders | files == {*ROOMS, *ENTRY_POINTS}


@pytest.mark.parametrize("folder", ROOMS)
def test_imports_point_one_way(folder):
    known = modules()
    allowed = {*ROOMS[ROOMS.index(folder) :]}
    wrong = [
        f"{module} -> {other}"
        for module, path in known.items()
        if room(module) == folder
        for other in imported(path, known)
        if room(other) not in allowed and other != "gpusim"
    ]
    assert wrong == []


def test_few_arrows_between_rooms():
    known = modules()
    arrows = {(room(module), room(other)) for module, path in known.items() for other in imported(path, known)}
    between = {(one, other) for one, other in arrows if one != other and {one, other} <= {*ROOMS} - {BESIDE}}
    assert len(between) <= MOST_ARROWS, sorted(between)


def test_a_replay_touches_no_recorder_and_no_training():
    script = (
        "import sys, gpusim, gpusim.cli\n"
        "found = [{name.split('.')[1] for name in sys.modules if name.startswith('gpusim.')}]\n"
        "gpusim.cli.main(['replay', 'traces/spaa20_table1.json', '--json'])\n"
        "found += [{name.split('.')[1] for name in sys.modules if name.startswith('gpusim.')}]\n"
        "print(*(rooms & {'lab', 'training', 'sweep'} for rooms in found), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert ran.stderr.split()[-2:] == ["set()", "set()"]


def test_no_circle_of_imports():
    known = modules()
    arrows = {
        module: {other for other in imported(path, known) if other not in ("gpusim", module)}
        for module, path in known.items()
        if module != "gpusim"
    }
    while True:  # take away what imports nothing that is left
        free = {module for module, others in arrows.items() if not others & arrows.keys()}
        if not free:
            break
        arrows = {module: others for module, others in arrows.items() if module not in free}
    assert arrows == {}


def test_nothing_in_the_package_imports_tests_or_studies():
    outside = {path.stem for path in Path(__file__).parent.rglob("*.py")} | {"tests", "experiments"}
    for path in modules().values():
        for node in imports(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            assert not {name.split(".")[0] for name in names} & outside, path


STUDIES = sorted((PACKAGE.parent / "experiments").rglob("*.py"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.relative_to(PACKAGE.parent).as_posix())
def test_what_studies_import_of_the_package_is_there(path):
    """Recorders among them, which only a machine with a GPU runs."""
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "gpusim":
            module = import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name) or f"{node.module}.{alias.name}" in modules(), alias.name


def test_the_top_of_the_package_fits_on_a_screen():
    shown = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(shown) <= MOST_AT_THE_TOP, sorted(shown)


def test_no_file_is_too_long_to_read():
    lengths = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules().values()
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
