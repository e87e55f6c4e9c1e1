"""Files that are no trace: what each fault is called, and that any other is one line."""

from __future__ import annotations

import copy
import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import FIRST, QUICK, convolution, document, kernel, operation, part, problem, stream
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from strategies import examples, traces

from gpusim.common.errors import InputError
from gpusim.trace.file import load_trace, parse_trace
from gpusim.trace.format import Trace

# ---- bad files


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.json: cannot be read \(No such file.*expected a regular file"):
        load_trace(tmp_path / "nothing.json")
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        load_trace(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        load_trace("a\0b")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"traceEvents": []}', "is a profile, not a trace; expected a trace, which import_profile makes of it"),
        (b"{", "line 1 column 2: is not JSON"),
        (b'{"version": 1,}', "is not JSON"),
        (b"\xff\xfe", "byte 0 is not UTF-8 text"),
        (b"[" * 4000, "is not JSON (Expecting value)" if sys.version_info >= (3, 13) else "nested too deeply"),
        (b"[" * 100_000, "has more than one object or list in 16 bytes"),
        (b'{"a": 1' + b', "a": 1' * 64 + b"}", "has an object of 65 keys; expected at most 64"),
        (b"[" * 400 + b"]" * 400, "is a list of 1; expected an object"),
        (b'{"version": 1, "notes": ' + b"[" * 400 + b"]" * 400 + b"}", "is not JSON (recursion limit"),
        (b"1" * 10_000, "too many digits"),
        (b"null", "is null; expected an object"),
        (b"[]", "is a list of 0"),
        (b'"x"', "is 'x'"),
        (gzip.compress(b"{}", mtime=0)[:-9], "gzip data is cut short"),
        (gzip.compress(b"{}" * 100, mtime=0)[:20], "gzip data is cut short"),
        (b"\x1f\x8b" + b"x" * 40, "is not valid gzip"),
        (gzip.compress(b"{}", mtime=0)[:-8] + b"x" * 8, "is not valid gzip"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b'{"version": 1, "name": "\\ud800"}', "is not JSON"),
    ],
)
def test_bytes_that_are_no_trace(data: bytes, expected: str) -> None:
    assert expected in problem(data)


def test_json_named_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(json.dumps(document()).encode())
    with pytest.raises(InputError, match="is not valid gzip"):
        load_trace(path)


def test_duplicate_keys_are_refused() -> None:
    text = json.dumps(document())
    assert problem(text.replace('"duration_us"', '"grid"').encode()).startswith(
        "streams[0].operations[0].kernel: key 'grid' given twice"
    )
    assert problem(text.replace('"device"', '"name"').encode()).startswith("key 'name' given twice")


@pytest.mark.parametrize("version", [3, 0, "1", 1.0, True, None, [1]])
def test_other_versions_are_refused(version: Any) -> None:
    line = problem(document(version=version, anything="else"))
    assert line.startswith("version: is ") and "expected 1 or 2, the versions of the trace format" in line


