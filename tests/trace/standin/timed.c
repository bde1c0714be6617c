/* Launches for the recorder's clock: `timed SCENE [NUMBER]`. `slow` takes 2 ms. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cuda_api.h"

#define CHECK(call) do { int r_ = (call); if (r_) { fprintf (stderr, "%s: %d\n", #call, r_); exit (1); } } while (0)

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry slow()\n{\n\tret;\n}\n.visible .entry empty()\n{\n\tret;\n}\n";
static void * context, * slow, * empty, * module;

static void
launch (void * function, void * stream)
{
  CHECK (cuLaunchKernel (function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void
set_up (void)
{
  CHECK (cuCtxCreate_v2 (&context, 0, 0));
  CHECK (cuModuleLoadData (&module, ptx));
  CHECK (cuModuleGetFunction (&slow, module, "slow"));
  CHECK (cuModuleGetFunction (&empty, module, "empty"));
}

/* Two streams, a graph that is captured and launched twice, a launch that fails, the per-thread stream. */
static void
streams (int count)
{
  void * stream, * graph, * exec;

  CHECK (cuStreamCreate (&stream, 0));
  launch (slow, NULL);
  launch (empty, stream);
  CHECK (cuStreamBeginCapture_v2 (stream, 0));
  launch (slow, stream);
  launch (slow, stream);
  CHECK (cuStreamEndCapture (stream, &graph));
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CHECK (cuGraphLaunch (exec, stream));
  CHECK (cuGraphLaunch (exec, stream));
  if (cuLaunchKernel (slow, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0)
    exit (2);
  CHECK (cuLaunchKernel_ptsz (slow, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  CHECK (cuCtxSynchronize ());
}

/* Many launches; the GPU comes after them. */
static void
many (int count)
{
  while (count-- != 0)
    launch (empty, NULL);
  usleep (20000);
  CHECK (cuCtxSynchronize ());
}

static void *
work (void * count)
{
  CHECK (cuCtxSetCurrent (context));
  for (int i = 0; i < *(int *) count; i++)
    launch (empty, NULL);
  return NULL;
}

/* Threads that have ended before the GPU has: the main thread's wait tells their times. Then the context ends, and
 * another comes at its address. */
static void
threads (int count)
{
  pthread_t thread[4];

  for (int i = 0; i < 4; i++)
    pthread_create (&thread[i], NULL, work, &count);
  for (int i = 0; i < 4; i++)
    pthread_join (thread[i], NULL);
  usleep (20000);
  CHECK (cuCtxSynchronize ());
  CHECK (cuCtxDestroy_v2 (context));
  set_up ();
  launch (slow, NULL);
  usleep (20000);
  CHECK (cuModuleUnload (module)); /* as a program that ends */
}

CUresult cuCtxGetCurrent (void **);
CUresult cuStreamQuery (void *);
CUresult cuPointerGetAttribute (void *, int, CUdeviceptr);

/* What frameworks ask before each launch. */
static void
asks (int count)
{
  void * current;
  unsigned type;

  while (count-- != 0)
  {
    CHECK (cuCtxGetCurrent (&current));
    CHECK (cuStreamQuery (NULL));
    cuPointerGetAttribute (&type, 2, 0);
    launch (empty, NULL);
  }
}

int
main (int argc, char ** argv)
{
  int count = argc > 2 ? atoi (argv[2]) : 0;

  CHECK (cuInit (0));
  set_up ();
  if (strcmp (argv[1], "streams") == 0)
    streams (count);
  else if (strcmp (argv[1], "many") == 0)
    many (count);
  else if (strcmp (argv[1], "asks") == 0)
    asks (count);
  else
    threads (count);
  return 0;
}
