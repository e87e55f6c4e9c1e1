"""A fourth set of whole programs: `python -m gpusim record models_fourth.py --out DIR --outcomes`, in the repository.

Written before any of them was measured, of kinds that neither the first three sets nor another recording has. All
weights and inputs are random, and the pairs follow from `SEED`.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from experiments.unseen_programs.models import BF16, Call, Make, integers, normal, pairs_of, seeded

# ---- a fluid on a lattice --------------------------------------------------------------------------------------------

SPEEDS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
WEIGHTS = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)


def fluid() -> Call:
    """Two steps of the lattice Boltzmann method in two dimensions: nine densities on 1536 x 1024 places."""
    rows, columns, steps, relaxed = 1536, 1024, 2, 0.6
    weights = torch.tensor(WEIGHTS, device="cuda")[:, None, None]
    speeds = torch.tensor(SPEEDS, device="cuda", dtype=torch.float32)
    start = weights * (1.0 + 0.01 * normal(9, rows, columns))

    def run() -> torch.Tensor:
        now = start
        for _ in range(steps):
            moved = torch.stack([one.roll(speed, (0, 1)) for one, speed in zip(now, SPEEDS, strict=True)])
            density = moved.sum(0)
            flow = (speeds.T @ moved.view(9, -1)).view(2, rows, columns) / density
            along = (speeds @ flow.view(2, -1)).view(9, rows, columns)
            square = flow.square().sum(0)
            settled = weights * density * (1.0 + 3.0 * along + 4.5 * along.square() - 1.5 * square)
            now = moved + relaxed * (settled - moved)
        return now

    return torch.inference_mode()(run)


# ---- one model, many adapters ----------------------------------------------------------------------------------------


def adapters() -> Call:
    """Two layers of a language model for 16 requests of 128 tokens, each with one of 32 low-rank adapters."""
    requests, tokens, width, rank, known, layers = 16, 128, 4096, 16, 32, 2
    start, chosen = normal(requests, tokens, width, dtype=BF16), integers(known, requests)
    scale = 1.0 / math.sqrt(width)
    weights = [[normal(width, width, dtype=BF16) * scale for _ in range(4)] for _ in range(layers)]
    down = [[normal(known, width, rank, dtype=BF16) * scale for _ in range(4)] for _ in range(layers)]
    up = [[normal(known, rank, width, dtype=BF16) * 0.1 for _ in range(4)] for _ in range(layers)]

    def project(x: torch.Tensor, layer: int, which: int) -> torch.Tensor:
        low = torch.bmm(x, down[layer][which].index_select(0, chosen))
        return F.linear(x, weights[layer][which]) + torch.bmm(low, up[layer][which].index_select(0, chosen))

    def run() -> torch.Tensor:
        x = start
        for layer in range(layers):
            first, second = project(x, layer, 0), project(x, layer, 1)
            x = x + project(F.silu(first) * second, layer, 2)
            x = F.layer_norm(project(x, layer, 3), (width,))
        return x

    return torch.inference_mode()(run)


# ---- motion between two frames ---------------------------------------------------------------------------------------


def motion() -> Call:
    """Search of the best of 12 motions for each block of 8 x 8 places of four frames, by absolute differences."""
    frames, rows, columns, block = 4, 1088, 1920, 8
    before, now = (integers(256, frames, rows, columns).to(torch.int16) for _ in range(2))
    motions = [(y, x) for y in (-2, 0, 2) for x in (-3, -1, 1, 3)]

    def run() -> torch.Tensor:
        shape = frames, rows // block, block, columns // block, block
        least = torch.full((frames, rows // block, columns // block), 1 << 20, device="cuda", dtype=torch.int32)
        best = torch.zeros_like(least)
        for number, moved in enumerate(motions):
            apart = (now - before.roll(moved, (1, 2))).abs()
            cost = apart.view(shape).sum((2, 4), dtype=torch.int32)
            best = best.masked_fill(cost < least, number)
            least = torch.minimum(cost, least)
        return best

    return torch.inference_mode()(run)


# ---- images and texts that belong together ---------------------------------------------------------------------------


def contrast() -> Call:
    """Contrastive loss of 8192 images and texts, forward and backward, with two layers for each kind."""
    count, width, inner = 8192, 768, 1024
    images, texts = (normal(count, width, dtype=BF16) for _ in range(2))
    heads = [
        nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, inner)).to("cuda", BF16) for _ in range(2)
    ]
    parameters = [one for head in heads for one in head.parameters()]
    right = torch.arange(count, device="cuda")

    def run() -> torch.Tensor:
        first, second = (F.normalize(head(x), dim=-1) for head, x in zip(heads, (images, texts), strict=True))
        alike = 20.0 * (first @ second.mT)
        loss = F.cross_entropy(alike, right) + F.cross_entropy(alike.mT, right)
        return torch.stack([one.float().sum() for one in torch.autograd.grad(loss, parameters)])

    return run


# ---- transforms of whole numbers -------------------------------------------------------------------------------------


def transforms() -> Call:
    """Number-theoretic transforms of 8192 rows of 256 numbers modulo a prime, in 64-bit integers, by halves."""
    rows, length, prime, root = 8192, 256, 998_244_353, 3
    start = integers(prime, rows, length)
    stages = []
    for stage in range(8):
        half = length >> (stage + 1)
        turn = pow(root, (prime - 1) // (2 * half), prime)
        stages.append((half, torch.tensor([pow(turn, n, prime) for n in range(half)], device="cuda")))

    def run() -> torch.Tensor:
        x = start
        for half, turns in stages:
            low, high = x.view(rows, -1, 2, half).unbind(2)
            x = torch.stack([(low + high) % prime, (low - high) % prime * turns % prime], 2).view(rows, length)
        return x

    return torch.inference_mode()(run)


# ---- forces that turn with their molecules ---------------------------------------------------------------------------


def equivariant() -> Call:
    """Two layers of tensor products along 32768 edges: 64 channels of orders 0 to 2, and a mean of each node."""
    nodes, neighbours, channels, orders, layers = 2048, 16, 64, 9, 2
    edges = nodes * neighbours
    start, directions = normal(nodes, channels, orders), normal(edges, orders)
    beside = integers(nodes, edges)
    coupling = normal(orders, orders * orders) / orders
    radial = normal(edges, 8)
    first = [normal(8, 64) / math.sqrt(8.0) for _ in range(layers)]
    second = [normal(64, channels) / 8.0 for _ in range(layers)]
    mixing = [normal(channels, channels) / math.sqrt(channels) for _ in range(layers)]

    def run() -> torch.Tensor:
        x, products = start, (directions @ coupling).view(edges, orders, orders)
        for one, two, mix in zip(first, second, mixing, strict=True):
            weight = F.silu(radial @ one) @ two
            message = torch.bmm(x.index_select(0, beside) * weight[:, :, None], products)
            mean = message.view(nodes, neighbours, channels, orders).mean(1)
            mixed = (mean.mT @ mix).mT
            x = x + mixed * torch.sigmoid(mixed[:, :, :1])
        return x

    return torch.inference_mode()(run)


# ---- letters along sounds --------------------------------------------------------------------------------------------


def letters() -> Call:
    """Forward sums of connectionist temporal classification: 256 texts of 401 states along 14 steps of sound."""
    texts, states, steps, kinds = 256, 401, 14, 1024
    scores, wanted = normal(steps, texts, kinds), integers(kinds, texts, states)
    skips = torch.where(torch.rand(texts, states, device="cuda") < 0.5, 0.0, -1e4)
    start = torch.full((texts, states + 2), -1e4, device="cuda")
    start[:, 2] = 0.0

    def run() -> torch.Tensor:
        sums = start
        for score in scores.log_softmax(-1):
            here, one, two = sums[:, 2:], sums[:, 1:-1], sums[:, :-2] + skips
            added = torch.logaddexp(torch.logaddexp(here, one), two) + score.gather(1, wanted)
            sums = F.pad(added, (2, 0), value=-1e4)
        return sums[:, -2:].logsumexp(1).mean()

    return torch.inference_mode()(run)


# ---- what is recorded ------------------------------------------------------------------------------------------------

SEED = 97
MODELS: dict[str, Make] = {
    "lattice_fluid_fp32": seeded(fluid),
    "adapters_bf16": seeded(adapters),
    "motion_search_int16": seeded(motion),
    "contrastive_bf16": seeded(contrast),
    "number_transforms_int64": seeded(transforms),
    "equivariant_fp32": seeded(equivariant),
    "letters_fp32": seeded(letters),
}

MODEL_PAIRS = pairs_of(list(MODELS), SEED)
