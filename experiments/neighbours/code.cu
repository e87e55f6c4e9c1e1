// Time of a kernel of one long straight piece of code, after itself, after other code, and after other code and data.
// code.csv is what it prints: nvcc -O3 -arch=sm_90 -o code code.cu && ./code > code.csv
#include <algorithm>
#include "straight.cuh"

constexpr int ROUNDS = 21;

__global__ void read(const float4* data, size_t count, float* out) {
    float sum = 0;
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) sum += data[i].x;
    if (sum == 1.2345f) *out = sum;
}

int main() {
    cudaDeviceProp device;
    DO(cudaGetDeviceProperties(&device, 0));
    int sms = device.multiProcessorCount;
    float *out, *data;
    unsigned long long* times;
    size_t most = size_t(512) << 20;
    DO(cudaMalloc(&out, THREADS * sizeof(float)));
    DO(cudaMalloc(&data, most));
    DO(cudaMemset(data, 0, most));
    DO(cudaMalloc(&times, sms * sizeof(*times)));
    std::vector<Kernel> others = copies(std::make_integer_sequence<int, OTHERS>{});
    struct {
        int kib;
        Kernel kernel;
    } mains[] = {{4, straight<0, 4>}, {16, straight<0, 16>}, {32, straight<0, 32>}, {64, straight<0, 64>}, {128, straight<0, 128>}};
    std::printf("gpu,code_kib,other_kib,read_mib,us\n");
    for (auto& one : mains)
        for (int other : {0, 1, 2, 4, 8, 16, 32, 64})
            for (int mib : {0, 16, 64, 256}) {
                std::vector<double> found;
                for (int round = 0; round < ROUNDS; round++) {
                    one.kernel<<<sms, THREADS>>>(out, times);
                    for (int k = 0; k < other; k++) others[k]<<<sms, THREADS>>>(out, times);
                    if (mib) read<<<sms * 8, 256>>>((float4*)data, (size_t(mib) << 20) / sizeof(float4), out);
                    one.kernel<<<sms, THREADS>>>(out, times);
                    DO(cudaDeviceSynchronize());
                    std::vector<unsigned long long> each(sms);
                    DO(cudaMemcpy(each.data(), times, sms * sizeof(each[0]), cudaMemcpyDeviceToHost));
                    double sum = 0;
                    for (auto ns : each) sum += ns;
                    found.push_back(sum / sms / 1e3);
                }
                std::sort(found.begin(), found.end());
                std::printf("%s,%d,%d,%d,%.3f\n", device.name, one.kib, other * OTHER_KIB, mib, found[ROUNDS / 2]);
            }
    return 0;
}
