// Signals: a value, handlers that fire when it meets a condition, and waiting.

#include "standin.h"
#include <pthread.h>
#include <time.h>

struct handler_s {
  hsa_signal_condition_t condition;
  hsa_signal_value_t wanted;
  hsa_amd_signal_handler function;
  void* argument;
  handler_t* next;
};

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;  // a handler may set other signals

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }

uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static bool met(hsa_signal_condition_t condition, hsa_signal_value_t value, hsa_signal_value_t wanted) {
  switch (condition) {
    case HSA_SIGNAL_CONDITION_EQ: return value == wanted;
    case HSA_SIGNAL_CONDITION_NE: return value != wanted;
    case HSA_SIGNAL_CONDITION_LT: return value < wanted;
    case HSA_SIGNAL_CONDITION_GTE: return value >= wanted;
  }
  return false;
}

// Run the handlers whose condition holds; one that returns true stays.
static void fire(signal_t* signal) {
  handler_t* pending = signal->handlers;
  signal->handlers = NULL;
  while (pending) {
    handler_t* handler = pending;
    pending = handler->next;
    bool stays = true;
    if (met(handler->condition, signal->amd.value, handler->wanted))
      stays = handler->function(signal->amd.value, handler->argument);
    if (stays) {
      handler->next = signal->handlers;
      signal->handlers = handler;
    } else {
      free(handler);
    }
  }
}

static void set(hsa_signal_t handle, hsa_signal_value_t value) {
  signal_t* signal = signal_of(handle);
  lock();
  __atomic_store_n(&signal->amd.value, value, __ATOMIC_SEQ_CST);
  if (signal->queue)
    queue_ring(signal->queue);
  else
    fire(signal);
  unlock();
}

// A packet or copy is done: one less to wait for.
void signal_complete(hsa_signal_t handle, uint64_t started_ns) {
  if (!handle.handle) return;
  signal_t* signal = signal_of(handle);
  signal->amd.start_ts = started_ns;
  signal->amd.end_ts = now_ns();
  set(handle, signal->amd.value - 1);
}

void require_done(hsa_signal_t handle, const char* what) {
  if (handle.handle && signal_of(handle)->amd.value > 0) {
    fprintf(stderr, "stand-in HSA: %s waits for a signal that nothing completes\n", what);
    abort();
  }
}

hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t consumers, const hsa_agent_t* agents,
                               hsa_signal_t* out) {
  signal_t* signal = aligned_alloc(64, (sizeof(signal_t) + 63) / 64 * 64);
  if (!signal) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  memset(signal, 0, sizeof *signal);
  signal->amd.kind = AMD_SIGNAL_KIND_USER;
  signal->amd.value = value;
  out->handle = (uint64_t)signal;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t value, uint32_t consumers, const hsa_agent_t* agents,
                                   uint64_t attributes, hsa_signal_t* out) {
  return hsa_signal_create(value, consumers, agents, out);
}

hsa_status_t hsa_signal_destroy(hsa_signal_t handle) {
  signal_t* signal = signal_of(handle);
  lock();
  while (signal->handlers) {
    handler_t* next = signal->handlers->next;
    free(signal->handlers);
    signal->handlers = next;
  }
  unlock();
  free(signal);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t handle, volatile hsa_signal_value_t** out) {
  *out = (volatile hsa_signal_value_t*)&signal_of(handle)->amd.value;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_signal_async_handler(hsa_signal_t handle, hsa_signal_condition_t condition,
                                          hsa_signal_value_t wanted, hsa_amd_signal_handler function,
                                          void* argument) {
  handler_t* handler = malloc(sizeof *handler);
  if (!handler) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  signal_t* signal = signal_of(handle);
  lock();
  *handler = (handler_t){condition, wanted, function, argument, signal->handlers};
  signal->handlers = handler;
  fire(signal);
  unlock();
  return HSA_STATUS_SUCCESS;
}

hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t handle) {
  return __atomic_load_n(&signal_of(handle)->amd.value, __ATOMIC_SEQ_CST);
}

void hsa_signal_store_relaxed(hsa_signal_t handle, hsa_signal_value_t value) { set(handle, value); }
void hsa_signal_store_screlease(hsa_signal_t handle, hsa_signal_value_t value) { set(handle, value); }
void hsa_signal_silent_store_relaxed(hsa_signal_t handle, hsa_signal_value_t value) {
  __atomic_store_n(&signal_of(handle)->amd.value, value, __ATOMIC_SEQ_CST);
}

void hsa_signal_add_relaxed(hsa_signal_t handle, hsa_signal_value_t value) {
  set(handle, hsa_signal_load_relaxed(handle) + value);
}

void hsa_signal_subtract_relaxed(hsa_signal_t handle, hsa_signal_value_t value) {
  set(handle, hsa_signal_load_relaxed(handle) - value);
}

// The timeout is in ticks of the system's timestamp, which are nanoseconds here.
hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t handle, hsa_signal_condition_t condition,
                                             hsa_signal_value_t wanted, uint64_t timeout,
                                             hsa_wait_state_t expected) {
  const struct timespec pause = {0, 20000};
  uint64_t began = now_ns();
  while (!met(condition, hsa_signal_load_relaxed(handle), wanted) && now_ns() - began < timeout)
    nanosleep(&pause, NULL);
  return hsa_signal_load_relaxed(handle);
}
