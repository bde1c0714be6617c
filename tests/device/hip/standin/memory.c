// Memory: pages of this process, each allocation between two that nothing may touch.

#include "standin.h"
#include <sys/mman.h>

#define PAGE 4096ull

typedef struct allocation_s {
  char* base;
  size_t size;
  int pool;
  struct allocation_s* next;
} allocation_t;

static allocation_t* allocations;

static allocation_t* holding(const void* address) {
  for (allocation_t* a = allocations; a; a = a->next)
    if ((char*)address >= a->base && (char*)address < a->base + a->size) return a;
  return NULL;
}

hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags, void** out) {
  size = (size + PAGE - 1) / PAGE * PAGE;
  if (size > POOL_BYTES) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  allocation_t* made = malloc(sizeof *made);
  char* mapped = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!made || mapped == MAP_FAILED || mprotect(mapped + PAGE, size, PROT_READ | PROT_WRITE)) {
    free(made);
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  lock();
  *made = (allocation_t){mapped + PAGE, size, (int)pool.handle, allocations};
  allocations = made;
  unlock();
  *out = made->base;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_pool_free(void* base) {
  hsa_status_t status = HSA_STATUS_ERROR_INVALID_ALLOCATION;
  lock();
  for (allocation_t** link = &allocations; *link; link = &(*link)->next) {
    allocation_t* gone = *link;
    if (gone->base != base) continue;
    *link = gone->next;
    munmap(gone->base - PAGE, gone->size + 2 * PAGE);
    free(gone);
    status = HSA_STATUS_SUCCESS;
    break;
  }
  unlock();
  return status;
}

hsa_status_t hsa_amd_pointer_info(const void* address, hsa_amd_pointer_info_t* info, void* (*allocate)(size_t),
                                  uint32_t* agents, hsa_agent_t** accessible) {
  uint32_t size = info->size;  // of the caller's structure, which may be an older, shorter one
  memset((char*)info + sizeof size, 0, size - sizeof size);
  if (agents) *agents = 0;
  lock();
  allocation_t* found = holding(address);
  info->type = found ? HSA_EXT_POINTER_TYPE_HSA : HSA_EXT_POINTER_TYPE_UNKNOWN;
  if (found) {
    info->agentBaseAddress = info->hostBaseAddress = found->base;
    info->sizeInBytes = found->size;
    info->agentOwner = found->pool >= POOL_GPU ? GPU_AGENT : CPU_AGENT;
  }
  unlock();
  return HSA_STATUS_SUCCESS;
}

// --- pools ------------------------------------------------------------------------------------------------

hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
                                                hsa_status_t (*callback)(hsa_amd_memory_pool_t, void*), void* data) {
  static const int cpu[] = {POOL_CPU_FINE, POOL_CPU_COARSE, POOL_CPU_KERNARG, 0}, gpu[] = {POOL_GPU, POOL_GPU_LDS, 0};
  for (const int* pool = agent.handle == GPU_AGENT.handle ? gpu : cpu; *pool; pool++) {
    hsa_status_t status = callback((hsa_amd_memory_pool_t){*pool}, data);
    if (status) return status == HSA_STATUS_INFO_BREAK ? HSA_STATUS_SUCCESS : status;
  }
  return HSA_STATUS_SUCCESS;
}

