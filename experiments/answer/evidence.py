"""Evidence for docs/answer.md that no other study has: room on an SM, one kernel on two GPUs, the paper's two cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, permutations, product
from math import fsum

import gpusim
from experiments.hardware_check.plans import HERE as PLANS
from experiments.hardware_check.plans import read
from experiments.hardware_check.run import STREAMS, module_of
from experiments.markdown import table, wrapped
from experiments.spaa20_table1 import run as table1
from experiments.study import TRACES
from gpusim.choose.bound import Bounds
from gpusim.choose.moves import fastest
from gpusim.choose.pairs import complementary, longest
from gpusim.choose.plan import PlannedWork, planned_trace
from gpusim.choose.profile import profile
from gpusim.choose.search import work_of
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import exceeded
from gpusim.trace.operations import Convolution

GPUS = ("k40c", "h200")
NETWORK = "googlenet_forward.json.gz"
RESNET = tuple(f"resnet50_{block}.json.gz" for block in ("2a", "3a", "4a", "5a"))
RESOURCES = {"registers": "registers", "shared_memory": "shared memory", "warps": "warps", "blocks": "block slots"}
FFT, FFT_KERNEL = "FFT_TILING/FMA", "fft2d_c2r"
PAPER_PAIR = ("3a.3x3", "3a.5x5")
LITTLE = 1.2  # times as long as the fastest algorithms: what algorithms may cost in the strictest rule


@cache
def network(gpu: str, file: str = NETWORK) -> tuple[PlannedWork, Bounds, dict[str, str]]:
    """The convolutions of a trace, GoogLeNet's by default, on a GPU, and the fastest algorithm of each."""
    session = gpusim.Session(gpu, cache=True)
    work = work_of(gpusim.load_trace(TRACES / file), session.gpu)
    bounds = Bounds(work, session)
    return work, bounds, fastest(work, bounds)


# ---- room on an SM ---------------------------------------------------------------------------------------------------


def no_room(gpu: GPU, first: KernelModel, second: KernelModel) -> tuple[float, str]:
    """Share of the SMs on which no block of a second kernel fits beside the first, and the first resource exceeded.

    The first kernel's blocks lie as evenly as they fit: some SMs hold one more than others, and some may hold none.
    """
    held = min(first.blocks, first.blocks_per_sm * gpu.sm_count)
    least, more = divmod(held, gpu.sm_count)
    refused, why = 0.0, ""
    for blocks, sms in ((least + 1, more), (least, gpu.sm_count - more)):
        over = exceeded(gpu, [(first.footprint, blocks), (second.footprint, 1)]) if blocks and sms else None
        if over is not None:
            refused, why = refused + sms / gpu.sm_count, why or over
    return refused, why


@cache
def room(name: str) -> dict[str, float]:
    """Mean share of the SMs without room by resource, over all ordered pairs; ``""``: with room; ``few``: see below.

    ``few`` is the share of pairs in which the first kernel has too few blocks to fill every SM, by however little.
    """
    work, bounds, fast = network(name)
    gpu = gpusim.load_gpu(name)
    models = {id: longest(bounds.models(id, algorithm)) for id, algorithm in fast.items()}
    pairs = [(a, b) for a, b in permutations(models, 2) if work.graph.independent(a, b)]
    shares = dict.fromkeys((*RESOURCES, "", "few"), 0.0)
    for a, b in pairs:
        refused, why = no_room(gpu, models[a], models[b])
        shares[why or ""] += refused if why else 0.0
        shares[""] += 1.0 - refused
        shares["few"] += models[a].blocks < models[a].blocks_per_sm * gpu.sm_count
    return {key: value / len(pairs) for key, value in shares.items()} | {"pairs": float(len(pairs))}


def refused(name: str) -> float:
    """Share of the SMs on which a second convolution finds no room, percent."""
    return 100.0 * fsum(room(name)[key] for key in RESOURCES)


def scarcest(name: str) -> str:
    """What most often leaves no room."""
    return RESOURCES[max(RESOURCES, key=lambda key: room(name)[key])]


def limits() -> str:
    """The table of `room`."""
    cells = []
    for name in GPUS:
        shares = room(name)
        each = [f"{100 * shares[key]:.0f} %" for key in (*RESOURCES, "")]
        cells.append([name, f"{shares['pairs']:.0f}", *each, f"{100 * shares['few']:.0f} %"])
    titles = ["GPU", "ordered pairs", *(f"SMs: no {words}" for words in RESOURCES.values()), "SMs: a block fits"]
    text = (
        f"A second convolution finds no room on {refused('k40c'):.0f} % of a K40c's SMs, which most often lack "
        f"{scarcest('k40c')}. On an H200 it is {refused('h200'):.0f} %, and most of these SMs lack "
        f"{scarcest('h200')}. In the last column the GPU could hold more blocks of the first kernel than it has. Room "
        "for one of these need not be room for a block of the second."
    )
    return f"{table([*titles, 'pairs: the first does not fill the GPU'], cells)}\n\n{wrapped(text)}"


