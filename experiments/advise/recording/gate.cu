// Gates, green contexts and streams for modern.py: everything timed is queued behind a flag before the clock starts.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#define CU(x) do{ CUresult r_=(x); if(r_){ const char*s; cuGetErrorString(r_,&s); fprintf(stderr,"%s:%d %s\n",#x,__LINE__,s); exit(1);} }while(0)
#define CK(x) do{ cudaError_t r_=(x); if(r_){ fprintf(stderr,"%s:%d %s\n",#x,__LINE__,cudaGetErrorString(r_)); exit(1);} }while(0)
static volatile unsigned* gate; static CUdeviceptr gate_dev; static unsigned* flag;
__global__ void flushk(const float4*p,size_t n,float*out){ size_t i=blockIdx.x*(size_t)blockDim.x+threadIdx.x; float a=0; for(;i<n;i+=(size_t)gridDim.x*blockDim.x){ float4 v=p[i]; a+=v.x+v.y+v.z+v.w; } if(a==1.2345f) *out=a; }
static float4* flushbuf; static const size_t FLUSH=(size_t)512<<20;
extern "C" {
void init(){ CK(cudaFree(0)); CK(cudaMalloc(&flag,64)); void*hp; CK(cudaHostAlloc(&hp,64,cudaHostAllocMapped)); gate=(volatile unsigned*)hp; void*dp; CK(cudaHostGetDevicePointer(&dp,hp,0)); gate_dev=(CUdeviceptr)dp; CK(cudaMalloc(&flushbuf,FLUSH+64)); CK(cudaMemset(flushbuf,0,FLUSH+64)); }
void gate_wait(void*st){ gate[0]=0; CU(cuStreamWaitValue32((CUstream)st,gate_dev,1,CU_STREAM_WAIT_VALUE_GEQ)); }
void gate_open(){ gate[0]=1; }
void flag_reset(){ CK(cudaMemset(flag,0,4)); CK(cudaDeviceSynchronize()); }
void flag_wait(void*st){ CU(cuStreamWaitValue32((CUstream)st,(CUdeviceptr)flag,1,CU_STREAM_WAIT_VALUE_GEQ)); }
void flag_write(void*st){ CU(cuStreamWriteValue32((CUstream)st,(CUdeviceptr)flag,1,0)); }
void flush(void*st){ flushk<<<1056,256,0,(cudaStream_t)st>>>(flushbuf,FLUSH/16,(float*)flushbuf+FLUSH/4); CK(cudaGetLastError()); }
void* stream(unsigned long long*id){ cudaStream_t s; CK(cudaStreamCreateWithFlags(&s,cudaStreamNonBlocking)); CK(cudaStreamGetId(s,id)); return s; }
void green(unsigned want,void**s1,unsigned*n1,void**s2,unsigned*n2){ CUdevice dev; CU(cuDeviceGet(&dev,0)); CUdevResource r,g,rest; CU(cuDeviceGetDevResource(dev,&r,CU_DEV_RESOURCE_TYPE_SM)); unsigned n=1; CU(cuDevSmResourceSplitByCount(&g,&n,&r,&rest,0,want));
  CUdevResource* two[2]={&g,&rest}; void** s[2]={s1,s2}; unsigned* c[2]={n1,n2};
  for(int i=0;i<2;i++){ CUdevResourceDesc d; CU(cuDevResourceGenerateDesc(&d,two[i],1)); CUgreenCtx x; CU(cuGreenCtxCreate(&x,d,dev,CU_GREEN_CTX_DEFAULT_STREAM)); CUstream q; CU(cuGreenCtxStreamCreate(&q,x,CU_STREAM_NON_BLOCKING,0)); *s[i]=q; *c[i]=two[i]->sm.smCount; } }
}
extern "C" {
void* stream_of(int priority,unsigned long long*id){ cudaStream_t s; CK(cudaStreamCreateWithPriority(&s,cudaStreamNonBlocking,priority)); CK(cudaStreamGetId(s,id)); return s; }
void copy(void*to,void*from,unsigned long long bytes,void*st){ CK(cudaMemcpyAsync(to,from,bytes,cudaMemcpyDefault,(cudaStream_t)st)); }
}
