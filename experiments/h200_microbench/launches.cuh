// What launches_under_load.cu, other_launches.cu, delayed_blocks.cu and handed_over.cu share: a check of calls, the time, a
// gate, a kernel that spins, and a CUDA graph of launches.
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

__global__ void spin(unsigned ns, unsigned long long* started = nullptr) {
    unsigned long long begun = now_ns();
    if (started) *started = begun;
    while (now_ns() - begun < ns) {}
}

template <typename Launches> cudaGraphExec_t graph(cudaStream_t stream, Launches launches) {
    cudaGraph_t captured;
    cudaGraphExec_t exec;
    DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launches();
    DO(cudaStreamEndCapture(stream, &captured));
    DO(cudaGraphInstantiate(&exec, captured, 0));
    DO(cudaGraphUpload(exec, stream));
    DO(cudaGraphDestroy(captured));
    return exec;
}