def test_a_missing_version_is_refused() -> None:
    assert problem({"name": "t"}).startswith("version: missing; expected 1")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"duration_us": -3.0}, "duration_us: is -3.0; expected a number of at least 0.001 (us)"),
        ({"duration_us": 0}, "duration_us: is 0; expected a number of at least 0.001 (us)"),
        ({"duration_us": 1e10}, "duration_us: is 10000000000.0; expected a number of at most 1000000000 (us)"),
        ({"duration_us": math.nan}, "duration_us: is nan; expected a finite number (us)"),
        ({"duration_us": -math.inf}, "duration_us: is -inf; expected a finite number (us)"),
        ({"duration_us": "12"}, "duration_us: is '12'; expected a number (us)"),
        ({"duration_us": True}, "duration_us: is true; expected a number (us)"),
        ({"duration_us": None}, "duration_us: is null; expected a number (us)"),
        ({"registers_per_thread": 256}, "registers_per_thread: is 256; expected a number of at most 255"),
        ({"registers_per_thread": 1.5}, "registers_per_thread: is 1.5; expected a whole number"),
        ({"registers_per_thread": 10**400}, "registers_per_thread: is 10000000"),
        ({"grid": [0, 1, 1]}, "grid[0]: is 0; expected a number of at least 1 (thread blocks)"),
        ({"grid": [2**31, 1, 1]}, "grid[0]: is 2147483648; expected a number of at most 2147483647"),
        ({"grid": [1, 65536, 1]}, "grid[1]: is 65536; expected a number of at most 65535"),
        ({"grid": [1, 1]}, "grid[2]: missing; expected a value here"),
        ({"grid": [1, 1, 1, 1]}, "grid: is a list of 4; expected at most 3 of them"),
        ({"grid": 5}, "grid: is 5; expected a list"),
        ({"grid": [65536, 65535, 1]}, "grid: has 4294901760 thread blocks; expected at most 2147483647"),
        ({"block": [1024, 2, 1]}, "block: has 2048 threads; expected at most 1024"),
        ({"block": [1, 1, 65]}, "block[2]: is 65; expected a number of at most 64 (threads)"),
        ({"stream": "side"}, "stream: is 'side'; expected main, internal0"),
        ({"stream": "internal0"}, "kernel: is on stream 'internal0'; expected stream main"),
        ({"name": ""}, "name: is ''; expected at least 1 characters"),
        ({"name": "a\nb"}, "name: has the unprintable character '\\n'; expected printable text"),
        ({"durations": 3}, "durations: unknown key; expected one of name, grid, block"),
        ({"a b": 3}, "kernel['a b']: unknown key; expected one of name, grid"),
        ({"mix": {"issue_cycles": -1}}, "mix.issue_cycles: is -1; expected a number of at least 0 (SM cycles/block)"),
        ({"mix": {"l2_hit_percent": 101}}, "mix.l2_hit_percent: is 101; expected a number of at most 100 (%)"),
        (
            {"mix": {"stalls": {"barrier": "x"}}},
            "mix.stalls.barrier: is 'x'; expected a number (warps/issue)",
        ),
        (
            {"mix": {"stalls": {"barriers": 1}}},
            "mix.stalls.barriers: unknown key; expected one of long_",
        ),
        ({"mix": 3}, "mix: is 3; expected an object"),
    ],
)
def test_what_is_wrong_with_a_kernel(change: dict[str, Any], line: str) -> None:
    found = problem(document(stream("s", operation("a", kernel=kernel(**change)))))
    assert found.startswith(f"{FIRST}.kernel") and line in found


