// Microbenchmarks behind the constants and the scheduling rules of gpusim's model.
//
// Usage: microbench OUT_DIR          (built and called by microbench.py, which also reads what this writes)
//
// Writes into OUT_DIR
//   device.csv     name,value                               what the driver says of the device
//   scalars.csv    experiment,case,rep,quantity,value       numbers that need no block log
//   launches.csv   one row a launch: what was launched, and where its blocks lie in blocks.bin and progress.bin
//   blocks.bin     one BlockLog a block: start and end by %globaltimer (ns) and clock64, SM, block index
//   progress.bin   uint32 [blocks][warps][SEGMENTS]: SM clocks from the block's start to each eighth of a warp's work
//
// Nothing here interprets: microbench.py does. Work queued behind a gate (a flag in host memory that the streams wait
// on), so host latency is in no number. Exit status 3: no usable GPU.
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device.cuh"

using std::string;
using std::vector;

#define CK(x)                                                                             \
    do {                                                                                  \
        cudaError_t e_ = (x);                                                             \
        if (e_ != cudaSuccess) {                                                          \
            fprintf(stderr, "%s at line %d: %s\n", #x, __LINE__, cudaGetErrorString(e_)); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
// Driver functions are looked up at run time: no -lcuda, whose stub not every toolkit installs.
template <class F>
static F driver_entry(const char* name) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CK(cudaGetDriverEntryPointByVersion(name, &entry, CUDA_VERSION, cudaEnableDefault, &found));
    if (!entry) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    return (F)entry;
}
#define CU(f, ...)                                                                      \
    do {                                                                                \
        CUresult e_ = driver_entry<decltype(&f)>(#f)(__VA_ARGS__);                      \
        if (e_ != CUDA_SUCCESS) {                                                       \
            fprintf(stderr, "%s at line %d: driver error %d\n", #f, __LINE__, (int)e_); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

// ---------------------------------------------------------------- device side: the block log

constexpr int SEGMENTS = 8;   // progress stamps a warp leaves over its life
constexpr int SEQUENCE = 12;  // kernels that follow one another in the gap experiments

struct BlockLog {
    u64 start_ns, end_ns, start_clock, end_clock;
    u32 smid, block;
};

struct Args {
    BlockLog* log;     // one entry a block, or null
    u64* progress;     // [blocks][warps][SEGMENTS] SM clocks, or null
    long long work;    // work kernels: loop turns a segment; spin: shortest life in SM clocks
    long long jitter;  // spin: lives are work + hash(block) % jitter
    u32 seed;
    const float* a;
    const float* b;
    float* out;
    int out_words;     // spin: floats that every block writes to out at its end
    const u32* table;  // spin: if set, life of the n-th block to arrive on an SM is table[smid * 8 + n]
    u32* arrivals;     // spin: one counter an SM, for table
    float x, y;
    int footprint;  // l1: bytes that the blocks of an SM read again and again
    u32* scheduler_warps;  // scheduler: [SM][4][2] warps of each scheduler now, and the most so far
};

__device__ __forceinline__ u32 warpid() {
    u32 r;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(r));
    return r;
}

struct Stamp {
    u64 ns, clock;
};

__device__ __forceinline__ Stamp stamp() { return {globaltimer(), (u64)clock64()}; }

__device__ __forceinline__ void checkpoint(const Args& a, int segment) {
    if (a.progress && (threadIdx.x & 31) == 0) {
        const int warps = blockDim.x / 32;
        a.progress[((u64)blockIdx.x * warps + threadIdx.x / 32) * SEGMENTS + segment] = clock64();
    }
}

__device__ __forceinline__ void finish(const Args& a, Stamp begin) {
    __syncthreads();
    if (a.log && threadIdx.x == 0) {
        Stamp end = stamp();
        a.log[blockIdx.x] = {begin.ns, end.ns, begin.clock, end.clock, smid(), blockIdx.x};
    }
}

// ---------------------------------------------------------------- device side: kernels with fixed work

// Independent chains of FMAs: ILP chains a thread, STEP FMAs a turn. Two source registers each, so that no register
// bank conflict hides in the rate.
template <int ILP, int STEP, bool BARRIER>
__device__ __forceinline__ void fma_chains(const Args& a) {
    float v[ILP];
#pragma unroll
    for (int j = 0; j < ILP; j++) v[j] = threadIdx.x + j;
    const int turns = (int)a.work;
    for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll 1
        for (int i = 0; i < turns; i++) {
#pragma unroll
            for (int u = 0; u < STEP / ILP; u++) {
#pragma unroll
                for (int j = 0; j < ILP; j++) v[j] = fmaf(v[j], a.x, a.x);
            }
            if (BARRIER) __syncthreads();
        }
        checkpoint(a, s);
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < ILP; j++) sum += v[j];
    if (sum == 1.2345f) a.out[0] = sum;
}

template <int ILP>
__global__ void fma_kernel(Args a) {
    Stamp begin = stamp();
    fma_chains<ILP, 64, false>(a);
    finish(a, begin);
}

// A warp of this, alone on its scheduler, keeps it nearly busy. Counts the warps that each scheduler has at once, if warp
// %warpid is on scheduler %warpid modulo 4.
template <bool BARRIER>
__global__ void scheduler_kernel(Args a) {
    Stamp begin = stamp();
    u32* warps = a.scheduler_warps + (smid() * 4 + warpid() % 4) * 2;
    const bool first_lane = (threadIdx.x & 31) == 0;
    if (first_lane) atomicMax(warps + 1, atomicAdd(warps, 1) + 1);
    fma_chains<8, 512, BARRIER>(a);
    finish(a, begin);
    if (first_lane) atomicSub(warps, 1);
}

// 16-byte shared-memory loads without bank conflicts: eight independent loads a turn, each added up.
__global__ void smem_kernel(Args a) {
    Stamp begin = stamp();
    extern __shared__ float4 buffer[];
    buffer[threadIdx.x] = make_float4(a.x, a.y, a.x, a.y);
    __syncthreads();
    u32 address = (u32)__cvta_generic_to_shared(buffer + threadIdx.x);
    float sum = 0;
    const int turns = (int)a.work;
    for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll 1
        for (int i = 0; i < turns; i++) {
            float4 v[8];
#pragma unroll
            for (int j = 0; j < 8; j++)
                asm volatile("ld.volatile.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                             : "=f"(v[j].x), "=f"(v[j].y), "=f"(v[j].z), "=f"(v[j].w)
                             : "r"(address));
#pragma unroll
            for (int j = 0; j < 8; j++) sum += v[j].x + v[j].y + v[j].z + v[j].w;
        }
        checkpoint(a, s);
    }
    if (sum == 1.2345f) a.out[0] = sum;
    finish(a, begin);
}

constexpr u32 CHASE_WORDS = 4u << 20;  // 16 MiB of floats, all zero: inside L2

// Dependent loads that hit L2 (one 128-byte line a warp), 32 FMAs in two chains between them.
__global__ void l2_kernel(Args a) {
    Stamp begin = stamp();
    const u32 lane = threadIdx.x & 31;
    u32 at = hash(blockIdx.x * 64 + threadIdx.x / 32 + a.seed);
    float v0 = lane, v1 = lane + 1;
    const int turns = (int)a.work;
    for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll 1
        for (int i = 0; i < turns; i++) {
            float loaded = __ldcg(a.a + ((at & (CHASE_WORDS - 1) & ~31u) | lane));
            at = at * 1664525u + 1013904223u + (u32)loaded;
            v0 += loaded;
#pragma unroll
            for (int u = 0; u < 16; u++) {
                v0 = fmaf(v0, a.x, a.y);
                v1 = fmaf(v1, a.x, a.y);
            }
        }
        checkpoint(a, s);
    }
    if (v0 + v1 == 1.2345f) a.out[0] = v0;
    finish(a, begin);
}

constexpr int PANEL = 4096, DEPTH = 1152;  // the operands: DEPTH x PANEL floats each, 18 MiB, inside L2

// One output tile of a matrix product as cuDNN's implicit GEMMs compute it: global loads one step ahead into registers,
// double-buffered shared memory, a barrier a step, outer products from shared memory.
template <int BM, int BN, int BK, int TM, int TN, int MIN_BLOCKS>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), MIN_BLOCKS) gemm_kernel(Args a) {
    Stamp begin = stamp();
    constexpr int T = (BM / TM) * (BN / TN), LA = BM * BK / 4 / T, LB = BN * BK / 4 / T;
    extern __shared__ float4 buffer[];
    float* as = (float*)buffer;
    float* bs = as + 2 * BK * BM;
    const int m0 = blockIdx.x % (PANEL / BM) * BM, n0 = blockIdx.x / (PANEL / BM) % (PANEL / BN) * BN;
    const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    float acc[TM][TN] = {};
    float4 ra[LA], rb[LB];
    auto load = [&](int k) {
#pragma unroll
        for (int i = 0; i < LA; i++) {
            int e = threadIdx.x + i * T;
            ra[i] = *(const float4*)(a.a + (size_t)(k + e / (BM / 4)) * PANEL + m0 + e % (BM / 4) * 4);
        }
#pragma unroll
        for (int i = 0; i < LB; i++) {
            int e = threadIdx.x + i * T;
            rb[i] = *(const float4*)(a.b + (size_t)(k + e / (BN / 4)) * PANEL + n0 + e % (BN / 4) * 4);
        }
    };
    auto store = [&](int half) {
#pragma unroll
        for (int i = 0; i < LA; i++) ((float4*)(as + half * BK * BM))[threadIdx.x + i * T] = ra[i];
#pragma unroll
        for (int i = 0; i < LB; i++) ((float4*)(bs + half * BK * BN))[threadIdx.x + i * T] = rb[i];
    };
    load(0);
    store(0);
    __syncthreads();
    int k = 0, half = 0;
    const int turns = (int)a.work;
    for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll 1
        for (int step = 0; step < turns; step++) {
            k = k + BK < DEPTH ? k + BK : 0;
            load(k);
            const float *at = as + half * BK * BM + ty * 4, *bt = bs + half * BK * BN + tx * 4;
#pragma unroll
            for (int kk = 0; kk < BK; kk++) {
                float fa[TM], fb[TN];
#pragma unroll
                for (int c = 0; c < TM / 4; c++)
                    *(float4*)(fa + 4 * c) = *(const float4*)(at + kk * BM + c * (BM * 4 / TM));
#pragma unroll
                for (int c = 0; c < TN / 4; c++)
                    *(float4*)(fb + 4 * c) = *(const float4*)(bt + kk * BN + c * (BN * 4 / TN));
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) acc[i][j] = fmaf(fa[i], fb[j], acc[i][j]);
            }
            half ^= 1;
            store(half);
            __syncthreads();
        }
        checkpoint(a, s);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) sum += acc[i][j];
    if (sum == 1.2345f) a.out[0] = sum;
    finish(a, begin);
}

__device__ __forceinline__ void copy16(float* to, const float* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}

