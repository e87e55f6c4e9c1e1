// Blocks that read ahead: a ring of tiles in shared memory, filled from DRAM (or L2), and fixed work for each tile.
//   nvcc -O2 -arch=sm_90a -o ring ring.cu -lcuda && ./ring ring.csv
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <algorithm>
#define CU(x) do{ CUresult r_=(x); if(r_){ const char*s; cuGetErrorString(r_,&s); fprintf(stderr,"%s:%d %s\n",#x,__LINE__,s); exit(1);} }while(0)
#define CK(x) do{ cudaError_t r_=(x); if(r_){ fprintf(stderr,"%s:%d %s\n",#x,__LINE__,cudaGetErrorString(r_)); exit(1);} }while(0)
static const int TILE=16384;
__device__ __forceinline__ void load(char*to,const char*from){
  unsigned s=(unsigned)__cvta_generic_to_shared(to)+threadIdx.x*16; from+=threadIdx.x*16;
  #pragma unroll
  for(int i=0;i<TILE/2048;i++) asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"(s+i*2048),"l"(from+(size_t)i*2048));
}
template<int STAGES> __global__ void __launch_bounds__(128) ring(const char*data,size_t bytes,int tiles,int work,float*out){
  extern __shared__ __align__(128) char sm[];
  const size_t stride=(size_t)gridDim.x*TILE; size_t at=(size_t)blockIdx.x*TILE;
  for(int i=0;i<STAGES-1;i++){ if(i<tiles) load(sm+i*TILE,data+(at+i*stride)%bytes); asm volatile("cp.async.commit_group;"); }
  float a=threadIdx.x;
  for(int i=0;i<tiles;i++){
    asm volatile("cp.async.wait_group %0;"::"n"(STAGES-2)); __syncthreads();
    int j=i+STAGES-1; if(j<tiles) load(sm+(j%STAGES)*TILE,data+(at+(size_t)j*stride)%bytes); asm volatile("cp.async.commit_group;");
    float b=*(float*)(sm+(i%STAGES)*TILE+threadIdx.x*16);
    for(int k=0;k<work;k++) a=fmaf(a,b,1.0f);
    __syncthreads();
  }
  if(a==1.2345f) *out=a;
}
typedef void(*K)(const char*,size_t,int,int,float*);
struct Part{ int n; const char*side; cudaStream_t s; };
int main(int argc,char**argv){
  CK(cudaFree(0)); CUdevice dev; CU(cuDeviceGet(&dev,0)); CUdevResource r; CU(cuDeviceGetDevResource(dev,&r,CU_DEV_RESOURCE_TYPE_SM));
  std::vector<Part> parts; cudaStream_t all; CK(cudaStreamCreateWithFlags(&all,cudaStreamNonBlocking)); parts.push_back({(int)r.sm.smCount,"all",all});
  for(int want:{8,16,24,32,48,64,80,96,112}){ CUdevResource g,rest; unsigned n=1; CU(cuDevSmResourceSplitByCount(&g,&n,&r,&rest,0,want)); CUdevResource* two[2]={&g,&rest};
    for(int i=0;i<2;i++){ CUdevResourceDesc d; CU(cuDevResourceGenerateDesc(&d,two[i],1)); CUgreenCtx x; CU(cuGreenCtxCreate(&x,d,dev,CU_GREEN_CTX_DEFAULT_STREAM)); CUstream q; CU(cuGreenCtxStreamCreate(&q,x,CU_STREAM_NON_BLOCKING,0)); parts.push_back({(int)two[i]->sm.smCount,i?"rest":"group",(cudaStream_t)q}); } }
  FILE*w=fopen(argv[1],"w"); fprintf(w,"stages,blocks_per_sm,work,data,sms,gb_per_s,us\n");
  size_t big=(size_t)4<<30; char*buf; CK(cudaMalloc(&buf,big)); CK(cudaMemset(buf,0,big)); float*out; CK(cudaMalloc(&out,4));
  cudaEvent_t e0,e1; CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1));
  K ks[3]={ring<2>,ring<3>,ring<6>}; int st[3]={2,3,6};
  for(int i=0;i<3;i++) CK(cudaFuncSetAttribute(ks[i],cudaFuncAttributeMaxDynamicSharedMemorySize,st[i]*TILE));
  for(int i=0;i<3;i++) for(int per:{1,2}) for(int work:{0,100,200,400,800}) for(int l2:{0,1}) for(auto&p:parts){ if(p.side[0]=='r') continue; if(l2&&p.n!=8&&p.n!=64&&p.n!=132) continue;
    size_t bytes=l2?(size_t)8<<20:big; int tiles=400; float best=1e9; 
    for(int k=0;k<4;k++){ CK(cudaEventRecord(e0,p.s)); ks[i]<<<p.n*per,128,st[i]*TILE,p.s>>>(buf,bytes,tiles,work,out); CK(cudaEventRecord(e1,p.s)); CK(cudaEventSynchronize(e1)); float ms; CK(cudaEventElapsedTime(&ms,e0,e1)); if(k) best=std::min(best,ms); }
    fprintf(w,"%d,%d,%d,%s,%d,%.1f,%.2f\n",st[i],per,work,l2?"l2":"dram",p.n,(double)p.n*per*tiles*TILE/best/1e6,best*1e3); }
  fclose(w); return 0; }