# ---- why streams gain ------------------------------------------------------------------------------------------------


def saved(name: str) -> dict[str, float]:
    """What each part of the saved time contributes when a module's branches run in streams, percent of one stream.

    The branches run by their fastest algorithms, as in the plan that was measured on an H200.
    """
    work, session = module_of(name)
    plan = next(one.plan for one in read(PLANS / "plans.txt") if (one.module, one.name) == (name, STREAMS))
    entry = session.compare(planned_trace(work, plan), ("serial", plan.policy))[plan.policy]
    assert entry.gain_us is not None
    serial_us = entry.result.makespan_us * entry.speedup_vs_serial
    return {part: 100.0 * us / serial_us for part, us in entry.gain_us.items()}


def why_streams_gain(modules: Sequence[str]) -> str:
    """Sentences on what streams save in replays, mean over some modules."""
    found = [saved(name) for name in modules]
    means = {part: fsum(one[part] for one in found) / len(found) for part in found[0]}
    total = fsum(means.values())
    rest = total - fsum(means[part] for part in ("gaps", "tails", "sharing"))
    return (
        "Streams gain although most SMs have no room, because each uses the time and the SMs that others leave empty. "
        f"In replays of these {len(found)} plans they save {total:.1f} % of the time of one stream: launch gaps "
        f"{means['gaps']:.1f} points, SMs that stand empty in tails or beside small kernels {means['tails']:.1f}, "
        f"blocks of two kernels on one SM {means['sharing']:.1f}, and the rest {rest:+.1f} "
        "([parts](reference/metrics.md#where-time-is-saved))."
    )


# ---- one kernel on two GPUs ------------------------------------------------------------------------------------------


def fft_stalls(gpu_name: str, file: str, id: str, whole: bool) -> tuple[float, float]:
    """Issue slots busy and stalls on memory (shares) of FFT_TILING: of `FFT_KERNEL`, or of the whole algorithm."""
    trace, gpu = gpusim.load_trace(TRACES / file), gpusim.load_gpu(gpu_name)
    kernels = gpusim.Session(gpu, cache=True).kernels(trace)
    op = next(op for op in trace.operations() if op.id == id)
    assert isinstance(op, Convolution)
    algorithm = next(one for one in (op.selected, *op.alternatives) if one.algorithm == FFT)
    launches = [one for one in algorithm.kernels if whole or FFT_KERNEL in one.name]
    known = profile([kernels.model(launch, id) for launch in launches or algorithm.kernels], gpu)
    return known.used["issue"], known.memory_stalls


def fft() -> str:
    """The same kernel on the K40, by the paper's table, and on an H200, by its counters."""
    cells, stalls = [], {}
    for gpu, file, whole, words in (
        ("k40c", "spaa20_table1.json", False, f"`{FFT_KERNEL}` on the K40 (Table 1)"),
        ("h200", "inception_3a.json.gz", False, f"`{FFT_KERNEL}` on the H200"),
        ("h200", "inception_3a.json.gz", True, "all kernels of the algorithm on the H200"),
    ):
        for id in PAPER_PAIR:
            issue, waits = fft_stalls(gpu, file, id, whole)
            stalls[gpu, whole, id] = waits
            cells.append([words, id, f"{100 * issue:.0f} %", f"{100 * waits:.1f} %"])
    first = PAPER_PAIR[0]
    mine, its = stalls["h200", False, first], stalls["k40c", False, first]
    text = (
        f"Like for like, `{FFT_KERNEL}` of {first} waits for memory {'more' if mine > its else 'less'} on the H200: "
        f"{100 * mine:.1f} % of its stalls against {100 * its:.1f} %. The paper's table has this one kernel of "
        "the algorithm only."
    )
    return f"{table(['what', 'convolution', 'issue slots busy', 'stalls on memory'], cells)}\n\n{wrapped(text)}"


# ---- the paper's Table 1 ---------------------------------------------------------------------------------------------


@cache
def table_1_gain() -> float:
    """The most that a mix on an SM gains over PRECOMP_GEMM for both, where that is the fastest for either.

    FFT_TILING for the 5x5 is then no shorter than PRECOMP_GEMM: the gain is largest where both take as long.
    """
    trace, session = gpusim.load_trace(table1.TRACE), gpusim.Session("k40c")
    gemms, mixed = table1.selected(trace, "PRECOMP"), table1.selected(trace, "FFT")
    as_long = table1.lasting(mixed, table1.launch(gemms, 1).duration_us)
    best = min(session.replay(as_long, policy).makespan_us for policy in table1.INTRA_SM)
    return session.serial_us(gemms) / best