// The same as newer libraries do it: STAGES asynchronous copies deep, the first fragments of a step loaded before the
// last products of the one before, so that a lone warp a scheduler nearly fills the FMA pipe.
template <int BM, int BN, int BK, int TM, int TN, int STAGES, int MIN_BLOCKS>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), MIN_BLOCKS) gemm_async_kernel(Args a) {
    Stamp begin = stamp();
    constexpr int T = (BM / TM) * (BN / TN), LA = BM * BK / 4 / T, LB = BN * BK / 4 / T;
    extern __shared__ float4 buffer[];
    float* as = (float*)buffer;
    float* bs = as + STAGES * BK * BM;
    const int m0 = blockIdx.x % (PANEL / BM) * BM, n0 = blockIdx.x / (PANEL / BM) % (PANEL / BN) * BN;
    const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    float acc[TM][TN] = {};
    float fa[2][TM], fb[2][TN];
    int k = 0;
    auto fetch = [&](int stage) {
#pragma unroll
        for (int i = 0; i < LA; i++) {
            int e = threadIdx.x + i * T;
            copy16(as + stage * BK * BM + e * 4, a.a + (size_t)(k + e / (BM / 4)) * PANEL + m0 + e % (BM / 4) * 4);
        }
#pragma unroll
        for (int i = 0; i < LB; i++) {
            int e = threadIdx.x + i * T;
            copy16(bs + stage * BK * BN + e * 4, a.b + (size_t)(k + e / (BN / 4)) * PANEL + n0 + e % (BN / 4) * 4);
        }
        asm volatile("cp.async.commit_group;");
        k = k + BK < DEPTH ? k + BK : 0;
    };
    auto fragment = [&](int stage, int kk, int to) {
        const float *at = as + stage * BK * BM + kk * BM + ty * 4, *bt = bs + stage * BK * BN + kk * BN + tx * 4;
#pragma unroll
        for (int c = 0; c < TM / 4; c++) *(float4*)(fa[to] + 4 * c) = *(const float4*)(at + c * (BM * 4 / TM));
#pragma unroll
        for (int c = 0; c < TN / 4; c++) *(float4*)(fb[to] + 4 * c) = *(const float4*)(bt + c * (BN * 4 / TN));
    };
    for (int stage = 0; stage < STAGES - 1; stage++) fetch(stage);
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads();
    int stage = 0;
    fragment(0, 0, 0);
    const int turns = (int)a.work;
    for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll 1
        for (int step = 0; step < turns; step++) {
            const int next = stage + 1 == STAGES ? 0 : stage + 1;
            fetch(stage == 0 ? STAGES - 1 : stage - 1);
#pragma unroll
            for (int kk = 0; kk < BK; kk++) {
                if (kk + 1 < BK) {
                    fragment(stage, kk + 1, (kk + 1) & 1);
                } else {
                    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
                    __syncthreads();
                    fragment(next, 0, 0);
                }
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) acc[i][j] = fmaf(fa[kk & 1][i], fb[kk & 1][j], acc[i][j]);
            }
            stage = next;
        }
        checkpoint(a, s);
    }
    asm volatile("cp.async.wait_all;");
    float sum = 0;
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) sum += acc[i][j];
    if (sum == 1.2345f) a.out[0] = sum;
    finish(a, begin);
}

// Holds its place for a time that it is told; one thread polls the SM's clock, the others wait at a barrier.
// Two instances, because function attributes (the shared-memory carve-out) belong to a function.
template <int INSTANCE>
__global__ void spin_kernel(Args a) {
    Stamp begin = stamp();
    if (threadIdx.x == 0) {
        u64 life = a.work;
        if (a.jitter > 0) life += hash(blockIdx.x + a.seed * 7919u) % (u64)a.jitter;
        if (a.table) {
            u32 n = atomicAdd(a.arrivals + smid(), 1u);
            life = a.table[smid() * 8 + (n < 7 ? n : 7)];
        }
        while ((u64)clock64() - begin.clock < life) {
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < a.out_words; i += blockDim.x) a.out[(size_t)blockIdx.x * a.out_words + i] = a.x;
    finish(a, begin);
}

// As spin_kernel, with LIVE registers held for life.
template <int LIVE, int THREADS>
__global__ void __launch_bounds__(THREADS) hold_kernel(Args a) {
    Stamp begin = stamp();
    u32 v[LIVE];
#pragma unroll
    for (int i = 0; i < LIVE; i++)
        v[i] = ((const volatile u32*)a.a)[(blockIdx.x * THREADS + threadIdx.x + i * 32768) & (CHASE_WORDS - 1)];
    if (threadIdx.x == 0) {
        u64 life = a.work;
        if (a.jitter > 0) life += hash(blockIdx.x + a.seed * 7919u) % (u64)a.jitter;
        while ((u64)clock64() - begin.clock < life) {
        }
    }
    __syncthreads();
    u32 sum = (u32)clock64();  // known only now, so that every v lives until here
#pragma unroll
    for (int i = 0; i < LIVE; i++) sum = (sum ^ v[i]) * 3;
    if (sum == 12345 && a.out_words == -1) a.out[0] = sum;
    finish(a, begin);
}

// Products of matrices on tensor cores for as many SM clocks as it is told.
template <class In, class Stored, class Out, int M, int N, int K>
__global__ void tensor_kernel(Args a) {
    using namespace nvcuda;
    Stamp begin = stamp();
    wmma::fragment<wmma::matrix_a, M, N, K, In, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, M, N, K, In, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, M, N, K, Out> sums[4];
    wmma::fill_fragment(x, (Stored)a.x);
    wmma::fill_fragment(y, (Stored)a.y);
    for (auto& sum : sums) wmma::fill_fragment(sum, (Out)0);
    while ((long long)((u64)clock64() - begin.clock) < a.work)
        for (int i = 0; i < 16; i++)
#pragma unroll
            for (auto& sum : sums) wmma::mma_sync(sum, x, y, sum);
    for (auto& sum : sums)
        if (sum.x[0] == (Out)77) a.out[0] = 1;
    finish(a, begin);
}

constexpr int FOOTPRINT_ROOM = 120 << 10;  // bytes between the footprints of two SMs

// Reads its SM's footprint through L1 over and over, 16 bytes a thread, four loads in flight.
__global__ void __launch_bounds__(256) l1_kernel(Args a) {
    Stamp begin = stamp();
    const float4* from = (const float4*)((const char*)a.a + (size_t)smid() * FOOTPRINT_ROOM) + threadIdx.x;
    const int steps = a.footprint / 16 / blockDim.x, turns = (int)a.work;
    float sum = 0;
    for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll 1
        for (int i = 0; i < turns; i++) {
#pragma unroll 1
            for (int step = 0; step < steps; step += 4) {
                float4 v[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    asm volatile("ld.global.ca.v4.f32 {%0,%1,%2,%3}, [%4];"
                                 : "=f"(v[j].x), "=f"(v[j].y), "=f"(v[j].z), "=f"(v[j].w)
                                 : "l"(from + (step + j) * blockDim.x));
#pragma unroll
                for (int j = 0; j < 4; j++) sum += v[j].x + v[j].y + v[j].z + v[j].w;
            }
        }
        checkpoint(a, s);
    }
    if (sum == 1.2345f) a.out[0] = sum;
    finish(a, begin);
}

__global__ void empty_kernel(Args a) {
    if (a.work == -1) a.out[threadIdx.x] = 0;
}

// ---------------------------------------------------------------- device side: memory

enum Role { IDLE = 0, STREAM = 1, STREAM2 = 2, CHASE = 3 };

struct MemoryArgs {
    const int* role;    // of each SM
    int warps, warps2;  // warps of a block that stream, of SMs with role STREAM and STREAM2
    float4* a;          // streamed buffer: its bytes are a power of two
    float4* b;          // destination of a copy, same size
    u64 bytes, at;      // streaming starts at byte at, and wraps
    const u32* ring;    // pointer chase: ring[i * stride] is the next i
    u32 ring_entries, ring_stride;
    u64 clocks;    // how long to go on
    u64 turns;     // if not 0, stop after this many turns of a warp instead
    u32 hot_bytes, tile_bytes;  // SHARED: bytes that all SMs read; bytes of each SM's own, which take turns (0: none)
    int stagger;                // SHARED: SMs begin at different places of the hot bytes
    u32* arrived;  // blocks that have started
    u64* moved;    // [SM] bytes moved, or loads done when chasing
};

constexpr int CHUNK = 2048;  // bytes that a warp moves a turn: four 16-byte accesses a thread

// RED and ATOM add to 32-bit floats: a warp to 128 bytes an instruction, all addresses distinct.
enum Mode { READ = 0, WRITE = 1, COPY = 2, RED = 3, ATOM = 4, SHARED = 5 };

// Streams or chases for a fixed time on the SMs it is told to; every block of the grid must be resident at once.
template <int MODE>
__global__ void __launch_bounds__(1024, 2) memory_kernel(MemoryArgs m) {
    const u32 sm = smid();
    const int role = m.role[sm], warp = threadIdx.x / 32, lane = threadIdx.x & 31, warps = blockDim.x / 32;
    if (threadIdx.x == 0) {
        atomicAdd(m.arrived, 1u);
        while (*(volatile u32*)m.arrived < gridDim.x) __nanosleep(100);
    }
    __syncthreads();
    if (role == IDLE) return;
    const u64 begin = clock64();
    u64 turns = 0;
    if (role == CHASE) {
        if (threadIdx.x) return;
        u32 at = hash(sm + (u32)(m.at >> 20)) % m.ring_entries;
        do {
            for (int i = 0; i < 16; i++) at = __ldcg(m.ring + (u64)at * m.ring_stride);
            turns += 16;
        } while ((u64)clock64() - begin < m.clocks || at == 0xffffffffu);
        m.moved[sm] = turns;
        return;
    }
    if (warp >= (role == STREAM ? m.warps : m.warps2)) return;
    const u64 mask = m.bytes - 1, step = (u64)gridDim.x * warps * CHUNK;
    u64 at = m.at + ((u64)blockIdx.x * warps + warp) * CHUNK;
    float sum = 0;
    float4 v[4] = {make_float4(1, 2, 3, 4), make_float4(1, 2, 3, 4), make_float4(1, 2, 3, 4), make_float4(1, 2, 3, 4)};
    do {
        u64 index = (at & mask) / 16 + lane;
        if (MODE == SHARED) {
            const bool own = m.tile_bytes && (turns & 1);
            const u64 walk = ((m.tile_bytes ? turns / 2 : turns) * warps + warp) * CHUNK;
            const u64 shift = m.stagger ? (u64)hash(blockIdx.x) * CHUNK : 0;
            index = (own ? m.hot_bytes + (u64)blockIdx.x * m.tile_bytes + (walk & (m.tile_bytes - 1))
                         : (walk + shift) & (m.hot_bytes - 1)) / 16 + lane;
        }
        if (MODE == RED || MODE == ATOM) {
            float* to = (float*)(m.a + index - lane) + lane;
#pragma unroll
            for (int i = 0; i < CHUNK / 128; i++) {
                if (MODE == RED)
                    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to + 32 * i), "f"(v[0].x) : "memory");
                else
                    sum += atomicAdd(to + 32 * i, v[0].x);
            }
        } else if (MODE != WRITE) {
#pragma unroll
            for (int i = 0; i < 4; i++) v[i] = __ldcg(m.a + index + 32 * i);
        }
        if (MODE == READ || MODE == SHARED) {
#pragma unroll
            for (int i = 0; i < 4; i++) sum += v[i].x + v[i].y + v[i].z + v[i].w;
        } else if (MODE == WRITE || MODE == COPY) {
            float4* to = MODE == WRITE ? m.a : m.b;
#pragma unroll
            for (int i = 0; i < 4; i++) __stcg(to + index + 32 * i, v[i]);
        }
        at += step;
        turns++;
    } while (m.turns ? turns < m.turns : (u64)clock64() - begin < m.clocks);
    if (sum == 1.2345f) m.moved[0] = 0;
    if (lane == 0) atomicAdd(m.moved + sm, turns * CHUNK * (MODE == COPY ? 2 : 1));
}