static uint32_t global_flags(int pool) {
  switch (pool) {
    case POOL_CPU_FINE: return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED;
    case POOL_CPU_KERNARG:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED | HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT;
    case POOL_GPU_LDS: return 0;
    default: return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
  }
}

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t what, void* out) {
  bool lds = pool.handle == POOL_GPU_LDS;
  switch ((int)what) {
    case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
      *(uint32_t*)out = lds ? HSA_AMD_SEGMENT_GROUP : HSA_AMD_SEGMENT_GLOBAL;
      break;
    case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS: *(uint32_t*)out = global_flags(pool.handle); break;
    case HSA_AMD_MEMORY_POOL_INFO_SIZE: *(size_t*)out = lds ? LDS_BYTES : POOL_BYTES; break;
    case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE: *(size_t*)out = lds ? LDS_BYTES : POOL_BYTES; break;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED: *(bool*)out = !lds; break;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT: *(size_t*)out = PAGE; break;
    case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL: *(bool*)out = pool.handle < POOL_GPU; break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t pool,
                                                hsa_amd_agent_memory_pool_info_t what, void* out) {
  bool access = what == HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS;
  *(uint32_t*)out = access ? HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT : 0;  // no hops: nothing links agents
  return HSA_STATUS_SUCCESS;
}

// --- copies: host and device see the same memory ------------------------------------------------------------

hsa_status_t hsa_memory_copy(void* to, const void* from, size_t size) {
  memcpy(to, from, size);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_async_copy(void* to, hsa_agent_t to_agent, const void* from, hsa_agent_t from_agent,
                                       size_t size, uint32_t count, const hsa_signal_t* after, hsa_signal_t done) {
  uint64_t began = now_ns();
  for (uint32_t i = 0; i < count; i++) require_done(after[i], "a copy");
  memcpy(to, from, size);
  signal_complete(done, began);
  return HSA_STATUS_SUCCESS;
}

static char* row(const hsa_pitched_ptr_t* surface, const hsa_dim3_t* at, uint32_t y, uint32_t z) {
  return (char*)surface->base + (at->z + z) * surface->slice + (at->y + y) * surface->pitch + at->x;
}

hsa_status_t hsa_amd_memory_async_copy_rect(const hsa_pitched_ptr_t* to, const hsa_dim3_t* to_offset,
                                            const hsa_pitched_ptr_t* from, const hsa_dim3_t* from_offset,
                                            const hsa_dim3_t* range, hsa_agent_t agent,
                                            hsa_amd_copy_direction_t direction, uint32_t count,
                                            const hsa_signal_t* after, hsa_signal_t done) {
  uint64_t began = now_ns();
  for (uint32_t i = 0; i < count; i++) require_done(after[i], "a copy");
  for (uint32_t z = 0; z < range->z; z++)
    for (uint32_t y = 0; y < range->y; y++)
      memcpy(row(to, to_offset, y, z), row(from, from_offset, y, z), range->x);
  signal_complete(done, began);
  return HSA_STATUS_SUCCESS;
}

// --- what is true of all of it already: every agent can reach it, and it stays where it is --------------------

hsa_status_t hsa_amd_agents_allow_access(uint32_t count, const hsa_agent_t* agents, const uint32_t* flags,
                                         const void* address) {
  return HSA_STATUS_SUCCESS;
}
hsa_status_t hsa_amd_memory_lock_to_pool(void* host, size_t size, hsa_agent_t* agents, int count,
                                         hsa_amd_memory_pool_t pool, uint32_t flags, void** out) {
  *out = host;
  return HSA_STATUS_SUCCESS;
}
hsa_status_t hsa_amd_memory_unlock(void* host) { return HSA_STATUS_SUCCESS; }
hsa_status_t hsa_memory_register(void* address, size_t size) { return HSA_STATUS_SUCCESS; }
hsa_status_t hsa_memory_deregister(void* address, size_t size) { return HSA_STATUS_SUCCESS; }
hsa_status_t hsa_amd_coherency_set_type(hsa_agent_t agent, hsa_amd_coherency_type_t type) { return HSA_STATUS_SUCCESS; }
hsa_status_t hsa_amd_svm_attributes_set(void* address, size_t size, hsa_amd_svm_attribute_pair_t* list, size_t count) {
  return HSA_STATUS_SUCCESS;
}
hsa_status_t hsa_amd_svm_prefetch_async(void* address, size_t size, hsa_agent_t agent, uint32_t count,
                                        const hsa_signal_t* after, hsa_signal_t done) {
  signal_complete(done, now_ns());
  return HSA_STATUS_SUCCESS;
}
