// Around a kernel that is timed: one that leaves the SMs at set times, and one that tells when the timed one left them.
// apart.py builds and loads this file.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#define CU(x) do{ CUresult r_=(x); if(r_){ const char*s; cuGetErrorString(r_,&s); fprintf(stderr,"%s:%d %s\n",#x,__LINE__,s); exit(1);} }while(0)
#define CK(x) do{ cudaError_t r_=(x); if(r_){ fprintf(stderr,"%s:%d %s\n",#x,__LINE__,cudaGetErrorString(r_)); exit(1);} }while(0)
typedef unsigned long long u64;
static const int SMS=132, ALL=227*1024; // shared memory: one block on an SM
__device__ __forceinline__ u64 now(){ u64 t; asm volatile("mov.u64 %0,%globaltimer;":"=l"(t)); return t; }
__device__ __forceinline__ unsigned sm(){ unsigned s; asm("mov.u32 %0,%smid;":"=r"(s)); return s; }
__device__ u64 t0; __device__ unsigned leave_ns[SMS]; static u64*left_at,*came_at;
__global__ void leave(u64*at){ extern __shared__ char s[]; if(threadIdx.x==0){ atomicCAS(&t0,0ull,now()); u64 go=*(volatile u64*)&t0+leave_ns[sm()]; while(now()<go); at[sm()]=now(); } }
__global__ void come(u64*at,unsigned hold_ns){ extern __shared__ char s[]; if(threadIdx.x==0){ u64 t=now(); at[sm()]=t; while(now()<t+hold_ns); } }
extern "C" {
void setup(){ CK(cudaMalloc(&left_at,SMS*8)); CK(cudaMalloc(&came_at,SMS*8)); for(auto k:{(const void*)leave,(const void*)come}) CK(cudaFuncSetAttribute(k,cudaFuncAttributeMaxDynamicSharedMemorySize,ALL)); }
void set(unsigned*ns){ u64 z=0; CK(cudaMemcpyToSymbol(t0,&z,8)); CK(cudaMemcpyToSymbol(leave_ns,ns,SMS*4)); CK(cudaDeviceSynchronize()); }
void launch_leave(void*st){ leave<<<SMS,32,ALL,(cudaStream_t)st>>>(left_at); CK(cudaGetLastError()); }
void launch_come(void*st,unsigned hold_ns){ come<<<SMS,32,ALL,(cudaStream_t)st>>>(came_at,hold_ns); CK(cudaGetLastError()); }
void times(u64*left,u64*came){ CK(cudaMemcpy(left,left_at,SMS*8,cudaMemcpyDeviceToHost)); CK(cudaMemcpy(came,came_at,SMS*8,cudaMemcpyDeviceToHost)); }
void*green(unsigned sms){ CUdevice dev; CU(cuDeviceGet(&dev,0)); CUdevResource r,g,rest; CU(cuDeviceGetDevResource(dev,&r,CU_DEV_RESOURCE_TYPE_SM)); unsigned n=1; CU(cuDevSmResourceSplitByCount(&g,&n,&r,&rest,0,sms));
  CUdevResourceDesc d; CU(cuDevResourceGenerateDesc(&d,&g,1)); CUgreenCtx x; CU(cuGreenCtxCreate(&x,d,dev,CU_GREEN_CTX_DEFAULT_STREAM)); CUstream q; CU(cuGreenCtxStreamCreate(&q,x,CU_STREAM_NON_BLOCKING,0)); return q; }
}
