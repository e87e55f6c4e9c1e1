"""A fifth set of whole programs: `python -m gpusim record models_fifth.py --out DIR --outcomes`, in the repository.

Written before any of them was measured, of kinds that neither the first four sets nor another recording has. All
weights and inputs are random, and the pairs follow from `SEED`.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from experiments.unseen_programs.models import BF16, F16, Call, Make, inference, integers, normal, pairs_of, seeded

# ---- a step of diffusion: a transformer ------------------------------------------------------------------------------


class Modulated(nn.Module):
    """Attention and a feed-forward part, each scaled, shifted and gated by the embedding of the time."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width, elementwise_affine=False)
        self.by_time, self.qkv = nn.Linear(width, 6 * width), nn.Linear(width, 3 * width)
        self.out, self.wide, self.narrow = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Patches in, patches out."""
        shift, scale, gate, shift2, scale2, gate2 = self.by_time(F.silu(time)).unsqueeze(1).chunk(6, -1)
        images, patches, width = x.shape
        qkv = self.qkv(self.norm(x) * (1.0 + scale) + shift).view(images, patches, 3, self.heads, -1)
        seen = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        x = x + gate * self.out(seen.transpose(1, 2).reshape(images, patches, width))
        y = self.wide(self.norm(x) * (1.0 + scale2) + shift2)
        return x + gate2 * self.narrow(F.gelu(y, approximate="tanh"))


class ImageTransformer(nn.Module):
    """Four blocks of `Modulated`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Modulated(width, heads) for _ in range(4))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Patches in, patches out."""
        for block in self.blocks:
            x = block(x, time)
        return x


def images() -> Call:
    """Eight images of 256 patches."""
    return inference(ImageTransformer(1152, 16), BF16, normal(8, 256, 1152, dtype=BF16), normal(8, 1152, dtype=BF16))


# ---- optical flow ----------------------------------------------------------------------------------------------------


class Flow(nn.Module):
    """Where each place of a frame moved: all pairs of features, and four steps that look some of them up."""

    def __init__(self, channels: int, around: int = 3) -> None:
        super().__init__()
        reach = torch.arange(-around, around + 1)
        self.register_buffer("near", torch.stack(torch.meshgrid(reach, reach, indexing="xy"), -1).view(-1, 2))
        seen = 2 * (2 * around + 1) ** 2
        self.first = nn.Conv2d(seen + 2 + channels, 128, 3, padding=1)
        self.second, self.out = nn.Conv2d(128, 96, 3, padding=1), nn.Conv2d(96, 2, 3, padding=1)

    def forward(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """Features of two frames in, motions out."""
        frames, channels, rows, columns = before.shape
        pairs = torch.bmm(before.flatten(2).mT, after.flatten(2)) / math.sqrt(channels)
        fine = pairs.view(-1, 1, rows, columns)
        levels = (fine, F.avg_pool2d(fine, 2))
        at = torch.stack(
            torch.meshgrid(
                torch.arange(rows, device=before.device), torch.arange(columns, device=before.device), indexing="ij"
            )[::-1],
            -1,
        ).to(before.dtype)
        moved = torch.zeros(frames, rows, columns, 2, device=before.device, dtype=before.dtype)
        for _ in range(4):
            found = []
            for level, one in enumerate(levels):
                places = ((at + moved) / 2**level).view(-1, 1, 1, 2) + self.near.view(1, -1, 1, 2)
                size = (one.shape[3] - 1, one.shape[2] - 1)
                grid = torch.stack([2.0 * places[..., n] / size[n] - 1.0 for n in range(2)], -1)
                found.append(F.grid_sample(one, grid.to(one.dtype), align_corners=True).view(frames, rows, columns, -1))
            x = torch.cat([*found, moved], -1).permute(0, 3, 1, 2)
            x = F.relu(self.first(torch.cat([x, before], 1)))
            moved = moved + self.out(F.relu(self.second(x))).permute(0, 2, 3, 1)
        return moved


def flow() -> Call:
    """Two pairs of frames with features of 48 x 64 places."""
    return inference(Flow(128), F16, *(normal(2, 128, 48, 64, dtype=F16) for _ in range(2)))


# ---- clusters --------------------------------------------------------------------------------------------------------


def clusters() -> Call:
    """Three steps of k-means: 262144 points of 64 dimensions, 256 centres."""
    points, centres = normal(262_144, 64), normal(256, 64)
    ones = torch.ones(len(points), device="cuda")

    def run() -> torch.Tensor:
        now = centres
        for _ in range(3):
            nearest = (now.square().sum(1) - 2.0 * (points @ now.mT)).argmin(1)
            sums = torch.zeros_like(now).index_add_(0, nearest, points)
            counts = torch.zeros(len(now), device="cuda").index_add_(0, nearest, ones)
            now = torch.where(counts[:, None] > 0.0, sums / counts[:, None].clamp(min=1.0), now)
        return now

    return torch.inference_mode()(run)


# ---- images made sharp -----------------------------------------------------------------------------------------------


def sharpening() -> Call:
    """Four steps of Richardson and Lucy's deconvolution by FFTs: 16 images of 512 x 512 places."""
    blurred = normal(16, 512, 512).abs() + 0.1
    blur = torch.exp(-0.1 * torch.arange(-256, 256, device="cuda").square())
    filtered = torch.fft.rfft2((blur[:, None] * blur[None, :]).roll((256, 256), (0, 1)) / blur.sum() ** 2)

    def run() -> torch.Tensor:
        sharp = blurred
        for _ in range(4):
            again = torch.fft.irfft2(torch.fft.rfft2(sharp) * filtered, s=(512, 512))
            ratio = blurred / again.clamp(min=1e-3)
            sharp = sharp * torch.fft.irfft2(torch.fft.rfft2(ratio) * filtered.conj(), s=(512, 512))
        return sharp

    return torch.inference_mode()(run)


