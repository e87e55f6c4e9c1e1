"""PyTorch calls of kinds that no recording of this repository has: `gpusim record ops.py --out DIR --outcomes`.

Written before any of them was measured beside another or on a part of the SMs. Pairs and sequences follow from `SEED`.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

torch._inductor.config.compile_threads = 1
torch.manual_seed(1)

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
Call = Callable[[], Any]
Make = Callable[[], Call]


def normal(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Numbers of which products keep their size."""
    return (torch.randn(*shape, device="cuda") * shape[-1] ** -0.5).to(dtype)


def integers(below: int, *shape: int) -> torch.Tensor:
    """Whole numbers from 0."""
    return torch.randint(below, shape, device="cuda")


def of(run: Callable[..., Any], *shapes: Sequence[int], dtype: torch.dtype = F32) -> Make:
    """A function of random tensors."""

    def make() -> Call:
        tensors = [normal(*shape, dtype=dtype) for shape in shapes]
        return lambda: run(*tensors)

    return make


# ---- products --------------------------------------------------------------------------------------------------------


def product_tf32() -> Call:
    """Few outputs, each a long sum."""
    a, b = normal(512, 32768), normal(32768, 512)

    def run() -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        found = a @ b
        torch.backends.cuda.matmul.allow_tf32 = False
        return found

    return run


def product_fp8() -> Call:
    """Matrices of 8-bit floating-point numbers, with a factor each."""
    a, b = (normal(rows, 4096).to(torch.float8_e4m3fn) for rows in (3008, 4096))
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=BF16)


def product_int8() -> Call:
    """Matrices of 8-bit integers."""
    a, b = (torch.randint(-8, 8, (2048, 4096), dtype=torch.int8, device="cuda") for _ in range(2))
    return lambda: torch._int_mm(a, b.t())


def product_sparse() -> Call:
    """A matrix of which 1 in 500 elements is not 0, by a dense one."""
    rows, per_row = 20_000, 40
    columns = integers(rows, rows, per_row).sort(-1)[0].flatten()
    starts = torch.arange(0, rows * per_row + 1, per_row, device="cuda")
    sparse = torch.sparse_csr_tensor(starts, columns, normal(rows * per_row), (rows, rows))
    dense = normal(rows, 128)
    return lambda: sparse @ dense


def distances() -> Call:
    """Sums of absolute differences of any two rows."""
    x, y = normal(512, 64), normal(512, 64)
    return lambda: torch.cdist(x, y, p=1.0)


# ---- convolutions ----------------------------------------------------------------------------------------------------


def weight_gradient() -> Call:
    """The gradient of a convolution's weights, channels last."""
    last = torch.channels_last
    x, out = (normal(32, 64, 56, 56, dtype=BF16).contiguous(memory_format=last) for _ in range(2))
    weights = normal(64, 64, 3, 3, dtype=BF16).contiguous(memory_format=last)
    only = [False, True, False]
    return lambda: torch.ops.aten.convolution_backward(
        out, x, weights, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, only
    )


# ---- norms, losses, reductions, scans, sorts -------------------------------------------------------------------------


def layer_norm_gradient() -> Call:
    """The gradients of a layer norm."""
    width = 1536
    x, out, scale, shift = (normal(*shape, dtype=BF16) for shape in ((8192, width), (8192, width), (width,), (width,)))
    _, mean, deviation = torch.native_layer_norm(x, [width], scale, shift, 1e-5)
    return lambda: torch.ops.aten.native_layer_norm_backward(
        out, x, [width], mean, deviation, scale, shift, [True, True, True]
    )


def cross_entropy() -> Call:
    """The loss of 2048 tokens among 50257."""
    x, right = normal(2048, 50257, dtype=BF16), integers(50257, 2048)
    return lambda: F.cross_entropy(x, right)


def sort_integers() -> Call:
    """One long list of numbers."""
    x = integers(1 << 31, 3_000_000).to(torch.int32)
    return lambda: x.sort()


# ---- memory ----------------------------------------------------------------------------------------------------------


def select_columns() -> Call:
    """Half of the columns, in any order."""
    x, columns = normal(2000, 20000), integers(20000, 10000)
    return lambda: x.index_select(1, columns)


def scatter_add() -> Call:
    """Four million numbers added to any of a million."""
    sums, places, x = torch.zeros(1 << 20, device="cuda"), integers(1 << 20, 1 << 22), normal(1 << 22)
    return lambda: sums.scatter_add_(0, places, x)


def embedding_bag() -> Call:
    """Sums of 40 rows each of a table."""
    table, rows = normal(1_000_000, 96), integers(1_000_000, 8192, 40)
    return lambda: F.embedding_bag(rows, table, mode="sum")


def grid_sample() -> Call:
    """Images sampled at any places."""
    x, places = normal(8, 32, 200, 200), torch.rand(8, 200, 200, 2, device="cuda") * 2 - 1
    return lambda: F.grid_sample(x, places, align_corners=False)


