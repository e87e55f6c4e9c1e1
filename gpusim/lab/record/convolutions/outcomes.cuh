// What a GPU does with calls in other conditions than alone, as `gpusim validate` scores it.
//
// CONDITIONS has one condition a line, its fields separated by spaces; each is answered by lines of CSV:
//   sm_curve    op                              op,sms,ms
//   residency   op block_smem_bytes most        op,blocks_per_sm,reserved_smem_bytes,ms
//   counted     op block_smem_bytes room …      op,blocks_per_sm
//   pairs       a na b nb                       a,na,b,nb,mode,sms_a,sms_b,ms_a,ms_b,ms_makespan
//   quota       a smem_a kA b smem_b kB         a,kA,b,kB,ms_release,ms_a,ms_b
//   modules     module selection op … , op …    module,selection,branch,ops,mode,ms_end,ms_makespan
//   plans       name plan sharing step …        name,plan,turn,step,op,stream,sms,ms_end,ms_makespan
// A step of a plan is `stream op after`: number of its stream, call, and numbers of the steps (0, 1, …) on other streams
// that it waits for, as 0,2 or - for none. How the streams share the GPU is one of
//   all             plain streams, released by one flag
//   64+68           SMs of its own for each, released by one flag
//   priority=0+1    a priority for each, 0 the lowest, released by one flag
//   ordered         plain streams, each released by a flag of its own, in their order
//   host            plain streams, launched by the host in the order of the steps, behind no flag
// Streams that one flag releases start in an order that depends on which of CUDA's streams has which work, and stays the
// same: where no stream has SMs of its own, all take turns, and in turn n stream i of the plan is the (i + n)th.
#pragma once
#include <cuda_profiler_api.h>

#include <functional>

#include "timing.cuh"

// Disjoint sets of SMs (a CUDA green context each), with a stream on each.
class Parts {
  public:
    // One of `sms`, and one of the rest where there is any.
    explicit Parts(unsigned sms) {
        CUdevResource all = every_sm(), first, rest;
        unsigned groups = 1;
        CHECK(cuDevSmResourceSplitByCount(&first, &groups, &all, &rest, 0, sms));
        for (CUdevResource* part : {&first, &rest})
            if (part->sm.smCount > 0) add(part, 1);
    }
    // Of about the sizes asked for (rounded to what the GPU makes).
    explicit Parts(const std::vector<unsigned>& sizes) {
        constexpr unsigned unit = 8;  // SMs that a green context is made of, from compute capability 9.0
        CUdevResource all = every_sm(), rest;
        unsigned groups = all.sm.smCount / unit;
        std::vector<CUdevResource> units(groups);
        CHECK(cuDevSmResourceSplitByCount(units.data(), &groups, &all, &rest, 0, unit));
        units.resize(groups);
        if (rest.sm.smCount > 0) units.push_back(rest);
        size_t next = 0;
        for (size_t i = 0; i < sizes.size(); ++i) {
            const size_t end = i + 1 < sizes.size() ? std::min(units.size(), next + sizes[i] / unit) : units.size();
            add(units.data() + next, unsigned(end - next));
            next = end;
        }
    }
    unsigned sms(size_t part) const { return sms_[part]; }
    cudaStream_t stream(size_t part) const { return streams_[part]; }
    bool both() const { return streams_.size() == 2; }

