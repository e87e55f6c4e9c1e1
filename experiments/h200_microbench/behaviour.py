"""Tables of what a GPU's block scheduler and warp schedulers do, from the raw log of the microbenchmarks.

    gpusim record microbench --raw RAW --out FOLDER
    python experiments/h200_microbench/behaviour.py RAW FOLDER

The first command also writes the tables behind the constants of the model. README.md says what each table shows.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpusim.lab.record.block_log import (
    SEGMENTS,
    LoggedLaunch,
    MicrobenchLog,
    Row,
    Table,
    load_recording,
    repeats,
    spread,
)
from gpusim.lab.record.microbench import write_csv

SCHEDULERS = 4
"""Warp schedulers of an SM."""

REGISTERS = 65_536
"""Of an SM."""

SLOW_CLOCK = 0.97  # of the clock otherwise, under which an SM counts as slow


def by_repeat(launches: Sequence[LoggedLaunch]) -> Iterator[tuple[int, dict[str, LoggedLaunch]]]:
    """Yields each repeat of a case, in order, with its launches by role."""
    for group in repeats(launches):
        yield group[0].rep, {launch.role: launch for launch in group}


def progress_curves(launch: LoggedLaunch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When each block had done each eighth of its work, averaged over its warps.

    Returns:
        clocks: [grid, SEGMENTS + 1], cycles on the SM's clock, the first its start.
        done: [SEGMENTS + 1], the fraction done.
    """
    if launch.progress is None:
        raise ValueError("this launch recorded no progress")
    starts = launch.blocks["start_clock"].astype(np.float64)[:, None]
    clocks = np.concatenate([starts, starts + launch.progress.astype(np.float64).mean(axis=1)], axis=1)
    return clocks, np.linspace(0.0, 1.0, SEGMENTS + 1)


def overlap_rates(a: LoggedLaunch, b: LoggedLaunch) -> NDArray[np.float64]:
    """How fast the blocks of two launches progress while both are on an SM.

    Returns:
        [SMs, 3]: offset of b's start from a's (cycles), rate of a and of b (mean over their blocks on the SM, work a
        cycle) from b's last start to the first end. SMs that do not hold both as arranged are left out.
    """
    curves_a, done = progress_curves(a)
    curves_b, _ = progress_curves(b)
    of_b = dict(b.by_sm())
    rows = []
    for smid, in_a in a.by_sm():
        in_b = of_b.get(smid)
        if in_b is None or len(in_a) != a.per_sm or len(in_b) != b.per_sm:
            continue
        low = curves_b[in_b, 0].max()
        high = min(float(a.blocks["end_clock"][in_a].min()), float(b.blocks["end_clock"][in_b].min()))
        if high - low < 3000:
            continue
        rate_a, rate_b = (
            np.mean([np.diff(np.interp((low, high), curve[i], done))[0] for i in members]) / (high - low)
            for curve, members in ((curves_a, in_a), (curves_b, in_b))
        )
        rows.append((low - curves_a[in_a, 0].min(), rate_a, rate_b))
    return np.array(rows).reshape(-1, 3)


def rates_by_age(launch: LoggedLaunch) -> NDArray[np.float64]:
    """How fast resident blocks progress by age, in the steady state of a launch of many waves.

    Counts only the time when exactly `per_sm` blocks are resident on an SM and the first wave's start is over.

    Returns:
        [per_sm] work a cycle (1 = a whole block), oldest first.
    """
    clocks, done = progress_curves(launch)
    k = launch.per_sm
    work, time = np.zeros(k), 0.0
    for _, members in launch.by_sm():
        starts, ends = clocks[members, 0], launch.blocks["end_clock"][members].astype(np.float64)
        edges = np.unique(np.concatenate([starts, ends]))
        low, high = edges[:-1], edges[1:]
        alive = (starts[:, None] <= low) & (ends[:, None] >= high)
        steady = (alive.sum(axis=0) == k) & ((starts[:, None] <= low).sum(axis=0) > k)
        gained = np.array([np.diff(np.interp(edges, clocks[i], done)) for i in members])
        age = np.cumsum(alive, axis=0) - 1
        for rank in range(k):
            work[rank] += gained[:, steady][(alive & (age == rank))[:, steady]].sum()
        time += float((high - low)[steady].sum())
    return work / time if time else np.full(k, np.nan)


