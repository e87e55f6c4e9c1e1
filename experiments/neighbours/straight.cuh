// Kernels of straight code, for code.cu and code_beside.cu.
#pragma once
#include "beside.cuh"
#include <utility>
#include <vector>

constexpr int OTHERS = 64, OTHER_KIB = 16, THREADS = 128;

// An instruction takes 16 bytes. Constants tell the copies apart.
template <int COPY, int KIB> __global__ void straight(float* out, unsigned long long* times) {
    unsigned long long begun = now();
    float x = threadIdx.x, y = COPY;
#pragma unroll
    for (int k = 0; k < KIB * 32; k++) {
        x = fmaf(x, y, 1.0f + COPY);
        y = fmaf(y, x, 2.0f + k);
    }
    out[threadIdx.x] = x + y;
    if (threadIdx.x == 0) times[blockIdx.x] = now() - begun;
}

using Kernel = void (*)(float*, unsigned long long*);
template <int... COPY> std::vector<Kernel> copies(std::integer_sequence<int, COPY...>) {
    return {straight<COPY + 1, OTHER_KIB>...};
}
