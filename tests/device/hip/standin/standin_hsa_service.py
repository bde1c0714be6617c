"""The service behind the stand-in HSA runtime: code objects and dispatches go to the emulator.

``STANDIN_HSA_TARGET`` is the target id of the GPU (``gfx1030``, ``gfx90a:sramecc+:xnack-``).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from zluda.compiler.amd import disassembler
from zluda.compiler.amd.code_object import STT_OBJECT
from zluda.device.amd.emulator.device import EmulatedCode, EmulatedDevice, EmulatedKernel
from zluda.device.amd.emulator.launch import QUEUE_BYTES, Addresses
from zluda.errors import Error, HangError

_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")  # hsa_kernel_dispatch_packet_t
_PACKET_BYTES = _PACKET.size
_COMPILED_BY_HIP = 15  # the LLVM inside HIP 5.2, which compiles HIP's own kernels


class Symbol(ctypes.Structure):
    """``symbol_t`` of standin.h."""

    _fields_ = (
        ("kernel", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("kernarg_bytes", ctypes.c_uint32),
        ("group_bytes", ctypes.c_uint32),
        ("private_bytes", ctypes.c_uint32),
        ("dynamic_stack", ctypes.c_uint32),
    )


_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))
_UNLOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)
_SYMBOL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p, ctypes.POINTER(Symbol))
_DISPATCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Functions(ctypes.Structure):
    """``service_t`` of standin.h."""

    _fields_ = (("load", _LOAD), ("unload", _UNLOAD), ("symbol", _SYMBOL), ("dispatch", _DISPATCH))


class Service:
    """One emulated GPU."""

    def __init__(self, target_id: str) -> None:
        self.device = EmulatedDevice(target_id.partition(":")[0])
        self._codes: dict[int, EmulatedCode] = {}  # by load address
        self._kernels: dict[int, EmulatedKernel] = {}  # by address of the kernel descriptor
        self._queue = self.device.allocate(QUEUE_BYTES)

    def load(self, data: int, size: int, handle: Any) -> None:
        """Load a code object; its handle is where it lies."""
        code = self.device.load_code_object(ctypes.string_at(data, size))
        self._codes[code.address] = code
        for name in code.kernel_names:
            kernel = code.kernel(name)
            self._kernels[code.address + kernel.entry.descriptor_address] = kernel
        handle[0] = code.address

    def unload(self, handle: int) -> None:
        code = self._codes.pop(handle)
        self._kernels = {at: kernel for at, kernel in self._kernels.items() if kernel.code is not code}
        code.unload()

    def symbol(self, handle: int, name: bytes, found: Any) -> None:
        """Describe a kernel's descriptor (``name.kd``) or a variable."""
        code = self._codes[handle]
        symbol = code.object.symbols[name.decode()]
        out = found[0]
        out.address, out.size = handle + symbol.address, symbol.size
        kernel = self._kernels.get(out.address)
        out.kernel = kernel is not None
        if kernel is not None:
            descriptor = kernel.entry.descriptor
            out.kernarg_bytes, out.group_bytes = descriptor.kernarg_bytes, descriptor.lds_bytes
            out.private_bytes, out.dynamic_stack = descriptor.private_bytes, descriptor.dynamic_stack
        elif symbol.type != STT_OBJECT:
            raise KeyError(name)

    def dispatch(self, packet: int) -> None:
        """Run the grid of a kernel dispatch packet."""
        fields = _PACKET.unpack(ctypes.string_at(packet, _PACKET_BYTES))
        _, _, *block, _ = fields[:6]
        work_items, lds_bytes, descriptor, kernarg = fields[6:9], fields[10], fields[11], fields[12]
        kernel = self._kernels[descriptor]
        if any(n % b for n, b in zip(work_items, block, strict=True)):
            raise Error(
                f"kernel {kernel.name}: {work_items} work items in blocks of {block}: a block is partial"
            )
        grid = tuple(n // b for n, b in zip(work_items, block, strict=True))
        addresses = Addresses(kernarg, packet, self._queue)
        try:
            self.device.dispatch(kernel, grid, tuple(block), addresses, lds_bytes=lds_bytes)
        except HangError as error:
            print(f"stand-in HSA: {error}", file=sys.stderr, flush=True)
            time.sleep(sys.maxsize >> 32)  # a GPU does not know that a kernel will never end


def _status(do: Callable[..., None]) -> Callable[..., int]:
    """For C: 0, or 1 with the reason on standard error."""

    def call(*arguments: Any) -> int:
        try:
            do(*arguments)
        except KeyError:  # a name that the code object does not have: HIP asks for such
            return 1
        except Error as error:
            print(f"stand-in HSA: {error}", file=sys.stderr, flush=True)
            return 1
        return 0

    return call


_kept: list[object] = []  # what C calls must live as long as the process


def serve() -> None:
    """Make a GPU for the library that is being initialised in this process."""
    target_id = os.environ["STANDIN_HSA_TARGET"]
    newer = disassembler.candidates
    # HIP's own kernels hold encodings that a newer LLVM rejects; older ones read what a newer LLVM wrote.
    disassembler.candidates = lambda: sorted(newer(), key=lambda one: one[0] != _COMPILED_BY_HIP)
    service = Service(target_id)
    functions = Functions(
        _LOAD(_status(service.load)),
        _UNLOAD(_status(service.unload)),
        _SYMBOL(_status(service.symbol)),
        _DISPATCH(_status(service.dispatch)),
    )
    _kept.extend((service, functions))
    library = ctypes.CDLL("libhsa-runtime64.so.1")  # loaded already: it is what calls this
    library.standin_serve(ctypes.byref(functions), target_id.encode(), service.device.target.wave_size)
