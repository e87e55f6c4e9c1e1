// Records library calls of a convolutional network on a GPU: gpusim/lab/record/program.py builds and runs it.
//
//   convolutions device                   what the GPU and the libraries are, NAME VALUE a line
//   convolutions time CALLS               a line of CSV for each call, as it is done: see TIMES
//   convolutions once CALLS STREAMS       runs each call once between cudaProfilerStart and Stop, for ncu, on a stream
//                                         of its own; STREAMS gets stream,op
//   convolutions EXPERIMENT CALLS CONDITIONS   see outcomes.cuh
#include <cuda_profiler_api.h>

#include <cstring>

#include "outcomes.cuh"

static const char* const TIMES =
    "op,supported,why,workspace_bytes,tensor_bytes,flop,ms_single_run1,ms_stream_run1,ms_single_run2,ms_stream_run2,"
    "ms_warm,ms_cold";

static void describe_device() {
    cudaDeviceProp properties;
    int driver, runtime;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    printf("name %s\nsm_count %d\nmemory_bytes %zu\ncuda_driver %d\ncuda_runtime %d\ncudnn %zu\n", properties.name,
           properties.multiProcessorCount, properties.totalGlobalMem, driver, runtime, cudnnGetVersion());
}

static void time_calls(const std::vector<Call>& calls) {
    Library library;
    Timer timer;
    const cudaStream_t stream = new_stream();
    puts(TIMES);
    for (const Call& call : calls) {
        try {
            auto work = prepare(call, library);
            auto measure = [&](int repeats, int in_a_row, bool cold = false) {
                return timer.ms(*work, library, stream, repeats, in_a_row, cold);
            };
            const double single = measure(15, 1);
            const int in_a_row = std::clamp(int(60 / single), 3, 10);
            const double back_to_back = measure(5, in_a_row);
            const double single_again = measure(15, 1), back_to_back_again = measure(5, in_a_row);
            const double warm = measure(9, 1), cold = measure(9, 1, true);
            printf("%s,True,,%zu,%zu,%.0f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f\n", call.op.c_str(), work->workspace_bytes,
                   work->tensor_bytes, work->flop, single, back_to_back, single_again, back_to_back_again, warm, cold);
        } catch (const Unsupported& unsupported) {
            printf("%s,False,%s,%zu,,,,,,,,\n", call.op.c_str(), unsupported.why.c_str(), unsupported.workspace_bytes);
        }
        fflush(stdout);
    }
}

static void run_once(const std::vector<Call>& calls, const char* streams_path) {
    Library library;
    FILE* streams = fopen(streams_path, "w");
    if (!streams) fail("streams", "the file cannot be written", streams_path, 0);
    fprintf(streams, "stream,op\n");
    for (const Call& call : calls) {
        try {
            auto work = prepare(call, library);
            const cudaStream_t stream = new_stream();  // kept, so that no two calls have a stream of one number
            unsigned long long number;
            CHECK(cudaStreamGetId(stream, &number));
            fprintf(streams, "%llu,%s\n", number, call.op.c_str());
            fflush(streams);
            library.on(stream);
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaProfilerStart());
            library.enqueue(*work);
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaProfilerStop());
            require_ran(library.all_ran());
        } catch (const Unsupported&) {
        }
    }
    fclose(streams);
}

int main(int count, char** arguments) {
    const std::string what = count > 1 ? arguments[1] : "";
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    if (what == "device") {
        describe_device();
        return 0;
    }
    if (count < 3) return EXIT_FAILED;
    const auto calls = read_calls(arguments[2]);
    if (what == "time") time_calls(calls);
    else if (what == "once" && count == 4) run_once(calls, arguments[3]);
    else if (count == 4) return measure_outcomes(what, calls, arguments[3]);
    else return EXIT_FAILED;
    return 0;
}
