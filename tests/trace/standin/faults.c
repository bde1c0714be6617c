/* What programs do that recorders stumble over: `faults SCENE DRIVER`. The driver is loaded at run time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda_api.h"

extern char ** environ;

static const char ptx[] =
  ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 counter = 100;\n"
  ".visible .entry count(.param .u64 p)\n{\n\tret;\n}\n.visible .entry crash()\n{\n\tret;\n}\n";

static char * program, * path;
static void * driver, * module;

static void *
entry (const char * name)
{
  void * found = dlsym (driver, name);

  if (found == NULL)
    exit (60);
  return found;
}

#define CALL(name, types, ...) do { if (((CUresult (*) types) entry (name)) (__VA_ARGS__)) exit (61); } while (0)

static void *
new_context (void)
{
  void * context;

  CALL ("cuCtxCreate_v2", (void **, unsigned, int), &context, 0, 0);
  return context;
}

static void
load (void)
{
  driver = dlopen (path, RTLD_NOW);
  if (driver == NULL)
    exit (62);
  CALL ("cuInit", (unsigned), 0);
  new_context ();
  CALL ("cuModuleLoadData", (void **, const void *), &module, ptx);
}

static CUdeviceptr
allocate (size_t size)
{
  CUdeviceptr address;

  CALL ("cuMemAlloc_v2", (CUdeviceptr *, size_t), &address, size);
  return address;
}

static void
launch (const char * name, CUdeviceptr address)
{
  void * function, * parameters[] = { &address };

  CALL ("cuModuleGetFunction", (void **, void *, const char *), &function, module, name);
  CALL ("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
        void **), function, 1, 1, 1, 7, 1, 1, 0, NULL, parameters, NULL);
}

static void
use (void)
{
  load ();
  launch ("count", allocate (512));
}

static void
reloaded (void)
{
  for (int i = 0; i < 3; i++)
  {
    use ();
    if (dlclose (driver) != 0)
      exit (63);
  }
}

static sigjmp_buf back;

static void
survive (int number)
{
  siglongjmp (back, 1);
}

/* A handler for crashes that goes on, of one outside the driver: after it, calls are as before. */
static void
handled (void)
{
  struct sigaction action = { 0 };

  action.sa_handler = survive;
  sigaction (SIGSEGV, &action, NULL);
  load ();
  if (sigsetjmp (back, 1) == 0)
    *(volatile int *) 8 = 1;
  launch ("count", allocate (512));
}

static void
report (int number)
{
  static const char text[] = "handler\n";

  write (1, text, sizeof text - 1);
  _exit (9);
}

/* A crash handler that reports and ends the program, of a crash inside the driver. */
static void
reported (void)
{
  struct sigaction action = { 0 };
  stack_t stack = { malloc (65536), 0, 65536 };

  sigaltstack (&stack, NULL);
  action.sa_handler = report;
  action.sa_flags = SA_ONSTACK;
  sigaction (SIGSEGV, &action, NULL);
  load ();
  launch ("crash", 0);
}

static void
many_allocations (void)
{
  enum { COUNT = 10000 };
  static CUdeviceptr made[COUNT];

  load ();
  for (int i = 0; i < COUNT; i++)
    made[i] = allocate (512 + i % 7 * 512);
  for (int i = 0; i < COUNT; i += 1000)
    launch ("count", made[i]);
  for (int i = 0; i < COUNT; i++)
    CALL ("cuMemFree_v2", (CUdeviceptr), made[i]);
}

static void
contexts (void)
{
  void * first = NULL, * other;
  CUdeviceptr here, there;

  load ();
  CALL ("cuCtxGetCurrent", (void **), &first);
  launch ("count", here = allocate (512));
  other = new_context ();
  CALL ("cuModuleLoadData", (void **, const void *), &module, ptx);
  launch ("count", there = allocate (512));
  CALL ("cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t), there, 0x33, 512);
  CALL ("cuCtxEnablePeerAccess", (void *, unsigned), first, 0);
  CALL ("cuMemcpyPeer", (CUdeviceptr, void *, CUdeviceptr, void *, size_t), there, other, here, first, 512);
  CALL ("cuCtxDestroy_v2", (void *), other);
}

static void *
forking (void * data)
{
  pid_t child = fork ();

  if (child == 0)
    _exit (fork () == 0 ? (use (), _exit (0), 0) : (wait (NULL), 0)); /* a child's child uses the driver */
  waitpid (child, NULL, 0);
  return NULL;
}

/* By fork in a thread, vfork, posix_spawn; and a daemon that is left behind. */
static void
children (void)
{
  char * arguments[] = { program, "use", path, NULL };
  pthread_t thread;
  pid_t child;

  use ();
  pthread_create (&thread, NULL, forking, NULL);
  pthread_join (thread, NULL);
  if ((child = vfork ()) == 0)
  {
    execv (program, arguments);
    _exit (1);
  }
  waitpid (child, NULL, 0);
  if (posix_spawn (&child, program, NULL, NULL, arguments, environ) != 0)
    exit (64);
  waitpid (child, NULL, 0);
  if ((child = fork ()) == 0)
  {
    setsid ();
    if (fork () == 0)
    {
      arguments[1] = "daemon";
      execv (program, arguments);
    }
    _exit (0);
  }
  waitpid (child, NULL, 0);
}

static void
daemon_of_ours (void)
{
  usleep (300000); /* its parent has ended by now */
  use ();
}

int
main (int argc, char ** argv)
{
  static const struct { const char * name; void (* run) (void); } scenes[] = {
    { "use", use }, { "reloaded", reloaded }, { "handled", handled }, { "reported", reported },
    { "many_allocations", many_allocations }, { "contexts", contexts }, { "children", children },
    { "daemon", daemon_of_ours },
  };

  program = argv[0];
  path = argv[2];
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
    if (!strcmp (argv[1], scenes[i].name))
    {
      scenes[i].run ();
      return 0;
    }
  return 65;
}
