"""The tables of the microbenchmarks and the constants of the model, from a log.

`experiments/h200_microbench` describes each table. Nothing here needs a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from gpusim.lab.record.block_log import (
    Launch,
    Recording,
    Row,
    Table,
    by_repeat,
    extra_blocks,
    gaps_ns,
    order_violation_ns,
    overlap_rates,
    progress_curves,
    rates_by_age,
    refill_delays,
    repeats,
    residents_at,
    spread,
)
from gpusim.lab.record.clock_tables import beside_table, clock_table
from gpusim.lab.record.scheduler_tables import register_table, scheduler_table

NOT_MEMORY = {"launch_rate", "timers", "cluster_room", "schedulers"}  # experiments with scalars of other tables


def gap_table(recording: Recording) -> Iterator[Row]:
    """Gaps between kernels of one sequence, by experiment and case."""
    for (experiment, case), launches in recording.cases("gap_stream", "gap_event", "gap_carveout").items():
        gaps = gaps_ns(launches)
        life = np.median([np.median(launch.life_clocks) for launch in launches]) / recording.clocks_per_ns
        row = {"experiment": experiment, "case": case, "gaps": len(gaps)}
        yield row | spread(gaps, "gap_ns", 0) | {"block_life_ns": round(float(life))}


def turn_table(recording: Recording) -> Iterator[Row]:
    """Gaps between kernels of one stream beside others, by number of streams, grid and whether lives are alike."""
    for (_, case), launches in recording.cases("gap_beside").items():
        roles = sorted({launch.role for launch in launches})
        gaps = np.concatenate([gaps_ns([launch for launch in launches if launch.role == role]) for role in roles])
        row = {"case": case, "streams": len(roles), "gaps": len(gaps), "gap_ns_mean": round(float(gaps.mean()))}
        yield row | spread(gaps, "gap_ns", 0)


def start_table(recording: Recording) -> Iterator[Row]:
    """Streams released at once, and children that wait for one parent: start of the n-th to start, ns."""
    for (experiment, case), launches in recording.cases("release", "fork").items():
        delays = []
        for group in repeats(launches):
            parent = [launch.ends_ns.max() for launch in group if launch.role == "parent"]
            first = [int(launch.starts_ns.min()) for launch in group if launch.role != "parent"]
            delays.append(sorted(ns - int(parent[0] if parent else min(first)) for ns in first))
        for place, values in enumerate(np.array(delays, np.float64).T, start=1):
            row = {"experiment": experiment, "case": case, "nth_to_start": place, "repeats": len(values)}
            yield row | spread(values, "delay_ns", 0)


def dependency_table(recording: Recording) -> Iterator[Row]:
    """From the end of a kernel whose event others wait for to the next of its stream and the n-th that waits."""
    for (_, case), launches in recording.cases("dependency").items():
        delays: dict[str, list[float]] = {}
        for group in repeats(launches):
            ends = {launch.role: int(launch.ends_ns.max()) for launch in group}
            children = sorted(int(launch.starts_ns.min()) for launch in group if launch.role == "child")
            starts = {launch.role: int(launch.starts_ns.min()) for launch in group if launch.role != "child"}
            delays.setdefault("parent", []).append(starts["parent"] - ends["first"])
            delays.setdefault("next", []).append(starts["next"] - ends["parent"])
            for place, start in enumerate(children, start=1):
                delays.setdefault(f"child {place}", []).append(start - ends["parent"])
        for kernel, values in delays.items():
            ns = np.array(values, np.float64)
            row = {"case": case, "kernel": kernel, "repeats": len(values), "delay_ns_mean": round(float(ns.mean()))}
            yield row | spread(ns, "delay_ns", 0)


def cluster_table(recording: Recording) -> Iterator[Row]:
    """SMs that a kernel in clusters can have at once in a green context or in the rest beside it, by cluster size."""
    for scalar in recording.scalars:
        if scalar["experiment"] == "cluster_room":
            part, sms, blocks = (text.rpartition("=")[2] for text in scalar["case"].split("/"))
            used = int(blocks) * int(scalar["value"])
            yield {"part": part, "sms": int(sms), "cluster_blocks": int(blocks), "sms_used": used}


def launch_table(recording: Recording) -> Table:
    """Launch rate of empty blocks (blocks a us), and the life of a block without work, alone on its SM."""
    table = [
        {"experiment": "launch_rate", "case": case, "quantity": quantity, "value": round(value, 1)}
        for (_, case, quantity), (value, _, _) in _medians(recording, "launch_rate").items()
    ]
    for (_, case), launches in recording.cases("no_work").items():
        life = np.median(launches[-1].life_clocks) / recording.clocks_per_ns
        table.append({"experiment": "no_work", "case": case, "quantity": "block_life_ns", "value": round(float(life))})
    return table


def _medians(recording: Recording, *experiments: str) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in recording.scalars:
        if row["experiment"] in experiments:
            values[row["experiment"], row["case"], row["quantity"]].append(row["value"])
    return {key: (float(np.median(found)), min(found), max(found)) for key, found in values.items()}


def memory_table(recording: Recording) -> Table:
    """Bandwidths (GB/s, 1e9 bytes) and latencies (ns): median, lowest and highest repeat."""
    experiments = sorted({row["experiment"] for row in recording.scalars} - NOT_MEMORY)
    return [
        {
            "experiment": experiment,
            "case": case,
            "quantity": quantity,
            "median": round(middle, 1),
            "lowest": round(low, 1),
            "highest": round(high, 1),
        }
        for (experiment, case, quantity), (middle, low, high) in _medians(recording, *experiments).items()
    ]


def _last_repeats(launches: Iterable[Launch]) -> list[Launch]:
    """The last repeat of each launch: the first may have found its operands outside L2."""
    return list({(launch.experiment, launch.kernel, launch.case): launch for launch in launches}.values())


def alone_clocks(recording: Recording) -> dict[str, float]:
    """Cycles that a block of each kernel lives alone on an SM."""
    return {
        launch.kernel: float(launch.life_clocks.mean())
        for launch in _last_repeats(recording.of("one_wave"))
        if launch.per_sm == 1
    }


def issue_table(recording: Recording) -> Iterator[Row]:
    """One block per SM with 1 to 32 warps: its lifetime, relative to that of one warp."""
    shortest: dict[str, float] = {}
    for launch in _last_repeats(recording.of("issue")):
        life = float(launch.life_clocks.mean())
        shortest.setdefault(launch.kernel, life)
        yield {
            "kernel": launch.kernel,
            "warps": launch.threads // 32,
            "relative_life": round(life / shortest[launch.kernel], 4),
        }


def residency_table(recording: Recording) -> Iterator[Row]:
    """Several (k) blocks of a kernel on every SM: their lives relative to a lone block's, and the SM's throughput."""
    alone = alone_clocks(recording)
    for launch in _last_repeats(recording.of("one_wave", "many_waves")):
        lives = launch.life_clocks / alone[launch.kernel]
        first_end, span = [], []
        for _, members in launch.by_sm():
            start = float(launch.blocks["start_clock"][members].min())
            ends = np.sort(launch.blocks["end_clock"][members].astype(np.float64)) - start
            first_end.append(ends[0] / ends[-1])
            span.append(ends[-1] / alone[launch.kernel])
        yield {
            "kernel": launch.kernel,
            "threads": launch.threads,
            "registers": launch.registers,
            "k": launch.per_sm,
            "waves": len(launch.blocks) // (launch.per_sm * recording.sm_count),
            "relative_life": round(float(lives.mean()), 4),
            "life_cv": round(float(lives.std() / lives.mean()), 4),
            "shortest": round(float(lives.min()), 3),
            "longest": round(float(lives.max()), 3),
            "throughput": round(len(launch.blocks) / recording.sm_count / float(np.mean(span)), 4),
            "first_end_over_last": round(float(np.mean(first_end)), 4) if launch.experiment == "one_wave" else "",
        }


def age_table(recording: Recording) -> Iterator[Row]:
    """Rate of each resident block by age in the steady state (0 = oldest), relative to a lone block's."""
    alone = alone_clocks(recording)
    for launch in recording.of("many_waves"):
        if launch.progress is None or launch.per_sm < 2:
            continue
        rates = rates_by_age(launch) * alone[launch.kernel]
        for rank, rate in enumerate(rates):
            yield {
                "kernel": launch.kernel,
                "k": launch.per_sm,
                "age_rank": rank,
                "rate": round(float(rate), 4),
                "share_percent": round(100 * float(rate / rates.sum()), 2),
            }


