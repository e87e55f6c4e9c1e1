// How an SM is divided between L1 and shared memory for blocks that waited until the blocks of another stream left it.
// Then the same blocks stay, and 528 blocks of a third stream come late: how many start beside them.
// handed_over.csv is what it prints:
//     nvcc -O3 -arch=sm_90 -o handed_over handed_over.cu && ./handed_over > handed_over.csv
#include <algorithm>
#include <ctime>
#include <vector>

#include "launches.cuh"

constexpr int SMS = 132, PASSES = 40, ROUNDS = 5;
constexpr size_t LARGEST = 227 << 10, STATIC = 4 << 10;

struct Block {
    unsigned sm;
    unsigned long long begun, ended;
    unsigned cycles;  // of the last pass over what it reads
};

__device__ unsigned sm_id() {
    unsigned sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    return sm;
}

// Reads so many bytes again and again, then stays for some time.
__global__ void reads(Block* blocks, const int* from, int bytes, unsigned ns, int* sink) {
    __shared__ int own[STATIC / sizeof(int)];  // so that it has no room beside a block with `LARGEST`
    own[threadIdx.x] = threadIdx.x;
    __syncthreads();
    unsigned long long begun = now_ns();
    int sum = own[(threadIdx.x * 7) % blockDim.x];
    long long pass = 0;
    for (int turn = 0; turn < PASSES; turn++) {
        __syncthreads();
        long long at = clock64();
        for (int i = threadIdx.x * 8; i < bytes / 4; i += blockDim.x * 8) sum += __ldca(from + i);
        __syncthreads();
        pass = clock64() - at;
    }
    while (now_ns() - begun < ns) {}
    if (sum == -1) *sink = sum;
    if (threadIdx.x == 0) blocks[blockIdx.x] = {sm_id(), begun, now_ns(), unsigned(pass)};
}

__global__ void stays(Block* blocks, unsigned ns) {
    unsigned long long begun = now_ns();
    while (now_ns() - begun < ns) {}
    if (threadIdx.x == 0) blocks[blockIdx.x] = {sm_id(), begun, now_ns(), 0};
}

int main() {
    cudaStream_t first, second, third;
    for (cudaStream_t* stream : {&first, &second, &third}) DO(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    Block *before, *own, *late;
    const int many = 4 * SMS;
    for (Block** blocks : {&before, &own, &late}) DO(cudaMallocManaged(blocks, many * sizeof(Block)));
    int *from, *sink;
    DO(cudaMalloc(&from, 1 << 20));
    DO(cudaMemset(from, 0, 1 << 20));
    DO(cudaMalloc(&sink, sizeof(int)));
    DO(cudaFuncSetAttribute(stays, cudaFuncAttributeMaxDynamicSharedMemorySize, LARGEST));
    auto sleep_us = [](double us) {
        timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        do clock_gettime(CLOCK_MONOTONIC, &b);
        while ((b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) * 1e-3 < us);
    };
    // A kernel of 132 blocks on an idle GPU; right after blocks of 227 KiB in their stream; or it waited for these in another.
    auto launch = [&](const char* when, int bytes, int threads, unsigned ns) {
        if (*when != 'i') stays<<<SMS, 1024, LARGEST, first>>>(before, 100000);
        cudaStream_t stream = *when == 'w' ? second : first;
        reads<<<SMS, threads, 0, stream>>>(own, from, bytes, ns, sink);
    };
    std::printf("started,read_kib,late_kib,round,cycles_of_a_pass,late_blocks_beside\n");
    for (int round = 0; round < ROUNDS; round++)
        for (int kib : {20, 60, 120, 180})
            for (const char* when : {"idle", "after", "waited"}) {
                launch(when, kib << 10, 1024, 0);
                DO(cudaDeviceSynchronize());
                std::vector<unsigned> cycles;
                for (int i = 0; i < SMS; i++) cycles.push_back(own[i].cycles);
                std::sort(cycles.begin(), cycles.end());
                std::printf("%s,%d,,%d,%u,\n", when, kib, round, cycles[SMS / 2]);
            }
    for (int round = 0; round < ROUNDS; round++)
        for (int kib : {20, 60, 100})
            for (const char* when : {"idle", "after", "waited"}) {
                launch(when, 1024, 600, 400000);
                sleep_us(*when == 'i' ? 80 : 250);  // its blocks run by then, and the others have ended
                stays<<<many, 128, kib << 10, third>>>(late, 100000);
                DO(cudaDeviceSynchronize());
                int beside = 0;
                for (int i = 0; i < many; i++)
                    beside += std::any_of(own, own + SMS, [&](const Block& block) {
                        return block.sm == late[i].sm && block.begun < late[i].begun && late[i].begun < block.ended;
                    });
                std::printf("%s,1,%d,%d,,%d\n", when, kib, round, beside);
            }
    return 0;
}
