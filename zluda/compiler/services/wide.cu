// 128-bit atomics for GPUs without them, as PTX: `make services` compiles this to wide.ptx.
//
// A value is read and written under a lock that its address chooses. Lanes take their turns, since those of a
// wave that waits for a lock cannot release it: each holds its lock alone.

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" {
__device__ u32 *__zluda_locks;
}

constexpr u32 LOCKS = 1024;

struct alignas(16) Wide {
  u64 low, high;
};

// Put `desired` where `expected` stands, or whatever does; what stood there.
extern "C" __device__ __noinline__ Wide __zluda_exchange128(volatile Wide *place, u64 expected_low, u64 expected_high,
                                                            u64 desired_low, u64 desired_high, u32 always) {
  u32 *lock = __zluda_locks + (((u64)place >> 4) * 2654435761u >> 16) % LOCKS;
  Wide found = {0, 0};
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
#pragma unroll 1
  for (u32 left = __activemask(); left; left &= left - 1) {
    if (lane != __ffs(left) - 1) continue;
#pragma unroll 1
    while (atomicCAS(lock, 0, 1)) {
    }
    __threadfence();
    found = {place->low, place->high};
    if (always || (found.low == expected_low && found.high == expected_high)) {
      place->low = desired_low;
      place->high = desired_high;
    }
    __threadfence();
    atomicExch(lock, 0);
  }
  return found;
}
