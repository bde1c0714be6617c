"""Traces made of ``kernel_N_NAME.tar.zst``: one launch with the buffers it was given and what it left there.

Such an archive holds ``manifest.json`` (``kernel_name``, ``config`` with ``grid_dim``, ``block_dim`` and
``shared_mem_bytes``, ``parameters`` with ``pointer_offsets``), ``source.ptx``, for each parameter
``param_I.bin``, and for each pointer in it, at byte OFFSET, ``param_I_ptr_OFFSET_pre.bin`` and
``param_I_ptr_OFFSET_post.bin``: the buffer that it points into, before and after the launch.
``offset_in_buffer`` is where in it.

The trace has the calls that a program would make: context, module, an allocation for each buffer, copies to
it, the launch, copies back.
"""

from __future__ import annotations

import json
import math
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from zluda.compiler.layout import parameter_layout
from zluda.driver.table import driver_api
from zluda.errors import PtxError, TraceError
from zluda.ptx import parse_module
from zluda.tracefile import PAGE_BYTES, Dim3, Direction, Fidelity, ModuleKind, Parameter, TraceWriter
from zluda.tracefile.arguments import ArgumentLayout
from zluda.tracefile.replacing import check_place, replacing

_BASE = 0x7F20_0000_0000  # where buffers are placed: each at a multiple of 2 MiB, as cuMemAlloc does
_STEP = 2 << 20
_CONTEXT, _MODULE, _FUNCTION = 0x7A00_1000, 0x7A00_2000, 0x7A00_3000
_POINTER = 0x7A00_F000  # what a parameter that is not NULL holds
_MOST_BYTES = 8 << 30  # of one archive: all of it is held in memory

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; shared memory: ample.
_GRID, _BLOCK, _THREADS, _SHARED_BYTES = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024, 1 << 20


@dataclass(frozen=True)
class _Buffer:
    """A buffer that a parameter points into; ``address`` is where the trace places it."""

    address: int
    before: bytes
    after: bytes | None


def convert(archive: Path, target: Path) -> None:
    """Write the launch in ``archive`` as a trace to ``target``.

    Raises :class:`TraceError` naming the archive and what of it is missing, wrong or damaged.
    """
    check_place(target, archive)
    files = _files(archive)
    try:
        manifest = json.loads(_file(files, "manifest.json", archive))
        with replacing(target) as part:
            _write(part, archive, files, manifest)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise TraceError(
            f"its manifest.json is not that of a kernel archive ({error!r})", file=str(archive)
        ) from error


