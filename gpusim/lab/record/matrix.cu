// Kernels that load one resource each, isolated and in pairs: gpusim/lab/record/matrix.py builds and runs it.
//
//   matrix PLAN FOLDER            times every kernel of PLAN isolated, and all pairs of those that it marks
//   matrix PLAN FOLDER profile    launches each kernel of PLAN, once of them in the range of a profiler
//
// A line of PLAN is `KERNEL WARPS TURNS PAIRED`: a name of `KERNELS` below; warps on each scheduler of an SM, which is
// also the blocks of the kernel on an SM, of 128 threads each; how often a block's loop turns in each of its segments, 0
// to calibrate it to an isolated time of about `TARGET_US`; and 1 where pairs of the kernel are timed. Writes into FOLDER
//   device.csv     name,value               the GPU
//   kernels.csv    one row for each line of PLAN
//   isolated.csv   one row for each isolated run, with the times at which each 16th of the kernel's work was done
//   pairs.csv      one row for each run of a pair
//
// All kernels use the same carve-out of shared memory, and each has room for twice its blocks on an SM: half of the
// SM's shared memory, threads and registers at most. So two kernels that share the SMs both have all their blocks
// resident at once, and a kernel on half of the SMs has twice as many on each. Kernels start behind a flag in host
// memory, the second of a pair `LATER_US` after the first, which so has the older blocks. Times are by %globaltimer.
// Exit status 3: no usable GPU.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "check.cuh"
#include "device.cuh"

constexpr int SEGMENTS = 16;  // of a block's work; a warp of it leaves a time stamp after each
constexpr int THREADS = 128;  // of a block: a warp for each scheduler
constexpr int WARPS = THREADS / 32;
constexpr int UNROLLED = 64;  // arithmetic instructions in a turn of the loop
constexpr u64 KIB = 1024, MIB = 1024 * KIB;
constexpr u64 CARVE_OUT = 132 * KIB;  // of an SM's 256 KiB; the rest is L1
constexpr u64 BUFFER = 2048 * MIB;    // read, and as much written, by each kernel of a pair
constexpr double TARGET_US = 200;
constexpr double LATER_US = 5;
constexpr int ISOLATED_RUNS = 5, PAIR_RUNS = 3;
constexpr double LIMIT_S = 300;  // for the pairs; those that are left over are not timed
constexpr int MOST_BLOCKS_PER_SM = 16;

struct Block {
    u64 start_ns, end_ns;
    long long cycles;
    u32 sm, unused;
};

struct Args {
    long long turns;
    Block* blocks;
    u64* stamps;  // [blocks][SEGMENTS]
    const char* in;
    char* out;
    u64 offset, mask;  // of bytes in `in` and `out`: where to start, and the size of the set less one
    int shift;         // of 32 random bits, to get a line of the set
    float x;           // below 1
    u32 zero, random;  // unknown to the compiler
};

extern __shared__ uint4 shared_memory[];

__device__ __forceinline__ u32 shared_address() { return (u32)__cvta_generic_to_shared(shared_memory); }

// ---- what a block does: start (the constructor), a turn of its loop, and a value that depends on all of it -----------

// Arithmetic: CHAINS independent chains of one instruction. `v` is a chain's value, `x` an operand.
enum class Op { FMA, FP64, HALF2, IMAD, PRMT, RSQRT };

template <Op OP, int CHAINS>
struct Arithmetic {
    using Value = std::conditional_t<OP == Op::FP64, double,
                                     std::conditional_t<OP == Op::FMA || OP == Op::RSQRT, float, u32>>;
    static constexpr int BLOCKS = 16;
    Value v[CHAINS], x;

    __device__ explicit Arithmetic(const Args& a) {
        x = std::is_same_v<Value, u32> ? (Value)a.random : (Value)a.x;
        if (OP == Op::HALF2) x = (Value)((a.random & 0x83ff83ffu) | 0x38003800u);
        if (OP == Op::PRMT) x = (Value)(a.random & 0x7777u);
#pragma unroll
        for (int j = 0; j < CHAINS; j++) v[j] = (Value)(threadIdx.x + j + 1);
    }
    __device__ void turn(const Args&) {
#pragma unroll
        for (int u = 0; u < UNROLLED; u++) {
            Value& w = v[u % CHAINS];
            if constexpr (OP == Op::FMA) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(w) : "f"(x));
            if constexpr (OP == Op::FP64) asm volatile("fma.rn.f64 %0, %0, %1, %1;" : "+d"(w) : "d"(x));
            if constexpr (OP == Op::HALF2) asm volatile("fma.rn.f16x2 %0, %0, %1, %1;" : "+r"(w) : "r"(x));
            if constexpr (OP == Op::IMAD) asm volatile("mad.lo.u32 %0, %0, %1, %1;" : "+r"(w) : "r"(x));
            if constexpr (OP == Op::PRMT) asm volatile("prmt.b32 %0, %0, %1, %1;" : "+r"(w) : "r"(x));
            if constexpr (OP == Op::RSQRT) asm volatile("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(w));
        }
    }
    __device__ u32 result() const {
        Value sum = v[0];
#pragma unroll
        for (int j = 1; j < CHAINS; j++) sum += v[j];
        return (u32)sum;
    }
};

