// Processes that share a GPU without MPS: when does each of them have it?
//
//     nvcc -O2 -arch=sm_90 time_slices.cu -o time_slices && ./time_slices turns.csv
//
// Every process runs kernels that read the GPU's global timer all the time. Where two readings lie more than 5 us apart,
// another process had the SM. A line of the output is a turn of a process, from when its first block ran until its last
// reading before another process ran, or a request: from the launch by the host until the host saw its end.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                    \
    do {                                                                                               \
        cudaError_t error = (call);                                                                    \
        if (error != cudaSuccess) {                                                                    \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(error));              \
            _exit(1);                                                                                  \
        }                                                                                              \
    } while (0)

const unsigned long long GAP_NS = 5000;
const int MOST_SPANS = 1 << 14, MOST_REQUESTS = 512, MOST_PROCESSES = 4;
const int SMS = 132, KIB = 1024, LOGGED = 16 * SMS;  // every so many blocks log when they ran

struct Span { unsigned long long from_ns, to_ns; };
struct Log { unsigned count; Span spans[MOST_SPANS]; };

__device__ unsigned long long now_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

__device__ void add(Log* log, Span span) {
    if (blockIdx.x % LOGGED) return;
    unsigned n = atomicAdd(&log->count, 1);
    if (n < MOST_SPANS) log->spans[n] = span;
}

// Reads the timer so many times while every thread holds so many registers more than it needs.
template <int REGISTERS>
__global__ void work(Log* log, int readings, volatile unsigned* memory) {
    extern __shared__ int held[];
    unsigned values[REGISTERS + 1];
#pragma unroll
    for (int i = 0; i < REGISTERS; i++) values[i] = memory[i];
    if (threadIdx.x == 0) {
        unsigned long long first = now_ns(), last = first;
        for (int i = 0; i < readings; i++) {
            unsigned long long t = now_ns();
            if (t - last > GAP_NS) {
                add(log, {first, last});
                first = t;
            }
            last = t;
        }
        add(log, {first, last});
        held[0] = 1;
    }
    if (REGISTERS) {
        __syncthreads();
        unsigned sum = 0;
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) sum += values[i];
        if (sum == 12345) memory[0] = sum;
    }
}

enum Before { NOTHING, COPY_TO_GPU, COPY_ON_GPU, SET };

// What a process does.
struct Job {
    double kernel_us = 60000;  // work of a kernel; 0: no kernel
    int kernels = 1;           // of a round, one after the other; after a round the host waits for the GPU
    int rounds = 1;
    double every_us = 0;       // from the start of a round to that of the next; 0: at once
    int blocks = SMS, threads = 32, shared_bytes = 4, registers = 0;
    bool graph = false;        // a round is one CUDA graph
    Before before = NOTHING;   // what goes before every kernel in the stream
    int bytes = 0;             // of that
    int priority = 0;          // of the stream
};
struct Case { std::string name; std::vector<Job> jobs; };

struct Shared {
    std::atomic<int> ready, go;
    unsigned spans[MOST_PROCESSES], requests[MOST_PROCESSES];
    Span span[MOST_PROCESSES][MOST_SPANS], request[MOST_PROCESSES][MOST_REQUESTS];
};

double host_us() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

