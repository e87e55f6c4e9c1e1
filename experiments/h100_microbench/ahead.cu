// The program as it ran. Pairs are bound by how their blocks hand on the ring, not by what they read.
// What an SM reads where few SMs work: by how it asks (loads, cp.async, the bulk copy engine, tiles of a matrix, pairs that share
// each tile), by the bytes that it has under way, and by the number of SMs.
//   nvcc -O2 -std=c++17 -arch=sm_90a -o ahead ahead.cu -lcuda && ./ahead ahead.csv
#include <cuda.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#define CU(x) do{ CUresult r_=(x); if(r_){ const char*s; cuGetErrorString(r_,&s); fprintf(stderr,"%s:%d %s\n",#x,__LINE__,s); exit(1);} }while(0)
#define CK(x) do{ cudaError_t r_=(x); if(r_){ fprintf(stderr,"%s:%d %s\n",#x,__LINE__,cudaGetErrorString(r_)); exit(1);} }while(0)
typedef unsigned long long u64; typedef unsigned u32;
struct Args{ const char*data; size_t bytes; int tile, stages, tiles, work; float*out; u64*clock; };
__device__ __forceinline__ u32 shared(const void*p){ return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ u64 nanos(){ u64 t; asm volatile("mov.u64 %0,%globaltimer;":"=l"(t)); return t; }
__device__ __forceinline__ void init(u32 bar,u32 n){ asm volatile("mbarrier.init.shared.b64 [%0],%1;"::"r"(bar),"r"(n)); }
__device__ __forceinline__ void expect(u32 bar,u32 n){ asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;"::"r"(bar),"r"(n)); }
__device__ __forceinline__ void await(u32 bar,u32 phase){
  asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p,[%0],%1; @p bra D; bra W; D:}"::"r"(bar),"r"(phase):"memory"); }
__device__ void clocked(const Args&a,u64 c,u64 t){ if(blockIdx.x==0&&threadIdx.x==0){ a.clock[0]=clock64()-c; a.clock[1]=nanos()-t; } }

// Loads into registers: 8 of 16 bytes a thread under way.
__global__ void loads(Args a){
  u64 c=clock64(),t=nanos(); const size_t per=(size_t)blockDim.x*128, stride=(size_t)gridDim.x*per; size_t at=blockIdx.x*per%a.bytes; u32 x=0;
  for(int i=0;i<a.tiles;i++){ const char*p=a.data+at+threadIdx.x*16; uint4 v[8];
    #pragma unroll
    for(int k=0;k<8;k++) asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3},[%4];":"=r"(v[k].x),"=r"(v[k].y),"=r"(v[k].z),"=r"(v[k].w):"l"(p+(size_t)k*blockDim.x*16));
    #pragma unroll
    for(int k=0;k<8;k++) x^=v[k].x^v[k].w;
    at+=stride; while(at>=a.bytes) at-=a.bytes; }
  if(x==123457) *a.out=x; clocked(a,c,t); }

// cp.async into a ring of tiles in shared memory; work: dependent multiply-adds of each thread per tile.
template<int STAGES,int TILE> __global__ void __launch_bounds__(128) ring(Args a){
  extern __shared__ __align__(1024) char sm[]; u64 c=clock64(),t=nanos();
  const size_t stride=(size_t)gridDim.x*TILE; size_t at=(size_t)blockIdx.x*TILE%a.bytes; float f=threadIdx.x;
  u32 to=0,slot=0; // byte in the ring that is filled next, and read next
  auto load=[&](int i){ if(i<a.tiles){ const char*p=a.data+at+threadIdx.x*16; u32 s=shared(sm)+to+threadIdx.x*16;
      #pragma unroll 8
      for(int k=0;k<TILE;k+=2048) asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"(s+k),"l"(p+k)); }
    at+=stride; if(at>=a.bytes) at-=a.bytes; to+=TILE; if(to==STAGES*TILE) to=0; asm volatile("cp.async.commit_group;"); };
  for(int i=0;i<STAGES-1;i++) load(i);
  for(int i=0;i<a.tiles;i++){
    asm volatile("cp.async.wait_group %0;"::"n"(STAGES-2)); __syncthreads();
    load(i+STAGES-1); float b=*(float*)(sm+slot+threadIdx.x*16); slot+=TILE; if(slot==STAGES*TILE) slot=0;
    for(int k=0;k<a.work;k++) f=fmaf(f,b,1.0f);
    __syncthreads(); }
  if(f==1.2345f) *a.out=f; clocked(a,c,t); }

// The bulk copy engine: one thread fills the ring. PAIR: two blocks of a cluster share each tile, each asks for a half of it.
template<bool PAIR> __global__ void bulk(Args a){
  extern __shared__ __align__(1024) char sm[]; __shared__ __align__(8) u64 full[16],empty[16]; u64 c=clock64(),t=nanos();
  u32 rank=PAIR?blockIdx.x&1:0; const size_t groups=PAIR?gridDim.x/2:gridDim.x, me=PAIR?blockIdx.x/2:blockIdx.x, stride=groups*a.tile;
  if(threadIdx.x==0){ for(int s=0;s<a.stages;s++){ init(shared(&full[s]),1); init(shared(&empty[s]),PAIR?2:1); } asm volatile("fence.mbarrier_init.release.cluster;"); }
  __syncthreads(); if(PAIR) asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;":::"memory");
  if(threadIdx.x==0){
    size_t from=me*a.tile; auto issue=[&](int i,int s){ if(i>=a.tiles) return; u32 b=shared(&full[s]); expect(b,a.tile);
      if(!PAIR) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"::"r"(shared(sm)+s*a.tile),"l"(a.data+from),"r"(a.tile),"r"(b):"memory");
      else { u32 half=a.tile/2; asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0],[%1],%2,[%3],%4;"::"r"(shared(sm)+s*a.tile+rank*half),"l"(a.data+from+rank*half),"r"(half),"r"(b),"h"((unsigned short)3):"memory"); } from+=stride; if(from>=a.bytes) from-=a.bytes; };
    for(int i=0;i<a.stages;i++) issue(i,i);
    int s=0,q=0,turn=0,due=0;
    for(int i=0;i<a.tiles;i++){ await(shared(&full[s]),turn);
      if(PAIR) for(u32 r=0;r<2;r++) asm volatile("{.reg .b32 x; mapa.shared::cluster.u32 x,%0,%1; mbarrier.arrive.release.cluster.shared::cluster.b64 _,[x];}"::"r"(shared(&empty[s])),"r"(r):"memory");
      if(++s==a.stages){ s=0; turn^=1; }
      if(i>0){ if(i-1+a.stages<a.tiles){ if(PAIR) await(shared(&empty[q]),due); issue(i-1+a.stages,q); } if(++q==a.stages){ q=0; due^=1; } } } }
  __syncthreads(); if(PAIR) asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;":::"memory"); clocked(a,c,t); }

// Tiles of a matrix of 16-bit numbers, as the weights of a product: 64 columns of `rows` rows, along the columns first.
__global__ void matrix(Args a,const __grid_constant__ CUtensorMap map,int rows,int columns){
  extern __shared__ __align__(1024) char sm[]; __shared__ __align__(8) u64 full[16]; u64 c=clock64(),t=nanos();
  if(threadIdx.x==0){ for(int s=0;s<a.stages;s++) init(shared(&full[s]),1); asm volatile("fence.mbarrier_init.release.cluster;"); const int along=columns/64, all=(int)(a.bytes/2/columns/rows);
    int x=0,y=(int)blockIdx.x*rows; (void)along; const int most=all*rows; auto issue=[&](int i,int s){ if(i>=a.tiles) return; u32 b=shared(&full[s]); expect(b,a.tile);
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];"::"r"(shared(sm)+s*a.tile),"l"(&map),"r"(x),"r"(y),"r"(b):"memory");
      x+=64; if(x==columns){ x=0; y+=gridDim.x*rows; if(y>=most) y=(int)blockIdx.x*rows; } };
    for(int i=0;i<a.stages;i++) issue(i,i);
    int s=0,turn=0;
    for(int i=0;i<a.tiles;i++){ await(shared(&full[s]),turn); issue(i+a.stages,s); if(++s==a.stages){ s=0; turn^=1; } } }
  __syncthreads(); clocked(a,c,t); }

struct Part{ int n; const char*side; cudaStream_t s; };
static std::vector<Part> parts; static Args args; static FILE*out; static bool profiled;
template<class F> static void timed(const char*kind,int under_way_kb,int per,int work,const char*data,double bytes_of_block,F go,int only=0){
  for(auto&p:parts){ if(only&&p.n!=132&&p.n!=20&&p.n!=8&&p.n!=36&&p.n!=64) continue; 
    cudaEvent_t e0,e1; CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1)); float best=1e9;
    for(int k=profiled;k<(profiled?2:4);k++){ CK(cudaEventRecord(e0,p.s)); go(p.n*per,p.s); CK(cudaGetLastError()); CK(cudaEventRecord(e1,p.s)); CK(cudaEventSynchronize(e1)); float ms; CK(cudaEventElapsedTime(&ms,e0,e1)); if(k) best=std::min(best,ms); }
    u64 c[2]; CK(cudaMemcpy(c,args.clock,16,cudaMemcpyDeviceToHost)); CK(cudaEventDestroy(e0)); CK(cudaEventDestroy(e1));
    fprintf(out,"%s,%d,%d,%d,%s,%d,%s,%.2f,%.2f,%.0f\n",kind,under_way_kb,per,work,data,p.n,p.side,bytes_of_block*per/best/1e6,best*1e3,1e3*(double)c[0]/c[1]); fflush(out); } }
template<class K> static void most(K k){ CK(cudaFuncSetAttribute(k,cudaFuncAttributeMaxDynamicSharedMemorySize,220*1024)); }
template<int S,int KB> static void rings(int per,int work,bool l2,size_t big){ Args a=args; a.tile=KB*1024; a.work=work; a.tiles=(int)(12800*1024ll/a.tile/per); a.bytes=l2?(size_t)8<<20:big;
  most(ring<S,KB*1024>); timed("cp.async",S*KB,per,work,l2?"l2":"dram",(double)a.tiles*a.tile,[&](int g,cudaStream_t s){ ring<S,KB*1024><<<g,128,S*a.tile,s>>>(a); },l2); }
// A grid of several waves, the same on any number of SMs: as much as fits is on an SM.
static const int BLOCKS=132*4*8;
template<int S,int KB> static void waves(int work,size_t big){ Args a=args; a.tile=KB*1024; a.work=work; a.tiles=512/KB; a.bytes=big; auto k=ring<S,KB*1024>; most(k); int n; CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n,k,128,S*a.tile));
  for(auto&p:parts){ cudaEvent_t e0,e1; CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1)); float best=1e9;
    for(int i=profiled;i<(profiled?2:4);i++){ CK(cudaEventRecord(e0,p.s)); k<<<BLOCKS,128,S*a.tile,p.s>>>(a); CK(cudaGetLastError()); CK(cudaEventRecord(e1,p.s)); CK(cudaEventSynchronize(e1)); float ms; CK(cudaEventElapsedTime(&ms,e0,e1)); if(i) best=std::min(best,ms); }
    fprintf(out,"waves %d x %d KB,%d,%d,%d,dram,%d,%s,%.2f,%.2f,0\n",S,KB,S*KB,n,work,p.n,p.side,(double)BLOCKS*512*1024/p.n/best/1e6,best*1e3); } }