// Tensor cores by warp (mma.sync): CHAINS independent accumulators.
enum class Type { FP16, BF16, TF32, INT8 };

template <Type TYPE, int CHAINS>
struct Mma {
    using Value = std::conditional_t<TYPE == Type::INT8, int, float>;
    static constexpr int BLOCKS = 16, PRODUCTS = 16;
    Value c[CHAINS][4] = {};
    u32 a[4], b[2];

    __device__ explicit Mma(const Args& args) {
        constexpr u32 keep = TYPE == Type::FP16 ? 0x83ff83ffu : TYPE == Type::BF16 ? 0x807f807fu
                                                            : TYPE == Type::TF32  ? 0x807fffffu
                                                                                  : 0xffffffffu;
        constexpr u32 set = TYPE == Type::FP16 ? 0x38003800u : TYPE == Type::BF16 ? 0x3f003f00u
                                                           : TYPE == Type::TF32  ? 0x3f000000u
                                                                                 : 0u;
#pragma unroll
        for (int j = 0; j < 4; j++) a[j] = (hash(args.random + threadIdx.x * 8 + j) & keep) | set;
#pragma unroll
        for (int j = 0; j < 2; j++) b[j] = (hash(args.random + threadIdx.x * 8 + 4 + j) & keep) | set;
    }
#define MMA(SHAPE, TYPES, LETTER)                                                                                  \
    asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+" LETTER(d[0]), "+" LETTER(d[1]), "+" LETTER(d[2]), "+" LETTER(d[3])                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    __device__ void turn(const Args&) {
#pragma unroll
        for (int u = 0; u < PRODUCTS; u++) {
            Value(&d)[4] = c[u % CHAINS];
            if constexpr (TYPE == Type::FP16) MMA("m16n8k16", "f32.f16.f16.f32", "f");
            if constexpr (TYPE == Type::BF16) MMA("m16n8k16", "f32.bf16.bf16.f32", "f");
            if constexpr (TYPE == Type::TF32) MMA("m16n8k8", "f32.tf32.tf32.f32", "f");
            if constexpr (TYPE == Type::INT8) MMA("m16n8k32", "s32.s8.s8.s32", "r");
        }
    }
    __device__ u32 result() const {
        Value sum = 0;
#pragma unroll
        for (int j = 0; j < CHAINS; j++) sum += c[j][0] + c[j][1] + c[j][2] + c[j][3];
        return (u32)sum;
    }
};

// Tensor cores by four warps together (wgmma), operands in shared memory. Compute capability 9.0 alone has it.
struct Wgmma {
    static constexpr int BLOCKS = 8;
    float c[32] = {};
    u64 a, b;

    __device__ explicit Wgmma(const Args& args) {
        u32* words = reinterpret_cast<u32*>(shared_memory);
        for (int i = threadIdx.x; i < 1024; i += THREADS) words[i] = (hash(args.random + i) & 0x83ff83ffu) | 0x38003800u;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        __syncthreads();
        a = descriptor(shared_address());
        b = descriptor(shared_address() + 2048);
    }
    // Of 64 rows of 16 FP16 numbers in 2 KiB, as blocks of 8 rows of 16 bytes: two in a row of 256 bytes.
    static __device__ u64 descriptor(u32 address) {
        return (u64)(address >> 4 & 0x3fff) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
    }
    __device__ void turn(const Args&) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int u = 0; u < 4; u++)
            asm volatile(
                "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}\n"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]),
                  "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]),
                  "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]),
                  "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
                : "l"(a), "l"(b));
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
    }
    __device__ u32 result() const {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 32; j++) sum += c[j];
        return (u32)sum;
    }
};

// Shared memory: lanes STRIDE words apart, so that STRIDE lanes (a power of two) meet in a bank.
template <int STRIDE>
struct SharedRead {
    static constexpr int BLOCKS = 16;
    u32 address, sum = 0;

