"""Calls that SMs bind beside kernels that read DRAM or L2 only: `gpusim record traffic.py --out DIR --outcomes`."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
CALLS, CAUSES = (runpy.run_path(str(HERE / name)) for name in ("ops.py", "causes.py"))
AGAIN = """
__global__ void again(const float4* x, float* out) {
    const float4* at = x + (size_t)(blockIdx.x % 512) * blockDim.x * 16 + threadIdx.x;
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < 16; i += 4) {
        float4 v[4];
        #pragma unroll
        for (int u = 0; u < 4; ++u) v[u] = at[(i + u) * blockDim.x];
        #pragma unroll
        for (int u = 0; u < 4; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;
    }
    if (sum == 12345.f) out[0] = sum;
}
"""


def read_again() -> Callable[[], Any]:
    """Read 16 MiB sixteen times, which L2 holds."""
    run = CAUSES["kernel"](AGAIN, "again")
    x, out = torch.zeros(1 << 22, device="cuda"), torch.zeros(1, device="cuda")
    return lambda: run(grid=(8192, 1, 1), block=(128, 1, 1), args=(x, out))


BOUND = (
    "gemm/1000x1500x700/fp32",
    "gemm/3008x4096x4096/fp8",
    "gemm/2048x2048x4096/int8",
    "batched/2048x48x48x80/fp32",
    "attention/efficient/2x8x1024x80/window/fp32",
    "attention/flash/4x12x1500x96/causal/fp16",
    "triton_gemm/1800x2200x1600/fp16",
    "inductor/6000x2816/bf16",
    "lgamma/8m/fp32",
)
OPS = {name: CALLS["OPS"][name] for name in BOUND} | {"dram": CAUSES["OPS"]["read/4/all"], "l2": read_again}
PAIRS = [(name, other) for name in BOUND for other in ("dram", "l2")]