def _files(archive: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    room = _MOST_BYTES
    try:
        with (
            archive.open("rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            for member in tar:
                if member.isdir():
                    continue
                content = tar.extractfile(member) if member.isreg() and member.size >= 0 else None
                if content is None:
                    raise TraceError(f"{member.name!r} in it is no plain file", file=str(archive))
                room -= member.size
                if room < 0:
                    raise TraceError(f"holds more than {_MOST_BYTES} bytes", file=str(archive))
                found[Path(member.name).name] = content.read()
    except OSError as error:
        raise TraceError(error.strerror or str(error), file=str(archive)) from error
    except (zstandard.ZstdError, tarfile.TarError, ValueError, EOFError) as error:
        raise TraceError(f"is no .tar.zst archive: {error}", file=str(archive)) from error
    return found


def _file(files: Mapping[str, bytes], name: str, archive: Path) -> bytes:
    if name not in files:
        raise TraceError(f"has no {name}", file=str(archive))
    return files[name]


def _write(target: Path, archive: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    source = _file(files, "source.ptx", archive)
    kernel, config = str(manifest["kernel_name"]), manifest["config"]
    layout = _layout(source, kernel, archive)
    packed = bytearray(max((offset + size for offset, size in layout), default=0))
    parameters = manifest["parameters"]
    if len(parameters) != len(layout):
        raise TraceError(
            f"{len(parameters)} parameters in manifest.json, {len(layout)} in the PTX", file=str(archive)
        )
    buffers: list[_Buffer] = []
    for index, (parameter, (offset, size)) in enumerate(zip(parameters, layout, strict=True)):
        data = bytearray(_file(files, f"param_{index}.bin", archive))
        if len(data) != size:
            raise TraceError(f"param_{index}.bin has {len(data)} bytes, the PTX {size}", file=str(archive))
        for pointer in parameter.get("pointer_offsets", ()):
            at = _whole(pointer, "offset_in_param", 0, size - 8)
            buffer = _buffer(files, f"param_{index}_ptr_{at}", buffers, archive)
            inside = _whole(pointer, "offset_in_buffer", 0, len(buffer.before))
            data[at : at + 8] = (buffer.address + inside).to_bytes(8, "little")
        packed[offset : offset + size] = data
    shape = (
        _dim3(config, "grid_dim", _GRID),
        _dim3(config, "block_dim", _BLOCK),
        _whole(config, "shared_mem_bytes", 0, _SHARED_BYTES),
    )
    if math.prod(shape[1]) > _THREADS:
        raise ValueError(f"a block of {math.prod(shape[1])} threads")
    with _Recording(target, archive) as recording:
        recording.start(source, kernel, layout)
        for buffer in buffers:
            recording.fill(buffer)
        recording.launch(*shape, bytes(packed), [b for b in buffers if b.after is not None])


def _layout(source: bytes, kernel: str, archive: Path) -> list[tuple[int, int]]:
    try:
        module = parse_module(source, file=f"{archive.name}:source.ptx")
        parameters = module.function(kernel).parameters
    except (PtxError, KeyError) as error:
        raise TraceError(f"kernel {kernel!r} is not in its source.ptx: {error}", file=str(archive)) from error
    return [(slot.offset, slot.size) for slot in parameter_layout(parameters)[0]]


def _buffer(files: Mapping[str, bytes], stem: str, buffers: list[_Buffer], archive: Path) -> _Buffer:
    before = _file(files, f"{stem}_pre.bin", archive)
    after = files.get(f"{stem}_post.bin")
    if after is not None and len(after) != len(before):
        raise TraceError(f"{stem}: {len(before)} bytes before and {len(after)} after", file=str(archive))
    address = _BASE if not buffers else _next(buffers[-1])
    buffers.append(_Buffer(address, before, after))
    return buffers[-1]


def _next(buffer: _Buffer) -> int:
    return buffer.address + -(-max(len(buffer.before), 1) // _STEP) * _STEP


def _dim3(config: Mapping[str, Any], key: str, most: Dim3) -> Dim3:
    """Three numbers, a list of them or by their names."""
    value = config[key]
    named = dict(zip("xyz", value, strict=True)) if isinstance(value, list) else value
    x, y, z = (_whole(named, name, 1, limit) for name, limit in zip("xyz", most, strict=True))
    return x, y, z


def _whole(holder: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = holder[key]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{key} is {value!r}; expected a whole number from {least} to {most}")
    return value


class _Recording:
    """The calls that a program would have made, written one by one."""

    def __init__(self, target: Path, archive: Path) -> None:
        self._writer = TraceWriter.create(
            target, {"capture": "outputs", "command": [archive.name], "imported_from": archive.name}
        )
        self._functions = driver_api()["functions"]
        self._sequence = 0
        self._allocations: dict[int, int] = {}
        self._kernel = 0

    def __enter__(self) -> _Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def call(self, function: str, out: Mapping[str, int] | None = None, /, **arguments: int) -> int:
        """A call that succeeded; ``out``: what it put where parameters point."""
        parameters = [
            Parameter(row["name"], row["type"], Direction(row["direction"]), row["pointee"])
            for row in self._functions[function]["parameters"]
        ]
        sizes = {one.name: one.pointee_size for one in parameters}
        after = {name: value.to_bytes(sizes[name], "little") for name, value in (out or {}).items()}
        words = [arguments.get(one.name, _POINTER if one.name in after else 0) for one in parameters]
        blob = ArgumentLayout(parameters).encode(words, None, after)
        number, self._sequence = self._sequence, self._sequence + 1
        signature = self._writer.signature(function, parameters)
        self._writer.add_calls([(number, 1, None, signature, number, number, 0, blob)])
        return number

    def payload(self, call: int, function: str, parameter: str, direction: Direction, data: bytes) -> None:
        names = [row["name"] for row in self._functions[function]["parameters"]]
        self._writer.add_payload(call, names.index(parameter), direction, data)

    def start(self, source: bytes, kernel: str, layout: list[tuple[int, int]]) -> None:
        """Context, module and kernel."""
        self.call("cuInit", Flags=0)
        self.call("cuDevicePrimaryCtxRetain", {"pctx": _CONTEXT}, dev=0)
        self.call("cuCtxSetCurrent", ctx=_CONTEXT)
        call = self.call("cuModuleLoadData", {"module": _MODULE}, image=_POINTER)
        module = self._writer.add_module(call, ModuleKind.PTX, _MODULE, image=source, origin="source.ptx")
        call = self.call("cuModuleGetFunction", {"hfunc": _FUNCTION}, hmod=_MODULE, name=_POINTER)
        self.payload(call, "cuModuleGetFunction", "name", Direction.IN, kernel.encode() + b"\0")
        self._kernel = self._writer.add_function(call, _FUNCTION, kernel, module=module, layout=layout)

    def fill(self, buffer: _Buffer) -> None:
        """Allocate a buffer and copy its contents there."""
        size = max(len(buffer.before), 1)
        call = self.call("cuMemAlloc_v2", {"dptr": buffer.address}, bytesize=size)
        self._allocations[buffer.address] = self._writer.add_allocation(call, buffer.address, size)
        if buffer.before:
            function = "cuMemcpyHtoD_v2"
            call = self.call(
                function, dstDevice=buffer.address, srcHost=_POINTER, ByteCount=len(buffer.before)
            )
            self.payload(call, function, "srcHost", Direction.IN, buffer.before)
            self._writer.add_page(call, self._allocations[buffer.address], 0, buffer.before)

    def launch(
        self, grid: Dim3, block: Dim3, shared_bytes: int, parameters: bytes, results: list[_Buffer]
    ) -> None:
        """The launch, with the pages that it changed in the buffers whose contents after it are known."""
        dims = ("X", "Y", "Z")
        call = self.call(
            "cuLaunchKernel",
            f=_FUNCTION,
            sharedMemBytes=shared_bytes,
            **{f"gridDim{d}": n for d, n in zip(dims, grid, strict=True)},
            **{f"blockDim{d}": n for d, n in zip(dims, block, strict=True)},
        )
        shape = self._writer.shape(
            self._kernel, grid, block, shared_bytes=shared_bytes, fidelity=Fidelity.UNKNOWN
        )
        self._writer.add_launch(call, shape, parameters, captured=True)
        for buffer in results:
            assert buffer.after is not None
            for start in range(0, len(buffer.after), PAGE_BYTES):
                piece = buffer.after[start : start + PAGE_BYTES]
                if piece != buffer.before[start : start + PAGE_BYTES]:
                    self._writer.add_page(call, self._allocations[buffer.address], start, piece)
