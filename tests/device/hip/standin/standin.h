// A stand-in for AMD's libhsa-runtime64.so.1 (ROCr), below which there is no driver and no GPU: agents and
// memory pools are made up, memory is the process's own, and a dispatch packet is handed to a service in
// Python (service.py), which runs it on the emulator. It implements the 76 entries that libamdhip64 5.2
// imports, as the "HSA Runtime Programmer's Reference Manual" 1.2 and hsa_ext_amd.h describe them.
//
// A packet is executed to its end when its queue's doorbell is rung, on the thread that rings. So a signal that
// a packet or copy completes is always complete by the time somebody could wait for it.

#pragma once
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ext_image.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <hsa/amd_hsa_queue.h>
#include <hsa/amd_hsa_signal.h>

// What a symbol of a loaded code object is: filled in by the service.
typedef struct {
  uint32_t kernel;            // 1: a kernel, 0: a variable
  uint32_t size;              // of a variable, in bytes
  uint64_t address;           // of the variable, or of the kernel's descriptor
  uint32_t kernarg_bytes, group_bytes, private_bytes;
  uint32_t dynamic_stack;
} symbol_t;

// The service: every function returns 0 for success.
typedef struct {
  int (*load)(const void* code_object, uint64_t size, uint64_t* handle);
  int (*unload)(uint64_t handle);
  int (*symbol)(uint64_t handle, const char* name, symbol_t* found);
  int (*dispatch)(const hsa_kernel_dispatch_packet_t* packet);
} service_t;

extern service_t service;
extern char target_id[64];    // gfx90a:sramecc+:xnack-
extern char target_name[16];  // gfx90a
extern uint32_t wave_size;

static const hsa_agent_t CPU_AGENT = {0x1001}, GPU_AGENT = {0x2002};
static const hsa_isa_t GPU_ISA = {0x3003};

// One lock over everything: entries are called from several threads.
void lock(void);
void unlock(void);
uint64_t now_ns(void);

typedef struct queue_s queue_t;
typedef struct handler_s handler_t;

typedef struct {
  amd_signal_t amd;  // what a handle points to, and what HIP reads
  queue_t* queue;    // of a doorbell
  handler_t* handlers;
} signal_t;

static inline signal_t* signal_of(hsa_signal_t handle) { return (signal_t*)handle.handle; }
void signal_complete(hsa_signal_t handle, uint64_t started_ns);
void require_done(hsa_signal_t handle, const char* what);
void queue_ring(queue_t* queue);

// The pools of hsa_amd_agent_iterate_memory_pools.
enum { POOL_CPU_FINE = 0x11, POOL_CPU_COARSE, POOL_CPU_KERNARG, POOL_GPU = 0x21, POOL_GPU_LDS };
#define POOL_BYTES (16ull << 30)
#define LDS_BYTES 65536
