/* Stand-ins for libraries above the driver, and a program that uses them: built once for each of CUBLAS, CURAND, NVRTC, NVJITLINK
 * and PROGRAM.
 *
 * The program's first argument is a scene; machine code is an ELF file without sections, with the PTX inside, which the
 * stand-in driver believes.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_api.h"

#define API __attribute__ ((visibility ("default"))) int

#define PTX \
  ".version 8.0\n.target sm_90\n.address_size 64\n" \
  ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n{\n\tret;\n}\n" \
  ".visible .entry empty()\n{\n\tret;\n}\n"

/* ELF64, no program headers; the text lies where section headers would, of one byte each. */
static size_t
make_elf (char * to, const char * text)
{
  size_t size = 64 + strlen (text);

  if (to == NULL)
    return size;
  memset (to, 0, 64);
  memcpy (to, "\177ELF\2\1\1", 7);
  to[18] = (char) 190; /* EM_CUDA */
  *(uint64_t *) (to + 40) = size; /* of no section headers */
  memcpy (to + 64, text, strlen (text));
  return size;
}

#ifdef CUBLAS

struct handle { void * module, * saxpy, * stream; };

API cublasCreate_v2 (struct handle ** out)
{
  struct handle * handle = calloc (1, sizeof *handle);
  static char elf[4096];

  make_elf (elf, PTX);
  if (cuModuleLoadData (&handle->module, elf) || cuModuleGetFunction (&handle->saxpy, handle->module, "saxpy"))
    return 1;
  *out = handle;
  return 0;
}
API cublasSetStream_v2 (struct handle * handle, void * stream) { handle->stream = stream; return 0; }

/* Like the real one: a scalar may lie on the host or on the device; another of its functions does the work. */
API cublasSaxpy_v2_64 (struct handle * handle, int64_t n, const float * alpha, const float * x, int64_t dx, float * y, int64_t dy)
{
  unsigned count = (unsigned) n;
  void * parameters[] = { &count, (void *) alpha, &x, &y };

  if (n < 0)
    return 7; /* CUBLAS_STATUS_INVALID_VALUE */
  return cuLaunchKernel (handle->saxpy, 1, 1, 1, count, 1, 1, 0, handle->stream, parameters, NULL) ? 13 : 0;
}
API cublasSaxpy_v2 (struct handle * handle, int n, const float * alpha, const float * x, int dx, float * y, int dy)
{
  return cublasSaxpy_v2_64 (handle, n, alpha, x, dx, y, dy);
}

#elif defined CURAND

API curandGenerateNormalDouble (void * generator, double * to, size_t n, double mean, double stddev) { return 0; }
API curandGenerateNormal (void * generator, float * to, size_t n, float mean, float stddev) { return 0; }

#elif defined NVRTC

API nvrtcCreateProgram (char ** program, const char * source, const char * name, int headers, const char * const * texts,
                        const char * const * names)
{
  *program = strdup (source);
  return 0;
}
API nvrtcCompileProgram (char * program, int count, const char * const * options) { return strstr (program, "#error") ? 6 : 0; }
API nvrtcGetPTXSize (char * program, size_t * size) { *size = sizeof PTX; return 0; }
API nvrtcGetPTX (char * program, char * to) { memcpy (to, PTX, sizeof PTX); return 0; }
API nvrtcGetCUBINSize (char * program, size_t * size) { *size = make_elf (NULL, PTX "// of nvrtc"); return 0; }
API nvrtcGetCUBIN (char * program, char * to) { make_elf (to, PTX "// of nvrtc"); return 0; }

#elif defined NVJITLINK

/* The real one exports names with its version, and its header calls them so. */
API __nvJitLinkCreate_13_0 (char ** handle, uint32_t count, const char ** options) { *handle = calloc (1, 4096); return 0; }
API __nvJitLinkAddData_13_0 (char * handle, int type, const void * data, size_t size, const char * name)
{
  strcat (handle, "// ");
  return 0;
}
API __nvJitLinkComplete_13_0 (char * handle) { strcat (handle, PTX); return 0; }
API __nvJitLinkGetLinkedCubinSize_13_0 (char * handle, size_t * size) { *size = make_elf (NULL, handle); return 0; }
API __nvJitLinkGetLinkedCubin_13_0 (char * handle, void * to) { make_elf (to, handle); return 0; }

