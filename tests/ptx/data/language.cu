#include <cstdio>
__constant__ float cc[4]={1,2,3,4};
__device__ int counter;
struct B{ __device__ virtual int f(int x){return x;} };
struct C:B{ __device__ int f(int x) override {return x*2;} };
__device__ int (*tab[2])(int);
__device__ __noinline__ int fib(int n){ return n<2?n:fib(n-1)+fib(n-2);}
__global__ void k(float*x,int n,B*b){ int i=blockIdx.x*blockDim.x+threadIdx.x; __shared__ float s[128]; s[threadIdx.x]=x[i]; __syncthreads(); 
 if(i<n){x[i]=sinf(s[(threadIdx.x+1)%128])*cc[i&3]+fib(i&7)+b->f(i)+tab[i&1](i); atomicAdd(&counter,1); printf("%d %f\n",i,x[i]);}
 switch(n){case 0:x[0]=1;break;case 1:x[1]=2;break;case 2:x[2]=5;break;case 3:x[5]=7;break;case 4: x[9]=1;break;case 5:x[7]=0;break;default:break;}
 asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0; @p bra L1; bra L2; L1: membar.gl; L2: }"::"r"(n));
 asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 1; @p bra L1; bra L2; L1: membar.gl; L2: }"::"r"(n));
}
__global__ void nb(cudaTextureObject_t t, cudaSurfaceObject_t s, float4*o){ o[threadIdx.x]=tex2D<float4>(t,threadIdx.x,0.5f); surf2Dwrite(1.f,s,4,5); }
