"""Microbenchmarks: what is read out of a block log, without a GPU."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.h200_microbench import behaviour
from experiments.h200_microbench import counters as nsight
from gpusim.cli import main
from gpusim.common.errors import InputError
from gpusim.lab.record import block_log
from gpusim.lab.record import microbench as mb

RESULTS = Path(__file__).parents[1] / "experiments" / "h200_microbench"


def block(smid, start, end, index=0, ns_per_clock=1):
    return (start * ns_per_clock, end * ns_per_clock, start, end, smid, index)


def launch(blocks, *, per_sm=1, progress=None, **kwargs):
    fields = {"experiment": "x", "case": "c", "rep": 0, "role": "a", "kernel": "k", "threads": 32, "registers": 8}
    fields |= {"shared_bytes": 0} | kwargs
    stamps = None if progress is None else np.array(progress, np.uint32)
    return block_log.LoggedLaunch(**fields, per_sm=per_sm, blocks=np.array(blocks, block_log.BLOCK), progress=stamps)


def steady(life):
    """Progress of a one-warp block that works evenly over its life: eight equal steps."""
    return [[life * i // block_log.SEGMENTS for i in range(1, block_log.SEGMENTS + 1)]]


def test_gaps_are_counted_within_a_sequence_only():
    kernels = [launch([block(0, 100 * i, 100 * i + 70 + i)], rep=i) for i in range(block_log.SEQUENCE + 2)]
    gaps = block_log.gaps_ns(list(reversed(kernels)))
    assert len(gaps) == block_log.SEQUENCE
    assert gaps[0] == 30  # 0..70, then 100
    assert gaps[-1] == 100 - 70 - block_log.SEQUENCE  # the gap into kernel SEQUENCE itself is left out


def test_gap_runs_from_the_last_end_to_the_first_start():
    first = launch([block(0, 0, 50), block(1, 10, 90)], rep=0)
    second = launch([block(0, 130, 150), block(1, 120, 150)], rep=1)
    assert block_log.gaps_ns([first, second]).tolist() == [30]


def test_refill_matches_ends_with_the_starts_that_follow_on_the_same_sm():
    log = launch(
        [block(3, 0, 100), block(3, 0, 80), block(3, 85, 200), block(3, 110, 190), block(5, 0, 60), block(5, 0, 70)],
        per_sm=2,
    )
    assert sorted(block_log.refill_delays(log, clocks_per_ns=2.0).tolist()) == [2.5, 5.0]


def test_refill_of_a_single_wave_is_empty():
    assert len(block_log.refill_delays(launch([block(0, 0, 9), block(1, 0, 9)], per_sm=1), 1.0)) == 0


def test_order_violation_is_how_much_earlier_a_later_block_started():
    assert block_log.order_violation_ns(launch([block(0, 0, 9, 0), block(1, 50, 90, 1), block(2, 20, 90, 2)])) == 30
    assert block_log.order_violation_ns(launch([block(2, 20, 90, 1), block(0, 0, 9, 0)])) == 0


def test_rates_by_age_of_a_strict_and_a_fair_scheduler():
    # Steady state of two per SM: every block does a quarter of its work while young, three quarters while old.
    starts = [0, 0, 100, 200, 300]
    ends = [100, 200, 300, 400, 500]
    young_then_old = [[25, 50, 75, 100, *(100 + np.array([25, 50, 75, 100])).tolist()]]
    quarter = [50, 100, 117, 133, 150, 167, 183, 200]  # 2 of 8 segments in the first 100 clocks, 6 in the second
    blocks = [block(0, s, e, i) for i, (s, e) in enumerate(zip(starts, ends, strict=True))]
    fair = launch(blocks, per_sm=2, progress=[steady(100), *[young_then_old] * 4])
    assert behaviour.rates_by_age(fair) == pytest.approx([1 / 200, 1 / 200])
    strict = launch(blocks, per_sm=2, progress=[steady(100), *[[quarter]] * 4])
    older, younger = behaviour.rates_by_age(strict)
    assert older == pytest.approx(0.75 / 100, rel=0.01)
    assert younger == pytest.approx(0.25 / 100, rel=0.01)


def test_rates_by_age_without_a_steady_state_are_nan():
    assert np.isnan(behaviour.rates_by_age(launch([block(0, 0, 80)], progress=[steady(80)]))).all()


def test_progress_is_needed_for_rates():
    with pytest.raises(ValueError, match="no progress"):
        behaviour.rates_by_age(launch([block(0, 0, 80)]))


def test_overlap_rates_count_only_the_time_when_both_are_there():
    # a: half its work in 8000 clocks alone, the other half in 16000 shared; b the opposite way round.
    a_progress = [[2000, 4000, 6000, 8000, 12000, 16000, 20000, 24000]]
    a = launch([block(0, 0, 24000), block(1, 0, 24000)], progress=[a_progress] * 2)
    b_progress = [[4000, 8000, 12000, 16000, 18000, 20000, 22000, 24000]]
    b = launch([block(0, 8000, 32000)], progress=[b_progress], role="b")
    rows = behaviour.overlap_rates(a, b)  # SM 1 holds no block of b
    assert rows == pytest.approx(np.array([[8000, 0.5 / 16000, 0.5 / 16000]]))


def test_overlap_too_short_to_measure_is_left_out():
    a = launch([block(0, 0, 8000)], progress=[steady(8000)])
    b = launch([block(0, 7000, 15000)], progress=[steady(8000)])
    assert behaviour.overlap_rates(a, b).shape == (0, 3)


def test_extra_blocks_counts_sms():
    blocks = [block(0, 0, 1), block(0, 2, 3), block(0, 2, 3), block(1, 0, 1), block(2, 0, 1), block(2, 2, 3)]
    assert behaviour.extra_blocks(launch(blocks, per_sm=1), sm_count=3).tolist() == [1, 1, 1]


def test_residents_at_a_time():
    log = launch([block(0, 0, 100), block(0, 50, 100), block(2, 0, 50)])
    assert behaviour.residents_at(log, 50, sm_count=3).tolist() == [2, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000), st.integers(1, 1000)), min_size=1, max_size=40))
def test_by_sm_yields_every_block_once_in_order_of_start(rows):
    log = launch([block(smid, start, start + life, i) for i, (smid, start, life) in enumerate(rows)])
    seen = []
    for smid, members in log.by_sm():
        assert set(log.blocks["smid"][members]) == {smid}
        assert (np.diff(log.blocks["start_clock"][members].astype(int)) >= 0).all()
        seen += members.tolist()
    assert sorted(seen) == list(range(len(rows)))


def test_tail_table_is_relative_to_one_wave():
    def tail(extra, spans):
        blocks = [block(smid, 0, 100, smid) for smid in range(2)] + [block(0, 100, end) for end in spans]
        return launch(blocks, experiment="tail", case=f"k=1/extra={extra}", kernel="gemm")

    recording = block_log.MicrobenchLog({"sm_count": "2"}, [], [tail("0.000", []), tail("0.500", [180])])
    rows = list(behaviour.tail_table(recording))
    assert [row["relative_time_median"] for row in rows] == [1.0, 1.8]
    assert (rows[1]["extra_waves"], rows[1]["sms_with_0_extra"], rows[1]["sms_with_1_extra"]) == (0.5, 1, 1)


def test_topology_joins_sms_that_shared_a_cluster():
    cluster = launch([block(s, 0, 9, i) for i, s in enumerate([0, 2, 1, 3])], experiment="cluster", case="2")
    other = launch([block(s, 0, 9, i) for i, s in enumerate([2, 4])], experiment="cluster", case="2")
    green = [launch([block(s, 0, 9) for s in range(n)], experiment="green", case=str(n)) for n in (2, 4)]
    rows = list(behaviour.topology_table(block_log.MicrobenchLog({"sm_count": "5"}, [], [cluster, other, *green])))
    assert [row["gpc_group"] for row in rows] == [0, 1, 0, 1, 0]
    assert [row["smallest_green_context"] for row in rows] == [2, 2, 4, 4, ""]


def test_clusters_are_counted_in_sms():
    def room(case, clusters):
        return {"experiment": "cluster_room", "case": case, "rep": 0, "quantity": "clusters", "value": float(clusters)}

    scalars = [room("first/sms=16/blocks=4", 4), room("rest/sms=20/blocks=8", 1)]
    recording = block_log.MicrobenchLog({"sm_count": "36"}, scalars, [])
    assert list(behaviour.cluster_table(recording)) == [
        {"part": "first", "sms": 16, "cluster_blocks": 4, "sms_used": 16},
        {"part": "rest", "sms": 20, "cluster_blocks": 8, "sms_used": 8},
    ]
    assert mb.memory_table(recording) == []


def test_the_clock_of_every_sm_beside_a_load():
    """Otherwise two cycles a ns: a hundred take SM 0 50 ns, SM 1 55, which is slow, and SM 2 60 in one run of three."""
    timer = launch([(0, 50, 0, 100, 0, 0)], experiment="timers")
    case = {"experiment": "clock", "case": "load=tf32/blocks=8"}
    watched = [
        launch([(0, ns, 0, 100, sm, sm) for sm, ns in enumerate(run)], role="watch", rep=rep, **case)
        for rep, run in enumerate([(50, 55, 50), (50, 55, 60), (50, 55, 50)])
    ]
    load = launch([(0, 90, 0, 100, 1, 0)], role="load", **case)
    rows = list(behaviour.clock_table(block_log.MicrobenchLog({"sm_count": "3"}, [], [timer, load, *watched])))
    assert rows == [
        {"load": "tf32", "blocks": 8, "sms_seen": 3, "sms_slow": 1, "mhz_lowest": 1818, "mhz_highest": 2000},
    ]


def test_lives_beside_a_load():
    runs = [
        launch(
            [block(0, 0, 3000), block(1, 0, 5000)], experiment="life_beside", case=f"load={load}", role=role, kernel=k
        )
        for load, role, k in (("spin", "watch", "fma8"), ("spin", "load", "spin"), ("tf32", "watch", "fma8"))
    ]
    rows = list(behaviour.beside_table(block_log.MicrobenchLog({"sm_count": "2"}, [], runs)))
    assert [(row["kernel"], row["beside"], row["life_us_median"]) for row in rows] == [
        ("fma8", "spin", 4.0),
        ("fma8", "tf32", 4.0),
    ]


def test_warps_on_schedulers_beside_a_warp_alone():
    """A warp alone lives 10 us; then a of 3 warps and b of 2, which starts 1 us later; then two waves of a."""

    def run(case, role, blocks, warps=1, rep=0):
        return launch(blocks, experiment="schedulers", case=case, role=role, rep=rep, threads=32 * warps)

    launches = [run("alone", "a", [block(0, 0, 10_000)])]
    for rep in range(3):
        launches.append(run("beside", "a", [block(0, 0, 20_000 + rep)], warps=3, rep=rep))
        launches.append(run("beside", "b", [block(0, 1_000, 19_000)], warps=2, rep=rep))
    launches.append(run("waves", "a", [block(0, 0, 10_000), block(0, 10_000, 20_000)]))
    scalars = [
        {"experiment": "schedulers", "case": case, "rep": 0, "quantity": "fullest_warps", "value": value}
        for case, value in (("alone", 1.0), ("beside", 2.0), ("waves", 1.0))
    ]
    recording = block_log.MicrobenchLog({"sm_count": "1"}, scalars, launches)
    alone, beside, waves = behaviour.scheduler_table(recording)
    assert list(alone.values()) == ["k", 1, 1, 0, 0, 0, 0, 1, 1, 1, 1.0, 1.0, "", "", 1.0]
    assert list(beside.values()) == ["k", 3, 1, 2, 1, 0, 0, 1, 5, 2, 2.0, 2.0, 1.8, "", 2.0]
    assert list(waves.values()) == ["k", 1, 1, 0, 0, 0, 0, 2, 1, 1, 1.0, 1.0, "", "", 1.0]
    assert mb.memory_table(recording) == []


def test_dependencies_are_timed_from_the_end_of_what_they_wait_for():
    times = {"first": [(0, 90)], "parent": [(100, 200)], "next": [(230, 300)], "child": [(260, 300), (240, 300)]}
    launches = [
        launch([block(0, start, end)], experiment="dependency", case="plain", role=role)
        for role, runs in times.items()
        for start, end in runs
    ]
    rows = list(behaviour.dependency_table(block_log.MicrobenchLog({"sm_count": "1"}, [], launches)))
    delays = {row["kernel"]: row["delay_ns_mean"] for row in rows}
    assert delays == {"parent": 10, "next": 30, "child 1": 40, "child 2": 60}


def test_queue_table_counts_starts_across_streams():
    a = launch([block(0, 0, 9000), block(0, 9000, 20000)], experiment="priority", case="p")
    delay = launch([block(1, 0, 5000)], experiment="priority", case="p", role="delay")
    b = launch([block(0, 8000, 9000), block(1, 10000, 11000)], experiment="priority", case="p", role="b")
    (row,) = behaviour.queue_table(block_log.MicrobenchLog({"sm_count": "2"}, [], [a, delay, b]))
    assert row["b_due_us"] == 5.0
    assert row["b_first_start_us"] == 8.0
    assert row["a_last_start_us"] == 9.0
    assert row["b_starts_before_last_a"] == 1
    assert row["a_starts_while_b_waits"] == 1  # at 9000, between 5000 + 2500 and b's last start


def test_drain_table_counts_the_sms_that_took_waiting_blocks():
    a = launch([block(0, 0, 9000), block(1, 0, 5000), block(2, 0, 6000)], experiment="drain")
    b = launch([block(1, 5200, 7000), block(1, 5300, 7000), block(2, 6200, 8000)], experiment="drain", role="b")
    (row,) = behaviour.drain_table(block_log.MicrobenchLog({"sm_count": "4"}, [], [a, b]))
    assert (row["b_blocks"], row["sms_used_by_b"], row["most_b_blocks_on_an_sm"]) == (3, 2, 2)
    assert row["idle_sms_at_b_first_start"] == 2  # SM 1 and SM 3, which never had any
    assert (row["a_last_start_us"], row["a_last_end_us"]) == (0.0, 9.0)
    assert (row["b_first_start_us"], row["b_median_start_us"], row["b_last_start_us"]) == (5.2, 5.3, 6.2)


def test_register_table_counts_what_starts_at_once_beside_a_block():
    a = launch([block(0, 0, 100), block(1, 0, 100)], experiment="register_room", threads=128, registers=164)
    started = [block(0, 20, 40), block(0, 20, 45), block(1, 20, 41), block(0, 41, 60), block(1, 120, 140)]
    b = launch(started, experiment="register_room", role="b", threads=64, registers=92)
    (row,) = behaviour.register_table(block_log.MicrobenchLog({"sm_count": "2"}, [], [a, b]))
    assert (row["a_warps"], row["b_warps"], row["b_blocks_at_least"], row["b_blocks_at_most"]) == (4, 2, 1, 2)
    assert row["b_blocks_if_summed"] == (65_536 - 128 * 168) // (64 * 96)


def test_l1_table_parts_blocks_by_what_their_sm_held():
    def run(rep, slow):
        lives = (80_000, 80_000 * slow)
        blocks = [block(smid, 1000, 1000 + life, smid) for smid, life in enumerate(lives)]
        kernel = launch(blocks, experiment="l1", rep=rep, role="k", progress=[steady(life) for life in lives])
        return [kernel, launch([block(1, 0, 50_000)], experiment="l1", rep=rep, role="big")]

    timers = launch([block(0, 0, 100)], experiment="timers")
    launches = [x for rep, slow in enumerate((9, 3, 3, 3)) for x in run(rep, slow)]
    alone, beside = behaviour.l1_table(block_log.MicrobenchLog({"sm_count": "2"}, [], [timers, *launches]))
    assert alone["on_the_sm"] == "no block of 200 KB"
    assert (alone["blocks"], alone["life_us"], alone["second_eighth_us"], alone["last_eighth_us"]) == (1, 80, 10, 10)
    assert beside["on_the_sm"] == "a block of 200 KB at its start"
    assert (beside["life_us"], beside["life_of_last_quarter_to_start_us"], beside["beside_most"]) == (240, 240, 0)


def write_recording(folder, *, blocks=2, progress=16, columns=None):
    header = columns or (
        "experiment,case,rep,role,kernel,threads,registers,shared_bytes,per_sm,grid,work,first_block,first_progress"
    )
    (folder / "device.csv").write_text("name,value\nsm_count,2\n")
    (folder / "scalars.csv").write_text("experiment,case,rep,quantity,value\nl2,a,0,gb,2.5\n")
    (folder / "launches.csv").write_text(f"{header}\none_wave,k=1,0,a,gemm,32,64,1024,1,2,7,0,0\n")
    np.array([block(s, 10, 90, s) for s in range(blocks)], block_log.BLOCK).tofile(folder / "blocks.bin")
    np.arange(progress, dtype="<u4").tofile(folder / "progress.bin")


def test_a_recording_is_read_back(tmp_path):
    write_recording(tmp_path)
    recording = block_log.load_recording(tmp_path)
    (found,) = recording.launches
    assert (found.kernel, found.threads, found.shared_bytes, found.per_sm) == ("gemm", 32, 1024, 1)
    assert found.life_clocks.tolist() == [80, 80]
    assert found.progress is not None
    assert found.progress.shape == (2, 1, 8)
    assert recording.scalars == [{"experiment": "l2", "case": "a", "rep": 0, "quantity": "gb", "value": 2.5}]
    assert behaviour.alone_clocks(recording) == {"gemm": 80.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": 1}, "blocks.bin: holds 1 block; expected at least 2"),
        ({"progress": 15}, "progress.bin: holds 15 stamps; expected at least 16"),
        ({"columns": "experiment,case"}, "launches.csv: header: lacks rep, role, kernel"),
    ],
)
def test_a_broken_recording_is_one_clear_line(tmp_path, change, message):
    write_recording(tmp_path, **change)
    with pytest.raises(InputError) as caught:
        block_log.load_recording(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"blocks\.bin: is missing"):
        block_log.load_recording(tmp_path)


def test_counters_are_matched_from_the_end():
    names = list(nsight.COUNTERS)
    lines = ["==PROF== noise", '"ID",' + ",".join(f'"{name}"' for name in names), '"",' + ",".join(['""'] * len(names))]
    for i in range(3):  # the first is a warm-up that no launch stands for
        lines.append(f'"{i}",' + ",".join(f'"1,{i}00.5"' for _ in names))
    wanted = [launch([block(0, 0, 9)] * 3, experiment="counters", kernel=f"k{i}", per_sm=i + 1) for i in range(2)]
    rows = nsight.counter_table("\n".join(lines), [launch([block(0, 0, 9)]), *wanted])
    assert [(r["kernel"], r["k"], r["blocks"], r["issue_percent"]) for r in rows] == [
        ("k0", 1, 3, 1100.5),
        ("k1", 2, 3, 1200.5),
    ]
    with pytest.raises(InputError, match="has 0 launches"):
        nsight.counter_table("==ERROR== nothing", wanted)


def test_memory_counters_stand_beside_the_known_bytes():
    names = list(nsight.MEMORY_COUNTERS)
    lines = ['"ID",' + ",".join(f'"{name}"' for name in names), '"",' + ",".join(['""'] * len(names))]
    lines += [f'"{i}",' + ",".join(f'"{i + 1},000"' for _ in names) for i in range(2)]
    scalars = [
        {"experiment": "memory_counters", "case": case, "rep": 0, "quantity": "bytes", "value": 64.0}
        for case in ("write", "red")
    ]
    rows = nsight.memory_counter_table("\n".join(lines), [{**scalars[0], "experiment": "timers"}, *scalars])
    assert [(r["access"], r["bytes"], r["l2_bytes"]) for r in rows] == [("write", 64, 1000), ("red", 64, 2000)]
    with pytest.raises(InputError, match="has 2 launches"):
        nsight.memory_counter_table("\n".join(lines), scalars * 2)


def test_without_a_compiler_there_is_one_clear_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["record", "microbench", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "nvcc: not found on PATH; expected the compiler of the CUDA toolkit, 12.5 or later\n"
    )


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("listed", "message"),
    [("exit 9", "GPU: none found"), ("echo 7.5", "GPU: compute capability 7.5"), ("echo '[N/A]'", "GPU: ")],
)
def test_without_a_fitting_gpu_there_is_one_clear_line(tmp_path, monkeypatch, capsys, listed, message):
    program(tmp_path, "nvcc", "exit 0")
    program(tmp_path, "nvidia-smi", listed)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["record", "microbench", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


def test_a_failing_compiler_is_quoted(tmp_path, monkeypatch):
    program(tmp_path, "nvcc", "echo first; echo last words; exit 4")
    program(tmp_path, "nvidia-smi", "echo 9.0; echo 9.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"nvcc: failed with status 4 \(last words\)"):
        mb.run_microbenchmarks(tmp_path / "out")


def test_counters_need_nsight(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["counters.py", str(tmp_path / "out")])
    with pytest.raises(InputError, match="ncu: not found on PATH"):
        nsight.main()


def test_counters_are_of_the_matrix_only(tmp_path, capsys):
    assert main(["record", "microbench", "--counters", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("--counters: is for --matrix only; expected")


def test_tables_are_written_whole_and_the_same_every_time(tmp_path):
    rows = [{"a": 1, "b": "x"}, {"a": 2, "c": 0.5}]
    for name in ("one.csv", "two.csv"):
        mb.write_csv(tmp_path / name, rows)
    assert (tmp_path / "one.csv").read_text() == "a,b,c\n1,x,\n2,,0.5\n"
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_the_program_and_the_reader_agree_on_their_constants():
    source = Path(mb.__file__).with_suffix(".cu").read_text()
    assert f"constexpr int SEGMENTS = {block_log.SEGMENTS};" in source
    assert f"constexpr int SEQUENCE = {block_log.SEQUENCE};" in source
    assert block_log.BLOCK.itemsize == 40


def test_the_recorded_results_hold_every_table_and_constant():
    for name in [*mb.TABLES, *behaviour.TABLES, "counters", "memory_counters"]:
        with (RESULTS / f"{name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) > 1, name
    result = json.loads((RESULTS / "constants.json").read_text())
    assert result["device"]["device"] == "NVIDIA H200"
    assert result["constants"]["sm_clock_mhz"]["value"] == pytest.approx(1980, rel=1e-3)
    assert all(entry["value"] > 0 and entry["unit"] and entry["meaning"] for entry in result["constants"].values())
