// Time on the GPU alone: what is timed is queued behind a gate in host memory first, so no host latency is in it.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "calls.cuh"

constexpr int GATES = 2;

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

inline cudaStream_t new_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

class Event {
  public:
    explicit Event(unsigned flags = cudaEventDefault) { CHECK(cudaEventCreateWithFlags(&event_, flags)); }
    Event(const Event&) = delete;
    ~Event() { cudaEventDestroy(event_); }
    operator cudaEvent_t() const { return event_; }
    double since_ms(const Event& start) const {
        float ms;
        CHECK(cudaEventElapsedTime(&ms, start, *this));
        return ms;
    }

  private:
    cudaEvent_t event_;
};

// Streams wait at a gate until it opens. One that stands closed for long opens by itself, for a library call that
// waits for the GPU would wait for ever behind it.
class Gates {
  public:
    Gates() {
        void *host, *device;
        CHECK(cudaHostAlloc(&host, GATES * sizeof(unsigned), cudaHostAllocMapped));
        CHECK(cudaHostGetDevicePointer(&device, host, 0));
        words_ = static_cast<volatile unsigned*>(host);
        device_ = reinterpret_cast<CUdeviceptr>(device);
        for (int gate = 0; gate < GATES; ++gate) words_[gate] = 1;
        watchdog_ = std::thread([this] { watch(); });
    }
    ~Gates() {
        ended_ = true;
        watchdog_.join();
    }
    void hold(cudaStream_t stream, int gate = 0) {
        words_[gate] = 0;
        held_ms_[gate] = 0;
        CHECK(cuStreamWaitValue32(stream, device_ + sizeof(unsigned) * gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    }
    void open(int gate = 0) { words_[gate] = 1; }

  private:
    void watch() {
        while (!ended_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            for (int gate = 0; gate < GATES; ++gate)
                if (!words_[gate] && ++held_ms_[gate] > 200) words_[gate] = 1;
        }
    }
    volatile unsigned* words_;
    CUdeviceptr device_;
    std::atomic<int> held_ms_[GATES] = {};
    std::atomic<bool> ended_{false};
    std::thread watchdog_;
};

__global__ void read_all(const float4* values, size_t count, float* out) {
    float sum = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
        const float4 v = values[i];
        sum += v.x + v.y + v.z + v.w;
    }
    if (sum == 1.2345f) *out = sum;
}

class Timer {
  public:
    // ms a call of `calls` back to back: the median of up to `repeats`, fewer of long ones. A cold call follows a read
    // of 512 MiB, so that L2 and the instruction caches hold something else.
    double ms(Work& work, Library& on, cudaStream_t stream, int repeats, int calls = 1, bool cold = false) {
        on.on(stream);
        double spent_ms = 0;
        std::vector<double> times;
        while (times.empty() || (int(times.size()) < repeats && (times.size() < 3 || spent_ms < ENOUGH_MS))) {
            gates.hold(stream);
            if (cold)
                read_all<<<1056, 256, 0, stream>>>(reinterpret_cast<const float4*>(flush_.data()),
                                                   FLUSH_BYTES / sizeof(float4),
                                                   flush_.data() + FLUSH_BYTES / sizeof(float));
            CHECK(cudaEventRecord(start_, stream));
            for (int i = 0; i < calls; ++i) on.enqueue(work);
            CHECK(cudaEventRecord(end_, stream));
            gates.open();
            CHECK(cudaStreamSynchronize(stream));
            require_ran(on.all_ran());
            times.push_back(end_.since_ms(start_) / calls);
            spent_ms += times.back() * calls;
        }
        return median(times);
    }
    Gates gates;

  private:
    static constexpr double ENOUGH_MS = 60;
    static constexpr size_t FLUSH_BYTES = size_t(512) << 20;
    Buffer flush_{FLUSH_BYTES / sizeof(float) + 1};
    Event start_, end_;
};
