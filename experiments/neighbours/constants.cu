// Time of blocks that read constants on some SMs, while a kernel on the others reads memory at a set pace.
// Before each, other kernels ran on its SMs, or none. constants.csv is what it prints:
//     nvcc -O3 -arch=sm_90 -o constants constants.cu && ./constants > constants.csv
#include <algorithm>
#include <utility>
#include <vector>
#include "beside.cuh"

constexpr int ROUNDS = 25, MAIN_SMS = 64, OTHERS = 8, WORDS = 512;
constexpr unsigned BETWEEN_NS = 100000;  // in which the neighbour replaces what L2 holds

struct Parameters { float each[WORDS]; };  // 2 KiB
__constant__ float table[OTHERS + 1][WORDS];

// Cycles that a warp takes to read 2 KiB of parameters, of the program's constants, or none.
template <int FROM, int PART> __global__ void reads(Parameters p, float* out, unsigned* cycles) {
    unsigned long long begun = clock64();
    float sum = threadIdx.x;
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        if (FROM == 1) sum = fmaf(sum, 1.0001f, p.each[i]);
        if (FROM == 2) sum = fmaf(sum, 1.0001f, table[PART][i]);
        if (FROM == 0) sum = fmaf(sum, 1.0001f, 0.5f);
    }
    if (sum == 1.2345f) *out = sum;
    unsigned took = unsigned(clock64() - begun);
    if (threadIdx.x == 0) cycles[blockIdx.x] = took;
}

typedef void (*Kernel)(Parameters, float*, unsigned*);
template <int... PART> std::vector<Kernel> others(std::integer_sequence<int, PART...>) { return {reads<2, PART + 1>...}; }

int main() {
    cudaDeviceProp device;
    DO(cudaGetDeviceProperties(&device, 0));
    int other_sms = device.multiProcessorCount - MAIN_SMS;
    float *out, *data;
    unsigned *cycles, *stop;
    unsigned long long* moved;
    size_t most = size_t(1) << 30;
    DO(cudaMalloc(&out, 4096)); DO(cudaMalloc(&data, most)); DO(cudaMemset(data, 0, most));
    DO(cudaMalloc(&cycles, MAIN_SMS * sizeof(*cycles))); DO(cudaMalloc(&moved, 8)); DO(cudaMalloc(&stop, 4));
    cudaStream_t mine, theirs;
    DO(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking)); DO(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
    std::vector<Kernel> between = others(std::make_integer_sequence<int, OTHERS>{});
    struct { const char* name; Kernel kernel; } mains[] = {{"none", reads<0, 0>}, {"parameters", reads<1, 0>}, {"constants", reads<2, 0>}};
    struct { const char* name; size_t bytes; unsigned sleep_ns; } sets[] = {{"none", 0, 0}, {"reads L2", size_t(8) << 20, 0}, {"reads DRAM", most, 12000}, {"reads DRAM", most, 1500}, {"reads DRAM", most, 0}};
    for (auto& one : mains) DO(cudaFuncSetAttribute(one.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    for (auto one : between) DO(cudaFuncSetAttribute(one, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    DO(cudaFuncSetAttribute(neighbour, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    DO(cudaFuncSetAttribute(spin, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    std::printf("gpu,reads,others,neighbour,sleep_ns,gb_per_s,cycles\n");
    Parameters p{};
    for (auto& one : mains) for (int other : {0, OTHERS}) for (auto& set : sets) {
        cudaEvent_t from, to;
        DO(cudaEventCreate(&from)); DO(cudaEventCreate(&to));
        DO(cudaMemset(stop, 0, 4)); DO(cudaMemset(moved, 0, 8)); DO(cudaDeviceSynchronize());
        DO(cudaEventRecord(from, theirs));
        if (set.bytes) neighbour<<<other_sms, 512, ALONE_ON_SM, theirs>>>((float4*)data, set.bytes / sizeof(float4), stop, moved, set.sleep_ns, out);
        else spin<<<other_sms, 512, ALONE_ON_SM, theirs>>>(30000000);
        DO(cudaEventRecord(to, theirs));
        std::vector<double> found;
        for (int round = 0; round < ROUNDS; round++) {
            one.kernel<<<MAIN_SMS, 128, ALONE_ON_SM, mine>>>(p, out, cycles);
            for (int k = 0; k < other; k++) between[k]<<<MAIN_SMS, 128, ALONE_ON_SM, mine>>>(p, out, cycles);
            spin<<<MAIN_SMS, 32, ALONE_ON_SM, mine>>>(BETWEEN_NS);
            one.kernel<<<MAIN_SMS, 128, ALONE_ON_SM, mine>>>(p, out, cycles);
            DO(cudaStreamSynchronize(mine));
            std::vector<unsigned> each(MAIN_SMS);
            DO(cudaMemcpyAsync(each.data(), cycles, MAIN_SMS * 4, cudaMemcpyDeviceToHost, mine));
            DO(cudaStreamSynchronize(mine));
            double sum = 0;
            for (auto c : each) sum += c;
            found.push_back(sum / MAIN_SMS);
        }
        DO(cudaMemsetAsync(stop, 1, 4, mine));
        DO(cudaDeviceSynchronize());
        float ms; unsigned long long bytes;
        DO(cudaEventElapsedTime(&ms, from, to));
        DO(cudaMemcpy(&bytes, moved, 8, cudaMemcpyDeviceToHost));
        std::sort(found.begin(), found.end());
        std::printf("%s,%s,%d,%s,%u,%.0f,%.0f\n", device.name, one.name, other, set.name, set.sleep_ns, bytes / (ms * 1e6), found[ROUNDS / 2]);
        std::fflush(stdout);
    }
}
