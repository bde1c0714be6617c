"""The binding to NVIDIA's driver library: entries by base name, argument types by one table (cuda.h)."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from zluda.device.results import CudaError
from zluda.errors import DeviceError, UnsupportedError

LIBRARY = "libcuda.so.1"

# A letter an argument: i int, I unsigned, H unsigned short, B unsigned char, Q CUdeviceptr, Z size_t,
# p a handle or pointer by value, s a string, o a pointer to what the entry writes, f a float.
_TYPES: dict[str, Any] = {
    "i": ctypes.c_int,
    "I": ctypes.c_uint,
    "H": ctypes.c_ushort,
    "B": ctypes.c_ubyte,
    "Q": ctypes.c_uint64,
    "Z": ctypes.c_size_t,
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "o": ctypes.c_void_p,
    "f": ctypes.c_float,
}

# Entry → (exported symbol, arguments).
ENTRIES: dict[str, tuple[str, str]] = {
    "cuInit": ("cuInit", "I"),
    "cuDriverGetVersion": ("cuDriverGetVersion", "o"),
    "cuDeviceGetCount": ("cuDeviceGetCount", "o"),
    "cuDeviceGet": ("cuDeviceGet", "oi"),
    "cuDeviceGetName": ("cuDeviceGetName", "oii"),
    "cuDeviceGetUuid": ("cuDeviceGetUuid_v2", "oi"),
    "cuDeviceTotalMem": ("cuDeviceTotalMem_v2", "oi"),
    "cuDeviceGetAttribute": ("cuDeviceGetAttribute", "oii"),
    "cuDevicePrimaryCtxRetain": ("cuDevicePrimaryCtxRetain", "oi"),
    "cuDevicePrimaryCtxRelease": ("cuDevicePrimaryCtxRelease_v2", "i"),
    "cuDevicePrimaryCtxReset": ("cuDevicePrimaryCtxReset_v2", "i"),
    "cuDevicePrimaryCtxSetFlags": ("cuDevicePrimaryCtxSetFlags_v2", "iI"),
    "cuDevicePrimaryCtxGetState": ("cuDevicePrimaryCtxGetState", "ioo"),
    "cuCtxCreate": ("cuCtxCreate_v2", "oIi"),
    "cuCtxDestroy": ("cuCtxDestroy_v2", "p"),
    "cuCtxSetCurrent": ("cuCtxSetCurrent", "p"),
    "cuCtxGetCurrent": ("cuCtxGetCurrent", "o"),
    "cuCtxPushCurrent": ("cuCtxPushCurrent_v2", "p"),
    "cuCtxPopCurrent": ("cuCtxPopCurrent_v2", "o"),
    "cuCtxGetDevice": ("cuCtxGetDevice", "o"),
    "cuCtxGetFlags": ("cuCtxGetFlags", "o"),
    "cuCtxGetApiVersion": ("cuCtxGetApiVersion", "po"),
    "cuCtxSynchronize": ("cuCtxSynchronize", ""),
    "cuCtxGetLimit": ("cuCtxGetLimit", "oi"),
    "cuCtxSetLimit": ("cuCtxSetLimit", "iZ"),
    "cuCtxGetCacheConfig": ("cuCtxGetCacheConfig", "o"),
    "cuCtxSetCacheConfig": ("cuCtxSetCacheConfig", "i"),
    "cuCtxGetStreamPriorityRange": ("cuCtxGetStreamPriorityRange", "oo"),
    "cuModuleLoadDataEx": ("cuModuleLoadDataEx", "opIoo"),
    "cuModuleUnload": ("cuModuleUnload", "p"),
    "cuModuleGetFunction": ("cuModuleGetFunction", "ops"),
    "cuModuleGetGlobal": ("cuModuleGetGlobal_v2", "oops"),
    "cuLibraryLoadData": ("cuLibraryLoadData", "opooIooI"),
    "cuLibraryUnload": ("cuLibraryUnload", "p"),
    "cuLibraryGetKernel": ("cuLibraryGetKernel", "ops"),
    "cuLibraryGetModule": ("cuLibraryGetModule", "op"),
    "cuLibraryGetGlobal": ("cuLibraryGetGlobal", "oops"),
    "cuKernelGetFunction": ("cuKernelGetFunction", "op"),
    "cuKernelGetAttribute": ("cuKernelGetAttribute", "oipi"),
    "cuKernelSetAttribute": ("cuKernelSetAttribute", "iipi"),
    "cuKernelSetCacheConfig": ("cuKernelSetCacheConfig", "pii"),
    "cuKernelGetName": ("cuKernelGetName", "op"),
    "cuKernelGetParamInfo": ("cuKernelGetParamInfo", "pZoo"),
    "cuFuncGetAttribute": ("cuFuncGetAttribute", "oip"),
    "cuFuncSetAttribute": ("cuFuncSetAttribute", "pii"),
    "cuFuncSetCacheConfig": ("cuFuncSetCacheConfig", "pi"),
    "cuFuncGetName": ("cuFuncGetName", "op"),
    "cuFuncGetParamInfo": ("cuFuncGetParamInfo", "pZoo"),
    "cuFuncLoad": ("cuFuncLoad", "p"),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "opiZ",
    ),
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        "opiZI",
    ),
    "cuOccupancyAvailableDynamicSMemPerBlock": ("cuOccupancyAvailableDynamicSMemPerBlock", "opii"),
    "cuOccupancyMaxActiveClusters": ("cuOccupancyMaxActiveClusters", "opo"),
    "cuOccupancyMaxPotentialClusterSize": ("cuOccupancyMaxPotentialClusterSize", "opo"),
    "cuTensorMapEncodeTiled": ("cuTensorMapEncodeTiled", "oiIpppppiiii"),
    "cuTensorMapEncodeIm2col": ("cuTensorMapEncodeIm2col", "oiIpppppIIpiiii"),
    "cuTensorMapReplaceAddress": ("cuTensorMapReplaceAddress", "op"),
    "cuMemGetInfo": ("cuMemGetInfo_v2", "oo"),
    "cuMemAlloc": ("cuMemAlloc_v2", "oZ"),
    "cuMemAllocPitch": ("cuMemAllocPitch_v2", "ooZZI"),
    "cuMemFree": ("cuMemFree_v2", "Q"),
    "cuMemAllocAsync": ("cuMemAllocAsync", "oZp"),
    "cuMemFreeAsync": ("cuMemFreeAsync", "Qp"),
    "cuMemGetAddressRange": ("cuMemGetAddressRange_v2", "ooQ"),
    "cuMemAllocHost": ("cuMemAllocHost_v2", "oZ"),
    "cuMemHostAlloc": ("cuMemHostAlloc", "oZI"),
    "cuMemFreeHost": ("cuMemFreeHost", "p"),
    "cuMemcpyHtoD": ("cuMemcpyHtoD_v2", "QoZ"),
    "cuMemcpyHtoDAsync": ("cuMemcpyHtoDAsync_v2", "QoZp"),
    "cuMemcpyDtoH": ("cuMemcpyDtoH_v2", "oQZ"),
    "cuMemcpyDtoHAsync": ("cuMemcpyDtoHAsync_v2", "oQZp"),
    "cuMemcpyDtoD": ("cuMemcpyDtoD_v2", "QQZ"),
    "cuMemcpyDtoDAsync": ("cuMemcpyDtoDAsync_v2", "QQZp"),
    "cuMemcpy": ("cuMemcpy", "QQZ"),
    "cuMemcpyAsync": ("cuMemcpyAsync", "QQZp"),
    "cuMemsetD8": ("cuMemsetD8_v2", "QBZ"),
    "cuMemsetD16": ("cuMemsetD16_v2", "QHZ"),
    "cuMemsetD32": ("cuMemsetD32_v2", "QIZ"),
    "cuMemsetD8Async": ("cuMemsetD8Async", "QBZp"),
    "cuMemsetD16Async": ("cuMemsetD16Async", "QHZp"),
    "cuMemsetD32Async": ("cuMemsetD32Async", "QIZp"),
    "cuArrayCreate": ("cuArrayCreate_v2", "op"),
    "cuArray3DCreate": ("cuArray3DCreate_v2", "op"),
    "cuArrayDestroy": ("cuArrayDestroy", "p"),
    "cuArrayGetDescriptor": ("cuArrayGetDescriptor_v2", "op"),
    "cuArray3DGetDescriptor": ("cuArray3DGetDescriptor_v2", "op"),
    "cuMipmappedArrayCreate": ("cuMipmappedArrayCreate", "opI"),
    "cuMipmappedArrayGetLevel": ("cuMipmappedArrayGetLevel", "opI"),
    "cuMipmappedArrayDestroy": ("cuMipmappedArrayDestroy", "p"),
    "cuMemcpy2D": ("cuMemcpy2D_v2", "p"),
    "cuMemcpy2DUnaligned": ("cuMemcpy2DUnaligned_v2", "p"),
    "cuMemcpy2DAsync": ("cuMemcpy2DAsync_v2", "pp"),
    "cuMemcpy3D": ("cuMemcpy3D_v2", "p"),
    "cuMemcpy3DAsync": ("cuMemcpy3DAsync_v2", "pp"),
    "cuMemcpyHtoA": ("cuMemcpyHtoA_v2", "pZoZ"),
    "cuMemcpyHtoAAsync": ("cuMemcpyHtoAAsync_v2", "pZoZp"),
    "cuMemcpyAtoH": ("cuMemcpyAtoH_v2", "opZZ"),
    "cuMemcpyAtoHAsync": ("cuMemcpyAtoHAsync_v2", "opZZp"),
    "cuMemcpyDtoA": ("cuMemcpyDtoA_v2", "pZQZ"),
    "cuMemcpyAtoD": ("cuMemcpyAtoD_v2", "QpZZ"),
    "cuMemcpyAtoA": ("cuMemcpyAtoA_v2", "pZpZZ"),
    "cuMemsetD2D8": ("cuMemsetD2D8_v2", "QZBZZ"),
    "cuMemsetD2D16": ("cuMemsetD2D16_v2", "QZHZZ"),
    "cuMemsetD2D32": ("cuMemsetD2D32_v2", "QZIZZ"),
    "cuMemsetD2D8Async": ("cuMemsetD2D8Async", "QZBZZp"),
    "cuMemsetD2D16Async": ("cuMemsetD2D16Async", "QZHZZp"),
    "cuMemsetD2D32Async": ("cuMemsetD2D32Async", "QZIZZp"),
    "cuTexObjectCreate": ("cuTexObjectCreate", "oppp"),
    "cuTexObjectDestroy": ("cuTexObjectDestroy", "Q"),
    "cuTexObjectGetResourceDesc": ("cuTexObjectGetResourceDesc", "oQ"),
    "cuTexObjectGetTextureDesc": ("cuTexObjectGetTextureDesc", "oQ"),
    "cuTexObjectGetResourceViewDesc": ("cuTexObjectGetResourceViewDesc", "oQ"),
    "cuSurfObjectCreate": ("cuSurfObjectCreate", "op"),
    "cuSurfObjectDestroy": ("cuSurfObjectDestroy", "Q"),
    "cuSurfObjectGetResourceDesc": ("cuSurfObjectGetResourceDesc", "oQ"),
    "cuModuleGetTexRef": ("cuModuleGetTexRef", "ops"),
    "cuModuleGetSurfRef": ("cuModuleGetSurfRef", "ops"),
    "cuTexRefCreate": ("cuTexRefCreate", "o"),
    "cuTexRefDestroy": ("cuTexRefDestroy", "p"),
    "cuTexRefSetArray": ("cuTexRefSetArray", "ppI"),
    "cuTexRefSetMipmappedArray": ("cuTexRefSetMipmappedArray", "ppI"),
    "cuTexRefSetAddress": ("cuTexRefSetAddress_v2", "opQZ"),
    "cuTexRefSetAddress2D": ("cuTexRefSetAddress2D_v3", "ppQZ"),
    "cuTexRefSetFormat": ("cuTexRefSetFormat", "pii"),
    "cuTexRefSetAddressMode": ("cuTexRefSetAddressMode", "pii"),
    "cuTexRefSetFilterMode": ("cuTexRefSetFilterMode", "pi"),
    "cuTexRefSetMipmapFilterMode": ("cuTexRefSetMipmapFilterMode", "pi"),
    "cuTexRefSetMipmapLevelBias": ("cuTexRefSetMipmapLevelBias", "pf"),
    "cuTexRefSetMipmapLevelClamp": ("cuTexRefSetMipmapLevelClamp", "pff"),
    "cuTexRefSetMaxAnisotropy": ("cuTexRefSetMaxAnisotropy", "pI"),
    "cuTexRefSetBorderColor": ("cuTexRefSetBorderColor", "po"),
    "cuTexRefSetFlags": ("cuTexRefSetFlags", "pI"),
    "cuSurfRefSetArray": ("cuSurfRefSetArray", "ppI"),
    "cuMemAddressReserve": ("cuMemAddressReserve", "oZZQQ"),
    "cuMemAddressFree": ("cuMemAddressFree", "QZ"),
    "cuMemCreate": ("cuMemCreate", "oZoQ"),
    "cuMemRelease": ("cuMemRelease", "Q"),
    "cuMemMap": ("cuMemMap", "QZZQQ"),
    "cuMemUnmap": ("cuMemUnmap", "QZ"),
    "cuMemSetAccess": ("cuMemSetAccess", "QZoZ"),
    "cuMemGetAllocationGranularity": ("cuMemGetAllocationGranularity", "ooi"),
    "cuStreamCreate": ("cuStreamCreate", "oI"),
    "cuStreamCreateWithPriority": ("cuStreamCreateWithPriority", "oIi"),
    "cuStreamDestroy": ("cuStreamDestroy_v2", "p"),
    "cuStreamSynchronize": ("cuStreamSynchronize", "p"),
    "cuStreamQuery": ("cuStreamQuery", "p"),
    "cuStreamGetFlags": ("cuStreamGetFlags", "po"),
    "cuStreamGetPriority": ("cuStreamGetPriority", "po"),
    "cuStreamWaitEvent": ("cuStreamWaitEvent", "ppI"),
    "cuEventCreate": ("cuEventCreate", "oI"),
    "cuEventDestroy": ("cuEventDestroy_v2", "p"),
    "cuEventRecord": ("cuEventRecord", "pp"),
    "cuEventRecordWithFlags": ("cuEventRecordWithFlags", "ppI"),
    "cuEventSynchronize": ("cuEventSynchronize", "p"),
    "cuEventQuery": ("cuEventQuery", "p"),
    "cuEventElapsedTime": ("cuEventElapsedTime", "opp"),
    "cuLaunchKernel": ("cuLaunchKernel", "pIIIIIIIpoo"),
    "cuLaunchKernelEx": ("cuLaunchKernelEx", "opoo"),
    "cuGetErrorString": ("cuGetErrorString", "io"),
}

NOT_READY = 600


class LibCuda:
    """The loaded library. Entries that fail raise CudaError."""

    def __init__(self, path: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise DeviceError(
                "cuda", f"cannot load {path}: {error}", remedy="install NVIDIA's driver"
            ) from None
        self._functions: dict[str, Any] = {}

    def result(self, entry: str, *arguments: Any) -> int:
        """Call an entry; its CUresult."""
        function = self._functions.get(entry)
        if function is None:
            function = self._functions[entry] = self._bind(entry)
        code: int = function(*arguments)
        return code

    def call(self, entry: str, *arguments: Any) -> None:
        """Call an entry; CudaError unless it succeeds."""
        code = self.result(entry, *arguments)
        if code:
            raise CudaError(code, entry, self._describe(code))

    def done(self, entry: str, *arguments: Any) -> bool:
        """Call a query; false for CUDA_ERROR_NOT_READY."""
        code = self.result(entry, *arguments)
        if code not in (0, NOT_READY):
            raise CudaError(code, entry, self._describe(code))
        return code == 0

    def get(self, entry: str, kind: type[Any], *arguments: Any) -> int:
        """Call an entry whose first argument is what it returns; 0 for a null handle."""
        out = kind()
        self.call(entry, ctypes.byref(out), *arguments)
        return out.value or 0

    def get_last(self, entry: str, kind: type[Any], *arguments: Any) -> int:
        """Call an entry whose last argument is what it returns."""
        out = kind()
        self.call(entry, *arguments, ctypes.byref(out))
        return out.value or 0

    def get_two(self, entry: str, first: type[Any], second: type[Any], *arguments: Any) -> tuple[int, int]:
        """Call an entry whose first two arguments are what it returns."""
        one, two = first(), second()
        self.call(entry, ctypes.byref(one), ctypes.byref(two), *arguments)
        return one.value or 0, two.value or 0

    def _bind(self, entry: str) -> Any:
        symbol, arguments = ENTRIES[entry]
        try:
            function = self._library[symbol]
        except AttributeError:
            raise UnsupportedError(symbol, f"this NVIDIA driver ({LIBRARY}) does not export it") from None
        function.restype = ctypes.c_int
        function.argtypes = [_TYPES[letter] for letter in arguments]
        return function

    def _describe(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self.result("cuGetErrorString", code, ctypes.byref(text)) or text.value is None:
            return ""
        return text.value.decode(errors="replace")


@functools.cache
def load() -> LibCuda:
    """The library, loaded once; DeviceError where it is missing."""
    return LibCuda()