def sharing_table(recording: Recording) -> Iterator[Row]:
    """Blocks of a on an SM, then blocks of b: rates of each while both are there, relative to alone."""
    alone = alone_clocks(recording)
    for (experiment, case), launches in recording.cases("stagger", "corun").items():
        found, reps = [], repeats(launches)
        for group in reps:
            a, b = (next(x for x in group if x.role == role) for role in "ab")
            rates = overlap_rates(a, b)
            found.append(rates * (1 / alone[a.kernel], alone[a.kernel], alone[b.kernel]))
        rows = np.concatenate(found)
        if not len(rows):
            continue
        share = rows[:, 1] / (rows[:, 1] + rows[:, 2])
        offset, rate_a, rate_b = rows.mean(axis=0)
        yield {
            "experiment": experiment,
            "a": a.kernel,
            "blocks_a": a.per_sm,
            "b": b.kernel,
            "blocks_b": b.per_sm,
            "case": case,
            "offset": round(float(offset), 3),
            "rate_a": round(float(rate_a), 4),
            "rate_b": round(float(rate_b), 4),
            "share_a_percent": round(100 * float(share.mean()), 2),
            "share_a_sd": round(100 * float(share.std()), 2),
            "sms_counted": round(len(rows) / len(reps)),
        }


def placement_table(recording: Recording) -> Table:
    """The first wave of blocks: block index, SM and start (ns after the first), for 256-thread blocks."""
    return [
        {
            "case": launch.case,
            "rep": launch.rep,
            "block": int(b["block"]),
            "smid": int(b["smid"]),
            "start_ns": int(ns),
        }
        for launch in recording.of("first_wave")
        if launch.threads == 256 and launch.rep < 2 and launch.per_sm <= 2
        for b, ns in zip(launch.blocks, launch.starts_ns - launch.starts_ns.min(), strict=True)
    ]


