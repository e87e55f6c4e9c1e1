"""BF16 kernels of a transformer, and its prefill and decoding: `gpusim record ops.py --out DIR --outcomes`.

The model has 8 layers of width 1024, 16 heads and a gated feed-forward part of 4096; its weights are random.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, INNER = 8, 1024, 16, 4096
PROMPT = 512  # tokens of the prefill
BATCH, CONTEXT = 32, 512  # sequences that are decoded, tokens of each so far

Call = Callable[[], Any]


def random(*shape: int) -> torch.Tensor:
    """Numbers of which products keep their size."""
    return (torch.randn(*shape, device="cuda") * shape[-1] ** -0.5).to(torch.bfloat16)


def linear(rows: int, columns: int, out: int) -> Callable[[], Call]:
    """A matrix product, the weights as PyTorch's Linear has them."""

    def make() -> Call:
        x, weights = random(rows, columns), random(out, columns)
        return lambda: F.linear(x, weights)

    return make


def attention(batch: int, queries: int, keys: int, causal: bool) -> Callable[[], Call]:
    """Scaled dot-product attention by FlashAttention."""

    def make() -> Call:
        q, k, v = (random(batch, HEADS, rows, WIDTH // HEADS) for rows in (queries, keys, keys))

        def run() -> torch.Tensor:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return run

    return make


def norm() -> Call:
    """Root-mean-square normalisation of 8192 tokens."""
    x, weights = random(8192, WIDTH), random(WIDTH)
    return lambda: F.rms_norm(x, (WIDTH,), weights)


def silu() -> Call:
    """The activation of 8192 tokens."""
    x = random(8192, INNER)
    return lambda: F.silu(x)


def convolution() -> Call:
    """A 3x3 convolution, channels last."""
    x = random(8, 256, 56, 56).contiguous(memory_format=torch.channels_last)
    weights = random(256, 256, 3, 3).contiguous(memory_format=torch.channels_last)
    return lambda: F.conv2d(x, weights, padding=1)


class Transformer:
    """Layers with random weights."""

    def __init__(self) -> None:
        self.layers = [
            {
                "qkv": random(3 * WIDTH, WIDTH),
                "out": random(WIDTH, WIDTH),
                "gate": random(INNER, WIDTH),
                "up": random(INNER, WIDTH),
                "down": random(WIDTH, INNER),
            }
            for _ in range(LAYERS)
        ]
        self.scale = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, attend: Callable[[int, Any, Any, Any], torch.Tensor]) -> torch.Tensor:
        """All layers; ``attend`` gives the attention of one of them."""
        for n, layer in enumerate(self.layers):
            q, k, v = F.linear(F.rms_norm(x, (WIDTH,), self.scale), layer["qkv"]).chunk(3, -1)
            x = x + F.linear(attend(n, q, k, v), layer["out"])
            y = F.rms_norm(x, (WIDTH,), self.scale)
            x = x + F.linear(F.silu(F.linear(y, layer["gate"])) * F.linear(y, layer["up"]), layer["down"])
        return x


def heads(x: torch.Tensor) -> torch.Tensor:
    """From (batch, tokens, width) to (batch, heads, tokens, width of a head)."""
    return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)


def prefill() -> Call:
    """All tokens of a prompt at once."""
    model, x = Transformer(), random(1, PROMPT, WIDTH)

    def attend(_: int, q: Any, k: Any, v: Any) -> torch.Tensor:
        found = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        return found.transpose(1, 2).reshape(x.shape)

    return torch.inference_mode()(lambda: model.forward(x, attend))


def decode() -> Call:
    """One token of each of many sequences, beside the keys and values of those before."""
    model, x = Transformer(), random(BATCH, 1, WIDTH)
    cache = [[random(BATCH, HEADS, CONTEXT, WIDTH // HEADS) for _ in range(2)] for _ in range(LAYERS)]

    def attend(layer: int, q: Any, _: Any, __: Any) -> torch.Tensor:
        found = F.scaled_dot_product_attention(heads(q), *cache[layer])
        return found.transpose(1, 2).reshape(x.shape)

    return torch.inference_mode()(lambda: model.forward(x, attend))


OPS = {
    "transformer/qkv/t4096/bf16/gemm": linear(4096, 1024, 3072),
    "transformer/up/t512/bf16/gemm": linear(512, 1024, 4096),
    "transformer/down/t32/bf16/gemm": linear(32, 4096, 1024),
    "transformer/attention/t2048/bf16/flash": attention(2, 2048, 2048, True),
    "transformer/attention/d32/bf16/flash": attention(32, 1, 2048, False),
    "transformer/norm/t8192/bf16/norm": norm,
    "transformer/silu/t8192/bf16/pointwise": silu,
    "vision/3x3_256_56/b8/bf16/conv": convolution,
}
_QKV, _UP, _DOWN, _LONG, _DECODE, _NORM, _SILU, _CONV = OPS
PAIRS = [
    (_QKV, _LONG),
    (_QKV, _DECODE),
    (_UP, _DOWN),
    (_UP, _DECODE),
    (_LONG, _DECODE),
    (_LONG, _SILU),
    (_CONV, _NORM),
    (_CONV, _QKV),
    (_DOWN, _DECODE),
    (_NORM, _SILU),
]
SEQUENCES = {
    "layer+layer": [[_NORM, _QKV, _LONG, _SILU], [_NORM, _QKV, _LONG, _SILU]],
    "layer+decode": [[_NORM, _QKV, _LONG, _SILU], [_DECODE, _DOWN, _UP, _DOWN]],
}
MODELS = {"transformer_prefill": prefill, "transformer_decode": decode}
