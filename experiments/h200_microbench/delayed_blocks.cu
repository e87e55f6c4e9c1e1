// How much later the blocks of a long kernel end for each launch in another stream: by what they do, and by how the others
// are launched. The other kernels have one block each, on an SM that the long one leaves free, and only spin.
// delayed_blocks.csv is what it prints:
//     nvcc -O3 -arch=sm_90 -o delayed_blocks delayed_blocks.cu && ./delayed_blocks > delayed_blocks.csv
#include <algorithm>
#include <vector>

#include "launches.cuh"

constexpr int BLOCKS = 100, THREADS = 256, OTHERS = 600, ROUNDS = 9;
constexpr size_t SET = size_t(1) << 30, IN_L2 = size_t(8) << 20, IN_L1 = size_t(16) << 10;

struct Times {
    unsigned long long begun, ended;
};

__device__ void note(Times* times, unsigned long long begun) {
    atomicMin(&times->begun, begun);
    atomicMax(&times->ended, now_ns());
}

// An instruction takes 16 bytes.
template <int KIB> __global__ void computes(Times* times, float* data, int turns) {
    unsigned long long begun = now_ns();
    float x = threadIdx.x, y = 0.999f;
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int k = 0; k < KIB * 32; k++) {
            x = fmaf(x, y, 1.0f);
            y = fmaf(y, x, 2.0f + k);
        }
    }
    data[threadIdx.x] = x + y;
    note(times, begun);
}

__global__ void reads(Times* times, float* data, const float4* from, size_t words, int turns) {
    unsigned long long begun = now_ns();
    float x = 0;
    size_t at = size_t(blockIdx.x) * THREADS + threadIdx.x;
    for (int turn = 0; turn < turns; turn++) {
        for (int k = 0; k < 8; k++) x += __ldcg(from + (at + size_t(k) * BLOCKS * THREADS) % words).x;
        at += size_t(8) * BLOCKS * THREADS;
    }
    data[threadIdx.x] = x;
    note(times, begun);
}

// A read whose address hangs on the one before, and `work` steps of arithmetic that hang on it.
template <bool BY_L1>
__global__ void chases(Times* times, float* data, const unsigned* from, unsigned mask, int turns, int work) {
    unsigned long long begun = now_ns();
    unsigned at = (blockIdx.x * THREADS + threadIdx.x) * 64;
    float x = 0;
    for (int turn = 0; turn < turns; turn++) {
        const unsigned* next = from + (at & mask);
        unsigned found = BY_L1 ? __ldca(next) : __ldcg(next);
        for (int step = 0; step < work; step++) x = fmaf(x, 0.999f, float(found));
        at = at * 1664525u + 1013904223u + found + (x > 1e30f);
    }
    data[threadIdx.x] = at + x;
    note(times, begun);
}

// As the host launches them.
using Load = void (*)(cudaStream_t, Times*, float* data, float* set, int turns);

template <int KIB> void compute(cudaStream_t stream, Times* times, float* data, float*, int turns) {
    computes<KIB><<<BLOCKS, THREADS, 0, stream>>>(times, data, turns);
}

template <size_t BYTES> void read(cudaStream_t stream, Times* times, float* data, float* set, int turns) {
    reads<<<BLOCKS, THREADS, 0, stream>>>(times, data, reinterpret_cast<float4*>(set), BYTES / 16, turns);
}

template <size_t BYTES, int WORK = 0> void chase(cudaStream_t stream, Times* times, float* data, float* set, int turns) {
    const unsigned* from = reinterpret_cast<unsigned*>(set);
    chases<BYTES == IN_L1><<<BLOCKS, THREADS, 0, stream>>>(times, data, from, unsigned(BYTES / 4 - 1), turns, WORK);
}

