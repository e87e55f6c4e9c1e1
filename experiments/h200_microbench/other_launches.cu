// Time from kernel to kernel in a CUDA graph, alone and while another stream launches kernels of one block that only spin:
// by the length of their code, by the parameters that they read, and by how many different kernels there are.
// other_launches.csv is what it prints:
//     nvcc -O3 -arch=sm_90 -o other_launches other_launches.cu && ./other_launches > other_launches.csv
#include <algorithm>
#include <utility>
#include <vector>

#include "launches.cuh"

constexpr int COUNT = 200, FIRST = 10, ROUNDS = 5, COPIES = 64, OTHERS = 200, THREADS = 128, WORDS = 400;
constexpr size_t OWN = 64 * 1024, SET = size_t(1) << 30;

struct Parameters {
    unsigned long long* log;  // null: none
    float* data;
    const float4* read;
    unsigned works_ns;
};
struct More {
    unsigned long long words[WORDS];
};

// An instruction takes 16 bytes. Constants tell the copies apart.
template <int COPY, int KIB, bool MORE, bool READS> __global__ void kernel(Parameters p, More more) {
    unsigned long long begun = now_ns();
    float x = threadIdx.x, y = COPY;
#pragma unroll
    for (int k = 0; k < KIB * 32; k++) {
        x = fmaf(x, y, 1.0f + COPY);
        y = fmaf(y, x, 2.0f + k);
    }
    if (MORE)
        for (int i = 0; i < WORDS; i += 16) x += more.words[i];
    if (READS) {
        const float4* own = p.read + size_t(blockIdx.x) * 1024 + threadIdx.x;
        x += __ldcg(own).x + __ldcg(own + THREADS).y;
    }
    p.data[threadIdx.x] = x + y;
    while (now_ns() - begun < p.works_ns) {}
    if (p.log && threadIdx.x == 0) *p.log = now_ns();
}

using Kernel = void (*)(Parameters, More);
template <int KIB, bool MORE, bool READS, int... COPY> std::vector<Kernel> copies(std::integer_sequence<int, COPY...>) {
    return {kernel<COPY, KIB, MORE, READS>...};
}
template <int KIB, bool MORE, bool READS> std::vector<Kernel> all() {
    return copies<KIB, MORE, READS>(std::make_integer_sequence<int, COPIES>{});
}

int main() {
    cudaDeviceProp device;
    DO(cudaGetDeviceProperties(&device, 0));
    float* own;
    float4* read;
    unsigned* flag;
    unsigned long long* log;
    DO(cudaMalloc(&own, COUNT * OWN));
    DO(cudaMalloc(&read, SET));
    DO(cudaMemset(read, 0, SET));
    DO(cudaMalloc(&log, 2 * sizeof(*log)));
    DO(cudaMallocHost(&flag, sizeof(*flag)));
    cudaStream_t mine, theirs;
    DO(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
    DO(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
    struct {
        const char* name;
        std::vector<Kernel> copies;
    } kinds[] = {{"little code", all<0, false, false>()},  {"4 KiB of code", all<4, false, false>()},
                 {"16 KiB of code", all<16, false, false>()}, {"3.2 KB of parameters", all<0, true, false>()},
                 {"reads 4 KiB a block", all<0, false, true>()}};
    More more = {};
    std::printf("gpu,spin_ns,kernel,kernels,blocks,works_ns,alone_ns,beside_ns\n");
    for (unsigned spin_ns : {2000u, 10000u}) {
        cudaGraphExec_t others = graph(theirs, [&] {
            for (int i = 0; i < OTHERS; i++) spin<<<1, 32, 0, theirs>>>(spin_ns);
        });
        for (auto& kind : kinds)
            for (int different : {1, COPIES})
                for (int blocks : {1, 132, 1056})
                    for (unsigned works_ns : {0u, 3000u}) {
                        cudaGraphExec_t exec = graph(mine, [&] {
                            for (int i = 0; i < COUNT; i++) {
                                unsigned long long* to = i == FIRST ? log : i == COUNT - 1 ? log + 1 : nullptr;
                                Parameters p{to, own + i * OWN / sizeof(float), read + size_t(i % 32) * 1056 * 1024, works_ns};
                                kind.copies[i % different]<<<blocks, THREADS, 0, mine>>>(p, more);
                            }
                        });
                        double ns[2];
                        for (int beside : {0, 1}) {
                            std::vector<double> found;
                            for (int round = 0; round < ROUNDS; round++) {
                                *(volatile unsigned*)flag = 0;
                                wait_for<<<1, 1, 0, mine>>>(flag);
                                DO(cudaGraphLaunch(exec, mine));
                                for (int i = 0; i < 6 * beside; i++) DO(cudaGraphLaunch(others, theirs));
                                *(volatile unsigned*)flag = 1;
                                DO(cudaStreamSynchronize(mine));
                                unsigned long long at[2];
                                DO(cudaMemcpy(at, log, sizeof(at), cudaMemcpyDeviceToHost));
                                DO(cudaDeviceSynchronize());
                                found.push_back((at[1] - at[0]) / double(COUNT - 1 - FIRST));
                            }
                            std::sort(found.begin(), found.end());
                            ns[beside] = found[ROUNDS / 2];
                        }
                        std::printf("%s,%u,%s,%d,%d,%u,%.0f,%.0f\n", device.name, spin_ns, kind.name, different, blocks, works_ns, ns[0], ns[1]);
                        std::fflush(stdout);
                        DO(cudaGraphExecDestroy(exec));
                    }
        DO(cudaGraphExecDestroy(others));
    }
    return 0;
}