  private:
    CUdevResource every_sm() {
        CUdevResource all;
        CHECK(cuDeviceGet(&device_, 0));
        CHECK(cuDeviceGetDevResource(device_, &all, CU_DEV_RESOURCE_TYPE_SM));
        return all;
    }
    void add(CUdevResource* units, unsigned count) {
        CUdevResourceDesc description;
        CUgreenCtx context;
        CUstream stream;
        unsigned sms = 0;
        for (unsigned n = 0; n < count; ++n) sms += units[n].sm.smCount;
        CHECK(cuDevResourceGenerateDesc(&description, units, count));
        CHECK(cuGreenCtxCreate(&context, description, device_, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK(cuGreenCtxStreamCreate(&stream, context, CU_STREAM_NON_BLOCKING, 0));
        sms_.push_back(sms);
        streams_.push_back(stream);
    }
    CUdevice device_;
    std::vector<unsigned> sms_;
    std::vector<cudaStream_t> streams_;
};

__global__ void hold_memory(volatile unsigned* release, unsigned* holding) {
    extern __shared__ char reserved[];
    if (threadIdx.x == 0) {
        atomicAdd(holding, 1u);
        while (!*release) __nanosleep(4000);
    }
}

// Shared memory held on every SM by a sleeping one-warp block, so that less is left for others.
class Reservation {
  public:
    Reservation() {
        cudaDeviceProp properties;
        CHECK(cudaGetDeviceProperties(&properties, 0));
        sm_count_ = properties.multiProcessorCount;
        sm_bytes_ = long(properties.sharedMemPerMultiprocessor);
        block_bytes_ = long(properties.sharedMemPerBlockOptin);
        system_bytes_ = long(properties.reservedSharedMemPerBlock);
        CHECK(cudaMalloc(&words_, 2 * sizeof(unsigned)));
        CHECK(cudaFuncSetAttribute(hold_memory, cudaFuncAttributeMaxDynamicSharedMemorySize, int(block_bytes_)));
        CHECK(cudaFuncSetAttribute(hold_memory, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    }
    // What to reserve so that `blocks` of `block_bytes` (with the system's share) fit beside it; -1: there is none.
    long bytes_for(int blocks, long block_bytes) const {
        const long bytes = sm_bytes_ - system_bytes_ - blocks * block_bytes;
        return bytes < 0 ? -1 : std::min(bytes, block_bytes_);
    }
    void take(long bytes) {
        unsigned holding = 0;
        CHECK(cudaMemset(words_, 0, 2 * sizeof(unsigned)));
        CHECK(cudaDeviceSynchronize());
        hold_memory<<<sm_count_, 32, bytes, stream_>>>(words_, words_ + 1);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(ended, stream_));
        while (holding < unsigned(sm_count_)) {
            CHECK(cudaMemcpyAsync(&holding, words_ + 1, sizeof holding, cudaMemcpyDeviceToHost, control_));
            CHECK(cudaStreamSynchronize(control_));
        }
    }
    void release() { CHECK(cuStreamWriteValue32(control_, CUdeviceptr(words_), 1, 0)); }
    Event ended;

  private:
    int sm_count_;
    long sm_bytes_, block_bytes_, system_bytes_;
    unsigned* words_;
    cudaStream_t stream_ = new_stream(), control_ = new_stream();
};

// Calls in a row on one stream, with the library's state and the events around them.
struct Queue {
    explicit Queue(cudaStream_t stream) : stream(stream) {}
    cudaStream_t stream;
    std::vector<Work*> works;
    Event start, end;
};

inline std::vector<double> medians(const std::vector<std::vector<double>>& each) {
    std::vector<double> found;
    for (const auto& values : each) found.push_back(median(values));
    return found;
}

// Measures, or says on standard error why not.
inline void if_supported(const std::string& what, const std::function<void()>& measure) {
    try {
        measure();
    } catch (const Unsupported& unsupported) {
        fprintf(stderr, "%s: %s\n", what.c_str(), unsupported.why.c_str());
    }
}

class Outcomes {
  public:
    explicit Outcomes(const std::vector<Call>& calls) {
        for (const Call& call : calls) calls_.emplace(call.op, call);
        CHECK(cudaMalloc(&flag_, FLAGS * sizeof(unsigned)));
    }

    // Three calls back to back on some of the SMs.
    void sm_curve(std::istream& fields) {
        auto work = ready(next(fields));
        for (const auto& split : splits({8, 16, 24, 32, 48, 64, 72, 80, 96, 104, 112, 120, 128}))
            if_supported(work->call.op, [&] {
                const double ms = timer_.ms(*work, library(0), split.stream(0), 3, 3);
                printf("%s,%u,%.6f\n", work->call.op.c_str(), split.sms(0), ms);
            });
        printf("%s,%d,%.6f\n", work->call.op.c_str(), sm_count(), timer_.ms(*work, library(0), stream(0), 5, 3));
    }

    // One call with room for 1, 2, … blocks on an SM, and last (-1) with all.
    void residency(std::istream& fields) {
        const auto op = next(fields);
        const long block_bytes = number(fields);
        const int most = int(number(fields));
        auto work = ready(op);
        for (int blocks = 1; blocks <= most + 1; ++blocks) {
            const long bytes = blocks > most ? -1 : reservation_.bytes_for(blocks, block_bytes);
            std::vector<double> times;
            for (int repeat = 0; repeat < 6; ++repeat) {
                if (bytes >= 0) reservation_.take(bytes);
                const double ms = timer_.ms(*work, library(0), stream(0), 1);
                if (bytes >= 0) reservation_.release();
                CHECK(cudaDeviceSynchronize());
                if (repeat) times.push_back(ms);
            }
            printf("%s,%d,%ld,%.6f\n", op.c_str(), blocks, bytes, median(times));
        }
    }

    // One call with each room for so many blocks on an SM (-1: all), between cudaProfilerStart and Stop, for ncu.
    void counted(std::istream& fields) {
        const auto op = next(fields);
        const long block_bytes = number(fields);
        auto work = ready(op);
        library(0).on(stream(0));
        for (int blocks; fields >> blocks;) {
            library(0).enqueue(*work);
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaProfilerStart());
            if (blocks >= 0) reservation_.take(reservation_.bytes_for(blocks, block_bytes));
            library(0).enqueue(*work);
            CHECK(cudaStreamSynchronize(stream(0)));
            if (blocks >= 0) reservation_.release();
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaProfilerStop());
            require_all_ran();
            printf("%s,%d\n", op.c_str(), blocks);
        }
    }

    // Two queues: one after the other, in plain streams, and on disjoint SMs.
    void pairs(std::istream& fields) {
        const auto a_op = next(fields);
        const int na = int(number(fields));
        const auto b_op = next(fields);
        const int nb = int(number(fields));
        auto a = ready(a_op), b = ready(b_op);
        auto print = [&](const char* mode, unsigned sms_a, unsigned sms_b, double ms_a, double ms_b, double makespan) {
            printf("%s,%d,%s,%d,%s,%u,%u,%.6f,%.6f,%.6f\n", a_op.c_str(), na, b_op.c_str(), nb, mode, sms_a, sms_b, ms_a, ms_b,
                   makespan);
        };
        const double alone_a = na * timer_.ms(*a, library(0), stream(0), 9, na);
        const double alone_b = nb * timer_.ms(*b, library(1), stream(0), 9, nb);
        print("alone", sm_count(), sm_count(), alone_a, alone_b, alone_a + alone_b);
        auto together = [&](const char* mode, cudaStream_t on_a, cudaStream_t on_b, bool b_first, unsigned sms_a,
                            unsigned sms_b) {
            std::vector<std::unique_ptr<Queue>> queues;
            queues.push_back(std::make_unique<Queue>(b_first ? on_b : on_a));
            queues.push_back(std::make_unique<Queue>(b_first ? on_a : on_b));
            queues[b_first]->works.assign(na, a.get());
            queues[!b_first]->works.assign(nb, b.get());
            const auto ends = released_together(queues, 9);
            print(mode, sms_a, sms_b, ends[b_first], ends[!b_first], ends.back());
        };
        together("streams", stream(0), stream(1), false, sm_count(), sm_count());
        together("streams_b_first", stream(0), stream(1), true, sm_count(), sm_count());
        for (const auto& split : splits({16, 32, 48, 64, 72, 80, 96, 112}))
            if (split.both())
                if_supported(a_op + " beside " + b_op, [&] {
                    together("green", split.stream(0), split.stream(1), false, split.sms(0), split.sms(1));
                });
    }

    // One launch of a with room for kA blocks an SM; b, of higher priority, waits for the room that is then released.
    void quota(std::istream& fields) {
        const auto a_op = next(fields);
        const long smem_a = number(fields);
        const int blocks_a = int(number(fields));
        const auto b_op = next(fields);
        number(fields);  // b's shared memory
        const int blocks_b = int(number(fields));
        auto a = ready(a_op), b = ready(b_op);
        int low, high;
        CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
        cudaStream_t stream_a, stream_b;
        CHECK(cudaStreamCreateWithPriority(&stream_a, cudaStreamNonBlocking, low));
        CHECK(cudaStreamCreateWithPriority(&stream_b, cudaStreamNonBlocking, high));
        library(0).on(stream_a);
        library(1).on(stream_b);
        std::vector<double> releases, ends_a, ends_b;
        Event start, end_a, end_b;
        for (int repeat = 0; repeat < 6; ++repeat) {
            reservation_.take(std::max(0L, reservation_.bytes_for(blocks_a, smem_a)));
            timer_.gates.hold(stream_a, 0);
            CHECK(cudaEventRecord(start, stream_a));
            library(0).enqueue(*a);
            CHECK(cudaEventRecord(end_a, stream_a));
            timer_.gates.hold(stream_b, 1);
            library(1).enqueue(*b);
            CHECK(cudaEventRecord(end_b, stream_b));
            timer_.gates.open(0);
            spin_us(40);
            timer_.gates.open(1);
            spin_us(15);
            reservation_.release();
            CHECK(cudaDeviceSynchronize());
            require_all_ran();
            if (repeat == 0) continue;
            releases.push_back(reservation_.ended.since_ms(start));
            ends_a.push_back(end_a.since_ms(start));
            ends_b.push_back(end_b.since_ms(start));
        }
        printf("%s,%d,%s,%d,%.6f,%.6f,%.6f\n", a_op.c_str(), blocks_a, b_op.c_str(), blocks_b, median(releases),
               median(ends_a), median(ends_b));
        CHECK(cudaStreamDestroy(stream_a));
        CHECK(cudaStreamDestroy(stream_b));
    }

    // Branches one after the other in one stream, then a stream each.
    void modules(std::istream& fields) {
        const auto module = next(fields), selection = next(fields);
        std::vector<std::unique_ptr<Work>> works;
        std::vector<std::vector<Work*>> branches(1);
        std::vector<std::string> names(1);
        for (std::string field; fields >> field;) {
            if (field == ",") {
                branches.emplace_back();
                names.emplace_back();
                continue;
            }
            works.push_back(ready(field));
            branches.back().push_back(works.back().get());
            names.back() += (names.back().empty() ? "" : " ") + field;
        }
        for (const bool beside : {false, true}) {
            std::vector<std::unique_ptr<Queue>> queues;
            for (size_t i = 0; i < branches.size(); ++i) {
                queues.push_back(std::make_unique<Queue>(stream(beside ? int(i) : 0)));
                queues.back()->works = branches[i];
            }
            const auto ends = released_together(queues, 10);
            for (size_t i = 0; i < branches.size(); ++i)
                printf("%s,%s,%zu,%s,%s,%.6f,%.6f\n", module.c_str(), selection.c_str(), i, names[i].c_str(),
                       beside ? "streams" : "serial", ends[i], ends.back());
        }
    }

    // Calls on several streams in a given order, some after others, each stream on SMs of its own or on all.
    void plans(std::istream& fields) {
        const auto name = next(fields), plan = next(fields), sharing = next(fields);
        const std::string priority = "priority=";
        const bool by_priority = sharing.rfind(priority, 0) == 0;
        const auto sizes = numbers(by_priority ? "" : sharing, '+');
        const auto urgent = numbers(by_priority ? sharing.substr(priority.size()) : "", '+');
        std::vector<Step> steps;
        size_t count = std::max(sizes.size(), urgent.size());
        for (std::string on; fields >> on;) {
            Step step;
            step.stream = atoi(on.c_str());
            step.work = ready(next(fields));
            for (const unsigned other : numbers(next(fields), ',')) step.after.push_back(other);
            count = std::max(count, step.stream + 1);
            steps.push_back(std::move(step));
        }
        std::unique_ptr<Parts>& parts = parts_[sizes];
        if (!sizes.empty() && !parts) parts = std::make_unique<Parts>(sizes);
        for (size_t turn = 0; turn < (parts ? 1 : count); ++turn) {
            std::vector<cudaStream_t> streams;
            for (size_t i = 0; i < count; ++i) {
                const int at = int((i + turn) % count);
                streams.push_back(parts ? parts->stream(i) : urgent.empty() ? stream(at) : stream(at, urgent[i]));
            }
            const auto ends = planned(steps, streams, 12, sharing);
            for (size_t i = 0; i < steps.size(); ++i)
                printf("%s,%s,%zu,%zu,%s,%zu,%u,%.6f,%.6f\n", name.c_str(), plan.c_str(), turn, i,
                       steps[i].work->call.op.c_str(), steps[i].stream,
                       parts ? parts->sms(steps[i].stream) : unsigned(sm_count()), ends[i], ends.back());
        }
    }

  private:
    static constexpr size_t FLAGS = 32;  // streams of a plan at most
    struct Step {
        size_t stream;
        std::unique_ptr<Work> work;
        std::vector<size_t> after;
        std::unique_ptr<Event> end = std::make_unique<Event>();
        std::unique_ptr<Event> signal = std::make_unique<Event>(cudaEventDisableTiming);  // others wait for it
    };

    // 64+68 as two numbers; what is no number, such as `all` or -, as none.
    static std::vector<unsigned> numbers(const std::string& text, char between) {
        std::vector<unsigned> found;
        std::istringstream parts(text);
        for (std::string part; getline(parts, part, between);)
            if (isdigit(part[0])) found.push_back(unsigned(atol(part.c_str())));
        return found;
    }

    static std::string next(std::istream& fields) {
        std::string field;
        if (!(fields >> field)) fail("conditions", "a line lacks a field", "", 0);
        return field;
    }
    static long number(std::istream& fields) { return atol(next(fields).c_str()); }
    static void spin_us(int us) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
        while (std::chrono::steady_clock::now() < until) continue;
    }
    static int sm_count() {
        int count;
        CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
        return count;
    }
    std::unique_ptr<Work> ready(const std::string& op) {
        const auto call = calls_.find(op);
        if (call == calls_.end()) fail("conditions", "an op is not in the list of calls", op.c_str(), 0);
        return prepare(call->second, library(0));
    }
    const std::vector<Parts>& splits(std::initializer_list<unsigned> sizes) {
        auto& made = splits_[std::vector<unsigned>(sizes)];
        if (made.empty())
            for (unsigned sms : sizes)
                if (int(sms) < sm_count()) made.emplace_back(sms);
        return made;
    }
    cudaStream_t stream(int i) {
        while (int(streams_.size()) <= i) streams_.push_back(new_stream());
        return streams_[i];
    }
    cudaStream_t stream(int i, unsigned urgency) {
        cudaStream_t& made = urgent_streams_[{i, urgency}];
        if (!made) {
            int low, high;
            CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
            CHECK(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, std::max(high, low - int(urgency))));
        }
        return made;
    }
    Library& library(int i) {
        while (int(libraries_.size()) <= i) libraries_.push_back(std::make_unique<Library>());
        return *libraries_[i];
    }

    void require_all_ran() {
        bool ran = true;
        for (const auto& library : libraries_) ran = library->all_ran() && ran;
        require_ran(ran);
    }

    // Releases queues by one flag, the first enqueued first; ms from the release to each end, then to the last of them.
    std::vector<double> released_together(std::vector<std::unique_ptr<Queue>>& queues, int repeats) {
        std::vector<std::vector<double>> ends(queues.size() + 1);
        for (size_t i = 0; i < queues.size(); ++i) {  // what a library allocates at a first call would wait behind the flag
            library(int(i)).on(queues[i]->stream);
            for (Work* work : queues[i]->works) library(int(i)).enqueue(*work);
        }
        for (int repeat = 0; repeat < repeats; ++repeat) {
            CHECK(cudaMemset(flag_, 0, sizeof(unsigned)));
            CHECK(cudaDeviceSynchronize());
            for (size_t i = 0; i < queues.size(); ++i) {
                Queue& queue = *queues[i];
                library(int(i)).on(queue.stream);
                CHECK(cuStreamWaitValue32(queue.stream, CUdeviceptr(flag_), 1, CU_STREAM_WAIT_VALUE_GEQ));
                CHECK(cudaEventRecord(queue.start, queue.stream));
                for (Work* work : queue.works) library(int(i)).enqueue(*work);
                CHECK(cudaEventRecord(queue.end, queue.stream));
            }
            CHECK(cuStreamWriteValue32(control_, CUdeviceptr(flag_), 1, 0));
            CHECK(cudaDeviceSynchronize());
            require_all_ran();
            if (repeat < 2) continue;
            double release = 0, last = 0;
            for (const auto& queue : queues) release = std::min(release, queue->start.since_ms(queues[0]->start));
            for (size_t i = 0; i < queues.size(); ++i) {
                ends[i].push_back(queues[i]->end.since_ms(queues[0]->start) - release);
                last = std::max(last, ends[i].back());
            }
            ends.back().push_back(last);
        }
        return medians(ends);
    }

    // Releases the streams as `sharing` says; ms from the release to the end of each step, then to the last of them. What
    // marks the end of a step holds its stream up (experiments/h200_microbench, dependencies.csv), so the last is of runs
    // without marks, and what others wait for takes no time stamp.
    std::vector<double> planned(const std::vector<Step>& steps, const std::vector<cudaStream_t>& streams, int repeats,
                                const std::string& sharing) {
        const bool ordered = sharing == "ordered", host = sharing == "host";
        if (streams.size() > FLAGS) fail("conditions", "a plan has too many streams", sharing.c_str(), 0);
        std::vector<std::vector<double>> ends(steps.size() + 1);
        std::vector<Event> starts(streams.size());
        std::vector<bool> awaited(steps.size()), last(steps.size());
        for (size_t i = 0; i < steps.size(); ++i) {
            for (const size_t other : steps[i].after) awaited[other] = true;
            last[i] = std::none_of(steps.begin() + i + 1, steps.end(),
                                   [&](const Step& later) { return later.stream == steps[i].stream; });
        }
        for (size_t i = 0; i < streams.size(); ++i) library(int(i)).on(streams[i]);
        for (const Step& step : steps) library(int(step.stream)).enqueue(*step.work);  // what a first call allocates
        for (int repeat = 0; repeat < 2 * repeats; ++repeat) {
            const bool marked = repeat % 2;
            CHECK(cudaMemset(flag_, 0, FLAGS * sizeof(unsigned)));
            CHECK(cudaDeviceSynchronize());
            for (size_t i = 0; i < streams.size() && !host; ++i) {
                CHECK(cuStreamWaitValue32(streams[i], CUdeviceptr(flag_ + (ordered ? i : 0)), 1, CU_STREAM_WAIT_VALUE_GEQ));
                CHECK(cudaEventRecord(starts[i], streams[i]));
            }
            std::vector<bool> begun(streams.size());
            for (size_t i = 0; i < steps.size(); ++i) {
                const Step& step = steps[i];
                if (host && !begun[step.stream]) CHECK(cudaEventRecord(starts[step.stream], streams[step.stream]));
                begun[step.stream] = true;
                for (const size_t other : step.after) CHECK(cudaStreamWaitEvent(streams[step.stream], *steps[other].signal, 0));
                library(int(step.stream)).enqueue(*step.work);
                if (awaited[i]) CHECK(cudaEventRecord(*step.signal, streams[step.stream]));
                if (marked || last[i]) CHECK(cudaEventRecord(*step.end, streams[step.stream]));
            }
            for (size_t i = 0; i < (host ? 0 : ordered ? streams.size() : 1); ++i)
                CHECK(cuStreamWriteValue32(control_, CUdeviceptr(flag_ + i), 1, 0));
            CHECK(cudaDeviceSynchronize());
            require_all_ran();
            if (repeat < 4) continue;
            double release = 0, end = 0;
            for (const Event& start : starts) release = std::min(release, start.since_ms(starts[0]));
            for (size_t i = 0; i < steps.size(); ++i) {
                if (!marked && !last[i]) continue;
                const double ms = steps[i].end->since_ms(starts[0]) - release;
                if (marked) ends[i].push_back(ms);
                end = std::max(end, ms);
            }
            if (!marked) ends.back().push_back(end);
        }
        return medians(ends);
    }

    std::map<std::string, Call> calls_;
    std::map<std::vector<unsigned>, std::unique_ptr<Parts>> parts_;
    std::map<std::vector<unsigned>, std::vector<Parts>> splits_;
    std::vector<cudaStream_t> streams_;
    std::map<std::pair<int, unsigned>, cudaStream_t> urgent_streams_;
    std::vector<std::unique_ptr<Library>> libraries_;
    cudaStream_t control_ = new_stream();
    unsigned* flag_;
    Reservation reservation_;
    Timer timer_;
};

