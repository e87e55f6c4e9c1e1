"""docs/model.md and its evidence name what there is, and the numbers in their text are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.h200_validation.evidence import CELLS, LATENCY
from experiments.h200_validation.variants import ABLATION, DESIGNS
from gpusim.calibrate import blocks, carveouts, fit, kernels, scaling
from gpusim.engine import domains, skipping, sm_array
from gpusim.model import clock, contention, front_end, kernel, memory, mixing
from gpusim.trace import fields
from gpusim.trace import kernels as recorded

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ROOT / "experiments"
PAGE = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
EVIDENCE = (STUDIES / "h200_validation" / "evidence.md").read_text(encoding="utf-8")
MOST_WORDS = 5000


def listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


SAID = [  # words of the page with the numbers of the code
    f"/(warp_instructions × max({contention.LEAST_IN_FLIGHT_BYTES:g}, shared memory/({contention.BUFFERS}h",
    f"max(0, {contention.DRAM_LATENCY_CYCLES:g} dram_read_bytes",
    f"Above m₀ = {contention.FEWEST_TURNS:g} ",
    f"exceeds all others by {contention.UNCOUNTED:g}",
    f"Q(χ) = ({contention.QUEUED_SHARE:g}+{1 - contention.QUEUED_SHARE:.1g} min(1, φ+1-χ))",
    f"φ = min(1, lg_throttle/({contention.FULL_QUEUE_STALLS:g} Y))",
    f"missed = min(1, {contention.SECTORS_OF_A_MISS:g} dram_read_bytes/l2_read_bytes)",
    f"L2 counts {contention.SECTORS_OF_A_MISS:g} sectors",
    f"V = min(θ' × {memory.HIT_QUEUE:g}λ'/(1+{memory.HIT_QUEUE:g}λ')",
    f"ρ and λ are limited to {memory.MOST_BUSY:g}",
    f"the smaller of λ/{memory.LEAST_SHARE:g} ",
    f"({memory.HALVINGS} bisections)",
    f"(1+{memory.HIT_QUEUE:g}ε+{memory.MISS_LATENCY:g}ψ) + {memory.MISS_LATENCY:g}μJ",
    f"Φ = max(0, min(1, ρ)-{memory.LEAST_SHARE:g})/{1 - memory.LEAST_SHARE:.1g}",
    f"bytes/({memory.IDLE_READ_US:g} `dram_sustained`)",
    f"ahead = {memory.IDLE_READ_US:g} B l1_read_bytes",
    f"under {domains.STAYS_BUSY:g} of what it serves at ψ = 0, before step 2, {domains.QUEUE_HALVINGS} bisections",
    f"({memory.CODE_LATENCY:g}J-1)",
    f"L+(1-L)({memory.LOST_TO_LAUNCH:g}f+{memory.LOST_ON_SMS:g}g)",
    f"{memory.HIT_US * memory.HIT_QUEUE:.3g} λ + {memory.LAUNCH_READS * memory.IDLE_READ_US:g} (ρ² + ψ) later",
    f"{contention.DRAM_LATENCY_CYCLES:g}(missed+(1-missed)/{memory.MISS_LATENCY:g})",
    f"u_r/max({mixing.LEAST_LEFT:g}, 1-o_r)",
    f"clip({mixing.STALL_CYCLES:g}/`wait`, 1, {mixing.LONGEST_BURST:g})",
    f"min(k/max({mixing.LEAST_LEFT:g}, 1-o)-k",
    f"{mixing.OPERAND_SLOTS:g} u')",
    f"with own β < {mixing.LONGEST_BURST:g} wait {mixing.CHAINED_CYCLES:g} cycles",
    f"n w ≥ {mixing.CHAINED_WARPS:g}",
    f"min({contention.MOST_HITS:g}, `l1_hit_percent`/100) is at least {contention.LEAST_HITS:g}",
    f"L1 is {fit.LEAST_L1_BYTES:,} bytes",
    f"1 + (1-hits)/{contention.LOST_OF_EXCESS:g} where",
    f"min(1, {contention.LOST_OF_EXCESS:g} excess) × hits × {contention.L2_CYCLES:g} lsu_cycles",
    f"max({contention.LEAST_LSU:g}, u_LSU)",
    f"> {recorded.TENSOR_SHARE:g} avg S",
    f"{fit.BLOCK_ENDS_CYCLES:g} cycles",
    f"(dram_read_bytes/{fit.DRAM_INTAKE_BYTES:g}+max(0,l1_read_bytes-dram_read_bytes)/{fit.L2_INTAKE_BYTES:g})",
    f"held = max({fit.LEAST_CLOCK:g}, 1 - u₀ max(0, 1 - `clock_mhz`/({fit.HELD_BELOW:g} C `tensor_clock_share`)))",
    f"by {clock.ROOT_STEPS} steps of Newton's method",
    f"else {kernel.OTHER_POWER:g}/(N S)",
    f"exceeds {fit.LATENCY_SHARE:g} (D-e)",
    f"a from {listed(fit.AGE_PREFERENCES)} by the misfit",
    f"better by more than {fit.PARSIMONY:g}, and a misfit below {fit.GOOD_FIT:g} ends",
    f"exceeds {fit.UNEQUAL:g}+`launch_latency_us`/D",
    f"0, {listed(fit.SPREADS[:-1])} and {fit.SPREADS[-1]:g}",
    f"min(X, {fields.MAX_BLOCK_LENGTHS})",
    f"more than {blocks.MOST_BEFORE_CLUSTERS:,} bytes",
    f"k = {blocks.CLUSTERS[0]} … {blocks.CLUSTERS[-1]} ",
    f"clip(round(1/max(part, 1/{blocks.MOST_TILES})), 1, {blocks.MOST_TILES})",
    f"there are {blocks.TILES_OF_A_BLOCK} B tiles",
    f"part < {2 * blocks.EQUAL_BLOCKS:g} ",
    f"With x = X/S of at most {blocks.FEW_RESULTS:g}, B ≥ {blocks.LAST_OF} S,",
    f"avg - min ≤ {blocks.LONG_SMS:g} x (max - min) and last ≥ {blocks.SHORT_REST:g}",
    f"i > i_d/{fit.START_BOUND:g}",
    f"all pairs of loads × {listed(scaling.LOADS)} with q × {listed(scaling.TURNS)} or ramp × {listed(scaling.RAMPS)};",
    f"loads above {scaling.MOST_COUNTED:g} only up to ρ₀, λ₀ of {scaling.NOT_FULL:g}",
    f"{scaling.BELIEF:g}² (ln²",
    f"adds {kernels.SEED_STEP} k",
    f"k is at most {front_end.CHANNELS - 1} ({front_end.CHANNELS} channels",
    f"moved by more than {sm_array.LOAD_STEP:g} since",
    f"at least {skipping.SKIPPED_WAVES} r",
    f"compute capabilities below {carveouts.SIZED_BY_DRIVER:.1f} set",
]


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= MOST_WORDS


def test_reads_that_dram_served_queue_as_the_page_says() -> None:
    assert memory.STREAM_QUEUE == 1.0 and "J = 1+(δ₀+δ)²+ψ" in PAGE and "max(0, Σv-2)" in PAGE


@pytest.mark.parametrize("words", SAID)
def test_a_number_of_the_page_is_that_of_the_code(words: str) -> None:
    text = re.sub(r"\[\^\w\]", "", PAGE)
    assert " ".join(words.split()) in " ".join(text.split())


@pytest.mark.parametrize("text", [PAGE, EVIDENCE], ids=["model", "evidence"])
def test_tables_and_files_that_it_names_exist(text: str) -> None:
    tables = set(re.findall(r"`(\w+\.csv)`", text))
    assert len(tables) > 15
    assert {name for name in tables if not (STUDIES / "h200_microbench" / name).is_file()} == set()
    files = set(re.findall(r"`((?:gpusim|gpus|tests|data)/[\w./]+)`", text))
    found = {name for name in files if any((at / name).exists() for at in (ROOT, STUDIES / "h200_validation"))}
    assert files == found


def test_cells_that_the_page_names_are_in_the_table_of_the_evidence() -> None:
    shown = {f"{kernel} × {beside}" for _, kernel, beside, _, _ in CELLS}
    named = set(re.findall(r"`(\w+/\d+ × \w+/\d+)`", " ".join(PAGE.split())))
    assert len(named) >= 13 and named <= shown
    assert f"`{LATENCY}`" in PAGE


def test_variants_that_the_evidence_names_are_in_the_ablation() -> None:
    sentences = re.findall(r"(?:Without it|Dropped[^:.]*): ([^.]*)\.", EVIDENCE)
    named = {name for sentence in sentences for name in re.findall(r"`([a-z0-9-]+)`", sentence)}
    assert len(named) > 40 and named <= {variant.name for variant in (*ABLATION, *DESIGNS)}


def test_every_term_with_a_link_has_a_heading_of_evidence() -> None:
    linked = re.findall(r"\*\*\[[^\]]+\]\(\S+evidence\.md#([\w-]+)\)", PAGE)
    headings = [title.lower().replace(" ", "-") for title in re.findall(r"^### (.*)$", EVIDENCE, re.M)]
    assert len(linked) > 30 and set(linked) <= set(headings)
    assert set(headings) - set(linked) == {"order-of-streams"}  # of the validation, and not of a replay
