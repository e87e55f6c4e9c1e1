// What the host pays for a GPU's services: gpusim/lab/record/host.py builds and runs it.
//
//   host      CALL,BYTES,US a line: the median over repeats of the host's time in a call, or of a copy's on its engine
//
// Nothing else runs on the GPU, but where the call's name says so.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "check.cuh"

constexpr size_t KIB = 1024, MIB = 1024 * KIB;
constexpr double BUSY_US = 2000;  // of the kernel beside which calls are timed

__global__ void nothing() {}

__global__ void busy(long long ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - start < ns);
}

static double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static int repeats(size_t bytes) { return bytes >= 256 * MIB ? 9 : bytes >= 16 * MIB ? 21 : 101; }

static void print(const char* call, size_t bytes, double us) {
    printf("%s,%zu,%.4f\n", call, bytes, us);
    fflush(stdout);
}

static double host_us(const std::function<void()>& call) {
    const double start = now_us();
    call();
    return now_us() - start;
}

static double engine_us(cudaStream_t stream, const std::function<void()>& queue) {
    static cudaEvent_t start = nullptr, end = nullptr;
    if (!start) {
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&end));
    }
    CHECK(cudaEventRecord(start, stream));
    queue();
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, end));
    return ms * 1e3;
}

static void allocations(cudaStream_t stream) {
    for (size_t bytes : {4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB}) {
        std::vector<double> malloc_us, free_us, pool_us, pool_free_us;
        for (int i = 0; i < repeats(bytes); ++i) {
            void* memory = nullptr;
            malloc_us.push_back(host_us([&] { CHECK(cudaMalloc(&memory, bytes)); }));
            CHECK(cudaMemset(memory, 0, std::min(bytes, MIB)));
            CHECK(cudaDeviceSynchronize());
            free_us.push_back(host_us([&] { CHECK(cudaFree(memory)); }));
        }
        for (int i = 0; i < repeats(bytes); ++i) {
            void* memory = nullptr;
            const double taken = host_us([&] { CHECK(cudaMallocAsync(&memory, bytes, stream)); });
            CHECK(cudaStreamSynchronize(stream));
            const double given = host_us([&] { CHECK(cudaFreeAsync(memory, stream)); });
            CHECK(cudaStreamSynchronize(stream));
            if (i) pool_us.push_back(taken), pool_free_us.push_back(given);  // the first fills the pool
        }
        print("allocation", bytes, median(malloc_us));
        print("free", bytes, median(free_us));
        print("pool_allocation", bytes, median(pool_us));
        print("pool_free", bytes, median(pool_free_us));
    }
}

static void copies(cudaStream_t stream) {
    const size_t most = 256 * MIB;
    char *device, *other, *pinned, *pageable = static_cast<char*>(malloc(most));
    CHECK(cudaMalloc(&device, most));
    CHECK(cudaMalloc(&other, most));
    CHECK(cudaMallocHost(&pinned, most));
    memset(pageable, 1, most);
    memset(pinned, 1, most);
    for (size_t bytes : {KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB}) {
        const char* names[] = {"h2d_pinned", "d2h_pinned", "d2d", "h2d_pageable", "d2h_pageable"};
        std::vector<double> columns[5];
        for (int i = 0; i <= repeats(bytes); ++i) {
            auto queued = [&](void* at, const void* of, cudaMemcpyKind kind) {
                return engine_us(stream, [&] { CHECK(cudaMemcpyAsync(at, of, bytes, kind, stream)); });
            };
            auto waited = [&](void* at, const void* of, cudaMemcpyKind kind) {
                return host_us([&] {
                    CHECK(cudaMemcpy(at, of, bytes, kind));
                    CHECK(cudaDeviceSynchronize());  // up to 64 KiB the call returns before the bytes have arrived
                });
            };
            const double times[] = {queued(device, pinned, cudaMemcpyHostToDevice),
                                    queued(pinned, device, cudaMemcpyDeviceToHost),
                                    queued(other, device, cudaMemcpyDeviceToDevice),
                                    waited(device, pageable, cudaMemcpyHostToDevice),
                                    waited(pageable, device, cudaMemcpyDeviceToHost)};
            for (int k = 0; k < 5 && i; ++k) columns[k].push_back(times[k]);
        }
        for (int k = 0; k < 5; ++k) print(names[k], bytes, median(columns[k]));
    }
    // Do the directions have engines of their own, and do two copies of one direction take turns?
    cudaStream_t second;
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    const size_t half = most / 2;
    auto together = [&](bool to_first, bool to_second) {
        std::vector<double> times;
        for (int i = 0; i < 9; ++i)
            times.push_back(host_us([&] {
                auto one = [&](bool to, char* at, char* of, cudaStream_t on) {
                    CHECK(cudaMemcpyAsync(to ? at : of, to ? of : at, half, to ? cudaMemcpyHostToDevice
                                                                              : cudaMemcpyDeviceToHost, on));
                };
                one(to_first, device, pinned, stream);
                one(to_second, device + half, pinned + half, second);
                CHECK(cudaDeviceSynchronize());
            }));
        return median(times);
    };
    print("h2d_beside_d2h", half, together(true, false));
    print("h2d_beside_h2d", half, together(true, true));
    CHECK(cudaFree(device));
    CHECK(cudaFree(other));
    CHECK(cudaFreeHost(pinned));
    free(pageable);
}

static void launches(cudaStream_t stream) {
    std::vector<double> launch, round;
    for (int i = 0; i < 50; ++i) {
        const int calls = 100;
        launch.push_back(host_us([&] {
            for (int k = 0; k < calls; ++k) nothing<<<1, 32, 0, stream>>>();
        }) / calls);
        CHECK(cudaStreamSynchronize(stream));
        round.push_back(host_us([&] {
            nothing<<<1, 32, 0, stream>>>();
            CHECK(cudaStreamSynchronize(stream));
        }));
    }
    print("launch", 0, median(launch));
    print("launch_and_wait", 0, median(round));
}

// Which calls wait for a kernel that runs on another stream?
static void beside_a_kernel(cudaStream_t stream) {
    const size_t bytes = 16 * MIB;
    char *device, *pageable = static_cast<char*>(malloc(bytes));
    void* memory = nullptr;
    memset(pageable, 1, bytes);
    CHECK(cudaMalloc(&device, bytes));
    auto beside = [&](const std::function<void()>& before, const std::function<void()>& call) {
        std::vector<double> times;
        for (int i = 0; i < 9; ++i) {
            before();
            CHECK(cudaDeviceSynchronize());
            busy<<<1, 32, 0, stream>>>((long long)(BUSY_US * 1e3));
            times.push_back(host_us(call));
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaFree(memory));
            memory = nullptr;
        }
        return median(times);
    };
    auto take = [&] { CHECK(cudaMalloc(&memory, bytes)); };
    print("allocation_beside_kernel", bytes, beside([] {}, take));
    print("free_beside_kernel", bytes, beside(take, [&] {
              CHECK(cudaFree(memory));
              memory = nullptr;
          }));
    print("h2d_pageable_beside_kernel", bytes, beside([] {}, [&] {
              CHECK(cudaMemcpyAsync(device, pageable, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread));
          }));
    CHECK(cudaFree(device));
    free(pageable);
}

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    cudaStream_t stream;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull;  // what is freed stays in the pool
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    puts("call,bytes,us");
    launches(stream);
    allocations(stream);
    copies(stream);
    beside_a_kernel(stream);
    return 0;
}
