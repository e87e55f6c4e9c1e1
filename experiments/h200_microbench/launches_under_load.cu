// Time from kernel to kernel that follow one another in a stream or in a CUDA graph, while a kernel on other SMs reads
// memory: kernels that do next to nothing, and kernels that spin, whose time is taken off. launches_under_load.csv is what
// it prints:
//     nvcc -O3 -arch=sm_90 -o launches_under_load launches_under_load.cu && ./launches_under_load > launches_under_load.csv
#include <algorithm>
#include <vector>

#include "launches.cuh"

constexpr int COUNT = 400, FIRST = 10, ROUNDS = 7;
constexpr int ALONE_ON_SM = 160 * 1024;  // bytes of shared memory, so that an SM holds one block of the neighbour
constexpr size_t SET = size_t(1) << 30, OWN = 64 * 1024;  // bytes that the neighbour reads, and between data of two kernels

enum Kind { EMPTY, WRITES, READS };
struct Parameters {
    unsigned long long* log;  // null: none
    float* data;
    unsigned spin_ns;
};
struct Mine {
    Kind kind;
    int blocks;
    unsigned spin_ns;
};

template <int KIND> __global__ void tiny(Parameters p) {
    if (KIND == WRITES) p.data[threadIdx.x] = 1.0f;
    if (KIND == READS && __ldcg(p.data + threadIdx.x) == 1.2345f) p.data[0] = 2.0f;
    unsigned long long begun = now_ns();
    while (p.spin_ns && now_ns() - begun < p.spin_ns) {}
    if (p.log && threadIdx.x == 0) *p.log = now_ns();
}

// Reads with so many loads of 16 bytes under way in each of 1,024 threads.
template <int LOADS>
__global__ void neighbour(const float4* data, size_t count, volatile unsigned* stop, unsigned long long* moved, unsigned sleep_ns, float* out) {
    size_t each = count / gridDim.x, at = 0;
    const float4* own = data + each * blockIdx.x;
    unsigned long long bytes = 0;
    float sum = 0;
    for (unsigned pass = 1; pass % 64 || !*stop; pass++) {  // seldom, as all threads ask one address
        float4 value[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++) value[k] = __ldcg(own + at + threadIdx.x + k * 1024);
#pragma unroll
        for (int k = 0; k < LOADS; k++) sum += value[k].x + value[k].y;
        at = at + 2 * LOADS * 1024 > each ? 0 : at + LOADS * 1024;
        bytes += LOADS * 16384;
        if (sleep_ns) __nanosleep(sleep_ns);
    }
    if (threadIdx.x == 0) atomicAdd(moved, bytes);
    if (sum == 1.2345f) *out = sum;
}

struct Neighbour {
    const char* name;
    size_t bytes;
    int loads, blocks;
    unsigned sleep_ns;
};