def extra_blocks(launch: LoggedLaunch, sm_count: int) -> NDArray[np.int64]:
    """Number of SMs that got 0, 1, 2, … blocks more than the first wave gave them."""
    counts = np.bincount(launch.blocks["smid"], minlength=sm_count) - launch.per_sm
    return np.bincount(np.maximum(counts, 0))


def residents_at(launch: LoggedLaunch, ns: int, sm_count: int) -> NDArray[np.int64]:
    """Blocks of a launch that were on each SM at a time: [SMs]."""
    there = (launch.starts_ns <= ns) & (launch.ends_ns > ns)
    return np.bincount(launch.blocks["smid"][there], minlength=sm_count)


def last_repeats(launches: Iterable[LoggedLaunch]) -> list[LoggedLaunch]:
    """The last repeat of each launch: the first may have found its operands outside L2."""
    return list({(launch.experiment, launch.kernel, launch.case): launch for launch in launches}.values())


def alone_clocks(recording: MicrobenchLog) -> dict[str, float]:
    """Cycles that a block of each kernel lives alone on an SM."""
    return {
        launch.kernel: float(launch.life_clocks.mean())
        for launch in last_repeats(recording.of("one_wave"))
        if launch.per_sm == 1
    }


def residency_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Several (k) blocks of a kernel on every SM: their lives relative to a lone block's, and the SM's throughput."""
    alone = alone_clocks(recording)
    for launch in last_repeats(recording.of("one_wave", "many_waves")):
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


def sharing_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def topology_table(recording: MicrobenchLog) -> Table:
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


def clock_table(recording: MicrobenchLog) -> Iterator[Row]:
    """SM clock beside blocks of each kind of arithmetic: how many SMs are slow, least and greatest clock."""
    alone = recording.clocks_per_ns * 1000
    for (_, case), launches in recording.cases("clock").items():
        load, blocks = (text.rpartition("=")[2] for text in case.split("/"))
        mhz: dict[int, list[float]] = defaultdict(list)
        for launch in launches:
            if launch.role == "watch":
                rates = launch.life_clocks / (launch.ends_ns - launch.starts_ns).astype(np.float64) * 1000
                for sm, rate in zip(launch.blocks["smid"], rates, strict=True):
                    mhz[int(sm)].append(float(rate))
        seen = np.array([np.median(values) for values in mhz.values()])
        row = {"load": load, "blocks": int(blocks), "sms_seen": len(seen)}
        row |= {"sms_slow": int((seen < SLOW_CLOCK * alone).sum())}
        yield row | {"mhz_lowest": round(float(seen.min())), "mhz_highest": round(float(seen.max()))}


def dependency_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def cluster_table(recording: MicrobenchLog) -> Iterator[Row]:
    """SMs that a kernel in clusters can have at once in a green context or in the rest beside it, by cluster size."""
    for scalar in recording.scalars:
        if scalar["experiment"] == "cluster_room":
            part, sms, blocks = (text.rpartition("=")[2] for text in scalar["case"].split("/"))
            used = int(blocks) * int(scalar["value"])
            yield {"part": part, "sms": int(sms), "cluster_blocks": int(blocks), "sms_used": used}


def issue_table(recording: MicrobenchLog) -> Iterator[Row]:
    """One block an SM of 1 to 32 warps: its life, relative to that of one warp."""
    shortest: dict[str, float] = {}
    for launch in last_repeats(recording.of("issue")):
        life = float(launch.life_clocks.mean())
        shortest.setdefault(launch.kernel, life)
        yield {
            "kernel": launch.kernel,
            "warps": launch.threads // 32,
            "relative_life": round(life / shortest[launch.kernel], 4),
        }


def age_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def placement_table(recording: MicrobenchLog) -> Table:
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


def room_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def queue_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def carveout_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def drain_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def l1_table(recording: MicrobenchLog) -> Iterator[Row]:
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


def _l1_blocks(kernel: LoggedLaunch, big: Sequence[LoggedLaunch], clocks_per_ns: float) -> Iterator[tuple[str, Row]]:
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


def tail_table(recording: MicrobenchLog) -> Iterator[Row]:
    """One wave and a part: its time relative to one wave's, and how many SMs got how many of the extra blocks."""
    one_wave: dict[str, float] = {}
    groups: dict[tuple[str, str], list[LoggedLaunch]] = defaultdict(list)
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


