// What reads wait for beside a kernel that keeps some bytes under way on each of its SMs, all from DRAM.
//   nvcc -O2 -arch=sm_90 -o under_way under_way.cu && ./under_way
// writes under_way.csv (latency of dependent loads) and under_way_beside.csv (a kernel that reads ahead).
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#define CK(x) do { cudaError_t e = (x); if (e) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e)); exit(1); } } while (0)

static const int LOADS = 150, REPEATS = 5, ALONE_BYTES = 120 << 10;  // of shared memory: a block has its SM to itself

__device__ uint64_t now_ns() { uint64_t t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
__device__ uint32_t shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void fetch(char* to, const char* from, uint32_t bytes, uint64_t* full) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(full)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared(to)), "l"(from), "r"(bytes), "r"(shared(full)) : "memory");
}

__device__ void await(uint64_t* full, uint32_t phase) {
    asm volatile("{.reg .pred p; L%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D%=; bra L%=; D%=: }"
                 ::"r"(shared(full)), "r"(phase) : "memory");
}

// The first thread of each warp keeps `stages` copies of `bytes` under way, and works `cycles` on each that has come.
// It ends after `copies`, or where that is 0 after `until_ns`.
__global__ void ring(const char* data, size_t size, int stages, int bytes, int cycles, uint64_t until_ns, int copies,
                     long long* done, uint64_t* took_ns) {
    extern __shared__ __align__(128) char pool[];
    __shared__ uint64_t full_of[4][64];
    __shared__ unsigned long long sum;
    int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint64_t* full = full_of[warp];
    char* tiles = pool + (size_t)warp * stages * bytes;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    uint64_t begin = now_ns();
    if (threadIdx.x % 32 == 0) {
        for (int s = 0; s < stages; s++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&full[s])));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        size_t part = size / (gridDim.x * warps) / bytes * bytes;
        const char* mine = data + part * (blockIdx.x * warps + warp);
        uint32_t count = part / bytes, at = 0;
        auto next = [&](int s) { fetch(tiles + (size_t)s * bytes, mine + (size_t)at * bytes, bytes, &full[s]); if (++at == count) at = 0; };
        for (int s = 0; s < stages; s++) next(s);
        long long i = 0;
        int s = 0, phase = 0;
        while (copies ? i < copies : ((i & 31) || now_ns() - begin < until_ns)) {
            await(&full[s], phase);
            if (cycles) { long long from = clock64(); while (clock64() - from < cycles) {} }
            i++;
            next(s);
            if (++s == stages) { s = 0; phase ^= 1; }
        }
        for (int rest = 0; rest < stages; rest++) { await(&full[s], phase); if (++s == stages) { s = 0; phase ^= 1; } }
        atomicAdd(&sum, (unsigned long long)i);
    }
    __syncthreads();
    if (threadIdx.x == 0) { took_ns[blockIdx.x] = now_ns() - begin; done[blockIdx.x] = (long long)sum; }
}

__global__ void chase(const uint32_t* lines, uint32_t at, uint64_t* ns, uint32_t* sink) {
    uint64_t begin = now_ns();
    for (int i = 0; i < LOADS; i++) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(lines + at) : "memory");
    *ns = now_ns() - begin;
    *sink = at;
}

__global__ void link(uint32_t* lines, uint32_t count, uint32_t step) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        lines[i * 32] = ((i + step) % count) * 32;
}

static double median(std::vector<double> of) { std::sort(of.begin(), of.end()); return of[of.size() / 2]; }
static int copy_bytes(int kib) { return kib <= 16 ? 1024 : kib <= 32 ? 2048 : kib <= 64 ? 4096 : 8192; }

