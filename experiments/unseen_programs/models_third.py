"""A third set of whole programs: `python -m gpusim record models_third.py --out DIR --outcomes`, in the repository.

Written before any of them ran on a GPU, of kinds that neither the first two sets nor another recording has. All weights
and inputs are random, and the pairs follow from `SEED`.
"""

import math
from itertools import pairwise, product

import torch
import torch.nn.functional as F
from torch import nn

from experiments.unseen_programs.models import BF16, F16, Call, Make, inference, integers, normal, pairs_of, seeded

F64 = torch.float64


# ---- waves in rock, by finite differences ----------------------------------------------------------------------------


def waves() -> Call:
    """Four steps of sound in a cube of 192 places a side: differences of fourth order, a source, and receivers."""
    side, edge, steps = 192, 2, 4  # an even number, so that each pass goes on from the one before
    weights = 4.0 / 3.0, -1.0 / 12.0  # of the neighbours one and two places away
    here = (slice(edge, -edge),) * 3
    fields = [torch.zeros((side + 2 * edge,) * 3, device="cuda") for _ in range(2)]
    for field in fields:
        field[here] = normal(side, side, side)
    speeds = 0.05 + 0.1 * torch.rand(side, side, side, device="cuda")  # squared; waves stay small below 1 / 4
    source = normal(steps)

    def run() -> torch.Tensor:
        (now, before), heard = fields, []
        for n in range(steps):
            bend = -7.5 * now[here]
            for axis in range(3):
                inner = now[tuple(slice(None) if axis == other else here[other] for other in range(3))]
                for reach, weight in enumerate(weights, 1):
                    beside = (inner.narrow(axis, edge + way * reach, side) for way in (-1, 1))
                    bend.add_(torch.add(*beside), alpha=weight)
            before[here].mul_(-1.0).add_(now[here], alpha=2.0).addcmul_(speeds, bend)
            before[side // 2, side // 2, side // 2].add_(source[n])
            now, before = before, now
            heard.append(now[edge, edge:-edge, edge:-edge].sum(0))
        return torch.stack(heard)

    return torch.inference_mode()(run)


# ---- many small filters ----------------------------------------------------------------------------------------------


def inverse(x: torch.Tensor, one: torch.Tensor, steps: int = 6) -> torch.Tensor:
    """Inverse of each positive definite matrix, by Newton's method."""
    two, found = 2.0 * one, one / x.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
    for _ in range(steps):
        found = found @ (two - x @ found)
    return found


def filters() -> Call:
    """Two steps of 4096 Kalman filters, each with 32 states and 16 measurements."""
    count, states, measured, steps = 4096, 32, 16, 2
    one, less = torch.eye(states, device="cuda", dtype=F64), torch.eye(measured, device="cuda", dtype=F64)
    change = one + 0.1 * normal(count, states, states, dtype=F64) / math.sqrt(states)
    seen = normal(count, measured, states, dtype=F64) / math.sqrt(states)
    start, found = normal(count, states, 1, dtype=F64), normal(steps, count, measured, 1, dtype=F64)
    spread, drift, noise = one.expand(count, -1, -1).contiguous(), 0.1 * one, 0.5 * less

    def run() -> torch.Tensor:
        state, doubt = start, spread
        for measurement in found:
            state, doubt = change @ state, change @ doubt @ change.mT + drift
            across = doubt @ seen.mT
            gain = across @ inverse(seen @ across + noise, less)
            state = state + gain @ (measurement - seen @ state)
            left = one - gain @ seen
            doubt = left @ doubt @ left.mT + 0.5 * (gain @ gain.mT)
        return state + doubt.diagonal(dim1=1, dim2=2)[:, :, None]

    return torch.inference_mode()(run)


# ---- larger images ---------------------------------------------------------------------------------------------------


class Weighed(nn.Module):
    """As a block of RCAN: two convolutions, and a weight of each channel that follows from its mean."""

    def __init__(self, width: int, fewer: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.weigh = nn.Sequential(nn.Linear(width, fewer), nn.ReLU(), nn.Linear(fewer, width), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, images out."""
        y = self.convs(x)
        return x + y * self.weigh(y.mean((2, 3)))[:, :, None, None]


class Enlarger(nn.Module):
    """Six blocks, and channels that become places of an image of twice the size."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.start = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Weighed(width, 16) for _ in range(6)))
        self.more, self.end = nn.Conv2d(width, 4 * width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, larger images out."""
        y = self.start(x)
        y = self.end(F.pixel_shuffle(self.more(y + self.blocks(y)), 2))
        return (y + F.interpolate(x, scale_factor=2.0, mode="bicubic")).clamp(0.0, 1.0)


def enlargement() -> Call:
    """Two images of 270 x 480, channels last."""
    program = Enlarger().to(memory_format=torch.channels_last)
    images = normal(2, 3, 270, 480, dtype=BF16).contiguous(memory_format=torch.channels_last)
    return inference(program, BF16, images)


# ---- molecules -------------------------------------------------------------------------------------------------------


def molecules() -> Call:
    """Three steps of 64,000 charged atoms in a periodic box, with forces between the pairs of a list of neighbours."""
    side, steps, step = 40, 3, 1e-3
    atoms = torch.arange(side**3, device="cuda").view(side, side, side)
    places = torch.stack(torch.meshgrid(*[torch.arange(side, device="cuda")] * 3, indexing="ij"), -1).view(-1, 3)
    ways = [way for way in product(range(-2, 3), repeat=3) if way > (0, 0, 0) and sum(n * n for n in way) <= 6]
    second = torch.stack([atoms.roll(way, (0, 1, 2)) for way in ways], -1).flatten()
    first = atoms.flatten().repeat_interleave(len(ways))
    start, moved = places + 0.05 * normal(side**3, 3), 0.1 * normal(side**3, 3)
    charges = 2.0 * integers(2, side**3, 1) - 1.0
    charges = 0.1 * charges[first] * charges[second]

    def run() -> torch.Tensor:
        place, speed = start, moved
        for _ in range(steps):
            way = place.index_select(0, first) - place.index_select(0, second)
            way = way - side * (way / side).round()
            square = (way * way).sum(1, keepdim=True)
            near = (square < 5.5) / square
            sixth = near.pow(3)
            strength = 24.0 * near * sixth * (2.0 * sixth - 1.0) + charges * near * near.sqrt()
            force = strength * way
            push = torch.zeros_like(place).index_add_(0, first, force).index_add_(0, second, force, alpha=-1)
            speed = speed + step * push
            place = place + step * speed
        return place

    return torch.inference_mode()(run)


# ---- a table of a database -------------------------------------------------------------------------------------------


def query() -> Call:
    """Four million orders joined with 131,072 customers: sums by region and month, and the customers who pay most."""
    orders, customers, regions, most = 1 << 22, 1 << 17, 64, 100
    numbers = torch.randperm(2 * customers, device="cuda")[:customers].int()  # half of all that orders name
    region, limit = integers(regions, customers), customers - 1
    customer, month = integers(2 * customers, orders).int(), integers(12, orders)
    amount, numbered = torch.rand(orders, device="cuda", dtype=F64), torch.arange(customers + 1, device="cuda").int()

    def run() -> tuple[torch.Tensor, ...]:
        known, order = numbers.sort()
        place = torch.searchsorted(known, customer).clamp(max=limit)
        paid = amount * ((known[place] == customer) & (month >= 3))
        group = region[order[place]] * 12 + month
        sums = amount.new_zeros(regions * 12).index_add_(0, group, paid)
        by_customer, rows = place.int().sort()
        until = F.pad(paid[rows].cumsum(0), (1, 0))
        ends = torch.searchsorted(by_customer, numbered)
        totals, best = until[ends].diff().topk(most)
        return sums.view(regions, 12).sort(0, descending=True)[0], totals, known[best]

    return torch.inference_mode()(run)


# ---- images of a scene from rays -------------------------------------------------------------------------------------


class Scene(nn.Module):
    """As NeRF: density and colour at each point, from the waves of its place."""

    def __init__(self, octaves: int = 8, width: int = 256) -> None:
        super().__init__()
        self.register_buffer("rates", 2.0 ** torch.arange(octaves)[:, None])
        known = 6 * octaves
        self.first = nn.ModuleList(nn.Linear(a, b, dtype=F16) for a, b in pairwise((known, width, width, width)))
        self.then = nn.ModuleList(nn.Linear(a, b, dtype=F16) for a, b in pairwise((width + known, width, width)))
        self.end = nn.Linear(width, 4, dtype=F16)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Points in, four numbers of each out."""
        angles = (points[..., None, :] * self.rates).flatten(-2)
        known = y = torch.cat([angles.sin(), angles.cos()], -1).to(F16)
        for layer in self.first:
            y = layer(y).relu_()
        y = torch.cat([y, known], -1)
        for layer in self.then:
            y = layer(y).relu_()
        return self.end(y).float()


class Rays(nn.Module):
    """Colours of rays: first from few depths, then also from more depths where the scene is dense."""

    def __init__(self, rays: int, few: int, more: int) -> None:
        super().__init__()
        self.rough, self.fine = Scene(), Scene()
        self.register_buffer("depths", torch.linspace(2.0, 6.0, few).repeat(rays, 1))
        self.register_buffer("shares", torch.rand(rays, more))

    def seen(self, scene: nn.Module, start: torch.Tensor, way: torch.Tensor, depths: torch.Tensor) -> torch.Tensor:
        """Red, green, blue and the share of the light of each depth of each ray."""
        found = scene(start[:, None] + way[:, None] * depths[..., None])
        steps = F.pad(depths.diff(), (0, 1), value=0.1)
        thick = F.softplus(found[..., 0]) * steps
        share = (thick - thick.cumsum(1)).exp() * -torch.expm1(-thick)
        return torch.cat([found[..., 1:].sigmoid() * share[..., None], share[..., None]], -1)

    def forward(self, start: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
        """Starts and ways of rays in, their colours out."""
        until = (self.seen(self.rough, start, way, self.depths)[..., 3] + 1e-5).cumsum(1)
        after = torch.searchsorted(until / until[:, -1:], self.shares).clamp(1, self.depths.shape[1] - 1)
        low, high = self.depths.gather(1, after - 1), self.depths.gather(1, after)
        depths = torch.cat([self.depths, torch.lerp(low, high, self.shares)], 1).sort(1)[0]
        return self.seen(self.fine, start, way, depths).sum(1)


def rays() -> Call:
    """4096 rays: 32 depths, and 64 more."""
    program, way = Rays(4096, 32, 64).to("cuda").eval(), F.normalize(normal(4096, 3))
    start = -4.0 * way + 0.1 * normal(4096, 3)
    return torch.inference_mode()(lambda: program(start, way))


# ---- learning from rewards -------------------------------------------------------------------------------------------


class Player(nn.Module):
    """Scores of all actions in a state, and the value of that state."""

    def __init__(self, known: int, actions: int, width: int = 512) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(known, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actions, self.value = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """States in, logarithms of the probabilities of actions and values out."""
        x = self.body(x)
        return F.log_softmax(self.actions(x), -1), self.value(x)


def rewards() -> Call:
    """An update of PPO from 32,768 states, with Adam, in TF32."""
    states, known, actions, reach = 32_768, 128, 16, 0.2
    program = Player(known, actions).to("cuda").train()
    optimiser = torch.optim.Adam(program.parameters(), lr=1e-5, foreach=True, capturable=True)
    x, action, before = normal(states, known), integers(actions, states, 1), normal(states, 1) - math.log(actions)
    better, value = normal(states, 1), normal(states, 1)

    def run() -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        optimiser.zero_grad(set_to_none=True)
        logarithms, guessed = program(x)
        ratio = (logarithms.gather(1, action) - before).exp()
        gain = torch.minimum(ratio * better, ratio.clamp(1.0 - reach, 1.0 + reach) * better).mean()
        disorder = -(logarithms.exp() * logarithms).sum(1).mean()
        loss = 0.5 * F.mse_loss(guessed, value) - gain - 0.01 * disorder
        loss.backward()
        nn.utils.clip_grad_norm_(program.parameters(), 0.5, foreach=True)
        optimiser.step()
        torch.backends.cuda.matmul.allow_tf32 = False
        return loss.detach()

    return run


# ---- magnets ---------------------------------------------------------------------------------------------------------


def magnets() -> Call:
    """Two sweeps of the Ising model on 4096 x 8192 places, as a checkerboard, with a random generator at each place."""
    rows, columns, sweeps, coupling = 4096, 4096, 2, 0.44  # columns of each colour
    black, white = (2 * integers(2, rows, columns).to(torch.int8) - 1 for _ in range(2))
    seeds = torch.randint(-(1 << 31), 1 << 31, (rows, columns), device="cuda").int()
    even = (torch.arange(rows, device="cuda") % 2 == 0)[:, None]

    def run() -> torch.Tensor:
        colours, numbers = [black, white], seeds
        for n in range(2 * sweeps):
            mine, other = colours[n % 2], colours[1 - n % 2]
            left, right = other.roll(1, 1), other.roll(-1, 1)
            beside = torch.where(even, left, right) if n % 2 else torch.where(even, right, left)
            around = other + other.roll(1, 0) + other.roll(-1, 0) + beside
            numbers = numbers * 1_664_525 + 1_013_904_223
            chance = (numbers & 0x7FFFFFFF) * 2.0**-31
            turned = chance < (mine * around * (-2.0 * coupling)).exp()
            colours[n % 2] = torch.where(turned, -mine, mine)
        return torch.stack([colour.sum() for colour in colours])

    return torch.inference_mode()(run)


# ---- what is recorded ------------------------------------------------------------------------------------------------

SEED = 53
MODELS: dict[str, Make] = {
    "seismic_waves_fp32": seeded(waves),
    "kalman_filters_fp64": seeded(filters),
    "super_resolution_bf16": seeded(enlargement),
    "molecular_dynamics_fp32": seeded(molecules),
    "database_query_fp64": seeded(query),
    "radiance_field_fp16": seeded(rays),
    "policy_update_tf32": seeded(rewards),
    "ising_int8": seeded(magnets),
}

MODEL_PAIRS = pairs_of(list(MODELS), SEED)
