"""Kernels in BF16 that transformers, convolution networks and their training run, alone and in pairs.

`record_bf16.py` recorded them on an H200. They were written down before any was measured beside another or on a part of
the SMs. Pairs and sequences follow from `SEED`.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

torch.manual_seed(3)

Call = Callable[[], Any]
Make = Callable[[], Call]


def normal(*shape: int) -> torch.Tensor:
    """Numbers of which products keep their size."""
    return (torch.randn(*shape, device="cuda") * shape[-1] ** -0.5).to(torch.bfloat16)


def of(run: Callable[..., Any], *shapes: Sequence[int]) -> Make:
    """A function of random tensors."""

    def make() -> Call:
        tensors = [normal(*shape) for shape in shapes]
        return lambda: run(*tensors)

    return make


def images(run: Callable[..., Any], *shapes: Sequence[int]) -> Make:
    """A function of images and weights with channels last."""

    def make() -> Call:
        tensors = [normal(*shape).contiguous(memory_format=torch.channels_last) for shape in shapes]
        return lambda: run(*tensors)

    return make


def attention(queries: Sequence[int], keys: Sequence[int], causal: bool = False) -> Make:
    """Attention of queries to keys."""
    return of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), queries, keys, keys)


def embedding() -> Call:
    """Rows of 16384 tokens among 50000."""
    table, tokens = normal(50_000, 1024), torch.randint(50_000, (16_384,), device="cuda")
    return lambda: F.embedding(tokens, table)


def adam() -> Call:
    """A step of Adam over 24 million weights."""
    weights = [normal(4_000_000).requires_grad_() for _ in range(6)]
    for one in weights:
        one.grad = normal(4_000_000)
    step = torch.optim.AdamW(weights, lr=1e-4, fused=True, capturable=True).step
    return lambda: step()


OPS: dict[str, Make] = {
    "gemm/3072x2304x6144": of(torch.matmul, (3072, 6144), (6144, 2304)),
    "gemm/1024x8192x1024": of(torch.matmul, (1024, 1024), (1024, 8192)),
    "gemm/640x5120x1280": of(torch.matmul, (640, 1280), (1280, 5120)),
    "gemm/24x12288x4096": of(torch.matmul, (24, 4096), (4096, 12288)),
    "gemm/96x2048x11008": of(torch.matmul, (96, 11008), (11008, 2048)),
    "bmm/64x384x384x96": of(torch.bmm, (64, 384, 96), (64, 96, 384)),
    "linear_gelu/2048x4096x1536": of(lambda x, w, b: F.gelu(F.linear(x, w, b)), (2048, 1536), (4096, 1536), (4096,)),
    "attention/4x24x1024x64": attention((4, 24, 1024, 64), (4, 24, 1024, 64)),
    "attention/2x16x2048x128/causal": attention((2, 16, 2048, 128), (2, 16, 2048, 128), True),
    "attention/16x16x1of3072x128": attention((16, 16, 1, 128), (16, 16, 3072, 128)),
    "layer_norm/6144x3072": of(lambda x, w, b: F.layer_norm(x, (3072,), w, b), (6144, 3072), (3072,), (3072,)),
    "softmax/16384x1024/gradient": of(
        lambda g, y: torch.ops.aten._softmax_backward_data(g, y, -1, torch.bfloat16), (16384, 1024), (16384, 1024)
    ),
    "softmax/24576x640": of(lambda x: torch.softmax(x, -1), (24576, 640)),
    "log_softmax/1536x32000": of(lambda x: torch.log_softmax(x, -1), (1536, 32000)),
    "glu/6144x10240": of(lambda x: F.glu(x), (6144, 10240)),
    "transpose/32x1024x16x96": of(lambda x: x.transpose(1, 2).contiguous(), (32, 1024, 16, 96)),
    "cat/8x32x2048x64": of(lambda a, b: torch.cat((a, b), 2), (8, 32, 2047, 64), (8, 32, 1, 64)),
    "sum/4096x8192/dim0": of(lambda x: x.sum(0), (4096, 8192)),
    "embedding/16384x1024": embedding,
    "adam/24m": adam,
    "conv/32x128x28/k3": images(lambda x, w: F.conv2d(x, w, padding=1), (32, 128, 28, 28), (128, 128, 3, 3)),
    "conv/16x256x56/k1/512": images(lambda x, w: F.conv2d(x, w), (16, 256, 56, 56), (512, 256, 1, 1)),
    "conv/64x3x160/k7/s2": images(lambda x, w: F.conv2d(x, w, stride=2, padding=3), (64, 3, 160, 160), (48, 3, 7, 7)),
    "depthwise/32x144x56/k5": images(
        lambda x, w: F.conv2d(x, w, padding=2, groups=144), (32, 144, 56, 56), (144, 1, 5, 5)
    ),
    "group_norm/16x256x64": of(lambda x, w, b: F.group_norm(x, 32, w, b), (16, 256, 64, 64), (256,), (256,)),
    "bilinear/16x128x48to96": images(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (16, 128, 48, 48)),
}

SEED, LENGTH = 36, 4
_shuffled = list(OPS)
random.Random(SEED).shuffle(_shuffled)
# Each op beside the next in a random order, and beside the one after that where it stands at an even place.
PAIRS = [
    (op, _shuffled[(at + step) % len(_shuffled)])
    for step in (1, 2)
    for at, op in enumerate(_shuffled)
    if step == 1 or at % 2 == 0
]
# Two streams of four ops each, in another random order.
random.Random(SEED + 1).shuffle(_shuffled)
_parts = [_shuffled[at : at + LENGTH] for at in range(0, len(_shuffled) - LENGTH + 1, LENGTH)]
SEQUENCES = {f"mixed{n}": [a, b] for n, (a, b) in enumerate(zip(_parts, _parts[1:] + _parts[:1], strict=True))}
