/* Every way to hold memory, each reached by launches of `saxpy` (y += 2 x over 64 KiB): `memory_kinds SCENE`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_api.h"

#define CHECK(call) do { int r_ = (call); if (r_) { fprintf (stderr, "%s: %d\n", #call, r_); exit (1); } } while (0)
#define N 16384
#define BYTES (4 * N)

struct ipc_handle { char bytes[64]; };
CUresult cuMemAllocManaged (CUdeviceptr *, size_t, unsigned);
CUresult cuMemPrefetchAsync_v2 (CUdeviceptr, size_t, uint64_t, unsigned, void *);
CUresult cuMemHostAlloc (void **, size_t, unsigned);
CUresult cuMemFreeHost (void *);
CUresult cuMemHostRegister_v2 (void *, size_t, unsigned);
CUresult cuMemHostUnregister (void *);
CUresult cuMemHostGetDevicePointer_v2 (CUdeviceptr *, void *, unsigned);
CUresult cuMemAllocAsync (CUdeviceptr *, size_t, void *);
CUresult cuMemAllocFromPoolAsync (CUdeviceptr *, size_t, void *, void *);
CUresult cuMemFreeAsync (CUdeviceptr, void *);
CUresult cuMemPoolCreate (void **, const void *);
CUresult cuMemPoolDestroy (void *);
CUresult cuMemAddressReserve (CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t);
CUresult cuMemAddressFree (CUdeviceptr, size_t);
CUresult cuMemCreate (uint64_t *, size_t, const void *, uint64_t);
CUresult cuMemExportToShareableHandle (int *, uint64_t, int, uint64_t);
CUresult cuMemImportFromShareableHandle (uint64_t *, void *, int);
CUresult cuMemRelease (uint64_t);
CUresult cuMemMap (CUdeviceptr, size_t, size_t, uint64_t, uint64_t);
CUresult cuMemSetAccess (CUdeviceptr, size_t, const void *, size_t);
CUresult cuMemUnmap (CUdeviceptr, size_t);
CUresult cuIpcOpenMemHandle_v2 (CUdeviceptr *, struct ipc_handle, unsigned);
CUresult cuIpcCloseMemHandle (CUdeviceptr);

static const char ptx[] =
  ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 counter = 100;\n"
  ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n{\n"
  "\t.reg .pred %q;\n\t.reg .b32 %i, %t, %n;\n\t.reg .f32 %a, %u, %v;\n\t.reg .b64 %x, %y, %o;\n"
  "\tld.param.u32 %n, [n];\n\tld.param.f32 %a, [a];\n\tld.param.u64 %x, [x];\n\tld.param.u64 %y, [y];\n"
  "\tmov.u32 %i, %ctaid.x;\n\tmov.u32 %t, %ntid.x;\n\tmul.lo.u32 %i, %i, %t;\n\tmov.u32 %t, %tid.x;\n"
  "\tadd.u32 %i, %i, %t;\n\tsetp.ge.u32 %q, %i, %n;\n\t@%q ret;\n\tmul.wide.u32 %o, %i, 4;\n"
  "\tadd.s64 %x, %x, %o;\n\tadd.s64 %y, %y, %o;\n\tld.global.f32 %u, [%x];\n\tld.global.f32 %v, [%y];\n"
  "\tmul.rn.f32 %u, %u, %a;\n\tadd.rn.f32 %v, %v, %u;\n\tst.global.f32 [%y], %v;\n\tret;\n}\n";

static void * function;
static float numbers[2 * N], zeros[2 * N];
static CUdeviceptr x, y;

static void
launch (CUdeviceptr from, CUdeviceptr to, unsigned n)
{
  float a = 2;
  void * parameters[] = { &n, &a, &from, &to };

  CHECK (cuLaunchKernel (function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
}

static void
expect (CUdeviceptr at, size_t index, float wanted)
{
  float got[2 * N];

  CHECK (cuMemcpyDtoH_v2 (got, at, 4 * (index + 1)));
  if (got[index] != wanted)
  {
    fprintf (stderr, "%zu is %g, not %g\n", index, got[index], wanted);
    exit (1);
  }
}

static void
setup (void)
{
  void * context, * module;
  int device;

  CHECK (cuInit (0));
  CHECK (cuDeviceGet (&device, 0));
  CHECK (cuCtxCreate_v2 (&context, 0, device));
  CHECK (cuModuleLoadData (&module, ptx));
  CHECK (cuModuleGetFunction (&function, module, "saxpy"));
  CHECK (cuMemAlloc_v2 (&x, BYTES));
  CHECK (cuMemAlloc_v2 (&y, BYTES));
  for (int i = 0; i < 2 * N; i++)
    numbers[i] = i % 1000;
  CHECK (cuMemcpyHtoD_v2 (x, numbers, BYTES));
  CHECK (cuMemcpyHtoD_v2 (y, zeros, BYTES));
}

/* The host writes what a kernel reads, and what a kernel wrote, without a call. */
static void
written_by_host (CUdeviceptr shared)
{
  float * host = (float *) shared;

  for (int i = 0; i < N; i++)
    host[i] = 1;
  launch (shared, y, N);
  host[7] = 5;                            /* right after a launch, no call between */
  launch (shared, y, N);
  launch (x, shared, N);
  host[3] += 1;
  launch (shared, y, N);
  expect (y, 7, 2 + 10 + 2 * (5 + 14));
  expect (y, 3, 2 + 2 + 2 * (1 + 6 + 1));
}