inline int measure_outcomes(const std::string& experiment, const std::vector<Call>& calls, const char* conditions) {
    using Measure = void (Outcomes::*)(std::istream&);
    static const std::map<std::string, std::pair<const char*, Measure>> experiments = {
        {"sm_curve", {"op,sms,ms", &Outcomes::sm_curve}},
        {"residency", {"op,blocks_per_sm,reserved_smem_bytes,ms", &Outcomes::residency}},
        {"counted", {"op,blocks_per_sm", &Outcomes::counted}},
        {"pairs", {"a,na,b,nb,mode,sms_a,sms_b,ms_a,ms_b,ms_makespan", &Outcomes::pairs}},
        {"quota", {"a,kA,b,kB,ms_release,ms_a,ms_b", &Outcomes::quota}},
        {"modules", {"module,selection,branch,ops,mode,ms_end,ms_makespan", &Outcomes::modules}},
        {"plans", {"name,plan,turn,step,op,stream,sms,ms_end,ms_makespan", &Outcomes::plans}}};
    const auto chosen = experiments.find(experiment);
    std::ifstream file(conditions);
    if (chosen == experiments.end() || !file) return EXIT_FAILED;
    puts(chosen->second.first);
    Outcomes outcomes(calls);
    for (std::string line; getline(file, line);) {
        std::istringstream fields(line);
        if_supported(line, [&] { (outcomes.*chosen->second.second)(fields); });
        fflush(stdout);
    }
    return 0;
}
