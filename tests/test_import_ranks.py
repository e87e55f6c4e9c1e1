"""Profiles of several ranks at once: a GPU each, collectives matched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpusim
from gpusim import cli
from gpusim.common.errors import InputError
from gpusim.io.importing import import_profile
from gpusim.trace.file import load_trace
from gpusim.trace.format import Trace
from gpusim.trace.operations import Collective
from tests.test_import_kineto import kernel, write

GEMM, REDUCE = "gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SMALL = {"grid": [1, 1, 1]}


def rank(path: Path, number: int, *events: dict[str, Any]) -> Path:
    return write(path / f"rank{number}.json", list(events), distributedInfo={"rank": number, "world_size": 2})


def collective(group: str, sequence: int, start_us: float, duration_us: float, order: int) -> dict[str, Any]:
    told = {"Process Group Name": group, "Process Group Ranks": "[0, 1]", "Seq": sequence}
    return kernel(REDUCE, start_us, duration_us, order=order, **told, **SMALL)


def met(trace: Trace) -> list[tuple[str, str]]:
    """The kernel that follows each meeting, and the meeting."""
    found = []
    for stream in trace.streams:
        for one, following in zip(stream.operations, stream.operations[1:], strict=False):
            if isinstance(one, Collective):
                found.append((following.id, one.name))
    return found


def test_a_collective_takes_its_exchange_after_all_ranks_have_come(tmp_path: Path) -> None:
    fast = rank(tmp_path, 0, kernel(GEMM, 0, 10, order=1, **SMALL), kernel(REDUCE, 10, 50, order=2, **SMALL))
    slow = rank(tmp_path, 1, kernel(GEMM, 0, 40, order=1, **SMALL), kernel(REDUCE, 41, 20, order=2, **SMALL))
    found = import_profile([fast, slow])
    trace = found.trace
    assert [(stream.name, stream.gpu) for stream in trace.streams] == [("rank0/stream7", 0), ("rank1/stream7", 1)]
    assert [program.streams for program in trace.programs] == [("rank0/stream7", "rank1/stream7")]
    durations = {op.id: op.launches()[0].duration_us for op in trace.operations() if op.launches()}
    assert durations == {
        "rank0/kernel/0": 10, "rank0/kernel/1": 20, "rank1/kernel/0": 40, "rank1/kernel/1": 20
    }  # fmt: skip
    assert [kernel for kernel, _ in met(trace)] == ["rank0/kernel/1", "rank1/kernel/1"]
    assert "2 of 2 kernels that exchange data meet" in found.remarks[0]
    result = gpusim.replay(trace, policy="leftover")
    assert result.makespan_us == pytest.approx(60, abs=3)
    kernels = result.kernels.set_index("operation")
    assert kernels.loc["rank0/kernel/1", "start_us"] >= kernels.loc["rank1/kernel/0", "end_us"]


def test_collectives_are_matched_by_group_and_number(tmp_path: Path) -> None:
    one = rank(tmp_path, 0, collective("a", 7, 0, 5, 1), collective("b", 1, 10, 5, 2), collective("a", 8, 20, 5, 3))
    two = rank(tmp_path, 1, collective("a", 8, 20, 5, 1), collective("b", 1, 30, 5, 2))
    with pytest.raises(InputError, match="cycle"):
        import_profile([one, two])  # no job runs b before a here, and a before b there
    two = rank(tmp_path, 1, collective("b", 1, 10, 5, 1), collective("a", 8, 20, 5, 2))
    found = import_profile([one, two])
    assert met(found.trace) == [
        ("rank0/kernel/1", "meeting/0"), ("rank0/kernel/2", "meeting/1"),
        ("rank1/kernel/0", "meeting/0"), ("rank1/kernel/1", "meeting/1"),
    ]  # fmt: skip
    assert found.remarks[0].startswith("4 of 5 kernels that exchange data")


def test_sends_are_matched_by_both_ends(tmp_path: Path) -> None:
    def send(source: int, target: int, of: int, start_us: float) -> dict[str, Any]:
        ends = {"Process Group Name": "0", "Rank": of, "Src Rank": source, "Dst Rank": target}
        return kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", start_us, 5, order=int(start_us) + 1,
                      **ends, **SMALL)  # fmt: skip

    paths = [
        rank(tmp_path, 0, send(0, 1, 0, 0)),
        rank(tmp_path, 1, send(1, 2, 1, 0), send(0, 1, 1, 10)),
        rank(tmp_path, 2, send(1, 2, 2, 0)),
    ]
    assert met(import_profile(paths).trace) == [
        ("rank0/kernel/0", "meeting/0"), ("rank1/kernel/0", "meeting/1"), ("rank1/kernel/1", "meeting/0"),
        ("rank2/kernel/0", "meeting/1"),
    ]  # fmt: skip


def test_ranks_of_different_gpus_are_refused(tmp_path: Path) -> None:
    one = rank(tmp_path, 0, kernel(GEMM, 0))
    h200 = {"id": 0, "name": "NVIDIA H200", "numSms": 132}
    two = write(tmp_path / "b.json", [kernel(GEMM, 0)], deviceProperties=[h200])
    with pytest.raises(InputError, match="were recorded on h200, v100; expected ranks on equal GPUs"):
        import_profile([one, two])
    with pytest.raises(InputError, match="are 17; expected at most 16"):
        import_profile([one] * 17)


def test_counters_of_a_profile_are_no_rank(tmp_path: Path) -> None:
    """A profile of Nsight Compute beside a timeline, where --counters was forgotten."""
    counters = tmp_path / "counters.csv"
    counters.write_text(
        '"ID","Process Name","Kernel Name","Stream","Block Size","Grid Size","Device","CC",'
        '"gpu__time_duration.sum","launch__registers_per_thread"\n'
        '"","","","","","","","","ns","register/thread"\n'
        '"0","python","gemm","7","(128, 1, 1)","(64, 1, 1)","0","7.0","1000","32"\n'
    )
    with pytest.raises(InputError, match="profiles of Nsight Compute and of timelines; expected a timeline of each"):
        import_profile([rank(tmp_path, 0, kernel(GEMM, 0)), counters], gpu="v100")


def test_the_command_takes_several_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(rank(tmp_path, n, kernel(GEMM, 0, order=1), kernel(REDUCE, 9, order=2))) for n in (1, 0)]
    out = tmp_path / "t.json.gz"
    assert cli.main(["import", "kineto", *paths, "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "4 kernels, 6 operations, 2 streams, recorded on v100" in said
    assert "Each rank: Kernels without counters: 2 of 2;" in said
    assert [stream.name for stream in load_trace(out).streams] == ["rank1/stream7", "rank0/stream7"]
    assert cli.main(["import", "nonsense", paths[0], "-o", str(out)]) == 2
    assert "nonsense" in capsys.readouterr().err