int main() {
    cudaDeviceProp device;
    DO(cudaGetDeviceProperties(&device, 0));
    float *out, *data, *own;
    unsigned *stop, *flag;
    unsigned long long *moved, *log;
    DO(cudaMalloc(&out, 4096));
    DO(cudaMalloc(&data, SET));
    DO(cudaMemset(data, 0, SET));
    DO(cudaMalloc(&own, COUNT * OWN));
    DO(cudaMemset(own, 0, COUNT * OWN));
    DO(cudaMalloc(&stop, sizeof(*stop)));
    DO(cudaMalloc(&moved, sizeof(*moved)));
    DO(cudaMalloc(&log, 2 * sizeof(*log)));
    DO(cudaMallocHost(&flag, sizeof(*flag)));
    cudaStream_t mine, theirs;
    DO(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
    void (*neighbours[])(const float4*, size_t, volatile unsigned*, unsigned long long*, unsigned, float*) = {
        nullptr, neighbour<1>, neighbour<2>, nullptr, neighbour<4>, nullptr, nullptr, nullptr, neighbour<8>};
    for (auto one : neighbours)
        if (one) DO(cudaFuncSetAttribute(one, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    std::vector<Neighbour> all{{"none", 0, 0, 0, 0}};
    for (unsigned sleep_ns : {8000u, 3000u, 1000u, 0u}) all.push_back({"reads L2", size_t(8) << 20, 4, 100, sleep_ns});
    for (unsigned sleep_ns : {40000u, 10000u, 3000u}) all.push_back({"reads DRAM", SET, 4, 100, sleep_ns});
    for (int loads : {1, 2, 4, 8})
        for (int blocks : {20, 50, 100, 130}) all.push_back({"reads DRAM", SET, loads, blocks, 0});
    void (*kernels[])(Parameters) = {tiny<EMPTY>, tiny<WRITES>, tiny<READS>};
    const char* kinds[] = {"empty", "writes", "reads"};
    Mine mines[] = {{EMPTY, 1, 0}, {WRITES, 1, 0}, {READS, 1, 0}, {EMPTY, 1, 5000}, {EMPTY, 100, 5000}};
    std::printf("gpu,launches,kernel,kernel_blocks,spin_ns,neighbour,blocks,kib_under_way_per_block,sleep_ns,gb_per_s,ns\n");
    for (bool in_graph : {false, true})
        for (Mine& one : mines) {
            auto queue = [&] {
                for (int i = 0; i < COUNT; i++) {
                    unsigned long long* to = i == FIRST ? log : i == COUNT - 1 ? log + 1 : nullptr;
                    kernels[one.kind]<<<one.blocks, 128, 0, mine>>>({to, own + i * OWN / sizeof(float), one.spin_ns});
                }
            };
            cudaGraphExec_t exec = in_graph ? graph(mine, queue) : nullptr;
            for (const Neighbour& other : all) {
                cudaEvent_t from, to;
                DO(cudaEventCreate(&from));
                DO(cudaEventCreate(&to));
                DO(cudaMemset(stop, 0, sizeof(*stop)));
                DO(cudaMemset(moved, 0, sizeof(*moved)));
                DO(cudaDeviceSynchronize());
                DO(cudaEventRecord(from, theirs));
                if (other.loads) neighbours[other.loads]<<<other.blocks, 1024, ALONE_ON_SM, theirs>>>((float4*)data, other.bytes / 16, stop, moved, other.sleep_ns, out);
                DO(cudaEventRecord(to, theirs));
                std::vector<double> found;
                for (int round = 0; round < ROUNDS; round++) {
                    *(volatile unsigned*)flag = 0;
                    wait_for<<<1, 1, 0, mine>>>(flag);
                    spin<<<1, 32, 0, mine>>>(300000);  // meanwhile the neighbour replaces what L2 holds
                    if (in_graph) DO(cudaGraphLaunch(exec, mine));
                    else queue();
                    *(volatile unsigned*)flag = 1;
                    DO(cudaStreamSynchronize(mine));
                    unsigned long long at[2];
                    DO(cudaMemcpyAsync(at, log, sizeof(at), cudaMemcpyDeviceToHost, mine));
                    DO(cudaStreamSynchronize(mine));
                    found.push_back((at[1] - at[0]) / double(COUNT - 1 - FIRST) - one.spin_ns);
                }
                DO(cudaMemsetAsync(stop, 1, sizeof(*stop), mine));
                DO(cudaDeviceSynchronize());
                float ms;
                unsigned long long bytes;
                DO(cudaEventElapsedTime(&ms, from, to));
                DO(cudaMemcpy(&bytes, moved, sizeof(bytes), cudaMemcpyDeviceToHost));
                std::sort(found.begin(), found.end());
                std::printf("%s,%s,%s,%d,%u,%s,%d,%d,%u,%.0f,%.0f\n", device.name, in_graph ? "graph" : "stream", kinds[one.kind], one.blocks, one.spin_ns, other.name, other.blocks, other.loads * 16,
                            other.sleep_ns, other.loads ? bytes / (ms * 1e6) : 0.0, found[ROUNDS / 2]);
                std::fflush(stdout);
            }
        }
    return 0;
}
