"""Modules, libraries, kernels and functions.

A library is a module and a CUkernel is a CUfunction, as programs cast one to the other (the CUDA runtime
passes a CUkernel to ``cuLaunchKernel``). A kernel is parsed and compiled when it is first launched or asked
about, so a module with one bad kernel loads and its other kernels run.
"""

from __future__ import annotations

from collections.abc import Mapping

from zluda.compiler.services import CONDITIONS, sets_conditions
from zluda.device.base import Kernel
from zluda.device.images import ptx_text
from zluda.driver.base import Bytes, ParameterSlot
from zluda.driver.errors import CudaError
from zluda.driver.translated.contexts import check_cache_config, unload
from zluda.driver.translated.state import Function, LoadedModule, State, entry

# CUfunction_attribute
MAX_THREADS_PER_BLOCK, SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES = 0, 1, 3
PTX_VERSION, BINARY_VERSION, MAX_DYNAMIC_SHARED_SIZE_BYTES = 5, 6, 8
_CONSTANT_ATTRIBUTES = {2: 0, 4: 0, 7: 0, 9: -1, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0, 15: 0}
_SETTABLE = (MAX_DYNAMIC_SHARED_SIZE_BYTES, 9, 10, 11, 12, 13, 14, 15)
_NO_CONTEXT = 0  # a library belongs to none
# CUdevice_attribute
_SHARED_PER_BLOCK, _SHARED_PER_BLOCK_OPTIN, _CC_MAJOR, _CC_MINOR = 8, 97, 75, 76


def kernel_of(state: State, function: Function) -> Kernel:
    """The device's kernel, compiled when first asked for; raises PtxError or UnsupportedError naming it."""
    return state.modules[function.module].code.kernel(function.name)


def dynamic_shared_limit(state: State, function: Function, kernel: Kernel) -> int:
    """Bytes of dynamic shared memory that a launch may ask for."""
    default = state.device.attribute(_SHARED_PER_BLOCK) - kernel.shared_bytes
    return function.attributes.get(MAX_DYNAMIC_SHARED_SIZE_BYTES, default)


