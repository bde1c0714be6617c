"""Writes small traces as a recorder would, with numpy standing in for the NVIDIA GPU.

The builder keeps the recorded machine's memory as bytes. A launch is given what the kernel wrote there; the
builder stores the changed 64 KiB pages, and before it the contents of what the launch reaches and nobody has
written yet, as the recorder does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from zluda.tracefile import (
    PAGE_BYTES,
    AllocationKind,
    Direction,
    Fidelity,
    ModuleKind,
    Parameter,
    TraceWriter,
)
from zluda.tracefile.arguments import ArgumentLayout

FUNCTIONS = json.loads(resources.files("zluda.driver").joinpath("driver_api.json").read_text())["functions"]
GARBAGE = b"\xcd"
"""What fresh device memory holds: nothing that a replay would hold by chance."""

BASE = 0x7F20_0000_0000


def words(*values: int) -> bytes:
    """8-byte little-endian words: the packed parameters of a kernel that takes pointers and u64."""
    return b"".join(value.to_bytes(8, "little") for value in values)


class TraceBuilder:
    """Records calls one by one; a context manager. A method that makes a call returns what the app got."""

    def __init__(self, path: Path, **meta: object) -> None:
        self.path = path
        self.sequence = 0
        self.thread = 100
        self.memory: dict[int, bytearray] = {}  # base → contents on the recorded GPU
        self.capture = True
        self._writer = TraceWriter.create(path, {"capture": "outputs", **meta})
        self._allocations: dict[int, int] = {}  # base → id
        self._known: set[int] = set()  # bases whose contents the record has
        self._functions: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._modules: dict[int, int] = {}  # handle → id
        self._handle = 0xAAAA0000
        self._next = BASE

    def __enter__(self) -> TraceBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    # --- any call -------------------------------------------------------------------------------------

    def call(
        self,
        function: str,
        *,
        out: Mapping[str, int] | None = None,
        payload_in: Mapping[str, bytes] | None = None,
        payload_out: Mapping[str, bytes] | None = None,
        pointees: Mapping[str, bytes] | None = None,
        result: int | None = 0,
        parent: int | None = None,
        **arguments: int,
    ) -> int:
        """Record one call; ``out`` are the values put where out parameters point. Returns its number."""
        parameters = [
            Parameter(row["name"], row["type"], Direction(row["direction"]), row["pointee"])
            for row in FUNCTIONS[function]["parameters"]
        ]
        names = [parameter.name for parameter in parameters]
        unknown = set(arguments) - set(names)
        assert not unknown, f"{function} has no parameters {unknown}, but {names}"
        sizes = {parameter.name: parameter.pointee_size for parameter in parameters}
        after = {name: value.to_bytes(sizes[name], "little") for name, value in (out or {}).items()}
        pointers = {*after, *(payload_in or {}), *(payload_out or {}), *(pointees or {})}
        argument_words = [arguments.get(name, 0x1000 if name in pointers else 0) for name in names]
        blob = ArgumentLayout(parameters).encode(
            [word & (2**64 - 1) for word in argument_words], dict(pointees or {}), after
        )
        sequence, self.sequence = self.sequence, self.sequence + 1
        signature = self._writer.signature(function, parameters)
        end = None if result is None else 1000 * sequence + 500
        self._writer.add_calls(
            [(sequence, self.thread, parent, signature, 1000 * sequence, end, result, blob)]
        )
        for direction, payloads in ((Direction.IN, payload_in), (Direction.OUT, payload_out)):
            for name, data in (payloads or {}).items():
                self._writer.add_payload(sequence, names.index(name), direction, data)
        return sequence

    def handle(self) -> int:
        """A handle value that was not used yet."""
        self._handle += 0x10
        return self._handle

    # --- the usual calls ------------------------------------------------------------------------------

    def start(self) -> int:
        """Initialise and make a primary context current; returns the context."""
        context = self.handle()
        self.call("cuInit", Flags=0)
        self.call("cuDeviceGet", ordinal=0, out={"device": 0})
        self.call("cuDevicePrimaryCtxRetain", dev=0, out={"pctx": context})
        self.call("cuCtxSetCurrent", ctx=context)
        return context

    def module(self, image: str | bytes, *, kind: ModuleKind = ModuleKind.PTX, handle: int = 0) -> int:
        """``cuModuleLoadData``; returns the module's handle."""
        handle = handle or self.handle()
        data = image.encode() if isinstance(image, str) else image
        call = self.call("cuModuleLoadData", out={"module": handle}, image=0x5000)
        self._modules[handle] = self._writer.add_module(call, kind, handle, image=data, origin="memory")
        return handle

    def image(self, module: int, text: str) -> None:
        """PTX found inside a module."""
        self._writer.add_image(self._modules[module], ModuleKind.PTX, text.encode())

    def unload(self, module: int) -> None:
        call = self.call("cuModuleUnload", hmod=module)
        self._writer.unload_module(self._modules.pop(module), call)

    def library(self, image: str) -> int:
        """``cuLibraryLoadData``; returns the library's handle."""
        handle = self.handle()
        call = self.call("cuLibraryLoadData", out={"library": handle}, code=0x5000)
        self._modules[handle] = self._writer.add_module(
            call, ModuleKind.PTX, handle, image=image.encode(), origin="memory"
        )
        return handle

    def variable(self, module: int, name: str, address: int, contents: bytes) -> int:
        """``cuModuleGetGlobal``: a module's variable at ``address``, holding what it is initialised to."""
        call = self.call(
            "cuModuleGetGlobal_v2",
            hmod=module,
            out={"dptr": address, "bytes": len(contents)},
            payload_in={"name": name.encode() + b"\0"},
        )
        self._allocations[address] = self._writer.add_allocation(
            call, address, len(contents), AllocationKind.GLOBAL, name=name, module=self._modules[module]
        )
        self.memory[address] = bytearray(contents)
        return address

    def function(self, module: int, name: str, layout: Sequence[tuple[int, int]], *, handle: int = 0) -> int:
        """``cuModuleGetFunction``; ``layout`` is (offset, size) of each parameter. Returns the handle."""
        handle = handle or self.handle()
        call = self.call(
            "cuModuleGetFunction",
            hmod=module,
            out={"hfunc": handle},
            payload_in={"name": name.encode() + b"\0"},
        )
        return self._add_function(call, module, handle, name, layout)

    def kernel(self, library: int, name: str, layout: Sequence[tuple[int, int]]) -> int:
        """``cuLibraryGetKernel``; returns the handle."""
        handle = self.handle()
        call = self.call(
            "cuLibraryGetKernel",
            library=library,
            out={"pKernel": handle},
            payload_in={"name": name.encode() + b"\0"},
        )
        return self._add_function(call, library, handle, name, layout)

    def _add_function(
        self, call: int, module: int, handle: int, name: str, layout: Sequence[tuple[int, int]]
    ) -> int:
        number = self._writer.add_function(
            call, handle, name, module=self._modules[module], layout=list(layout)
        )
        self._functions[handle] = (number, tuple(layout))
        return handle

    def allocate(
        self,
        size: int,
        *,
        address: int | None = None,
        kind: str = "cuMemAlloc_v2",
        parent: int | None = None,
    ) -> int:
        """Device memory, full of garbage; returns its address."""
        base = self._next if address is None else address
        self._next = max(self._next, base + -(-size // 512) * 512)
        call = self.call(kind, bytesize=size, out={"dptr": base}, parent=parent)
        self._allocations[base] = self._writer.add_allocation(call, base, size)
        self.memory[base] = bytearray(GARBAGE * size)
        self._known.discard(base)
        return base

    def free(self, address: int, *, reused: int = 0) -> None:
        """``reused``: bytes that an allocation under way, whose call is on record, gets at the address."""
        call = self.call("cuMemFree_v2", dptr=address)
        self._writer.close_allocation(self._allocations.pop(address), call)
        del self.memory[address]
        if reused:
            self._allocations[address] = self._writer.add_allocation(call, address, reused)
            self.memory[address] = bytearray(GARBAGE * reused)
            self._known.discard(address)

    def stream(self) -> int:
        handle = self.handle()
        self.call("cuStreamCreate", out={"phStream": handle}, Flags=1)
        return handle

    def event(self) -> int:
        handle = self.handle()
        self.call("cuEventCreate", out={"phEvent": handle}, Flags=0)
        return handle

    # --- memory ---------------------------------------------------------------------------------------

    def copy_in(self, address: int, data: bytes, *, stream: int | None = None) -> int:
        """Host to device."""
        arguments = {"dstDevice": address, "ByteCount": len(data)}
        if stream is None:
            call = self.call("cuMemcpyHtoD_v2", payload_in={"srcHost": data}, **arguments)
        else:
            call = self.call(
                "cuMemcpyHtoDAsync_v2", payload_in={"srcHost": data}, hStream=stream, **arguments
            )
        self.put(call, address, data)
        return call

    def copy_out(self, address: int, size: int, *, data: bytes | None = None) -> int:
        """Device to host; delivers what the recorded GPU's memory holds, or ``data``."""
        delivered = self.read(address, size) if data is None else data
        return self.call(
            "cuMemcpyDtoH_v2", srcDevice=address, ByteCount=size, payload_out={"dstHost": delivered}
        )

    def copy_within(self, destination: int, source: int, size: int) -> int:
        call = self.call("cuMemcpyDtoD_v2", dstDevice=destination, srcDevice=source, ByteCount=size)
        self.put(call, destination, self.read(source, size))
        return call

    def fill(self, address: int, value: int, count: int) -> int:
        """``cuMemsetD32``."""
        call = self.call("cuMemsetD32_v2", dstDevice=address, ui=value, N=count)
        self.put(call, address, value.to_bytes(4, "little") * count)
        return call

    def read(self, address: int, size: int) -> bytes:
        """The recorded GPU's memory."""
        base = self._base(address)
        return bytes(self.memory[base][address - base : address - base + size])

    def put(self, call: int, address: int, data: bytes, *, whole_pages: bool = False) -> None:
        """``data`` is at ``address`` after ``call``, and the record has it."""
        base = self._base(address)
        start, contents = address - base, self.memory[base]
        contents[start : start + len(data)] = data
        stop = start + len(data)
        if whole_pages:
            start = start // PAGE_BYTES * PAGE_BYTES
            stop = min(-(-stop // PAGE_BYTES) * PAGE_BYTES, len(contents))
        self._writer.add_page(call, self._allocations[base], start, bytes(contents[start:stop]))
        if (start, stop) == (0, len(contents)):
            self._known.add(base)

    def _base(self, address: int) -> int:
        return next(b for b, data in self.memory.items() if b <= address < b + len(data))

    # --- launches -------------------------------------------------------------------------------------

    def launch(
        self,
        function: int,
        parameters: bytes,
        writes: Mapping[int, bytes] | None = None,
        *,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        shared_bytes: int = 0,
        stream: int = 0,
        reaches: Sequence[int] = (),
        entry: str = "cuLaunchKernel",
        result: int | None = 0,
        captured: bool | None = None,
        attributes: bytes = b"",
        parent: int | None = None,
    ) -> int:
        """A launch that left ``writes`` (address → bytes) in memory.

        ``reaches`` are allocations it reaches besides those that its parameters point to.
        """
        if self.capture:
            self._capture_inputs(parameters, reaches)
        words = {
            "f": function,
            **dict(zip(("gridDimX", "gridDimY", "gridDimZ"), grid, strict=True)),
            **dict(zip(("blockDimX", "blockDimY", "blockDimZ"), block, strict=True)),
            "sharedMemBytes": shared_bytes,
            "hStream": stream,
        }
        taken = {row["name"] for row in FUNCTIONS[entry]["parameters"]}  # others come in a structure
        words = {name: words[name] for name in words if name in taken}
        call = self.call(entry, result=result, parent=parent, **words)
        captured = self.capture if captured is None else captured
        shape = self._writer.shape(
            self._functions[function][0],
            grid,
            block,
            shared_bytes=shared_bytes,
            fidelity=Fidelity.SAME_PTX,
            attributes=attributes,
        )
        self._writer.add_launch(call, shape, parameters, stream=stream, gpu_time_ns=5000, captured=captured)
        for address, data in (writes or {}).items():
            if captured:
                self.put(call, address, data, whole_pages=True)
            else:
                base = self._base(address)
                self.memory[base][address - base : address - base + len(data)] = data
        return call

    def _capture_inputs(self, parameters: bytes, reaches: Sequence[int]) -> None:
        """What a launch reaches and the record does not know yet is captured before it."""
        pointed = [
            int.from_bytes(parameters[at : at + 8], "little") for at in range(0, len(parameters) - 7, 8)
        ]
        for base, contents in self.memory.items():
            reached = base in reaches or any(base <= word < base + len(contents) for word in pointed)
            if reached and base not in self._known:
                self.put(self.sequence - 1, base, bytes(contents))

    def gap(self, call: int | None, kind: str, text: str) -> None:
        self._writer.add_gap(call, kind, text)

    def ptx_of(self, module: int, text: str) -> None:
        """PTX found inside a module that was handed over as something else."""
        self._writer.add_image(self._modules[module], ModuleKind.PTX, text.encode(), origin="found")
