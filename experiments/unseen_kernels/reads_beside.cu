// Reads one after another on some SMs, of data in L2 or in DRAM, for `record_reads.py`:
//     nvcc -O3 -arch=sm_90 -shared -Xcompiler -fPIC -cudart shared -o reads_beside.so reads_beside.cu
#include "../neighbours/beside.cuh"

struct Reads {
    unsigned long long cycles, count;
};

// One thread a block; every run reads other words of `words` (a power of two).
__global__ void chases(const unsigned* from, unsigned words, unsigned us, unsigned seed, Reads* reads) {
    unsigned at = seed * 2246822519u + blockIdx.x * 3266489917u;
    unsigned long long begun = now(), count = 0;
    long long cycles = clock64();
    while (now() - begun < us * 1000ull) {
        for (int k = 0; k < 16; k++) {
            unsigned found = __ldcg(from + ((at * 2654435761u) & (words - 1)));
            at = at * 1664525u + 1013904223u + found;
        }
        count += 16;
    }
    reads[blockIdx.x] = {(unsigned long long)(clock64() - cycles), count + (at == 12345)};
}

extern "C" {
void wait_on(void* stream, unsigned us) {
    spin<<<1, 1, 0, (cudaStream_t)stream>>>(us * 1000);
}

void chase_on(void* stream, void* from, unsigned words, unsigned us, unsigned seed, void* reads, int blocks) {
    chases<<<blocks, 1, 0, (cudaStream_t)stream>>>((const unsigned*)from, words, us, seed, (Reads*)reads);
}
}
