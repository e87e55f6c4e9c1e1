"""A second set of whole programs: `python -m gpusim record models_second.py --out DIR --outcomes`, in the repository.

Written before any of them ran on a GPU, of kinds that neither the first set nor another recording has. All weights and
inputs are random, and the pairs follow from `SEED`.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn

from experiments.unseen_programs.models import BF16, F16, F32, Call, Make, inference, integers, normal, pairs_of, seeded

F64 = torch.float64


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    """From (batch, tokens, width) to (batch, heads, tokens, width of a head)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


# ---- a speech encoder: attention and depthwise convolutions over time ------------------------------------------------


class Conformer(nn.Module):
    """Half a feed-forward part, attention, a depthwise convolution over time, and the other half."""

    def __init__(self, width: int = 512, count: int = 8, reach: int = 31) -> None:
        super().__init__()
        self.count = count
        self.before, self.after = (
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.end = nn.LayerNorm(width), nn.LayerNorm(width)
        self.convs = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1), nn.GLU(1), nn.Conv1d(width, width, reach, padding=reach // 2, groups=width),
            nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Frames in, frames out."""
        x = x + 0.5 * self.before(x)
        q, k, v = (heads(part, self.count) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = x + self.convs(self.norm2(x).transpose(1, 2)).transpose(1, 2)
        return self.end(x + 0.5 * self.after(x))


class SpeechEncoder(nn.Module):
    """Two strided convolutions, and three blocks."""

    def __init__(self, width: int = 512, channels: int = 64) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, channels, 3, 2, 1), nn.ReLU(), nn.Conv2d(channels, channels, 3, 2, 1), nn.ReLU()
        )
        self.start = nn.Linear(20 * channels, width)
        self.blocks = nn.Sequential(*(Conformer(width) for _ in range(3)))
        self.letters = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logarithms of probabilities of letters."""
        y = self.front(x).permute(0, 2, 1, 3).flatten(2)
        return F.log_softmax(self.letters(self.blocks(self.start(y))), -1)


def conformer() -> Call:
    """1024 frames of 16 recordings."""
    return inference(SpeechEncoder(), F16, normal(16, 1, 1024, 80, dtype=F16))


# ---- images: attention within windows --------------------------------------------------------------------------------


class Windows(nn.Module):
    """As a layer of Swin: attention within windows of 7 by 7, which may be shifted, and a feed-forward part."""

    def __init__(self, width: int, count: int, shift: int, side: int = 7) -> None:
        super().__init__()
        self.count, self.shift, self.side = count, shift, side
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.places = nn.Parameter(torch.randn(count, side * side, side * side))
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, images out; channels last."""
        batch, height, width, channels = x.shape
        side, down, across = self.side, height // self.side, width // self.side
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), (1, 2))
        y = y.view(batch, down, side, across, side, channels).transpose(2, 3).reshape(-1, side * side, channels)
        q, k, v = (heads(part, self.count) for part in self.qkv(y).chunk(3, -1))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2) + self.places
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = y.view(batch, down, across, side, side, channels).transpose(2, 3).reshape(x.shape)
        if self.shift:
            y = y.roll((self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.feed(x)


class Merge(nn.Module):
    """Four neighbours become one, with twice the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, images of half the size out."""
        parts = [x[:, i::2, j::2] for j in range(2) for i in range(2)]
        return self.out(self.norm(torch.cat(parts, -1)))


class Patches(nn.Module):
    """Patches of 4 by 4, channels last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, patches out."""
        return self.norm(self.conv(x).permute(0, 2, 3, 1))


def windows() -> Call:
    """Two stages of two layers on 16 images of 224 x 224."""
    stages = [(96, 3), (192, 6)]
    layers = [[Windows(width, count, 0), Windows(width, count, 3), Merge(width)] for width, count in stages]
    program = nn.Sequential(Patches(96), *layers[0], *layers[1])
    return inference(program, BF16, normal(16, 3, 224, 224, dtype=BF16))


# ---- text: a small model drafts tokens, a large one checks them ------------------------------------------------------


class Cached(nn.Module):
    """A layer with a cache of keys and values, of which each is shared by some heads."""

    def __init__(self, width: int, inner: int, count: int, shared: int, batch: int, room: int) -> None:
        super().__init__()
        self.count, self.shared, size = count, shared, width // count
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * shared * size, bias=False)
        self.out, self.gate = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.register_buffer("keys", torch.randn(batch, shared, room, size))
        self.register_buffer("values", torch.randn(batch, shared, room, size))

    def forward(self, x: torch.Tensor, at: int, mask: torch.Tensor | None) -> torch.Tensor:
        """Tokens in, tokens out; their keys and values go to the cache from a place on."""
        y, end = self.norm1(x), at + x.shape[1]
        k, v = (heads(part, self.shared) for part in self.kv(y).chunk(2, -1))
        self.keys[:, :, at:end], self.values[:, :, at:end] = k, v
        every = (part[:, :, :end].repeat_interleave(self.count // self.shared, 1) for part in (self.keys, self.values))
        found = F.scaled_dot_product_attention(heads(self.q(y), self.count), *every, attn_mask=mask)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        gate, up = self.gate(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Language(nn.Module):
    """The likeliest next word after each token."""

    def __init__(self, words: int, width: int, inner: int, layers: int, shape: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
        self.layers = nn.ModuleList(Cached(width, inner, *shape) for _ in range(layers))
        self.end = nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor, at: int, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Words in, words out."""
        x = self.words(words)
        for layer in self.layers:
            x = layer(x, at, mask)
        return self.end(self.norm(x)).argmax(-1)


class Speculation(nn.Module):
    """Four drafted words, and how many of them the large model would have said."""

    def __init__(self, words: int, batch: int, before: int, drafts: int = 4) -> None:
        super().__init__()
        self.before, self.drafts, room = before, drafts, before + drafts + 1
        self.small = Language(words, 768, 2048, 2, (12, 12, batch, room))
        self.large = Language(words, 2048, 5632, 4, (16, 4, batch, room))
        self.register_buffer("mask", torch.ones(drafts + 1, room).tril(before).bool())

    def forward(self, word: torch.Tensor) -> torch.Tensor:
        """The last word of each text in; words that are accepted, and how many."""
        said = [word]
        for n in range(self.drafts):
            said.append(self.small(said[-1], self.before + n))
        drafted = torch.cat(said, 1)
        right = self.large(drafted, self.before, self.mask)
        accepted = (right[:, :-1] == drafted[:, 1:]).int().cumprod(1).sum(1, keepdim=True)
        return torch.cat([right, accepted], 1)


def speculation() -> Call:
    """Eight texts of 1000 words."""
    batch = 8
    return inference(Speculation(32_000, batch, 1000), BF16, integers(32_000, batch, 1))


# ---- clouds of points ------------------------------------------------------------------------------------------------


class Edges(nn.Module):
    """As DGCNN: the largest of what each point gets from its nearest neighbours."""

    def __init__(self, width: int, out: int, near: int = 20) -> None:
        super().__init__()
        self.near, self.linear, self.norm = near, nn.Linear(2 * width, out, bias=False), nn.BatchNorm1d(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Points in, points out."""
        batch, points, width = x.shape
        squares = x.square().sum(-1)
        distances = squares[:, :, None] + squares[:, None] - 2.0 * (x @ x.transpose(1, 2))
        nearest = distances.topk(self.near, largest=False, sorted=False)[1]
        places = (nearest + torch.arange(batch, device=x.device)[:, None, None] * points).flatten()
        found = x.flatten(0, 1).index_select(0, places).view(batch, points, self.near, width)
        here = x[:, :, None].expand_as(found)
        y = self.norm(self.linear(torch.cat([found - here, here], -1)).flatten(0, 2))
        return F.leaky_relu(y, 0.2).view(batch, points, self.near, -1).amax(2)


class PointCloud(nn.Module):
    """Three layers of neighbours, and a class of the whole cloud."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Edges(a, b) for a, b in pairwise((3, 64, 64, 128)))
        self.middle = nn.Linear(256, 512)
        self.end = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of each class."""
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return self.end(self.middle(torch.cat(found, -1)).relu().amax(1))


def points() -> Call:
    """Eight clouds of 1024 points."""
    return inference(PointCloud(), F32, normal(8, 1024, 3))


# ---- retrieval: products with many documents, and the largest of them ------------------------------------------------


def retrieval() -> Call:
    """The best 64 of 262,144 documents for each of 256 queries, in parts, and their order by exact products."""
    best, width = 64, 128
    queries, documents = normal(256, width, dtype=F16), normal(262_144, width, dtype=F16)

    def run() -> torch.Tensor:
        scores, places = [], []
        for n, part in enumerate(documents.chunk(4)):
            score, place = (queries @ part.t()).topk(best, sorted=False)
            scores.append(score)
            places.append(place + n * len(part))
        chosen = torch.cat(scores, 1).topk(best, sorted=False)[1]
        place = torch.cat(places, 1).gather(1, chosen)
        found = documents.index_select(0, place.flatten()).view(*place.shape, width).float()
        exact = (found * queries[:, None].float()).sum(-1)
        return place.gather(1, exact.argsort(1, descending=True))

    return torch.inference_mode()(run)


# ---- images before a network -----------------------------------------------------------------------------------------


def preparation() -> Call:
    """32 photographs of 720 x 1280: resized, turned, blurred, and their colours and contrast changed."""
    size = 224
    photographs = torch.randint(256, (32, 3, 720, 1280), dtype=torch.uint8, device="cuda")
    angles = normal(32) * 0.2
    zeros = torch.zeros_like(angles)
    turns = torch.stack([angles.cos(), -angles.sin(), zeros, angles.sin(), angles.cos(), zeros], 1).view(-1, 2, 3)
    colours, (mean, deviation) = normal(3, 3), (normal(1, 3, 1, 1), torch.ones(1, 3, 1, 1, device="cuda"))
    weights = torch.linspace(-2, 2, 9, device="cuda").square().neg().exp()
    weights = (weights / weights.sum()).expand(3, 1, 1, -1).contiguous()

    def run() -> torch.Tensor:
        x = F.interpolate(photographs.float() / 255.0, size=(288, 512), mode="bilinear", antialias=True)
        x = F.grid_sample(x, F.affine_grid(turns, [32, 3, 256, 256], False), "bilinear", "reflection", False)
        x = F.conv2d(F.conv2d(x, weights, padding=(0, 4), groups=3), weights.transpose(2, 3), padding=(4, 0), groups=3)
        x = torch.einsum("ck,bkhw->bchw", colours, x[:, :, 16 : 16 + size, 16 : 16 + size])
        low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        x = ((x - low) / (high - low + 1e-6)).pow(0.8)
        return ((x - mean) / deviation).to(F16).contiguous(memory_format=torch.channels_last)

    return torch.inference_mode()(run)


# ---- sound from spectra ----------------------------------------------------------------------------------------------


class Dilated(nn.Module):
    """Convolutions over time with larger and larger steps, and a way around each."""

    def __init__(self, width: int, reach: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, reach, padding=(reach // 2) * step, dilation=step) for step in (1, 3, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sound in, sound out."""
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return x


class Vocoder(nn.Module):
    """As HiFi-GAN: transposed convolutions, each before dilated ones of two lengths."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.start, self.end = nn.Conv1d(80, width, 7, padding=3), nn.Conv1d(width // 8, 1, 7, padding=3)
        steps, widths = (8, 8, 4), (width, width // 2, width // 4, width // 8)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(a, b, 2 * step, step, step // 2)
            for step, (a, b) in zip(steps, pairwise(widths), strict=True)
        )
        self.blocks = nn.ModuleList(nn.ModuleList(Dilated(out, reach) for reach in (3, 7)) for out in widths[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Spectra in, sound out."""
        x = self.start(x)
        for up, (short, far) in zip(self.ups, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = 0.5 * (short(x) + far(x))
        return torch.tanh(self.end(F.leaky_relu(x)))


def vocoder() -> Call:
    """64 frames of four recordings."""
    return inference(Vocoder(), F16, normal(4, 80, 64, dtype=F16))


# ---- training: a step of a small convolution network -----------------------------------------------------------------


class Norm(nn.BatchNorm2d):
    """A batch norm by PyTorch's kernels: cuDNN's do not run in green contexts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, images out."""
        sums = self.running_mean, self.running_var
        return torch.native_batch_norm(x, self.weight, self.bias, *sums, True, self.momentum, self.eps)[0]


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), Norm(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), Norm(out),
        )  # fmt: skip
        self.around = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, images out."""
        return F.relu(self.convs(x) + self.around(x))


def training() -> Call:
    """Forward, backward and SGD with momentum: 128 images of 32 x 32, in TF32."""
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in pairwise((64, 64, 128, 256))]
    start, end = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Linear(256, 100)
    program = nn.Sequential(start, Norm(64), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), end)
    program = program.to("cuda", memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(program.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
    images = normal(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    right = integers(100, 128)

    def run() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss = F.cross_entropy(program(images), right, label_smoothing=0.1)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return run


# ---- text in 8-bit integers ------------------------------------------------------------------------------------------


class Integers(nn.Module):
    """A matrix product of 8-bit integers: each row of the input and each column of the weights has its own factor."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.randint(-127, 128, (out, width), dtype=torch.int8))
        self.register_buffer("factors", torch.rand(out) * width**-0.5 / 73.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows in, rows out."""
        factor = x.abs().amax(-1, keepdim=True).float() / 127.0
        found = torch._int_mm((x / factor).round().to(torch.int8), self.weights.t())
        return (found * factor * self.factors).to(BF16)


class Decoder(nn.Module):
    """A layer of a language model, all products but those of attention in integers."""

    def __init__(self, width: int = 2048, inner: int = 5632, count: int = 16) -> None:
        super().__init__()
        self.count = count
        self.norm1, self.norm2 = nn.RMSNorm(width, dtype=BF16), nn.RMSNorm(width, dtype=BF16)
        self.qkv, self.out = Integers(width, 3 * width), Integers(width, width)
        self.gate, self.down = Integers(width, 2 * inner), Integers(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens of one text in, tokens out."""
        q, k, v = (heads(part[None], self.count) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        gate, up = self.gate(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def decoder() -> Call:
    """Three layers on 2048 tokens."""
    program = nn.Sequential(*(Decoder() for _ in range(3))).to("cuda").eval()
    x = normal(2048, 2048, dtype=BF16)
    return torch.inference_mode()(lambda: program(x))


# ---- a selective scan, step by step in one kernel --------------------------------------------------------------------


@triton.jit
def _scan(values, steps, rates, ins, outs, found, length, width, N: tl.constexpr, STATES: tl.constexpr):  # type: ignore[no-untyped-def]
    """States of some channels of a text, from its first token to its last."""
    channels, states = tl.program_id(1) * N + tl.arange(0, N), tl.arange(0, STATES)
    rate = tl.load(rates + channels[:, None] * STATES + states[None, :])
    state = tl.zeros((N, STATES), dtype=tl.float32)
    for n in range(length):
        token = tl.program_id(0) * length + n
        step = tl.load(steps + token * width + channels).to(tl.float32)
        value = tl.load(values + token * width + channels).to(tl.float32)
        into = tl.load(ins + token * STATES + states).to(tl.float32)
        out = tl.load(outs + token * STATES + states).to(tl.float32)
        state = state * tl.exp(step[:, None] * rate) + (step * value)[:, None] * into[None, :]
        tl.store(found + token * width + channels, tl.sum(state * out[None, :], 1))


class SelectiveScan(nn.Module):
    """As a layer of Mamba."""

    def __init__(self, width: int = 768, states: int = 16, rank: int = 48) -> None:
        super().__init__()
        self.inner, self.states, self.rank = 2 * width, states, rank
        self.norm, self.start = nn.RMSNorm(width), nn.Linear(width, 2 * self.inner, bias=False)
        self.conv = nn.Conv1d(self.inner, self.inner, 4, padding=3, groups=self.inner)
        self.choose = nn.Linear(self.inner, rank + 2 * states, bias=False)
        self.step, self.out = nn.Linear(rank, self.inner), nn.Linear(self.inner, width, bias=False)
        self.register_buffer("rates", -torch.rand(self.inner, states))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens in, tokens out."""
        batch, length, _ = x.shape
        values, gate = self.start(self.norm(x)).chunk(2, -1)
        values = F.silu(self.conv(values.transpose(1, 2))[:, :, :length]).transpose(1, 2).contiguous()
        step, into, out = self.choose(values).split([self.rank, self.states, self.states], -1)
        step, into, out = F.softplus(self.step(step)), into.contiguous(), out.contiguous()
        found = torch.empty(batch, length, self.inner, device=x.device, dtype=F32)
        grid = batch, self.inner // 32
        _scan[grid](
            values, step, self.rates.float(), into, out, found, length, self.inner, 32, self.states, num_warps=2
        )
        return x + self.out(found.to(x.dtype) * F.silu(gate))


def scan() -> Call:
    """Two layers, four texts of 512 tokens."""
    return inference(nn.Sequential(SelectiveScan(), SelectiveScan()), BF16, normal(4, 512, 768, dtype=BF16))


# ---- options by random paths -----------------------------------------------------------------------------------------


@triton.jit
def _paths(out, seed, paths, drift, spread, DATES: tl.constexpr, STEPS: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Prices along random paths, at some dates with some steps in between."""
    path = tl.program_id(0) * N + tl.arange(0, N)
    logarithm = tl.zeros((N,), dtype=tl.float32)
    for date in range(DATES):
        for step in range(STEPS):
            logarithm += drift + spread * tl.randn(seed, path * (DATES * STEPS) + date * STEPS + step)
        tl.store(out + date * paths + path, 100.0 * tl.exp(logarithm))


def options() -> Call:
    """The value of an American option from a million paths and six dates, by regressions from the last to the first."""
    paths, dates, strike, discount = 1 << 20, 6, 100.0, 0.99
    prices = torch.empty(dates, paths, device="cuda")

    def run() -> torch.Tensor:
        _paths[(paths // 512,)](prices, 7, paths, -2e-4, 0.03, dates, 8, 512, num_warps=4)
        value = (strike - prices[-1]).clamp(min=0.0)
        for price in prices[:-1].flip(0):
            value = value * discount
            now = (strike - price).clamp(min=0.0)
            x, y = price - price.mean(), value - value.mean()
            square = x * x - (x * x).mean()
            slope, curve = (x * y).sum() / (x * x).sum(), (square * y).sum() / (square * square).sum()
            kept = value.mean() + slope * x + curve * square
            value = torch.where((now > kept) & (now > 0.0), now, value)
        return value.mean()

    return torch.inference_mode()(run)


# ---- equations with a sparse matrix ----------------------------------------------------------------------------------


def gradients() -> Call:
    """Ten steps of conjugate gradients: a grid of 96 x 96 x 96 in which each place depends on six neighbours."""
    side, steps = 96, 10
    places = torch.arange(side**3, device="cuda").view(side, side, side)
    near = [places, *(places.roll(way, axis) for axis in range(3) for way in (-1, 1))]
    columns, order = torch.stack([one.flatten() for one in near], 1).sort(1)
    values = torch.where(order == 0, 6.5, -1.0).to(F64)
    starts = torch.arange(0, columns.numel() + 1, columns.shape[1], device="cuda")
    matrix = torch.sparse_csr_tensor(starts.int(), columns.flatten().int(), values.flatten(), (side**3, side**3))
    right, diagonal = normal(side**3, dtype=F64), 6.5

    def run() -> torch.Tensor:
        x, rest = torch.zeros_like(right), right.clone()
        towards = nearly = rest / diagonal
        left = torch.dot(rest, nearly)
        for _ in range(steps):
            product = matrix @ towards
            share = left / torch.dot(towards, product)
            x, rest = x + share * towards, rest - share * product
            nearly = rest / diagonal
            before, left = left, torch.dot(rest, nearly)
            towards = nearly + (left / before) * towards
        return x

    return torch.no_grad()(run)


# ---- what is recorded ------------------------------------------------------------------------------------------------

SEED = 41
MODELS: dict[str, Make] = {
    "conformer_fp16": seeded(conformer),
    "window_attention_bf16": seeded(windows),
    "speculative_decode_bf16": seeded(speculation),
    "point_cloud_fp32": seeded(points),
    "retrieval_fp16": seeded(retrieval),
    "image_preparation_fp32": seeded(preparation),
    "vocoder_fp16": seeded(vocoder),
    "training_cnn_tf32": seeded(training),
    "decoder_int8": seeded(decoder),
    "selective_scan_bf16": seeded(scan),
    "american_options_fp32": seeded(options),
    "conjugate_gradients_fp64": seeded(gradients),
}

MODEL_PAIRS = pairs_of(list(MODELS), SEED)
