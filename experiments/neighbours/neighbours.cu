// A kernel that reads or writes memory at a set pace until it is told to stop. All functions return an error, or null.
#include <cuda_runtime.h>

static unsigned *stop;
static unsigned long long *moved;
static float4 *memory;
static float *sink;
enum { READS, WRITES };
static const size_t MEMORY = (size_t)2 << 30;

#define DO(call)                                                                                                        \
    do {                                                                                                                \
        cudaError_t error = (call);                                                                                     \
        if (error) return cudaGetErrorString(error);                                                                    \
    } while (0)

// Each block passes through its own part of the set, 64 KiB at a time, and then sleeps.
__global__ void stream(float4 *set, size_t parts, volatile unsigned *stop, unsigned long long *moved, unsigned sleep_ns,
                       int kind, float *sink) {
    size_t each = parts / gridDim.x, at = 0;
    float4 *own = set + each * blockIdx.x;
    unsigned long long bytes = 0;
    float sum = 0;
    while (!*stop) {
        for (int round = 0; round < 4; round++) {
            float4 *next = own + at + threadIdx.x;
            if (kind == WRITES) {
                for (int k = 0; k < 4; k++) __stcg(next + k * 256, make_float4(sum, sum, sum, sum));
            } else {  // four reads in flight
                float4 value[4];
                for (int k = 0; k < 4; k++)
                    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                                 : "=f"(value[k].x), "=f"(value[k].y), "=f"(value[k].z), "=f"(value[k].w)
                                 : "l"(next + k * 256));
                for (int k = 0; k < 4; k++) sum += value[k].x + value[k].y;
            }
            at = at + 2048 > each ? 0 : at + 1024;
            bytes += 16384;
            if (sleep_ns) __nanosleep(sleep_ns);
        }
    }
    if (threadIdx.x == 0) atomicAdd(moved, bytes);
    if (sum == 1.2345f) *sink = sum;
}

extern "C" {
const char *prepare_neighbour() {
    DO(cudaMalloc(&stop, sizeof *stop));
    DO(cudaMalloc(&moved, sizeof *moved));
    DO(cudaMalloc(&memory, MEMORY));
    DO(cudaMemset(memory, 0, MEMORY));
    DO(cudaMalloc(&sink, sizeof *sink));
    DO(cudaDeviceSynchronize());
    return nullptr;
}
const char *begin(void *on, int blocks, unsigned long long bytes, unsigned sleep_ns, int kind) {
    DO(cudaMemset(stop, 0, sizeof *stop));
    DO(cudaMemset(moved, 0, sizeof *moved));
    DO(cudaDeviceSynchronize());
    stream<<<blocks, 256, 0, (cudaStream_t)on>>>(memory, bytes / sizeof(float4), stop, moved, sleep_ns, kind, sink);
    DO(cudaGetLastError());
    return nullptr;
}
const char *end(void *on, unsigned long long *bytes) {
    DO(cudaMemsetAsync(stop, 1, sizeof *stop, (cudaStream_t)on));
    DO(cudaDeviceSynchronize());
    DO(cudaMemcpy(bytes, moved, sizeof *bytes, cudaMemcpyDeviceToHost));
    return nullptr;
}
}
