// What kernels of several recorders need: where and when a thread runs, and numbers that look random.
#pragma once

using u32 = unsigned;
using u64 = unsigned long long;

__device__ __forceinline__ u64 globaltimer() {
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__device__ __forceinline__ u32 smid() {
    u32 sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

__host__ __device__ __forceinline__ u32 hash(u32 v) {
    v *= 2654435761u;
    v ^= v >> 15;
    v *= 2246822519u;
    v ^= v >> 13;
    return v;
}
