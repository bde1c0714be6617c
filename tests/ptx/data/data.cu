struct S{ int a; double b; char c[5]; };
__device__ const char *names[]={"one","two",0};
__device__ int table[2][3]={{1,2,3},{4,5,6}};
__device__ S st={1,2.5,{1,2,3}};
__device__ int (*fp)(int);
__constant__ double cd[3]={1.5,-2,1e300};
extern __shared__ float dyn[];
__managed__ int mg=3;
__device__ S make(int n,S s){ s.a+=n; return s; }
__device__ __noinline__ S mk(int n,S s){ s.a+=n*s.b; return s; }
__device__ __noinline__ int ack(int m,int n){ return m==0?n+1:n==0?ack(m-1,1):ack(m-1,ack(m,n-1)); }
__global__ __launch_bounds__(128,2) void k(S s,int*o,long long n){ S r=mk(3,s); o[0]=r.a; o[1]=ack(2,3); dyn[threadIdx.x]=o[2]; __syncthreads(); o[3]=(int)dyn[0]; o[4]=fp(2); volatile int loc[32]; loc[o[5]&31]=3; o[6]=loc[o[7]&31]; if(names[0][0]=='o') o[8]=table[1][o[9]&1]; o[10]=n/7+n%13; o[11]=__clz(o[12])+__popc(o[13])+__brev(o[14])+__ffs(o[15])+__byte_perm(o[1],o[2],0x1234)+__funnelshift_l(o[3],o[4],5); o[16]=cd[o[1]&1]; if(o[17]) asm("trap;"); asm volatile("nanosleep.u32 %0;"::"r"(o[0])); mg=st.a;
 switch(o[20]){case 0: o[21]=1;break; case 1:o[22]=2;break; case 2:o[23]=3;break; case 3:o[24]=4;break;case 4:o[25]=5;break;case 5:o[26]=ack(1,1);break;} }
__global__ void __cluster_dims__(2,1,1) cl(int*x){ x[blockIdx.x]=1; }
