"""The house: what its folders are, and which way their imports point."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gpusim"
FOLDERS = (  # each imports only from itself and those after it
    "commands",
    "sweep",
    "choose",
    "studies",
    "record",
    "parallel",
    "io",
    "networks",
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
MOST_AT_THE_TOP = 20
MOST_LINES = 600


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in it, type checking included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in known or node.module in known:
                    yield whole if whole in known else str(node.module)


def room(module: str) -> str:
    """The folder of a module, or its own name where it stands beside the folders."""
    return module.split(".")[1] if "." in module else "__init__"


def test_every_folder_is_in_the_list():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders == set(FOLDERS)
    assert {path.stem for path in PACKAGE.glob("*.py")} == set(ENTRY_POINTS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder):
    known = modules()
    allowed = {*FOLDERS[FOLDERS.index(folder) :]}
    wrong = [
        f"{module} -> {other}"
        for module, path in known.items()
        if room(module) == folder
        for other in imported(path, known)
        if room(other) not in allowed and other != "gpusim"
    ]
    assert wrong == []


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


def test_nothing_in_the_package_imports_the_tests():
    tests = {path.stem for path in Path(__file__).parent.rglob("*.py")}
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & (tests | {"tests"}), path


def test_the_top_of_the_package_fits_on_a_screen():
    shown = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(shown) <= MOST_AT_THE_TOP, sorted(shown)


def test_no_file_is_too_long_to_read():
    lengths = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules().values()
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