static void
managed (void)
{
  CUdeviceptr memory;

  CHECK (cuMemAllocManaged (&memory, BYTES, 1));
  CHECK (cuMemPrefetchAsync_v2 (memory, BYTES, 0, 0, NULL));
  written_by_host (memory);
  CHECK (cuMemcpyHtoD_v2 (memory, zeros, BYTES));
  ((float *) memory)[9] = 3;
  launch (memory, y, N);
  expect (memory, 9, 3);
  CHECK (cuMemFree_v2 (memory));
}

static void
host (void)
{
  static float registered[N + 4096];
  void * pinned;
  CUdeviceptr seen;

  CHECK (cuMemHostAlloc (&pinned, BYTES, 2));
  CHECK (cuMemHostGetDevicePointer_v2 (&seen, pinned, 0));
  written_by_host (seen);
  CHECK (cuMemFreeHost (pinned));
  CHECK (cuMemcpyHtoD_v2 (y, zeros, BYTES));
  CHECK (cuMemHostRegister_v2 (registered + 5, BYTES, 2));
  written_by_host ((CUdeviceptr) (registered + 5));
  CHECK (cuMemcpyHtoD_v2 (x, registered + 5, BYTES));
  CHECK (cuMemcpy ((CUdeviceptr) (registered + 5), y, BYTES));
  launch ((CUdeviceptr) (registered + 5), y, N);
  CHECK (cuMemHostUnregister (registered + 5));
}

static void
pools (void)
{
  CUdeviceptr first, second;
  void * stream, * pool;

  CHECK (cuStreamCreate (&stream, 0));
  CHECK (cuMemPoolCreate (&pool, zeros));
  CHECK (cuMemAllocAsync (&first, BYTES, stream));
  CHECK (cuMemAllocFromPoolAsync (&second, BYTES, pool, stream));
  CHECK (cuMemcpyHtoDAsync_v2 (first, numbers, BYTES, stream));
  CHECK (cuMemsetD32_v2 (second, 0, N));
  launch (first, second, N);
  expect (second, 10, 20);
  CHECK (cuMemFreeAsync (first, stream));
  CHECK (cuMemAllocAsync (&first, BYTES, stream)); /* the same address, another's */
  CHECK (cuMemsetD32_v2 (first, 0, N));
  launch (second, first, N);
  expect (first, 10, 40);
  CHECK (cuMemFreeAsync (first, stream));
  CHECK (cuMemFree_v2 (second));
  CHECK (cuMemPoolDestroy (pool));
}

/* Two pieces side by side, one apart; copies, a fill and a kernel over the seam; a piece that moves. */
static void
mapped (void)
{
  CUdeviceptr range, far;
  uint64_t handle[3];
  unsigned access[3] = { 1, 0, 3 };

  CHECK (cuMemAddressReserve (&range, 4 * BYTES, 0, 0, 0));
  for (int i = 0; i < 3; i++)
  {
    CHECK (cuMemCreate (&handle[i], BYTES, zeros, 0));
    CHECK (cuMemMap (range + (i == 2 ? 3 : i) * BYTES, BYTES, 0, handle[i], 0));
  }
  launch (x, y, N);                       /* reaches none of it */
  CHECK (cuMemSetAccess (range, 2 * BYTES, access, 1));
  CHECK (cuMemSetAccess (range + 3 * BYTES, BYTES, access, 1));
  CHECK (cuMemcpyHtoD_v2 (range, numbers, 2 * BYTES));
  CHECK (cuMemsetD32_v2 (range + BYTES - 400, 0, 200));
  launch (x, range + BYTES / 2, N);       /* half in the first piece, half in the second */
  CHECK (cuMemcpyDtoD_v2 (range + 3 * BYTES, range + BYTES / 2, BYTES));
  launch (range + 3 * BYTES, y, N);
  expect (range, N + 200, numbers[N + 200] + 2 * numbers[N / 2 + 200]);
  if (cuMemUnmap (0, BYTES) == 0)
    exit (1);
  CHECK (cuMemUnmap (range, 2 * BYTES));
  CHECK (cuMemUnmap (range + 3 * BYTES, BYTES));
  CHECK (cuMemRelease (handle[0]));
  CHECK (cuMemRelease (handle[1]));
  CHECK (cuMemAddressReserve (&far, BYTES, 0, 0, 0));
  CHECK (cuMemMap (far, BYTES, 0, handle[2], 0));
  CHECK (cuMemSetAccess (far, BYTES, access, 1));
  launch (far, y, N);
  CHECK (cuMemUnmap (far, BYTES));
  CHECK (cuMemRelease (handle[2]));
  CHECK (cuMemAddressFree (range, 4 * BYTES));
}