def table_1() -> str:
    """What the paper's own sentence leaves of Table 1."""
    trace = gpusim.load_trace(table1.TRACE)
    gemm, fft = (table1.launch(table1.selected(trace, name), 1).duration_us for name in ("PRECOMP", "FFT"))
    return wrapped(
        f"Table 1 has no durations. Worked out from its utilisations, FFT_TILING for the 5x5 takes {fft:,.0f} µs and "
        f"PRECOMP_GEMM for the 3x3 {gemm:,.0f} µs. But the paper says that TensorFlow, which picks the fastest, takes "
        "PRECOMP_GEMM for both. If FFT_TILING takes at least as long as PRECOMP_GEMM, a mix on every SM gains at most "
        f"{table_1_gain():.2f}x over PRECOMP_GEMM for both, one after the other."
    )


# ---- the paper's 27 cases --------------------------------------------------------------------------------------------


@cache
def cases(name: str) -> dict[str, int]:
    """Pairs of independent convolutions with algorithms that complement one another, by stricter and stricter rules."""
    work, bounds, fast = network(name)
    gpu = gpusim.load_gpu(name)
    kernels = {(id, one): longest(bounds.models(id, one)) for id, found in work.algorithms.items() for one in found}
    small = {id for id, op in work.operations.items() if isinstance(op, Convolution) and op.shape.filter_height == 1}

    def no_fft_of_1x1(chosen: dict[str, str]) -> bool:
        return not any(id in small and "FFT" in one for id, one in chosen.items())

    def cheap(chosen: dict[str, str]) -> bool:
        us, least_us = (fsum(bounds.alone_us(id, by[id]) for id in chosen) for by in (chosen, fast))
        return us <= LITTLE * least_us

    rules: dict[str, Callable[[dict[str, str]], bool]] = {
        "any algorithms": lambda chosen: True,
        "no FFT for a 1x1": no_fft_of_1x1,
        "one of the two by its fastest": lambda chosen: any(fast[id] == one for id, one in chosen.items()),
        f"no FFT for a 1x1, at most {LITTLE:g} times the fastest": lambda one: no_fft_of_1x1(one) and cheap(one),
        "no 1x1 at all": lambda chosen: not small & chosen.keys(),
    }
    counts = dict.fromkeys((*rules, "the paper's own pair"), 0)
    for pair in combinations(work.algorithms, 2):
        if work.graph.independent(*pair):
            made = [
                dict(zip(pair, names, strict=True))
                for names in product(*(work.algorithms[id] for id in pair))
                if complementary(*(kernels[id, one] for id, one in zip(pair, names, strict=True)), gpu)
            ]
            for words, rule in rules.items():
                counts[words] += any(map(rule, made))
            counts["the paper's own pair"] += pair == PAPER_PAIR and bool(made)
    return counts


def cases_in_resnet(name: str) -> tuple[int, int]:
    """Pairs of independent convolutions in ResNet-50's blocks with two branches; those that have complements."""
    gpu, independent, found = gpusim.load_gpu(name), 0, 0
    for file in RESNET:
        work, bounds, _ = network(name, file)
        for a, b in combinations(work.algorithms, 2):
            if work.graph.independent(a, b):
                independent += 1
                found += any(
                    complementary(longest(bounds.models(a, mine)), longest(bounds.models(b, its)), gpu)
                    for mine, its in product(work.algorithms[a], work.algorithms[b])
                )
    return independent, found


def strict_cases() -> str:
    """The counts of `cases`."""
    counts = {name: cases(name) for name in GPUS}
    cells = [[words, *(str(counts[name][words]) for name in GPUS)] for words in counts[GPUS[0]]]
    any_rule, strict = (counts["k40c"][words] for words in ("any algorithms", "no FFT for a 1x1"))
    own = counts["k40c"]["the paper's own pair"]
    resnet = {name: cases_in_resnet(name) for name in GPUS}
    text = (
        f"Of the {any_rule} cases on a K40c {any_rule - strict} need FFT for a 1x1 convolution, which no framework "
        f"would take, and the paper's own pair is {'' if own else 'not '}among them. GoogLeNet has 9 inception "
        "modules: 27 may also be read as three pairs in each (3x3 beside 5x5, and either beside the 1x1), whatever "
        "their algorithms. The paper also says that ResNet has more. In ResNet-50's blocks with two branches "
        f"{resnet['k40c'][1]} of {resnet['k40c'][0]} independent pairs have such algorithms on a K40c, "
        f"{resnet['h200'][1]} on an H200."
    )
    return f"{table(['pairs with complementary algorithms, by rule', *GPUS], cells)}\n\n{wrapped(text)}"