    __device__ explicit SharedRead(const Args& a) {
        u32* words = reinterpret_cast<u32*>(shared_memory);
        for (int i = threadIdx.x; i < 1024; i += THREADS) words[i] = hash(a.random + i);
        __syncthreads();
        address = shared_address() + threadIdx.x % 32 * STRIDE * 4;
    }
    __device__ void turn(const Args&) {
        u32 v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v[j]) : "r"(address));
#pragma unroll
        for (int j = 0; j < 8; j++) sum ^= v[j] + j;
    }
    __device__ u32 result() const { return sum; }
};

// 16 bytes a lane, IN_FLIGHT of them before the first is used. In L1 (L1) every warp goes through the whole set; beyond
// it all warps of the kernel together do.
enum class Kind { READ, WRITE, COPY };

template <Kind KIND, bool L1, int IN_FLIGHT>
struct Stream {
    static constexpr int BLOCKS = KIND == Kind::COPY && IN_FLIGHT > 1 ? 8 : 16;  // by the registers that it needs
    u64 at;
    u32 step, sum = 0;

    __device__ explicit Stream(const Args& a) {
        step = L1 ? 512 : gridDim.x * WARPS * 512;
        at = a.offset + ((u64)blockIdx.x * THREADS + threadIdx.x) * 16;
    }
    __device__ void turn(const Args& a) {
        uint4 v[IN_FLIGHT];
        if constexpr (KIND != Kind::WRITE) {
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; j++) {
                const char* from = a.in + ((at + (u64)j * step) & a.mask);
                if constexpr (L1)
                    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                                 : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                                 : "l"(from));
                else
                    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                                 : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                                 : "l"(from));
            }
        }
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            if constexpr (KIND == Kind::READ) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
            if constexpr (KIND == Kind::WRITE) v[j] = {a.random, (u32)at, a.random, step};
            if constexpr (KIND != Kind::READ)
                asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(a.out + ((at + (u64)j * step) & a.mask)),
                             "r"(v[j].x), "r"(v[j].y), "r"(v[j].z), "r"(v[j].w)
                             : "memory");
        }
        at += (u64)IN_FLIGHT * step;
    }
    __device__ u32 result() const { return sum; }
};

// Each load's address depends on the load before: a random line of the set, the same for all lanes of a warp.
template <bool L1>
struct Chase {
    static constexpr int BLOCKS = 16;
    u32 at;

    __device__ explicit Chase(const Args& a) { at = hash(a.random + blockIdx.x * WARPS + threadIdx.x / 32); }
    __device__ void turn(const Args& a) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const char* from = a.in + (u64)(at >> a.shift) * 128;
            u32 loaded;
            if constexpr (L1)
                asm volatile("ld.global.u32 %0, [%1];" : "=r"(loaded) : "l"(from));
            else
                asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(loaded) : "l"(from));
            at = at * 1664525u + 1013904223u + loaded * a.zero;
        }
    }
    __device__ u32 result() const { return at; }
};

// Additions to memory: of a line a warp without (RED) and with (ATOM) return; of all warps to one word, once a warp, for
// the compiler adds up its lanes (SAME); to words of shared memory, each lane's own (SHARED).
enum class Add { RED, ATOM, SAME, SHARED };

template <Add ADD>
struct Atomic {
    static constexpr int BLOCKS = 16;
    u64 at;
    u32 step, address, sum = 0;

    __device__ explicit Atomic(const Args&) {
        step = gridDim.x * WARPS * 128;
        at = ((u64)blockIdx.x * THREADS + threadIdx.x) * 4;
        reinterpret_cast<u32*>(shared_memory)[threadIdx.x] = 0;
        address = shared_address() + threadIdx.x * 4;
        __syncthreads();
    }
    __device__ void turn(const Args& a) {
        constexpr int count = ADD == Add::SAME ? 1 : 4;
        u32 v[count] = {};
#pragma unroll
        for (int j = 0; j < count; j++) {
            char* to = a.out + (ADD == Add::SAME ? 0 : (at + (u64)j * step) & a.mask);
            if constexpr (ADD == Add::ATOM)
                asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(v[j]) : "l"(to), "r"(a.random) : "memory");
            else if constexpr (ADD == Add::SHARED)
                asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(address), "r"(a.random) : "memory");
            else
                asm volatile("red.global.add.u32 [%0], %1;" ::"l"(to), "r"(a.random) : "memory");
        }
#pragma unroll
        for (int j = 0; j < count; j++) sum ^= v[j];
        at += (u64)count * step;
    }
    __device__ u32 result() const { return sum; }
};