template <typename T> T* shared_memory() {
    return (T*)mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void process(const Job& job, int me, Shared* shared, int readings_per_ms) {
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
    Log* log;
    unsigned* memory;
    char *host = nullptr, *from = nullptr, *to = nullptr;
    CHECK(cudaMalloc(&log, sizeof(Log)));
    CHECK(cudaMalloc(&memory, 4096));
    CHECK(cudaMemset(memory, 0, 4096));
    if (job.bytes) {
        CHECK(cudaMallocHost(&host, job.bytes));
        CHECK(cudaMalloc(&from, job.bytes));
        CHECK(cudaMalloc(&to, job.bytes));
    }
    auto kernel = job.registers == 96 ? work<96> : job.registers == 32 ? work<32> : work<0>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * KIB));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, job.priority));
    int readings = int(job.kernel_us * readings_per_ms / 1000);
    auto round = [&] {
        for (int k = 0; k < job.kernels; k++) {
            if (job.before == COPY_TO_GPU) CHECK(cudaMemcpyAsync(to, host, job.bytes, cudaMemcpyHostToDevice, stream));
            if (job.before == COPY_ON_GPU) CHECK(cudaMemcpyAsync(to, from, job.bytes, cudaMemcpyDeviceToDevice, stream));
            if (job.before == SET) CHECK(cudaMemsetAsync(to, 1, job.bytes, stream));
            if (job.kernel_us > 0) kernel<<<job.blocks, job.threads, job.shared_bytes, stream>>>(log, readings, memory);
        }
    };
    kernel<<<1, 32, 4, stream>>>(log, 10, memory);
    CHECK(cudaStreamSynchronize(stream));
    cudaGraphExec_t graph = nullptr;
    if (job.graph) {
        cudaGraph_t captured;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        round();
        CHECK(cudaStreamEndCapture(stream, &captured));
        CHECK(cudaGraphInstantiate(&graph, captured, 0));
        CHECK(cudaGraphUpload(graph, stream));
    }
    CHECK(cudaMemset(log, 0, sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    shared->ready++;
    while (!shared->go) {}
    double start_us = host_us();
    for (int r = 0; r < job.rounds; r++) {
        while (job.every_us > 0 && host_us() < start_us + r * job.every_us) {}
        double launched_us = host_us();
        if (job.graph) CHECK(cudaGraphLaunch(graph, stream));
        else round();
        CHECK(cudaStreamSynchronize(stream));
        auto ns = [&](double us) { return (unsigned long long)(1e3 * (us - start_us)); };
        if (job.rounds > 1 && r < MOST_REQUESTS) shared->request[me][shared->requests[me]++] = {ns(launched_us), ns(host_us())};
    }
    Log* copied = (Log*)malloc(sizeof(Log));
    CHECK(cudaMemcpy(copied, log, sizeof(Log), cudaMemcpyDeviceToHost));
    shared->spans[me] = std::min(copied->count, unsigned(MOST_SPANS));
    std::copy(copied->spans, copied->spans + shared->spans[me], shared->span[me]);
}

// How many readings of the timer take a millisecond; in a process of its own, because a process with a context must not fork.
int readings_per_ms() {
    int* found = shared_memory<int>();
    if (fork() == 0) {
        Log* log;
        CHECK(cudaMalloc(&log, sizeof(Log)));
        for (int i = 0; i < 2; i++) {
            CHECK(cudaMemset(log, 0, sizeof(unsigned)));
            work<0><<<SMS, 32, 4>>>(log, 1000000, nullptr);
            CHECK(cudaDeviceSynchronize());
        }
        Span span;
        CHECK(cudaMemcpy(&span, log->spans, sizeof(Span), cudaMemcpyDeviceToHost));
        *found = int(1e12 / (span.to_ns - span.from_ns));
        _exit(0);
    }
    wait(nullptr);
    return *found;
}

void write(FILE* out, const Case& c, Shared* shared) {
    struct Turn { Span span; int process; };
    std::vector<Turn> spans, turns;
    for (unsigned p = 0; p < c.jobs.size(); p++)
        for (unsigned i = 0; i < shared->spans[p]; i++) spans.push_back({shared->span[p][i], int(p)});
    std::sort(spans.begin(), spans.end(), [](const Turn& a, const Turn& b) { return a.span.from_ns < b.span.from_ns; });
    for (const Turn& one : spans) {
        if (!turns.empty() && turns.back().process == one.process) turns.back().span.to_ns = std::max(turns.back().span.to_ns, one.span.to_ns);
        else turns.push_back(one);
    }
    auto line = [&](int p, const char* what, Span s, unsigned long long zero) {
        fprintf(out, "%s,%d,%s,%.1f,%.1f\n", c.name.c_str(), p, what, (s.from_ns - zero) / 1e3, (s.to_ns - zero) / 1e3);
    };
    for (const Turn& one : turns) line(one.process, "turn", one.span, turns[0].span.from_ns);
    for (unsigned p = 0; p < c.jobs.size(); p++)
        for (unsigned i = 0; i < shared->requests[p]; i++) line(p, "request", shared->request[p][i], 0);
    fflush(out);
}

std::vector<Case> cases() {
    auto kernel = [](double us) { Job job; job.kernel_us = us; return job; };
    auto holding = [&](int per_sm, int threads, int kib, int registers) {
        Job job = kernel(30000);
        job.blocks = per_sm * SMS, job.threads = threads, job.shared_bytes = std::max(4, kib * KIB), job.registers = registers;
        return job;
    };
    auto rounds = [&](double us, int kernels, int count, double every_us) {
        Job job = kernel(us);
        job.kernels = kernels, job.rounds = count, job.every_us = every_us;
        return job;
    };
    auto after = [&](Before before, int bytes, double us, int kernels, int count) {
        Job job = rounds(us, kernels, count, 0);
        job.before = before, job.bytes = bytes;
        return job;
    };
    auto in_graph = [](Job job) { job.graph = true; return job; };
    auto with_priority = [](Job job) { job.priority = -5; return job; };
    Job endless = kernel(60000), graph = in_graph(rounds(10, 3000, 1, 0)), launches = rounds(10, 3000, 1, 0);
    std::vector<Case> found{
        {"long alone", {endless}},
        {"long x2", {endless, endless}},
        {"long x3", {endless, endless, endless}},
        {"long x4", {endless, endless, endless, endless}},
        {"graph of 10 us kernels x2", {graph, graph}},
        {"launches of 10 us kernels x2", {launches, launches}},
        {"long beside graph", {endless, graph}},
        {"graph rounds of 1 ms x2", {in_graph(rounds(10, 100, 40, 0)), in_graph(rounds(10, 100, 40, 0))}},
        {"rounds of 5 us x2", {rounds(5, 1, 400, 0), rounds(5, 1, 400, 0)}},
        {"rounds of 50 us x2", {rounds(50, 1, 400, 0), rounds(50, 1, 400, 0)}},
        {"rounds of 50 us x4", std::vector<Job>(4, rounds(50, 1, 200, 0))},
        {"rounds of 1 ms x2", {rounds(1000, 1, 40, 0), rounds(1000, 1, 40, 0)}},
        {"50 us every 0.5 ms x2", std::vector<Job>(2, rounds(50, 1, 100, 500))},
        {"50 us every 0.5 ms x4", std::vector<Job>(4, rounds(50, 1, 100, 500))},
        {"1 us every 0.3 ms beside long", {endless, rounds(1, 1, 200, 300)}},
        {"50 us every 1 ms beside long", {endless, rounds(50, 1, 50, 1000)}},
        {"50 us every 1 ms with priority beside long", {endless, with_priority(rounds(50, 1, 50, 1000))}},
        {"50 us every 3.3 ms beside long", {endless, rounds(50, 1, 18, 3300)}},
        {"50 us every 7.7 ms beside long", {endless, rounds(50, 1, 8, 7700)}},
        {"500 us every 5 ms beside long", {endless, rounds(500, 1, 12, 5000)}},
        {"3 ms every 10 ms beside long", {endless, rounds(3000, 1, 6, 10000)}},
        {"50 us every 3.3 ms beside graph", {graph, rounds(50, 1, 10, 3300)}},
        {"many blocks of 5 us x2", std::vector<Job>(2, [&] { Job job = kernel(5); job.blocks = SMS * 16 * 400, job.threads = 128; return job; }())},
    };
    auto both = [&](std::string name, Job job) { found.push_back({name + " x2", {job, job}}); };
    for (int kib : {0, 25, 50, 100, 150, 200}) both("1 block; 32 threads; " + std::to_string(kib) + " KiB; 0 registers", holding(1, 32, kib, 0));
    for (int kib : {50, 100}) both("2 blocks; 32 threads; " + std::to_string(kib) + " KiB; 0 registers", holding(2, 32, kib, 0));
    for (int kib : {25, 50}) both("4 blocks; 32 threads; " + std::to_string(kib) + " KiB; 0 registers", holding(4, 32, kib, 0));
    for (int threads : {128, 384, 1024})
        for (int kib : {0, 100, 200}) both("1 block; " + std::to_string(threads) + " threads; " + std::to_string(kib) + " KiB; 0 registers", holding(1, threads, kib, 0));
    for (int registers : {32, 96})
        for (int threads : {32, 128, 512}) both("1 block; " + std::to_string(threads) + " threads; 0 KiB; " + std::to_string(registers) + " registers", holding(1, threads, 0, registers));
    for (int kib : {0, 25, 50}) both("4 blocks; 128 threads; " + std::to_string(kib) + " KiB; 96 registers", holding(4, 128, kib, 96));
    for (int kib : {0, 100, 200}) both("1 block; 384 threads; " + std::to_string(kib) + " KiB; 96 registers", holding(1, 384, kib, 96));
    for (int kib : {0, 100}) both("2 blocks; 256 threads; " + std::to_string(kib) + " KiB; 96 registers", holding(2, 256, kib, 96));
    both("16 blocks; 128 threads; 0 KiB; 0 registers", holding(16, 128, 0, 0));
    const char* names[] = {"", "copies to the GPU", "copies on the GPU", "sets"};
    for (Before before : {COPY_TO_GPU, COPY_ON_GPU, SET})
        for (int kib : {4, 64, 1024, 65536}) {
            std::string name = std::string(names[before]) + " of " + std::to_string(kib) + " KiB";
            found.push_back({name + " alone", {after(before, kib * KIB, 0, 1, 20)}});
            found.push_back({name + " beside long", {endless, after(before, kib * KIB, 0, 1, 20)}});
            found.push_back({name + " and 50 us queued beside long", {endless, after(before, kib * KIB, 50, 20, 1)}});
        }
    return found;
}

int main(int argc, char** argv) {
    if (argc != 2) return fprintf(stderr, "usage: time_slices OUT.csv\n"), 2;
    FILE* out = fopen(argv[1], "w");
    fprintf(out, "case,process,what,from_us,to_us\n");
    fflush(out);
    int per_ms = readings_per_ms();
    Shared* shared = shared_memory<Shared>();
    for (const Case& c : cases()) {
        new (shared) Shared();
        for (unsigned p = 0; p < c.jobs.size(); p++) {
            if (fork() == 0) {
                process(c.jobs[p], p, shared, per_ms);
                _exit(0);
            }
        }
        while (shared->ready < int(c.jobs.size())) usleep(1000);
        shared->go = 1;
        for (unsigned p = 0; p < c.jobs.size(); p++) wait(nullptr);
        write(out, c, shared);
        fprintf(stderr, "%s\n", c.name.c_str());
    }
    fclose(out);
}