int main() {
    float *data, *set;
    Times* times;
    unsigned long long* log;
    unsigned* flag;
    DO(cudaMalloc(&data, THREADS * sizeof(float)));
    DO(cudaMalloc(&set, SET));
    DO(cudaMemset(set, 0, SET));
    DO(cudaMalloc(&times, sizeof(Times)));
    DO(cudaMalloc(&log, OTHERS * sizeof(*log)));
    DO(cudaHostAlloc(&flag, sizeof(unsigned), cudaHostAllocMapped));
    cudaStream_t own, other, gate;
    for (cudaStream_t* stream : {&own, &other, &gate}) DO(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    cudaEvent_t open;
    DO(cudaEventCreateWithFlags(&open, cudaEventDisableTiming));
    cudaDeviceProp properties;
    DO(cudaGetDeviceProperties(&properties, 0));

    const struct {
        const char* name;
        Load launch;
        int turns;
    } loads[] = {
        {"computes by 1 KiB of code", compute<1>, 700},
        {"computes by 16 KiB of code", compute<16>, 44},
        {"computes by 64 KiB of code", compute<64>, 11},
        {"reads L2", read<IN_L2>, 130},
        {"reads DRAM", read<SET>, 130},
        {"reads L2 in turn", chase<IN_L2>, 450},
        {"reads L2 in turn and computes as long", chase<IN_L2, 80>, 250},
        {"reads DRAM in turn", chase<SET>, 180},
        {"reads L1 in turn", chase<IN_L1>, 2500},
    };
    std::printf("gpu,kernel,others,spin_ns,launches_beside,ns\n");
    for (const auto& load : loads) {
        cudaGraphExec_t mine = graph(own, [&] { load.launch(own, times, data, set, load.turns); });
        auto run = [&](const char* others, unsigned ns, double* beside) {
            std::vector<std::pair<double, double>> found;  // the kernel's time, and launches beside it
            cudaGraphExec_t exec = nullptr;
            if (*others == 'g')
                exec = graph(other, [&] {
                    for (int i = 0; i < OTHERS; i++) spin<<<1, 32, 0, other>>>(ns, log + i);
                });
            for (int round = 0; round < ROUNDS + 2; round++) {
                const Times never = {~0ull, 0};
                DO(cudaMemcpy(times, &never, sizeof(never), cudaMemcpyHostToDevice));
                DO(cudaMemset(log, 0, OTHERS * sizeof(*log)));
                *flag = 0;
                wait_for<<<1, 1, 0, gate>>>(flag);
                DO(cudaEventRecord(open, gate));
                DO(cudaStreamWaitEvent(own, open, 0));
                DO(cudaStreamWaitEvent(other, open, 0));
                if (exec) DO(cudaGraphLaunch(exec, other));
                if (*others == 's')
                    for (int i = 0; i < OTHERS; i++) spin<<<1, 32, 0, other>>>(ns, log + i);
                spin<<<1, 32, 0, own>>>(100000);  // the others run by then
                DO(cudaGraphLaunch(mine, own));
                *static_cast<volatile unsigned*>(flag) = 1;
                DO(cudaDeviceSynchronize());
                if (round < 2) continue;
                Times took;
                std::vector<unsigned long long> starts(OTHERS);
                DO(cudaMemcpy(&took, times, sizeof(took), cudaMemcpyDeviceToHost));
                DO(cudaMemcpy(starts.data(), log, OTHERS * sizeof(*log), cudaMemcpyDeviceToHost));
                double count = 0;
                for (unsigned long long at : starts) count += at > took.begun && at < took.ended;
                found.push_back({double(took.ended - took.begun), count});
            }
            if (exec) DO(cudaGraphExecDestroy(exec));
            std::sort(found.begin(), found.end());
            *beside = found[ROUNDS / 2].second;
            return found[ROUNDS / 2].first;
        };
        for (const char* others : {"graph", "stream"})
            for (unsigned ns : {1000u, 2000u, 5000u, 10000u}) {
                double count = 0;
                const double beside = run(others, ns, &count);
                std::printf("%s,%s,%s,%u,%.0f,%.0f\n", properties.name, load.name, others, ns, count, beside);
            }
        DO(cudaGraphExecDestroy(mine));
    }
}
