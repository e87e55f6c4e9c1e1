"""ParaDL's oracle against its paper and against iterations on 2 and 4 H200s: `python experiments/paradl/run.py`.

Writes paper.csv, accuracy.csv, best.csv, without.csv, scaling.csv, cosmoflow.csv and overlap.csv beside this file, what
README.md says of them, and prints them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.markdown import table
from experiments.paradl import cosmoflow
from experiments.rows import lines
from experiments.study import TRACES, Run, Study
from gpusim.common.tables import Column, print_line, print_table
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Operation, Stream
from gpusim.training.networks.network import Network
from gpusim.training.networks.steps import training_iteration
from gpusim.training.networks.zoo import network, residual
from gpusim.training.paradl.cluster import load_cluster
from gpusim.training.paradl.divide import WHOLE
from gpusim.training.paradl.equations import DELTA, Links, data_us, filter_us
from gpusim.training.paradl.layers import MEASURED, LayerTimes, measured_times, sizes
from gpusim.training.paradl.oracle import STRATEGIES as ALL
from gpusim.training.paradl.oracle import Impossible, ParadlOracle, fastest

DATA = Path(__file__).resolve().parent / "data"
TRACE = TRACES / "resnet50_b64_training.json.gz"
NETWORKS = ("alexnet", "resnet50", "vgg16")
RANKS = (2, 4)  # with which iterations were measured
LIMITS_GB = (1, 2, 4, 8, 16, 32, 141)
RESNET152 = {"2": (3, 64), "3": (8, 128), "4": (36, 256), "5": (3, 512)}  # blocks and narrow channels, by stage
EXTRAS = DIVIDED, BY_SIZE, COPIES = "times of divided layers", "times of messages by size", "local copies"
BUCKET_BYTES = 25 * 2**20
BLOCKS = (1, 2, 4, 8, 16, 32)  # that NCCL was told to take
USUAL = 24  # that it takes by itself
SHARES = (4, 8, 16, 24, 32)  # SMs for the collectives

# Figures of the paper's logs (paraDL-analysis at 82cdf91, log/data_vgg_… and log/filter_vgg_…): seconds of an epoch of
# 1,280,000 samples of VGG-16. Its 13 convolutions are divided; sums of their y and of all w as printed there.
EPOCH, VGG_W = 1_280_000, 169_801_408
VGG_Y = (3_268_864,) * 2 + (1_634_432,) * 2 + (831_744,) * 3 + (430_592,) * 3 + (115_200,) * 3
PAPER = (
    ("data", 2, 64, 272.0422528), ("data", 4, 128, 204.3016896), ("data", 8, 256, 477.5656424),
    ("data", 16, 512, 256.975362), ("data", 32, 1024, 133.9451162), ("data", 64, 2048, 69.2462169),
    ("filter", 2, 32, 2155.10112), ("filter", 4, 32, 3253.71168), ("filter", 8, 32, 15318.41304),
    ("filter", 16, 32, 16767.2124), ("filter", 32, 32, 18059.01528), ("filter", 64, 32, 19839.72312),
)  # fmt: skip
PAPER_ACCURACY = {  # percent, over all its networks, on up to 1024 V100s
    "data": 96.10, "filter": 85.56, "channel": 73.67, "data+filter": 91.43, "data+spatial": 83.46, "pipeline": 90.22,
}  # fmt: skip
PAPER_MEAN, PAPER_HIGHEST = 86.74, 97.57

TABLES = {
    "paper.csv": ("strategy", "ranks", "batch", "paper_s", "ours_s", "difference_percent"),
    "accuracy.csv": ("network", "ranks", "batch", "strategy", "measured_ms", "predicted_ms", "accuracy_percent"),
    "best.csv": ("network", "ranks", "batch", "limit_gb", "measured", "predicted", "right"),
    "without.csv": ("without", "accuracy_percent", "right", "cases"),
    "scaling.csv": ("network", "scaling", "ranks", "batch", *ALL),
    "cosmoflow.csv": cosmoflow.COLUMNS,
    "overlap.csv": ("collectives", "policy", "blocks", "replayed_ms", "measured_ms"),
}
Row = Mapping[str, str]
Measured = dict[tuple[str, str, int, int], float]  # by network, strategy, ranks, batch


def rows(run: Run) -> dict[str, list[dict[str, str]]]:
    """Make and print every table."""
    oracles = {name: oracle(name) for name in NETWORKS}
    found = {}
    for name, made in {
        "paper.csv": paper,
        "accuracy.csv": lambda: accuracy(oracles),
        "best.csv": lambda: best(oracles),
        "without.csv": without,
        "scaling.csv": lambda: scaling(oracles),
        "cosmoflow.csv": cosmoflow.rows,
        "overlap.csv": overlap,
    }.items():
        columns = TABLES[name]
        texts = [[str(value) for value in row] for row in made()]
        titles = [Column(title.replace("_", " ")) for title in columns]
        print_table(titles, texts, name.removesuffix(".csv").capitalize())
        found[name] = [dict(zip(columns, row, strict=True)) for row in texts]
    _summary(found["accuracy.csv"])
    cases = found["best.csv"]
    right = sum(case["right"] == "yes" for case in cases)
    print_line(f"best strategy named right: {right} of {len(cases)} cases ({100 * right / len(cases):.1f} %)")
    return found


def oracle(name: str, without: Collection[str] | str = ()) -> ParadlOracle:
    """The oracle of a network on the H200 cluster, gamma from two iterations on one GPU; less some `EXTRAS`."""
    net, cluster = network(name), load_cluster("h200")
    times = measured_times(net, "h200")
    if DIVIDED in without:
        times = of_whole_layers(net)
    if BY_SIZE in without:
        links = (cluster.node.all_reduce, cluster.node.all_gather, cluster.node.send_receive)
        cluster = replace(cluster, node=Links(*(replace(link, measured=(), among=()) for link in links)))
    return ParadlOracle(net, times, cluster, gamma(net), copies=COPIES not in without)


def of_whole_layers(net: Network) -> LayerTimes:
    """Times without those measured of divided layers: one of p parts then takes a p-th of the whole."""
    rows = [row for row in lines(MEASURED / "h200.csv.gz") if (row["network"], row["divided"]) == (net.name, WHOLE)]
    times = [(row["layer"], int(row["batch"]), float(row["forward_us"]), float(row["backward_us"])) for row in rows]
    return LayerTimes("h200", [(layer, WHOLE, 1, batch, *us) for layer, batch, *us in times])


def gamma(net: Network) -> float:
    """Share of x and y and their gradients held at once: how memory grows with the batch on one GPU."""
    held = measured("memory", "peak_bytes")
    peaks = {batch: peak for (name, _, ranks, batch), peak in held.items() if (name, ranks) == (net.name, 1)}
    least, most = min(peaks), max(peaks)
    a_sample = 2 * DELTA * sum(size.x + size.y for size in sizes(net).values())
    return (peaks[most] - peaks[least]) / (most - least) / a_sample


def measured(table: str, column: str) -> Measured:
    """A column of a table of measurements, the mean where a case was run twice."""
    found = defaultdict(list)
    for row in lines(DATA / f"{table}.csv"):
        found[row["network"], row["strategy"], int(row["ranks"]), int(row["batch"])].append(float(row[column]))
    return {case: fmean(values) for case, values in found.items()}


# ---- the paper's own projections


def paper() -> Iterator[tuple[object, ...]]:
    """Communication of an epoch by our equations from the paper's sizes, and what its logs print."""
    cluster = load_cluster("abci")
    for strategy, p, batch, printed_s in PAPER:
        links = cluster.links(p)
        iteration_us = data_us(p, VGG_W, links) if strategy == "data" else filter_us(p, batch, VGG_Y, VGG_Y, links)
        ours_s = iteration_us * EPOCH / batch / 1e6
        yield strategy, p, batch, f"{printed_s:.2f}", f"{ours_s:.2f}", f"{100 * (ours_s / printed_s - 1):.3f}"