# ---- recurrent networks, an optimiser --------------------------------------------------------------------------------


def lstm() -> Call:
    """Sixteen steps of an LSTM, by cuDNN."""
    layer, x = torch.nn.LSTM(512, 512, device="cuda", dtype=F16), normal(16, 64, 512, dtype=F16)
    return torch.inference_mode()(lambda: layer(x))


def gru_cell() -> Call:
    """One step of a GRU of 4096 sequences."""
    cell, x, state = torch.nn.GRUCell(768, 1024, device="cuda"), normal(4096, 768), normal(4096, 1024)
    return torch.inference_mode()(lambda: cell(x, state))


def adam() -> Call:
    """A step of Adam on 120 tensors, each operation on all of them."""
    parameters = [normal(256 + 8 * n, 64).requires_grad_() for n in range(120)]
    for parameter in parameters:
        parameter.grad = normal(*parameter.shape)
    return torch.optim.Adam(parameters, foreach=True, fused=False).step


# ---- attention -------------------------------------------------------------------------------------------------------


def attention(backend: SDPBackend, heads: Sequence[int], causal: bool, dtype: torch.dtype, window: int = 0) -> Make:
    """Attention of one implementation, perhaps within a window only."""

    def make() -> Call:
        q, k, v = (normal(*heads, dtype=dtype) for _ in range(3))
        mask = None
        if window:
            at = torch.arange(heads[-2], device="cuda")
            near = (at[:, None] - at[None, :]).abs() < window
            mask = torch.zeros(near.shape, device="cuda", dtype=dtype).masked_fill(~near, float("-inf"))

        def run() -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

        return run

    return make


def attention_gradient() -> Call:
    """The gradients of FlashAttention."""
    q, k, v, out = (normal(4, 16, 1024, 64, dtype=BF16) for _ in range(4))
    found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)
    y, sums, q_starts, k_starts, q_most, k_most, seed, offset, _ = found
    return lambda: torch.ops.aten._scaled_dot_product_flash_attention_backward(
        out, q, k, v, y, sums, q_starts, k_starts, q_most, k_most, 0.0, False, seed, offset
    )


# ---- Triton ----------------------------------------------------------------------------------------------------------


@triton.jit
def _product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of a product of matrices, and a ReLU."""
    rows, columns, inner = (
        tl.program_id(0) * M + tl.arange(0, M),
        tl.program_id(1) * N + tl.arange(0, N),
        tl.arange(0, K),
    )
    found = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        x = tl.load(a + rows[:, None] * k + (start + inner)[None, :], mask=rows[:, None] < m, other=0.0)
        y = tl.load(b + (start + inner)[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0.0)
        found = tl.dot(x, y, found)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], tl.maximum(found, 0.0).to(tl.float16), mask=inside)


def triton_product() -> Call:
    """A product of matrices in tiles of 64 by 128."""
    m, n, k = 1800, 2200, 1600
    a, b, c = normal(m, k, dtype=F16), normal(k, n, dtype=F16), torch.empty(m, n, device="cuda", dtype=F16)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 128))
    return lambda: _product[grid](a, b, c, m, n, k, 64, 128, 32, num_warps=4, num_stages=3)


@triton.jit
def _softmax(x, out, columns, stride, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The softmax of a row, which a block holds."""
    at = tl.arange(0, SIZE)
    row = tl.load(x + tl.program_id(0) * stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * stride + at, (powers / tl.sum(powers, 0)).to(tl.float16), mask=at < columns)


def triton_softmax() -> Call:
    """The softmax of 9000 rows of 3000."""
    rows, columns = 9000, 3000
    x, out = normal(rows, columns, dtype=F16), torch.empty(rows, columns, device="cuda", dtype=F16)
    return lambda: _softmax[(rows,)](x, out, columns, columns, 4096, num_warps=8)


def compiled() -> Call:
    """A gated activation and a norm, in one kernel by Inductor."""
    x, gate, scale = normal(6000, 2816, dtype=BF16), normal(6000, 2816, dtype=BF16), normal(2816, dtype=BF16)

    def run() -> torch.Tensor:
        y = F.silu(gate.float()) * x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(BF16) * scale

    return torch.compile(run)


# ---- what is recorded ------------------------------------------------------------------------------------------------

