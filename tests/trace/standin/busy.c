/* A program that uses the driver from many threads until it gets a line: `busy KIND THREADS PROGRESS-FILE [PAUSE]`.
 *
 * Each thread counts its rounds in PROGRESS-FILE (8 bytes a thread), and pauses for PAUSE microseconds after each.
 * KIND: `steady` threads go round for ever, `churning` ones start short-lived threads, `blocked` ones are inside a call
 * that returns when there is a file PROGRESS-FILE.go, `capturing` ones capture a stream into a graph all the time,
 * of `beside` ones the first does so, and the others launch kernels, which no capture forbids,
 * `logging` ones launch kernels and graphs, and write into PROGRESS-FILE which calls have returned: see `struct log`.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cuda_api.h"

CUresult cuStandInBlock (const char * path);

#define CHECK(call) do { int r_ = (call); if (r_) { fprintf (stderr, "%s: %d\n", #call, r_); exit (1); } } while (0)

static const char ptx[] =
  ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 counter = 100;\n"
  ".visible .entry count(.param .u64 p)\n{\n\tret;\n}\n";
static void * context, * module, * function;
static volatile unsigned long * progress;
static int pause_us;
static char go[1000];

static void
round_of_calls (void)
{
  CUdeviceptr buffer;
  void * parameters[] = { &buffer };
  int word;

  CHECK (cuMemAlloc_v2 (&buffer, 1024));
  CHECK (cuLaunchKernel (function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
  CHECK (cuCtxSynchronize ());
  CHECK (cuMemcpyDtoH_v2 (&word, buffer, 4));
  if (word != 32)
  {
    fprintf (stderr, "wrong: %d\n", word);
    exit (1);
  }
  CHECK (cuMemFree_v2 (buffer));
  if (pause_us)
    usleep (pause_us);
}

static void *
steady (void * data)
{
  CHECK (cuCtxSetCurrent (context));
  for (;;) { round_of_calls (); progress[(long) data]++; }
}
static void *
blocked (void * data)
{
  CHECK (cuCtxSetCurrent (context));
  for (;;) { CHECK (cuStandInBlock (go)); progress[(long) data]++; usleep (1000); }
}

static void *
capturing (void * data)
{
  void * stream, * graph;
  CUdeviceptr buffer;
  void * parameters[] = { &buffer };

  CHECK (cuCtxSetCurrent (context));
  CHECK (cuMemAlloc_v2 (&buffer, 1024));
  CHECK (cuStreamCreate (&stream, 0));
  for (;;)
  {
    CHECK (cuStreamBeginCapture_v2 (stream, 0));
    usleep (pause_us);
    CHECK (cuLaunchKernel (function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    usleep (pause_us);
    CHECK (cuStreamEndCapture (stream, &graph));
    progress[(long) data]++;
  }
}

static void *
beside (void * data)
{
  void * stream;
  CUdeviceptr buffer;
  void * parameters[] = { &buffer };

  if (data == NULL)
    return capturing (data);
  CHECK (cuCtxSetCurrent (context));
  CHECK (cuMemAlloc_v2 (&buffer, 1024));
  CHECK (cuStreamCreate (&stream, 1)); /* not one that waits for the legacy stream */
  for (;;)
  {
    CHECK (cuLaunchKernel (function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    progress[(long) data]++;
    usleep (pause_us);
  }
}

/* At LOGS in PROGRESS-FILE, of each thread: who it is, and how many of its calls have returned by now. */
#define LOGS 2048
struct log { unsigned long thread, allocations, launches, graph_launches, frees; };
static pthread_mutex_t capturing_one = PTHREAD_MUTEX_INITIALIZER;

static void *
logging (void * data)
{
  volatile struct log * log = (volatile struct log *) ((char *) progress + LOGS) + (long) data;
  void * stream, * graph, * executable;
  CUdeviceptr kept, buffer;
  void * to_kept[] = { &kept }, * to_buffer[] = { &buffer };

  CHECK (cuCtxSetCurrent (context));
  CHECK (cuMemAlloc_v2 (&kept, 1024));
  CHECK (cuStreamCreate (&stream, 0));
  pthread_mutex_lock (&capturing_one); /* the stand-in knows one capture at a time */
  CHECK (cuStreamBeginCapture_v2 (stream, 2));
  CHECK (cuLaunchKernel (function, 1, 1, 1, 32, 1, 1, 0, stream, to_kept, NULL));
  CHECK (cuStreamEndCapture (stream, &graph));
  CHECK (cuGraphInstantiateWithFlags (&executable, graph, 0));
  pthread_mutex_unlock (&capturing_one);
  log->thread = gettid ();
  for (;;)
  {
    CHECK (cuMemAlloc_v2 (&buffer, 1024));
    log->allocations++;
    CHECK (cuLaunchKernel (function, 1, 1, 1, 32, 1, 1, 0, stream, to_buffer, NULL));
    log->launches++;
    CHECK (cuGraphLaunch (executable, stream));
    log->graph_launches++;
    CHECK (cuMemFree_v2 (buffer));
    log->frees++;
    progress[(long) data]++;
    if (pause_us)
      usleep (pause_us);
  }
}

static void *
brief (void * data)
{
  CHECK (cuCtxSetCurrent (context));
  for (int i = 0; i < 20; i++) round_of_calls ();
  return NULL;
}
static void *
churning (void * data)
{
  for (;;)
  {
    pthread_t thread;
    pthread_create (&thread, NULL, brief, NULL);
    pthread_join (thread, NULL);
    progress[(long) data]++;
  }
}

int
main (int argc, char ** argv)
{
  long threads = atol (argv[2]);
  int fd = open (argv[3], O_RDWR | O_CREAT, 0644), device;
  void * (* run) (void *);
  pthread_t thread;

  ftruncate (fd, 4096);
  progress = mmap (NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (argc > 4) pause_us = atoi (argv[4]);
  CHECK (cuInit (0));
  CHECK (cuDeviceGet (&device, 0));
  CHECK (cuCtxCreate_v2 (&context, 0, device));
  CHECK (cuModuleLoadData (&module, ptx));
  CHECK (cuModuleGetFunction (&function, module, "count"));
  snprintf (go, sizeof go, "%s.go", argv[3]);
  run = !strcmp (argv[1], "churning") ? churning : !strcmp (argv[1], "blocked") ? blocked
      : !strcmp (argv[1], "capturing") ? capturing : !strcmp (argv[1], "beside") ? beside : !strcmp (argv[1], "logging") ? logging : steady;
  for (long i = 0; i < threads; i++)
    pthread_create (&thread, NULL, run, (void *) i);
  puts ("ready");
  fflush (stdout);
  getchar ();
  return 0; /* while the threads go on */
}