__global__ void ring_kernel(u32* ring, const u32* next, u32 entries, u32 stride) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < entries; i += gridDim.x * blockDim.x)
        ring[(u64)i * stride] = next[i];
}

__global__ void timer_kernel(u64* ns, u64* clocks, int n) {
    for (int i = 0; i < n; i++) {
        ns[i] = globaltimer();
        clocks[i] = clock64();
    }
}

// ---------------------------------------------------------------- host side

struct Kernel {
    string name;
    void (*fn)(Args);
    int threads;
    int shared_bytes;  // that it needs
    long long work;    // turns a segment, calibrated so that a lone block lives about ALONE_US
    int registers;
    double alone_clocks;
};

constexpr double ALONE_US = 60;

static cudaDeviceProp props;
static int sms;
static double clocks_per_us = 1000;
static FILE *scalars, *launches_file, *blocks_file, *progress_file;
static volatile u32* gate_host;
static CUdeviceptr gate_device;                // two gates, four bytes apart
static std::map<int, vector<int>> green_sets;  // SMs of a green context, by its size
static vector<cudaStream_t> streams;           // [0..3] ordinary, [4] lowest priority, [5] highest priority
static float *operand_a, *operand_b, *zeros, *sink;
static u32 *life_table, *arrival_counts, *scheduler_warps;

static void scalar(const string& experiment, const string& name, int rep, const string& quantity, double value) {
    fprintf(scalars, "%s,%s,%d,%s,%.9g\n", experiment.c_str(), name.c_str(), rep, quantity.c_str(), value);
}

static void gate_close(cudaStream_t stream, int gate) {
    CU(cuStreamWaitValue32, stream, gate_device + 4 * gate, 1, CU_STREAM_WAIT_VALUE_GEQ);
}

// Shared memory a block so that exactly k fit on an SM.
static int shared_for(int k) {
    return (int)(props.sharedMemPerMultiprocessor / k / 128 * 128 - props.reservedSharedMemPerBlock);
}

static int fits(const Kernel& k, int shared) {
    int n = 0;
    CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, k.fn, k.threads, shared));
    return n;
}

// What was launched, until the logs are fetched.
struct Launch {
    string experiment, name, kernel, role;
    int rep, threads, registers, shared, per_sm, grid;
    long long work;
    u64 log_at, progress_at;
    bool progress;
};

struct Recorder {
    BlockLog* log = nullptr;
    u64* progress = nullptr;
    u64 log_room = 4u << 20, progress_room = 64u << 20, log_used = 0, progress_used = 0;
    u64 blocks_written = 0, progress_written = 0;
    vector<Launch> pending;

    void open() {
        CK(cudaMalloc(&log, log_room * sizeof(BlockLog)));
        CK(cudaMalloc(&progress, progress_room * sizeof(u64)));
    }

    Args reserve(const Launch& described) {
        Launch l = described;
        Args a = {};
        l.log_at = log_used;
        l.progress_at = progress_used;
        a.log = log + log_used;
        log_used += l.grid;
        if (l.progress) {
            a.progress = progress + progress_used;
            progress_used += (u64)l.grid * (l.threads / 32) * SEGMENTS;
        }
        if (log_used > log_room || progress_used > progress_room) {
            fprintf(stderr, "log full in %s\n", l.experiment.c_str());
            exit(1);
        }
        pending.push_back(l);
        return a;
    }

