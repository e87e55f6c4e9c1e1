"""Whole programs of kinds that no recording of this repository has: `gpusim record models.py --out DIR --outcomes`.

Written before any of them ran on a GPU. All weights and inputs are random, and the pairs follow from `SEED`.
"""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
Call = Callable[[], Any]
Make = Callable[[], Call]


def normal(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Numbers around 0."""
    return torch.randn(*shape, device="cuda").to(dtype)


def integers(below: int, *shape: int) -> torch.Tensor:
    """Whole numbers from 0."""
    return torch.randint(below, shape, device="cuda")


def inference(program: nn.Module, dtype: torch.dtype, *inputs: torch.Tensor) -> Call:
    """A pass of a program without gradients."""
    program = program.to("cuda", dtype).eval()
    return torch.inference_mode()(lambda: program(*inputs))


# ---- a step of diffusion: a U-Net ------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Two convolutions, each behind a group norm, with the embedding of the time in between."""

    def __init__(self, channels: int, out: int, times: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(times, out)
        self.skip = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Images in, images out."""
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class ImageAttention(nn.Module):
    """Attention between all places of an image."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(32, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images in, images out."""
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, 3, self.heads, channels // self.heads, height * width)
        q, k, v = qkv.transpose(-1, -2).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2)
        return x + self.out(y.reshape(x.shape))


class UNet(nn.Module):
    """Two resolutions, with attention on the lower one."""

    def __init__(self, width: int = 256, times: int = 1024) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.logspace(0, -4, width // 2))
        self.time = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.start = nn.Conv2d(4, width, 3, padding=1)
        self.down = Residual(width, width, times)
        self.halve = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.low = Residual(width, 2 * width, times)
        self.attention1 = ImageAttention(2 * width, 8)
        self.middle = Residual(2 * width, 2 * width, times)
        self.attention2 = ImageAttention(2 * width, 8)
        self.enlarge = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up = Residual(2 * width, width, times)
        self.end = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """The noise of images at some times."""
        angles = at[:, None] * self.frequencies
        time = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        fine = self.down(self.start(x), time)
        y = self.attention1(self.low(self.halve(fine), time))
        y = self.attention2(self.middle(y, time))
        y = self.enlarge(F.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.end(self.up(torch.cat([y, fine], 1), time))


def diffusion() -> Call:
    """A step of 32 images of 32 x 32."""
    return inference(UNet(), BF16, normal(32, 4, 32, 32, dtype=BF16), integers(1000, 32).to(BF16))


# ---- recommendations: tables of embeddings and fully connected layers ------------------------------------------------


def layers(*widths: int) -> nn.Sequential:
    """Fully connected layers, each with a ReLU."""
    each = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return nn.Sequential(*(part for pair in each for part in pair))


class Recommender(nn.Module):
    """As DLRM: features, sums of embeddings, and the products of any two of these."""

    def __init__(self, tables: int, rows: int, width: int = 64) -> None:
        super().__init__()
        self.bottom = layers(13, 512, 256, width)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        first, second = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("first", first)
        self.register_buffer("second", second)
        self.top = nn.Sequential(layers(len(first) + width, 1024, 1024, 512), nn.Linear(512, 1), nn.Sigmoid())

    def forward(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """A probability for each example."""
        x = self.bottom(features)
        each = torch.stack([x, *(table(row) for table, row in zip(self.tables, rows, strict=True))], 1)
        products = torch.bmm(each, each.transpose(1, 2))[:, self.first, self.second]
        return self.top(torch.cat([x, products], 1))


def recommender() -> Call:
    """8192 examples with 20 rows of each of 16 tables."""
    tables, rows, batch = 16, 200_000, 8192
    return inference(Recommender(tables, rows), F32, normal(batch, 13), integers(rows, tables, batch, 20))


# ---- a graph network -------------------------------------------------------------------------------------------------


class Messages(nn.Module):
    """Messages along the edges of a graph, each with a gate, and their mean at each node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.gate = nn.Linear(2 * width, 1)
        self.update, self.norm = nn.Linear(2 * width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, start: torch.Tensor, end: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Nodes in, nodes out; ``edges``: how many end at each node."""
        both = torch.cat([x.index_select(0, start), x.index_select(0, end)], 1)
        sent = self.message(both) * self.gate(both).sigmoid()
        mean = torch.zeros_like(x).index_add_(0, end, sent) / edges
        return x + self.norm(F.relu(self.update(torch.cat([x, mean], 1))))


class GraphNetwork(nn.Module):
    """Four layers of messages."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.start, self.end = nn.Linear(100, width), nn.Linear(width, 40)
        self.layers = nn.ModuleList(Messages(width) for _ in range(4))

    def forward(self, x: torch.Tensor, start: torch.Tensor, end: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Classes of all nodes."""
        x = self.start(x)
        for layer in self.layers:
            x = layer(x, start, end, edges)
        return self.end(x)


def graph() -> Call:
    """200,000 edges between any of 40,000 nodes."""
    nodes, edges = 40_000, 200_000
    start, end = integers(nodes, edges), integers(nodes, edges)
    ends = torch.bincount(end, minlength=nodes).clamp(min=1).to(F32)[:, None]
    return inference(GraphNetwork(), F32, normal(nodes, 100), start, end, ends)


# ---- speech: an LSTM, step by step -----------------------------------------------------------------------------------


class Speech(nn.Module):
    """Two convolutions over time, and two layers of LSTM cells."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(80, 512, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv1d(512, width, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(2))
        self.letters = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Logarithms of probabilities at each step."""
        states, found = [(start, start), (start, start)], []
        for y in self.front(x).permute(2, 0, 1).contiguous():
            for n, cell in enumerate(self.cells):
                states[n] = cell(y, states[n])
                y = states[n][0]
            found.append(y)
        return F.log_softmax(self.letters(torch.stack(found)), -1)


def speech() -> Call:
    """80 frames of 512 recordings: 20 steps."""
    return inference(Speech(), F16, normal(512, 80, 80, dtype=F16), torch.zeros(512, 1024, device="cuda", dtype=F16))


# ---- a state-space model in chunks -----------------------------------------------------------------------------------


class StateSpace(nn.Module):
    """As a layer of Mamba-2: products within chunks, and states that go from chunk to chunk."""

    def __init__(self, width: int = 768, heads: int = 24, state: int = 64, chunk: int = 64) -> None:
        super().__init__()
        self.inner, self.heads, self.state, self.chunk = 2 * width, heads, state, chunk
        mixed = self.inner + 2 * state
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(self.inner)
        self.start = nn.Linear(width, self.inner + mixed + heads)
        self.conv = nn.Conv1d(mixed, mixed, 4, padding=3, groups=mixed)
        self.out = nn.Linear(self.inner, width)
        self.direct = nn.Parameter(torch.ones(heads, 1))
        self.register_buffer("later", torch.ones(chunk, chunk).triu(1).bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens in, tokens out."""
        batch, length, _ = x.shape
        shape = batch, length // self.chunk, self.chunk
        gate, mixed, step = self.start(self.norm1(x)).split([self.inner, self.conv.in_channels, self.heads], -1)
        mixed = F.silu(self.conv(mixed.transpose(1, 2))[:, :, :length]).transpose(1, 2)
        values, keys, queries = mixed.split([self.inner, self.state, self.state], -1)
        keys, queries = keys.reshape(*shape, self.state), queries.reshape(*shape, self.state)
        step = F.softplus(step.float()).view(*shape, self.heads)
        values = (values.reshape(*shape, self.heads, -1) * step[..., None]).to(x.dtype)  # batch, chunk, place, head, -
        sums = (-step).cumsum(2)
        # Within chunks: what a place gets from those before it.
        rows = sums.permute(0, 1, 3, 2)  # batch, chunk, head, place
        decay = (rows[..., :, None] - rows[..., None, :]).masked_fill(self.later, float("-inf")).exp()
        scores = ((queries @ keys.transpose(-1, -2))[:, :, None] * decay).to(x.dtype)
        within = (scores @ values.transpose(2, 3)).transpose(2, 3)
        # Between chunks: the state at the start of each.
        kept = (values * (sums[:, :, -1:] - sums).exp()[..., None]).to(x.dtype)
        added = keys.transpose(-1, -2) @ kept.reshape(*shape, self.inner)  # batch, chunk, state, inner
        left = sums[:, :, -1, :, None].exp().to(x.dtype).expand(-1, -1, -1, values.shape[-1])
        left = left.reshape(batch, -1, 1, self.inner)
        states = [torch.zeros_like(added[:, 0])]
        for n in range(shape[1] - 1):
            states.append(torch.addcmul(added[:, n], left[:, n], states[-1]))
        between = (queries @ torch.stack(states, 1)).view(values.shape) * sums.exp()[..., None]
        y = (within + between + self.direct * values).to(x.dtype).reshape(batch, length, self.inner)
        return x + self.out(self.norm2(y * F.silu(gate)))


def state_space() -> Call:
    """Two layers, 16 sequences of 1024 tokens."""
    return inference(nn.Sequential(StateSpace(), StateSpace()), BF16, normal(16, 1024, 768, dtype=BF16))


# ---- video: convolutions in three dimensions -------------------------------------------------------------------------


class VideoBlock(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv3d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm3d(out), nn.ReLU(),
            nn.Conv3d(out, out, 3, 1, 1, bias=False), nn.BatchNorm3d(out),
        )  # fmt: skip
        around = nn.Sequential(nn.Conv3d(channels, out, 1, stride, bias=False), nn.BatchNorm3d(out))
        self.around = nn.Identity() if channels == out else around

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Videos in, videos out."""
        return F.relu(self.convs(x) + self.around(x))


def video() -> Call:
    """A residual network of 18 layers on two videos of 16 frames."""
    start = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [VideoBlock(a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
    end = nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, 400)
    program = nn.Sequential(start, nn.BatchNorm3d(64), nn.ReLU(), *blocks, *end)
    return inference(program, F16, normal(2, 3, 16, 112, 112, dtype=F16))


# ---- training: a step of a small encoder -----------------------------------------------------------------------------


class Encoder(nn.Module):
    """As BERT: words and places, two layers, and the word at each place."""

    def __init__(self, words: int, length: int, width: int = 768) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(2)
        )
        self.end = nn.Linear(width, words)

    def forward(self, words: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Scores of all words at each place."""
        x = self.words(words) + self.places
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return self.end(x)


def training() -> Call:
    """Forward, backward and AdamW: 16 texts of up to 128 words, in BF16 where PyTorch finds it safe."""
    words, batch, length = 8192, 16, 128
    program = Encoder(words, length).to("cuda").train()
    optimiser = torch.optim.AdamW(program.parameters(), lr=1e-4, fused=True, capturable=True)
    text, right = integers(words, batch, length), integers(words, batch, length)
    ends = torch.arange(length, device="cuda") >= 64 + integers(64, batch)[:, None]
    padding = torch.zeros(batch, length, device="cuda").masked_fill(ends, float("-inf"))

    def run() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=BF16, cache_enabled=False):  # a graph may keep no copies from before it
            loss = F.cross_entropy(program(text, padding).flatten(0, 1), right.flatten())
        loss.backward()
        optimiser.step()
        return loss.detach()

    return run


# ---- a mixture of experts --------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """Each token goes to two experts of 16, as long as they have room."""

    def __init__(self, width: int = 1024, inner: int = 2048, experts: int = 16, room: int = 1280) -> None:
        super().__init__()
        self.room, self.norm, self.router = room, nn.LayerNorm(width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)
        self.register_buffer("numbers", torch.arange(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens in, tokens out."""
        y = self.norm(x)
        shares, chosen = F.softmax(self.router(y).float(), -1).topk(2)
        shares = shares / shares.sum(-1, keepdim=True)
        chosen = chosen.flatten()
        before = (self.numbers[:, None] == chosen).int().cumsum(1)  # tokens of each expert so far
        place = before.gather(0, chosen[None]).flatten() - 1
        nowhere = len(self.numbers) * self.room
        place = (chosen * self.room + place).masked_fill(place >= self.room, nowhere)
        sent = y.new_zeros(nowhere + 1, y.shape[1]).index_copy_(0, place, y[:, None].expand(-1, 2, -1).flatten(0, 1))
        found = torch.bmm(F.gelu(torch.bmm(sent[:-1].view(-1, self.room, y.shape[1]), self.up)), self.down)
        back = F.pad(found.flatten(0, 1), (0, 0, 0, 1)).index_select(0, place).view(*chosen.view(-1, 2).shape, -1)
        return x + (back * shares[..., None].to(x.dtype)).sum(1)


def experts() -> Call:
    """Three layers on 8192 tokens."""
    return inference(nn.Sequential(*(Experts() for _ in range(3))), BF16, normal(8192, 1024, dtype=BF16))


# ---- a neural operator -----------------------------------------------------------------------------------------------


class Spectral(nn.Module):
    """A linear map of the lowest frequencies, beside one of each place."""

    def __init__(self, width: int = 64, modes: int = 24) -> None:
        super().__init__()
        self.modes, self.around = modes, nn.Conv2d(width, width, 1)
        shape = 2, modes * modes, width, width
        self.weights = nn.Parameter(torch.randn(*shape, dtype=torch.complex64) / width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Fields in, fields out."""
        waves, most = torch.fft.rfft2(x), self.modes
        found = torch.zeros_like(waves)
        for rows, weights in zip((slice(most), slice(-most, None)), self.weights, strict=True):
            low = waves[:, :, rows, :most].flatten(2).permute(2, 0, 1)  # frequency, field, channel
            found[:, :, rows, :most] = torch.bmm(low, weights).permute(1, 2, 0).unflatten(2, (most, most))
        return F.gelu(torch.fft.irfft2(found, s=x.shape[-2:]) + self.around(x))


def operator() -> Call:
    """Four layers on 8 fields of 128 x 128."""
    program = nn.Sequential(nn.Conv2d(3, 64, 1), *(Spectral() for _ in range(4)), nn.Conv2d(64, 1, 1))
    call = program.to("cuda").eval()  # no type: a part of the weights is complex
    x = normal(8, 3, 128, 128)
    return torch.inference_mode()(lambda: call(x))


# ---- 8-bit floating-point numbers ------------------------------------------------------------------------------------


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor as 8-bit floating-point numbers, of which 448 is the largest, and the factor that restores it."""
    factor = x.abs().amax().float() / 448.0
    return (x / factor).to(torch.float8_e4m3fn), factor


class Linear8(nn.Module):
    """A matrix product whose factors are quantised, the input in each pass."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        weights, factor = quantised(torch.randn(out, width) * width**-0.5)
        self.register_buffer("weights", weights)
        self.register_buffer("factor", factor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows in, rows out."""
        x, factor = quantised(x)
        return torch._scaled_mm(x, self.weights.t(), scale_a=factor, scale_b=self.factor, out_dtype=BF16)


class Feed8(nn.Module):
    """A feed-forward part behind a norm."""

    def __init__(self, width: int = 2048) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            nn.LayerNorm(width, dtype=BF16), Linear8(width, 4 * width), nn.GELU(), Linear8(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens in, tokens out."""
        return x + self.parts(x)


def quantised8() -> Call:
    """Four feed-forward parts on 4096 tokens."""
    program = nn.Sequential(*(Feed8() for _ in range(4))).to("cuda").eval()
    x = normal(4096, 2048, dtype=BF16)
    return torch.inference_mode()(lambda: program(x))


# ---- what is recorded ------------------------------------------------------------------------------------------------

SEED = 28


def seeded(make: Make) -> Make:
    """The same weights and inputs in every process."""

    def begin() -> Call:
        torch.manual_seed(SEED)
        return make()

    return begin


MODELS: dict[str, Make] = {
    "diffusion_unet_bf16": seeded(diffusion),
    "recommender_fp32": seeded(recommender),
    "graph_network_fp32": seeded(graph),
    "speech_lstm_fp16": seeded(speech),
    "state_space_bf16": seeded(state_space),
    "video_3d_fp16": seeded(video),
    "training_encoder_bf16": seeded(training),
    "experts_bf16": seeded(experts),
    "neural_operator_fp32": seeded(operator),
    "feed_forward_fp8": seeded(quantised8),
}


def pairs_of(programs: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Each program beside the next one of a random order, and two beside the one that is half of the order away."""
    order = list(programs)
    random.Random(seed).shuffle(order)
    beside = zip(order, order[1:] + order[:1], strict=True)
    return [*beside, *((order[n], order[n + len(order) // 2]) for n in (0, 2))]


MODEL_PAIRS = pairs_of(list(MODELS), SEED)
