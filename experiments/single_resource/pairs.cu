// Kernels that load one resource each, at sizes of published studies of interference: isolated and in two streams.
//
//   pairs FOLDER SIZES            times every kernel isolated and pairs of them in both orders
//   pairs FOLDER SIZES profile    launches each kernel once, in the range of a profiler
//
// SIZES is `published`, or `other` for sizes beside those. Writes kernels.csv and pairs.csv into FOLDER; `profile` reads
// the turns from kernels.csv. All kernels take about TARGET_MS. Exit status 3: no usable GPU.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../../gpusim/lab/record/check.cuh"

constexpr double TARGET_MS = 3.0;
constexpr int RUNS = 5;  // of a kernel or a pair; the median counts
constexpr size_t MIB = 1 << 20, BUFFER = 512 * MIB;
constexpr size_t L1_KIB = 256;  // distance of the sets of two blocks of `l1`

struct Args {
    const float* in;
    float* out;
    size_t count;  // floats of the set: of the kernel, for `l1` of a block
    long long turns;
};

// All blocks together copy the set; a thread has one load in flight.
__global__ void copy_all(Args a) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (long long turn = 0; turn < a.turns; turn++)
        for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += step) a.out[i] = a.in[i];
}

// Each block copies a set of its own.
__global__ void copy_own(Args a) {
    const size_t begin = blockIdx.x * (L1_KIB * 1024 / sizeof(float));
    for (long long turn = 0; turn < a.turns; turn++)
        for (size_t i = begin + threadIdx.x; i < begin + a.count; i += blockDim.x) a.out[i] = a.in[i];
}

__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

// CHAINS independent chains of multiplications.
template <typename T, int CHAINS>
__global__ void multiply(Args a) {
    const T x = T(a.in[threadIdx.x]);
    T value[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) value[c] = T(1 + c);
    for (long long turn = 0; turn < a.turns; turn++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++) value[c] = product(x, value[c]);
    }
    T sum = value[0];
#pragma unroll
    for (int c = 1; c < CHAINS; c++) sum += value[c];
    a.out[threadIdx.x] = float(sum);
}

__global__ void rest(Args a) {
    for (long long turn = 0; turn < a.turns; turn++) __nanosleep(1000);
}

using Function = void (*)(Args);
struct Kernel {
    std::string name;
    Function function;
    int blocks, threads;
    size_t bytes;  // of its set
    long long turns = 1;
    float ms = 0;
};
struct Device {
    int sms;
    float *in[2], *out[2];
    cudaStream_t streams[2];
    cudaEvent_t begin[2], end[2];
    float ms[2];

    Args args(const Kernel& kernel, int at) const {
        return {in[at], out[at], kernel.bytes / sizeof(float), kernel.turns};
    }
    void launch(const Kernel& kernel, int at) {
        CHECK(cudaEventRecord(begin[at], streams[at]));
        kernel.function<<<kernel.blocks, kernel.threads, 0, streams[at]>>>(args(kernel, at));
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end[at], streams[at]));
    }
    // Ends, in ms from the start of the first.
    void run(const std::vector<const Kernel*>& kernels) {
        for (size_t i = 0; i < kernels.size(); i++) launch(*kernels[i], int(i));
        CHECK(cudaDeviceSynchronize());
        for (size_t i = 0; i < kernels.size(); i++) CHECK(cudaEventElapsedTime(&ms[i], begin[0], end[i]));
    }
    std::vector<float> median(const std::vector<const Kernel*>& kernels) {
        std::vector<std::vector<float>> seen(kernels.size());
        for (int turn = -1; turn < RUNS; turn++) {
            run(kernels);
            for (size_t i = 0; turn >= 0 && i < kernels.size(); i++) seen[i].push_back(ms[i]);
        }
        std::vector<float> result;
        for (auto& one : seen) {
            std::sort(one.begin(), one.end());
            result.push_back(one[RUNS / 2]);
        }
        return result;
    }
};

template <typename T>
static Function multiplies(int chains) {
    const Function all[] = {multiply<T, 1>, multiply<T, 2>, multiply<T, 3>, multiply<T, 4>};
    return all[chains - 1];
}

// The sizes of kernels; blocks and threads of copies from DRAM go together.
struct Sizes {
    std::vector<int> dram_blocks, dram_threads, l2_mib, l1_kib, fp32_threads, fp64_threads;
    std::string l2, l1_beside, whole, half, fills;  // of those that meet kernels of other kinds
};

static Sizes sizes_of(const std::string& name, int sms) {
    const auto copy = [](int blocks) { return "dram/" + std::to_string(blocks); };
    if (name == "published")
        return {{sms / 4, sms / 2, sms * 3 / 4, sms, sms * 2}, {1024, 1024, 1024, 1024, 1024}, {8, 16, 24, 32, 40},
                {32, 64, 96, 128}, {128, 256, 512, 1024}, {128, 512}, "l2/16", "fp32_4/128", copy(sms), copy(sms / 2),
                "fp32_4/512"};
    return {{50, 88, sms, sms * 2, sms * 4}, {1024, 1024, 768, 1024, 512}, {4, 12, 20, 28, 36}, {24, 48, 72, 88},
            {128, 192, 384, 640, 768}, {128, 256, 384}, "l2/12", "fp32_4/128", copy(sms), copy(88), "fp32_4/384"};
}

