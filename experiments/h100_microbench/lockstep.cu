// Blocks that read the same tiles, in lockstep or not: each loads tiles of 16 KiB ahead of a fixed work for each.
// A group of blocks reads one sequence of tiles. Each block (each cluster) starts at a random time within a span.
//   nvcc -O2 -arch=sm_90a -o lockstep lockstep.cu && ./lockstep lockstep.csv
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <string>
#include <vector>
#define CK(x) do{ cudaError_t r_=(x); if(r_){ fprintf(stderr,"%s:%d %s\n",#x,__LINE__,cudaGetErrorString(r_)); exit(1);} }while(0)
typedef unsigned long long u64;
static const int TILE=16384, STAGES=8;
struct Times{ u64 start,quarter,three_quarters,end; };
struct Shared{ u64 full[STAGES],empty[STAGES]; };
__device__ unsigned arrived; __device__ volatile u64 base;
__device__ __forceinline__ u64 now(){ u64 t; asm volatile("mov.u64 %0,%globaltimer;":"=l"(t)); return t; }
__device__ __forceinline__ unsigned at(const void*p){ return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(u64*b,int n){ asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;"::"r"(at(b)),"r"(n)); }
__device__ __forceinline__ void expect(u64*b,int n){ asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;"::"r"(at(b)),"r"(n):"memory"); }
__device__ __forceinline__ void wait(u64*b,int parity){ unsigned done; do{ asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p;}":"=r"(done):"r"(at(b)),"r"(parity):"memory"); }while(!done); }
__device__ __forceinline__ void arrive_at(u64*b,unsigned rank){ asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r,%0,%1; mbarrier.arrive.release.cluster.shared::cluster.b64 _,[r];}"::"r"(at(b)),"r"(rank):"memory"); }
__device__ __forceinline__ void bulk(char*to,const char*from,int n,u64*b){ asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"::"r"(at(to)),"l"(from),"r"(n),"r"(at(b)):"memory"); }
__device__ __forceinline__ void bulk_both(char*to,const char*from,int n,u64*b){ asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0],[%1],%2,[%3],%4;"::"r"(at(to)),"l"(from),"r"(n),"r"(at(b)),"h"((unsigned short)3):"memory"); }
__device__ __forceinline__ void begin(int unit,unsigned span,Times*t){ // one thread of each block: wait for all blocks, then its own phase
  if(atomicAdd(&arrived,1)==gridDim.x-1){ base=now()+4000; __threadfence(); arrived=0; }
  while(base==0); unsigned h=unit*2654435761u; h^=h>>15; h*=2246822519u; h^=h>>13;
  u64 go=base+(u64)((double)span*h/4294967296.0); while(now()<go); t->start=now(); }
struct Job{ const char*data; int groups,strided,period,tiles,work; unsigned span; Times*out; }; // a group has period tiles, a power of two
__device__ __forceinline__ const char*first(const Job&j,int unit,int units){ int group=j.strided?unit%j.groups:unit/(units/j.groups); return j.data+(size_t)group*j.period*TILE; }
template<int BOTH> __global__ void __launch_bounds__(32) bulk_ring(Job j){ // BOTH: two blocks of a cluster get each tile at once
  extern __shared__ __align__(128) char sm[]; __shared__ Shared s; Times t; unsigned rank=0;
  int unit=BOTH?blockIdx.x/2:blockIdx.x, units=BOTH?gridDim.x/2:gridDim.x; const char*mine=first(j,unit,units); const unsigned mask=j.period-1;
  if(BOTH) asm("mov.u32 %0,%cluster_ctarank;":"=r"(rank));
  if(threadIdx.x==0){ for(int i=0;i<STAGES;i++){ init(&s.full[i],1); init(&s.empty[i],BOTH?2:1); } asm volatile("fence.mbarrier_init.release.cluster;"); }
  if(BOTH){ asm volatile("barrier.cluster.arrive.aligned;"); asm volatile("barrier.cluster.wait.aligned;"); } else __syncwarp();
  if(threadIdx.x==0){
    begin(unit,j.span,&t);
    auto load=[&](int i){ int k=i%STAGES; expect(&s.full[k],TILE); const char*from=mine+((unsigned)i&mask)*TILE;
      if(BOTH) bulk_both(sm+k*TILE+rank*(TILE/2),from+rank*(TILE/2),TILE/2,&s.full[k]); else bulk(sm+k*TILE,from,TILE,&s.full[k]); };
    for(int i=0;i<STAGES&&i<j.tiles;i++) load(i);
    for(int i=0;i<j.tiles;i++){ int k=i%STAGES;
      if(i==j.tiles/4) t.quarter=now(); if(i==3*(j.tiles/4)) t.three_quarters=now();
      wait(&s.full[k],(i/STAGES)&1); long c=clock64(); while(clock64()-c<j.work);
      if(BOTH){ arrive_at(&s.empty[k],0); arrive_at(&s.empty[k],1);
        if(i>0){ int o=i-1; if(o+STAGES<j.tiles){ wait(&s.empty[o%STAGES],(o/STAGES)&1); load(o+STAGES); } } }
      else if(i+STAGES<j.tiles) load(i+STAGES); }
    t.end=now(); j.out[blockIdx.x]=t; }
  if(BOTH){ __syncwarp(); asm volatile("barrier.cluster.arrive.aligned;"); asm volatile("barrier.cluster.wait.aligned;"); } }
__device__ __forceinline__ void copy(char*to,const char*from){ unsigned s=at(to)+threadIdx.x*16; from+=threadIdx.x*16;
  #pragma unroll
  for(int i=0;i<TILE/2048;i++) asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"(s+i*2048),"l"(from+(size_t)i*2048)); }
__global__ void __launch_bounds__(128) async_ring(Job j){ // the same by loads of 16 bytes of each thread
  extern __shared__ __align__(128) char sm[]; Times t; const char*mine=first(j,blockIdx.x,gridDim.x); const unsigned mask=j.period-1; if(threadIdx.x==0) begin(blockIdx.x,j.span,&t); __syncthreads();
  for(int i=0;i<STAGES-1;i++){ if(i<j.tiles) copy(sm+i*TILE,mine+((unsigned)i&mask)*TILE); asm volatile("cp.async.commit_group;"); }
  for(int i=0;i<j.tiles;i++){ if(i==j.tiles/4) t.quarter=now(); if(i==3*(j.tiles/4)) t.three_quarters=now();
    asm volatile("cp.async.wait_group %0;"::"n"(STAGES-2)); __syncthreads();
    int n=i+STAGES-1; if(n<j.tiles) copy(sm+(n%STAGES)*TILE,mine+((unsigned)n&mask)*TILE); asm volatile("cp.async.commit_group;");
    long c=clock64(); while(clock64()-c<j.work); __syncthreads(); }
  if(threadIdx.x==0){ t.end=now(); j.out[blockIdx.x]=t; } }
static void launch(int mode,int blocks,const Job&j){ u64 zero=0; CK(cudaMemcpyToSymbol(base,&zero,8));
  cudaLaunchConfig_t c={}; c.gridDim=blocks; c.blockDim=mode==2?128:32; c.dynamicSmemBytes=200*1024; cudaLaunchAttribute a; a.id=cudaLaunchAttributeClusterDimension; a.val.clusterDim.x=2; a.val.clusterDim.y=a.val.clusterDim.z=1;
  if(mode==1){ c.attrs=&a; c.numAttrs=1; } CK(cudaLaunchKernelEx(&c,mode==0?bulk_ring<0>:mode==1?bulk_ring<1>:async_ring,j)); }
int main(int argc,char**argv){ bool counted=argc>2; // once each, for a profiler
  size_t bytes=(size_t)64<<20; char*data; CK(cudaMalloc(&data,bytes)); CK(cudaMemset(data,0,bytes)); Times*out; CK(cudaMalloc(&out,132*sizeof(Times))); std::vector<Times> got(132);
  for(auto k:{(const void*)bulk_ring<0>,(const void*)bulk_ring<1>,(const void*)async_ring}) CK(cudaFuncSetAttribute(k,cudaFuncAttributeMaxDynamicSharedMemorySize,200*1024));
  FILE*f=fopen(argv[1],"w"); fprintf(f,"loads,sharing,strided,work,span_ns,tile_ns,gb_per_s\n");
  const char*names[3]={"bulk","multicast","async"}; const int blocks=128,tiles=512;
  for(int mode=0;mode<3;mode++) for(int sharing:{1,2,4,8,16,128}) for(int strided=0;strided<2;strided++){
    if((strided&&(sharing==1||sharing==blocks))||(mode==1&&sharing!=4&&sharing!=16)) continue;
    for(int work:{0,100,200,400}) for(int span:{0,100,300,1000,3000,10000}){
      int groups=blocks/sharing; Job j={data,groups,strided,std::max(1,(8<<20)/TILE/groups),tiles,work,(unsigned)span,out}; double tile_ns=1e30;
      for(int rep=0;rep<(counted?1:4);rep++){ launch(mode,blocks,j); CK(cudaDeviceSynchronize()); CK(cudaMemcpy(got.data(),out,blocks*sizeof(Times),cudaMemcpyDeviceToHost));
        double sum=0; for(int b=0;b<blocks;b++) sum+=(double)(got[b].three_quarters-got[b].quarter)/(tiles/2); if(rep||counted) tile_ns=std::min(tile_ns,sum/blocks); }
      fprintf(f,"%s,%d,%d,%d,%d,%.1f,%.0f\n",names[mode],sharing,strided,work,span,tile_ns,blocks*TILE/tile_ns); fflush(f); } }
  return 0; }