/* One piece of memory at two addresses. */
static void
twice (void)
{
  CUdeviceptr range;
  uint64_t handle;
  unsigned access[3] = { 1, 0, 3 };

  CHECK (cuMemAddressReserve (&range, 4 * BYTES, 0, 0, 0));
  CHECK (cuMemCreate (&handle, BYTES, zeros, 0));
  CHECK (cuMemMap (range, BYTES, 0, handle, 0));
  CHECK (cuMemMap (range + 2 * BYTES, BYTES, 0, handle, 0));
  CHECK (cuMemSetAccess (range, BYTES, access, 1));
  CHECK (cuMemSetAccess (range + 2 * BYTES, BYTES, access, 1));
  launch (x, range, N);
  launch (range + 2 * BYTES, y, N);
  expect (y, 10, 40);
}

/* Physical memory that another process has, too: made here, and made there. */
static void
shared (void)
{
  CUdeviceptr range;
  uint64_t made, given;
  int file;
  unsigned access[3] = { 1, 0, 3 };

  CHECK (cuMemAddressReserve (&range, 2 * BYTES, 0, 0, 0));
  CHECK (cuMemCreate (&made, BYTES, zeros, 0));
  CHECK (cuMemMap (range, BYTES, 0, made, 0));
  CHECK (cuMemExportToShareableHandle (&file, made, 1, 0));
  CHECK (cuMemCreate (&given, BYTES, zeros, 0));
  CHECK (cuMemExportToShareableHandle (&file, given, 1, 0));
  CHECK (cuMemImportFromShareableHandle (&given, (void *) (uint64_t) file, 1));
  CHECK (cuMemMap (range + BYTES, BYTES, 0, given, 0));
  CHECK (cuMemSetAccess (range, 2 * BYTES, access, 1));
  launch (range, y, N);
  launch (range + BYTES, y, N);
  ((float *) range)[4] = 8;               /* by the other process */
  ((float *) (range + BYTES))[4] = 9;
  launch (range, y, N);
  launch (range + BYTES, y, N);
  expect (y, 4, 34);
}

static void
opened (void)
{
  struct ipc_handle handle = { { 66 } };
  CUdeviceptr other;

  CHECK (cuIpcOpenMemHandle_v2 (&other, handle, 1));
  ((float *) other)[4] = 8;               /* by the other process */
  launch (other, y, N);
  ((float *) other)[4] = 9;
  launch (other, y, N);
  expect (y, 4, 34);
  CHECK (cuIpcCloseMemHandle (other));
}

/* Five MiB of which kernels write little: pages that did not change are not moved. `tail` is no whole page. */
static void
large (void)
{
  const size_t size = 5 << 20, tail = 1000;
  char * bytes = calloc (1, size + tail);
  CUdeviceptr memory;

  CHECK (cuMemAlloc_v2 (&memory, size + tail));
  for (size_t i = 0; i < size + tail; i += 4)
    *(float *) (bytes + i) = i % 1009;
  CHECK (cuMemcpyHtoD_v2 (memory, bytes, size + tail));
  launch (x, memory + (1 << 20), N);      /* writes one page */
  launch (memory + (1 << 20), y, N);      /* none of the memory */
  launch (x, memory + size, tail / 4);    /* the last piece */
  CHECK (cuMemcpyHtoD_v2 (memory + 12, bytes, 8)); /* part of a page */
  launch (memory, y, N);
  *(float *) (memory + 200000) = 77;      /* as another context might */
  launch (x, memory + (2 << 20), N);
}

/* A launch that changes more pages than there is room for beside the kernel that finds them; the last is a piece. */
static void
whole (void)
{
  const size_t size = (9 << 20) + 1000;
  float * values = malloc (size);
  CUdeviceptr from, to;

  for (size_t i = 0; i < size / 4; i++)
    values[i] = 1 + i % 1009;
  CHECK (cuMemAlloc_v2 (&from, size));
  CHECK (cuMemAlloc_v2 (&to, size));
  CHECK (cuMemcpyHtoD_v2 (from, values, size));
  CHECK (cuMemcpyHtoD_v2 (to, values, size));
  launch (from, to, size / 4);
}

int
main (int argc, char ** argv)
{
  static const struct { const char * name; void (* run) (void); } scenes[] = {
    { "managed", managed }, { "host", host }, { "pools", pools }, { "mapped", mapped }, { "twice", twice },
    { "shared", shared }, { "opened", opened }, { "large", large },
    { "whole", whole },
  };

  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
    if (argc > 1 && !strcmp (argv[1], scenes[i].name))
    {
      setup ();
      scenes[i].run ();
      return 0;
    }
  return 64;
}
