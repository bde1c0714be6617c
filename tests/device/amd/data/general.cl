// Kernels of general interest: arithmetic of each type, LDS, lanes, atomics, control flow, calls.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef unsigned int uint; typedef unsigned long ulong; typedef unsigned short ushort; typedef unsigned char uchar;
#define K kernel __attribute__((amdgpu_flat_work_group_size(1,1024)))
#define TID ((int)__builtin_amdgcn_workitem_id_x())
#define BID ((int)__builtin_amdgcn_workgroup_id_x())
#ifndef BS
#define BS 256
#endif
#define GID (BID*BS+TID)
#define BAR() do{ __builtin_amdgcn_fence(__ATOMIC_RELEASE,"workgroup"); __builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_ACQUIRE,"workgroup"); }while(0)
K void k_vadd(global const float*a, global const float*b, global float*c, int n){int i=GID; if(i<n) c[i]=a[i]+b[i];}
K void k_saxpy_f64(global const double*a, global double*c, double s, int n){int i=GID; if(i<n) c[i]=__builtin_fma(s,a[i],c[i])/ (1.0+a[i]*a[i]);}
K void k_reduce(global const float*a, global float*out, int n){
  local float sm[BS]; int i=GID; sm[TID]= i<n? a[i]:0.f; BAR();
  for(int s=BS/2;s>0;s>>=1){ if(TID<s) sm[TID]+=sm[TID+s]; BAR(); }
  if(TID==0) out[BID]=sm[0];
}
K void k_shfl(global const int*a, global int*o, int n){ // bpermute-based butterfly + divergent loop
  int i=GID; int v=a[i]; 
#if W==64
  int lane=__builtin_amdgcn_mbcnt_hi(~0u,__builtin_amdgcn_mbcnt_lo(~0u,0));
#else
  int lane=__builtin_amdgcn_mbcnt_lo(~0u,0);
#endif
  for(int m=16;m>0;m>>=1){ v+=__builtin_amdgcn_ds_bpermute((lane^m)<<2,v); }
  int cnt=0; uint x=(uint)a[i]|1; while(x!=1 && cnt<200){ if(x&1) x=3*x+1; else x>>=1; cnt++; }
  o[i]=v*1000+cnt;
}
K void k_dpp(global const int*a, global int*o){ // DPP row_shr scan within rows of 16
  int i=GID; int v=a[i];
  v+=__builtin_amdgcn_update_dpp(0,v,0x111,0xf,0xf,true);
  v+=__builtin_amdgcn_update_dpp(0,v,0x112,0xf,0xf,true);
  v+=__builtin_amdgcn_update_dpp(0,v,0x114,0xf,0xf,true);
  v+=__builtin_amdgcn_update_dpp(0,v,0x118,0xf,0xf,true);
  o[i]=v+__builtin_amdgcn_ds_swizzle(v,0x041f);
}
K void k_atomics(global int*ctr, global uint*hist, global ulong*c64, global const int*a, int n){
  int i=GID; if(i>=n) return; int v=a[i];
  __opencl_atomic_fetch_add((global atomic_int*)ctr,v,__ATOMIC_RELAXED,memory_scope_device);
  __opencl_atomic_fetch_add((global atomic_uint*)(hist+(v&15)),1u,__ATOMIC_RELAXED,memory_scope_device);
  __opencl_atomic_fetch_max((global atomic_int*)(ctr+1),v,__ATOMIC_RELAXED,memory_scope_device);
  __opencl_atomic_fetch_add((global atomic_ulong*)c64,(ulong)v,__ATOMIC_RELAXED,memory_scope_device);
  int e=0; // CAS loop
  while(!__opencl_atomic_compare_exchange_strong((global atomic_int*)(ctr+2),&e,e+2,__ATOMIC_RELAXED,__ATOMIC_RELAXED,memory_scope_device));
  __opencl_atomic_exchange((global atomic_int*)(ctr+3),v,__ATOMIC_RELAXED,memory_scope_device);
}
K void k_matmul(global const float*A, global const float*B, global float*C, int N){
  local float As[16][16], Bs[16][16];
  int tx=TID&15, ty=TID>>4; int nb=N/16; int bx=BID%nb, by=BID/nb; float acc=0;
  for(int t=0;t<N/16;t++){ As[ty][tx]=A[(by*16+ty)*N+t*16+tx]; Bs[ty][tx]=B[(t*16+ty)*N+bx*16+tx]; BAR();
    for(int k=0;k<16;k++) acc=__builtin_fmaf(As[ty][k],Bs[k][tx],acc); BAR(); }
  C[(by*16+ty)*N+bx*16+tx]=acc;
}
K void k_math(global const float*a, global float*o, int n){
  int i=GID; if(i>=n)return; float x=a[i];
  float r=__builtin_sqrtf(__builtin_fabsf(x))+1.0f/x; r+=__builtin_amdgcn_exp2f(x*0.125f)+__builtin_amdgcn_logf(__builtin_fabsf(x)+1.f);
  r+=__builtin_amdgcn_sinf(x)+__builtin_amdgcn_cosf(x)+__builtin_amdgcn_rsqf(__builtin_fabsf(x)+.5f)+__builtin_floorf(x)-__builtin_ceilf(x*.3f)+__builtin_truncf(x*.7f)+__builtin_rintf(x*1.3f);
  r=__builtin_fmaxf(r,__builtin_fminf(x,3.0f)); o[i]=x/(r*r+1.0f)+__builtin_copysignf(r,x);
}
K void k_int(global const int*a, global const int*b, global int*o, int n){
  int i=GID; if(i>=n)return; int x=a[i],y=b[i]; uint ux=x,uy=y|1;
  int r=x/(y|1)+x%(y|3); r^=(int)(ux/uy)+(int)(ux%uy); r+=__builtin_popcount(ux)+__builtin_clz(ux|1)+__builtin_ctz(uy);
  r+=(int)(((long)x*y)>>32)+(int)(((ulong)ux*uy)>>32); r=(r<<(y&31))|(ux>>(x&31)); r+= x>>(y&15); r=r>y?r:y; r^=(int)__builtin_bitreverse32(ux); r+=(int)((ux<<7)|(ux>>25));
  r+=(x&y)|(~x&r); o[i]=r;
}
K void k_i64(global const long*a, global const long*b, global long*o, int n){
  int i=GID; if(i>=n)return; long x=a[i],y=b[i]; long r=x*y+(x<<(y&63))-(x>>(y&31)); r^=(long)((ulong)x>>(y&63)); r+=x/(y|1); r+=(ulong)x%(ulong)(y|5); r+= x<y? x:y; o[i]=r+__builtin_popcountl(x);
}
K void k_f64(global const double*a, global double*o, int n){
  int i=GID; if(i>=n)return; double x=a[i]; double r=__builtin_sqrt(__builtin_fabs(x))+x/3.7+__builtin_floor(x); r=__builtin_fma(x,r,1.0); r=__builtin_fmax(r,x)-__builtin_fmin(x,2.0); int k=(int)x; long l=(long)x; uint u=(uint)__builtin_fabs(x); r+=k+(double)l+u; r+=(float)x; if(r<0)r=-r; o[i]=r;
}
K void k_cvt(global const float*a, global int*o, global ushort*h, global uchar*c, int n){
  int i=GID; if(i>=n)return; float x=a[i]; int k=(int)x; uint u=(uint)__builtin_fabsf(x); half hf=(half)x; long l=(long)x; o[i]=k+(int)u+(int)l+(int)(float)hf+(int)(float)(ulong)l+(int)(float)u;
  h[i]=__builtin_bit_cast(ushort,hf); c[i]=(uchar)k; o[i]+= (int)((signed char)c[i])+(short)h[i];
}
K void k_f16(global const half*a, global const half*b, global half*o, int n){ int i=GID; if(i>=n)return; half x=a[i],y=b[i]; half r=x*y+x-y; r=r/(y+(half)1.0f); r= r>x? r:y; o[i]=r; }
typedef half half2 __attribute__((ext_vector_type(2))); typedef float float4 __attribute__((ext_vector_type(4))); typedef short short2 __attribute__((ext_vector_type(2)));
K void k_h2(global const half2*a, global const half2*b, global half2*o){ int i=GID; half2 x=a[i],y=b[i]; o[i]=__builtin_elementwise_fma(x,y,x)+x*y-y; }
K void k_vec4(global const float4*a, global float4*o, int n){int i=GID; if(i<n){ float4 v=a[i]; o[i]=v*v+v.wzyx; }}
K void k_bytes(global const uchar*a, global uchar*o, global const short*s, global short*t, int n){ int i=GID; if(i<n){ o[i]=(a[i]*3+a[i+1])>>1; t[i]=(short)(s[i]*s[i]-a[i]); }}
K void k_switch(global const int*a, global int*o, int n){ int i=GID; if(i>=n)return; int v=a[i],r; switch(v&7){case 0:r=v*3;break;case 1:r=v+77;break;case 2:r=v^0x55;break;case 3: r=0; for(int j=0;j<(v&31);j++) r+=j*v; break; case 4:r=-v;break;case 5:r=v<<3;break;default:r=v>>2;} if(r&1){ for(int j=0;j<(r&15);j++){ if(j==(v&7)) break; r+=a[(i+j)%n]; } } o[i]=r; }
K void k_private(global const int*a, global int*o, int n){ int i=GID; int buf[32]; for(int j=0;j<32;j++) buf[j]=a[(i+j)%n]*j; int s=0; for(int j=0;j<32;j++){ int k=(a[i]+j*7)&31; s+=buf[k]; buf[(k*3)&31]=s; } o[i]=s; }
K void k_lds_atomic(global const int*a, global uint*o, int n){ local uint h[64]; if(TID<64) h[TID]=0; BAR(); int i=GID; if(i<n) __opencl_atomic_fetch_add((local atomic_uint*)&h[a[i]&63],1u,__ATOMIC_RELAXED,memory_scope_work_group); BAR(); if(TID<64) __opencl_atomic_fetch_add((global atomic_uint*)&o[TID],h[TID],__ATOMIC_RELAXED,memory_scope_device); }
K void k_ballot(global const int*a, global uint*o){ int i=GID;
#if W==32
  uint m=__builtin_amdgcn_ballot_w32(a[i]&1); o[i]=__builtin_popcount(m)+__builtin_amdgcn_mbcnt_lo(m,0)+ __builtin_amdgcn_readfirstlane(a[i])+__builtin_amdgcn_readlane(a[i],5);
#else
  ulong m=__builtin_amdgcn_ballot_w64(a[i]&1); o[i]=__builtin_popcountl(m)+__builtin_amdgcn_mbcnt_hi((uint)(m>>32),__builtin_amdgcn_mbcnt_lo((uint)m,0))+__builtin_amdgcn_readfirstlane(a[i])+__builtin_amdgcn_readlane(a[i],5);
#endif
}
constant float tab[16]={0.5f,1.5f,2.25f,3.f,4.f,5.f,6.f,7.f,8.f,9.f,10.f,11.f,12.f,13.f,14.f,15.f};
K void k_const(global const int*a, global float*o, int n){int i=GID; if(i<n) o[i]=tab[a[i]&15];}
K void k_fatomic(global float*s, global double*d, global const float*a, int n){ int i=GID; if(i<n){ __opencl_atomic_fetch_add((global atomic_float*)s,a[i],__ATOMIC_RELAXED,memory_scope_device); __opencl_atomic_fetch_add((global atomic_double*)d,(double)a[i],__ATOMIC_RELAXED,memory_scope_device);} }
__attribute__((noinline)) int helper(int x, int y){ int r=x; for(int i=0;i<(y&7);i++) r=r*1103515245+12345; return r; }
K void k_call(global const int*a, global int*o, int n){ int i=GID; if(i<n) o[i]=helper(a[i],i)+helper(i,a[i]); }