def topology_table(recording: Recording) -> Table:
    """Per SM: a number for the SMs that clusters showed to share a GPC, and the smallest green context it was in."""
    group = list(range(recording.sm_count))

    def root(x: int) -> int:
        while group[x] != x:
            x = group[x]
        return x

    for launch in recording.of("cluster"):
        size = int(launch.case)
        smids = launch.blocks["smid"][np.argsort(launch.blocks["block"])]
        for first in range(0, len(smids) // size * size, size):
            for smid in smids[first : first + size]:
                group[root(int(smid))] = root(int(smids[first]))
    green: dict[int, int] = {}
    for launch in sorted(recording.of("green"), key=lambda launch: -int(launch.case)):
        green.update(dict.fromkeys(np.unique(launch.blocks["smid"]).tolist(), int(launch.case)))
    numbers: dict[int, int] = {}
    return [
        {
            "smid": smid,
            "gpc_group": numbers.setdefault(root(smid), len(numbers)),
            "smallest_green_context": green.get(smid, ""),
        }
        for smid in range(recording.sm_count)
    ]


def refill_table(recording: Recording) -> Iterator[Row]:
    """Delay from the end of a block to the start of its successor on the SM; and by how much order is kept."""
    for (_, case), launches in recording.cases("refill").items():
        delays = np.concatenate([refill_delays(launch, recording.clocks_per_ns) for launch in launches])
        worst = max(order_violation_ns(launch) for launch in launches)
        row = {"case": case, "refills": len(delays)} | spread(delays, "delay_ns", 0)
        yield row | {"delay_ns_longest": round(float(delays.max())), "order_violation_ns": worst}


def room_table(recording: Recording) -> Iterator[Row]:
    """Which SMs a few new blocks get when SMs hold 0, 1 or 2 of at most 2 blocks."""
    for (_, case), launches in recording.cases("room").items():
        for rep, party in by_repeat(launches):
            b = party["b"]
            residents = residents_at(party["a"], int(b.starts_ns.min()) - 60, recording.sm_count)
            at_once = b.starts_ns - b.starts_ns.min() < 1000
            got = np.bincount(b.blocks["smid"][at_once], minlength=recording.sm_count)
            row: Row = {"case": case, "rep": rep, "placed_at_once": int(at_once.sum())}
            for n in range(3):
                row[f"sms_with_{n}"] = int((residents == n).sum())
                row[f"placed_on_sms_with_{n}"] = int(got[residents == n].sum())
            yield row | {"most_on_an_empty_sm": int(got[residents == 0].max(initial=0))}


def queue_table(recording: Recording) -> Iterator[Row]:
    """Kernel b behind kernel a, in another stream: who starts when (us after a's first block)."""
    for (experiment, case), launches in recording.cases("head_of_line", "priority").items():
        for rep, party in by_repeat(launches):
            a, b = party["a"], party["b"]
            zero, due = int(a.starts_ns.min()), int(party["delay"].ends_ns.max())
            waiting = (a.starts_ns > due + 2500) & (a.starts_ns < b.starts_ns.max())
            times = {
                "b_due_us": due,
                "b_first_start_us": b.starts_ns.min(),
                "b_last_start_us": b.starts_ns.max(),
                "a_last_start_us": a.starts_ns.max(),
            }
            yield (
                {"experiment": experiment, "case": case, "rep": rep}
                | {name: round((int(ns) - zero) / 1000, 2) for name, ns in times.items()}
                | {
                    "b_blocks": len(b.blocks),
                    "b_starts_before_last_a": int((b.starts_ns < a.starts_ns.max()).sum()),
                    "a_starts_while_b_waits": int(waiting.sum()),
                }
            )


def carveout_table(recording: Recording) -> Iterator[Row]:
    """Blocks of b due on SMs that hold a's and another carve-out: do they start beside them or wait for a drain?"""
    for (experiment, case), launches in recording.cases("carveout", "carveout_matrix").items():
        for rep, party in by_repeat(launches):
            a, b = party["a"], party["b"]
            waits = (b.starts_ns - int(party["delay"].ends_ns.max())) / 1000
            beside = []
            for block in b.blocks:
                on = a.blocks[a.blocks["smid"] == block["smid"]]
                there = (on["start_ns"] < block["start_ns"]) & (on["end_ns"] > block["start_ns"])
                beside.append(int(there.sum()))
            yield {
                "experiment": experiment,
                "case": case,
                "rep": rep,
                "started_at_once_percent": round(100 * float((waits < 5).mean()), 1),
                "wait_us_median": round(float(np.median(waits)), 2),
                "wait_us_longest": round(float(waits.max()), 2),
                "a_blocks_beside_b_most": max(beside),
                "sms_used_by_b": len(np.unique(b.blocks["smid"])),
            }


def drain_table(recording: Recording) -> Iterator[Row]:
    """Few blocks of b wait while SMs drain of a's, one an SM: which SMs get them, and when (us after a's first)."""
    for (_, case), launches in recording.cases("drain").items():
        for rep, party in by_repeat(launches):
            a, b = party["a"], party["b"]
            zero, first = int(a.starts_ns.min()), int(b.starts_ns.min())
            got = np.bincount(b.blocks["smid"], minlength=recording.sm_count)
            row: Row = {"case": case, "rep": rep, "b_blocks": len(b.blocks)}
            row |= {"sms_used_by_b": int((got > 0).sum()), "most_b_blocks_on_an_sm": int(got.max())}
            row["idle_sms_at_b_first_start"] = int((residents_at(a, first, recording.sm_count) == 0).sum())
            times = {
                "a_last_start_us": a.starts_ns.max(),
                "a_last_end_us": a.ends_ns.max(),
                "b_first_start_us": first,
                "b_median_start_us": np.median(b.starts_ns),
                "b_last_start_us": b.starts_ns.max(),
            }
            yield row | {name: round((int(ns) - zero) / 1000, 2) for name, ns in times.items()}


def l1_table(recording: Recording) -> Iterator[Row]:
    """A kernel that lives on L1, after or beside blocks that need 200 KB: its blocks by what their SM held.

    Times are medians over blocks, us. The second and the last eighth are of a block's work; by the second, its
    footprint is where it will stay.
    """
    for (_, case), launches in recording.cases("l1").items():
        groups: dict[str, list[Row]] = defaultdict(list)
        reps = repeats(launches)[1:]  # the first finds its footprint outside L2
        for of_rep in reps:
            kernel = next(launch for launch in of_rep if launch.role == "k")
            for where, row in _l1_blocks(kernel, [x for x in of_rep if x.role == "big"], recording.clocks_per_ns):
                groups[where].append(row)
        for where, rows in groups.items():
            late = sorted(rows, key=lambda row: float(row["start_us"]))[-(len(rows) // 4 or 1) :]
            middle = {name: float(np.median([row[name] for row in rows])) for name in rows[0]}
            yield {
                "case": case,
                "on_the_sm": where,
                "blocks": len(rows) // len(reps),
                "life_us": round(middle["life_us"], 2),
                "second_eighth_us": round(middle["second_us"], 2),
                "last_eighth_us": round(middle["last_us"], 2),
                "life_of_last_quarter_to_start_us": round(float(np.median([row["life_us"] for row in late])), 2),
                "beside_most": int(max(row["beside"] for row in rows)),
            }


def _l1_blocks(kernel: Launch, big: Sequence[Launch], clocks_per_ns: float) -> Iterator[tuple[str, Row]]:
    clocks, _ = progress_curves(kernel)
    steps = np.diff(clocks, axis=1) / clocks_per_ns / 1000
    others = np.concatenate([launch.blocks for launch in big]) if big else kernel.blocks[:0]
    first = int(kernel.starts_ns.min())
    for index, block in enumerate(kernel.blocks):
        on = others[others["smid"] == block["smid"]]
        there = ((on["start_ns"] < block["start_ns"]) & (on["end_ns"] > block["start_ns"])).any()
        beside = (kernel.blocks["smid"] == block["smid"]) & (kernel.blocks["start_ns"] <= block["start_ns"])
        row = {
            "start_us": (int(block["start_ns"]) - first) / 1000,
            "life_us": float(kernel.life_clocks[index]) / clocks_per_ns / 1000,
            "second_us": float(steps[index, 1]),
            "last_us": float(steps[index, -1]),
            "beside": int((beside & (kernel.blocks["end_ns"] > block["start_ns"])).sum()) - 1,
        }
        yield ("a block of 200 KB at its start" if there else "no block of 200 KB"), row


def tail_table(recording: Recording) -> Iterator[Row]:
    """One wave and a part: its time relative to one wave's, and how many SMs got how many of the extra blocks."""
    one_wave: dict[str, float] = {}
    groups: dict[tuple[str, str], list[Launch]] = defaultdict(list)
    for launch in recording.of("tail"):
        groups[launch.kernel, launch.case].append(launch)
    for (kernel, case), launches in groups.items():
        spans = np.array([float(x.ends_ns.max() - x.starts_ns.min()) for x in launches])
        one_wave.setdefault(kernel, float(np.median(spans)))  # the first case is one wave alone
        extra = np.zeros(16)
        for launch in launches:
            counts = extra_blocks(launch, recording.sm_count)
            extra[: len(counts)] += counts / len(launches)
        row: Row = {"kernel": kernel, "k": launches[0].per_sm, "extra_waves": float(case.rpartition("=")[2])}
        row |= {
            f"relative_time_{name}": round(float(value) / one_wave[kernel], 4)
            for name, value in (
                ("median", np.median(spans)),
                ("shortest", spans.min()),
                ("longest", spans.max()),
            )
        }
        yield row | {f"sms_with_{n}_extra": round(float(extra[n]), 1) for n in range(9)}


TABLES: dict[str, Callable[[Recording], Iterable[Row]]] = {
    "gaps": gap_table,
    "turns": turn_table,
    "dependencies": dependency_table,
    "clusters": cluster_table,
    "clock": clock_table,
    "beside_tensor": beside_table,
    "starts": start_table,
    "launch": launch_table,
    "issue": issue_table,
    "schedulers": scheduler_table,
    "residency": residency_table,
    "ages": age_table,
    "sharing": sharing_table,
    "placement": placement_table,
    "topology": topology_table,
    "refill": refill_table,
    "room": room_table,
    "queue": queue_table,
    "carveout": carveout_table,
    "drain": drain_table,
    "registers": register_table,
    "l1": l1_table,
    "tails": tail_table,
    "memory": memory_table,
}
"""Each table's name (and file) and the function that makes it."""


def summarise(recording: Recording) -> dict[str, Table]:
    """Makes every table of a recording, by name."""
    return {name: list(make(recording)) for name, make in TABLES.items()}


def _turn_us(turns: Table) -> float:
    """Growth of the mean gap a stream more, us: least squares through the gap without others."""
    beside = np.array([row["streams"] for row in turns], np.float64) - 1.0
    gaps = np.array([row["gap_ns_mean"] for row in turns], np.float64)
    return float(beside @ (gaps - gaps[beside == 0].mean()) / (beside @ beside)) / 1000


def constants(recording: Recording, tables: dict[str, Table]) -> dict[str, Row]:
    """The constants that the model can use, each with value, unit and meaning."""
    sms = recording.sm_count
    memory = {(r["experiment"], r["case"], r["quantity"]): r["median"] for r in tables["memory"]}

    def rate(experiment: str, case: str) -> float:
        return float(memory[experiment, case, "stream_gb_per_s"])

    def gap(experiment: str, case: str) -> float:
        return next(
            float(r["gap_ns_median"]) / 1000
            for r in tables["gaps"]
            if (r["experiment"], r["case"]) == (experiment, case)
        )

    work_free = [r["value"] for r in tables["launch"] if r["experiment"] == "no_work" and r["case"].startswith("gemm")]
    empty = next(r["value"] for r in tables["launch"] if r["case"] == "empty/threads=128/shared_bytes=0")
    forks = [r["delay_ns_median"] for r in tables["starts"] if r["experiment"] == "fork"]
    refill = float(np.median([r["delay_ns_median"] for r in tables["refill"]]))
    life = "life_us=5/written_bytes=0"
    found: list[tuple[str, float, str, str]] = [
        ("sm_clock_mhz", recording.clocks_per_ns * 1000, "MHz", "SM clock during the run"),
        ("kernel_gap_us", gap("gap_stream", f"grid={sms}/{life}"), "us",
         "end of a kernel's last block to the first start of the next in its stream, queued ahead"),
        ("kernel_gap_full_us", gap("gap_stream", f"grid={10 * sms}/{life}"), "us",
         "the same when ten blocks an SM end together"),
        ("event_gap_us", gap("gap_event", f"grid={sms}"), "us", "the same across streams, by an event"),
        ("stream_turn_us", _turn_us(tables["turns"]), "us",
         "what the gap between kernels of a stream grows by for each other stream that has kernels"),
        ("fork_step_us", float(np.mean(np.diff(forks))) / 1000, "us",
         "from one child stream's start to the next's, when several wait for one event"),
        ("block_refill_us", refill / 1000, "us", "end of a block to the start of its successor on the SM"),
        ("block_launch_per_us", empty, "1/us", "blocks that the device can start, near-empty blocks of 128 threads"),
        ("block_floor_us", float(np.median(work_free)) / 1000, "us",
         "life of a GEMM block without a main loop, alone on its SM"),
        ("dram_read_gb_per_s", rate("dram_bandwidth", f"read/sms={sms}/warps=32"), "GB/s", "sustained, all SMs"),
        ("dram_write_gb_per_s", rate("dram_bandwidth", f"write/sms={sms}/warps=32"), "GB/s", "sustained, all SMs"),
        ("dram_copy_gb_per_s", rate("dram_bandwidth", f"copy/sms={sms}/warps=32"), "GB/s",
         "sustained, all SMs, bytes read plus written"),
        ("dram_read_sm_gb_per_s", rate("dram_bandwidth", "read/sms=8/warps=32") / 8, "GB/s", "one SM of eight"),
        ("l2_read_gb_per_s", rate("l2_bandwidth", f"read/sms={sms}/warps=32"), "GB/s", "L2 hits, all SMs"),
        ("l2_write_gb_per_s", rate("l2_bandwidth", f"write/sms={sms}/warps=32"), "GB/s", "into L2, all SMs"),
        ("l2_read_sm_gb_per_s", rate("l2_bandwidth", "read/sms=8/warps=32") / 8, "GB/s", "L2 hits, one SM of eight"),
        ("write_sm_gb_per_s", rate("l2_bandwidth", "write/sms=8/warps=32") / 8, "GB/s", "stores, one SM of eight"),
        ("l2_red_gb_per_s", rate("l2_bandwidth", f"red/sms={sms}/warps=16"), "GB/s",
         "32-bit float reductions into L2 without return, coalesced, bytes of operands, all SMs"),
        ("l2_atom_gb_per_s", rate("l2_bandwidth", f"atom/sms={sms}/warps=16"), "GB/s", "the same with return"),
        ("red_sm_gb_per_s", rate("l2_bandwidth", "red/sms=8/warps=16") / 8, "GB/s", "reductions, one SM of eight"),
        ("atom_sm_gb_per_s", rate("l2_bandwidth", "atom/sms=8/warps=16") / 8, "GB/s",
         "atomics with return, one SM of eight"),
        ("l2_latency_ns", memory["l2_latency", "idle", "latency_ns"], "ns", "dependent load that hits L2"),
        ("dram_latency_ns", memory["dram_latency", "beside_read/warps=1", "latency_ns"], "ns",
         "dependent load from DRAM, device lightly loaded"),
        ("dram_latency_loaded_ns", memory["dram_latency", "beside_read/warps=32", "latency_ns"], "ns",
         "the same beside reads at full bandwidth"),
    ]  # fmt: skip
    return {name: {"value": float(f"{value:.4g}"), "unit": unit, "meaning": text} for name, value, unit, text in found}
