// Queues: packets are executed when the doorbell rings.

#include "standin.h"

struct queue_s {
  amd_queue_t amd;  // what hsa_queue_t* points to, and a kernel's queue_ptr
  void (*failed)(hsa_status_t status, hsa_queue_t* queue, void* data);
  void* data;
};

enum { PACKET_BYTES = 64, COMPLETION_SIGNAL = 56 };  // hsa.h: the same place in every packet

static void execute(queue_t* queue, char* packet) {
  uint64_t began = now_ns();
  switch (*(uint16_t*)packet & 0xff) {
    case HSA_PACKET_TYPE_KERNEL_DISPATCH:
      if (service.dispatch((hsa_kernel_dispatch_packet_t*)packet)) {
        // As ROCr tells of a wave that trapped or faulted; HIP ends the process then.
        if (queue->failed) queue->failed(HSA_STATUS_ERROR_EXCEPTION, &queue->amd.hsa_queue, queue->data);
        abort();
      }
      break;
    case HSA_PACKET_TYPE_BARRIER_AND:
      for (int i = 0; i < 5; i++)
        require_done(((hsa_barrier_and_packet_t*)packet)->dep_signal[i], "a barrier packet");
      break;
  }
  signal_complete(*(hsa_signal_t*)(packet + COMPLETION_SIGNAL), began);
}

void queue_ring(queue_t* queue) {
  hsa_queue_t* ring = &queue->amd.hsa_queue;
  uint64_t last = signal_of(ring->doorbell_signal)->amd.value;
  while (queue->amd.read_dispatch_id <= last) {
    char* packet = (char*)ring->base_address + PACKET_BYTES * (queue->amd.read_dispatch_id % ring->size);
    uint16_t* header = (uint16_t*)packet;
    if ((*header & 0xff) == HSA_PACKET_TYPE_INVALID) break;
    execute(queue, packet);
    *header = HSA_PACKET_TYPE_INVALID;
    queue->amd.read_dispatch_id++;
  }
}

hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                              void (*failed)(hsa_status_t, hsa_queue_t*, void*), void* data,
                              uint32_t private_bytes, uint32_t group_bytes, hsa_queue_t** out) {
  static uint64_t next_id;
  queue_t* queue = aligned_alloc(64, (sizeof(queue_t) + 63) / 64 * 64);
  char* packets = aligned_alloc(4096, PACKET_BYTES * (size_t)size);
  if (!queue || !packets) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  memset(queue, 0, sizeof *queue);
  memset(packets, 0, PACKET_BYTES * (size_t)size);
  for (uint32_t i = 0; i < size; i++) *(uint16_t*)(packets + PACKET_BYTES * i) = HSA_PACKET_TYPE_INVALID;
  hsa_queue_t* ring = &queue->amd.hsa_queue;
  ring->type = type;
  ring->features = HSA_QUEUE_FEATURE_KERNEL_DISPATCH;
  ring->base_address = packets;
  ring->size = size;
  lock();
  ring->id = next_id++;
  unlock();
  queue->failed = failed;
  queue->data = data;
  hsa_signal_create(-1, 0, NULL, &ring->doorbell_signal);  // the index of the last packet to execute
  signal_of(ring->doorbell_signal)->queue = queue;
  *out = ring;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_queue_destroy(hsa_queue_t* ring) {
  hsa_signal_destroy(ring->doorbell_signal);
  free(ring->base_address);
  free(ring);
  return HSA_STATUS_SUCCESS;
}

uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t* ring, uint64_t value) {
  return __atomic_fetch_add(&((queue_t*)ring)->amd.write_dispatch_id, value, __ATOMIC_SEQ_CST);
}
uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t* ring) {
  return ((queue_t*)ring)->amd.write_dispatch_id;
}
uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t* ring) {
  return ((queue_t*)ring)->amd.read_dispatch_id;
}
uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t* ring) {
  return ((queue_t*)ring)->amd.read_dispatch_id;
}

hsa_status_t hsa_amd_queue_cu_set_mask(const hsa_queue_t* ring, uint32_t bits, const uint32_t* mask) {
  return HSA_STATUS_SUCCESS;
}
hsa_status_t hsa_amd_queue_set_priority(hsa_queue_t* ring, hsa_amd_queue_priority_t priority) {
  return HSA_STATUS_SUCCESS;
}

// Times are kept for every packet and copy, asked for or not.
hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t* ring, int enable) { return HSA_STATUS_SUCCESS; }
hsa_status_t hsa_amd_profiling_async_copy_enable(bool enable) { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_amd_profiling_get_dispatch_time(hsa_agent_t agent, hsa_signal_t handle,
                                                 hsa_amd_profiling_dispatch_time_t* out) {
  *out = (hsa_amd_profiling_dispatch_time_t){signal_of(handle)->amd.start_ts, signal_of(handle)->amd.end_ts};
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_profiling_get_async_copy_time(hsa_signal_t handle, hsa_amd_profiling_async_copy_time_t* out) {
  *out = (hsa_amd_profiling_async_copy_time_t){signal_of(handle)->amd.start_ts, signal_of(handle)->amd.end_ts};
  return HSA_STATUS_SUCCESS;
}