// Barriers of the block with one addition between two.
struct Barrier {
    static constexpr int BLOCKS = 16;
    float v;

    __device__ explicit Barrier(const Args&) { v = threadIdx.x; }
    __device__ void turn(const Args& a) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(v) : "f"(a.x));
            asm volatile("bar.sync 0;" ::: "memory");
        }
    }
    __device__ u32 result() const { return (u32)v; }
};

// A store that the whole GPU sees before the next.
struct Fence {
    static constexpr int BLOCKS = 16;

    __device__ explicit Fence(const Args&) {}
    __device__ void turn(const Args& a) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(a.out + ((u64)blockIdx.x * THREADS + threadIdx.x) * 4), "r"(a.random)
                     : "memory");
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
    __device__ u32 result() const { return 0; }
};

struct Sleep {
    static constexpr int BLOCKS = 16;

    __device__ explicit Sleep(const Args&) {}
    __device__ void turn(const Args&) { asm volatile("nanosleep.u32 1000;" ::: "memory"); }
    __device__ u32 result() const { return 0; }
};

template <class Load>
__global__ void __launch_bounds__(THREADS, Load::BLOCKS) load(Args a) {
    const u64 start_ns = globaltimer();
    const long long start = clock64();
    Load work(a);
#pragma unroll 1
    for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll 1
        for (long long i = 0; i < a.turns; i++) work.turn(a);
        if (threadIdx.x == blockIdx.x % WARPS * 32) a.stamps[(u64)blockIdx.x * SEGMENTS + s] = globaltimer();
    }
    if (work.result() == 0x12345678u && a.zero) *reinterpret_cast<u32*>(a.out) = 1;
    __syncthreads();
    if (threadIdx.x == 0) a.blocks[blockIdx.x] = {start_ns, globaltimer(), clock64() - start, smid(), 0};
}

__global__ void fill(u32* words, u64 count) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x)
        words[i] = hash((u32)i);
}

using Code = void (*)(Args);

struct Kernel {
    const char* name;
    Code code;
    u64 bytes;  // of the set that it reads or writes; a power of two
};

template <Kind KIND, int IN_FLIGHT>
constexpr Code beyond_l1 = load<Stream<KIND, false, IN_FLIGHT>>;

static const Kernel KERNELS[] = {
    {"fma1", load<Arithmetic<Op::FMA, 1>>, 0},
    {"fma2", load<Arithmetic<Op::FMA, 2>>, 0},
    {"fma4", load<Arithmetic<Op::FMA, 4>>, 0},
    {"fp64_1", load<Arithmetic<Op::FP64, 1>>, 0},
    {"fp64_4", load<Arithmetic<Op::FP64, 4>>, 0},
    {"half1", load<Arithmetic<Op::HALF2, 1>>, 0},
    {"half4", load<Arithmetic<Op::HALF2, 4>>, 0},
    {"imad1", load<Arithmetic<Op::IMAD, 1>>, 0},
    {"imad4", load<Arithmetic<Op::IMAD, 4>>, 0},
    {"alu1", load<Arithmetic<Op::PRMT, 1>>, 0},
    {"alu4", load<Arithmetic<Op::PRMT, 4>>, 0},
    {"special1", load<Arithmetic<Op::RSQRT, 1>>, 0},
    {"special4", load<Arithmetic<Op::RSQRT, 4>>, 0},
    {"mma_fp16", load<Mma<Type::FP16, 2>>, 0},
    {"mma_bf16", load<Mma<Type::BF16, 2>>, 0},
    {"mma_tf32", load<Mma<Type::TF32, 2>>, 0},
    {"mma_int8", load<Mma<Type::INT8, 2>>, 0},
    {"wgmma", load<Wgmma>, 0},
    {"shared", load<SharedRead<1>>, 0},
    {"shared_2way", load<SharedRead<2>>, 0},
    {"shared_8way", load<SharedRead<8>>, 0},
    {"shared_32way", load<SharedRead<32>>, 0},
    {"l1_16k", load<Stream<Kind::READ, true, 4>>, 16 * KIB},
    {"l1_64k", load<Stream<Kind::READ, true, 4>>, 64 * KIB},
    {"l2_4m", beyond_l1<Kind::READ, 4>, 4 * MIB},
    {"l2_16m", beyond_l1<Kind::READ, 4>, 16 * MIB},
    {"l2_32m", beyond_l1<Kind::READ, 4>, 32 * MIB},
    {"l2_write", beyond_l1<Kind::WRITE, 4>, 8 * MIB},
    {"dram_read1", beyond_l1<Kind::READ, 1>, BUFFER},
    {"dram_read4", beyond_l1<Kind::READ, 4>, BUFFER},
    {"dram_write1", beyond_l1<Kind::WRITE, 1>, BUFFER},
    {"dram_write4", beyond_l1<Kind::WRITE, 4>, BUFFER},
    {"dram_copy1", beyond_l1<Kind::COPY, 1>, BUFFER},
    {"dram_copy4", beyond_l1<Kind::COPY, 4>, BUFFER},
    {"red", load<Atomic<Add::RED>>, 4 * MIB},
    {"atom", load<Atomic<Add::ATOM>>, 4 * MIB},
    {"red_same", load<Atomic<Add::SAME>>, 4 * MIB},
    {"red_shared", load<Atomic<Add::SHARED>>, 4 * MIB},
    {"barrier", load<Barrier>, 0},
    {"fence", load<Fence>, 0},
    {"sleep", load<Sleep>, 0},
    {"chase_l1", load<Chase<true>>, 16 * KIB},
    {"chase_l2", load<Chase<false>>, 8 * MIB},
    {"chase_dram", load<Chase<false>>, 1024 * MIB},
};