def test_what_is_missing_is_described() -> None:
    content = document()
    del content["streams"][0]["operations"][0]["kernel"]["duration_us"]
    line = "kernel.duration_us: missing; expected recorded duration, alone on the device (us)"
    assert problem(content) == f"{FIRST}.{line}"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (document(streams=[]), "streams: has 0 operations; expected at least one operation"),
        (document(stream("s")), "streams: has 0 operations; expected at least one operation"),
        (
            document(stream("a b", operation("a"))),
            "streams[0].name: is 'a b'; expected letters, digits, _ . / -",
        ),
        (
            document(stream("s", operation("a\n"))),
            f"{FIRST}.id: is 'a\\n'; expected letters, digits, _ . / - :",
        ),
        (
            document(stream("s", operation("a")), stream("s")),
            "streams[1].name: 's' is also the name of streams[0]; expected unique stream names",
        ),
        (
            document(stream("s", operation("a")), stream("r", operation("a"))),
            f"streams[1].operations[0].id: 'a' is also the id of {FIRST}; expected unique ids",
        ),
        (
            document(stream("s", operation("a", "b"))),
            f"{FIRST}.depends_on[0]: unknown operation 'b'; expected the id of an operation here",
        ),
        (
            document(stream("s", operation("a"), operation("b", "a", "a"))),
            "streams[0].operations[1].depends_on[1]: 'a' given twice; expected each dependency once",
        ),
        (
            document(stream("s", operation("a", "a"))),
            f"{FIRST}.depends_on: dependency cycle: a waits for a; expected",
        ),
        (
            document(stream("s", operation("a", "b"), operation("b"))),
            f"{FIRST}.depends_on: dependency cycle: a waits for b waits for a; expected",
        ),
        (
            document(
                stream("s", operation("a", "d"), operation("b")),
                stream("r", operation("c", "b"), operation("d")),
            ),
            "dependency cycle: ",
        ),
        (
            document(stream("s", {"kind": "sleep", "id": "a"})),
            f"{FIRST}.kind: is 'sleep'; expected one of kernel",
        ),
        (
            document(stream("s", {"id": "a"})),
            f"{FIRST}.kind: missing; expected one of kernel, convolution, copy, host",
        ),
        (document(stream("s", {"kind": ["x"], "id": "a"})), f"{FIRST}.kind: "),
        (document({"name": "s", "operations": [3]}), f"{FIRST}: is 3; expected an object"),
        (document({"name": "s", "operations": {}}), "streams[0].operations: is an object; expected a list"),
        (
            document(stream("s", operation("a"), priority=-1)),
            "streams[0].priority: is -1; expected a number of at least 0",
        ),
        (document(streams=3), "streams: is 3; expected a list"),
        (document(notes=3), "notes: is 3; expected text"),
        (document(stream("s", convolution(direction="up"))), f"{FIRST}.direction: is 'up'; expected 'fwd'"),
        (
            document(stream("s", convolution(selected={"algorithm": "A", "kernels": []}))),
            f"{FIRST}.selected.kernels: is empty; expected at least one kernel",
        ),
        (
            document(stream("s", convolution(alternatives=[{"algorithm": "GEMM/FMA", "kernels": [kernel()]}]))),
            f"{FIRST}: algorithm 'GEMM/FMA' given twice; expected each algorithm once",
        ),
        (
            document(stream("s", convolution(alternatives=[{"algorithm": "A", "kernels": [kernel(grid=[])]}]))),
            f"{FIRST}.alternatives[0].kernels[0].grid[0]: missing",
        ),
        *(
            (document(stream("s", convolution(micro_batches=sizes))), f"{FIRST}.micro_batches{line}")
            for sizes, line in (
                ([], ": is a list of 0; expected at least 1 of them"),
                ([part(2)], ": no parts of 2 images make 3; expected sizes that add up to the batch"),
                ([part(3)], ": has 3 images for a batch of 3; expected fewer than the batch"),
                ([part(1), part(1)], ": 1 images given twice; expected each size once"),
                ([part(1) | {"algorithms": []}], "[0].algorithms: is a list of 0; expected at least 1 of them"),
                ([part(1, kernels=[])], "[0].algorithms[0].kernels: is empty; expected at least one kernel"),
                ([part(1, algorithm="A" * 201)], "[0].algorithms: a name has 201 characters; expected at most 200"),
                ([part(1, workspace_bytes=None)], "[0].algorithms: 'A' has no workspace_bytes; expected"),
                (
                    [part(1, kernels=[kernel(stream="internal0")])],
                    "[0].algorithms: 'A' begins on stream 'internal0'; expected stream main, on which it waits for",
                ),
            )
        ),
        (
            document(stream("s", convolution(shape=convolution()["shape"] | {"filter_height": 11}))),
            f"{FIRST}.shape: the filter is larger than the padded input; expected a filter that fits",
        ),
        (
            document(stream("s", operation("a"), arrivals={"kind": "poisson", "rate_per_s": 0, "count": 1})),
            "streams[0].arrivals.rate_per_s: is 0; expected a number of at least 0.001 (1/s)",
        ),
        (
            document(stream("s", operation("a"), arrivals={"kind": "times", "times_us": [5, 2]})),
            "streams[0].arrivals.times_us: has 2.0 after 5.0; expected times that ascend",
        ),
        (
            document(stream("s", operation("a"), arrivals={"kind": "never"})),
            "streams[0].arrivals.kind: is 'never'; expected one of times, poisson, loop",
        ),
        (
            document(stream("s", operation("a"), arrivals={})),
            "streams[0].arrivals.kind: missing; expected one of times, poisson, loop",
        ),
        (
            document(
                stream("s", operation("a"), arrivals={"kind": "loop", "count": 2}),
                stream("r", operation("b", "a")),
            ),
            "streams[1].operations[0].depends_on[0]: crosses streams, and stream 's' has arrivals; expected",
        ),
    ],
)
def test_what_is_wrong_with_a_trace(content: Any, line: str) -> None:
    found = problem(content)
    assert found.startswith(line) if line.startswith("streams") else line in found


