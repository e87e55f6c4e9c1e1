"""The Python interface: what is exported, and objects that are made in Python."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpusim
from gpusim import InputError, Kernel, KernelLaunch, Stream, Trace
from gpusim.policies.hardware import Leftover
from gpusim.policies.spatial import InterSM

ROOT = Path(__file__).parents[1]
TABLE_1 = ROOT / "traces" / "spaa20_table1.json"


def launch(**changes: object) -> KernelLaunch:
    fields = {"name": "k", "grid": [132, 1, 1], "block": [256, 1, 1], "registers_per_thread": 64, "duration_us": 10.0}
    return KernelLaunch(**{**fields, **changes})  # type: ignore[arg-type]


def made() -> Trace:
    return Trace(name="made", device="h200", streams=[Stream(name="a", operations=[Kernel(id="k", kernel=launch())])])  # type: ignore[arg-type]


def test_whatever_is_exported_is_there() -> None:
    for name in gpusim.__all__:
        assert callable(getattr(gpusim, name))


def test_a_trace_is_built_of_lists_and_is_what_a_file_would_say(tmp_path: Path) -> None:
    made().save(tmp_path / "made.json")
    assert gpusim.load_trace(tmp_path / "made.json") == made()
    assert made().version == 1 and made().streams[0].operations[0].kind == "kernel"
    assert gpusim.replay(made(), "h200").makespan_us == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: launch(duration_us=-1), "duration_us: is -1; expected a number of at least 0.001 (us)"),
        (lambda: launch(grid=[132, 1]), "grid[2]: missing; expected a value here"),
        (lambda: launch(registers=64), "registers: unknown key; expected one of name, grid"),
        (lambda: Kernel(id="k", kernel=3), "kernel: is 3; expected an object"),  # type: ignore[arg-type]
        (lambda: Kernel(id="k", kernel=launch(), depends_on="b"), "depends_on: is 'b'; expected a list"),  # type: ignore[arg-type]
        (lambda: Stream(name="a", operations=[3]), "operations[0]: is 3; expected an object"),  # type: ignore[list-item,arg-type]
        (lambda: Trace(name="t", device="h200", streams=()), "streams: has 0 operations; expected at least one"),
        (lambda: KernelLaunch("k"), "KernelLaunch: has arguments without a name"),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_objects_that_cannot_be_are_refused_in_one_line(make: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)


def test_a_file_must_say_its_version_and_kinds(tmp_path: Path) -> None:
    text = TABLE_1.read_text(encoding="utf-8")
    for line, said in (('"version": 1,', "version: missing"), ('"kind": "convolution",', "kind: missing")):
        assert line in text
        (tmp_path / "t.json").write_text(text.replace(line, "", 1), encoding="utf-8")
        with pytest.raises(InputError, match=said):
            gpusim.load_trace(tmp_path / "t.json")


@pytest.mark.parametrize("gpu", ["k40c", None, gpusim.load_gpu("k40c"), ROOT / "gpus" / "k40c.toml"])
@pytest.mark.parametrize("trace", [str(TABLE_1), TABLE_1, gpusim.load_trace(TABLE_1)], ids=["text", "path", "trace"])
def test_traces_and_gpus_are_given_as_such_or_by_name(trace: object, gpu: object) -> None:
    assert gpusim.replay(trace, gpu, "serial").gpu == "k40c"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((3, "h200"), "trace: is 3; expected a Trace, or the path of a file"),
        ((TABLE_1, 3), "gpu: is 3; expected a GPU, the name of one that ships, or the path of a file"),
        ((TABLE_1, "h300"), "unknown GPU 'h300'"),
        ((TABLE_1, "k40c", 3), "policy: is 3; expected an object of a subclass of Policy, or its name"),
        ((TABLE_1, "k40c", gpusim.Policy), "policy: is <class"),
    ],
)
def test_other_arguments_are_refused_in_one_line(arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(InputError) as caught:
        gpusim.replay(*arguments)  # type: ignore[arg-type]
    assert said in str(caught.value) and "\n" not in str(caught.value)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: gpusim.compare(TABLE_1, "k40c", [3]), "policies: is [3]; expected names of policies"),  # type: ignore[list-item]
    (lambda: gpusim.compare(TABLE_1, "k40c", 3), "policies: is 3; expected names of policies"),  # type: ignore[arg-type]
    (lambda: gpusim.replay(TABLE_1, seed="x"), "seed: is 'x'; expected a whole number"),  # type: ignore[arg-type]
    (lambda: gpusim.Session("h200").seeded(-1), "seed: is -1; expected a whole number"),
    (lambda: gpusim.Session("h200").seeded("1"), "seed: is '1'; expected a whole number"),  # type: ignore[arg-type]
    (lambda: gpusim.compare(TABLE_1, policies=[3]), "policies: is [3]; expected names of policies"),  # type: ignore[list-item]
    (lambda: gpusim.load_gpu(3), "gpu: is 3; expected the path of a file"),  # type: ignore[arg-type]
    (lambda: gpusim.load_trace(3), "trace: is 3; expected the path of a file"),  # type: ignore[arg-type]
    (lambda: made().save(3), "path: is 3; expected the path of a file"),  # type: ignore[arg-type]
    (lambda: gpusim.what_if("h200", 3), "changes: is 3; expected numbers by quantity"),  # type: ignore[arg-type]
    (lambda: gpusim.what_if("h200", {"sm_count": [3]}), "sm_count: is [3]; expected a number"),  # type: ignore[dict-item]
    (lambda: gpusim.select(TABLE_1, memory_bytes="1MiB"), "memory_bytes: is '1MiB'"),  # type: ignore[arg-type]
    (lambda: gpusim.select(TABLE_1, objective="x"), "objective: is 'x'; expected one of makespan, memory"),  # type: ignore[arg-type]
    (lambda: gpusim.select(TABLE_1, sharing="x"), "sharing: is 'x'; expected one of streams, hardware, all"),
    (lambda: gpusim.pairs(TABLE_1, step=3), "step: is 3; expected a function that takes the name of a step"),  # type: ignore[arg-type]
    (lambda: gpusim.Session("k40c").compare(TABLE_1, step=3), "step: is 3; expected a function"),  # type: ignore[arg-type]
    (lambda: gpusim.Session("k40c").kernels(3), "trace: is 3; expected a Trace, or the path of a file"),  # type: ignore[arg-type]
    (lambda: gpusim.Session("k40c").makespans_us(TABLE_1, 3), "policies: is 3; expected names of policies"),  # type: ignore[arg-type]
    (lambda: gpusim.select(TABLE_1, step=3), "step: is 3; expected a function"),  # type: ignore[arg-type]
    (lambda: gpusim.advise([TABLE_1, TABLE_1], step=3), "step: is 3; expected a function"),  # type: ignore[arg-type]
    (lambda: gpusim.import_profile(TABLE_1, device=[3]), "device: is [3]; expected the index of a GPU"),  # type: ignore[arg-type]
    (lambda: gpusim.import_profile(TABLE_1, part="x"), "part: is 'x'; expected a gpusim.Part"),  # type: ignore[arg-type]
    (lambda: gpusim.pairs(3), "trace: is 3; expected a Trace, or the path of a file"),  # type: ignore[arg-type]
    (lambda: gpusim.import_profile(3), "profile: is 3; expected the path of a file"),  # type: ignore[arg-type]
    (lambda: gpusim.import_profile(b"x"), "profile: is b'x'; expected the path of a file"),
    (lambda: gpusim.import_profile(TABLE_1, "x"), "format: is 'x'; expected one of ncu, kineto, nsys, nvprof"),
    (lambda: gpusim.save_timeline("x.json", TABLE_1, 3), "results: holds 3; expected results of gpusim.replay"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), WRONG)
def test_objects_of_a_wrong_type_are_one_line(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_one_policy_needs_no_list_and_occupancy_takes_names() -> None:
    assert list(gpusim.compare(TABLE_1, policies="leftover").table.policy) == ["leftover"]
    limits = {"threads_per_block": 256, "registers_per_thread": 80, "shared_memory_per_block": 8602}
    assert gpusim.occupancy("h200", **limits) == gpusim.occupancy(gpusim.load_gpu("h200"), **limits)


def test_importing_is_quick_for_it_imports_little() -> None:
    script = "import sys, gpusim; print(*sorted(name for name in sys.modules if name.startswith('gpusim')))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.split() == ["gpusim"]


def test_policies_are_compared_in_one_table() -> None:
    found = gpusim.compare(TABLE_1, policies=["leftover", "serial"])
    table = found.table
    assert list(table.columns) == ["policy", "makespan_us", "speedup", "model_error", "model_error_reason"]
    assert list(table.makespan_us) == sorted(table.makespan_us) and set(table.policy) == {"leftover", "serial"}
    serial = table.set_index("policy").loc["serial"]
    assert serial.speedup == 1.0 and (serial.model_error != serial.model_error) == bool(serial.model_error_reason)
    assert "stp" in gpusim.compare(TABLE_1, "k40c", ["leftover"], restart=True).table.columns


def test_policy_objects_are_compared_by_their_names() -> None:
    class Mine(Leftover):
        name = "mine"

        def __init__(self, first: str) -> None:
            super().__init__()
            self.first_of_all = first

    found = gpusim.compare(TABLE_1, policies=[InterSM(sms="7+8"), Mine("b"), "leftover"]).table
    by_name = found.set_index("policy").makespan_us
    assert set(found.policy) == {"inter-sm:sms=7+8", "mine", "leftover"}
    assert by_name["mine"] == by_name["leftover"]
    assert by_name["inter-sm:sms=7+8"] == gpusim.replay(TABLE_1, policy="inter-sm:sms=7+8").makespan_us
    assert list(gpusim.compare(TABLE_1, policies=Mine("b"), restart=True).table.policy) == ["mine"]
    one = Mine("b")
    assert len(gpusim.compare(TABLE_1, policies=[one, one]).table) == 1
    with pytest.raises(InputError, match="has two of the name 'mine'; expected a name of its own for each"):
        gpusim.compare(TABLE_1, policies=[Mine("a"), Mine("b")])


def test_every_argument_of_a_function_is_documented() -> None:
    for function in filter(inspect.isfunction, (getattr(gpusim, name) for name in gpusim.__all__)):
        said = re.findall(r"^ +(\w+): ", inspect.getdoc(function).partition("Args:")[2], re.MULTILINE)
        assert set(inspect.signature(function).parameters) <= set(said), function.__name__
        assert "as for `" not in inspect.getdoc(function)


def test_results_print_as_a_line() -> None:
    module = ROOT / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
    found = (
        gpusim.compare(TABLE_1),
        gpusim.select(module, streams="branches", sharing="streams"),
        gpusim.advise([module, module], jobs=1),
        gpusim.pairs(module),
    )
    starts = ("Comparison(trace=", "Selection(trace=", "Advice(trace=", "Pairs(trace=")
    for one, start in zip(found, starts, strict=True):
        assert repr(one) == str(one) and repr(one).startswith(start) and len(repr(one)) < 200
    assert repr(found[0]).endswith(f"makespan_us={found[0].table.makespan_us[0]:.1f})")


def test_a_comparison_shows_itself_in_a_notebook() -> None:
    found = gpusim.compare(made(), "h200", ["serial", "leftover"])
    page = found._repr_html_()
    assert page.count("<tr") == 3 and "made on h200" in page and "<script" not in page
    assert [text.get_text() for text in found.plot().axes[0].get_yticklabels()] == ["serial", "leftover"]


def test_plans_pairs_and_what_ifs_take_names_and_paths() -> None:
    module = ROOT / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
    assert gpusim.select(module, "h200", sharing="streams").best.makespan_us > 0.0
    assert gpusim.pairs(str(module)).gpu == "h200"
    wider = gpusim.what_if("h200", {"sm_count": 264, "sms_per_tpc": "x1"})
    assert wider.name == "h200 with sm_count=264"
    result = gpusim.replay(module, wider)
    assert (result.gpu, result.notes[0]) == (wider.name, f"recorded on h200, replayed on {wider.name}: not validated")
