// Kernels that only wait, on two streams: `placement CASES`.
//
// A line of CASES (cases.csv, by run.py) is a kernel of one stream of a pair: the grid, threads, registers and shared
// memory of a recorded one, and how long each of its blocks holds them. A stream calls its kernels one after the other,
// as often as the line says. One flag releases both streams. Every pair runs once unlogged, then each stream alone and
// both together, RUNS times. Prints a line a launch: when its first block started, its last one started and its last
// one ended, us from the first block of all; on how many SMs, and the most blocks that one SM got. Shared memory is
// divided as the driver does by itself, as it does for cuDNN. Exit status 3: no usable GPU.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../../gpusim/lab/record/check.cuh"
#include "../../gpusim/lab/record/device.cuh"

constexpr int RUNS = 5;
constexpr int STREAMS = 2;
constexpr int TEMPLATES = 60;  // of 4 live registers each more than the one before
constexpr int MOST_SHARED_MEMORY = 227 * 1024;

struct Block {
    u64 start_ns, end_ns;
    unsigned sm, unused;
};

// Holds LIVE registers a thread, more than it uses, for some cycles: `never` is 0, which the compiler cannot know.
template <int LIVE>
__global__ void wait(long long cycles, Block* log, volatile float* values, int never) {
    const u64 start_ns = globaltimer();
    const long long start = clock64();
    float held[LIVE];
#pragma unroll
    for (int i = 0; i < LIVE; ++i) held[i] = 0.0f;
    if (never)
#pragma unroll
        for (int i = 0; i < LIVE; ++i) held[i] = values[i];
    while (clock64() - start < cycles) asm volatile("nanosleep.u32 100;");
    if (never)
#pragma unroll
        for (int i = 0; i < LIVE; ++i) values[i] = held[i];
    __syncthreads();
    if (threadIdx.x == 0) log[blockIdx.x] = {start_ns, globaltimer(), smid(), 0};
}

using Waiting = void (*)(long long, Block*, volatile float*, int);

template <size_t... I>
static std::vector<Waiting> templates(std::index_sequence<I...>) {
    return {wait<int(I) * 4 + 1>...};
}

// By registers a thread, as allocated: in units of 8.
static std::map<int, Waiting> by_registers() {
    std::map<int, Waiting> found;
    for (Waiting kernel : templates(std::make_index_sequence<TEMPLATES>{})) {
        cudaFuncAttributes attributes;
        CHECK(cudaFuncGetAttributes(&attributes, kernel));
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED_MEMORY));
        if (attributes.localSizeBytes == 0) found.emplace((attributes.numRegs + 7) / 8 * 8, kernel);
    }
    return found;
}

struct Kernel {
    int blocks, threads, registers, shared_memory;
    long long cycles;
    Waiting code;
};

struct Stream {
    int calls = 0;
    std::vector<Kernel> kernels;
};

using Pairs = std::map<int, std::vector<Stream>>;

static Pairs read_pairs(const char* path, const std::map<int, Waiting>& kernels, double cycles_per_us) {
    Pairs pairs;
    std::ifstream file(path);
    std::string line;
    getline(file, line);  // titles
    while (getline(file, line)) {
        std::replace(line.begin(), line.end(), ',', ' ');
        std::istringstream fields(line);
        int pair, stream, calls, index, config;
        std::string op;
        Kernel kernel;
        double block_us;
        fields >> pair >> stream >> op >> calls >> index >> kernel.blocks >> kernel.threads >> kernel.registers >>
            kernel.shared_memory >> config >> block_us;
        const auto code = kernels.lower_bound(kernel.registers);
        if (!fields || stream < 0 || stream >= STREAMS || code == kernels.end())
            fail(path, line.c_str(), __FILE__, __LINE__);
        kernel.registers = code->first;
        kernel.code = code->second;
        kernel.cycles = (long long)(block_us * cycles_per_us);
        pairs[pair].resize(STREAMS);
        pairs[pair][stream].calls = calls;
        pairs[pair][stream].kernels.push_back(kernel);
    }
    return pairs;
}

struct Launch {
    int stream, call, index;
    const Kernel* kernel;
    size_t first_block;
};