class CodeEntries:
    """``cuModule*``, ``cuLibrary*``, ``cuKernel*``, ``cuFunc*``."""

    _state: State

    # --- modules and libraries ----------------------------------------------------------------------

    @entry()
    def cuModuleLoadData(self, image: Bytes, *, globals_at: Mapping[str, int] | None = None) -> int:
        return self._load(image, globals_at, self._state.current())

    @entry()
    def cuModuleUnload(self, module: int) -> None:
        _ = self._state.modules[module]
        unload(self._state, module)

    @entry()
    def cuModuleGetFunction(self, module: int, name: str) -> int:
        return self._function(module, name)

    @entry()
    def cuModuleGetGlobal(self, module: int, name: str) -> tuple[int, int]:
        return self._global(module, name)

    @entry(context=False)
    def cuLibraryLoadData(self, image: Bytes, *, globals_at: Mapping[str, int] | None = None) -> int:
        return self._load(image, globals_at, _NO_CONTEXT)

    @entry(context=False)
    def cuLibraryUnload(self, library: int) -> None:
        _ = self._state.modules[library]
        unload(self._state, library)

    @entry(context=False)
    def cuLibraryGetKernel(self, library: int, name: str) -> int:
        return self._function(library, name)

    @entry()
    def cuLibraryGetModule(self, library: int) -> int:
        _ = self._state.modules[library]
        return library

    @entry()
    def cuLibraryGetGlobal(self, library: int, name: str) -> tuple[int, int]:
        return self._global(library, name)

    def _load(self, image: Bytes, globals_at: Mapping[str, int] | None, context: int) -> int:
        from zluda.ptx import parse_module

        state = self._state
        text = ptx_text(bytes(image), state.device)
        if text is None:
            raise CudaError("CUDA_ERROR_NO_BINARY_FOR_GPU", detail="the image holds no PTX", reason="no-ptx")
        module = parse_module(text)
        code = state.device.load(module, globals_at=globals_at)
        state.services.attach(code, module)
        variables = [name for name, v in module.variables.items() if v.space in ("global", "const")]
        if sets_conditions(module):
            variables.append(CONDITIONS)
        return state.modules.add(LoadedModule(context, code, tuple(variables)))

    def _function(self, module: int, name: str) -> int:
        loaded = self._state.modules[module]
        if name not in loaded.functions:
            if name not in loaded.code.kernel_names:
                raise CudaError("CUDA_ERROR_NOT_FOUND", detail=f"no kernel {name!r} in the module")
            loaded.functions[name] = self._state.functions.add(Function(name, module))
        return loaded.functions[name]

    def _global(self, module: int, name: str) -> tuple[int, int]:
        loaded = self._state.modules[module]
        if name not in loaded.variables:
            raise CudaError("CUDA_ERROR_NOT_FOUND", detail=f"no variable {name!r} in the module")
        address, size = loaded.code.global_variable(name)
        return address, size

    # --- kernels and functions ----------------------------------------------------------------------

    @entry()
    def cuKernelGetFunction(self, kernel: int) -> int:
        _ = self._state.functions[kernel]
        return kernel

    @entry()
    def cuKernelGetAttribute(self, attribute: int, kernel: int, device: int = 0) -> int:
        return self._attribute(kernel, attribute)

    @entry()
    def cuKernelSetAttribute(self, attribute: int, value: int, kernel: int, device: int = 0) -> None:
        self._set_attribute(kernel, attribute, value)

    @entry()
    def cuKernelSetCacheConfig(self, kernel: int, config: int, device: int = 0) -> None:
        self._cache_config(kernel, config)

    @entry()
    def cuFuncGetAttribute(self, attribute: int, function: int) -> int:
        return self._attribute(function, attribute)

    @entry()
    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self._set_attribute(function, attribute, value)

    @entry()
    def cuFuncSetCacheConfig(self, function: int, config: int) -> None:
        self._cache_config(function, config)

    @entry()
    def cuFuncGetName(self, function: int) -> str:
        return self._state.functions[function].name

    @entry()
    def cuFuncLoad(self, function: int) -> None:
        kernel_of(self._state, self._state.functions[function])

    @entry()
    def parameter_layout(self, function: int) -> tuple[ParameterSlot, ...]:
        kernel = kernel_of(self._state, self._state.functions[function])
        return tuple(ParameterSlot(p.offset, p.size, p.name) for p in kernel.parameters)

    def _attribute(self, handle: int, attribute: int) -> int:
        state = self._state
        function = state.functions[handle]
        if attribute in function.attributes:
            return function.attributes[attribute]
        if attribute in _CONSTANT_ATTRIBUTES:
            return _CONSTANT_ATTRIBUTES[attribute]
        kernel = kernel_of(state, function)
        compute_capability = 10 * state.device.attribute(_CC_MAJOR) + state.device.attribute(_CC_MINOR)
        values = {
            MAX_THREADS_PER_BLOCK: kernel.max_threads_per_block,
            SHARED_SIZE_BYTES: kernel.shared_bytes,
            LOCAL_SIZE_BYTES: getattr(kernel, "local_bytes", 0),
            PTX_VERSION: compute_capability,
            BINARY_VERSION: compute_capability,
            MAX_DYNAMIC_SHARED_SIZE_BYTES: dynamic_shared_limit(state, function, kernel),
        }
        if attribute not in values:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"function attribute {attribute}")
        return values[attribute]

    def _set_attribute(self, handle: int, attribute: int, value: int) -> None:
        function = self._state.functions[handle]
        if attribute not in _SETTABLE:
            raise CudaError(
                "CUDA_ERROR_INVALID_VALUE", detail=f"function attribute {attribute} cannot be set"
            )
        if attribute == MAX_DYNAMIC_SHARED_SIZE_BYTES:
            kernel = kernel_of(self._state, function)
            most = self._state.device.attribute(_SHARED_PER_BLOCK_OPTIN) - kernel.shared_bytes
            if not 0 <= value <= most:
                detail = f"{value} bytes of dynamic shared memory; expected 0 to {most}"
                raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        function.attributes[attribute] = value

    def _cache_config(self, handle: int, config: int) -> None:
        _ = self._state.functions[handle]
        check_cache_config(config)