# ---- measured iterations


def accuracy(oracles: dict[str, ParadlOracle]) -> Iterator[tuple[object, ...]]:
    """Predicted and measured iterations; accuracy as the paper has it: 1 - |difference| / measured."""
    took = measured("training", "replayed_us")
    for name, known in oracles.items():
        for ranks, batch, strategies in _cases(took, name):
            for strategy in strategies:
                real = took[name, strategy, ranks, batch]
                guess = known.project(strategy, ranks, batch).iteration_us
                share = 100 * (1 - abs(guess - real) / real)
                yield name, ranks, batch, strategy, f"{real / 1e3:.2f}", f"{guess / 1e3:.2f}", f"{share:.1f}"


def _summary(rows: Sequence[Row]) -> None:
    papers = PAPER_ACCURACY | {"all": PAPER_MEAN}
    cells = []
    for ranks in map(str, RANKS):
        by_strategy = defaultdict(list)
        for row in rows:
            if row["ranks"] == ranks:
                by_strategy[row["strategy"]].append(float(row["accuracy_percent"]))
        by_strategy["all"] = [value for values in by_strategy.values() for value in values]
        for name, values in by_strategy.items():
            ours = (str(len(values)), f"{fmean(values):.1f}", f"{min(values):.1f}")
            cells.append((ranks, name, *ours, f"{papers.get(name, 0) or '-'}"))
    columns = [Column("H200s", right=True), Column("strategy")]
    columns += [Column(title, right=True) for title in ("cases", "ours %", "least %", "paper %")]
    print_table(columns, cells, "Accuracy: ours on 2 and 4 H200s, the paper's on up to 1024 V100s")
    print_line(f"the paper's highest: {PAPER_HIGHEST} %, VGG-16 (the seed) or data parallelism (the abstract)")


