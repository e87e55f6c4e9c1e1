// Time of a kernel of one long straight piece of code on some SMs, while a kernel on the others reads memory at a set
// pace. Before it, kernels on its own SMs ran other code, or read memory. code_beside.csv is what it prints:
// nvcc -O3 -arch=sm_90 -o code_beside code_beside.cu && ./code_beside > code_beside.csv
#include <algorithm>
#include "straight.cuh"

constexpr int ROUNDS = 15, MAIN_SMS = 64;
constexpr unsigned BETWEEN_NS = 100000;  // in which the neighbour replaces what L2 holds

__global__ void read(const float4* data, size_t count, float* out) {
    float sum = 0;
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) sum += __ldcg(data + i).x;
    if (sum == 1.2345f) *out = sum;
}

int main() {
    cudaDeviceProp device;
    DO(cudaGetDeviceProperties(&device, 0));
    int other_sms = device.multiProcessorCount - MAIN_SMS;
    float *out, *data;
    unsigned long long *times, *moved;
    unsigned* stop;
    size_t most = size_t(1) << 30;
    DO(cudaMalloc(&out, 1024 * sizeof(float)));
    DO(cudaMalloc(&data, 2 * most));
    DO(cudaMemset(data, 0, 2 * most));
    DO(cudaMalloc(&times, MAIN_SMS * sizeof(*times)));
    DO(cudaMalloc(&moved, sizeof(*moved)));
    DO(cudaMalloc(&stop, sizeof(*stop)));
    cudaStream_t mine, theirs;
    DO(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
    std::vector<Kernel> others = copies(std::make_integer_sequence<int, OTHERS>{});
    struct {
        int kib;
        Kernel kernel;
    } mains[] = {{16, straight<0, 16>}, {64, straight<0, 64>}, {128, straight<0, 128>}};
    struct {
        const char* name;
        size_t bytes;
        unsigned sleep_ns;
    } sets[] = {{"none", 0, 0}, {"reads L2", size_t(8) << 20, 0}, {"reads DRAM", most, 12000}, {"reads DRAM", most, 4000},
                {"reads DRAM", most, 1500}, {"reads DRAM", most, 500}, {"reads DRAM", most, 0}};
    for (auto& one : mains) DO(cudaFuncSetAttribute(one.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    for (auto one : others) DO(cudaFuncSetAttribute(one, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    DO(cudaFuncSetAttribute(neighbour, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    DO(cudaFuncSetAttribute(read, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    DO(cudaFuncSetAttribute(spin, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_ON_SM));
    std::printf("gpu,code_kib,other_kib,read_mib,neighbour,sleep_ns,gb_per_s,us\n");
    for (auto& one : mains)
        for (int other : {0, 64})
            for (int mib : {0, 256})
                for (auto& set : sets) {
                    cudaEvent_t from, to;
                    DO(cudaEventCreate(&from));
                    DO(cudaEventCreate(&to));
                    DO(cudaMemset(stop, 0, sizeof(*stop)));
                    DO(cudaMemset(moved, 0, sizeof(*moved)));
                    DO(cudaDeviceSynchronize());
                    DO(cudaEventRecord(from, theirs));
                    if (set.bytes)
                        neighbour<<<other_sms, 512, ALONE_ON_SM, theirs>>>(
                            (float4*)data, set.bytes / sizeof(float4), stop, moved, set.sleep_ns, out);
                    else
                        spin<<<other_sms, 512, ALONE_ON_SM, theirs>>>(20000000);
                    DO(cudaEventRecord(to, theirs));
                    std::vector<double> found;
                    for (int round = 0; round < ROUNDS; round++) {
                        one.kernel<<<MAIN_SMS, THREADS, ALONE_ON_SM, mine>>>(out, times);
                        for (int k = 0; k < other; k++) others[k]<<<MAIN_SMS, THREADS, ALONE_ON_SM, mine>>>(out, times);
                        if (mib)
                            read<<<MAIN_SMS, 1024, ALONE_ON_SM, mine>>>(
                                (float4*)data + most / sizeof(float4), (size_t(mib) << 20) / sizeof(float4), out);
                        spin<<<MAIN_SMS, 32, ALONE_ON_SM, mine>>>(BETWEEN_NS);
                        one.kernel<<<MAIN_SMS, THREADS, ALONE_ON_SM, mine>>>(out, times);
                        DO(cudaStreamSynchronize(mine));
                        std::vector<unsigned long long> each(MAIN_SMS);
                        DO(cudaMemcpyAsync(each.data(), times, MAIN_SMS * sizeof(each[0]), cudaMemcpyDeviceToHost, mine));
                        DO(cudaStreamSynchronize(mine));
                        double sum = 0;
                        for (auto ns : each) sum += ns;
                        found.push_back(sum / MAIN_SMS / 1e3);
                    }
                    DO(cudaMemsetAsync(stop, 1, sizeof(*stop), mine));
                    DO(cudaDeviceSynchronize());
                    float ms;
                    unsigned long long bytes;
                    DO(cudaEventElapsedTime(&ms, from, to));
                    DO(cudaMemcpy(&bytes, moved, sizeof(bytes), cudaMemcpyDeviceToHost));
                    std::sort(found.begin(), found.end());
                    std::printf("%s,%d,%d,%d,%s,%u,%.0f,%.3f\n", device.name, one.kib, other * OTHER_KIB, mib, set.name,
                                set.sleep_ns, bytes / (ms * 1e6), found[ROUNDS / 2]);
                    std::fflush(stdout);
                }
    return 0;
}
