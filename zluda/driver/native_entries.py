"""The entries of libcuda that need no more than their arguments passed on: what each writes, and where."""

from __future__ import annotations

import ctypes
from typing import Any

INT, UNSIGNED, SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
HANDLE, ADDRESS, FLOAT = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_float

# Entry → the types it writes, in front of its arguments (the common convention) …
PLAIN: dict[str, tuple[Any, ...]] = {
    "cuDriverGetVersion": (INT,),
    "cuDeviceTotalMem": (SIZE,),
    "cuDeviceGetAttribute": (INT,),
    "cuDevicePrimaryCtxRetain": (HANDLE,),
    "cuDevicePrimaryCtxRelease": (),
    "cuDevicePrimaryCtxReset": (),
    "cuDevicePrimaryCtxSetFlags": (),
    "cuCtxCreate": (HANDLE,),
    "cuCtxDestroy": (),
    "cuCtxSetCurrent": (),
    "cuCtxGetCurrent": (HANDLE,),
    "cuCtxPushCurrent": (),
    "cuCtxPopCurrent": (HANDLE,),
    "cuCtxGetDevice": (INT,),
    "cuCtxGetFlags": (UNSIGNED,),
    "cuCtxSynchronize": (),
    "cuCtxGetLimit": (SIZE,),
    "cuCtxSetLimit": (),
    "cuCtxGetCacheConfig": (INT,),
    "cuCtxSetCacheConfig": (),
    "cuCtxGetStreamPriorityRange": (INT, INT),
    "cuModuleGetFunction": (HANDLE,),
    "cuModuleGetGlobal": (ADDRESS, SIZE),
    "cuLibraryGetModule": (HANDLE,),
    "cuLibraryGetGlobal": (ADDRESS, SIZE),
    "cuKernelGetFunction": (HANDLE,),
    "cuFuncGetAttribute": (INT,),
    "cuFuncSetAttribute": (),
    "cuFuncSetCacheConfig": (),
    "cuFuncLoad": (),
    "cuMemGetInfo": (SIZE, SIZE),
    "cuMemAllocHost": (HANDLE,),
    "cuMemHostAlloc": (HANDLE,),
    "cuMemFreeHost": (),
    "cuMemcpyDtoD": (),
    "cuMemcpyDtoDAsync": (),
    "cuMemcpy": (),
    "cuMemcpyAsync": (),
    "cuMemsetD8": (),
    "cuMemsetD16": (),
    "cuMemsetD32": (),
    "cuMemsetD8Async": (),
    "cuMemsetD16Async": (),
    "cuMemsetD32Async": (),
    "cuStreamCreateWithPriority": (HANDLE,),
    "cuStreamDestroy": (),
    "cuStreamSynchronize": (),
    "cuEventDestroy": (),
    "cuEventRecord": (),
    "cuEventRecordWithFlags": (),
    "cuEventSynchronize": (),
}
# … and, for those that write after their arguments, the types there.
TRAILING: dict[str, tuple[Any, ...]] = {
    "cuDevicePrimaryCtxGetState": (UNSIGNED, INT),
    "cuCtxGetApiVersion": (UNSIGNED,),
    "cuStreamGetFlags": (UNSIGNED,),
    "cuStreamGetPriority": (INT,),
}
QUERIES = ("cuStreamQuery", "cuEventQuery")
