/* Managed memory, registered host memory, pools, virtual memory and memory of another process, on the stand-in. */

static uint64_t managed, managed_end;

API cuMemAllocManaged (CUdeviceptr * address, size_t size, unsigned flags)
{
  *address = managed = allocate (size);
  managed_end = managed + size;
  return OK;
}
API cuMemPrefetchAsync_v2 (CUdeviceptr address, size_t size, uint64_t location, unsigned flags, void * stream)
{
  return OK;
}
API cuMemHostRegister_v2 (void * pointer, size_t size, unsigned flags) { return OK; }
API cuMemHostUnregister (void * pointer) { return OK; }
API cuMemHostGetDevicePointer_v2 (CUdeviceptr * address, void * pointer, unsigned flags)
{
  *address = (CUdeviceptr) pointer;
  return OK;
}
API cuMemAllocAsync (CUdeviceptr * address, size_t size, void * stream) { *address = allocate (size); return OK; }
API cuMemAllocFromPoolAsync (CUdeviceptr * address, size_t size, void * pool, void * stream)
{
  *address = allocate (size);
  return OK;
}
API cuMemFreeAsync (CUdeviceptr address, void * stream) { return cuMemFree_v2 (address); }
API cuMemPoolCreate (void ** pool, const void * properties) { *pool = malloc (8); return OK; }
API cuMemPoolDestroy (void * pool) { free (pool); return OK; }

/* --- virtual memory: a handle is a file, mapped where it is wanted ------------------------------------------ */

#define PAGE 65536

static uint64_t
on_page (uint64_t size)
{
  return (allocate (size + PAGE) + PAGE - 1) & ~(uint64_t) (PAGE - 1);
}

API cuMemAddressReserve (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr wanted, uint64_t flags)
{
  *address = on_page (size);
  return OK;
}
API cuMemAddressFree (CUdeviceptr address, size_t size) { return OK; }
API cuMemCreate (uint64_t * handle, size_t size, const void * properties, uint64_t flags)
{
  *handle = memfd_create ("physical", 0);
  return ftruncate (*handle, size) == 0 ? OK : OUT_OF_MEMORY;
}
API cuMemRelease (uint64_t handle) { return close (handle) == 0 ? OK : INVALID_VALUE; }
/* What crosses over to another process is the file. */
API cuMemExportToShareableHandle (int * file, uint64_t handle, int type, uint64_t flags)
{
  *file = dup (handle);
  return OK;
}
API cuMemImportFromShareableHandle (uint64_t * handle, void * file, int type)
{
  *handle = dup ((int) (uint64_t) file);
  return OK;
}
/* It cannot be touched before access is granted. */
API cuMemMap (CUdeviceptr address, size_t size, size_t offset, uint64_t handle, uint64_t flags)
{
  void * at = mmap ((void *) address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle, offset);

  return at == MAP_FAILED ? INVALID_VALUE : OK;
}
API cuMemSetAccess (CUdeviceptr address, size_t size, const void * descriptors, size_t count)
{
  return mprotect ((void *) address, size, PROT_READ | PROT_WRITE) == 0 ? OK : INVALID_VALUE;
}
API cuMemUnmap (CUdeviceptr address, size_t size)
{
  if (address == 0)
    return INVALID_VALUE;
  mmap ((void *) address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return OK;
}

/* --- memory of another process ------------------------------------------------------------------------------- */

struct ipc_handle { char bytes[64]; };

API cuIpcOpenMemHandle_v2 (CUdeviceptr * address, struct ipc_handle handle, unsigned flags)
{
  *address = allocate (handle.bytes[0] * 1000);
  return OK;
}
API cuIpcCloseMemHandle (CUdeviceptr address) { return cuMemFree_v2 (address); }
