// `CHECK` for calls of cuDNN, too.
#pragma once
#include <cudnn.h>

#include "../check.cuh"

inline void check(cudnnStatus_t status, const char* file, int line) {
    if (status != CUDNN_STATUS_SUCCESS) fail("cuDNN", cudnnGetErrorString(status), file, line);
}
