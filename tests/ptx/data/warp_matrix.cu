#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
using namespace nvcuda; namespace cg=cooperative_groups;
__global__ void w(half*a,half*b,float*c){ wmma::fragment<wmma::matrix_a,16,16,16,half,wmma::row_major> fa; wmma::fragment<wmma::matrix_b,16,16,16,half,wmma::col_major> fb; wmma::fragment<wmma::accumulator,16,16,16,float> fc; wmma::fill_fragment(fc,0.f); wmma::load_matrix_sync(fa,a,16); wmma::load_matrix_sync(fb,b,16); wmma::mma_sync(fc,fa,fb,fc); wmma::store_matrix_sync(c,fc,16,wmma::mem_row_major);}
__global__ void cpa(float4*g,float4*o){ __shared__ float4 s[64]; __pipeline_memcpy_async(&s[threadIdx.x],&g[threadIdx.x],16); __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); o[threadIdx.x]=s[63-threadIdx.x];}
__global__ void at(unsigned*u,unsigned long long*l,float*f,double*d,half2*h){ atomicAdd(u,1);atomicSub(u,2);atomicExch(u,3);atomicMin(u,4);atomicMax(u,5);atomicInc(u,6);atomicDec(u,7);atomicCAS(u,8,9);atomicAnd(u,10);atomicOr(u,11);atomicXor(u,12);atomicAdd(l,13);atomicCAS(l,1,2);atomicAdd(f,1.f);atomicAdd(d,1.0);atomicAdd(h,__floats2half2_rn(1,2)); atomicAdd_block(u,1); atomicAdd_system(u,1);}
__global__ void warp(int*x){ int v=x[threadIdx.x]; v+=__shfl_down_sync(~0u,v,4); v+=__reduce_add_sync(~0u,v); v+=__match_any_sync(~0u,v); int p; v+=__match_all_sync(~0u,v,&p); v+=__ballot_sync(~0u,v>3)+__any_sync(~0u,p)+__activemask(); x[threadIdx.x]=v; auto t=cg::tiled_partition<8>(cg::this_thread_block()); x[0]=cg::reduce(t,v,cg::plus<int>()); }
__global__ void bar(int*x){ __shared__ cuda::barrier<cuda::thread_scope_block> b; if(threadIdx.x==0) init(&b,blockDim.x); __syncthreads(); b.arrive_and_wait(); x[0]=__syncthreads_count(x[1])+__syncthreads_and(x[2])+__syncthreads_or(x[3]); }
__global__ void hb(half*a,__nv_bfloat16*b,double*d){ a[0]=hsin(a[1])*a[2]+hexp(a[3]); b[0]=__hmul(b[1],b[2]); b[3]=__float2bfloat16_rn(1.5f*__bfloat162float(b[4])); d[0]=sin(d[1])+exp(d[2])/d[3]+sqrt(d[4]); }
