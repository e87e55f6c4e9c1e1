"""The commands that list or print: occupancy, gpus, bench, policies and schema."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from command_line import REPOSITORY, Capture, run_json

from gpusim import cli
from gpusim.hardware.gpu import gpu_names, load_gpu
from gpusim.lab import bench
from gpusim.policies.registry import policies, policy_from
from gpusim.results.error_band import experiment_of
from gpusim.session import replay
from gpusim.trace.edit import select
from gpusim.trace.file import load_trace

# ---- the other commands


def test_occupancy_json(capsys: Capture) -> None:
    argv = ("occupancy", "--gpu", "h200", "--threads", "256", "--registers", "80", "--shared-memory", "8602", "--json")
    assert run_json(capsys, *argv) == {
        "blocks_per_sm": 3,
        "limiter": "registers",
        "limits": {"warps": 8, "registers": 3, "shared_memory": 24, "blocks": 32},
    }


def test_occupancy_takes_sizes_and_no_shared_memory(capsys: Capture) -> None:
    argv = ("occupancy", "--gpu", "h200", "--threads", "256", "--registers", "80", "--json")
    none = run_json(capsys, *argv)
    assert none == run_json(capsys, *argv, "--shared-memory", "0")
    sized = run_json(capsys, *argv, "--shared-memory", "8KiB")
    assert sized == run_json(capsys, *argv, "--shared-memory", "8192") != none


def test_occupancy_table(capsys: Capture) -> None:
    argv = ["occupancy", "--gpu", "k40c", "--threads", "512", "--registers", "0", "--shared-memory", "0"]
    assert cli.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "k40c: 4 blocks per SM, limited by warps"
    assert lines[4].split() == ["registers", "no", "limit"]
    assert cli.main([*argv[:-1], "99999"]) == 0
    assert capsys.readouterr().out.startswith("k40c: 0 blocks per SM: a block asks for more shared memory than")


def test_gpus(capsys: Capture) -> None:
    content = run_json(capsys, "gpus", "--json")
    assert isinstance(content, list)
    assert [gpu["name"] for gpu in content] == list(gpu_names())
    h200 = next(gpu for gpu in content if gpu["name"] == "h200")
    assert (h200["compute_capability"], h200["sm_count"]) == ("9.0", 132)
    assert h200["limits"]["max_warps_per_sm"] == 64
    assert cli.main(["gpus"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 + len(content)


def test_one_gpu_in_full(capsys: Capture) -> None:
    every = run_json(capsys, "gpus", "--json")
    assert isinstance(every, list)
    assert run_json(capsys, "gpus", "k40c", "--json") == next(gpu for gpu in every if gpu["name"] == "k40c")
    (h200,) = (gpu for gpu in every if gpu["name"] == "h200")
    assert h200["sources"]["boost_clock_mhz"] == "hmc-tech.com"
    assert h200["sources"]["model.launch_latency_us"].startswith("experiments/h200_microbench")
    assert cli.main(["gpus", "k40c"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "k40c: NVIDIA Tesla K40c"
    shown = {line.split()[0]: line.split(maxsplit=1)[1].strip() for line in lines[3:]}
    assert re.fullmatch(r"15 +sysrqmts.com, .*SMX", shown["sm_count"])
    assert shown["limits.max_threads_per_block"] == "1,024"
    assert shown["tensor_fp16_tflops"] == "not known"
    assert re.fullmatch(r"0.5 +no", shown["model.switch_us"])
    assert cli.main(["gpus", "a30"]) == 0
    *_, green, mps, mig = capsys.readouterr().out.splitlines()
    assert green == "green contexts: 4 SMs or more, in steps of 2; one may have the rest"
    assert mps.startswith("MPS: ") and mig.startswith("MIG: 1g: 14 SMs, 2/8 of L2 and DRAM, id 14; 2g: 28 SMs")


def test_bench_prints_each_row_as_it_comes(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []

    def measure(names: list[str], step: object) -> Iterator[bench.Measurement]:
        assert names == ["grid", "trace", "chain"]  # the quick ones first
        for name in names:
            yield bench.Measurement(name, "x1", 1, 2, 3000, 0.1, 0.01, 50.0)
            said.append(capsys.readouterr().out.count("\n"))

    monkeypatch.setattr(bench, "measure", measure)
    assert cli.main(["bench", "--only", "chain", "--only", "trace", "--only", "grid"]) == 0
    assert said == [3, 1, 1]


def test_bench_says_on_a_terminal_what_it_measures() -> None:
    steps: list[str] = []
    first = next(bench.measure(["grid"], steps.append))
    assert (first.group, first.case, first.kernels) == ("grid", "x1", 1)
    assert steps == ["measuring grid, case 1 of 4", ""]


def test_policies(capsys: Capture) -> None:
    content = run_json(capsys, "policies", "--json")
    assert isinstance(content, list)
    assert all(list(policy) == ["name", "summary", "validated_as", "parameters"] for policy in content)
    leftover = next(policy for policy in content if policy["name"] == "leftover")
    assert leftover["parameters"][0]["name"] == "first"
    assert cli.main(["policies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == {policy["name"] for policy in content}
    assert "Others" not in lines and max(map(len, lines)) <= 80


def test_one_policy_in_full(capsys: Capture) -> None:
    assert cli.main(["policies", "warped-slicer"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "warped-slicer" and "    source: Xu et al., ISCA'16" in lines
    assert any(line.startswith("        objective (text, default maxmin): ") for line in lines)
    assert any(line.startswith("    model error as two kernels on one SM: ") for line in lines)
    assert lines[-1] == "    example: gpusim replay TRACE --policy warped-slicer:objective=maxmin"
    assert cli.main(["policies", "reef"]) == 0
    text = capsys.readouterr().out
    unvalidated = "not validated: it has no error band; docs/policies.md says what was measured"
    assert "parameters: none" in text and unvalidated in text
    assert cli.main(["policies", "reef:any=1"]) == 0, "as it is given to replay"
    assert capsys.readouterr().out == text
    assert cli.main(["policies", "time-slicing"]) == 0
    assert unvalidated in " ".join(capsys.readouterr().out.split())
    assert cli.main(["policies", "warped-slice"]) == 2
    assert "no such policy" in capsys.readouterr().err


VALIDATED = {name: policy.validated_as for name, policy in policies().items() if policy.validated_as}


def test_every_policy_in_full(capsys: Capture) -> None:
    for plain in policies_json(capsys):
        whole = run_json(capsys, "policies", str(plain["name"]), "--json")
        assert isinstance(whole, dict)
        assert {**{key: whole[key] for key in plain}, "validated_as": list(whole["validated_as"])} == plain
        policy = str(whole["example"]).removeprefix("gpusim replay TRACE --policy ")
        assert policy_from(policy).name == plain["name"] and policy[-1] not in ":,"
    assert set(VALIDATED) <= {str(policy["name"]) for policy in policies_json(capsys)}


@pytest.mark.parametrize("policy", sorted(VALIDATED))
def test_a_policy_gets_no_error_but_of_what_it_was_validated_as(policy: str) -> None:
    given = {"quota": ":blocks=3x3:2+5x5:2", "green-context": ":sms=64+68", "mps": ":percent=50"}
    given |= {"oracle-inter-sm": ":step=44", "oracle-intra-sm": ":replays=5", "tpc-mask": ":masks=0xff+0xff00"}
    whole = load_trace(REPOSITORY / "traces" / "inception_3a.json.gz")
    pair = select(whole, ["3x3", "5x5"])
    experiment, _ = experiment_of(replay(pair, load_gpu("h200"), policy + given.get(policy, "")))
    assert experiment in ("", *VALIDATED[policy])


def policies_json(capsys: Capture) -> list[dict[str, object]]:
    content = run_json(capsys, "policies", "--json")
    assert isinstance(content, list)
    return content


@pytest.mark.parametrize("what", ["trace", "gpu"])
def test_schema(what: str, capsys: Capture) -> None:
    content = run_json(capsys, "schema", what)
    assert isinstance(content, dict)
    assert content["type"] == "object" and "version" in content["properties"]
