/* A libcuda.so.1 for programs that make PTX at run time: it says yes to everything, keeps "device" memory on the
 * host, runs no kernel, and writes every PTX image that it is given to the directory PTX_OUT.
 *
 * public_ptx.py adds a definition that returns CUDA_SUCCESS for each other function of the driver API.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
#define API __attribute__ ((visibility ("default"))) CUresult
#define ALSO(name, of) __typeof__ (of) name __attribute__ ((alias (#of), visibility ("default")))

enum { MAJOR = 75, MINOR = 76 };
static const struct { int attribute, value; } attributes[] = {
  { 1, 1024 }, { 2, 1024 }, { 3, 1024 }, { 4, 64 }, { 5, 2147483647 }, { 6, 65535 }, { 7, 65535 },
  { 8, 49152 }, { 9, 65536 }, { 10, 32 }, { 12, 65536 }, { 13, 1410000 }, { 16, 108 }, { 19, 1 }, { 31, 1 },
  { 39, 2048 }, { 41, 1 }, { 81, 167936 }, { 82, 65536 }, { 83, 1 }, { 89, 1 }, { 95, 1 }, { 97, 166912 },
  { 102, 1 }, { 106, 32 }, { 115, 1 },
};
static int object; /* what all handles point to */

static int
capability (void)
{
  const char * text = getenv ("PTX_ARCH");
  return text != NULL ? atoi (text) : 80;
}

static void
keep (const char * image, size_t size)
{
  static int count;
  char path[4096];
  FILE * file;
  const char * version = size ? memmem (image, size < 4096 ? size : 4096, ".version", 8) : NULL;

  if (version == NULL || getenv ("PTX_OUT") == NULL)
    return;
  snprintf (path, sizeof path, "%s/%d-%05d.ptx", getenv ("PTX_OUT"), capability (), __sync_fetch_and_add (&count, 1));
  file = fopen (path, "w");
  if (file == NULL)
    abort ();
  fwrite (image, 1, strnlen (image, size), file);
  fclose (file);
}

static size_t
length (const char * image)
{
  return (unsigned char) image[0] == 0x7f || (unsigned char) image[0] > 0x7f ? 0 : strlen (image);
}

/* NVIDIA's own libraries ask for private tables, of which there are none here. */
API cuGetExportTable (const void ** table, const void * id) { *table = NULL; return 500; }
API cuDriverGetVersion (int * version) { *version = 12090; return 0; }
API cuDeviceGetCount (int * count) { *count = 1; return 0; }
API cuDeviceGet (int * device, int ordinal) { *device = ordinal; return 0; }
API cuDeviceGetName (char * name, int size, int device) { snprintf (name, size, "stand-in"); return 0; }
API cuDeviceTotalMem_v2 (size_t * bytes, int device) { *bytes = 8ULL << 30; return 0; }
API cuMemGetInfo_v2 (size_t * left, size_t * total) { *left = *total = 8ULL << 30; return 0; }
API cuDeviceGetUuid (char * uuid, int device) { memset (uuid, 7, 16); return 0; }
ALSO (cuDeviceGetUuid_v2, cuDeviceGetUuid);
API cuDeviceGetPCIBusId (char * text, int size, int device) { snprintf (text, size, "0000:01:00.0"); return 0; }
API cuDeviceComputeCapability (int * major, int * minor, int device)
{
  *major = capability () / 10;
  *minor = capability () % 10;
  return 0;
}

API
cuDeviceGetAttribute (int * value, int attribute, int device)
{
  size_t i;

  *value = attribute == MAJOR ? capability () / 10 : attribute == MINOR ? capability () % 10 : 0;
  for (i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i].attribute == attribute)
      *value = attributes[i].value;
  return 0;
}

/* --- handles --------------------------------------------------------------------------------------- */

#define MAKES(name) API name (void ** made) { if (made != NULL) *made = &object; return 0; }
MAKES (cuCtxCreate_v2) MAKES (cuCtxCreate_v3) MAKES (cuCtxCreate_v4) MAKES (cuDevicePrimaryCtxRetain)
MAKES (cuCtxGetCurrent) MAKES (cuCtxPopCurrent_v2) MAKES (cuStreamCreate) MAKES (cuStreamCreateWithPriority)
MAKES (cuEventCreate) MAKES (cuDeviceGetDefaultMemPool) MAKES (cuDeviceGetMemPool) MAKES (cuArrayCreate_v2)
MAKES (cuArray3DCreate_v2) MAKES (cuTexObjectCreate) MAKES (cuSurfObjectCreate) MAKES (cuMemPoolCreate)
API cuCtxGetDevice (int * device) { *device = 0; return 0; }
API cuStreamGetCtx (void * stream, void ** context) { *context = &object; return 0; }
API cuDevicePrimaryCtxGetState (int device, unsigned * flags, int * active) { *flags = 0; *active = 1; return 0; }
API cuGetErrorName (int error, const char ** name) { *name = "CUDA_ERROR"; return 0; }
API cuGetErrorString (int error, const char ** text) { *text = "an error"; return 0; }
API cuEventElapsedTime (float * ms, void * a, void * b) { *ms = 1; return 0; }
ALSO (cuEventElapsedTime_v2, cuEventElapsedTime);

