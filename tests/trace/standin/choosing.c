/* A program of steps, of which a recording may choose: `choosing STEPS [fills]`. What it prints is what memory holds at the end.
 *
 * A step: cuMemcpyHtoD to x, saxpy (y += 2 x), triple (numbers), on even steps triple again in another shape,
 * cuMemcpyDtoD of half of the numbers, saxpy (z += 2 y), cuMemcpyDtoH of z. cuProfilerStart and cuProfilerStop are called
 * before step 2 and after step 3. With `fills` nothing comes from the host: x and the numbers are filled. Each step is a range of NVTX's.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cuda_api.h"

#include "nvtx.h"

CUresult cuProfilerStart (void);
CUresult cuProfilerStop (void);

#include "kernels.h"

#define N 256
static float x[N], z[N];
static unsigned numbers[N];
static int fills;
static void * saxpy, * triple;
static CUdeviceptr dx, dy, dz, dn;

static void
run_saxpy (CUdeviceptr from, CUdeviceptr to)
{
  unsigned n = N;
  float a = 2;
  void * parameters[] = { &n, &a, &from, &to };

  CHECK (cuLaunchKernel (saxpy, 2, 1, 1, N / 2, 1, 1, 0, NULL, parameters, NULL));
}

static void
run_triple (unsigned blocks)
{
  unsigned n = N;
  void * parameters[] = { &dn, &n };

  CHECK (cuLaunchKernel (triple, blocks, 1, 1, N / blocks, 1, 1, 0, NULL, parameters, NULL));
}

static void
step (int number)
{
  NVTX (push_a, "step");
  for (int i = 0; i < N; i++)
    x[i] = (float) (i % 7 + number);
  if (fills)
    CHECK (cuMemsetD32_v2 (dx, 0x3f800000 + number, N));
  else
    CHECK (cuMemcpyHtoD_v2 (dx, x, sizeof x));
  run_saxpy (dx, dy);
  run_triple (2);
  if (number % 2 == 0)
    run_triple (4);
  CHECK (cuMemcpyDtoD_v2 (dn, dn + sizeof numbers / 2, sizeof numbers / 2));
  run_saxpy (dy, dz);
  CHECK (cuMemcpyDtoH_v2 (z, dz, sizeof z));
  NVTX (pop);
}

int
main (int argc, char ** argv)
{
  int device, steps = atoi (argv[1]);
  void * context, * module;
  double sum = 0;

  CHECK (cuInit (0));
  CHECK (cuDeviceGet (&device, 0));
  CHECK (cuCtxCreate_v2 (&context, 0, device));
  CHECK (cuModuleLoadData (&module, ptx));
  CHECK (cuModuleGetFunction (&saxpy, module, "saxpy"));
  CHECK (cuModuleGetFunction (&triple, module, "triple"));
  CHECK (cuMemAlloc_v2 (&dx, sizeof x));
  CHECK (cuMemAlloc_v2 (&dy, sizeof x));
  CHECK (cuMemAlloc_v2 (&dz, sizeof x));
  CHECK (cuMemAlloc_v2 (&dn, sizeof numbers));
  for (int i = 0; i < N; i++)
    numbers[i] = i;
  fills = argc > 2;
  if (fills)
    CHECK (cuMemsetD32_v2 (dn, 5, N));
  else
    CHECK (cuMemcpyHtoD_v2 (dn, numbers, sizeof numbers));
  CHECK (cuMemsetD32_v2 (dy, 0, N));
  for (int number = 0; number < steps; number++)
  {
    if (number == 2)
      CHECK (cuProfilerStart ());
    step (number);
    if (number == 3)
      CHECK (cuProfilerStop ());
  }
  CHECK (cuMemcpyDtoH_v2 (numbers, dn, sizeof numbers));
  for (int i = 0; i < N; i++)
    sum += z[i] + numbers[i] % 1000;
  printf ("%.0f\n", sum);
  return 0;
}
