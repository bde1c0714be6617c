/* A driver-API program in many small scenes: `app SCENE [argument]`. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cuda_api.h"

#define CHECK(call) do { int r_ = (call); if (r_) { fprintf (stderr, "%s: %d\n", #call, r_); exit (1); } } while (0)

static const char ptx[] =
  ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 counter = 100;\n"
  ".visible .entry empty()\n{\n\tret;\n}\n"
  ".visible .entry empty2(.param .u64 a, .param .u32 b)\n{\n\tret;\n}\n"
  ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n{\n\tret;\n}\n"
  ".visible .entry count(.param .u64 p)\n{\n\tret;\n}\n"
  ".visible .entry scatter(.param .u64 p)\n{\n\tret;\n}\n"
  ".visible .entry paint(.param .u64 surface, .param .u64 texture, .param .u64 to)\n{\n"
  "\t.reg .b32 %x, %at, %v, %w;\n\t.reg .b64 %s, %t, %p, %o;\n"
  "\tld.param.u64 %s, [surface];\n\tld.param.u64 %t, [texture];\n\tld.param.u64 %p, [to];\n"
  "\tmov.u32 %x, %tid.x;\n\tshl.b32 %at, %x, 2;\n"
  "\tsuld.b.2d.b32.trap {%v}, [%s, {%at, 0}];\n"
  "\t.reg .b32 %w1, %w2, %w3;\n\ttex.1d.v4.u32.s32 {%w, %w1, %w2, %w3}, [%t, {%x}];\n"
  "\tadd.u32 %v, %v, %w;\n\tsust.b.2d.b32.trap [%s, {%at, 1}], {%v};\n"
  "\tmul.wide.u32 %o, %x, 4;\n\tadd.s64 %p, %p, %o;\n\tst.global.u32 [%p], %v;\n\tret;\n}\n"
  ".visible .entry paint_indirect(.param .u64 words)\n{\n\tret;\n}\n"
  ".visible .entry crash()\n{\n\tret;\n}\n"
  ".visible .entry hang()\n{\n\tret;\n}\n";

static void * context, * module;

static void
setup (void)
{
  int device;

  CHECK (cuInit (0));
  CHECK (cuDeviceGet (&device, 0));
  CHECK (cuCtxCreate_v2 (&context, 0, device));
  CHECK (cuModuleLoadData (&module, ptx));
}

static void *
kernel (const char * name)
{
  void * function;

  CHECK (cuModuleGetFunction (&function, module, name));
  return function;
}

static void
run (void * function, unsigned threads, void ** parameters)
{
  CHECK (cuLaunchKernel (function, 1, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL));
}

#define N 1000
static float x[N], y[N];

static void
make_vectors (CUdeviceptr * dx, CUdeviceptr * dy)
{
  for (int i = 0; i < N; i++)
    x[i] = i, y[i] = 1;
  CHECK (cuMemAlloc_v2 (dx, sizeof x));
  CHECK (cuMemAlloc_v2 (dy, sizeof y));
  CHECK (cuMemcpyHtoD_v2 (*dx, x, sizeof x));
  CHECK (cuMemcpyHtoD_v2 (*dy, y, sizeof y));
}

static void
saxpy (void)
{
  CUdeviceptr dx, dy;
  unsigned n = N;
  float a = 2;
  void * parameters[] = { &n, &a, &dx, &dy };

  setup ();
  make_vectors (&dx, &dy);
  run (kernel ("saxpy"), N, parameters);
  CHECK (cuMemcpyDtoH_v2 (y, dy, sizeof y));
  CHECK (cuMemFree_v2 (dx));
  CHECK (cuMemFree_v2 (dy));
  if (y[10] != 21)
    exit (1);
}

/* Its kernel was given out by a function of a private table. */
static void
private_kernel (void)
{
  CUdeviceptr dx, dy;
  unsigned n = N;
  float a = 2;
  void * parameters[] = { &n, &a, &dx, &dy };

  setup ();
  make_vectors (&dx, &dy);
  run (zluda_stand_in_kernel (module, "saxpy"), N, parameters);
}