/* --- memory ---------------------------------------------------------------------------------------- */

static CUresult
give (CUdeviceptr * address, size_t size)
{
  *address = (CUdeviceptr) aligned_alloc (512, (size + 512) & ~(size_t) 511);
  memset ((void *) *address, 0, size);
  return 0;
}

API cuMemAlloc_v2 (CUdeviceptr * address, size_t size) { return give (address, size); }
API cuMemAllocAsync (CUdeviceptr * address, size_t size, void * stream) { return give (address, size); }
ALSO (cuMemAllocAsync_ptsz, cuMemAllocAsync);
API cuMemAllocFromPoolAsync (CUdeviceptr * address, size_t size, void * pool, void * s) { return give (address, size); }
API cuMemAllocManaged (CUdeviceptr * address, size_t size, unsigned flags) { return give (address, size); }
API cuMemAllocHost_v2 (CUdeviceptr * address, size_t size) { return give (address, size); }
API cuMemHostAlloc (CUdeviceptr * address, size_t size, unsigned flags) { return give (address, size); }
API cuMemHostGetDevicePointer_v2 (CUdeviceptr * address, void * host, unsigned flags) { *address = (CUdeviceptr) host; return 0; }
API cuMemcpyHtoD_v2 (void * to, const void * from, size_t size) { memcpy (to, from, size); return 0; }
API cuMemcpyHtoDAsync_v2 (void * to, const void * from, size_t size, void * s) { memcpy (to, from, size); return 0; }
ALSO (cuMemcpyDtoH_v2, cuMemcpyHtoD_v2);
ALSO (cuMemcpyDtoD_v2, cuMemcpyHtoD_v2);
ALSO (cuMemcpy, cuMemcpyHtoD_v2);
ALSO (cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2);
ALSO (cuMemcpyDtoDAsync_v2, cuMemcpyHtoDAsync_v2);
ALSO (cuMemcpyAsync, cuMemcpyHtoDAsync_v2);
API cuPointerGetAttribute (void * data, int attribute, CUdeviceptr address)
{
  *(CUdeviceptr *) data = attribute == 2 ? 2 : address; /* 2: the memory is a device's */
  return 0;
}

/* --- modules --------------------------------------------------------------------------------------- */

API cuModuleLoadData (void ** module, const char * image) { keep (image, length (image)); *module = &object; return 0; }
API
cuModuleLoadDataEx (void ** module, const char * image, unsigned count, int * options, void ** values)
{
  return cuModuleLoadData (module, image);
}

API
cuModuleLoad (void ** module, const char * path)
{
  static char image[1 << 24];
  FILE * file = fopen (path, "r");
  size_t size = file != NULL ? fread (image, 1, sizeof image - 1, file) : 0;

  if (file == NULL)
    return 301;
  fclose (file);
  image[size] = 0;
  return cuModuleLoadData (module, image);
}

API
cuLibraryLoadData (void ** library, const char * image, int * a, void ** b, unsigned c, int * d, void ** e, unsigned f)
{
  return cuModuleLoadData (library, image);
}

MAKES (cuLibraryGetModule) MAKES (cuLibraryGetKernel) MAKES (cuKernelGetFunction)
API cuLinkCreate_v2 (unsigned count, int * options, void ** values, void ** state) { *state = &object; return 0; }
API
cuLinkAddData_v2 (void * state, int type, const char * image, size_t size)
{
  keep (image, size);
  return 0;
}

API cuLinkComplete (void * state, const char ** image, size_t * size) { *image = "\177ELF"; *size = 4; return 0; }
MAKES (cuModuleGetFunction)
API
cuModuleGetGlobal_v2 (CUdeviceptr * address, size_t * size, void * module, const char * name)
{
  static char room[1 << 20];

  if (address != NULL)
    *address = (CUdeviceptr) room;
  if (size != NULL)
    *size = sizeof room;
  return 0;
}

ALSO (cuLibraryGetGlobal, cuModuleGetGlobal_v2);
API cuFuncGetAttribute (int * value, int attribute, void * function) { *value = attribute == 0 ? 1024 : 32; return 0; }
ALSO (cuKernelGetAttribute, cuFuncGetAttribute);
API
cuOccupancyMaxPotentialBlockSize (int * blocks, int * threads, void * f, void * g, size_t shared, int limit)
{
  *blocks = 108;
  *threads = 256;
  return 0;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor (int * blocks, void * f, int threads, size_t shared) { *blocks = 4; return 0; }

API
cuGetProcAddress_v2 (const char * name, void ** found, int version, uint64_t flags, int * status)
{
  char text[128];
  const char * suffixes[] = { "_v4", "_v3", "_v2", "" };
  size_t i;

  for (i = 0, *found = NULL; i < 4 && *found == NULL; i++)
  {
    snprintf (text, sizeof text, "%s%s", name, suffixes[i]);
    *found = dlsym (RTLD_DEFAULT, text);
  }
  if (status != NULL)
    *status = *found == NULL;
  return *found == NULL ? 500 : 0;
}

API cuGetProcAddress (const char * name, void ** found, int version, uint64_t flags)
{
  return cuGetProcAddress_v2 (name, found, version, flags, NULL);
}
