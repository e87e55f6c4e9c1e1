// One training step of a two-layer network as Geisler's code does it, on this machine's GPU, and what changes of it save.
//
//   step RANKS...            for each number of ranks (processes): a line of CSV for each hidden layer and variant
//   step kernels             HIDDEN,GEMM,US: each matrix product alone, on the GPU
//
// A rank multiplies five times a step (forward twice, backward three times). Ranks meet at the end of every step; what
// his code does on the CPU between the products, and the messages of MPI, are left out.
#include <cuda_runtime.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../../gpusim/lab/record/check.cuh"

constexpr int TILE = 32, PIXELS = 784, DIGITS = 10, BATCH = 800, RANKS_OF_PAPER = 4;
constexpr int IMAGES = BATCH / RANKS_OF_PAPER;  // of a rank
constexpr int WARM_UP = 20, STEPS = 200;

// C = A B + C, row-major; a block computes a tile of C from tiles in shared memory, a thread one element.
__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int at = 0; at < k; at += TILE) {
        left[threadIdx.y][threadIdx.x] = row < m && at + threadIdx.x < k ? a[row * k + at + threadIdx.x] : 0;
        right[threadIdx.y][threadIdx.x] = at + threadIdx.y < k && column < n ? b[(at + threadIdx.y) * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] += sum;
}

struct Product {
    int m, n, k;
    size_t a() const { return sizeof(float) * m * k; }
    size_t b() const { return sizeof(float) * k * n; }
    size_t c() const { return sizeof(float) * m * n; }
    void launch(const float* a, const float* b, float* c, cudaStream_t stream) const {
        gemm<<<dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), dim3(TILE, TILE), 0, stream>>>(a, b, c, m, n, k);
    }
};

static std::vector<Product> products(int hidden) {
    return {{hidden, IMAGES, PIXELS},   // W1 X
            {DIGITS, IMAGES, hidden},   // W2 a1
            {DIGITS, hidden, IMAGES},   // gradient of W2
            {hidden, IMAGES, DIGITS},   // gradient of a1
            {hidden, PIXELS, IMAGES}};  // gradient of W1
}

static double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

struct Times {
    double allocation = 0, free = 0, h2d = 0, kernel = 0, d2h = 0;
};

template <typename Call>
static void timed(double& total, Call call) {
    const double start = now_us();
    call();
    total += now_us() - start;
}

enum Variant { AS_WRITTEN, KEPT, POOL, ON_DEVICE, OVERLAPPED, VARIANTS };
static const char* const NAMES[] = {"as_written", "kept", "pool", "on_device", "overlapped"};