// ---- the host --------------------------------------------------------------------------------------------------------

struct Cell {
    std::string name;
    const Kernel* kernel;
    int warps;  // on a scheduler; blocks on an SM
    long long turns;
    bool paired;
    int blocks, shared_bytes, registers, fits;
};

// A run of one kernel.
struct Run {
    std::vector<Block> blocks;
    std::vector<u64> stamps;

    u64 start_ns() const {
        return std::min_element(blocks.begin(), blocks.end(), [](auto& a, auto& b) { return a.start_ns < b.start_ns; })
            ->start_ns;
    }
    u64 last_start_ns() const {
        return std::max_element(blocks.begin(), blocks.end(), [](auto& a, auto& b) { return a.start_ns < b.start_ns; })
            ->start_ns;
    }
    u64 end_ns() const {
        return std::max_element(blocks.begin(), blocks.end(), [](auto& a, auto& b) { return a.end_ns < b.end_ns; })
            ->end_ns;
    }
    // Mean clock of the SMs.
    double mhz() const {
        double sum = 0;
        for (const Block& b : blocks) sum += 1e3 * b.cycles / std::max<u64>(1, b.end_ns - b.start_ns);
        return sum / blocks.size();
    }
    std::set<u32> sms() const {
        std::set<u32> found;
        for (const Block& b : blocks) found.insert(b.sm);
        return found;
    }
    int most_on_an_sm() const {
        std::vector<int> count(1024);
        int most = 0;
        for (const Block& b : blocks) most = std::max(most, ++count[b.sm % 1024]);
        return most;
    }
    // Part of the kernel's work that is done at a time: the mean over one warp of each block.
    double done(u64 ns) const {
        double sum = 0;
        for (size_t i = 0; i < blocks.size(); i++) {
            u64 from = blocks[i].start_ns;
            for (int s = 0; s < SEGMENTS; s++) {
                const u64 to = stamps[i * SEGMENTS + s];
                if (ns < to) {
                    sum += ns > from ? double(ns - from) / double(to - from) / SEGMENTS : 0;
                    break;
                }
                sum += 1.0 / SEGMENTS;
                from = to;
            }
        }
        return sum / blocks.size();
    }
    // When a part of its work is done, to 50 ns.
    u64 done_at_ns(double part) const {
        u64 low = start_ns(), high = end_ns();
        while (high - low > 50) {
            const u64 middle = low + (high - low) / 2;
            (done(middle) < part ? low : high) = middle;
        }
        return high;
    }
};

static double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// The GPU, and what every launch needs.
class Device {
  public:
    int sms = 0;
    cudaDeviceProp properties;
    std::vector<cudaStream_t> all;    // two streams on all SMs
    std::vector<cudaStream_t> parts;  // a stream on each half of the SMs