def best(oracles: dict[str, ParadlOracle]) -> Iterator[tuple[object, ...]]:
    """The fastest strategy that fits a memory limit, measured and predicted; cases where nothing fits are left out."""
    took, held = measured("training", "replayed_us"), measured("memory", "peak_bytes")
    for name, known in oracles.items():
        for ranks, batch, run in _cases(took, name):
            for limit in LIMITS_GB:
                fitting = {s: took[name, s, ranks, batch] for s in run if held[name, s, ranks, batch] <= limit * 1e9}
                real = min(fitting, key=lambda s: fitting[s], default="none")
                named = fastest([known.project(s, ranks, batch) for s in run], limit * 1e9)
                guess = named.strategy if named else "none"
                if (real, guess) != ("none", "none"):
                    yield name, ranks, batch, limit, real, guess, "yes" if real == guess else "no"


def without() -> Iterator[tuple[object, ...]]:
    """The scores without what the oracle has beyond the report's equations: each left out, then all."""
    for left_out in (*EXTRAS, tuple(EXTRAS)):
        oracles = {name: oracle(name, left_out) for name in NETWORKS}
        shares = [float(str(row[-1])) for row in accuracy(oracles)]
        cases = [row[-1] for row in best(oracles)]
        name = left_out if isinstance(left_out, str) else "all of them"
        yield name, f"{fmean(shares):.1f}", cases.count("yes"), len(cases)


def _cases(took: Measured, name: str) -> Iterator[tuple[int, int, list[str]]]:
    """Ranks, batch and the strategies that were measured."""
    for ranks, batch in sorted({(ranks, batch) for network_name, _, ranks, batch in took if network_name == name}):
        if ranks in RANKS:
            yield ranks, batch, [strategy for strategy in ALL if (name, strategy, ranks, batch) in took]


def resnet152() -> ParadlOracle:
    """The oracle of ResNet-152: it has ResNet-50's blocks more often, and each takes what its like takes there."""
    net, of_50 = residual("resnet152", RESNET152), network("resnet50")
    like = {node.name: _like(node.name) for node in net.nodes}
    wanted: dict[str, list[str]] = {}
    for layer, other in like.items():
        wanted.setdefault(other, []).append(layer)
    rows = [
        (
            layer,
            row["divided"],
            int(row["parts"]),
            int(row["batch"]),
            float(row["forward_us"]),
            float(row["backward_us"]),
        )
        for row in lines(MEASURED / "h200.csv.gz")
        if row["network"] == of_50.name
        for layer in wanted.get(row["layer"], [row["layer"]] if row["layer"] == "loss" else [])
    ]
    return ParadlOracle(net, LayerTimes("h200", rows), load_cluster("h200"), gamma(of_50))


def _like(layer: str) -> str:
    """The layer of ResNet-50 that does what one of ResNet-152 does: of a block that is not its stage's first, `b`."""
    return re.sub(r"^([2-5])[b-zA-Z]", r"\1b", layer)


def scaling(oracles: dict[str, ParadlOracle]) -> Iterator[tuple[object, ...]]:
    """Milliseconds of an iteration on 2 to 1024 ranks by the formulas: nothing beyond 4 was measured."""
    for name, known in {**oracles, "resnet152": resnet152()}.items():
        for kind, of_all, of_rank in (("strong", 1024, 0), ("weak", 0, 64)):
            for ranks in (2, 4, 8, 16, 64, 256, 1024):
                batch = of_all or of_rank * ranks
                found = known.project_all(ranks, batch)
                times = ("-" if isinstance(f, Impossible) else f"{f.iteration_us / 1e3:.1f}" for f in found)
                yield name, kind, ranks, batch, *times


# ---- collectives beside kernels


