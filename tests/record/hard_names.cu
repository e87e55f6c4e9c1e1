// Kernels whose names are hard to carry through a CSV, on two streams and in a graph. hard_names.ncu-rep.gz is
//
//   nvcc -std=c++20 --extended-lambda -arch=sm_90 -o 'hard "n", ü' hard_names.cu
//   ncu --clock-control none --cache-control none --metrics LIST -o hard_names './hard "n", ü'
//
// with the metrics of gpusim/lab/record/own_program.py, and hard_names.csv.gz what `ncu --import FILE --csv --page raw`
// printed of it. nvcc refuses a kernel whose name is not ASCII.
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                  \
    do {                                                                             \
        const cudaError_t error = (call);                                            \
        if (error != cudaSuccess) {                                                  \
            fprintf(stderr, "%s, line %d\n", cudaGetErrorString(error), __LINE__); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

namespace {
template <typename T, int N>
__global__ void scale(T* data, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        for (int k = 0; k < N; ++k) data[i] = data[i] * T(1.0001) + T(k);
}
}  // namespace

template <typename... Ts>
struct Pack {};

template <typename P, char C>
__global__ void packed(float* data) {
    data[blockIdx.x] += C;
}

__device__ float twice(float x) { return 2 * x; }

template <float (*F)(float)>
__global__ void map(float* data) {
    data[threadIdx.x] = F(data[threadIdx.x]);
}

extern "C" __global__ void plain_c(float* data) { data[blockIdx.y + blockIdx.z + threadIdx.z] = 1; }

template <typename F>
__global__ void apply(F f, float* data) {
    data[threadIdx.x] = f(data[threadIdx.x]);
}

__global__ void shared_sum(float* data) {
    extern __shared__ float part[];
    __shared__ float all[32];
    part[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) all[threadIdx.x] = part[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = all[threadIdx.x % 32];
}

int main() {
    const int n = 1 << 20;
    float* data;
    CHECK(cudaMalloc(&data, n * sizeof(float)));
    CHECK(cudaMemset(data, 0, n * sizeof(float)));
    cudaStream_t one, two;
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    printf("\"ID\",a line that the program prints, with \"quotes\"\n");
    for (int i = 0; i < 2; ++i) {
        scale<float, 3><<<1024, 256, 0, one>>>(data, n);
        packed<Pack<int, Pack<const char*, float[3]>, void (*)(int, float)>, '"'><<<64, 32, 0, two>>>(data);
        scale<double, 2><<<132, 128, 0, two>>>(reinterpret_cast<double*>(data), n / 2);
    }
    CHECK(cudaDeviceSynchronize());
    plain_c<<<dim3(4, 3, 2), dim3(8, 4, 2)>>>(data);
    map<twice><<<1, 64>>>(data);
    apply<<<1, 64>>>([] __device__(float x) { return x + 1; }, data);
    CHECK(cudaFuncSetAttribute(shared_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
    shared_sum<<<132, 256, 100 * 1024>>>(data);
    CHECK(cudaDeviceSynchronize());
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    scale<float, 1><<<128, 256, 0, one>>>(data, n);
    scale<float, 2><<<128, 256, 0, one>>>(data, n);
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, one));
    CHECK(cudaDeviceSynchronize());
    return 0;
}
