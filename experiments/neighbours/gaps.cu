// Gaps between kernels of one stream, plain or as a CUDA graph, beside other streams: from the end of a kernel's last
// block to the start of the first block of the next. gaps.csv is what it prints:
// nvcc -O3 -arch=sm_90 -o gaps gaps.cu -lcuda && ./gaps > gaps.csv
#include <algorithm>
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

#define DO(call)                                                                       \
    do {                                                                               \
        auto error = (call);                                                           \
        if (error) return std::fprintf(stderr, "%s: %d\n", #call, int(error)), 1;      \
    } while (0)

constexpr int STREAMS = 4, KERNELS = 16, THREADS = 384, MOST_BLOCKS = 132, ROUNDS = 9;

struct Times {
    unsigned long long start, end;
};

__device__ unsigned long long now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

__global__ void spin(Times* times, unsigned ns) {
    unsigned long long begun = now();
    while (now() - begun < ns) {}
    __syncthreads();
    if (threadIdx.x == 0) times[blockIdx.x] = {begun, now()};
}

static void chain(cudaStream_t stream, Times* times, int blocks, unsigned ns) {
    for (int k = 0; k < KERNELS; k++) spin<<<blocks, THREADS, 0, stream>>>(times + k * MOST_BLOCKS, ns);
}

int main() {
    cudaDeviceProp device;
    DO(cudaGetDeviceProperties(&device, 0));
    constexpr int each = KERNELS * MOST_BLOCKS;
    Times* times;
    unsigned* flag;
    DO(cudaMalloc(&times, STREAMS * each * sizeof(Times)));
    DO(cudaMalloc(&flag, sizeof(*flag)));
    cudaStream_t streams[STREAMS], control;
    for (auto& one : streams) DO(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&control, cudaStreamNonBlocking));
    std::printf("gpu,kind,streams,blocks,block_us,gap_us_median,gap_us_mean\n");
    for (int blocks : {1, 32})
        for (unsigned ns : {3000u, 10000u}) {
            cudaGraphExec_t graphs[STREAMS];
            for (int s = 0; s < STREAMS; s++) {
                cudaGraph_t graph;
                DO(cudaStreamBeginCapture(streams[s], cudaStreamCaptureModeGlobal));
                chain(streams[s], times + s * each, blocks, ns);
                DO(cudaStreamEndCapture(streams[s], &graph));
                DO(cudaGraphInstantiate(&graphs[s], graph, 0));
            }
            for (bool as_graph : {false, true})
                for (int count : {1, 2, 4}) {
                    std::vector<double> gaps;
                    for (int round = 0; round < ROUNDS; round++) {
                        DO(cudaMemset(flag, 0, sizeof(*flag)));
                        DO(cudaDeviceSynchronize());
                        for (int s = 0; s < count; s++) {
                            DO(cuStreamWaitValue32(streams[s], CUdeviceptr(flag), 1, CU_STREAM_WAIT_VALUE_GEQ));
                            if (as_graph) DO(cudaGraphLaunch(graphs[s], streams[s]));
                            else chain(streams[s], times + s * each, blocks, ns);
                        }
                        DO(cuStreamWriteValue32(control, CUdeviceptr(flag), 1, 0));
                        DO(cudaDeviceSynchronize());
                        std::vector<Times> seen(STREAMS * each);
                        DO(cudaMemcpy(seen.data(), times, seen.size() * sizeof(Times), cudaMemcpyDeviceToHost));
                        for (int s = 0; round && s < count; s++)
                            for (int k = 1; k + 1 < KERNELS; k++) {
                                Times* one = &seen[s * each + k * MOST_BLOCKS];
                                unsigned long long end = 0, start = ~0ull;
                                for (int b = 0; b < blocks; b++) {
                                    end = std::max(end, one[b].end);
                                    start = std::min(start, one[MOST_BLOCKS + b].start);
                                }
                                gaps.push_back((double(start) - double(end)) / 1e3);
                            }
                    }
                    double sum = 0;
                    for (double gap : gaps) sum += gap;
                    std::sort(gaps.begin(), gaps.end());
                    std::printf("%s,%s,%d,%d,%.0f,%.3f,%.3f\n", device.name, as_graph ? "graph" : "plain", count, blocks,
                                ns / 1e3, gaps[gaps.size() / 2], sum / gaps.size());
                }
        }
    return 0;
}
