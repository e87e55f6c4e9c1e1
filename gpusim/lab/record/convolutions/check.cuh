// `CHECK` for calls of cuDNN and of the CUDA driver, too.
#pragma once
#include <cuda.h>
#include <cudnn.h>

#include "../check.cuh"

inline void check(cudnnStatus_t status, const char* file, int line) {
    if (status != CUDNN_STATUS_SUCCESS) fail("cuDNN", cudnnGetErrorString(status), file, line);
}

inline void check(CUresult result, const char* file, int line) {
    if (result == CUDA_SUCCESS) return;
    const char* reason = "unknown error";
    cuGetErrorString(result, &reason);
    fail("CUDA driver", reason, file, line);
}
