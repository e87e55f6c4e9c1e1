// Notes when each kernel of a program starts and ends: CUDA loads this library into a program that runs with
// CUDA_INJECTION64_PATH set to its path. KERNEL_TIMELINE gets a line a kernel, in the order in which CUPTI hands them over:
//   start end context blocks threads name        start and end in ns of the GPU's clock, separated by tabs
#include <cupti.h>

#include <cstdio>
#include <cstdlib>

static FILE* timeline;
constexpr size_t BUFFER_BYTES = size_t(8) << 20, ALIGNMENT = 8;

static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
    *bytes = BUFFER_BYTES;
    *buffer = static_cast<uint8_t*>(aligned_alloc(ALIGNMENT, BUFFER_BYTES));
    *most_records = 0;
}

static void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t filled) {
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, filled, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        const auto* kernel = reinterpret_cast<CUpti_ActivityKernel9*>(record);
        fprintf(timeline, "%llu\t%llu\t%u\t%lld\t%d\t%s\n", static_cast<unsigned long long>(kernel->start),
                static_cast<unsigned long long>(kernel->end), kernel->contextId,
                static_cast<long long>(kernel->gridX) * kernel->gridY * kernel->gridZ,
                kernel->blockX * kernel->blockY * kernel->blockZ, kernel->name);
    }
    free(buffer);
}

static void write_rest() {
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    fclose(timeline);
}

extern "C" int InitializeInjection() {
    const char* path = getenv("KERNEL_TIMELINE");
    timeline = path ? fopen(path, "w") : nullptr;
    if (!timeline) {
        fputs("KERNEL_TIMELINE: names no file that can be written\n", stderr);
        exit(EXIT_FAILURE);
    }
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    atexit(write_rest);
    return 1;
}
