// How long does a read take beside a kernel that keeps many reads in flight? nvcc -std=c++17 -arch=native in_flight.cu
//
// One warp follows pointers through memory that no cache holds, or that L2 holds. A kernel beside it copies memory to
// shared memory (cp.async): one block per SM with so many bytes in flight. The warp shares an SM with one of its blocks
// or has an SM of its own. Columns: what both read, SMs of the other kernel, its bytes in flight on each, where the warp
// runs, GB/s of the other kernel, ns per read of the warp, and per read of the other kernel (bytes in flight over rate).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>
#define CHECK(x)                                                                        \
    do {                                                                                \
        cudaError_t r_ = (x);                                                           \
        if (r_) {                                                                       \
            fprintf(stderr, "%s:%d %s\n", #x, __LINE__, cudaGetErrorString(r_));        \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)
typedef unsigned long long ull;
static const int THREADS = 256, STEPS = 512, TIMES = 7;
static const int WIDE = 200 * 1024, HALF = 120 * 1024;  // bytes of shared memory that keep other blocks off an SM

template <int STAGES, int EACH>
__global__ void copies(const char* from, size_t bytes, volatile ull* stop, ull* moved) {
    extern __shared__ char held[];
    const size_t stage = size_t(EACH) * THREADS * 16, stages = bytes / stage;
    size_t at = blockIdx.x;
    ull done = 0;
    int slot = 0;
    auto issue = [&]() {
        for (int i = 0; i < EACH; i++) {
            const size_t byte = (size_t(i) * THREADS + threadIdx.x) * 16;
            unsigned to = (unsigned)__cvta_generic_to_shared(held + slot * stage + byte);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + at * stage + byte));
        }
        asm volatile("cp.async.commit_group;");
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        at += gridDim.x;
        if (at >= stages) at = blockIdx.x;
        done++;
    };
    for (int i = 0; i < STAGES; i++) issue();
    while (true) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1));
        if (done % 16 == 0 && *stop) break;
        issue();
    }
    asm volatile("cp.async.wait_all;");
    if (threadIdx.x == 0) atomicAdd(moved, done * stage);
}

__global__ void follow(const ull* chain, volatile int* go, volatile int* ready, ull* out) {
    ull at = out[1], begin, end;  // goes on where it ended
    *ready = 1;
    __threadfence_system();
    while (!*go) __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    for (int i = 0; i < STEPS; i++) asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"(chain + at));
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end));
    out[0] = end - begin;
    out[1] = at;
}

static ull* chain_of(size_t bytes) {  // pointers 512 bytes apart, in one random circle
    const size_t stride = 64, count = bytes / (stride * 8);
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; i++) order[i] = i;
    srand(1);
    for (size_t i = count - 1; i > 0; i--) std::swap(order[i], order[(ull(rand()) << 15 ^ rand()) % (i + 1)]);
    std::vector<ull> links(bytes / 8);
    for (size_t i = 0; i < count; i++) links[order[i] * stride] = order[(i + 1) % count] * stride;
    ull* chain;
    CHECK(cudaMalloc(&chain, bytes));
    CHECK(cudaMemcpy(chain, links.data(), bytes, cudaMemcpyHostToDevice));
    return chain;
}

static volatile int* flags;
static int* flags_dev;
static ull *moved, *out;
static char* data;
static int sms;
static cudaStream_t one, two;

static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static double followed_ns() {
    ull ns;
    CHECK(cudaMemcpy(&ns, out, 8, cudaMemcpyDeviceToHost));
    return double(ns) / STEPS;
}

template <int STAGES, int EACH>
void beside(const char* reads, size_t bytes, const ull* chain, bool same, int blocks) {
    const int in_flight = STAGES * EACH * THREADS * 16, shared = std::max(HALF, in_flight);
    CHECK(cudaFuncSetAttribute(copies<STAGES, EACH>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    std::vector<double> ns, rates;
    for (int i = 0; i < TIMES; i++) {
        flags[0] = flags[1] = 0;
        CHECK(cudaMemset(moved, 0, 16));
        follow<<<1, 1, same ? 0 : WIDE, one>>>(chain, flags_dev, flags_dev + 1, out);
        while (!flags[1]) {
        }
        cudaEvent_t begin, end;
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
        CHECK(cudaEventRecord(begin, two));
        copies<STAGES, EACH><<<blocks, THREADS, shared, two>>>(data, bytes, moved + 1, moved);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end, two));
        for (clock_t start = clock(); clock() - start < CLOCKS_PER_SEC / 500;) {  // 2 ms
        }
        flags[0] = 1;
        CHECK(cudaMemsetAsync(moved + 1, 1, 8, one));
        CHECK(cudaDeviceSynchronize());
        float ms;
        ull total;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        CHECK(cudaMemcpy(&total, moved, 8, cudaMemcpyDeviceToHost));
        ns.push_back(followed_ns());
        rates.push_back(total / (ms * 1e6));
    }
    const double rate = median(rates);
    printf("%s,%d,%d,%s,", reads, blocks, in_flight, same ? "the same SM" : "an SM of its own");
    printf("%.0f,%.0f,%.0f\n", rate, median(ns), in_flight * blocks / rate);
}

static void alone(const char* reads, const ull* chain) {
    std::vector<double> ns;
    CHECK(cudaMemset(out, 0, 16));
    flags[0] = 1;
    for (int i = 0; i < 2 * TIMES; i++) {  // first one round of a chain that L2 holds
        follow<<<1, 1, 0, one>>>(chain, flags_dev, flags_dev + 1, out);
        CHECK(cudaDeviceSynchronize());
        if (i >= TIMES) ns.push_back(followed_ns());
    }
    printf("%s,0,0,nothing beside it,0,%.0f,0\n", reads, median(ns));
}

static void all(const char* reads, size_t bytes, const ull* chain) {
    alone(reads, chain);
    for (int blocks : {sms, sms - 1, sms / 2}) {
        const bool same = blocks == sms;
        beside<1, 1>(reads, bytes, chain, same, blocks);
        beside<2, 1>(reads, bytes, chain, same, blocks);
        beside<2, 2>(reads, bytes, chain, same, blocks);
        beside<4, 2>(reads, bytes, chain, same, blocks);
        beside<4, 3>(reads, bytes, chain, same, blocks);
        beside<4, 4>(reads, bytes, chain, same, blocks);
        beside<4, 6>(reads, bytes, chain, same, blocks);
        beside<4, 8>(reads, bytes, chain, same, blocks);
        beside<4, 12>(reads, bytes, chain, same, blocks);
    }
}

int main() {
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    sms = device.multiProcessorCount;
    fprintf(stderr, "%s\n", device.name);
    void *host, *mapped;
    CHECK(cudaHostAlloc(&host, 64, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&mapped, host, 0));
    flags = (volatile int*)host;
    flags_dev = (int*)mapped;
    const size_t large = size_t(2) << 30, small = size_t(12) << 20;
    CHECK(cudaMalloc(&moved, 16));
    CHECK(cudaMalloc(&out, 16));
    CHECK(cudaMalloc(&data, large));
    CHECK(cudaMemset(data, 0, large));
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CHECK(cudaFuncSetAttribute(follow, cudaFuncAttributeMaxDynamicSharedMemorySize, WIDE));
    CHECK(cudaFuncSetAttribute(follow, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    printf("reads,sms,in_flight_bytes_per_sm,where,gb_per_s,ns,own_ns\n");
    all("DRAM", large, chain_of(size_t(256) << 20));
    all("L2", small, chain_of(size_t(1) << 20));
}