    Device() {
        CHECK(cudaSetDevice(0));
        CHECK(cudaGetDeviceProperties(&properties, 0));
        sms = properties.multiProcessorCount;
        all.resize(2);
        for (cudaStream_t& stream : all) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (Slot& slot : slots_) {
            CHECK(cudaMalloc(&slot.in, BUFFER));
            CHECK(cudaMalloc(&slot.out, BUFFER));
            CHECK(cudaMalloc(&slot.blocks, sizeof(Block) * sms * MOST_BLOCKS_PER_SM));
            CHECK(cudaMalloc(&slot.stamps, sizeof(u64) * sms * MOST_BLOCKS_PER_SM * SEGMENTS));
            fill<<<4 * sms, 256>>>(reinterpret_cast<u32*>(slot.in), BUFFER / 4);
            CHECK(cudaGetLastError());
            CHECK(cudaMemset(slot.out, 0, BUFFER));
        }
        void *host, *device;
        CHECK(cudaHostAlloc(&host, 2 * sizeof(u32), cudaHostAllocMapped));
        CHECK(cudaHostGetDevicePointer(&device, host, 0));
        flags_ = static_cast<volatile u32*>(host);
        device_flags_ = reinterpret_cast<CUdeviceptr>(device);
        CHECK(cudaDeviceSynchronize());
    }

