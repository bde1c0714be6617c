"""Machine code into this process: the runtime once, each kernel's object when it is first launched."""

from __future__ import annotations

import ctypes
import functools
import itertools
import platform
from typing import Any

from zluda.compiler.cache import remember
from zluda.compiler.cache.key import host_key
from zluda.compiler.cpu.llvm import emit_object, target_machine
from zluda.compiler.cpu.runtime import EXPORTS, KERNEL_IMPORTS, runtime_ir
from zluda.compiler.target import CompiledKernel
from zluda.errors import DeviceError

_serial = itertools.count()


@functools.cache
def _linker() -> Any:
    """LLVM's in-process linker."""
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(target_machine())


class Runtime:
    """The native runtime's entry points as callables; its addresses for kernels to link against."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        if platform.machine() != "x86_64":
            raise DeviceError("cpu", f"needs an x86-64 host, not {platform.machine()}")
        text = runtime_ir()
        code = remember(host_key("runtime", [text]), lambda: emit_object(text), label="cpu runtime")
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        for name in EXPORTS:
            builder.export_symbol(name)
        self._library = builder.add_current_process().link(_linker(), "zluda-runtime")
        self.addresses: dict[str, int] = {name: self._library[name] for name in EXPORTS}
        pointer, number = ctypes.c_void_p, ctypes.c_uint32
        self.launch = ctypes.CFUNCTYPE(None, pointer, pointer, number, number)(self.addresses["zluda_launch"])
        self.worker = ctypes.CFUNCTYPE(None, pointer, pointer, number)(self.addresses["zluda_worker"])
        self.stop = ctypes.CFUNCTYPE(None, pointer)(self.addresses["zluda_stop"])


@functools.cache
def runtime() -> Runtime:
    """The runtime, linked when the first device is opened."""
    return Runtime()


class LinkedKernel:
    """A kernel's code in memory. ``address`` is its entry; valid as long as this object lives."""

    def __init__(self, compiled: CompiledKernel) -> None:
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_object_img(compiled.code).add_current_process()
        for name in KERNEL_IMPORTS:
            builder.import_symbol(name, runtime().addresses[name])
        builder.export_symbol(compiled.entry)
        self._library = builder.link(_linker(), f"zluda-kernel-{next(_serial)}")
        self.address: int = self._library[compiled.entry]