int main(int argc,char**argv){
  profiled=argc>2; const bool green=argc>2&&!strcmp(argv[2],"green"); CK(cudaFree(0)); CUdevice dev; CU(cuDeviceGet(&dev,0)); CUdevResource r; CU(cuDeviceGetDevResource(dev,&r,CU_DEV_RESOURCE_TYPE_SM));
  cudaStream_t all; CK(cudaStreamCreateWithFlags(&all,cudaStreamNonBlocking)); if(!green) parts.push_back({(int)r.sm.smCount,"all",all});
  for(int want:{8,16,24,32,48,64,80,96,112}){ if(profiled&&!(green&&want==112)) continue; CUdevResource g,rest; u32 n=1; CU(cuDevSmResourceSplitByCount(&g,&n,&r,&rest,0,want)); CUdevResource*two[2]={&g,&rest};
    for(int i=0;i<2;i++){ CUdevResourceDesc d; CU(cuDevResourceGenerateDesc(&d,two[i],1)); CUgreenCtx x; CU(cuGreenCtxCreate(&x,d,dev,CU_GREEN_CTX_DEFAULT_STREAM)); CUstream q; CU(cuGreenCtxStreamCreate(&q,x,CU_STREAM_NON_BLOCKING,0));
      if(green?i:!i||two[i]->sm.smCount<=52) parts.push_back({(int)two[i]->sm.smCount,i?"rest":"group",(cudaStream_t)q}); } }
  out=fopen(argv[1],"w"); fprintf(out,"kind,under_way_kb,blocks_per_sm,work,data,sms,side,gb_per_s_sm,us,clock_mhz\n");
  size_t big=(size_t)4<<30; char*buf; CK(cudaMalloc(&buf,big+(1<<20))); CK(cudaMemset(buf,0,big)); CK(cudaMalloc((void**)&args.out,4)); CK(cudaMalloc((void**)&args.clock,16)); args.data=buf;
  most(bulk<false>); most(bulk<true>); most(matrix);
  for(int work:{0,50,100,200}){ waves<2,16>(work,big); waves<3,16>(work,big); waves<6,16>(work,big); waves<2,32>(2*work,big); waves<3,32>(2*work,big); waves<6,32>(2*work,big); }
  if(profiled) return 0;
  for(bool l2:{false,true}){
    for(int warps:{2,4,8,16,32}) { Args a=args; int tile=warps*32*128; a.bytes=l2?(size_t)8<<20:big; a.tiles=12800*1024/tile; timed("loads",tile/1024,1,0,l2?"l2":"dram",(double)a.tiles*tile,[&](int g,cudaStream_t s){ loads<<<g,warps*32,0,s>>>(a); },l2); }
    for(int per:{1,2,3}){ rings<2,4>(per,0,l2,big); rings<2,8>(per,0,l2,big); rings<2,16>(per,0,l2,big); rings<3,8>(per,0,l2,big); rings<3,16>(per,0,l2,big); rings<6,8>(per,0,l2,big); if(per<3) rings<6,16>(per,0,l2,big); }
    for(int pair:{0,1}) for(int kb:{16,32,64,96,128,192}){ Args a=args; a.stages=8; a.tile=kb*128; a.tiles=12800*1024/a.tile; a.bytes=l2?(size_t)8<<20:big;
      timed(pair?"bulk in pairs":"bulk",kb,1,0,l2?"l2":"dram",(double)a.tiles*a.tile,[&](int g,cudaStream_t s){
        if(!pair){ bulk<false><<<g,32,kb*1024,s>>>(a); return; }
        cudaLaunchConfig_t c={}; c.gridDim=g; c.blockDim=32; c.dynamicSmemBytes=kb*1024; c.stream=s; cudaLaunchAttribute at; at.id=cudaLaunchAttributeClusterDimension; at.val.clusterDim={2,1,1}; c.attrs=&at; c.numAttrs=1; CK(cudaLaunchKernelEx(&c,bulk<true>,a)); },l2); }
    for(int columns:{2048,8192,28672}) for(int rows:{16,64,128,256}) for(int stages:{2,4,8,16}){ Args a=args; a.tile=rows*128; a.stages=stages; if(a.tile*stages>200*1024||a.tile*stages<16*1024) continue; if(columns!=8192&&rows!=64) continue; if(l2&&columns!=8192) continue;
      a.bytes=(l2?(size_t)8<<20:big)/(2ull*columns*rows)*(2ull*columns*rows); a.tiles=12800*1024/a.tile; CUtensorMap m; cuuint64_t dim[2]={(cuuint64_t)columns,a.bytes/2/columns}, pitch[1]={2ull*columns}; cuuint32_t box[2]={64,(cuuint32_t)rows}, one[2]={1,1};
      CU(cuTensorMapEncodeTiled(&m,CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,2,buf,dim,pitch,box,one,CU_TENSOR_MAP_INTERLEAVE_NONE,CU_TENSOR_MAP_SWIZZLE_128B,CU_TENSOR_MAP_L2_PROMOTION_L2_128B,CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
      char kind[64]; sprintf(kind,"matrix %d x %d",rows,columns); timed(kind,a.tile*stages/1024,1,0,l2?"l2":"dram",(double)a.tiles*a.tile,[&](int g,cudaStream_t s){ matrix<<<g,32,a.tile*stages,s>>>(a,m,rows,columns); },l2); } }
  fclose(out); return 0; }