class Rank {
  public:
    explicit Rank(int hidden) : products_(products(hidden)) {
        size_t most = 0;
        for (const Product& p : products_) most = std::max({most, p.a(), p.b(), p.c()});
        for (float*& host : host_) {
            host = static_cast<float*>(malloc(most));
            memset(host, 0, most);
        }
        for (float*& pinned : pinned_) CHECK(cudaMallocHost(&pinned, most));
        for (float*& device : device_) CHECK(cudaMalloc(&device, most));
        CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&read_, cudaEventDisableTiming));
        cudaMemPool_t pool;
        unsigned long long keep = ~0ull;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    }

    void step(Variant variant, Times& times) {
        if (variant == ON_DEVICE || variant == OVERLAPPED) return on_device(variant == OVERLAPPED, times);
        for (const Product& p : products_) multiply(p, variant, times);
    }

    // Each product alone, event to event of 50 in a row.
    void kernels(int hidden) {
        cudaEvent_t start, end;
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&end));
        for (size_t i = 0; i < products_.size(); ++i) {
            std::vector<double> times;
            for (int repeat = 0; repeat < 21; ++repeat) {
                CHECK(cudaEventRecord(start, stream_));
                for (int k = 0; k < 50; ++k) products_[i].launch(device_[0], device_[1], device_[2], stream_);
                CHECK(cudaEventRecord(end, stream_));
                CHECK(cudaStreamSynchronize(stream_));
                float ms;
                CHECK(cudaEventElapsedTime(&ms, start, end));
                times.push_back(ms * 1e3 / 50);
            }
            std::sort(times.begin(), times.end());
            printf("%d,%zu,%.4f\n", hidden, i + 1, times[10]);
        }
    }

  private:
    // A product as his code does it: memory for three matrices, copies in, the kernel, a copy out, memory given back.
    void multiply(const Product& p, Variant variant, Times& times) {
        float* at[3] = {device_[0], device_[1], device_[2]};
        const size_t bytes[3] = {p.a(), p.b(), p.c()};
        timed(times.allocation, [&] {
            for (int i = 0; i < 3; ++i) {
                if (variant == AS_WRITTEN) CHECK(cudaMalloc(&at[i], bytes[i]));
                if (variant == POOL) CHECK(cudaMallocAsync(&at[i], bytes[i], stream_));
            }
            if (variant == POOL) CHECK(cudaStreamSynchronize(stream_));
        });
        timed(times.h2d, [&] {
            for (int i = 0; i < 3; ++i) CHECK(cudaMemcpy(at[i], host_[i], bytes[i], cudaMemcpyHostToDevice));
        });
        timed(times.kernel, [&] {
            p.launch(at[0], at[1], at[2], stream_);
            CHECK(cudaStreamSynchronize(stream_));
        });
        timed(times.d2h, [&] { CHECK(cudaMemcpy(host_[2], at[2], bytes[2], cudaMemcpyDeviceToHost)); });
        timed(times.free, [&] {
            for (int i = 0; i < 3; ++i) {
                if (variant == AS_WRITTEN) CHECK(cudaFree(at[i]));
                if (variant == POOL) CHECK(cudaFreeAsync(at[i], stream_));
            }
        });
    }

    // Images and weights in, five products on the GPU, gradients out; overlapped: pinned memory, and the next step's
    // images arrive while this one's products run.
    void on_device(bool overlapped, Times& times) {
        const Product &first = products_.front(), &second = products_[1];
        auto in = [&](float* to, int from, size_t bytes, cudaStream_t stream) {
            if (overlapped) CHECK(cudaMemcpyAsync(to, pinned_[from], bytes, cudaMemcpyHostToDevice, stream));
            else CHECK(cudaMemcpy(to, host_[from], bytes, cudaMemcpyHostToDevice));
        };
        timed(times.h2d, [&] {
            if (overlapped) {
                CHECK(cudaStreamWaitEvent(copies_, read_, 0));
                in(device_[next_ ? 3 : 1], 1, first.b(), copies_);  // for the next step
                next_ = !next_;
            } else in(device_[1], 1, first.b(), stream_);
            in(device_[0], 0, first.a(), stream_);
            in(device_[4], 0, second.a(), stream_);
        });
        timed(times.kernel, [&] {
            if (overlapped) CHECK(cudaStreamWaitEvent(stream_, arrived_, 0));
            float* images = device_[overlapped && next_ ? 3 : 1];
            products_[0].launch(device_[0], images, device_[5], stream_);
            products_[1].launch(device_[4], device_[5], device_[6], stream_);
            products_[2].launch(device_[6], device_[5], device_[7], stream_);
            products_[3].launch(device_[4], device_[6], device_[2], stream_);
            products_[4].launch(device_[2], images, device_[8], stream_);
            if (overlapped) CHECK(cudaEventRecord(read_, stream_));
            else CHECK(cudaStreamSynchronize(stream_));
        });
        timed(times.d2h, [&] {
            auto out = [&](int from, size_t bytes) {
                if (overlapped) CHECK(cudaMemcpyAsync(pinned_[2], device_[from], bytes, cudaMemcpyDeviceToHost, stream_));
                else CHECK(cudaMemcpy(host_[2], device_[from], bytes, cudaMemcpyDeviceToHost));
            };
            out(7, products_[2].c());
            out(8, products_[4].c());
            CHECK(cudaStreamSynchronize(stream_));
            if (overlapped) CHECK(cudaEventRecord(arrived_, copies_));
        });
    }

    std::vector<Product> products_;
    float *host_[3], *pinned_[3], *device_[9];
    cudaStream_t stream_, copies_;
    cudaEvent_t arrived_, read_;
    bool next_ = false;
};

static void run_rank(int index, int ranks, pthread_barrier_t* barrier) {
    for (int hidden : {100, 1000}) {
        Rank rank(hidden);
        for (int variant = 0; variant < VARIANTS; ++variant) {
            Times times;
            double start = 0;
            for (int step = 0; step < WARM_UP + STEPS; ++step) {
                if (step == WARM_UP) start = now_us(), times = Times();
                rank.step(Variant(variant), times);
                pthread_barrier_wait(barrier);
            }
            const double us = (now_us() - start) / STEPS;
            if (index == 0)
                printf("%d,%d,%s,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", ranks, hidden, NAMES[variant], us,
                       times.allocation / STEPS, times.free / STEPS, times.h2d / STEPS, times.kernel / STEPS,
                       times.d2h / STEPS);
            fflush(stdout);
        }
    }
}

int main(int count, char** arguments) {
    if (count < 2) return 1;
    if (std::string(arguments[1]) == "kernels") {
        puts("hidden,gemm,us");
        for (int hidden : {100, 1000}) Rank(hidden).kernels(hidden);
        return 0;
    }
    puts("ranks,hidden,variant,step_us,allocation_us,free_us,h2d_us,kernel_us,d2h_us");
    fflush(stdout);
    for (int i = 1; i < count; ++i) {
        const int ranks = atoi(arguments[i]);
        auto* barrier = static_cast<pthread_barrier_t*>(
            mmap(nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        pthread_barrierattr_t shared;
        pthread_barrierattr_init(&shared);
        pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(barrier, &shared, ranks);
        for (int rank = 0; rank < ranks; ++rank) {
            if (fork() == 0) {
                run_rank(rank, ranks, barrier);
                _exit(0);
            }
        }
        bool failed = false;
        for (int rank = 0, status; rank < ranks; ++rank) {
            wait(&status);
            failed |= status != 0;
        }
        if (failed) return 1;
    }
    return 0;
}
