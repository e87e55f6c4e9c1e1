// A kernel that reads or writes memory at a set pace, evenly or in bursts, until it is told to stop. All functions return
// an error, or null.
#include <cuda_runtime.h>

static unsigned *stop;
static unsigned long long *moved;
static float4 *memory;
static float *sink;
enum { READS, WRITES, EVICTED };  // EVICTED: reads that L2 evicts before other data
static const size_t MEMORY = (size_t)2 << 30;

#define DO(call)                                                                                                        \
    do {                                                                                                                \
        cudaError_t error = (call);                                                                                     \
        if (error) return cudaGetErrorString(error);                                                                    \
    } while (0)

// Each warp passes through its own part of the set. In a turn it reads 512 bytes and sleeps for a random time, so that
// reads come evenly; in bursts it reads four times as much, and all warps sleep as long.
__global__ void stream(float4 *set, size_t parts, volatile unsigned *stop, unsigned long long *moved, unsigned sleep_ns,
                       int kind, int bursts, float *sink) {
    const unsigned lanes = 32, warps = blockDim.x / lanes, lane = threadIdx.x % lanes, reads = bursts ? 4 : 1;
    const unsigned warp = blockIdx.x * warps + threadIdx.x / lanes;
    size_t each = parts / (gridDim.x * warps), at = 0;
    float4 *own = set + each * warp + lane;
    unsigned long long bytes = 0;
    unsigned seed = warp * 2654435761u;
    float sum = 0;
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    for (unsigned turn = 1; turn % 16 || !*stop; turn++) {
        if (kind == WRITES) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k < reads) __stcg(own + at + k * lanes, make_float4(sum, sum, sum, sum));
        } else {
            float4 value[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (k >= reads) break;
                const float4 *from = own + at + k * lanes;
                if (kind == READS)
                    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                                 : "=f"(value[k].x), "=f"(value[k].y), "=f"(value[k].z), "=f"(value[k].w)
                                 : "l"(from));
                else
                    asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                                 : "=f"(value[k].x), "=f"(value[k].y), "=f"(value[k].z), "=f"(value[k].w)
                                 : "l"(from), "l"(policy));
            }
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (k < reads) sum += value[k].x + value[k].y;
        }
        at += reads * lanes;
        if (at + 4 * lanes > each) at = 0;
        bytes += reads * 512;
        seed = seed * 1664525u + 1013904223u;
        if (sleep_ns) __nanosleep(bursts ? sleep_ns : (unsigned)((unsigned long long)seed * 2 * sleep_ns >> 32));
    }
    if (lane == 0) atomicAdd(moved, bytes);
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
const char *begin(void *on, int blocks, unsigned long long bytes, unsigned sleep_ns, int kind, int bursts) {
    DO(cudaMemset(stop, 0, sizeof *stop));
    DO(cudaMemset(moved, 0, sizeof *moved));
    DO(cudaDeviceSynchronize());
    stream<<<blocks, 256, 0, (cudaStream_t)on>>>(memory, bytes / sizeof(float4), stop, moved, sleep_ns, kind, bursts,
                                             sink);
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