class Runner {
  public:
    Runner() : streams_(STREAMS) {
        for (cudaStream_t& stream : streams_) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&values_, 4096));
        CHECK(cudaMemset(values_, 0, 4096));
        void *host, *device;
        CHECK(cudaHostAlloc(&host, sizeof(unsigned), cudaHostAllocMapped));
        CHECK(cudaHostGetDevicePointer(&device, host, 0));
        flag_ = static_cast<volatile unsigned*>(host);
        device_flag_ = reinterpret_cast<CUdeviceptr>(device);
    }

    // What ran, in order of launch; the log of its blocks is in `blocks`.
    std::vector<Launch> run(const std::vector<Stream>& pair, const std::vector<int>& taking_part) {
        std::vector<Launch> launches = planned(pair, taking_part);
        *flag_ = 0;
        for (int stream : taking_part)
            if (cuStreamWaitValue32(streams_[stream], device_flag_, 1, CU_STREAM_WAIT_VALUE_EQ) != CUDA_SUCCESS)
                fail("CUDA", "streams cannot wait for a flag", __FILE__, __LINE__);
        for (const Launch& launch : launches) {
            const Kernel& kernel = *launch.kernel;
            kernel.code<<<kernel.blocks, kernel.threads, kernel.shared_memory, streams_[launch.stream]>>>(
                kernel.cycles, log_ + launch.first_block, values_, 0);
            CHECK(cudaGetLastError());
        }
        *flag_ = 1;
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(blocks.data(), log_, blocks.size() * sizeof(Block), cudaMemcpyDeviceToHost));
        return launches;
    }

    std::vector<Block> blocks;

  private:
    std::vector<Launch> planned(const std::vector<Stream>& pair, const std::vector<int>& taking_part) {
        std::vector<Launch> launches;
        size_t count = 0;
        for (int stream : taking_part)
            for (int call = 0; call < pair[stream].calls; ++call)
                for (size_t i = 0; i < pair[stream].kernels.size(); ++i) {
                    launches.push_back({stream, call, int(i), &pair[stream].kernels[i], count});
                    count += pair[stream].kernels[i].blocks;
                }
        if (count > logged_) {
            CHECK(cudaFree(log_));
            CHECK(cudaMalloc(&log_, count * sizeof(Block)));
            logged_ = count;
        }
        blocks.resize(count);
        return launches;
    }

    std::vector<cudaStream_t> streams_;
    float* values_;
    volatile unsigned* flag_;
    CUdeviceptr device_flag_;
    Block* log_ = nullptr;
    size_t logged_ = 0;
};

static void print(int pair, int run, const std::vector<int>& taking_part, const std::vector<Launch>& launches,
                  const std::vector<Block>& blocks) {
    u64 origin_ns = ~0ull;
    for (const Block& block : blocks) origin_ns = std::min(origin_ns, block.start_ns);
    for (const Launch& launch : launches) {
        u64 start_ns = ~0ull, last_ns = 0, end_ns = 0;
        std::map<unsigned, int> on_sm;
        int most = 0;
        for (int i = 0; i < launch.kernel->blocks; ++i) {
            const Block& block = blocks[launch.first_block + i];
            start_ns = std::min(start_ns, block.start_ns);
            last_ns = std::max(last_ns, block.start_ns);
            end_ns = std::max(end_ns, block.end_ns);
            most = std::max(most, ++on_sm[block.sm]);
        }
        printf("%d,%d,%d,%d,%d,%d,%d,%.2f,%.2f,%.2f,%d,%d\n", pair, int(taking_part.size()), run, launch.stream,
               launch.call, launch.index, launch.kernel->registers, (start_ns - origin_ns) / 1e3,
               (last_ns - origin_ns) / 1e3, (end_ns - origin_ns) / 1e3, int(on_sm.size()), most);
    }
}

int main(int count, char** arguments) {
    int devices = 0, khz = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    if (count != 2) return EXIT_FAILED;
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
    const Pairs pairs = read_pairs(arguments[1], by_registers(), khz / 1e3);
    Runner runner;
    puts("pair,streams,run,stream,call,kernel,registers,start_us,last_us,end_us,sms,most_blocks");
    for (const auto& [number, pair] : pairs) {
        runner.run(pair, {0, 1});
        for (const std::vector<int>& taking_part : {std::vector<int>{0}, {1}, {0, 1}})
            for (int run = 0; run < RUNS; ++run) {
                const std::vector<Launch> launches = runner.run(pair, taking_part);
                print(number, run, taking_part, launches, runner.blocks);
            }
    }
    return EXIT_SUCCESS;
}
