"""Code objects in the HIP runtime."""

from __future__ import annotations

import ctypes

from zluda.device.amd.hip.runtime import Runtime


class HipCode:
    """A code object loaded as a ``hipModule_t``. Raises CudaError, with HIP's words, for one it refuses."""

    def __init__(self, runtime: Runtime, data: bytes) -> None:
        self._runtime = runtime
        self._image = ctypes.create_string_buffer(data, len(data))  # HIP may read it as long as it is loaded
        self._module = int(runtime.call("hipModuleLoadData", ctypes.addressof(self._image)))
        self._functions: dict[str, int] = {}

    def kernel(self, name: str) -> int:
        """Its ``hipFunction_t``."""
        if name not in self._functions:
            found = self._runtime.call("hipModuleGetFunction", self._module, name.encode())
            self._functions[name] = int(found)
        return self._functions[name]

    def unload(self) -> None:
        """Give the code object back to HIP."""
        self._functions.clear()
        self._runtime.call("hipModuleUnload", self._module)