#define LARGE (300000 * sizeof (float))

/* Launches that reach large memory only, with what makes such a row end in between: the host's writes and copies, another
 * stream, memory that comes and goes. `written`: another process writes a word before each launch. */
static void
row (int launches, int written)
{
  static float from[300000], to[300000];
  static const char plain[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n{\n\tret;\n}\n";
  CUdeviceptr dx, dy, other;
  void * saxpy, * own, * stream;

  setup ();
  CHECK (cuModuleLoadData (&own, plain));
  CHECK (cuModuleGetFunction (&saxpy, own, "saxpy"));
  CHECK (cuStreamCreate (&stream, 0));
  for (int i = 0; i < 300000; i++)
    from[i] = i % 100, to[i] = 1;
  CHECK (cuMemAlloc_v2 (&dx, LARGE));
  CHECK (cuMemAlloc_v2 (&dy, LARGE));
  CHECK (cuMemcpyHtoD_v2 (dx, from, LARGE));
  CHECK (cuMemcpyHtoD_v2 (dy, to, LARGE));
  for (int i = 0; i < launches; i++)
  {
    unsigned n = 50000 * (1 + i % 3);
    float a = i % 7;
    void * parameters[] = { &n, &a, &dx, &dy };

    if (written)
      ((float *) dy)[200000] = i;
    CHECK (cuLaunchKernel (saxpy, n / 500, 1, 1, 500, 1, 1, 0, i % 20 < 15 ? NULL : stream, parameters, NULL));
    if (i % 20 == 5)
      CHECK (cuMemcpyDtoH_v2 (to, dy, LARGE));
    if (i % 20 == 8)
      CHECK (cuMemcpyHtoD_v2 (dy, from, 100000));
    if (i % 20 == 11)
    {
      CHECK (cuMemAlloc_v2 (&other, LARGE));
      CHECK (cuMemcpyHtoD_v2 (other, from, LARGE));
      CHECK (cuMemFree_v2 (dx));
      dx = other;
    }
  }
  CHECK (cuCtxSynchronize ());
}

static void
extra_form (void)
{
  CUdeviceptr dx, dy;
  struct { unsigned n; float a; CUdeviceptr x, y; } packed;
  size_t size = sizeof packed;
  void * extra[] = { (void *) 1, &packed, (void *) 2, &size, NULL };

  setup ();
  make_vectors (&dx, &dy);
  packed.n = N, packed.a = 3, packed.x = dx, packed.y = dy;
  CHECK (cuLaunchKernel (kernel ("saxpy"), 4, 1, 1, 250, 1, 1, 0, NULL, NULL, extra));
  CHECK (cuMemcpyDtoH_v2 (y, dy, sizeof y));
}

static void
launch_ex (void)
{
  struct { unsigned id, pad; unsigned value[16]; } attribute = { 4, 0, { 2, 1, 1 } };
  struct config config = { 2, 1, 1, 500, 1, 1, 16, NULL, &attribute, 1 };
  CUdeviceptr dx, dy;
  unsigned n = N;
  float a = 2;
  void * parameters[] = { &n, &a, &dx, &dy }, * library, * function;

  setup ();
  CHECK (cuLibraryLoadData (&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
  CHECK (cuLibraryGetKernel (&function, library, "saxpy"));
  make_vectors (&dx, &dy);
  CHECK (cuStreamCreate (&config.stream, 0));
  CHECK (cuLaunchKernelEx (&config, function, parameters, NULL));
  CHECK (cuStreamSynchronize (config.stream));
}

/* A module's variable is changed by a kernel; nested pointers; memory nobody wrote; copies and fills. */
static void
memory (void)
{
  CUdeviceptr target, table, big, filled;
  CUdeviceptr addresses[4] = { 0 };
  void * parameters[] = { &target }, * scatter_parameters[] = { &table };

  setup ();
  CHECK (cuMemAlloc_v2 (&target, 4096));
  run (kernel ("count"), 7, parameters);
  CHECK (cuMemAlloc_v2 (&table, sizeof addresses));
  CHECK (cuMemAlloc_v2 (&big, 200000));
  CHECK (cuMemAlloc_v2 (&filled, 1000));
  CHECK (cuMemsetD32_v2 (filled, 0x01020304, 250));
  CHECK (cuMemsetD8_v2 (big, 0xab, 200000));
  CHECK (cuMemcpyDtoD_v2 (big + 100000, filled, 1000));
  addresses[0] = target;
  addresses[1] = big + 70000;
  CHECK (cuMemcpyHtoD_v2 (table, addresses, sizeof addresses));
  run (kernel ("scatter"), 4, scatter_parameters);
  CHECK (cuMemcpy ((CUdeviceptr) x, filled, 1000));
  CHECK (cuStreamWriteValue32_v2 (NULL, big + 512, 0x01010101, 0));
  run (kernel ("scatter"), 4, scatter_parameters);
}

static CUdeviceptr numbers, painted;
static uint64_t surface, linear, mipmapped_texture;
static void * picture, * mipmapped, * line;

/* A picture of 40 x 30 floats that kernels may write, a mip chain, a line; and objects over them. */
static void
make_arrays (void)
{
  struct array_descriptor_3d of_picture = { 40, 30, 0, 0x20, 1, 2 }, of_mipmapped = { 16, 8, 0, 1, 4, 0 };
  struct array_descriptor of_line = { 64, 0, 0x10, 1 };
  struct resource resource = { 0 };
  struct texture texture = { { 1, 1, 1 } };

  for (int i = 0; i < N; i++)
    x[i] = i;
  CHECK (cuArray3DCreate_v2 (&picture, &of_picture));
  CHECK (cuMipmappedArrayCreate (&mipmapped, &of_mipmapped, 3));
  CHECK (cuArrayCreate_v2 (&line, &of_line));
  CHECK (cuMemAlloc_v2 (&numbers, 400));
  CHECK (cuMemAlloc_v2 (&painted, 400));
  CHECK (cuMemcpyHtoD_v2 (numbers, x, 400));
  resource.handle = (uint64_t) picture;
  CHECK (cuSurfObjectCreate (&surface, &resource));
  resource.type = 1, resource.handle = (uint64_t) mipmapped;
  CHECK (cuTexObjectCreate (&mipmapped_texture, &resource, &texture, NULL));
  resource.type = 2, resource.handle = numbers, resource.format = 3, resource.channels = 1, resource.size = 400;
  CHECK (cuTexObjectCreate (&linear, &resource, &texture, NULL));
}

/* Boxes in and out of arrays, arrays that kernels reach, and their ends. */
static void
arrays (void)
{
  struct copy_2d in = { { 4, 1, 1, x, 0, NULL, 100 }, { 8, 2, 3, NULL, 0, NULL, 0 }, 60, 5 };
  struct copy_2d out = { { 0, 1, 3, NULL, 0, NULL, 0 }, { 0, 0, 1, y, 0, NULL, 96 }, 80, 6 };
  struct copy_2d pitched = { { 0, 0, 1, x, 0, NULL, 32 }, { 4, 1, 2, NULL, 0, NULL, 64 }, 20, 3 };
  struct copy_3d level = { { 0, 0, 0, 0, 1, x, 0, NULL, NULL, 32, 4 }, { 0 }, 32, 4, 1 };
  void * parameters[] = { &surface, &linear, &painted }, * indirect[1];
  uint64_t words[4];
  CUdeviceptr table;

  setup ();
  make_arrays ();
  in.to.array = out.from.array = picture;
  CHECK (cuMemcpy2D_v2 (&in));                        /* call 13 */
  CHECK (cuMipmappedArrayGetLevel (&level.to.array, mipmapped, 1));
  level.to.type = 3;
  CHECK (cuMemcpy3D_v2 (&level));                     /* 15 */
  CHECK (cuMemcpyHtoA_v2 (line, 16, x, 32));          /* 16 */
  run (kernel ("paint"), 40, parameters);             /* 18 */
  pitched.to.device = painted;
  CHECK (cuMemcpy2D_v2 (&pitched));                   /* 19 */
  CHECK (cuMemsetD2D8_v2 (painted + 8, 64, 7, 12, 2)); /* 20 */
  CHECK (cuMemcpy2D_v2 (&out));                       /* 21 */
  CHECK (cuMemcpyAtoD_v2 (painted, line, 16, 32));    /* 22 */
  CHECK (cuMemcpyAtoH_v2 (y, line, 16, 32));          /* 23 */
  CHECK (cuMemAlloc_v2 (&table, sizeof words));
  words[0] = surface, words[1] = linear, words[2] = painted, words[3] = mipmapped_texture;
  CHECK (cuMemcpyHtoD_v2 (table, words, sizeof words));
  CHECK (cuMemcpyHtoD_v2 (numbers, x + 7, 400));
  indirect[0] = &table;
  run (kernel ("paint_indirect"), 30, indirect);      /* 28 */
  CHECK (cuSurfObjectDestroy (surface));
  CHECK (cuTexObjectDestroy (linear));
  CHECK (cuArrayDestroy (picture));                   /* 31 */
  CHECK (cuMipmappedArrayDestroy (mipmapped));
  CHECK (cuArrayDestroy (line));
}

/* What is not the rule: a format without channels, unified memory, an array that is not destroyed, a copy that only
 * goes into a graph. */
static void
odd_arrays (void)
{
  struct array_descriptor_3d compressed = { 16, 16, 0, 0x91, 4, 0 }, mip = { 8, 4, 0, 0x20, 1, 0 };
  struct array_descriptor of_line = { 40, 0, 1, 1 };
  struct copy_3d copy = { { 0, 0, 0, 0, 4 }, { 0 }, 32, 4, 1 };
  void * odd, * whole, * stream, * graph, * lines[2];
  CUdeviceptr memory;

  setup ();
  for (int i = 0; i < N; i++)
    x[i] = i;
  CHECK (cuArray3DCreate_v2 (&odd, &compressed));      /* call 4 */
  CHECK (cuMipmappedArrayCreate (&whole, &mip, 3));
  CHECK (cuMipmappedArrayGetLevel (&copy.to.array, whole, 0));
  CHECK (cuMemAlloc_v2 (&memory, 512));
  if (cuArrayDestroy (whole) == 0)                     /* 8: fails, so that it is still there */
    exit (1);
  copy.from.device = (CUdeviceptr) x, copy.from.pitch = 40, copy.to.type = 3;
  CHECK (cuMemcpy3D_v2 (&copy));                       /* 9: from the host, by unified addressing */
  copy.from = copy.to, copy.from.z = 0;
  copy.to = (struct copy_end_3d) { 8, 1, 0, 0, 4, NULL, memory, NULL, NULL, 48, 5 };
  CHECK (cuMemcpy3D_v2 (&copy));                       /* 10: to memory */
  CHECK (cuStreamCreate (&stream, 0));
  CHECK (cuStreamBeginCapture_v2 (stream, 0));
  CHECK (cuMemcpy3DAsync_v2 (&copy, stream));          /* 13 */
  CHECK (cuStreamEndCapture (stream, &graph));
  CHECK (cuArrayCreate_v2 (&lines[0], &of_line));
  CHECK (cuArrayCreate_v2 (&lines[1], &of_line));
  CHECK (cuMemcpyHtoA_v2 (lines[0], 0, x, 40));        /* 17 */
  CHECK (cuMemcpyAtoA_v2 (lines[1], 8, lines[0], 4, 20)); /* 18 */
  CHECK (cuMemcpyDtoA_v2 (lines[1], 30, memory + 56, 10)); /* 19 */
}

/* --- many boxes ---------------------------------------------------------------------------------------- */

#define PLACES 6
static struct place { void * array; CUdeviceptr memory; size_t width, height, depth, texel; } places[PLACES];
static char lines[1 << 20];
static uint64_t drawn;

static size_t
draw (size_t limit)
{
  drawn = drawn * 6364136223846793005ULL + 1442695040888963407ULL;
  return (drawn >> 33) % limit;
}

static struct copy_end_3d
end_at (const struct place * place, size_t x, size_t y, size_t z)
{
  struct copy_end_3d end = { x * place->texel, y, z, 0, place->array ? 3 : 2, NULL, place->memory, place->array };

  end.pitch = place->width * place->texel, end.height = place->height;
  return end;
}

static void
make_places (void)
{
  struct array_descriptor_3d volume = { 70, 50, 9, 0x20, 4, 0 }, layered = { 30, 20, 5, 1, 4, 1 };
  struct array_descriptor_3d mip = { 64, 33, 0, 0x10, 2, 0 };
  void * whole;

  CHECK (cuArray3DCreate_v2 (&places[0].array, &volume));
  CHECK (cuArray3DCreate_v2 (&places[1].array, &layered));
  CHECK (cuMipmappedArrayCreate (&whole, &mip, 4));
  CHECK (cuMipmappedArrayGetLevel (&places[2].array, whole, 0));
  CHECK (cuMipmappedArrayGetLevel (&places[3].array, whole, 2));
  CHECK (cuMemAlloc_v2 (&places[4].memory, 48 * 40 * 6 * 16));
  CHECK (cuMemAlloc_v2 (&places[5].memory, 400 * 30 * 4));
  static const size_t sizes[PLACES][4] = { { 70, 50, 9, 16 }, { 30, 20, 5, 4 }, { 64, 33, 1, 4 }, { 16, 8, 1, 4 },
                                           { 48, 40, 6, 16 }, { 400, 30, 1, 4 } };
  for (int i = 0; i < PLACES; i++)
    places[i].width = sizes[i][0], places[i].height = sizes[i][1], places[i].depth = sizes[i][2],
    places[i].texel = sizes[i][3];
}

/* A box that both places have room for, anywhere in each; or, `from` being NULL, out of the host's lines. */
static void
move_box (const struct place * from, const struct place * to)
{
  size_t texel = to->texel, width, height, depth;
  struct copy_3d copy;

  if (from == NULL || from->texel == texel)
  {
    const struct place * least = from == NULL ? to : from;
#define LEAST(side) (to->side < least->side ? to->side : least->side)
    width = 1 + draw (LEAST (width)), height = 1 + draw (LEAST (height)), depth = 1 + draw (LEAST (depth));
    if (from == NULL)
    {
      struct copy_end_3d host = { 4, 1, 0, 0, 1, lines + draw (1000), 0, NULL, NULL, width * texel + 20, height + 3 };
      copy.from = host;
    }
    else
      copy.from = end_at (from, draw (from->width - width + 1), draw (from->height - height + 1),
                          draw (from->depth - depth + 1));
    copy.to = end_at (to, draw (to->width - width + 1), draw (to->height - height + 1), draw (to->depth - depth + 1));
    copy.width = width * texel, copy.height = height, copy.depth = depth;
    CHECK (cuMemcpy3D_v2 (&copy));
  }
}

/* Random boxes between arrays, memory and the host; after some of them, all of a place is delivered. */
static void
boxes (long seed)
{
  setup ();
  make_places ();
  drawn = seed;
  for (size_t i = 0; i < sizeof lines; i++)
    lines[i] = draw (256);
  for (int round = 0; round < 60; round++)
  {
    const struct place * to = &places[draw (PLACES)], * other = &places[draw (PLACES)];
    struct copy_3d out = { { 0 }, { 0, 0, 0, 0, 1, y } };
    static char delivered[1 << 20];

    move_box (round % 3 == 0 ? NULL : other, to);
    if (round % 10 == 9)
      CHECK (cuMemsetD2D8_v2 (places[4].memory + 8 + draw (1000), 700, round, 500, 20));
    if (round % 4 != 3)
      continue;
    out.from = end_at (to, 0, 0, 0);
    out.to.host = delivered, out.to.pitch = to->width * to->texel + 3, out.to.height = to->height + 1;
    out.width = to->width * to->texel, out.height = to->height, out.depth = to->depth;
    CHECK (cuMemcpy3D_v2 (&out));
  }
}

static void *
worker (void * argument)
{
  CUdeviceptr buffer;
  void * parameters[] = { &buffer }, * function;

  CHECK (cuCtxSetCurrent (context));
  function = kernel ("count");
  for (int i = 0; i < 200; i++)
  {
    CHECK (cuMemAlloc_v2 (&buffer, 1024));
    run (function, 32, parameters);
    CHECK (cuMemFree_v2 (buffer));
  }
  return NULL;
}

static void
threads (void)
{
  pthread_t thread[6];

  setup ();
  for (int i = 0; i < 6; i++)
    pthread_create (&thread[i], NULL, worker, NULL);
  for (int i = 0; i < 6; i++)
    pthread_join (thread[i], NULL);
}

extern volatile int standin_waiting;

static void *
waiting (void * argument)
{
  CUdeviceptr buffer;
  void * parameters[] = { &buffer };

  CHECK (cuCtxSetCurrent (context));
  CHECK (cuMemAlloc_v2 (&buffer, 4600)); /* gets what the other thread frees meanwhile */
  usleep (20000);
  standin_waiting = 0;
  run (kernel ("count"), 9, parameters);
  return NULL;
}

/* An allocation that is entered before the call that frees its memory. */
static void
reuse (void)
{
  pthread_t thread;
  CUdeviceptr buffer;
  void * parameters[] = { &buffer }, * function;

  setup ();
  function = kernel ("count");
  CHECK (cuMemAlloc_v2 (&buffer, 4608));
  pthread_create (&thread, NULL, waiting, NULL);
  while (!standin_waiting)
    usleep (1000);
  run (function, 5, parameters);
  CHECK (cuMemFree_v2 (buffer));
  pthread_join (thread, NULL);
}

static pthread_barrier_t together;
static void * first;

static void *
first_launch (void * argument)
{
  unsigned n = 4;
  float a = 2;
  CUdeviceptr buffer;
  /* What follows the four pointers must not be read: it points nowhere. */
  void * parameters[12] = { &n, &a, &buffer, &buffer, (void *) 8, (void *) 8, (void *) 8, (void *) 8 };

  CHECK (cuCtxSetCurrent (context));
  CHECK (cuMemAlloc_v2 (&buffer, 1024));
  for (int round = 0; round < 30; round++)
  {
    if (pthread_barrier_wait (&together) == PTHREAD_BARRIER_SERIAL_THREAD)
    {
      CHECK (cuModuleLoadData (&module, ptx));
      first = kernel ("saxpy");
    }
    pthread_barrier_wait (&together);
    run (first, 4, parameters);
  }
  return NULL;
}

/* Threads that launch a kernel for the first time, all at once. */
static void
first_launches (void)
{
  pthread_t thread[6];

  setup ();
  pthread_barrier_init (&together, NULL, 6);
  for (int i = 0; i < 6; i++)
    pthread_create (&thread[i], NULL, first_launch, NULL);
  for (int i = 0; i < 6; i++)
    pthread_join (thread[i], NULL);
}

static double
nanoseconds (const struct timespec * start, const struct timespec * end)
{
  return (end->tv_sec - start->tv_sec) * 1e9 + end->tv_nsec - start->tv_nsec;
}

/* `count` empty launches, timed. */
static void
loop (long count)
{
  CUdeviceptr buffer;
  unsigned number = 5;
  void * parameters[] = { &buffer, &number }, * function;
  struct timespec start, end, cpu_start, cpu_end;

  setup ();
  CHECK (cuMemAlloc_v2 (&buffer, 1024));
  function = kernel ("empty2");
  clock_gettime (CLOCK_MONOTONIC, &start);
  clock_gettime (CLOCK_THREAD_CPUTIME_ID, &cpu_start);
  for (long i = 0; i < count; i++)
    run (function, 32, parameters);
  clock_gettime (CLOCK_MONOTONIC, &end);
  clock_gettime (CLOCK_THREAD_CPUTIME_ID, &cpu_end);
  printf ("%.1f ns a launch, %.1f of them at work\n", nanoseconds (&start, &end) / count,
          nanoseconds (&cpu_start, &cpu_end) / count);
}

static void
capture (void)
{
  void * stream, * graph, * function;

  setup ();
  CHECK (cuStreamCreate (&stream, 0));
  function = kernel ("empty");
  CHECK (cuStreamBeginCapture_v2 (stream, 0));
  CHECK (cuLaunchKernel (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CHECK (cuStreamEndCapture (stream, &graph));
  run (function, 1, NULL);
}

static void
unload (void)
{
  CUdeviceptr target;
  void * parameters[] = { &target };

  setup ();
  for (int i = 0; i < 3; i++)
  {
    CHECK (cuMemAlloc_v2 (&target, 512));
    run (kernel ("count"), 1, parameters);
    CHECK (cuModuleUnload (module));
    CHECK (cuMemFree_v2 (target));
    CHECK (cuModuleLoadData (&module, ptx));
  }
}

/* One fat binary with one plain PTX entry, as `nvcc -no-compress` makes it. */
static char *
make_fatbin (void)
{
  size_t stored = (sizeof ptx + 7) & ~7UL;
  char * fatbin = calloc (1, 16 + 64 + stored), * entry = fatbin + 16;

  *(uint32_t *) fatbin = 0xba55ed50;
  *(uint16_t *) (fatbin + 4) = 1;
  *(uint16_t *) (fatbin + 6) = 16;
  *(uint64_t *) (fatbin + 8) = 64 + stored;
  *(uint16_t *) entry = 1;
  *(uint16_t *) (entry + 2) = 0x0101;
  *(uint32_t *) (entry + 4) = 64;
  *(uint64_t *) (entry + 8) = stored;
  *(uint16_t *) (entry + 26) = 8;
  *(uint32_t *) (entry + 28) = 90;
  *(uint64_t *) (entry + 40) = 0x11;
  memcpy (entry + 64, ptx, sizeof ptx);
  return fatbin;
}

/* What the runtime's registration hands over: a wrapper, of version 1 or (relocatable device code) 2. */
static void
wrapper (int version)
{
  static uint64_t nothing[2] = { 0x0010000100000000 + 0xba55ed50, 0 };
  char * fatbin = make_fatbin (), * list[] = { fatbin, NULL };
  struct { uint32_t magic, version; void * data; void * list; } wrapper = { 0x466243b1, version, fatbin, NULL };
  void * library, * function;

  if (version == 2)
    wrapper.data = nothing, wrapper.list = list;
  setup ();
  CHECK (cuLibraryLoadData (&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
  CHECK (cuLibraryGetKernel (&function, library, "empty"));
  run (function, 1, NULL);
}

static void
from_file (const char * path)
{
  FILE * file = fopen (path, "w");

  fputs (ptx, file);
  fclose (file);
  setup ();
  CHECK (cuModuleLoad (&module, path));
  run (kernel ("empty"), 1, NULL);
}

static void
failures (void)
{
  CUdeviceptr pointer = 0;
  void * function;

  setup ();
  cuMemAlloc_v2 (&pointer, 1UL << 40);
  cuModuleGetFunction (&function, module, "no_such_kernel");
  cuModuleLoadData (&function, "not an image");
  cuMemFree_v2 (12345);
  cuLaunchKernel (kernel ("empty"), 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  cuStandInSecret (1, 2);
}

static void
said_last (void)
{
  puts ("last");
}

static void *
outlive_main (void * data)
{
  usleep (200000);
  saxpy ();
  return NULL;
}

static void
main_leaves (void)
{
  pthread_t thread;

  atexit (said_last);
  pthread_create (&thread, NULL, outlive_main, NULL);
  pthread_exit (NULL);
}

/* libcuda comes by dlopen, in a program that is not linked with it (this one is, but the scene runs in `late`). */
int
main (int argc, char ** argv)
{
  const char * scene = argc > 1 ? argv[1] : "";

  if (!strcmp (scene, "saxpy")) saxpy ();
  else if (!strcmp (scene, "row")) row (atoi (argv[2]), argc > 3);
  else if (!strcmp (scene, "extra")) extra_form ();
  else if (!strcmp (scene, "launch_ex")) launch_ex ();
  else if (!strcmp (scene, "memory")) memory ();
  else if (!strcmp (scene, "arrays")) arrays ();
  else if (!strcmp (scene, "odd_arrays")) odd_arrays ();
  else if (!strcmp (scene, "boxes")) boxes (atol (argv[2]));
  else if (!strcmp (scene, "threads")) threads ();
  else if (!strcmp (scene, "first_launches")) first_launches ();
  else if (!strcmp (scene, "loop")) loop (atol (argv[2]));
  else if (!strcmp (scene, "capture")) capture ();
  else if (!strcmp (scene, "private_kernel")) private_kernel ();
  else if (!strcmp (scene, "unload")) unload ();
  else if (!strcmp (scene, "failures")) failures ();
  else if (!strcmp (scene, "wrapper")) wrapper (atoi (argv[2]));
  else if (!strcmp (scene, "file")) from_file (argv[2]);
  else if (!strcmp (scene, "stuck")) { setup (); run (kernel ("hang"), 1, NULL); }
  else if (!strcmp (scene, "nothing")) return 5;
  else if (!strcmp (scene, "status")) { setup (); return 7; }
  else if (!strcmp (scene, "_exit")) { saxpy (); _exit (3); }
  else if (!strcmp (scene, "crash")) { setup (); run (kernel ("crash"), 1, NULL); }
  else if (!strcmp (scene, "crash_in_allocation")) { CUdeviceptr p; setup (); cuMemAlloc_v2 (&p, 0xdead); }
  else if (!strcmp (scene, "main_leaves")) main_leaves ();
  else if (!strcmp (scene, "reuse")) reuse ();
  else if (!strcmp (scene, "kill")) { saxpy (); kill (getpid (), SIGKILL); }
  else if (!strcmp (scene, "abort")) { saxpy (); abort (); }
  else if (!strcmp (scene, "wait")) { saxpy (); puts ("ready"); fflush (stdout); pause (); }
  else if (!strcmp (scene, "child"))
  {
    int status;
    pid_t pid = fork ();

    if (pid == 0)
      execl (argv[0], argv[0], "saxpy", NULL);
    waitpid (pid, &status, 0);
    saxpy ();
    return WEXITSTATUS (status);
  }
  else if (!strcmp (scene, "fork"))
  {
    int status;
    pid_t pid = fork ();

    if (pid == 0)
    {
      saxpy ();
      return 4;
    }
    waitpid (pid, &status, 0);
    saxpy ();
    return WEXITSTATUS (status);
  }
  else { fprintf (stderr, "no scene %s\n", scene); return 64; }
  return 0;
}
