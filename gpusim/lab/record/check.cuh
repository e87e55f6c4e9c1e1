// What failed, in words, and the exit status that says whose fault it is.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

constexpr int EXIT_FAILED = 1;
constexpr int EXIT_NO_GPU = 3;

[[noreturn]] inline void fail(const char* library, const char* reason, const char* file, int line) {
    fprintf(stderr, "%s: %s (%s line %d)\n", library, reason, file, line);
    exit(EXIT_FAILED);
}

inline void check(cudaError_t error, const char* file, int line) {
    if (error != cudaSuccess) fail("CUDA", cudaGetErrorString(error), file, line);
}

inline void check(CUresult error, const char* file, int line) {
    const char* text = nullptr;
    if (error != CUDA_SUCCESS && cuGetErrorString(error, &text) != CUDA_SUCCESS) text = "unknown error";
    if (error != CUDA_SUCCESS) fail("CUDA driver", text, file, line);
}

#define CHECK(call) check((call), __FILE__, __LINE__)