def overlap() -> Iterator[tuple[object, ...]]:
    """An iteration of ResNet-50, 64 samples a GPU, with the all-reduces of its gradients among the kernels."""
    gpu = gpusim.load_gpu("h200")
    recorded = gpusim.load_trace(TRACE)
    session = gpusim.Session(gpu)
    took = measured("training", "replayed_us")

    def replayed(trace: Trace, policy: str) -> str:
        return f"{session.makespan_us(trace, policy) / 1e3:.2f}"

    def ms(strategy: str) -> str:
        return f"{took['resnet50', strategy, 2, 128] / 1e3:.2f}"

    plain = with_collectives(recorded, None)
    yield "none", "leftover", "", replayed(plain, "leftover"), f"{took['resnet50', 'data', 1, 64] / 1e3:.2f}"
    usual = with_collectives(recorded, USUAL)
    yield "after the backward pass", "serial", USUAL, replayed(usual, "serial"), ms("data")
    yield "as gradients come", "leftover", USUAL, replayed(usual, "leftover"), ms("overlapped")
    yield (
        "as gradients come",
        "leftover:first=collectives",
        USUAL,
        replayed(usual, "leftover:first=collectives"),
        ms("overlapped:priority"),
    )
    for sms in SHARES:
        policy = f"inter-sm:sms={gpu.sm_count - sms}+{sms}"
        yield "as gradients come", policy, USUAL, replayed(usual, policy), ""
    for blocks in BLOCKS:
        fewer = with_collectives(recorded, blocks)
        yield "as gradients come", "leftover", blocks, replayed(fewer, "leftover"), ms(f"overlapped:blocks={blocks}")


def with_collectives(recorded: Trace, blocks: int | None) -> Trace:
    """The iteration in one stream, as a framework runs it, and in another the all-reduces of 25 MiB of gradients.

    Args:
        recorded: ResNet-50, forward and backward.
        blocks: thread blocks of NCCL's kernel; None: no collectives.
    """
    net = network("resnet50")
    weights = {name: size.w for name, size in sizes(net).items()}
    operations: list[Operation] = []
    reduces: list[Operation] = []
    waiting = 0
    for operation in _in_order(recorded, net):
        operations.append(operation.model_copy(update={"depends_on": ()}))
        layer, _, direction = operation.id.rpartition("/")
        if direction in ("bwd_filter", "bwd") and layer in weights:
            waiting += DELTA * weights[layer]
        if blocks and (waiting >= BUCKET_BYTES or (operation.id == "conv1/bwd_filter" and waiting)):
            name = f"all-reduce{len(reduces)}"
            launch = nccl(blocks, waiting)
            reduces.append(Kernel(id=name, kind="kernel", depends_on=(operation.id,), kernel=launch))
            waiting = 0
    streams = [Stream(name="compute", operations=tuple(operations))]
    if reduces:
        streams.append(Stream(name="collectives", operations=tuple(reduces)))
    return Trace(version=1, name="resnet50_b64_data_parallel", device=recorded.device, streams=tuple(streams))


def _in_order(recorded: Trace, net: Network) -> Iterator[Operation]:
    """The operations of a recording in the order of the network's steps."""
    by_step = defaultdict(list)
    ids = [step.id for step in training_iteration(net, 64)]
    known = set(ids)
    for operation in recorded.operations():
        step = operation.id if operation.id in known else operation.id.rpartition(".")[0]
        by_step[step].append(operation)
    for step in ids:
        yield from by_step[step]


def nccl(blocks: int, size: int) -> KernelLaunch:
    """NCCL's all-reduce on 2 ranks as a kernel: data/kernels.csv has its launch, data/blocks.csv its time.

    DRAM: its input is read once and its output written once; what passes between the GPUs goes through buffers in L2,
    written and read once more [D]. Its other demands are not known.
    """
    wanted = ("all-reduce", str(BUCKET_BYTES))
    row = next(row for row in lines(DATA / "kernels.csv") if (row["collective"], row["bytes"]) == wanted)
    times = sorted((float(r["bytes"]), float(r["us"])) for r in _block_rows(blocks))
    return KernelLaunch.model_validate(
        {
            "name": row["kernel"],
            "grid": (blocks, 1, 1),
            "block": tuple(map(int, row["block"].split("x"))),
            "registers_per_thread": int(row["registers"]),
            "dynamic_shared_memory_bytes": int(row["shared_memory"]),
            "duration_us": _interpolated(times, size),
            "mix": {
                "dram_read_bytes": size / blocks,
                "dram_write_bytes": size / blocks,
                "l2_bytes": 4 * size / blocks,
                "l2_read_bytes": 2 * size / blocks,
                "l2_write_bytes": 2 * size / blocks,
            },
        }
    )


