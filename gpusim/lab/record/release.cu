// What `gpusim record OPS.py` needs of CUDA beside PyTorch: streams on all SMs or on a part of them (green contexts),
// a flag that holds streams back until everything is queued, and a kernel that fills L2 with other data.
// Every function returns nullptr, or what went wrong.
#include <cuda.h>
#include <cuda_runtime.h>

#define DRIVER(call)                                                 \
    do {                                                             \
        CUresult status = (call);                                    \
        if (status != CUDA_SUCCESS) {                                \
            const char* text = nullptr;                              \
            cuGetErrorString(status, &text);                         \
            return text != nullptr ? text : "unknown CUDA error";    \
        }                                                            \
    } while (0)
#define RUNTIME(call)                                                        \
    do {                                                                     \
        cudaError_t status = (call);                                         \
        if (status != cudaSuccess) return cudaGetErrorString(status);        \
    } while (0)

namespace {

constexpr size_t FLUSHED_BYTES = size_t(512) << 20;  // several times the L2 of any GPU
unsigned* flag = nullptr;
float4* flushed = nullptr;
cudaStream_t control = nullptr;

__global__ void read_all(const float4* data, size_t count, float* never) {
    size_t step = size_t(gridDim.x) * blockDim.x;
    float sum = 0.0f;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) {
        float4 value = data[i];
        sum += value.x + value.y + value.z + value.w;
    }
    if (sum == 1.2345f) *never = sum;
}

}  // namespace

extern "C" {

// A stream on all SMs.
const char* open_stream(void** stream) {
    cudaStream_t made;
    RUNTIME(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    *stream = made;
    return nullptr;
}

// Two streams on disjoint SMs: at least so many, and what is left.
const char* split(unsigned wanted, void** streams, unsigned* sms) {
    CUdevice device;
    CUdevResource whole, parts[2];
    unsigned groups = 1;
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
    DRIVER(cuDevSmResourceSplitByCount(&parts[0], &groups, &whole, &parts[1], 0, wanted));
    for (int i = 0; i < 2; ++i) {
        CUdevResourceDesc described;
        CUgreenCtx context;
        CUstream stream;
        DRIVER(cuDevResourceGenerateDesc(&described, &parts[i], 1));
        DRIVER(cuGreenCtxCreate(&context, described, device, CU_GREEN_CTX_DEFAULT_STREAM));
        DRIVER(cuGreenCtxStreamCreate(&stream, context, CU_STREAM_NON_BLOCKING, 0));
        streams[i] = stream;
        sms[i] = parts[i].sm.smCount;
    }
    return nullptr;
}

// What is queued on the stream from here on waits for release().
const char* hold(void* stream) {
    DRIVER(cuStreamWaitValue32((CUstream)stream, (CUdeviceptr)flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    return nullptr;
}

const char* arm() {
    RUNTIME(cudaMemset(flag, 0, sizeof(unsigned)));
    RUNTIME(cudaDeviceSynchronize());
    return nullptr;
}

const char* release() {
    DRIVER(cuStreamWriteValue32((CUstream)control, (CUdeviceptr)flag, 1, 0));
    return nullptr;
}

const char* flush(void* stream) {
    float* never = reinterpret_cast<float*>(flushed + FLUSHED_BYTES / sizeof(float4));
    read_all<<<1056, 256, 0, (cudaStream_t)stream>>>(flushed, FLUSHED_BYTES / sizeof(float4), never);
    RUNTIME(cudaGetLastError());
    return nullptr;
}

const char* prepare() {
    RUNTIME(cudaFree(nullptr));
    RUNTIME(cudaMalloc(&flag, sizeof(unsigned)));
    RUNTIME(cudaMalloc(&flushed, FLUSHED_BYTES + sizeof(float4)));
    RUNTIME(cudaMemset(flushed, 0, FLUSHED_BYTES + sizeof(float4)));
    RUNTIME(cudaStreamCreateWithFlags(&control, cudaStreamNonBlocking));
    if (const char* failed = flush(nullptr)) return failed;  // its first launch loads it, which waits for all streams
    RUNTIME(cudaDeviceSynchronize());
    return nullptr;
}

}  // extern "C"