#else

#define CHECK(call) do { int r_ = (call); if (r_) { fprintf (stderr, "%s: %d\n", #call, r_); exit (1); } } while (0)

static void * context;

static void
launch_from (const void * image)
{
  void * module, * function;

  CHECK (cuModuleLoadData (&module, image));
  CHECK (cuModuleGetFunction (&function, module, "empty"));
  CHECK (cuLaunchKernel (function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

/* A library that is loaded late, with scalars on the host and on the device. */
static void
blas (const char * library, const char * generator)
{
  void * opened = dlopen (library, RTLD_NOW);
  int (* create) (void **) = dlsym (opened, "cublasCreate_v2");
  int (* saxpy) (void *, int, const float *, CUdeviceptr, int, CUdeviceptr, int) = dlsym (opened, "cublasSaxpy_v2");
  void * random = dlopen (generator, RTLD_NOW);
  int (* normal) (void *, float *, size_t, float, float) = dlsym (random, "curandGenerateNormal");
  int (* normal_double) (void *, double *, size_t, double, double) = dlsym (random, "curandGenerateNormalDouble");
  CUdeviceptr x, y;
  float values[4] = { 1, 2, 3, 4 }, alpha = 2;
  void * handle;

  CHECK (create (&handle));
  CHECK (cuMemAlloc_v2 (&x, sizeof values));
  CHECK (cuMemAlloc_v2 (&y, sizeof values));
  CHECK (cuMemcpyHtoD_v2 (x, values, sizeof values));
  CHECK (cuMemcpyHtoD_v2 (y, values, sizeof values));
  CHECK (saxpy (handle, 4, &alpha, x, 1, y, 1));
  if (saxpy (handle, -1, &alpha, x, 1, y, 1) != 7 || saxpy (handle, -1, (const float *) 8, x, 1, y, 1) != 7)
    exit (1);
  CHECK (cuMemcpyDtoH_v2 (values, y, sizeof values));
  CHECK (normal (NULL, NULL, 10, 0.25f, 3));
  CHECK (normal_double (NULL, NULL, 10, -0.1, 1e300));
  exit (values[3] == 12 ? 0 : 1);
}

int nvrtcCreateProgram (), nvrtcCompileProgram (), nvrtcGetCUBINSize (), nvrtcGetCUBIN ();

static void
compile (void)
{
  const char * options[] = { "-arch=sm_90", "-DX=\"a b\"" }, * headers[] = { "#define Y 1\n" }, * names[] = { "y.h" };
  char * program, * bad, cubin[4096];
  size_t size;

  CHECK (nvrtcCreateProgram (&program, "__global__ void empty () { }", "empty.cu", 1, headers, names));
  CHECK (nvrtcCompileProgram (program, 2, options));
  CHECK (nvrtcGetCUBINSize (program, &size));
  CHECK (nvrtcGetCUBIN (program, cubin));
  CHECK (nvrtcCreateProgram (&bad, "#error", NULL, 0, NULL, NULL));
  if (nvrtcCompileProgram (bad, 0, NULL) != 6)
    exit (1);
  launch_from (cubin);
}

int __nvJitLinkCreate_13_0 (), __nvJitLinkAddData_13_0 (), __nvJitLinkComplete_13_0 (), __nvJitLinkGetLinkedCubin_13_0 ();

static void
link_texts (int count)
{
  const char * options[] = { "-arch=sm_90" };
  char * handle, cubin[4096];

  CHECK (__nvJitLinkCreate_13_0 (&handle, 1, options));
  for (int i = 0; i < count; i++)
    CHECK (__nvJitLinkAddData_13_0 (handle, 2, PTX, sizeof PTX, "one.ptx"));
  CHECK (__nvJitLinkComplete_13_0 (handle));
  CHECK (__nvJitLinkGetLinkedCubin_13_0 (handle, cubin));
  launch_from (cubin);
}

int
main (int argc, char ** argv)
{
  CHECK (cuInit (0));
  CHECK (cuCtxCreate_v2 (&context, 0, 0));
  if (strcmp (argv[1], "blas") == 0)
    blas (argv[2], argv[3]);
  compile ();
  link_texts (1);
  link_texts (2);
  return 0;
}

#endif
