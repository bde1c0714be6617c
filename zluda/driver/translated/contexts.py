"""Initialisation, devices and contexts."""

from __future__ import annotations

import os

from zluda.device.base import Device, Stacked
from zluda.driver.errors import CudaError
from zluda.driver.translated.arrays import free_arrays_of
from zluda.driver.translated.services import check_output, flush
from zluda.driver.translated.state import Context, State, entry
from zluda.driver.translated.textures import drop_objects_of, drop_references_in

DRIVER_VERSION = 13000  # CUDA 13.0: what the 13.x runtimes ask for at least

STACK_SIZE = 0
# CUlimit → value at the start (H200, driver 580), and whether it may be set.
_LIMITS: dict[int, tuple[int, bool]] = {
    STACK_SIZE: (1024, True),
    1: (7340032, True),  # PRINTF_FIFO_SIZE
    2: (8388608, True),  # MALLOC_HEAP_SIZE
    4: (2048, True),  # DEV_RUNTIME_PENDING_LAUNCH_COUNT
    5: (64, True),  # MAX_L2_FETCH_GRANULARITY
    6: (0, True),  # PERSISTING_L2_CACHE_SIZE
    7: (0, False),  # SHMEM_SIZE
    8: (0, False),  # CIG_ENABLED
    9: (0, False),  # CIG_SHMEM_FALLBACK_ENABLED
}
_CONTEXT_FLAGS = 0xFF  # CU_CTX_FLAGS_MASK
_CACHE_CONFIGS = range(4)  # CUfunc_cache
LEAST_PRIORITY, GREATEST_PRIORITY = 0, -5  # as an H200 answers cuCtxGetStreamPriorityRange


def _new_context(flags: int, *, primary: bool) -> Context:
    return Context(flags, primary, {limit: value for limit, (value, _) in _LIMITS.items()})


def give_stack(device: Device, size: int) -> None:
    """Threads get this much stack, on devices where it can be set; on others it is ample."""
    if isinstance(device, Stacked):
        device.limit_stack(size)


def _check_flags(flags: int) -> None:
    if flags & ~_CONTEXT_FLAGS:
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"context flags {flags:#x}; expected bits of 0xff")


