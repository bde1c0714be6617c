// cudaGraphSetConditional, as PTX: `make services` compiles this to conditional.ptx.
//
// A kernel of a graph sets a condition by its handle. Handles are the recorded ones, and what was set stands in a table of the
// module's own, until whoever runs the graph's nodes takes it (zluda/replay/conditions.py).

typedef unsigned int u32;
typedef unsigned long long u64;

struct Condition {
  u64 handle;  // 0: this place is free
  u32 value, unused;
};

constexpr u32 PLACES = 64;

extern "C" {
__device__ Condition __zluda_conditions[PLACES];
}

// The graph's own condition is set once its kernel has ended; a kernel that sets more of them than there are places has no graph.
extern "C" __device__ __noinline__ void __zluda_cudaGraphSetConditional(u64 handle, u32 value) {
#pragma unroll 1
  for (u32 place = 0; place != PLACES; place++) {
    u64 found = atomicCAS(&__zluda_conditions[place].handle, 0ull, handle);
    if (found == 0 || found == handle) {
      __zluda_conditions[place].value = value;
      return;
    }
  }
  __trap();
}
