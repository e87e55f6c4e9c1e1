"""Policies that installed packages offer: one that is broken is a line of warning, and all else goes on."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusim import InputError, cli
from gpusim.policies.registry import policies, policy_from

INCEPTION_3A = str(Path(__file__).resolve().parent.parent / "traces" / "inception_3a.json.gz")
HEADER = "from gpusim.policies.interface import Grant, Partition, Policy\n"
WORKS = HEADER + (
    "class {name}(Policy):\n"
    "    name = 'offered'\n"
    "    summary = 'plain streams'\n"
    "    limit: int = 3\n"
    "    def partition(self, view):\n"
    "        return Partition(tuple(Grant(kernel.id) for kernel in view.kernels))\n"
)
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, on the path; empty."""
    monkeypatch.syspath_prepend(str(tmp_path))
    policies.cache_clear()
    yield tmp_path
    policies.cache_clear()
    for name in [name for name in sys.modules if name.startswith("pack_")]:
        del sys.modules[name]


def install(folder: Path, package: str, module: str, *entries: str) -> None:
    """A package of one module that offers some policies."""
    (folder / f"{package}.py").write_text(module)
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gpusim.policies]\n" + "".join(f"{entry}\n" for entry in entries))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING, "gpusim"):
        policies()
    return [record.getMessage() for record in caplog.records]


def test_a_policy_of_an_installed_package(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(installed, "pack_works", WORKS.format(name="Mine"), "offered = pack_works:Mine")
    assert warned(caplog) == []
    assert policy_from("offered:limit=5").limit == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "entry", "says"),
    [
        ("import no_such_module\n", "pack_broken:Mine", "cannot be imported: ModuleNotFoundError: No module named"),
        ("raise SystemExit(0)\n", "pack_broken:Mine", "cannot be imported: SystemExit: 0"),
        ("def broken(:\n", "pack_broken:Mine", "cannot be imported: SyntaxError: "),
        ("Mine = 3\n", "pack_broken:Mine", "3 is no policy"),
        ("class Mine: pass\n", "pack_broken:Mine", "'Mine' is no policy"),
        ("", "pack_broken:Mine", "cannot be imported: AttributeError: "),
        (WORKS.format(name="Mine"), "pack_broken:Mine()", "cannot be imported: AttributeError: "),
        (HEADER + "class Mine(Policy): pass\n", "pack_broken:Mine", "'Mine' does not define partition"),
        (
            WORKS.format(name="Mine").replace(": int", ": 'Nowhere'"),
            "pack_broken:Mine",
            "fields that cannot be parameters: N",
        ),
        (WORKS.format(name="Mine").replace("summary", "other"), "pack_broken:Mine", "has no summary"),
    ],
)
def test_one_that_is_broken_is_left_out(
    module: str, entry: str, says: str, installed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(installed, "pack_broken", module, f"offered = {entry}")
    (line,) = warned(caplog)
    assert line.startswith(f"left out: policy offered = {entry} of an installed package: ") and says in line
    assert "\n" not in line
    assert "offered" not in policies() and "smk" in policies()


def test_of_two_with_one_name_the_first_stays(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(installed, "pack_b", WORKS.format(name="Mine"), "offered = pack_b:Mine")
    install(installed, "pack_a", WORKS.format(name="Mine"), "offered = pack_a:Mine", "smk = pack_a:Mine")
    lines = warned(caplog)
    assert len(lines) == 2
    assert "policy offered = pack_b:Mine of an installed package: has the name of pack_a:Mine" in lines[0]
    assert "policy smk = pack_a:Mine of an installed package: has the name of gpusim.policies.smk:SMK" in lines[1]
    assert policies()["offered"].__module__ == "pack_a"


def test_commands_go_on_beside_a_broken_one(installed: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a process of its own
    install(installed, "pack_bad", "import no_such_module\n", "offered = pack_bad:Mine")
    assert cli.main(["policies", "--json"]) == 0
    captured = capsys.readouterr()
    assert "smk" in [policy["name"] for policy in json.loads(captured.out)]
    assert captured.err.count("\n") == 1 and captured.err.startswith("left out: policy offered = pack_bad:Mine")
    policies.cache_clear()
    assert cli.main(["replay", INCEPTION_3A, "--policy", "offered", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 2 and captured.err.startswith("left out: policy offered = pack_bad:Mine")


def test_a_shipped_policy_is_found_without_other_packages(installed: Path, capsys: Capture) -> None:
    install(installed, "pack_bad", "raise SystemExit('imported')\n", "offered = pack_bad:Mine")
    assert cli.main(["replay", INCEPTION_3A, "--policy", "serial", "--policy", "warped-slicer", "--json"]) == 0
    assert capsys.readouterr().err == "" and "pack_bad" not in sys.modules


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            WORKS.replace("    limit", "    def __post_init__(self):\n        1 / 0\n    limit"),
            "making it raised ZeroDiv",
        ),
        (WORKS.replace("int = 3", "'Nowhere' = 3"), "has fields that cannot be parameters: NameError"),
        (WORKS + "exit(0)\n", "cannot be run: SystemExit: 0"),
        (WORKS.replace("{name}", "Other"), "'Mine' is no policy"),
        (WORKS.replace("    name = 'offered'\n", ""), "'Mine' has no name; expected a class attribute"),
    ],
)
def test_a_file_of_ones_own_that_is_broken(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text.replace("{name}", "Mine"))
    with pytest.raises(InputError, match=says):
        policy_from(f"{file}:Mine")


def test_a_parameter_given_twice() -> None:
    with pytest.raises(InputError, match="policy leftover: gives channels twice; expected each parameter once"):
        policy_from("leftover:channels=8,channels=1")


@pytest.mark.parametrize("text", ["inter-sm:granularity=1_0", "right-size:tolerance=1_0", "inter-sm:granularity=١٢"])
def test_a_parameter_that_only_python_reads_as_a_number(text: str) -> None:
    with pytest.raises(InputError, match=r"^policy .* is no (integer|number); expected a value of type"):
        policy_from(text)


def test_fields_of_an_undecorated_class_are_parameters(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WORKS.format(name="Mine"))
    assert policy_from(f"{tmp_path}/mine.py:Mine:limit=7").limit == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "holds no class; expected a subclass of gpusim.policies.interface.Policy, named as"),
        ("def broken(:\n", "is no Python (SyntaxError: "),
        ("class One: pass\nclass Two: pass\n", "is given without a class; expected one of "),
    ],
)
def test_a_file_without_its_class(text: str, says: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "p.py"
    file.write_text(text)
    assert cli.main(["replay", INCEPTION_3A, "--policy", str(file)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{file}: policy: {says}") and err.count("\n") == 1
    if "One" in text:
        assert err.endswith(f"one of {file}:One, {file}:Two\n")


def test_a_file_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["replay", INCEPTION_3A, "--policy", str(tmp_path / "p.py")]) == 2
    assert "p.py: policy: no such file" in capsys.readouterr().err