class ContextEntries:
    """``cuInit``, ``cuDevice*``, ``cuCtx*``."""

    _state: State

    # --- initialisation and devices ---------------------------------------------------------------

    @entry(context=False, initialised=False)
    def cuInit(self, flags: int = 0) -> None:
        if flags:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"flags {flags}; expected 0")
        self._state.initialised = True

    @entry(context=False, initialised=False)
    def cuDriverGetVersion(self) -> int:
        return DRIVER_VERSION

    @entry(context=False)
    def cuDeviceGetCount(self) -> int:
        return 1

    @entry(context=False)
    def cuDeviceGet(self, ordinal: int) -> int:
        self._check_device(ordinal)
        return ordinal

    @entry(context=False)
    def cuDeviceGetName(self, device: int) -> str:
        self._check_device(device)
        gpu = self._state.gpu
        return gpu.product if gpu is not None else f"zluda {self._state.device.name}"

    @entry(context=False)
    def cuDeviceGetUuid(self, device: int) -> bytes:
        self._check_device(device)
        return f"zluda {self._state.device.name}".encode().ljust(16, b"\0")[:16]

    @entry(context=False)
    def cuDeviceTotalMem(self, device: int) -> int:
        self._check_device(device)
        gpu = self._state.gpu
        return gpu.memory_info()[1] if gpu is not None else total_memory()

    @entry(context=False)
    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int:
        self._check_device(device)
        return self._state.device.attribute(attribute)

    def _check_device(self, device: int) -> None:
        if device != 0:
            raise CudaError("CUDA_ERROR_INVALID_DEVICE", detail=f"device {device}; there is one, 0")

    # --- the primary context ------------------------------------------------------------------------

    @entry(context=False)
    def cuDevicePrimaryCtxRetain(self, device: int) -> int:
        self._check_device(device)
        state = self._state
        if state.primary is None:
            fresh = _new_context(state.primary_flags, primary=True)
            state.primary = state.primary_handle = state.contexts.add(fresh, state.primary_handle)
        state.primary_retained += 1
        return state.primary

    @entry(context=False)
    def cuDevicePrimaryCtxRelease(self, device: int) -> None:
        self._check_device(device)
        state = self._state
        if state.primary_retained == 0:
            raise CudaError("CUDA_ERROR_INVALID_CONTEXT", detail="the primary context is not retained")
        state.primary_retained -= 1
        if state.primary_retained == 0:
            self._destroy_primary()

    @entry(context=False)
    def cuDevicePrimaryCtxReset(self, device: int) -> None:
        self._check_device(device)
        self._destroy_primary()
        self._state.primary_retained = 0

    @entry(context=False)
    def cuDevicePrimaryCtxSetFlags(self, device: int, flags: int) -> None:
        self._check_device(device)
        _check_flags(flags)
        state = self._state
        state.primary_flags = flags
        if state.primary is not None:
            state.contexts[state.primary].flags = flags

    @entry(context=False)
    def cuDevicePrimaryCtxGetState(self, device: int) -> tuple[int, bool]:
        self._check_device(device)
        return self._state.primary_flags, self._state.primary is not None

    def _destroy_primary(self) -> None:
        state = self._state
        if state.primary is not None:
            _destroy(state, state.primary)
            state.primary = None

    # --- contexts -----------------------------------------------------------------------------------

    @entry(context=False)
    def cuCtxCreate(self, flags: int, device: int) -> int:
        self._check_device(device)
        _check_flags(flags)
        handle = self._state.contexts.add(_new_context(flags, primary=False))
        self._state.stack.append(handle)
        return handle

    @entry(context=False)
    def cuCtxDestroy(self, context: int) -> None:
        state = self._state
        if state.contexts[context].primary:
            raise CudaError(
                "CUDA_ERROR_INVALID_CONTEXT", detail="the primary context is released, not destroyed"
            )
        _destroy(state, context)
        if state.stack and state.stack[-1] == context:
            state.stack.pop()

    @entry(context=False)
    def cuCtxSetCurrent(self, context: int) -> None:
        stack = self._state.stack
        if context:
            _ = self._state.contexts[context]
        if stack:
            stack.pop()
        if context:
            stack.append(context)

    @entry(context=False)
    def cuCtxGetCurrent(self) -> int:
        return self._state.stack[-1] if self._state.stack else 0

    @entry(context=False)
    def cuCtxPushCurrent(self, context: int) -> None:
        _ = self._state.contexts[context]
        self._state.stack.append(context)

    @entry(context=False)
    def cuCtxPopCurrent(self) -> int:
        if not self._state.stack:
            raise CudaError("CUDA_ERROR_INVALID_CONTEXT", detail="no context is current")
        return self._state.stack.pop()

    @entry()
    def cuCtxGetDevice(self) -> int:
        return 0

    @entry()
    def cuCtxGetFlags(self) -> int:
        return self._current().flags

    @entry(context=False)
    def cuCtxGetApiVersion(self, context: int) -> int:
        if context:
            _ = self._state.contexts[context]
        return 3020  # as every driver since CUDA 3.2 answers

    @entry()
    def cuCtxSynchronize(self) -> None:
        self._state.device.synchronize()
        check_output(self._state)

    @entry()
    def cuCtxGetLimit(self, limit: int) -> int:
        if limit not in _LIMITS:
            raise CudaError("CUDA_ERROR_UNSUPPORTED_LIMIT", detail=f"limit {limit}")
        return self._current().limits[limit]

    @entry()
    def cuCtxSetLimit(self, limit: int, value: int) -> None:
        if limit not in _LIMITS or not _LIMITS[limit][1]:
            raise CudaError("CUDA_ERROR_UNSUPPORTED_LIMIT", detail=f"limit {limit}")
        if self._state.services.made(limit):
            detail = f"limit {limit} was in use by a kernel that was launched"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        if limit == STACK_SIZE:
            give_stack(self._state.device, value)
        self._current().limits[limit] = value

    @entry()
    def cuCtxGetCacheConfig(self) -> int:
        return self._current().cache_config

    @entry()
    def cuCtxSetCacheConfig(self, config: int) -> None:
        check_cache_config(config)
        self._current().cache_config = config

    @entry()
    def cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        return LEAST_PRIORITY, GREATEST_PRIORITY

    def _current(self) -> Context:
        return self._state.contexts[self._state.current()]


def check_cache_config(config: int) -> None:
    """A ``CUfunc_cache`` value: a hint without effect on results."""
    if config not in _CACHE_CONFIGS:
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"cache configuration {config}; expected 0 to 3")


def total_memory() -> int:
    """Bytes of the host's memory, which is the device's."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _destroy(state: State, context: int) -> None:
    """Drop a context with all that was made in it."""
    state.contexts.remove(context)
    for address, allocation in list(state.allocations.items()):
        if allocation.context == context:
            state.device.free(address)
            del state.allocations[address]
            state.bases.remove(address)
    drop_objects_of(state, context)
    free_arrays_of(state, context)
    for handle, module in state.modules.items():
        if module.context == context:
            unload(state, handle)
    for handle, stream in state.streams.items():
        if stream.context == context:
            state.streams.remove(handle)
    for handle, event in state.events.items():
        if event.context == context:
            state.events.remove(handle)


def unload(state: State, handle: int) -> None:
    """Unload a module with its functions."""
    flush(state)
    module = state.modules.remove(handle)
    state.services.detach(module.code)
    for name in module.variables:
        address, size = module.code.global_variable(name)
        drop_references_in(state, range(address, address + max(size, 1)))
    for function in module.functions.values():
        state.functions.remove(function)
    module.code.unload()