int main() {
    const size_t size = (size_t)8 << 30;
    const uint32_t few = 16, many = (1u << 30) >> 7;  // lines of 128 bytes
    char* data; uint32_t *tiny, *large, *sink; long long *done, *done2; uint64_t *took, *took2, *ns;
    CK(cudaMalloc(&data, size)); CK(cudaMemset(data, 0, size)); CK(cudaMalloc(&tiny, 4096 * 128)); CK(cudaMalloc(&large, many * 128ull));
    CK(cudaMalloc(&sink, 1024)); CK(cudaMallocManaged(&done, 1 << 14)); CK(cudaMallocManaged(&took, 1 << 14));
    CK(cudaMallocManaged(&done2, 1 << 14)); CK(cudaMallocManaged(&took2, 1 << 14)); CK(cudaMallocManaged(&ns, 1024));
    link<<<1, 256>>>(tiny, few, 5); link<<<256, 256>>>(large, many, 104729);
    for (const void* kernel : {(const void*)ring, (const void*)chase})
        CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
    cudaStream_t a, b;
    CK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking)); CK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    CK(cudaDeviceSynchronize());
    auto beside = [&](int sms, int kib, size_t of) {
        int bytes = copy_bytes(kib), stages = std::max(1, kib * 1024 / bytes / 4);
        ring<<<sms, 128, std::max(kib << 10, ALONE_BYTES), a>>>(data, of, stages, bytes, 0, 900000, 0, done, took);
    };
    auto rate = [&](int sms, int kib) { double sum = 0; for (int i = 0; i < sms; i++) sum += (double)done[i] * copy_bytes(kib) / took[i]; return sum; };

    FILE* out = fopen("under_way.csv", "w");
    fprintf(out, "sms,kib_per_sm,copy_bytes,gb_per_s,l2_ns,dram_ns\n");
    for (int sms : {0, 16, 32, 64, 96, 116, 130}) for (int kib : {8, 16, 32, 64, 128, 192}) {
        if (!sms && kib > 8) continue;
        std::vector<double> of[2], rates;
        for (int r = 0; r < REPEATS; r++) for (int dram = 0; dram < 2; dram++) {
            if (!dram) { chase<<<1, 1, ALONE_BYTES, b>>>(tiny, 0, ns, sink); CK(cudaStreamSynchronize(b)); }  // into L2
            if (sms) beside(sms, kib, size);
            chase<<<1, 1, ALONE_BYTES, b>>>(dram ? large : tiny, dram ? (r * 7919u + 17) % many * 32 : 0u, ns, sink);
            CK(cudaDeviceSynchronize());
            of[dram].push_back((double)ns[0] / LOADS);
            if (sms) rates.push_back(rate(sms, kib));
        }
        fprintf(out, "%d,%d,%d,%.0f,%.0f,%.0f\n", sms, kib, copy_bytes(kib), sms ? median(rates) : 0.0, median(of[0]), median(of[1]));
    }
    fclose(out);

    out = fopen("under_way_beside.csv", "w");
    fprintf(out, "sms,stages,copy_bytes,cycles,data,beside_sms,beside_kib_per_sm,us\n");
    for (int sms : {16, 48}) for (int stages : {2, 4, 8}) for (int cycles : {0, 500, 1000, 2000}) for (int dram : {0, 1})
        for (int kib : {0, 16, 64, 192}) {
            const int bytes = 16384, copies = 200, others = 130 - sms;
            const size_t set = dram ? (size_t)4 << 30 : (size_t)16 << 20;
            std::vector<double> us;
            for (int r = 0; r < REPEATS; r++) {
                if (!dram) { ring<<<sms, 32, std::max(stages * bytes, ALONE_BYTES), b>>>(data + size / 2, set, stages, bytes, 0, 0, 400, done2, took2); CK(cudaStreamSynchronize(b)); }
                if (kib) beside(others, kib, size / 2);
                for (volatile int wait = 0; wait < 20000; wait++) {}
                ring<<<sms, 32, std::max(stages * bytes, ALONE_BYTES), b>>>(data + size / 2, set, stages, bytes, cycles, 0, copies, done2, took2);
                CK(cudaDeviceSynchronize());
                us.push_back(*std::max_element(took2, took2 + sms) / 1e3);
            }
            fprintf(out, "%d,%d,%d,%d,%s,%d,%d,%.1f\n", sms, stages, bytes, cycles, dram ? "dram" : "l2", others, kib, median(us));
        }
    fclose(out);
}