static std::vector<Kernel> kernels_for(const Sizes& sizes, int sms) {
    std::vector<Kernel> kernels;
    for (int each : {1, 2}) kernels.push_back({"sleep/" + std::to_string(each * sms), rest, each * sms, 1024, 0});
    for (size_t i = 0; i < sizes.dram_blocks.size(); i++) {
        const int blocks = sizes.dram_blocks[i];
        kernels.push_back({"dram/" + std::to_string(blocks), copy_all, blocks, sizes.dram_threads[i], BUFFER});
    }
    for (int mib : sizes.l2_mib)
        kernels.push_back({"l2/" + std::to_string(mib), copy_all, sms / 2, 1024, mib * MIB});
    for (int kib : sizes.l1_kib)
        kernels.push_back({"l1/" + std::to_string(kib), copy_own, sms, 64, size_t(kib) * 1024});
    for (int chains = 1; chains <= 4; chains++) {
        for (int threads : sizes.fp32_threads)
            kernels.push_back({"fp32_" + std::to_string(chains) + "/" + std::to_string(threads),
                               multiplies<float>(chains), sms, threads, 0});
        for (int threads : sizes.fp64_threads)
            kernels.push_back({"fp64_" + std::to_string(chains) + "/" + std::to_string(threads),
                               multiplies<double>(chains), sms, threads, 0});
    }
    return kernels;
}

// Kernels beside themselves, arithmetic beside a copy, and some of other resources.
static bool paired(const std::string& a, const std::string& b, const Sizes& sizes, int sms) {
    const auto kind = [](const std::string& name) { return name.substr(0, name.find('/')); };
    if (a == b) return a != "dram/" + std::to_string(2 * sms);
    if (kind(a) == "sleep" && (kind(b) == "sleep" || b == sizes.whole || b == sizes.fills)) return true;
    if (b == sizes.whole && (kind(a).substr(0, 2) == "fp" || kind(a) == "l1" || a == sizes.l2)) return true;
    if (kind(a) == "l2" && (b == sizes.half || b == sizes.fills)) return true;
    if (kind(a) == "l1" && b == sizes.l1_beside) return true;
    return a == "fp32_4/128" && kind(b) == "fp64_4";
}

int main(int count, char** arguments) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // else the first launch of a kernel waits for the other stream
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    if (count < 3) fail("pairs", "expected FOLDER SIZES [profile]", __FILE__, __LINE__);
    const std::string folder = arguments[1];
    Device gpu;
    CHECK(cudaDeviceGetAttribute(&gpu.sms, cudaDevAttrMultiProcessorCount, 0));
    for (int i = 0; i < 2; i++) {
        CHECK(cudaMalloc(&gpu.in[i], BUFFER));
        CHECK(cudaMalloc(&gpu.out[i], BUFFER));
        CHECK(cudaMemset(gpu.in[i], 0, BUFFER));
        CHECK(cudaStreamCreateWithFlags(&gpu.streams[i], cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&gpu.begin[i]));
        CHECK(cudaEventCreate(&gpu.end[i]));
    }
    const Sizes sizes = sizes_of(arguments[2], gpu.sms);
    std::vector<Kernel> kernels = kernels_for(sizes, gpu.sms);
    if (count > 3 && !strcmp(arguments[3], "profile")) {
        std::ifstream file(folder + "/kernels.csv");
        std::map<std::string, long long> turns;
        for (std::string line; getline(file, line);) {
            std::istringstream fields(line);
            std::string name, skipped, number;
            getline(fields, name, ',');
            for (int i = 0; i < 3; i++) getline(fields, skipped, ',');
            getline(fields, number, ',');
            turns[name] = atoll(number.c_str());
        }
        for (Kernel& kernel : kernels) {
            kernel.turns = std::max(1ll, turns[kernel.name]);
            gpu.run({&kernel});
            CHECK(cudaProfilerStart());
            gpu.run({&kernel});
            CHECK(cudaProfilerStop());
        }
        return 0;
    }
    for (Kernel& kernel : kernels) {
        gpu.run({&kernel});
        for (gpu.run({&kernel}); gpu.ms[0] < TARGET_MS / 8; gpu.run({&kernel})) kernel.turns *= 2;
        kernel.turns = std::max(1ll, (long long)(kernel.turns * TARGET_MS / gpu.ms[0] + 0.5));
    }
    FILE* file = fopen((folder + "/kernels.csv").c_str(), "w");
    if (!file) fail("kernels.csv", "cannot be written", __FILE__, __LINE__);
    fprintf(file, "kernel,blocks,threads,set_bytes,turns,ms\n");
    for (Kernel& kernel : kernels) {
        kernel.ms = gpu.median({&kernel})[0];
        fprintf(file, "%s,%d,%d,%zu,%lld,%.4f\n", kernel.name.c_str(), kernel.blocks, kernel.threads, kernel.bytes,
                kernel.turns, kernel.ms);
    }
    fclose(file);
    file = fopen((folder + "/pairs.csv").c_str(), "w");
    if (!file) fail("pairs.csv", "cannot be written", __FILE__, __LINE__);
    fprintf(file, "first,second,first_ms,second_ms\n");
    for (const Kernel& a : kernels)
        for (const Kernel& b : kernels) {
            if (!paired(a.name, b.name, sizes, gpu.sms) && !paired(b.name, a.name, sizes, gpu.sms)) continue;
            const std::vector<float> ms = gpu.median({&a, &b});
            fprintf(file, "%s,%s,%.4f,%.4f\n", a.name.c_str(), b.name.c_str(), ms[0], ms[1]);
        }
    fclose(file);
    return 0;
}