OPS: dict[str, Make] = {
    "gemm/1000x1500x700/fp32": of(torch.mm, (1000, 700), (700, 1500)),
    "gemm/512x512x32768/tf32": product_tf32,
    "gemm/3008x4096x4096/fp8": product_fp8,
    "gemm/2048x2048x4096/int8": product_int8,
    "gemm/1024x1024x2048/fp64": of(torch.mm, (1024, 2048), (2048, 1024), dtype=F64),
    "batched/2048x48x48x80/fp32": of(torch.bmm, (2048, 48, 80), (2048, 80, 48)),
    "gemv/16384x6000/fp32": of(torch.mv, (16384, 6000), (6000,)),
    "spmm/20000x20000x128/fp32": product_sparse,
    "cdist/512x512x64/fp32": distances,
    "conv1d/8x256x8192/k9/bf16": of(lambda x, w: F.conv1d(x, w, padding=4), (8, 256, 8192), (256, 256, 9), dtype=BF16),
    "conv3d/2x32x16x64/k3/fp16": of(
        lambda x, w: F.conv3d(x, w, padding=1), (2, 32, 16, 64, 64), (64, 32, 3, 3, 3), dtype=F16
    ),
    "deconv2d/16x128x32/k4/tf32": of(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), (16, 128, 32, 32), (128, 64, 4, 4)
    ),
    "depthwise/32x96x56/k7/fp32": of(
        lambda x, w: F.conv2d(x, w, padding=3, groups=96), (32, 96, 56, 56), (96, 1, 7, 7)
    ),
    "wgrad/32x64x56/k3/bf16": weight_gradient,
    "group_norm/16x320x64/fp16": of(
        lambda x, a, b: F.group_norm(x, 32, a, b), (16, 320, 64, 64), (320,), (320,), dtype=F16
    ),
    "layer_norm/6007x3001/fp32": of(lambda x, a, b: F.layer_norm(x, (3001,), a, b), (6007, 3001), (3001,), (3001,)),
    "layer_norm_grad/8192x1536/bf16": layer_norm_gradient,
    "softmax/48x131072/fp32": of(lambda x: F.softmax(x, -1), (48, 131072)),
    "cross_entropy/2048x50257/bf16": cross_entropy,
    "sum/20000x3000/dim0/fp32": of(lambda x: x.sum(0), (20000, 3000)),
    "var/64x300x2000/dim1/fp32": of(lambda x: torch.var_mean(x, 1), (64, 300, 2000)),
    "cumsum/2000x5000/dim0/fp32": of(lambda x: x.cumsum(0), (2000, 5000)),
    "sort/3m/int32": sort_integers,
    "topk/100x60000/k100/fp32": of(lambda x: x.topk(100), (100, 60000)),
    "index_select/2000x20000/dim1/fp32": select_columns,
    "scatter_add/4m/fp32": scatter_add,
    "embedding_bag/8192x40x96/fp32": embedding_bag,
    "permute/64x100x70x48/fp16": of(lambda x: x.permute(3, 1, 0, 2).contiguous(), (64, 100, 70, 48), dtype=F16),
    "dropout/20m/fp16": of(lambda x: F.dropout(x, 0.1), (5000, 4000), dtype=F16),
    "bilinear/8x64x128to300/fp32": of(lambda x: F.interpolate(x, size=(300, 300), mode="bilinear"), (8, 64, 128, 128)),
    "grid_sample/8x32x200/fp32": grid_sample,
    "max_pool3d/4x32x32x64/fp32": of(lambda x: F.max_pool3d(x, 3, 2, 1), (4, 32, 32, 64, 64)),
    "fft/4000x3000/c64": of(torch.fft.fft, (4000, 3000), dtype=torch.complex64),
    "fft2/8x1024x1024/c64": of(torch.fft.fft2, (8, 1024, 1024), dtype=torch.complex64),
    "lgamma/8m/fp32": of(torch.lgamma, (2000, 4000)),
    "exp/4m/fp64": of(torch.exp, (1000, 4000), dtype=F64),
    "lstm/16x64x512/fp16": lstm,
    "gru_cell/4096x1024/fp32": gru_cell,
    "adam/120/fp32": adam,
    "attention/cudnn/4x16x2048x128/causal/bf16": attention(SDPBackend.CUDNN_ATTENTION, (4, 16, 2048, 128), True, BF16),
    "attention/flash/4x12x1500x96/causal/fp16": attention(SDPBackend.FLASH_ATTENTION, (4, 12, 1500, 96), True, F16),
    "attention/efficient/2x8x1024x80/window/fp32": attention(
        SDPBackend.EFFICIENT_ATTENTION, (2, 8, 1024, 80), False, F32, window=128
    ),
    "attention_grad/flash/4x16x1024x64/bf16": attention_gradient,
    "triton_gemm/1800x2200x1600/fp16": triton_product,
    "triton_softmax/9000x3000/fp16": triton_softmax,
    "inductor/6000x2816/bf16": compiled,
}

SEED, LENGTH = 27, 4
_shuffled = list(OPS)
random.Random(SEED).shuffle(_shuffled)
# Each op beside the next one of a random order, and every eighth beside itself.
PAIRS = [*zip(_shuffled, _shuffled[1:] + _shuffled[:1], strict=True), *((op, op) for op in _shuffled[::8])]
# Two streams of four ops each, in another random order.
random.Random(SEED + 1).shuffle(_shuffled)
_parts = [_shuffled[at : at + LENGTH] for at in range(0, len(_shuffled) - LENGTH + 1, LENGTH)]
SEQUENCES = {f"mixed{n}": [a, b] for n, (a, b) in enumerate(zip(_parts, _parts[1:] + _parts[:1], strict=True))}
