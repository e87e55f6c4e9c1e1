// Times calls after other memory was read or written: `l2_kept CALLS`.
//
// CALLS is as in gpusim/lab/record/convolutions/calls.cuh. Each call runs twice, so that L2 holds what it can of its tensors,
// then a kernel reads or writes some MiB that nothing has touched for a GiB, then the call is timed. Prints
// op,tensor_bytes,others,mib,ms_call; a line a size, the median of REPEATS.
#include "../../gpusim/lab/record/convolutions/timing.cuh"

constexpr int REPEATS = 9;
constexpr int OTHER_MIB[] = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 80, 120, 400};
constexpr size_t ALL_BYTES = size_t(1) << 30;

__global__ void write_all(float4* values, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        values[i] = make_float4(1, 2, 3, 4);
}

int main(int count, char** arguments) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return EXIT_NO_GPU;
    if (count != 2) return EXIT_FAILED;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    Library library;
    Gates gates;
    Event start, end;
    Buffer others(ALL_BYTES / sizeof(float));
    const cudaStream_t stream = new_stream();
    size_t at = 0;
    auto call_ms = [&](Work& work, bool writes, size_t vectors) {
        if (at + vectors > ALL_BYTES / sizeof(float4)) at = 0;
        float4* next = reinterpret_cast<float4*>(others.data()) + at;
        at += vectors;
        gates.hold(stream);
        library.enqueue(work);
        library.enqueue(work);
        if (writes) write_all<<<1056, 256, 0, stream>>>(next, vectors);
        else read_all<<<1056, 256, 0, stream>>>(next, vectors, others.data());
        CHECK(cudaEventRecord(start, stream));
        library.enqueue(work);
        CHECK(cudaEventRecord(end, stream));
        gates.open();
        CHECK(cudaStreamSynchronize(stream));
        require_ran(library.all_ran());
        return end.since_ms(start);
    };
    puts("op,tensor_bytes,others,mib,ms_call");
    for (const Call& call : read_calls(arguments[1])) {
        auto work = prepare(call, library);
        library.on(stream);
        for (const bool writes : {false, true})
            for (const int mib : OTHER_MIB) {
                std::vector<double> times;
                for (int repeat = 0; repeat < REPEATS; ++repeat)
                    times.push_back(call_ms(*work, writes, (size_t(mib) << 20) / sizeof(float4)));
                printf("%s,%zu,%s,%d,%.6f\n", call.op.c_str(), work->tensor_bytes, writes ? "written" : "read", mib,
                       median(times));
            }
    }
    return 0;
}