    void flush() {
        CK(cudaDeviceSynchronize());
        vector<BlockLog> blocks(log_used);
        vector<u64> stamps(progress_used);
        CK(cudaMemcpy(blocks.data(), log, log_used * sizeof(BlockLog), cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(stamps.data(), progress, progress_used * sizeof(u64), cudaMemcpyDeviceToHost));
        for (const Launch& l : pending) {
            fprintf(launches_file, "%s,%s,%d,%s,%s,%d,%d,%d,%d,%d,%lld,%llu,%lld\n", l.experiment.c_str(),
                    l.name.c_str(), l.rep, l.role.c_str(), l.kernel.c_str(), l.threads, l.registers, l.shared, l.per_sm,
                    l.grid, l.work, blocks_written, l.progress ? (long long)progress_written : -1ll);
            fwrite(&blocks[l.log_at], sizeof(BlockLog), l.grid, blocks_file);
            blocks_written += l.grid;
            if (!l.progress) continue;
            const int per_block = l.threads / 32 * SEGMENTS;
            vector<u32> relative((size_t)l.grid * per_block);
            for (size_t i = 0; i < relative.size(); i++)
                relative[i] = (u32)(stamps[l.progress_at + i] - blocks[l.log_at + i / per_block].start_clock);
            fwrite(relative.data(), 4, relative.size(), progress_file);
            progress_written += relative.size();
        }
        pending.clear();
        log_used = progress_used = 0;
    }
};

static Recorder recorder;

struct Options {
    string role = "a";
    int per_sm = 0;  // resident blocks an SM that the caller arranged (0: not arranged)
    bool progress = false;
    long long jitter = 0;
    u32 seed = 0;
    bool table = false;
    int out_words = 0;
    int footprint = 0;
};

static void launch(cudaStream_t stream, const Kernel& k, int grid, int shared, long long work, const string& experiment,
                   const string& name, int rep, const Options& o) {
    Args a = recorder.reserve({experiment, name, k.name, o.role, rep, k.threads, k.registers, shared, o.per_sm, grid,
                               work, 0, 0, o.progress});
    a.work = work;
    a.jitter = o.jitter;
    a.seed = o.seed;
    a.a = k.name.rfind("gemm", 0) == 0 ? operand_a : zeros;
    a.b = operand_b;
    a.out = sink;
    a.out_words = o.out_words;
    a.footprint = o.footprint;
    a.table = o.table ? life_table : nullptr;
    a.arrivals = arrival_counts;
    a.scheduler_warps = scheduler_warps;
    a.x = 0.999f;
    a.y = 0.001f;
    k.fn<<<grid, k.threads, shared, stream>>>(a);
    CK(cudaGetLastError());
}

// Everything queued between hold and release starts together; streams held later start that much after the others.
static void hold(std::initializer_list<cudaStream_t> held, std::initializer_list<cudaStream_t> held_later = {}) {
    CK(cudaDeviceSynchronize());
    gate_host[0] = gate_host[1] = 0;
    for (cudaStream_t s : held) gate_close(s, 0);
    for (cudaStream_t s : held_later) gate_close(s, 1);
}

static void release(double later_us = 0) {
    const auto begin = std::chrono::steady_clock::now();
    gate_host[0] = 1;
    while (std::chrono::steady_clock::now() - begin < std::chrono::nanoseconds((long long)(later_us * 1e3))) {
    }
    gate_host[1] = 1;
    recorder.flush();
}

static Kernel make(const string& name, void (*fn)(Args), int threads, int shared, long long work) {
    cudaFuncAttributes attributes;
    CK(cudaFuncGetAttributes(&attributes, fn));
    const int room = (int)props.sharedMemPerBlockOptin - (int)attributes.sharedSizeBytes;
    CK(cudaFuncSetAttribute(fn, cudaFuncAttributeMaxDynamicSharedMemorySize, room));
    CK(cudaFuncSetAttribute(fn, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    return {name, fn, threads, shared, work, attributes.numRegs, 0};
}

static Kernel spin(int threads, int instance = 0) {
    return make("spin", instance ? spin_kernel<1> : spin_kernel<0>, threads, 0, 0);
}

static long long us(double v) { return (long long)(v * clocks_per_us); }

// Sets k.work so that a lone block lives ALONE_US.
static void calibrate(Kernel& k) {
    for (int turn = 0; turn < 3; turn++) {
        const u64 at = recorder.log_used;
        Options o;
        o.per_sm = 1;
        launch(streams[0], k, sms, shared_for(1), k.work, "calibrate", k.name, turn, o);
        CK(cudaDeviceSynchronize());
        vector<BlockLog> blocks(sms);
        CK(cudaMemcpy(blocks.data(), recorder.log + at, sms * sizeof(BlockLog), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (auto& b : blocks) sum += b.end_clock - b.start_clock;
        k.alone_clocks = sum / sms;
        if (turn < 2) k.work = std::max(1ll, (long long)(k.work * us(ALONE_US) / k.alone_clocks + 0.5));
    }
    recorder.flush();
}

// ---------------------------------------------------------------- experiments

// A second of arithmetic: the clock rises from idle to its working value.
static void warm_up() {
    Args a = {};
    a.work = 20000;
    a.out = sink;
    a.x = 0.999f;
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
        fma_kernel<8><<<sms * 8, 256>>>(a);
        CK(cudaDeviceSynchronize());
    }
}

static void timers() {
    const int n = 4096;
    u64 *ns, *clocks;
    CK(cudaMalloc(&ns, n * 8));
    CK(cudaMalloc(&clocks, n * 8));
    vector<u64> hn(n), hc(n);
    for (int rep = 0; rep < 3; rep++) {
        timer_kernel<<<1, 1>>>(ns, clocks, n);
        CK(cudaMemcpy(hn.data(), ns, n * 8, cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(hc.data(), clocks, n * 8, cudaMemcpyDeviceToHost));
        u64 smallest = ~0ull;
        for (int i = 1; i < n; i++)
            if (hn[i] != hn[i - 1]) smallest = std::min(smallest, hn[i] - hn[i - 1]);
        scalar("timers", "globaltimer", rep, "smallest_step_ns", (double)smallest);
        scalar("timers", "clock64", rep, "clocks_per_us", 1e3 * (hc[n - 1] - hc[0]) / (double)(hn[n - 1] - hn[0]));
    }
    CK(cudaFree(ns));
    CK(cudaFree(clocks));
    Kernel k = spin(128);
    for (int rep = 0; rep < 3; rep++) {  // long enough to give the clock to 0.1 %, and each SM's clock offset
        launch(streams[0], k, sms, shared_for(1), 2000000, "timers", "long", rep, {});
        recorder.flush();
    }
    u64 at = recorder.log_used;
    launch(streams[0], k, sms, shared_for(1), 2000000, "timers", "long", 3, {});
    CK(cudaDeviceSynchronize());
    vector<BlockLog> blocks(sms);
    CK(cudaMemcpy(blocks.data(), recorder.log + at, sms * sizeof(BlockLog), cudaMemcpyDeviceToHost));
    double sum = 0;
    for (auto& b : blocks) sum += 1e3 * (b.end_clock - b.start_clock) / (double)(b.end_ns - b.start_ns);
    clocks_per_us = sum / sms;
    recorder.flush();
}

// A launch of blocks of 128 threads in clusters of so many.
struct ClusterLaunch {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;

    ClusterLaunch(int grid, int size, int shared, cudaStream_t stream) {
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {(u32)size, 1, 1};
        config.gridDim = grid;
        config.blockDim = 128;
        config.dynamicSmemBytes = shared;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
    }
    ClusterLaunch(const ClusterLaunch&) = delete;  // config points into it

    // Clusters of a kernel that the device holds at once; -1 where it takes none of this size.
    int most_at_once(const Kernel& kernel) const {
        int clusters = 0;
        if (cudaOccupancyMaxActiveClusters(&clusters, kernel.fn, &config) == cudaSuccess) return clusters;
        cudaGetLastError();
        return -1;
    }
};

// SMs of each green context size, and clusters (whose blocks share a GPC).
static void topology() {
    Kernel k = spin(1024);
    CUdevice device;
    CU(cuDeviceGet, &device, 0);
    CUdevResource all;
    CU(cuDeviceGetDevResource, device, &all, CU_DEV_RESOURCE_TYPE_SM);
    for (u32 want = 8; want < (u32)sms; want += 8) {
        CUdevResource part, rest;
        u32 groups = 1;
        auto split = driver_entry<decltype(&cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
        if (split(&part, &groups, &all, &rest, 0, want) != CUDA_SUCCESS) continue;
        CUdevResourceDesc description;
        CUgreenCtx context;
        CUstream stream;
        CU(cuDevResourceGenerateDesc, &description, &part, 1);
        CU(cuGreenCtxCreate, &context, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
        CU(cuGreenCtxStreamCreate, &stream, context, CU_STREAM_NON_BLOCKING, 0);
        Options o;
        o.per_sm = 2;
        const u64 at = recorder.log_used;
        launch(stream, k, 2 * part.sm.smCount, 0, us(30), "green", std::to_string(part.sm.smCount), 0, o);
        CK(cudaDeviceSynchronize());
        vector<BlockLog> blocks(2 * part.sm.smCount);
        CK(cudaMemcpy(blocks.data(), recorder.log + at, blocks.size() * sizeof(BlockLog), cudaMemcpyDeviceToHost));
        for (auto& b : blocks) green_sets[part.sm.smCount].push_back(b.smid);
        recorder.flush();
        CK(cudaStreamDestroy(stream));
        CU(cuGreenCtxDestroy, context);
    }
    if (props.major < 9) return;
    CK(cudaFuncSetAttribute(k.fn, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    for (int size : {2, 3, 4, 5, 6, 7, 8, 16})
        for (int rep = 0; rep < 12; rep++) {
            const int shared = shared_for(1), grid = sms / size * size;
            ClusterLaunch clusters(grid, size, shared, streams[0]);
            if (clusters.most_at_once(k) <= 0) continue;
            Args a = recorder.reserve({"cluster", std::to_string(size), k.name, "a", rep, 128, k.registers, shared, 1,
                                       grid, us(20), 0, 0, false});
            a.work = us(20);
            CK(cudaLaunchKernelEx(&clusters.config, k.fn, a));
            recorder.flush();
        }
}

// How many clusters of so many blocks, a block an SM, fit at once in a green context and in what is left beside it.
static void cluster_room() {
    if (props.major < 9) return;
    Kernel k = spin(128);
    CUdevice device;
    CU(cuDeviceGet, &device, 0);
    CUdevResource all;
    CU(cuDeviceGetDevResource, device, &all, CU_DEV_RESOURCE_TYPE_SM);
    auto split = driver_entry<decltype(&cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
    for (u32 want : {16, 32, 48, 64, 72, 80, 96, 112, 120}) {
        CUdevResource parts[2];
        u32 groups = 1;
        if (want >= (u32)sms || split(&parts[0], &groups, &all, &parts[1], 0, want) != CUDA_SUCCESS) continue;
        for (int part : {0, 1}) {
            CUdevResourceDesc description;
            CUgreenCtx context;
            CUstream stream;
            CU(cuDevResourceGenerateDesc, &description, &parts[part], 1);
            CU(cuGreenCtxCreate, &context, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
            CU(cuGreenCtxStreamCreate, &stream, context, CU_STREAM_NON_BLOCKING, 0);
            for (int size = 1; size <= 8; size++) {
                const int together = ClusterLaunch(sms / size * size, size, shared_for(1), stream).most_at_once(k);
                if (together < 0) continue;
                const string name = string(part ? "rest" : "first") + "/sms=" +
                                    std::to_string(parts[part].sm.smCount) + "/blocks=" + std::to_string(size);
                scalar("cluster_room", name, 0, "clusters", together);
            }
            CK(cudaStreamDestroy(stream));
            CU(cuGreenCtxDestroy, context);
        }
    }
}

// The clock of every SM, and the lives of kernels on other SMs, beside blocks that compute on tensor cores.
static void clock_beside() {
    const int half = shared_for(2), whole = shared_for(1);
    const vector<Kernel> loads = {
        make("spin", spin_kernel<0>, 128, 0, 0),
        make("tf32", tensor_kernel<nvcuda::wmma::precision::tf32, float, float, 16, 16, 8>, 128, 0, 0),
        make("fp16", tensor_kernel<__half, __half, float, 16, 16, 16>, 128, 0, 0),
        make("int8", tensor_kernel<signed char, signed char, int, 16, 16, 16>, 128, 0, 0),
        make("fp64", tensor_kernel<double, double, double, 8, 8, 4>, 128, 0, 0),
    };
    const Kernel watch = spin(32, 1);
    Options load, other;
    load.role = "load";
    other.role = "watch";
    for (const Kernel& k : loads)
        for (int blocks : {1, 2, 4, 8, 16, 32, sms}) {
            const string name = "load=" + k.name + "/blocks=" + std::to_string(blocks);
            for (int rep = 0; rep < 3; rep++) {
                launch(streams[0], k, blocks, half, us(150), "clock", name, rep, load);
                launch(streams[1], watch, sms, half, us(50), "clock", name, rep, other);
                recorder.flush();
            }
        }
    vector<Kernel> beside = {make("fma8", fma_kernel<8>, 256, 0, 400), make("smem", smem_kernel, 256, 16384, 400),
                             make("l2", l2_kernel, 256, 0, 40)};
    for (Kernel& k : beside) {
        calibrate(k);
        for (const Kernel& l : {loads[0], loads[1]})
            for (int rep = 0; rep < 5; rep++) {
                launch(streams[0], l, 32, whole, us(5 * ALONE_US), "life_beside", "load=" + l.name, rep, load);
                launch(streams[1], k, sms - 32, whole, k.work, "life_beside", "load=" + l.name, rep, other);
                recorder.flush();
            }
    }
}

struct Memory {
    float4 *a, *b;
    u64 dram_bytes, l2_bytes = 16u << 20;
    u32 *dram_ring, *l2_ring, *arrived;
    u32 dram_entries = 1u << 21, dram_stride = 1056, l2_entries = (8u << 20) / 128, l2_stride = 32;
    int* role;
    u64* moved;
    u64 at = 0;  // where the next run starts, so that no run finds its data in L2
    u32 hot_bytes = 0, tile_bytes = 0;
    int stagger = 0;
    u64 turns = 0;
};

static const char* mode_names[] = {"read", "write", "copy", "red", "atom", "shared"};

static void memory_open(Memory& m, u64 bytes) {
    m.dram_bytes = bytes;
    for (float4** p : {&m.a, &m.b}) {
        CK(cudaMalloc(p, bytes));
        CK(cudaMemset(*p, 0, bytes));
    }
    CK(cudaMalloc(&m.role, sms * 4));
    CK(cudaMalloc(&m.moved, sms * 8));
    CK(cudaMalloc(&m.arrived, 4));
}

static u32* make_ring(u32 entries, u32 stride) {
    vector<u32> order(entries), next(entries);
    std::iota(order.begin(), order.end(), 0u);
    std::mt19937 random(1);
    std::shuffle(order.begin(), order.end(), random);
    for (u32 i = 0; i < entries; i++) next[order[i]] = order[(i + 1) % entries];
    u32 *ring, *staged;
    CK(cudaMalloc(&ring, (u64)entries * stride * 4));
    CK(cudaMalloc(&staged, (u64)entries * 4));
    CK(cudaMemcpy(staged, next.data(), (u64)entries * 4, cudaMemcpyHostToDevice));
    ring_kernel<<<1024, 256>>>(ring, staged, entries, stride);
    CK(cudaDeviceSynchronize());
    CK(cudaFree(staged));
    return ring;
}

// Runs one grid; returns bytes (or chased loads) a microsecond, by SM.
static vector<double> move(Memory& m, int mode, bool l2, int warps, int warps2, const vector<int>& role) {
    const double run_us = 300;
    const int k = warps > 32 ? 2 : 1;
    MemoryArgs a = {};
    a.role = m.role;
    a.warps = warps / k;
    a.warps2 = warps2 / k;
    a.a = m.a;
    a.b = m.b;
    a.bytes = l2 ? m.l2_bytes : m.dram_bytes;
    a.at = l2 ? 0 : m.at;
    m.at += 3ull << 30;  // more than a run moves
    a.ring = l2 ? m.l2_ring : m.dram_ring;
    a.ring_entries = l2 ? m.l2_entries : m.dram_entries;
    a.ring_stride = l2 ? m.l2_stride : m.dram_stride;
    a.clocks = us(run_us);
    a.arrived = m.arrived;
    a.moved = m.moved;
    CK(cudaMemcpy(m.role, role.data(), sms * 4, cudaMemcpyHostToDevice));
    CK(cudaMemset(m.arrived, 0, 4));
    CK(cudaMemset(m.moved, 0, sms * 8));
    a.turns = m.turns;
    a.hot_bytes = m.hot_bytes;
    a.tile_bytes = m.tile_bytes;
    a.stagger = m.stagger;
    void (*kernels[])(MemoryArgs) = {memory_kernel<READ>, memory_kernel<WRITE>, memory_kernel<COPY>,
                                     memory_kernel<RED>,  memory_kernel<ATOM>,  memory_kernel<SHARED>};
    auto fn = kernels[mode];
    CK(cudaFuncSetAttribute(fn, cudaFuncAttributeMaxDynamicSharedMemorySize, props.sharedMemPerBlockOptin));
    fn<<<sms * k, std::max(1, warps / k) * 32, shared_for(k)>>>(a);
    CK(cudaDeviceSynchronize());
    vector<u64> moved(sms);
    CK(cudaMemcpy(moved.data(), m.moved, sms * 8, cudaMemcpyDeviceToHost));
    vector<double> rate(sms);
    for (int i = 0; i < sms; i++) rate[i] = moved[i] / run_us;
    return rate;
}

static void memory() {
    Memory m;
    size_t available, total;
    CK(cudaMemGetInfo(&available, &total));
    u64 bytes = 8ull << 30;
    while (bytes * 4 > available) bytes /= 2, m.dram_entries /= 2;
    memory_open(m, bytes);
    m.dram_ring = make_ring(m.dram_entries, m.dram_stride);
    m.l2_ring = make_ring(m.l2_entries, m.l2_stride);
    auto report = [&](const string& experiment, const string& name, int rep, const vector<double>& rate,
                      const vector<int>& role) {
        double sum[4] = {}, low[4] = {1e30, 1e30, 1e30, 1e30}, high[4] = {};
        int count[4] = {};
        for (int i = 0; i < sms; i++) {
            sum[role[i]] += rate[i];
            low[role[i]] = std::min(low[role[i]], rate[i]);
            high[role[i]] = std::max(high[role[i]], rate[i]);
            count[role[i]]++;
        }
        for (int r = STREAM; r <= STREAM2; r++)
            if (count[r]) {
                const string n = r == STREAM ? "stream" : "stream2";
                scalar(experiment, name, rep, n + "_gb_per_s", sum[r] / 1e3);
                scalar(experiment, name, rep, n + "_slowest_sm_gb_per_s", low[r] / 1e3);
                scalar(experiment, name, rep, n + "_fastest_sm_gb_per_s", high[r] / 1e3);
            }
        if (count[CHASE]) {
            scalar(experiment, name, rep, "latency_ns", 1e3 * count[CHASE] / sum[CHASE]);
            scalar(experiment, name, rep, "latency_nearest_sm_ns", 1e3 / high[CHASE]);
            scalar(experiment, name, rep, "latency_farthest_sm_ns", 1e3 / low[CHASE]);
        }
    };
    for (int l2 = 0; l2 < 2; l2++)
        for (int mode = READ; mode <= (l2 ? ATOM : COPY); mode++)
            for (int n : {1, 2, 8, 16, 32, 48, 64, 80, 96, 112, sms})
                for (int warps : {1, 2, 4, 8, 16, 32, 64}) {
                    const bool between = n == 2 || n == 48 || n == 80 || n == 112;
                    if (n > sms || (mode && (warps < 8 || (between && (!l2 || mode == COPY))))) continue;
                    vector<int> role(sms, IDLE);
                    for (int i = 0; i < n; i++) role[i] = STREAM;
                    const string name =
                        string(mode_names[mode]) + "/sms=" + std::to_string(n) + "/warps=" + std::to_string(warps);
                    for (int rep = -1; rep < 3; rep++) {
                        auto rate = move(m, mode, l2, warps, 0, role);
                        if (rep >= 0) report(l2 ? "l2_bandwidth" : "dram_bandwidth", name, rep, rate, role);
                    }
                }
    for (u32 hot_kb : {8, 64, 512})  // all SMs read the same bytes; with tiles, every other turn their own
        for (u32 tile_kb : {0, 64})
            for (int stagger : {0, 1})
                for (int n : {1, 8, 16, 32, 64, 96, sms}) {
                    if (n > sms || (hot_kb < 512 && n != sms)) continue;
                    m.hot_bytes = hot_kb << 10;
                    m.tile_bytes = tile_kb << 10;
                    m.stagger = stagger;
                    vector<int> role(sms, IDLE);
                    for (int i = 0; i < n; i++) role[i] = STREAM;
                    for (int warps : {8, 16, 32}) {
                        const string name = "hot_kb=" + std::to_string(hot_kb) + "/tile_kb=" + std::to_string(tile_kb) +
                                            (stagger ? "/staggered" : "/together") + "/sms=" + std::to_string(n) +
                                            "/warps=" + std::to_string(warps);
                        for (int rep = -1; rep < 3; rep++) {
                            auto rate = move(m, SHARED, true, warps, 0, role);
                            if (rep >= 0) report("l2_shared", name, rep, rate, role);
                        }
                    }
                }
    for (int l2 = 0; l2 < 2; l2++)
        for (auto& [n, members] : green_sets)
            for (int warps : {4, 8, 16, 32}) {
                vector<int> role(sms, IDLE);
                for (int sm : members) role[sm] = STREAM;
                const string name = "read/green=" + std::to_string(n) + "/warps=" + std::to_string(warps);
                for (int rep = 0; rep < 2; rep++)
                    report(l2 ? "l2_green" : "dram_green", name, rep, move(m, 0, l2, warps, 0, role), role);
            }
    for (u64 megabytes = 2; megabytes <= 512; megabytes *= 2) {  // how much of L2 one working set can use
        m.l2_bytes = megabytes << 20;
        vector<int> role(sms, STREAM);
        for (int rep = -2; rep < 3; rep++) {
            auto rate = move(m, 0, true, 32, 0, role);
            if (rep >= 0) report("l2_capacity", "megabytes=" + std::to_string(megabytes), rep, rate, role);
        }
    }
    m.l2_bytes = 16u << 20;
    for (int l2 = 0; l2 < 2; l2++) {
        for (int rep = 0; rep < 5; rep++) {  // one thread on every SM chases; nothing else runs
            vector<int> role(sms, CHASE);
            report(l2 ? "l2_latency" : "dram_latency", "idle", rep, move(m, 0, l2, 1, 0, role), role);
        }
        for (int mode : {0, 2})
            for (int warps : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64})
                for (int rep = 0; rep < 3; rep++) {  // every eighth SM chases beside SMs that stream
                    vector<int> role(sms, STREAM);
                    for (int i = 0; i < sms; i += 8) role[i] = CHASE;
                    report(l2 ? "l2_latency" : "dram_latency",
                           string("beside_") + mode_names[mode] + "/warps=" + std::to_string(warps), rep,
                           move(m, mode, l2, warps, 0, role), role);
                }
        for (int n : {32, 64, 96})  // two sets of SMs stream with different numbers of warps
            for (int w1 : {16, 32})
                for (int w2 : {2, 4, 8, 16, 32}) {
                    if (n + 32 > sms || w2 > w1) continue;
                    vector<int> role(sms, STREAM2);
                    for (int i = 0; i < n; i++) role[i] = STREAM;
                    const string name =
                        "sms=" + std::to_string(n) + "/warps=" + std::to_string(w1) + "/warps2=" + std::to_string(w2);
                    for (int rep = 0; rep < 3; rep++)
                        report(l2 ? "l2_share" : "dram_share", name, rep, move(m, 0, l2, w1, w2, role), role);
                }
    }
    for (void* p : {(void*)m.a, (void*)m.b, (void*)m.dram_ring, (void*)m.l2_ring, (void*)m.role, (void*)m.moved,
                    (void*)m.arrived})
        CK(cudaFree(p));
}

// Known bytes into L2 by each kind of access, for a profiler to count.
static void memory_counters() {
    Memory m;
    memory_open(m, m.l2_bytes);
    m.turns = 200;
    vector<int> role(sms, STREAM);
    for (int mode = READ; mode <= ATOM; mode++) {
        const int warps = 16;
        move(m, mode, true, warps, 0, role);
        scalar("memory_counters", mode_names[mode], 0, "bytes",
               (double)sms * warps * m.turns * CHUNK * (mode == COPY ? 2 : 1));
    }
}

// Kernels that follow one another: in one stream, across streams by events, several released at once.
static void gaps() {
    Kernel k = spin(128);
    const int n = SEQUENCE;
    for (int grid : {1, sms, 2 * sms, 10 * sms, 40 * sms})
        for (double life : {0.0, 5.0})
            for (int writes : {0, 8192})
                for (int rep = 0; rep < 3; rep++) {
                    if (writes && (life == 0 || grid > 10 * sms)) continue;
                    const string name = "grid=" + std::to_string(grid) + "/life_us=" + std::to_string((int)life) +
                                        "/written_bytes=" + std::to_string(4 * writes);
                    Options o;
                    o.out_words = writes;
                    hold({streams[0]});
                    for (int i = 0; i < n; i++)
                        launch(streams[0], k, grid, 0, us(life), "gap_stream", name, rep * n + i, o);
                    release();
                }
    Kernel other = spin(128, 1);
    CK(cudaFuncSetAttribute(k.fn, cudaFuncAttributePreferredSharedMemoryCarveout, 0));
    for (int shared : {0, 16 << 10, 64 << 10, 200 << 10})  // kernels whose carve-outs differ take turns
        for (int rep = 0; rep < 3; rep++) {
            hold({streams[0]});
            for (int i = 0; i < n; i++)
                launch(streams[0], i % 2 ? other : k, sms, i % 2 ? shared : 0, us(5), "gap_carveout",
                       "shared_bytes=" + std::to_string(shared), rep * n + i, {});
            release();
        }
    CK(cudaFuncSetAttribute(k.fn, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    cudaEvent_t event;
    CK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int grid : {1, sms, 10 * sms})
        for (int rep = 0; rep < 3; rep++) {
            hold({streams[0], streams[1]});
            for (int i = 0; i < n; i++) {
                cudaStream_t on = streams[i % 2];
                if (i) CK(cudaStreamWaitEvent(on, event, 0));
                launch(on, k, grid, 0, us(5), "gap_event", "grid=" + std::to_string(grid), rep * n + i, {});
                CK(cudaEventRecord(event, on));
            }
            release();
        }
    for (int count = 1; count <= 5; count++)  // streams at once, each a sequence, in step or not
        for (double apart : {0.0, 0.4})
            for (int grid : {1, sms})
                for (int rep = 0; rep < 5; rep++) {
                    hold({});
                    for (int s = 0; s < count; s++) gate_close(streams[s], 0);
                    for (int s = 0; s < count; s++)
                        for (int i = 0; i < n; i++) {
                            Options o;
                            o.role = "stream" + std::to_string(s);
                            launch(streams[s], k, grid, 0, us(3 + s * apart), "gap_beside",
                                   "streams=" + std::to_string(count) + "/grid=" + std::to_string(grid) +
                                       (apart > 0 ? "/unlike" : "/alike"),
                                   rep * n + i, o);
                        }
                    release();
                }
    for (int rep = 0; rep < 20; rep++) {
        hold({streams[0], streams[1], streams[2], streams[3]});
        for (int i = 0; i < 4; i++) {
            const int s = rep % 2 ? 3 - i : i;
            Options o;
            o.role = "stream" + std::to_string(s);
            launch(streams[s], k, 1, 0, us(5), "release", rep % 2 ? "reversed" : "in_order", rep, o);
        }
        release();
    }
    for (int rep = 0; rep < 20; rep++) {  // one kernel, then three streams that wait for its event
        hold({streams[0]});
        Options o;
        o.role = "parent";
        launch(streams[0], k, sms, 0, us(5), "fork", "children=3", rep, o);
        CK(cudaEventRecord(event, streams[0]));
        for (int i = 1; i < 4; i++) {
            CK(cudaStreamWaitEvent(streams[i], event, 0));
            o.role = "child" + std::to_string(i);
            launch(streams[i], k, 1, 0, us(5), "fork", "children=3", rep, o);
        }
        release();
    }
    CK(cudaEventDestroy(event));
}

// A kernel of one stream for whose event others wait, beside streams of their own; each mark follows a kernel.
static void dependencies() {
    const int most = 8, n = 6;
    Kernel k = spin(128);
    vector<cudaStream_t> on(most);
    for (cudaStream_t& stream : on) CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (const bool timed : {false, true})
        for (int consumers = 0; consumers <= 3; consumers++)
            for (int beside : {0, 1, 3})
                for (const bool busy : {false, true}) {
                    if (consumers == 0 && busy) continue;
                    cudaEvent_t event;
                    CK(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
                    const string name = string(timed ? "timed" : "plain") + "/consumers=" + std::to_string(consumers) +
                                        (consumers == 0 ? "" : busy ? "/busy" : "/idle") +
                                        "/beside=" + std::to_string(beside);
                    for (int rep = 0; rep < 20; rep++) {
                        auto go = [&](int stream, const string& role, double life_us) {
                            Options o;
                            o.role = role;
                            launch(on[stream], k, sms, 0, us(life_us), "dependency", name, rep, o);
                        };
                        hold({});
                        for (int s = 0; s <= consumers + beside; s++) gate_close(on[s], 0);
                        for (int s = consumers + 1; s <= consumers + beside; s++)
                            for (int i = 0; i < n; i++) go(s, "beside", 5);
                        go(0, "first", 8);
                        go(0, "parent", 8);
                        CK(cudaEventRecord(event, on[0]));
                        go(0, "next", 5);
                        for (int s = 1; s <= consumers; s++) {
                            if (busy) go(s, "before", 3);
                            CK(cudaStreamWaitEvent(on[s], event, 0));
                            go(s, "child", 5);
                        }
                        release();
                    }
                    CK(cudaEventDestroy(event));
                }
    for (cudaStream_t stream : on) CK(cudaStreamDestroy(stream));
}

// Blocks with no work: what starting, the prologue and ending cost.
static void launch_rate(vector<Kernel>& kernels) {
    for (const Kernel& k : kernels)
        for (int rep = 0; rep < 3; rep++) {
            Options o;
            o.per_sm = 1;
            launch(streams[0], k, sms, shared_for(1), 0, "no_work", k.name, rep, o);
            recorder.flush();
        }
    vector<Kernel> list = {make("empty", empty_kernel, 0, 0, 0)};
    for (auto& k : kernels)
        if (k.name.rfind("gemm", 0) == 0) list.push_back(k);
    cudaEvent_t begin, end;
    CK(cudaEventCreate(&begin));
    CK(cudaEventCreate(&end));
    for (const Kernel& k : list)
        for (int threads : {32, 64, 128, 256, 512, 1024})
            for (int shared : {0, 16384, 49152, 102400}) {
                if (k.threads && (threads != k.threads || shared < k.shared_bytes)) continue;
                for (int rep = -1; rep < 3; rep++) {
                    Args a = {};
                    a.a = operand_a;
                    a.b = operand_b;
                    a.out = sink;
                    const int grid = sms * 400;
                    hold({streams[0]});
                    CK(cudaEventRecord(begin, streams[0]));
                    k.fn<<<grid, threads, shared, streams[0]>>>(a);
                    CK(cudaGetLastError());
                    CK(cudaEventRecord(end, streams[0]));
                    release();
                    float ms;
                    CK(cudaEventElapsedTime(&ms, begin, end));
                    const string name =
                        k.name + "/threads=" + std::to_string(threads) + "/shared_bytes=" + std::to_string(shared);
                    if (rep >= 0) scalar("launch_rate", name, rep, "blocks_per_us", grid / (1e3 * ms));
                }
            }
    CK(cudaEventDestroy(begin));
    CK(cudaEventDestroy(end));
}

// One block an SM of 1 to 32 warps: how issue and pipes are shared by warps.
static void issue() {
    vector<Kernel> list = {make("fma1", fma_kernel<1>, 0, 0, 400),   make("fma2", fma_kernel<2>, 0, 0, 400),
                           make("fma4", fma_kernel<4>, 0, 0, 400),   make("fma8", fma_kernel<8>, 0, 0, 400),
                           make("smem", smem_kernel, 0, 16384, 400), make("l2", l2_kernel, 0, 0, 40)};
    for (Kernel k : list)
        for (int warps : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 28, 32})
            for (int rep = 0; rep < 2; rep++) {
                k.threads = 32 * warps;
                Options o;
                o.per_sm = 1;
                launch(streams[0], k, sms, shared_for(1), k.work, "issue", "warps=" + std::to_string(warps), rep, o);
                recorder.flush();
            }
}

struct Group {
    int warps, blocks;  // of a block; an SM
};

// Blocks of some warps together on every SM, placed one kernel after the other: one wave, or refilled for some more. They
// live four times as long as elsewhere, so that the microseconds between the launches count for little.
static void schedulers() {
    vector<Kernel> kernels = {make("fma", scheduler_kernel<false>, 32, 0, 40),
                              make("fma_barrier", scheduler_kernel<true>, 32, 0, 40)};
    for (Kernel& k : kernels) {
        calibrate(k);
        auto run = [&](const vector<Group>& groups, int waves = 1) {
            int resident = 0;
            string name = k.name + "/waves=" + std::to_string(waves);
            for (const Group& g : groups) {
                resident += g.blocks;
                name += "/" + std::to_string(g.blocks) + "x" + std::to_string(g.warps);
            }
            for (int rep = 0; rep < 3; rep++) {
                CK(cudaMemset(scheduler_warps, 0, sms * 4 * 2 * 4));
                CK(cudaDeviceSynchronize());
                for (size_t i = 0; i < groups.size(); i++) {
                    Options o;
                    o.role = string(1, 'a' + i);
                    o.per_sm = groups[i].blocks;
                    k.threads = 32 * groups[i].warps;
                    launch(streams[i], k, sms * o.per_sm * waves, shared_for(resident), 4 * k.work, "schedulers", name,
                           rep, o);
                }
                recorder.flush();
                vector<u32> counts(sms * 4 * 2);
                CK(cudaMemcpy(counts.data(), scheduler_warps, counts.size() * 4, cudaMemcpyDeviceToHost));
                double sum = 0;
                for (int sm = 0; sm < sms; sm++) {
                    u32 most = 0;
                    for (int i = 0; i < 4; i++) most = std::max(most, counts[(sm * 4 + i) * 2 + 1]);
                    sum += most;
                }
                scalar("schedulers", name, rep, "fullest_warps", sum / sms);
            }
        };
        for (int warps : {1, 2, 3, 4, 5, 6})
            for (int blocks : {1, 2, 3, 4, 5, 6}) run({{warps, blocks}});
        for (int warps_a : {1, 2, 3, 6})
            for (int blocks_a : {1, 2, 3})
                for (int warps_b : {2, 4})
                    for (int blocks_b : {1, 2, 3}) run({{warps_a, blocks_a}, {warps_b, blocks_b}});
        for (int even : {4, 8})
            for (int one : {1, 2, 3})
                for (int other : {1, 2, 3}) {
                    run({{even, 1}, {one, 1}, {other, 1}});
                    run({{one, 1}, {even, 1}, {other, 1}});
                    run({{one, 1}, {other, 1}, {even, 1}});
                }
        for (int blocks : {3, 5})
            for (int waves : {2, 4, 8, 16}) run({{2, blocks}}, waves);
    }
}

// k blocks an SM, one wave and many waves.
static void residency(vector<Kernel>& kernels) {
    for (Kernel& k : kernels)
        for (int n : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16}) {
            const int shared = shared_for(n);
            if (shared < k.shared_bytes || fits(k, shared) != n) continue;
            Options o;
            o.per_sm = n;
            for (int rep = 0; rep < 3; rep++) {
                o.progress = rep == 2;  // the first run may find its operands outside L2
                launch(streams[0], k, sms * n, shared, k.work, "one_wave", "k=" + std::to_string(n), rep, o);
                recorder.flush();
            }
            for (int rep = 0; rep < 2; rep++) {
                o.progress = rep == 1;
                launch(streams[0], k, sms * n * 6, shared, k.work, "many_waves", "k=" + std::to_string(n), rep, o);
                recorder.flush();
            }
        }
}

// na blocks of a on every SM, then, part of a's lone life later, nb blocks of b.
static void together(const Kernel& a, int na, const Kernel& b, int nb, double offset, const string& experiment,
                     int reps) {
    const int shared = shared_for(na + nb);
    if (shared < std::max(a.shared_bytes, b.shared_bytes)) return;
    auto rounded = [](int registers) { return (registers + 7) / 8 * 8; };
    if (na * a.threads * rounded(a.registers) + nb * b.threads * rounded(b.registers) > props.regsPerMultiprocessor)
        return;
    if (na * a.threads + nb * b.threads > props.maxThreadsPerMultiProcessor) return;
    char name[64];
    snprintf(name, sizeof name, "%s*%d+%s*%d/offset=%.2f", a.name.c_str(), na, b.name.c_str(), nb, offset);
    for (int rep = 0; rep < reps; rep++) {
        Options o;
        o.progress = true;
        o.per_sm = na;
        hold({streams[0]}, {streams[1]});
        launch(streams[0], a, sms * na, shared, a.work, experiment, name, rep, o);
        o.role = "b";
        o.per_sm = nb;
        launch(streams[1], b, sms * nb, shared, b.work, experiment, name, rep, o);
        release(2 + offset * a.alone_clocks / clocks_per_us);
    }
}

static void sharing(vector<Kernel>& kernels) {
    for (const Kernel& k : kernels) {
        for (double offset : {0.05, 0.25, 0.5}) together(k, 1, k, 1, offset, "stagger", 2);
        together(k, 2, k, 2, 0.5, "stagger", 2);
        together(k, 3, k, 1, 0.5, "stagger", 2);
        together(k, 1, k, 3, 0.5, "stagger", 2);
    }
    for (const Kernel& a : kernels)
        for (const Kernel& b : kernels) {
            if (a.name == b.name || a.name == "fma2" || b.name == "fma2" || a.name == "fma8" || b.name == "fma8")
                continue;
            together(a, 1, b, 1, 0.1, "corun", 2);
            together(a, 2, b, 2, 0.1, "corun", 1);
            together(a, 1, b, 3, 0.1, "corun", 1);
        }
}

// Order of the first wave over SMs, and refill of freed slots.
static void placement() {
    for (int threads : {64, 256, 1024}) {
        Kernel k = spin(threads);
        for (int n : {1, 2, 4, 8}) {
            if (fits(k, shared_for(n)) != n) continue;
            Options o;
            o.per_sm = n;
            const string name = "k=" + std::to_string(n) + "/threads=" + std::to_string(threads);
            for (int rep = 0; rep < 4; rep++) {
                hold({streams[0]});
                launch(streams[0], k, sms * n, shared_for(n), us(40), "first_wave", name, rep, o);
                release();
            }
            for (int rep = 0; rep < 3; rep++) {
                Options r = o;
                r.jitter = us(20);
                r.seed = rep;
                hold({streams[0]});
                launch(streams[0], k, sms * n * 6, shared_for(n), us(20), "refill", name, rep, r);
                release();
            }
        }
        for (int rep = 0; rep < 4; rep++) {  // nothing limits but threads: is the first wave spread breadth first?
            hold({streams[0]});
            launch(streams[0], k, sms, 0, us(40), "first_wave", "roomy/threads=" + std::to_string(threads), rep, {});
            release();
        }
    }
    // SMs with no, one or two residents of two when twenty blocks arrive: who gets them?
    Kernel k = spin(128), delay = spin(32);
    cudaEvent_t due;
    CK(cudaEventCreateWithFlags(&due, cudaEventDisableTiming));
    for (int few : {20, 60, 120})
        for (int rep = 0; rep < 6; rep++) {
            vector<u32> life(sms * 8, us(80));
            for (int i = 0; i < sms; i++)
                for (int j = 0; j < 2 - (int)(hash(i + 1000 * rep) % 3); j++) life[i * 8 + j] = us(5);
            CK(cudaMemcpy(life_table, life.data(), life.size() * 4, cudaMemcpyHostToDevice));
            CK(cudaMemset(arrival_counts, 0, sms * 4));
            Options o;
            o.per_sm = 2;
            o.table = true;
            hold({streams[0], streams[5]});
            launch(streams[0], k, sms * 2, shared_for(2), 0, "room", "blocks=" + std::to_string(few), rep, o);
            launch(streams[5], delay, 1, 0, us(20), "room", "blocks=" + std::to_string(few), rep, {"delay"});
            CK(cudaEventRecord(due, streams[5]));
            CK(cudaStreamWaitEvent(streams[1], due, 0));
            o.table = false;
            o.role = "b";
            launch(streams[1], k, few, shared_for(2), us(10), "room", "blocks=" + std::to_string(few), rep, o);
            release();
        }
    CK(cudaEventDestroy(due));
}

struct Party {
    int threads, grid, shared;
    double life_us, jitter_us;
};

// a at once, b once a delay on the high-priority stream has ended: kernels that only hold their place.
static void queue(const string& experiment, const string& name, const Party& a, const Party& b, cudaStream_t sa,
                  cudaStream_t sb, double later_us, int carveout_a, int carveout_b, int reps) {
    Kernel ka = spin(a.threads, 0), kb = spin(b.threads, 1);
    Kernel delay = ka;
    delay.threads = 32;
    CK(cudaFuncSetAttribute(ka.fn, cudaFuncAttributePreferredSharedMemoryCarveout, carveout_a));
    CK(cudaFuncSetAttribute(kb.fn, cudaFuncAttributePreferredSharedMemoryCarveout, carveout_b));
    cudaEvent_t due;
    CK(cudaEventCreateWithFlags(&due, cudaEventDisableTiming));
    for (int rep = 0; rep < reps; rep++) {
        Options o;
        o.seed = rep;
        o.jitter = us(a.jitter_us);
        hold({sa, streams[5]});
        launch(sa, ka, a.grid, a.shared, us(a.life_us), experiment, name, rep, o);
        launch(streams[5], delay, 1, 0, us(later_us), experiment, name, rep, {"delay"});
        CK(cudaEventRecord(due, streams[5]));
        if (sb != streams[5]) CK(cudaStreamWaitEvent(sb, due, 0));
        o.role = "b";
        o.jitter = us(b.jitter_us);
        launch(sb, kb, b.grid, b.shared, us(b.life_us), experiment, name, rep, o);
        release();
    }
    CK(cudaEventDestroy(due));
    CK(cudaFuncSetAttribute(ka.fn, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    CK(cudaFuncSetAttribute(kb.fn, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
}

// SMs drain one by one of a's blocks of 1024 threads, one an SM; b's of 64 threads, eight an SM by registers, wait.
static void drain() {
    const Kernel a = make("hold40", hold_kernel<40, 1024>, 1024, 0, 0);
    const Kernel b = make("hold104", hold_kernel<104, 64>, 64, 0, 0);
    const int last_wave = sms * 3 / 4, shared = 10 << 10, percent_132_kb = 58;
    auto go = [&](const string& name, int grid_a, double life_us, double jitter_us, int grid_b, double due_us,
                  int carveout_a) {
        CK(cudaFuncSetAttribute(a.fn, cudaFuncAttributePreferredSharedMemoryCarveout, carveout_a));
        CK(cudaFuncSetAttribute(b.fn, cudaFuncAttributePreferredSharedMemoryCarveout, percent_132_kb));
        for (int rep = 0; rep < 4; rep++) {
            Options o;
            o.seed = rep;
            o.jitter = us(jitter_us);
            hold({streams[0]}, {streams[1]});
            launch(streams[0], a, grid_a, 0, us(life_us), "drain", name, rep, o);
            o.role = "b";
            o.jitter = 0;
            launch(streams[1], b, grid_b, shared, us(10), "drain", name, rep, o);
            release(due_us);
        }
    };
    for (double jitter : {0.0, 1.0, 4.0, 16.0})
        for (int blocks : {100, 216, 400})
            for (int carveout_a : {-1, percent_132_kb}) {
                const string tag = "/jitter_us=" + std::to_string((int)jitter) + "/b_blocks=" + std::to_string(blocks) +
                                   (carveout_a < 0 ? "" : "/same_carveout");
                go("partial_wave/b_early" + tag, sms + last_wave, 40, jitter, blocks, 10, carveout_a);
                go("partial_wave/b_late" + tag, sms + last_wave, 40, jitter, blocks, 65 + jitter, carveout_a);
                go("full_wave" + tag, sms, 40, jitter, blocks, 10, carveout_a);
            }
}

// As many blocks of b as fit beside one block of a on every SM, where registers are what limits them.
static void register_room() {
    const vector<Kernel> held = {
        make("hold72", hold_kernel<72, 64>, 64, 0, 0),    make("hold136", hold_kernel<136, 64>, 64, 0, 0),
        make("hold72", hold_kernel<72, 128>, 128, 0, 0),  make("hold136", hold_kernel<136, 128>, 128, 0, 0),
        make("hold200", hold_kernel<200, 128>, 128, 0, 0), make("hold72", hold_kernel<72, 192>, 192, 0, 0),
        make("hold136", hold_kernel<136, 256>, 256, 0, 0),
    };
    for (const Kernel& a : held)
        for (const Kernel& b : held)
            for (int rep = 0; rep < 2; rep++) {
                const string name = "a=" + std::to_string(a.threads) + "x" + a.name.substr(4) + "/b=" +
                                    std::to_string(b.threads) + "x" + b.name.substr(4);
                Options o;
                hold({streams[0]}, {streams[1]});
                launch(streams[0], a, sms, 0, us(100), "register_room", name, rep, o);
                o.role = "b";
                launch(streams[1], b, sms * 32, 0, us(20), "register_room", name, rep, o);
                release(20);
            }
}

// A kernel that lives on L1 (a footprint an SM, no shared memory) after and beside blocks that need 200 KB.
static void small_l1() {
    Kernel k = make("l1", l1_kernel, 256, 0, 0), big = spin(128), delay = spin(32, 1);
    const int two_hundred = 200 << 10;
    cudaEvent_t due;
    CK(cudaEventCreateWithFlags(&due, cudaEventDisableTiming));
    struct Case {
        const char* name;
        int footprint_kb, carveout, blocks;  // of k
        int before, beside;                  // blocks of 200 KB that end first, that stay
        double beside_us;
        bool same_stream;
        int idle_ms;
    };
    const int n = sms, half = sms / 2, many = sms * 32;
    vector<Case> cases;
    for (int kb : {16, 48, 96})
        for (int carveout : {-1, 0, 50, 100}) cases.push_back({"alone", kb, carveout, n, 0, 0, 0, true, 0});
    for (int kb : {16, 96}) {
        cases.push_back({"after_in_stream", kb, -1, n, n, 0, 0, true, 0});
        cases.push_back({"after_and_idle", kb, -1, n, n, 0, 0, true, 20});
        cases.push_back({"after_in_other_stream", kb, -1, n, n, 0, 0, false, 0});
        cases.push_back({"beside_on_half_fewer", kb, -1, half, n, half, 500, false, 0});
        cases.push_back({"beside_on_half", kb, -1, n, n, half, 500, false, 0});
        cases.push_back({"beside_on_all", kb, -1, n, n, n, 500, false, 0});
        cases.push_back({"beside_on_all_then_alone", kb, -1, n, n, n, 60, false, 0});
        cases.push_back({"many_alone", kb, -1, many, 0, 0, 0, true, 0});
        cases.push_back({"many_beside_then_alone", kb, -1, many, n, n, 60, false, 0});
        cases.push_back({"many_with_little_l1", kb, 100, many, 0, 0, 0, true, 0});
    }
    for (const Case& c : cases) {
        const string name = string(c.name) + "/footprint_kb=" + std::to_string(c.footprint_kb) +
                            "/carveout=" + std::to_string(c.carveout);
        CK(cudaFuncSetAttribute(k.fn, cudaFuncAttributePreferredSharedMemoryCarveout, c.carveout));
        for (int rep = 0; rep < 4; rep++) {
            Options o;
            o.role = "big";
            if (c.idle_ms) {
                launch(streams[0], big, c.before, two_hundred, us(20), "l1", name, rep, o);
                CK(cudaDeviceSynchronize());
                const auto begin = std::chrono::steady_clock::now();
                while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(c.idle_ms)) {
                }
            }
            hold({streams[0], streams[5]});
            if (!c.idle_ms && c.before)
                launch(streams[0], big, c.before, two_hundred, us(20), "l1", name, rep, o);
            if (c.beside) launch(streams[0], big, c.beside, two_hundred, us(c.beside_us), "l1", name, rep, o);
            if (!c.same_stream) {
                launch(streams[5], delay, 1, 0, us(40), "l1", name, rep, {"delay"});
                CK(cudaEventRecord(due, streams[5]));
                CK(cudaStreamWaitEvent(streams[1], due, 0));
            }
            o.role = "k";
            o.footprint = c.footprint_kb << 10;
            o.progress = true;
            launch(c.same_stream ? streams[0] : streams[1], k, c.blocks, 0, 12 * 96 / c.footprint_kb, "l1", name, rep,
                   o);
            release();
        }
    }
    CK(cudaEventDestroy(due));
}

static void scheduling() {
    const int two = shared_for(2), sixty = 60 << 10;
    const Party same = {128, sms * 6, two, 20, 20};
    queue("head_of_line", "same_footprint", same, same, streams[0], streams[1], 5, 100, 100, 4);
    queue("head_of_line", "b_fits_beside", {128, sms * 9, sixty, 20, 20}, {64, sms, 0, 10, 0}, streams[0], streams[1],
          5, 100, 100, 4);
    queue("head_of_line", "b_does_not_fit_yet", {128, sms * 9, sixty, 20, 20}, {64, sms, 150 << 10, 10, 0}, streams[0],
          streams[1], 5, 100, 100, 4);
    const Party low = {128, sms * 18, sixty, 20, 20};
    cudaStream_t lo = streams[4], hi = streams[5];
    queue("priority", "fits_no_slot_of_one", low, {64, sms, 150 << 10, 10, 0}, lo, hi, 30, 100, 100, 4);
    queue("priority", "fits_no_slot_of_one_4_blocks", low, {64, 4, 150 << 10, 10, 0}, lo, hi, 30, 100, 100, 4);
    queue("priority", "needs_the_whole_sm", low, {64, sms, shared_for(1), 10, 0}, lo, hi, 30, 100, 100, 4);
    queue("priority", "same_footprint", low, {128, sms, sixty, 10, 0}, lo, hi, 30, 100, 100, 4);
    queue("priority", "same_footprint_many", low, {128, sms * 6, sixty, 10, 5}, lo, hi, 30, 100, 100, 4);
    queue("priority", "fits_beside", low, {64, sms, 40 << 10, 10, 0}, lo, hi, 30, 100, 100, 4);
    queue("priority", "equal_priority_control", low, {64, sms, 150 << 10, 10, 0}, streams[0], streams[1], 30, 100, 100,
          4);
    // one wave of a, four blocks an SM of unlike lives; b needs 100 KB
    const Party plain = {256, sms * 4, 0, 20, 100}, small = {256, sms * 4, 20 << 10, 20, 100};
    const Party big = {128, sms, 100 << 10, 10, 0}, none = {128, sms, 0, 10, 0};
    queue("carveout", "a_0KB_default+b_100KB", plain, big, streams[0], streams[1], 5, -1, 100, 4);
    queue("carveout", "a_0KB_default+b_100KB_default", plain, big, streams[0], streams[1], 5, -1, -1, 4);
    queue("carveout", "a_0KB_maxL1+b_100KB", plain, big, streams[0], streams[1], 5, 0, 100, 4);
    queue("carveout", "a_0KB_maxshared+b_100KB", plain, big, streams[0], streams[1], 5, 100, 100, 4);
    queue("carveout", "a_20KB_default+b_100KB_default", small, big, streams[0], streams[1], 5, -1, -1, 4);
    queue("carveout", "a_20KB_maxshared+b_100KB_default", small, big, streams[0], streams[1], 5, 100, -1, 4);
    queue("carveout", "a_0KB_default+b_0KB_default", plain, none, streams[0], streams[1], 5, -1, -1, 4);
    queue("carveout", "a_0KB_default+b_0KB_maxshared", plain, none, streams[0], streams[1], 5, -1, 100, 4);
    // what b may need beside blocks of a, by the carve-out that a asked for (percent; -1 default)
    for (int carveout_a : {0, 14, 28, 44, 58, 72, 86, 100})
        for (int carveout_b : {-1, 0, 100})
            for (int kb : {0, 8, 24, 48, 90, 120}) {
                char name[64];
                snprintf(name, sizeof name, "a_carveout=%d/b_carveout=%d/b_kb=%d", carveout_a, carveout_b, kb);
                queue("carveout_matrix", name, {256, sms * 4, 0, 60, 0}, {128, sms, kb << 10, 10, 0}, streams[0],
                      streams[1], 5, carveout_a, carveout_b, 1);
            }
    const Party held = {128, sms, 100 << 10, 20, 100};
    queue("carveout", "a_100KB+b_0KB_default", held, none, streams[0], streams[1], 5, 100, -1, 4);
    queue("carveout", "a_100KB+b_0KB_maxL1", held, none, streams[0], streams[1], 5, 100, 0, 4);
    queue("carveout", "a_100KB_default+b_20KB_default", held, {128, sms, 20 << 10, 10, 0}, streams[0], streams[1], 5,
          -1, -1, 4);
    queue("carveout", "a_100KB_default+b_100KB_default", held, big, streams[0], streams[1], 5, -1, -1, 4);
}

// One wave and a bit: where the bit lands and what it costs.
static void tails(vector<Kernel>& kernels) {
    for (const Kernel& k : kernels) {
        int n = k.name == "gemm64" ? 8 : k.name == "gemm128" ? 4 : 2;
        if (k.name == "fma1" || k.name == "fma2" || k.name == "fma8") continue;
        while (n > 1 && fits(k, shared_for(n)) != n) n--;
        for (double extra : {0.0, 0.03, 0.25, 0.485, 0.5, 0.75, 0.9, 1.0})
            for (int rep = 0; rep < 6; rep++) {
                Options o;
                o.per_sm = n;
                char name[64];
                snprintf(name, sizeof name, "k=%d/extra=%.3f", n, extra);
                hold({streams[0]});
                launch(streams[0], k, sms * n + (int)(extra * sms * n + 0.5), shared_for(n), k.work, "tail", name, rep,
                       o);
                release();
            }
    }
}

static FILE* table(const string& folder, const char* name, const char* header) {
    FILE* f = fopen((folder + "/" + name).c_str(), "wb");
    if (!f) {
        fprintf(stderr, "cannot write %s/%s\n", folder.c_str(), name);
        exit(1);
    }
    if (header) fprintf(f, "%s\n", header);
    return f;
}

static void describe(const string& folder) {
    FILE* f = table(folder, "device.csv", "name,value");
    int driver, memory_khz, clock_khz;
    CK(cudaDriverGetVersion(&driver));
    CK(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, 0));
    CK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
    fprintf(f, "device,%s\ncompute_capability,%d.%d\nsm_count,%d\nl2_bytes,%d\nmemory_bytes,%zu\n", props.name,
            props.major, props.minor, sms, props.l2CacheSize, props.totalGlobalMem);
    fprintf(f, "sm_clock_khz,%d\nmemory_clock_khz,%d\nmemory_bus_bits,%d\ndriver_cuda_version,%d\n", clock_khz,
            memory_khz, props.memoryBusWidth, driver);
    fclose(f);
}

static void begin_stage(const char* name) {
    fprintf(stderr, "microbench: %s\n", name);
    fflush(stderr);
}

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: microbench OUT_DIR [counters | memory_counters]\n");
        return 2;
    }
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 3;
    const string folder = argv[1];
    CK(cudaSetDevice(0));
    CK(cudaGetDeviceProperties(&props, 0));
    sms = props.multiProcessorCount;
    describe(folder);
    scalars = table(folder, "scalars.csv", "experiment,case,rep,quantity,value");
    launches_file = table(
        folder, "launches.csv",
        "experiment,case,rep,role,kernel,threads,registers,shared_bytes,per_sm,grid,work,first_block,first_progress");
    blocks_file = table(folder, "blocks.bin", nullptr);
    progress_file = table(folder, "progress.bin", nullptr);
    void *host, *device;
    CK(cudaHostAlloc(&host, 64, cudaHostAllocMapped));
    CK(cudaHostGetDevicePointer(&device, host, 0));
    gate_host = (volatile u32*)host;
    gate_device = (CUdeviceptr)device;
    int low, high;
    CK(cudaDeviceGetStreamPriorityRange(&low, &high));
    for (int priority : {low, low, low, low, low, high}) {
        cudaStream_t s;
        CK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, priority));
        streams.push_back(s);
    }
    const size_t operand = (size_t)PANEL * DEPTH * 4;
    CK(cudaMalloc(&operand_a, operand));
    CK(cudaMalloc(&operand_b, operand));
    CK(cudaMalloc(&zeros, (size_t)CHASE_WORDS * 4));
    CK(cudaMalloc(&sink, (size_t)10 * sms * 8192 * 4));
    CK(cudaMalloc(&life_table, sms * 8 * 4));
    CK(cudaMalloc(&arrival_counts, sms * 4));
    CK(cudaMalloc(&scheduler_warps, sms * 4 * 2 * 4));
    vector<float> values(operand / 4);
    for (size_t i = 0; i < values.size(); i++) values[i] = (float)((i * 2654435761u >> 16 & 0xffff) / 32768.0 - 1.0);
    CK(cudaMemcpy(operand_a, values.data(), operand, cudaMemcpyHostToDevice));
    CK(cudaMemcpy(operand_b, values.data(), operand, cudaMemcpyHostToDevice));
    CK(cudaMemset(zeros, 0, (size_t)CHASE_WORDS * 4));
    recorder.open();

    if (argc == 3 && string(argv[2]) == "memory_counters") {
        memory_counters();
        return 0;
    }
    begin_stage("timers");
    warm_up();
    timers();
    vector<Kernel> kernels = {
        make("fma1", fma_kernel<1>, 256, 0, 400),
        make("fma2", fma_kernel<2>, 256, 0, 400),
        make("fma4", fma_kernel<4>, 256, 0, 400),
        make("fma8", fma_kernel<8>, 256, 0, 400),
        make("smem", smem_kernel, 256, 16384, 400),
        make("l2", l2_kernel, 256, 0, 40),
        make("gemm64", gemm_kernel<64, 64, 8, 8, 8, 8>, 64, 8192, 8),
        make("gemm128", gemm_kernel<128, 64, 8, 8, 8, 4>, 128, 12288, 8),
        make("gemm256", gemm_kernel<128, 128, 8, 8, 8, 2>, 256, 16384, 8),
        make("gemm256s", gemm_kernel<64, 64, 16, 4, 4, 4>, 256, 16384, 8),
        make("gemm64s", gemm_kernel<32, 32, 16, 4, 4, 16>, 64, 8192, 8),
        make("gemm128a", gemm_async_kernel<64, 64, 8, 8, 4, 4, 4>, 128, 16384, 8),
        make("gemm256a", gemm_async_kernel<128, 128, 8, 8, 8, 4, 2>, 256, 32768, 8),
    };
    for (Kernel& k : kernels) calibrate(k);
    if (argc == 3 && string(argv[2]) == "counters") {
        for (Kernel& k : kernels)
            for (int n : {1, 2, 3, 4, 6, 8, 12, 16}) {
                const int shared = shared_for(n);
                if (shared < k.shared_bytes || fits(k, shared) != n) continue;
                Options o;
                o.per_sm = n;
                launch(streams[0], k, sms * n * 6, shared, k.work, "counters", "k=" + std::to_string(n), 0, o);
                recorder.flush();
            }
        return 0;
    }
    const std::pair<const char*, std::function<void()>> stages[] = {
        {"topology", topology},
        {"clusters", cluster_room},
        {"clock", clock_beside},
        {"gaps", gaps},
        {"dependencies", dependencies},
        {"launch rate", [&] { launch_rate(kernels); }},
        {"issue", issue},
        {"schedulers", schedulers},
        {"residency", [&] { residency(kernels); }},
        {"sharing", [&] { sharing(kernels); }},
        {"placement", placement},
        {"scheduling", scheduling},
        {"drain", drain},
        {"register room", register_room},
        {"small L1", small_l1},
        {"tails", [&] { tails(kernels); }},
        {"memory", memory},
    };
    for (auto& [name, run] : stages) {
        begin_stage(name);
        run();
    }
    for (FILE* f : {scalars, launches_file, blocks_file, progress_file}) fclose(f);
    begin_stage("done");
    return 0;
}
