// What launches_under_load.cu and other_launches.cu share: a check of calls, the time, a gate, and a kernel that spins.
#pragma once
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#define DO(call)                                                                                       \
    do {                                                                                               \
        cudaError_t error = (call);                                                                    \
        if (error != cudaSuccess) {                                                                    \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));        \
            std::exit(1);                                                                              \
        }                                                                                              \
    } while (0)

__device__ unsigned long long now_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

__global__ void wait_for(volatile unsigned* flag) {
    while (!*flag) {}
}

__global__ void spin(unsigned ns) {
    unsigned long long begun = now_ns();
    while (now_ns() - begun < ns) {}
}