# ---- boosted trees ---------------------------------------------------------------------------------------------------


def trees() -> Call:
    """Scores of 65536 rows of 32 features by 64 trees, six levels deep."""
    rows, features, count, levels = 65_536, 32, 64, 6
    table = normal(rows, features)
    asked = integers(features, count, 2**levels)
    limits, scores = normal(count, 2**levels), normal(count, 2**levels)
    first = torch.arange(count, device="cuda") * 2**levels

    def run() -> torch.Tensor:
        node = torch.zeros(rows, count, device="cuda", dtype=torch.int64)
        for _ in range(levels):
            at = first + node
            right = table.gather(1, asked.view(-1)[at]) > limits.view(-1)[at]
            node = (2 * node + 1 + right) & (2**levels - 1)
        return scores.view(-1)[first + node].sum(1)

    return torch.inference_mode()(run)


# ---- retention -------------------------------------------------------------------------------------------------------


class Retention(nn.Module):
    """A layer whose heads forget at their own pace, worked out by chunks of 256 tokens."""

    def __init__(self, width: int, heads: int, chunk: int = 256) -> None:
        super().__init__()
        self.heads, self.chunk, self.norm = heads, chunk, nn.RMSNorm(width)
        self.qkv, self.gate, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, width)
        pace = torch.log1p(-(2.0 ** (-5.0 - torch.arange(heads))))[:, None]
        at = torch.arange(chunk)
        apart = at[:, None] - at[None, :]
        self.register_buffer("within", torch.where(apart >= 0, (pace[..., None] * apart).exp(), 0.0))
        self.register_buffer("since", (pace * (at + 1)).exp()[..., None])
        self.register_buffer("until", (pace * (chunk - 1 - at)).exp()[..., None])
        self.register_buffer("whole", (pace * chunk).exp()[..., None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens in, tokens out."""
        texts, tokens, width = x.shape
        y = self.norm(x)
        chunks = self.qkv(y).view(texts, -1, self.chunk, 3, self.heads, width // self.heads).permute(3, 1, 0, 4, 2, 5)
        state = torch.zeros(texts, self.heads, width // self.heads, width // self.heads, device=x.device, dtype=x.dtype)
        found = []
        for q, k, v in zip(*chunks.unbind(0), strict=True):
            found.append((q @ k.mT * self.within) @ v + (q * self.since) @ state)
            state = state * self.whole + (k * self.until).mT @ v
        mixed = torch.stack(found, 1).transpose(2, 3).reshape(texts, tokens, width)
        return x + self.out(F.rms_norm(mixed, (width,)) * F.silu(self.gate(y)))


def retention() -> Call:
    """Three layers on eight texts of 1024 tokens."""
    return inference(nn.Sequential(*(Retention(1024, 8) for _ in range(3))), BF16, normal(8, 1024, 1024, dtype=BF16))


# ---- a multigrid cycle -----------------------------------------------------------------------------------------------


def multigrid() -> Call:
    """A V-cycle for Poisson's equation on 2048 x 2048 places in FP64, four grids."""
    right = normal(1, 1, 2048, 2048, dtype=torch.float64)

    def sums(x: torch.Tensor) -> torch.Tensor:
        y = F.pad(x, (1, 1, 1, 1))
        return y[..., :-2, 1:-1] + y[..., 2:, 1:-1] + y[..., 1:-1, :-2] + y[..., 1:-1, 2:]

    def smoothed(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return x + 0.2 * (wanted - 4.0 * x + sums(x))

    def cycle(x: torch.Tensor, wanted: torch.Tensor, grids: int) -> torch.Tensor:
        x = smoothed(x, wanted)
        if grids == 1:
            return smoothed(x, wanted)
        left = 4.0 * F.avg_pool2d(wanted - 4.0 * x + sums(x), 2)
        x = x + F.interpolate(cycle(torch.zeros_like(left), left, grids - 1), scale_factor=2.0, mode="nearest")
        return smoothed(x, wanted)

    return torch.inference_mode()(lambda: cycle(torch.zeros_like(right), right, 4))


# ---- a step of a beam search -----------------------------------------------------------------------------------------


def beams() -> Call:
    """The next words of 32 sequences with 8 beams each: scores of 50304 words, the best beams, and their caches."""
    sequences, kept, width, words, layers, tokens = 32, 8, 1024, 50_304, 4, 128
    states = normal(sequences * kept, width, dtype=F16)
    weights = normal(words, width, dtype=F16) / math.sqrt(width)
    caches = [normal(sequences * kept, tokens, 256, dtype=F16) for _ in range(layers)]
    before = normal(sequences, kept)
    first = torch.arange(sequences, device="cuda")[:, None] * kept

    def run() -> list[torch.Tensor]:
        scores = F.log_softmax(F.linear(states, weights).float(), -1).view(sequences, kept, words)
        best, at = (before[..., None] + scores).view(sequences, -1).topk(kept)
        came = (first + at // words).view(-1)
        return [best, at % words, *(cache.index_select(0, came) for cache in caches)]

    return torch.inference_mode()(run)


# ---- what is recorded ------------------------------------------------------------------------------------------------

SEED = 113
MODELS: dict[str, Make] = {
    "image_transformer_bf16": seeded(images),
    "optical_flow_fp16": seeded(flow),
    "clusters_fp32": seeded(clusters),
    "sharpening_fp32": seeded(sharpening),
    "boosted_trees_fp32": seeded(trees),
    "retention_bf16": seeded(retention),
    "multigrid_fp64": seeded(multigrid),
    "beam_search_fp16": seeded(beams),
}

MODEL_PAIRS = pairs_of(list(MODELS), SEED)