def beside_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Life of a block beside blocks on other SMs that spin, or compute on tensor cores."""
    lives: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, case), launches in recording.cases("life_beside").items():
        for launch in launches:
            if launch.role == "watch":
                lives[launch.kernel, case.rpartition("=")[2]].extend((launch.ends_ns - launch.starts_ns) / 1000.0)
    for (kernel, load), values in lives.items():
        yield {"kernel": kernel, "beside": load} | spread(np.array(values), "life_us", 2)


def scheduler_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Blocks a, b and c on every SM: warps on its fullest scheduler, and times over that of a warp alone on its SM.

    The warps are the most at once, mean over SMs. Times are medians over the repeats: mean life of the blocks of each,
    and time from the first start to the last end over the number of waves.
    """
    fullest: dict[str, list[float]] = defaultdict(list)
    for scalar in recording.scalars:
        if scalar["experiment"] == "schedulers":
            fullest[scalar["case"]].append(scalar["value"])
    lone_ns: dict[str, float] = {}  # by kernel: its first case is a warp alone
    for (_, case), launches in recording.cases("schedulers").items():
        groups = {role: [launch for launch in launches if launch.role == role] for role in "abc"}
        first = groups["a"][0]
        lone = lone_ns.setdefault(first.kernel, _life_ns(groups["a"]))
        waves = len(first.blocks) // (first.per_sm * recording.sm_count)
        warps = sum(of[0].per_sm * of[0].threads // 32 for of in groups.values() if of)
        spans = [max(x.ends_ns.max() for x in of) - min(x.starts_ns.min() for x in of) for of in repeats(launches)]
        row: Row = {"kernel": first.kernel}
        for role, of in groups.items():
            row |= {f"warps_{role}": of[0].threads // 32 if of else 0, f"blocks_{role}": of[0].per_sm if of else 0}
        row |= {
            "waves": waves,
            "warps": warps,
            "warps_over_4_rounded_up": -(-warps // SCHEDULERS),
            "warps_on_fullest_scheduler": round(float(np.median(fullest[case])), 3),
        }
        for role, of in groups.items():
            row[f"relative_life_{role}"] = round(_life_ns(of) / lone, 3) if of else ""
        yield row | {"relative_time_per_wave": round(float(np.median(spans)) / waves / lone, 3)}


def register_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Blocks of b that start at once beside one of a on every SM, and how many would were registers summed over the SM.

    Registers are by thread, as the compiler gives them; warps are allocated 256 at a time.
    """
    for launches in recording.cases("register_room").values():
        for rep, party in by_repeat(launches):
            a, b = party["a"], party["b"]
            at_once = b.blocks[b.starts_ns < min(a.ends_ns.min(), b.ends_ns.min())]
            got = np.bincount(at_once["smid"], minlength=recording.sm_count)
            held, needed = (-(-launch.registers // 8) * 8 * launch.threads for launch in (a, b))
            row: Row = {"a_warps": a.threads // 32, "a_registers": a.registers}
            row |= {"b_warps": b.threads // 32, "b_registers": b.registers, "rep": rep}
            row |= {"b_blocks_at_least": int(got.min()), "b_blocks_at_most": int(got.max())}
            yield row | {"b_blocks_if_summed": (REGISTERS - held) // needed}


def _life_ns(launches: Sequence[LoggedLaunch]) -> float:
    return float(np.median([(launch.ends_ns - launch.starts_ns).mean() for launch in launches]))


TABLES: dict[str, Callable[[MicrobenchLog], Iterable[Row]]] = {
    "dependencies": dependency_table,
    "topology": topology_table,
    "clusters": cluster_table,
    "clock": clock_table,
    "beside_tensor": beside_table,
    "issue": issue_table,
    "schedulers": scheduler_table,
    "residency": residency_table,
    "ages": age_table,
    "sharing": sharing_table,
    "placement": placement_table,
    "room": room_table,
    "queue": queue_table,
    "carveout": carveout_table,
    "drain": drain_table,
    "registers": register_table,
    "l1": l1_table,
    "tails": tail_table,
}
"""Each table's name (and file) and the function that makes it."""


def main() -> None:
    """Write every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path, help="the folder of the raw log")
    parser.add_argument("out", type=Path, help="the folder of the tables")
    args = parser.parse_args()
    recording = load_recording(args.raw)
    for name, make in TABLES.items():
        write_csv(args.out / f"{name}.csv", list(make(recording)))


if __name__ == "__main__":
    main()
