"""Kernels that load memory in one way each, to tell why the model misses others: `gpusim record causes.py --out DIR`.

Reads of DRAM with a number of loads under way per thread and with all or some warps, atomics, and reads of columns.
"""

from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], Any]
FLOATS = 1 << 26  # that are read: five times what L2 of an H100 holds
LOADS = 16  # of a thread, 16 bytes each
SOME_WARPS_BYTES = 45 * 1024  # of shared memory, so that five blocks fit on an SM
ATOMICS, SUMS = 1 << 22, 1 << 20

READ = """
__global__ void read(const float4* x, float* out) {
    const float4* at = x + (size_t)blockIdx.x * blockDim.x * LOADS + threadIdx.x;
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < LOADS; i += UNDER_WAY) {
        float4 v[UNDER_WAY];
        #pragma unroll
        for (int u = 0; u < UNDER_WAY; ++u) v[u] = at[(i + u) * blockDim.x];
        #pragma unroll
        for (int u = 0; u < UNDER_WAY; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;
    }
    if (sum == 12345.f) out[0] = sum;
}
"""
ADD = """
__global__ void add(const int* places, const float* x, float* sums) {
    float got = 0;
    #pragma unroll
    for (int u = 0; u < 4; ++u) {
        int i = (blockIdx.x * 4 + u) * blockDim.x + threadIdx.x;
        GOT atomicAdd(sums + places[i], x[i]);
    }
    if (got == 12345.f) sums[0] = got;
}
"""
COLUMNS = """
__global__ void columns(const float2* x, float* out) {
    const float2* at = x + ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 16;
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < 16; i += 4) {
        float2 v[4];
        #pragma unroll
        for (int u = 0; u < 4; ++u) v[u] = at[i + u];
        #pragma unroll
        for (int u = 0; u < 4; ++u) sum += v[u].x + v[u].y;
    }
    if (sum == 12345.f) out[0] = sum;
}
"""


def kernel(source: str, name: str, **words: object) -> Any:
    """A kernel of some source, words in it replaced."""
    for word, value in words.items():
        source = source.replace(word, str(value))
    return torch.cuda._compile_kernel(source, name)


def read(under_way: int, shared_bytes: int) -> Callable[[], Call]:
    """Read from DRAM."""

    def make() -> Call:
        run = kernel(READ, "read", UNDER_WAY=under_way, LOADS=LOADS)
        x, out = torch.zeros(FLOATS, device="cuda"), torch.zeros(1, device="cuda")
        grid = (FLOATS // 4 // 128 // LOADS, 1, 1)
        return lambda: run(grid=grid, block=(128, 1, 1), args=(x, out), shared_mem=shared_bytes)

    return make


def add(anywhere: bool, with_result: bool) -> Callable[[], Call]:
    """Add numbers to sums that L2 holds."""

    def make() -> Call:
        run = kernel(ADD, "add", GOT="got +=" if with_result else "")
        places = torch.randint(SUMS, (ATOMICS,), device="cuda", dtype=torch.int32)
        if not anywhere:
            places = torch.arange(ATOMICS, device="cuda", dtype=torch.int32) % SUMS
        x, sums = torch.zeros(ATOMICS, device="cuda"), torch.zeros(SUMS, device="cuda")
        return lambda: run(grid=(ATOMICS // 1024, 1, 1), block=(256, 1, 1), args=(places, x, sums))

    return make


def columns() -> Call:
    """Read lines of 128 bytes, each by one thread."""
    run, x, out = kernel(COLUMNS, "columns"), torch.zeros(FLOATS, device="cuda"), torch.zeros(1, device="cuda")
    return lambda: run(grid=(FLOATS // 2 // 16 // 256, 1, 1), block=(256, 1, 1), args=(x, out))


OPS = {
    **{
        f"read/{under_way}/{warps}": read(under_way, shared_bytes)
        for warps, shared_bytes in (("all", 0), ("some", SOME_WARPS_BYTES))
        for under_way in (1, 2, 4, 8)
    },
    "add/anywhere": add(True, False),
    "add/in_order": add(False, False),
    "add/anywhere/result": add(True, True),
    "add/in_order/result": add(False, True),
    "columns": columns,
}
PAIRS: list[tuple[str, str]] = []