def test_a_cycle_through_two_streams_is_named() -> None:
    first = stream("s", operation("a", "d"), operation("b"))
    second = stream("r", operation("c", "b"), operation("d"))
    line = problem(document(first, second))
    assert "a waits for d waits for c waits for b waits for a" in line


def test_a_long_cycle_is_cut() -> None:
    links = [stream(f"s{n}", operation(f"o{n}", f"o{(n + 1) % 50}")) for n in range(50)]
    line = problem(document(*links))
    assert "waits for … waits for" in line and len(line) < 250


def test_long_chains_and_wide_traces_load() -> None:
    chain = stream("s", *(operation(f"o{n}") for n in range(3000)))
    wide = [stream(f"s{n}", operation(f"w{n}", "o2999")) for n in range(500)]
    assert len(list(parse_trace(json.dumps(document(chain, *wide)).encode()).operations())) == 3500


def test_of_many_faults_the_first_is_told() -> None:
    bad = [operation(f"o{n}", kernel=kernel(duration_us=-1)) for n in range(5)]
    line = problem(document(stream("s", *bad)))
    assert line == f"{FIRST}.kernel.duration_us: is -1; expected a number of at least 0.001 (us)"


# ---- fuzz


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        found.append((value, key))
        found.extend(places(child))
    return found


def negated(value: Any) -> Any:
    return -value if isinstance(value, int | float) and value else -1


STRANGE = [math.nan, math.inf, -math.inf, 10**30, 1e308, 10**400, -0.0, "", "\ud800", "x" * 500, "\0", None]
STRANGE += [True, [], {}, [[]], {"kind": "kernel"}, "main", "internal9", 1.5, 2**63]


@given(traces(max_streams=2, max_operations=3, with_arrivals=True), st.data())
@examples(100, suppress_health_check=list(HealthCheck))
def test_a_mutated_trace_loads_or_is_refused_in_one_line(trace: Trace, data: st.DataObject) -> None:
    content = copy.deepcopy(trace.model_dump(mode="json", exclude_none=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(st.sampled_from(places(content)))
        action = data.draw(st.sampled_from(["negate", "strange", "drop", "add", "copy"]))
        if action == "negate":
            container[key] = negated(container[key])
        elif action == "strange":
            container[key] = copy.deepcopy(data.draw(st.sampled_from(STRANGE)))
        elif action == "drop":
            del container[key]
            if not content:
                break
        elif isinstance(container, dict):
            container[data.draw(st.sampled_from(["extra", "", "a b", "\n", "mix", "kind"]))] = 1
        else:
            container.append(copy.deepcopy(container[key]))
        if not places(content):
            break
    text = whole = json.dumps(content).encode("utf-8", "surrogatepass")
    if data.draw(st.integers(0, 3)) == 0:
        cut = data.draw(st.integers(0, len(text)))
        text = whole = text[:cut] + data.draw(st.binary(max_size=3)) + text[cut + data.draw(st.integers(0, 9)) :]
    if data.draw(st.booleans()):
        text = gzip.compress(text, mtime=0)
        text = text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans()) else text
    try:
        loaded = parse_trace(text, "t.json")
    except InputError as error:
        assert str(error).isprintable() and len(str(error)) < 1000
    else:
        assert loaded == Trace.model_validate_json(whole)


@given(st.binary(max_size=200))
@QUICK
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_trace(data)
