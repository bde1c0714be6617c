// malloc and free for device code, as PTX: `make services` compiles this to heap.ptx.
//
// The heap is cut into granules of 64 bytes. A bit says that a granule is taken; `counts` says, at the first
// granule of a live allocation, how many it has. Threads claim runs of bits with atomics and wait for nobody,
// so lanes of one warp may allocate together on GPUs whose lanes run in step.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Heap {
  char *base;
  u32 *taken;   // a bit a granule
  u32 *counts;  // a word a granule
  u64 next;     // where to look first: moved on by every allocation
  u64 granules;
};

extern "C" {
__device__ Heap *__zluda_heap;
}

constexpr u64 GRANULE = 64;

// The bits of word `word` that belong to the granules [first, first + count).
static __device__ u32 bits_of(u64 word, u64 first, u64 count) {
  u64 low = word * 32, end = first + count;
  u32 mask = ~0u;
  if (first > low) mask &= ~0u << (first - low);
  if (end < low + 32) mask &= ~(~0u << (end - low));
  return mask;
}

// Behind the last taken granule of a run; its first granule where all are free.
static __device__ u64 behind_taken(Heap *heap, u64 first, u64 count) {
  #pragma unroll 1
  for (u64 word = (first + count - 1) / 32;; word--) {
    u32 busy = *(volatile u32 *)(heap->taken + word) & bits_of(word, first, count);
    if (busy) return word * 32 + 32 - __clz(busy);
    if (word == first / 32) return first;
  }
}

extern "C" __device__ __noinline__ void __zluda_heap_release(Heap *heap, u64 first, u64 count) {
  #pragma unroll 1
  for (u64 word = first / 32; word <= (first + count - 1) / 32; word++)
    atomicAnd(heap->taken + word, ~bits_of(word, first, count));
}

// Take a run of granules, or none of it where somebody else was quicker.
extern "C" __device__ __noinline__ bool __zluda_heap_claim(Heap *heap, u64 first, u64 count) {
  #pragma unroll 1
  for (u64 word = first / 32; word <= (first + count - 1) / 32; word++) {
    u32 wanted = bits_of(word, first, count);
    u32 before = atomicOr(heap->taken + word, wanted);
    if (before & wanted) {
      atomicAnd(heap->taken + word, ~(wanted & ~before));
      if (word * 32 > first) __zluda_heap_release(heap, first, word * 32 - first);
      return false;
    }
  }
  return true;
}

// Null where no run of free granules is long enough. No bytes are something, as on an H200.
extern "C" __device__ void *__zluda_malloc(u64 size) {
  Heap *heap = __zluda_heap;
  u64 granules = heap->granules;
  if (size > granules * GRANULE) return nullptr;
  u64 count = size ? (size + GRANULE - 1) / GRANULE : 1;
  u64 first = atomicAdd(&heap->next, count) % granules;
  u64 looked = 0;  // once round, and as far again as a run can lie across where that began
  #pragma unroll 1
  while (looked <= granules + count) {
    if (first + count > granules) {
      looked += granules - first;
      first = 0;
      continue;
    }
    u64 next = behind_taken(heap, first, count);
    if (next == first && __zluda_heap_claim(heap, first, count)) {
      heap->counts[first] = (u32)count;
      __threadfence();
      return heap->base + first * GRANULE;
    }
    looked += next - first;
    first = next;
  }
  return nullptr;
}

extern "C" __device__ void __zluda_stop_free();

// Nothing for null; the launch ends for what is no live allocation.
extern "C" __device__ void __zluda_free(void *pointer) {
  if (!pointer) return;
  Heap *heap = __zluda_heap;
  u64 offset = (u64)((char *)pointer - heap->base);
  u32 count = 0;
  if (offset % GRANULE == 0 && offset / GRANULE < heap->granules) {
    __threadfence();
    count = atomicExch(heap->counts + offset / GRANULE, 0);
  }
  if (count == 0) {
    __zluda_stop_free();
    return;
  }
  __zluda_heap_release(heap, offset / GRANULE, count);
}