def _block_rows(blocks: int) -> list[dict[str, str]]:
    """Times of all-reduces with so many blocks."""
    table, column, value = "blocks", "blocks", str(blocks)
    if blocks == USUAL:
        table, column, value = "collectives", "collective", "all-reduce"
    return [row for row in lines(DATA / f"{table}.csv") if (row[column], row["ranks"]) == (value, "2")]


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    (left, below), (right, above) = next(pair for pair in pairwise(points) if at <= pair[1][0])
    return below + (above - below) * (at - left) / (right - left)


# ---- the page


def page(
    paper: Sequence[Row],
    cases: Sequence[Row],
    named: Sequence[Row],
    left_out: Sequence[Row],
    scaled: Sequence[Row],
    volumes: Sequence[Row],
    replayed: Sequence[Row],
) -> dict[str, object]:
    """What the page says."""
    right = sum(row["right"] == "yes" for row in named)
    other = [row for row in named if row["measured"] != "data"]
    return {
        "accuracy": accuracy_table(cases),
        "right": right,
        "cases": len(named),
        "right_percent": 100 * right / len(named),
        "data": len(named) - len(other),
        "named": sum(row["right"] == "yes" for row in other),
        "other": len(other),
        "without": without_table(left_out, cases, named),
        "iterations": len(cases),
        "extended": fmean(_percent([row for row in cases if row["ranks"] in map(str, RANKS)])),
        "equations": float(left_out[-1]["accuracy_percent"]),
        **cosmoflow.values(volumes),
        **overlap_values(replayed),
    }


def _percent(rows: Sequence[Row]) -> list[float]:
    return [float(row["accuracy_percent"]) for row in rows]


def accuracy_table(rows: Sequence[Row]) -> str:
    """Accuracy by ranks and strategy."""
    cells = []
    for ranks in map(str, RANKS):
        mine = [row for row in rows if row["ranks"] == ranks]
        named = [strategy for strategy in ALL if any(row["strategy"] == strategy for row in mine)]
        for strategy in (*named, "all"):
            found = _percent([row for row in mine if strategy in (row["strategy"], "all")])
            papers = f"{PAPER_ACCURACY[strategy]:.2f} %" if strategy in PAPER_ACCURACY else "–"
            papers = f"{PAPER_MEAN} %{' (with hybrids)' if ranks == '2' else ''}" if strategy == "all" else papers
            cells.append([ranks, strategy, str(len(found)), f"{fmean(found):.1f} %", f"{min(found):.1f} %", papers])
    return table(["H200s", "strategy", "cases", "ours, mean", "ours, least", "the paper"], cells)


def without_table(rows: Sequence[Row], cases: Sequence[Row], named: Sequence[Row]) -> str:
    """What each part of the oracle beyond the report's equations is worth."""
    right = sum(row["right"] == "yes" for row in named)
    words = {
        DIVIDED: "times of divided layers (t/p instead)",
        BY_SIZE: "times of messages by size (α and β instead)",
        "all of them": "all three: the report's equations alone",
    }
    cells = [["nothing: the extended oracle", f"{fmean(_percent(cases)):.1f} %", f"{right} of {len(named)}"]]
    cells += [[words.get(row["without"], row["without"]), f"{row['accuracy_percent']} %", row["right"]] for row in rows]
    return table(["without", "accuracy", "best named right"], cells)


def overlap_values(rows: Sequence[Row]) -> dict[str, object]:
    """Iterations with collectives among kernels, and what they show."""
    cells, ms = [], {}
    for row in rows:
        policy, blocks = row["policy"], row["blocks"]
        name = row["collectives"] if row["collectives"] != "none" else "no collective"
        if policy.startswith("inter-sm"):
            name = f"{name}, on {policy.rpartition('+')[2]} SMs of their own"
        elif policy != "leftover" and policy != "serial":
            name += ", collectives first"
        elif blocks not in ("", str(USUAL)):
            name += f", {blocks} block{'s' * (blocks != '1')} of NCCL's"
        cells.append([name, row["replayed_ms"], row["measured_ms"]])
        ms[name] = float(row["replayed_ms"]), float(row["measured_ms"] or "nan")
    after, plain = ms["after the backward pass"], ms["as gradients come"]
    first = ms["as gradients come, 1 block of NCCL's"]
    parts = [us for name, (us, _) in ms.items() if "of their own" in name]
    return {
        "overlap": table(["", "replayed, ms", "measured, ms"], cells),
        "least_part": min(parts) - plain[0],
        "most_part": max(parts) - plain[0],
        "usual": USUAL,
        "one_replayed": first[0] - plain[0],
        "one_measured": first[1] - plain[1],
        "overlap_replayed": plain[0] - after[0],
        "overlap_measured": plain[1] - after[1],
    }


STUDY = Study(__file__, __doc__, TABLES, rows, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
