// Two convolution kernels on the same SMs, kernel by kernel: `mixes CALLS SMS`.
//
// CALLS is as in gpusim/lab/record/convolutions/calls.cuh; each call is one kernel. For every ordered pair of them, two
// streams of one green context of SMS SMs wait at one gate, with about TOTAL_US of the first call and of the second.
// Prints sms,a,b,stream,start_us,end_us: a line a kernel, as CUPTI has its times. Lines without b are of a call alone.
#include <cupti.h>

#include <map>

#include "../../gpusim/lab/record/convolutions/timing.cuh"

constexpr double TOTAL_US = 300;
constexpr int LEAST_CALLS = 2, MOST_CALLS = 24;
constexpr size_t BUFFER_BYTES = 1 << 22;

inline void check(CUptiResult result, const char* file, int line) {
    if (result == CUPTI_SUCCESS) return;
    const char* why = nullptr;
    cuptiGetResultString(result, &why);
    fail("CUPTI", why ? why : "unknown", file, line);
}

struct Kernel {
    uint64_t start, end;  // ns
    uint32_t stream;
};
static std::vector<Kernel> kernels;  // since they were last taken

static void CUPTIAPI give(uint8_t** buffer, size_t* bytes, size_t* most) {
    *bytes = BUFFER_BYTES;
    *buffer = static_cast<uint8_t*>(aligned_alloc(8, BUFFER_BYTES));
    *most = 0;
}

static void CUPTIAPI take(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            const auto* kernel = reinterpret_cast<CUpti_ActivityKernel9*>(record);
            kernels.push_back({kernel->start, kernel->end, kernel->streamId});
        }
    free(buffer);
}

static std::vector<Kernel> taken() {
    CHECK(cuptiActivityFlushAll(1));
    std::sort(kernels.begin(), kernels.end(), [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
    return std::exchange(kernels, {});
}

// Two streams on the same SMs.
struct Streams {
    cudaStream_t of[2];

    explicit Streams(unsigned sms) {
        CUdevice device;
        CUdevResource all, part, rest;
        CUdevResourceDesc described;
        CUgreenCtx context;
        unsigned parts = 1;
        CHECK(cuDeviceGet(&device, 0));
        CHECK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
        CHECK(cuDevSmResourceSplitByCount(&part, &parts, &all, &rest, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, sms));
        if (part.sm.smCount != sms) fail("green context", "no such number of SMs", __FILE__, int(sms));
        CHECK(cuDevResourceGenerateDesc(&described, &part, 1));
        CHECK(cuGreenCtxCreate(&context, described, device, CU_GREEN_CTX_DEFAULT_STREAM));
        for (auto& stream : of) CHECK(cuGreenCtxStreamCreate(&stream, context, CU_STREAM_NON_BLOCKING, 0));
    }
};

class Recorder {
  public:
    explicit Recorder(unsigned sms) : sms_(sms), streams_(sms) {}

    void alone(Work& work) {
        run(&work, nullptr);
        const auto found = run(&work, nullptr);
        id_ = found.front().stream;
        count_[&work] = int(std::clamp(TOTAL_US * calls(work) * 1e3 / double(found.back().end - found.front().start),
                                       double(LEAST_CALLS), double(MOST_CALLS)));
        print(run(&work, nullptr), work, nullptr);
    }

    void pair(Work& a, Work& b) {
        run(&a, &b);
        print(run(&a, &b), a, &b);
    }

  private:
    int calls(Work& work) { return count_.count(&work) ? count_[&work] : 4; }

    std::vector<Kernel> run(Work* a, Work* b) {
        Work* works[] = {a, b};
        for (int s = 0; s < (b ? 2 : 1); ++s) {
            gates_.hold(streams_.of[s]);
            library_[s].on(streams_.of[s]);
            for (int i = 0, count = calls(*works[s]); i < count; ++i) library_[s].enqueue(*works[s]);
        }
        gates_.open();
        CHECK(cudaDeviceSynchronize());
        require_ran(library_[0].all_ran() && library_[1].all_ran());
        return taken();
    }

    void print(const std::vector<Kernel>& found, Work& a, Work* b) {
        for (const Kernel& kernel : found)
            printf("%u,%s,%s,%s,%.3f,%.3f\n", sms_, a.call.op.c_str(), b ? b->call.op.c_str() : "",
                   kernel.stream == id_ ? "a" : "b", double(kernel.start - found.front().start) / 1e3,
                   double(kernel.end - found.front().start) / 1e3);
    }

    unsigned sms_;
    Streams streams_;
    Library library_[2];
    Gates gates_;
    std::map<Work*, int> count_;
    uint32_t id_ = 0;
};

int main(int count, char** arguments) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    if (count != 3) return EXIT_FAILED;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    CHECK(cuptiActivityRegisterCallbacks(give, take));
    CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    Library library;
    std::vector<std::unique_ptr<Work>> works;
    for (const Call& call : read_calls(arguments[1])) works.push_back(prepare(call, library));
    CHECK(cudaDeviceSynchronize());
    taken();
    Recorder recorder(unsigned(atoi(arguments[2])));
    for (auto& work : works) recorder.alone(*work);
    for (auto& a : works)
        for (auto& b : works) recorder.pair(*a, *b);
    return 0;
}
