/* The few declarations of cuda.h that the test programs need. */
#include <stddef.h>
#include <stdint.h>
typedef int CUresult;
typedef uint64_t CUdeviceptr;
struct config { unsigned gx, gy, gz, bx, by, bz, shared; void * stream; void * attributes; unsigned count; };
CUresult cuInit (unsigned);
CUresult cuDeviceGet (int *, int);
CUresult cuDeviceGetCount (int *);
CUresult cuDeviceGetName (char *, int, int);
CUresult cuCtxCreate_v2 (void **, unsigned, int);
CUresult cuCtxSetCurrent (void *);
CUresult cuCtxSynchronize (void);
CUresult cuModuleLoad (void **, const char *);
CUresult cuModuleLoadData (void **, const void *);
CUresult cuModuleUnload (void *);
CUresult cuModuleGetFunction (void **, void *, const char *);
CUresult cuModuleGetGlobal_v2 (CUdeviceptr *, size_t *, void *, const char *);
CUresult cuLibraryLoadData (void **, const void *, int *, void **, unsigned, int *, void **, unsigned);
CUresult cuLibraryGetKernel (void **, void *, const char *);
CUresult cuMemAlloc_v2 (CUdeviceptr *, size_t);
CUresult cuMemFree_v2 (CUdeviceptr);
CUresult cuMemcpyHtoD_v2 (CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2 (void *, CUdeviceptr, size_t);
CUresult cuMemcpyDtoD_v2 (CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpy (CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2 (CUdeviceptr, const void *, size_t, void *);
CUresult cuMemcpyDtoHAsync_v2 (void *, CUdeviceptr, size_t, void *);
CUresult cuMemsetD8_v2 (CUdeviceptr, unsigned char, size_t);
CUresult cuMemsetD32_v2 (CUdeviceptr, unsigned, size_t);
CUresult cuMemsetD2D8_v2 (CUdeviceptr, size_t, unsigned char, size_t, size_t);
CUresult cuStreamCreate (void **, unsigned);
CUresult cuStreamSynchronize (void *);
CUresult cuStreamBeginCapture_v2 (void *, int);
CUresult cuStreamEndCapture (void *, void **);
CUresult cuLaunchKernel (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
CUresult cuLaunchKernelEx (const struct config *, void *, void **, void **);
CUresult cuStandInSecret (int, int);
