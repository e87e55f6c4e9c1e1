// A kernel that spins, and one that reads memory at a set pace beside others, for code_beside.cu, constants.cu and
// ../unseen_kernels/reads_beside.cu.
#pragma once
#include <cstdio>
#include <cuda_runtime.h>

#define DO(call)                                                                       \
    do {                                                                               \
        cudaError_t error = (call);                                                    \
        if (error) return std::fprintf(stderr, "%s\n", cudaGetErrorString(error)), 1;  \
    } while (0)

constexpr int ALONE_ON_SM = 160 * 1024;  // bytes of shared memory, so that an SM holds one block of any kernel

__device__ unsigned long long now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

__global__ void spin(unsigned ns) {
    unsigned long long begun = now();
    while (now() - begun < ns) {}
}

// Each block passes through its own part of the set until it is told to stop, 32 KiB at a time, and then sleeps.
__global__ void neighbour(const float4* data, size_t count, volatile unsigned* stop, unsigned long long* moved,
                          unsigned sleep_ns, float* out) {
    size_t each = count / gridDim.x, at = 0;
    const float4* own = data + each * blockIdx.x;
    unsigned long long bytes = 0;
    float sum = 0;
    while (!*stop) {
        float4 value[4];
        for (int k = 0; k < 4; k++) value[k] = __ldcg(own + at + threadIdx.x + k * 512);
        for (int k = 0; k < 4; k++) sum += value[k].x + value[k].y;
        at = at + 4096 > each ? 0 : at + 2048;
        bytes += 32768;
        if (sleep_ns) __nanosleep(sleep_ns);
    }
    if (threadIdx.x == 0) atomicAdd(moved, bytes);
    if (sum == 1.2345f) *out = sum;
}