    // Two sets of SMs, halves where the driver makes these.
    void split() {
        CUdevice device;
        CUdevResource whole, first, rest;
        CHECK(cuDeviceGet(&device, 0));
        CHECK(cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
        u32 groups = 1;
        const u32 half = (sms + 1) / 2;
        if (cuDevSmResourceSplitByCount(&first, &groups, &whole, &rest, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING,
                                        half) != CUDA_SUCCESS ||
            groups != 1 || rest.sm.smCount == 0) {
            groups = 1;
            CHECK(cuDevSmResourceSplitByCount(&first, &groups, &whole, &rest, 0, half / 8 * 8));
        }
        for (CUdevResource* part : {&first, &rest}) {
            CUdevResourceDesc description;
            CUgreenCtx context;
            CUstream stream;
            CHECK(cuDevResourceGenerateDesc(&description, part, 1));
            CHECK(cuGreenCtxCreate(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
            CHECK(cuGreenCtxStreamCreate(&stream, context, CU_STREAM_NON_BLOCKING, 0));
            parts.push_back(stream);
        }
    }

    void prepare(Cell& cell) const {
        cudaFuncAttributes attributes;
        CHECK(cudaFuncGetAttributes(&attributes, cell.kernel->code));
        cell.registers = attributes.numRegs;
        cell.blocks = sms * cell.warps;
        const int room = std::min(2 * cell.warps, MOST_BLOCKS_PER_SM);
        cell.shared_bytes = int(CARVE_OUT / room / 128 * 128 - properties.reservedSharedMemPerBlock);
        const int percent = int(CARVE_OUT * 100 / properties.sharedMemPerMultiprocessor);
        const int most = int(CARVE_OUT / 2 - properties.reservedSharedMemPerBlock);
        CHECK(cudaFuncSetAttribute(cell.kernel->code, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
        CHECK(cudaFuncSetAttribute(cell.kernel->code, cudaFuncAttributePreferredSharedMemoryCarveout, percent));
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&cell.fits, cell.kernel->code, THREADS, cell.shared_bytes));
    }

    void launch(const Cell& cell, int slot, cudaStream_t stream) {
        Slot& own = slots_[slot];
        Args a = {};
        a.turns = cell.turns;
        a.blocks = own.blocks;
        a.stamps = own.stamps;
        a.in = own.in;
        a.out = own.out;
        a.mask = std::max<u64>(1, cell.kernel->bytes) - 1;
        a.offset = cell.kernel->bytes == BUFFER ? own.launches++ % 2 * (BUFFER / 2) : 0;  // not what L2 holds
        a.shift = 32;
        for (u64 lines = cell.kernel->bytes / 128; lines > 1; lines /= 2) a.shift--;
        if (a.shift == 32) a.shift = 31;  // no set
        a.x = 0.999f;
        a.zero = 0;
        a.random = 2463534243u;
        cell.kernel->code<<<cell.blocks, THREADS, cell.shared_bytes, stream>>>(a);
        CHECK(cudaGetLastError());
    }

    // Runs cells behind the flags, the second later than the first; both in `runs`.
    void run(const std::vector<const Cell*>& cells, const std::vector<cudaStream_t>& streams) {
        for (size_t i = 0; i < cells.size(); i++) {
            flags_[i] = 0;
            CHECK(cuStreamWaitValue32(streams[i], device_flags_ + i * sizeof(u32), 1, CU_STREAM_WAIT_VALUE_GEQ));
            launch(*cells[i], int(i), streams[i]);
        }
        flags_[0] = 1;
        for (const double begin = now_us(); now_us() - begin < LATER_US;) {
        }
        flags_[1] = 1;
        for (size_t i = 0; i < cells.size(); i++) CHECK(cudaStreamSynchronize(streams[i]));
        for (size_t i = 0; i < cells.size(); i++) {
            runs[i].blocks.resize(cells[i]->blocks);
            runs[i].stamps.resize(size_t(cells[i]->blocks) * SEGMENTS);
            CHECK(cudaMemcpy(runs[i].blocks.data(), slots_[i].blocks, runs[i].blocks.size() * sizeof(Block),
                             cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpy(runs[i].stamps.data(), slots_[i].stamps, runs[i].stamps.size() * sizeof(u64),
                             cudaMemcpyDeviceToHost));
        }
    }

    double isolated_us(const Cell& cell) {
        run({&cell}, {all[0]});
        return (runs[0].end_ns() - runs[0].start_ns()) / 1e3;
    }

    Run runs[2];

  private:
    struct Slot {
        char *in, *out;
        Block* blocks;
        u64* stamps;
        u64 launches;
    };
    Slot slots_[2] = {};
    volatile u32* flags_;
    CUdeviceptr device_flags_;
};

static std::vector<Cell> read_plan(const char* path) {
    std::vector<Cell> cells;
    std::ifstream file(path);
    std::string line;
    while (getline(file, line)) {
        std::istringstream fields(line);
        Cell cell = {};
        fields >> cell.name >> cell.warps >> cell.turns >> cell.paired;
        for (const Kernel& kernel : KERNELS)
            if (cell.name == kernel.name) cell.kernel = &kernel;
        if (!fields || !cell.kernel || cell.warps < 1 || cell.warps > MOST_BLOCKS_PER_SM)
            fail(path, line.c_str(), __FILE__, __LINE__);
        cell.name += "/" + std::to_string(cell.warps);
        cells.push_back(cell);
    }
    return cells;
}

static FILE* table(const std::string& folder, const char* name, const std::string& columns) {
    FILE* file = fopen((folder + "/" + name).c_str(), "w");
    if (!file) fail(name, "cannot be written", __FILE__, __LINE__);
    fprintf(file, "%s\n", columns.c_str());
    return file;
}

static void calibrate(Device& gpu, Cell& cell) {
    if (cell.turns > 0) return;
    cell.turns = 1;
    double us = gpu.isolated_us(cell);  // of a cold one: the next is what counts
    for (us = gpu.isolated_us(cell); us < TARGET_US / 4 && cell.turns < 1 << 24; us = gpu.isolated_us(cell))
        cell.turns *= 2;
    for (int i = 0; i < 2; i++) {
        cell.turns = std::max(1ll, (long long)(cell.turns * TARGET_US / us + 0.5));
        us = gpu.isolated_us(cell);
    }
}

static void isolated(Device& gpu, const std::vector<Cell>& cells, FILE* file) {
    const struct {
        const char* name;
        cudaStream_t stream;
    } places[] = {{"all", gpu.all[0]}, {"first", gpu.parts[0]}, {"second", gpu.parts[1]}};
    for (const Cell& cell : cells)
        for (const auto& place : places)
            for (int run = -1; run < ISOLATED_RUNS; run++) {
                if (!cell.paired && place.stream != gpu.all[0]) continue;
                gpu.run({&cell}, {place.stream});
                if (run < 0) continue;
                const Run& seen = gpu.runs[0];
                const u64 start = seen.start_ns();
                fprintf(file, "%s,%s,%d,%zu,%d,%.2f,%.2f,%.1f", cell.name.c_str(), place.name, run, seen.sms().size(),
                        seen.most_on_an_sm(), (seen.last_start_ns() - start) / 1e3, (seen.end_ns() - start) / 1e3,
                        seen.mhz());
                for (int s = 1; s <= SEGMENTS; s++)
                    fprintf(file, ",%.2f", (seen.done_at_ns(double(s) / SEGMENTS) - start) / 1e3);
                fprintf(file, "\n");
            }
    fflush(file);
}

static void pair(Device& gpu, const Cell& a, const Cell& b, const char* placement,
                 const std::vector<cudaStream_t>& streams, FILE* file) {
    for (int run = -1; run < PAIR_RUNS; run++) {
        gpu.run({&a, &b}, streams);
        if (run < 0) continue;
        const Run &first = gpu.runs[0], &second = gpu.runs[1];
        const u64 origin = first.start_ns(), begin = std::max(origin, second.start_ns());
        const u64 end = std::max(begin, std::min(first.end_ns(), second.end_ns()));
        const auto us = [origin](u64 ns) { return double((long long)(ns - origin)) / 1e3; };
        const std::set<u32> first_sms = first.sms(), second_sms = second.sms();
        size_t shared = 0;
        for (u32 sm : first_sms) shared += second_sms.count(sm);
        fprintf(file, "%s,%s,%s,%d,%.2f,%.2f,%.2f,%.2f,%.4f,%.4f,%.4f,%.4f,%.1f,%.1f,%zu,%zu,%zu,%d,%d\n",
                a.name.c_str(), b.name.c_str(), placement, run, us(first.end_ns()), us(second.start_ns()),
                us(second.last_start_ns()), us(second.end_ns()), first.done(begin), first.done(end),
                second.done(begin), second.done(end), first.mhz(), second.mhz(), first_sms.size(),
                second_sms.size(), shared, first.most_on_an_sm(), second.most_on_an_sm());
    }
}

static void pairs(Device& gpu, const std::vector<Cell>& cells, FILE* file) {
    const double begin = now_us();
    int left_out = 0;
    for (size_t i = 0; i < cells.size(); i++)
        for (size_t j = i; j < cells.size(); j++) {
            if (!cells[i].paired || !cells[j].paired) continue;
            if (now_us() - begin > LIMIT_S * 1e6) {
                left_out++;
                continue;
            }
            pair(gpu, cells[i], cells[j], "same", gpu.all, file);
            pair(gpu, cells[i], cells[j], "disjoint", gpu.parts, file);
            if (i == j) continue;
            pair(gpu, cells[j], cells[i], "same", gpu.all, file);
            pair(gpu, cells[j], cells[i], "disjoint", gpu.parts, file);
        }
    fprintf(stderr, "pairs: %.0f s, %d of them left out\n", (now_us() - begin) / 1e6, left_out);
}

static void describe(const Device& gpu, const std::string& folder) {
    FILE* file = table(folder, "device.csv", "name,value");
    int clock_khz = 0, driver = 0, runtime = 0;
    CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    fprintf(file, "device,%s\nsm_count,%d\nclock_mhz,%d\nl2_bytes,%d\ndriver,%d\nruntime,%d\n", gpu.properties.name,
            gpu.sms, clock_khz / 1000, gpu.properties.l2CacheSize, driver, runtime);
    fclose(file);
}

int main(int count, char** arguments) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // loading may wait for the GPU, whose streams wait for a flag
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    if (count < 3) fail("matrix", "expected PLAN FOLDER [profile]", __FILE__, __LINE__);
    std::vector<Cell> cells = read_plan(arguments[1]);
    const std::string folder = arguments[2];
    Device gpu;
    for (Cell& cell : cells) gpu.prepare(cell);
    if (count == 4 && !strcmp(arguments[3], "profile")) {
        for (const Cell& cell : cells) {
            gpu.launch(cell, 0, gpu.all[0]);  // so that L2 holds of its set what it can
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaProfilerStart());
            gpu.launch(cell, 0, gpu.all[0]);
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaProfilerStop());
        }
        return 0;
    }
    gpu.split();
    describe(gpu, folder);
    Cell warm_up = cells.front();
    warm_up.turns = 1000;
    for (const double begin = now_us(); now_us() - begin < 3e5;) gpu.isolated_us(warm_up);
    for (Cell& cell : cells) calibrate(gpu, cell);
    FILE* file = table(folder, "kernels.csv", "kernel,warps_per_scheduler,turns,blocks,threads,registers,shared_bytes,"
                                              "fits_per_sm,set_bytes,paired");
    for (const Cell& cell : cells)
        fprintf(file, "%s,%d,%lld,%d,%d,%d,%d,%d,%llu,%d\n", cell.name.c_str(), cell.warps, cell.turns, cell.blocks,
                THREADS, cell.registers, cell.shared_bytes, cell.fits, cell.kernel->bytes, int(cell.paired));
    fclose(file);
    std::string columns = "kernel,placement,run,sms,most_blocks_per_sm,last_start_us,us,mhz";
    for (int s = 1; s <= SEGMENTS; s++) columns += ",done_" + std::to_string(s) + "_us";
    file = table(folder, "isolated.csv", columns);
    isolated(gpu, cells, file);
    fclose(file);
    file = table(folder, "pairs.csv",
                 "first,second,placement,run,first_end_us,second_start_us,second_last_start_us,second_end_us,"
                 "first_done_before,first_done_after,second_done_before,second_done_after,first_mhz,second_mhz,"
                 "first_sms,second_sms,shared_sms,first_most_blocks_per_sm,second_most_blocks_per_sm");
    pairs(gpu, cells, file);
    fclose(file);
    return 0;
}
