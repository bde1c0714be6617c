"""What a kernel takes with the functions that are compiled apart: registers and scratch, in its descriptor.

LLVM sums up what the functions of a module take. Calls out of the module count nothing in it (``llvm.py``
says so), and mark the kernel as one of a stack without bounds. Here the sum goes on over the objects behind
the kernel's: the most registers, and scratch along the deepest chain of calls. It is written where the
machine and the loader read it: the kernel descriptor and the metadata (LLVM "User Guide for AMDGPU Backend",
"Kernel Descriptor", "Code Object V5 Metadata"). What a function takes, LLVM tells in the metadata of a kernel
that does nothing but call it (:func:`measuring_kernel`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from zluda.compiler.amd.linker import Section, Symbol, read_object
from zluda.compiler.amd.targets import Target
from zluda.compiler.gpu.thread import LOCAL
from zluda.compiler.library import LibraryFunction
from zluda.compiler.relocatable import SHT_NOTE, merge
from zluda.errors import Error
from zluda.records import dataclass

_PRIVATE, _RSRC3, _RSRC1, _PROPERTIES = 4, 44, 48, 56  # offsets in a kernel descriptor
_DYNAMIC_STACK = 1 << 11  # of the properties
_FIELDS = ("vgpr_count", "sgpr_count", "private_segment_fixed_size")
_NT_AMDGPU_METADATA = 32


@dataclass(frozen=True, slots=True)
class Resources:
    """Registers a lane and a wave, and bytes of scratch a lane, as the metadata call them."""

    vgpr_count: int
    sgpr_count: int
    private_segment_fixed_size: int


MEASURE = "zluda.measure"


def measuring_kernel(function: str, pointers: int) -> str:
    """IR of a kernel that calls a function of so many pointers to scratch."""
    arguments = ", ".join([f"{LOCAL} null"] * pointers)
    return (
        f"define amdgpu_kernel void @{MEASURE}() #1 {{\n  call void @{function}({arguments})\n  ret void\n}}"
    )


def measured(data: bytes) -> tuple[bytes, Resources]:
    """A function's object with its measuring kernel out of sight, and what the function takes."""
    found = resources(data, MEASURE)
    return merge(data, [], local=frozenset((MEASURE, f"{MEASURE}.kd"))), found


def resources(data: bytes, kernel: str) -> Resources:
    """What the metadata of an object say that a kernel takes, functions of other objects left out."""
    for section in read_object(data).sections:
        if section.type == SHT_NOTE:
            for row in _metadata(section)["amdhsa.kernels"]:
                if row[".name"] == kernel:
                    return Resources(*(row[f".{f}"] for f in _FIELDS))
    raise Error(f"an object does not tell what {kernel} takes")


def with_functions(
    kernel: bytes,
    name: str,
    called: Iterable[str],
    functions: Sequence[LibraryFunction],
    target: Target,
    wave_size: int,
    *,
    bounded: bool,
) -> bytes:
    """The kernel's object with library functions behind it; ``called`` names those it calls itself.

    ``bounded``: no recursion of the kernel's own asks for a stack without bounds.
    """
    own = resources(kernel, name)
    each = {f.name: Resources(*f.resources) for f in functions}
    calls = {f.name: f.calls for f in functions}

    def deepest(names: Iterable[str]) -> int:
        return max((each[n].private_segment_fixed_size + deepest(calls[n]) for n in names), default=0)

    total = Resources(
        max(own.vgpr_count, *(r.vgpr_count for r in each.values())),
        max(own.sgpr_count, *(r.sgpr_count for r in each.values())),
        own.private_segment_fixed_size + deepest(called),
    )
    return merge(_told(kernel, name, total, target, wave_size, bounded=bounded), [f.code for f in functions])


def _told(
    kernel: bytes, name: str, total: Resources, target: Target, wave_size: int, *, bounded: bool
) -> bytes:
    """The kernel's object with other resources in descriptor and metadata."""
    source = read_object(kernel)
    symbol = next(s for s in source.symbols if s.name == f"{name}.kd")
    descriptor = source.sections[symbol.section]
    _describe(descriptor.data, symbol, total, target, wave_size, bounded=bounded)
    changed = {descriptor.name: bytes(descriptor.data)}
    for section in source.sections:
        if section.type == SHT_NOTE:
            changed[section.name] = _note(section, name, total, bounded=bounded)
    return merge(kernel, [], changed)


def _describe(
    data: bytearray, symbol: Symbol, total: Resources, target: Target, wave_size: int, *, bounded: bool
) -> None:
    def field(offset: int, kind: str) -> int:
        return int(struct.unpack_from(kind, data, symbol.value + offset)[0])

    def put(offset: int, kind: str, value: int) -> None:
        struct.pack_into(kind, data, symbol.value + offset, value)

    put(_PRIVATE, "<I", total.private_segment_fixed_size)
    vgprs = max(total.vgpr_count, 1)
    granule = 8 if wave_size == 32 or target.packed_f32 else 4
    rsrc1 = field(_RSRC1, "<I") & ~0x3F | -(-vgprs // granule) - 1
    if target.generation == 9:
        sgprs = 2 * (-(-total.sgpr_count // 16) - 1)
        rsrc1 = rsrc1 & ~0x3C0 | max(sgprs, rsrc1 >> 6 & 15) << 6
    put(_RSRC1, "<I", rsrc1)
    if target.packed_f32:  # where accumulation registers begin, of which there are none
        put(_RSRC3, "<I", field(_RSRC3, "<I") & ~0x3F | -(-vgprs // 4) - 1)
    if bounded:
        put(_PROPERTIES, "<H", field(_PROPERTIES, "<H") & ~_DYNAMIC_STACK)


def _metadata(section: Section) -> dict[str, Any]:
    """The metadata in a section of one note; without kernels where it holds something else."""
    import msgpack

    data = bytes(section.data)
    name_size, size, kind = struct.unpack_from("<III", data)
    start = 12 + (name_size + 3 & ~3)
    if kind != _NT_AMDGPU_METADATA:
        return {"amdhsa.kernels": []}
    unpacked: dict[str, Any] = msgpack.unpackb(data[start : start + size])
    return unpacked


def _note(section: Section, name: str, total: Resources, *, bounded: bool) -> bytes:
    """The section with the kernel's row changed."""
    import msgpack

    metadata = _metadata(section)
    for row in metadata["amdhsa.kernels"]:
        if row[".name"] == name:
            row |= {f".{f}": getattr(total, f) for f in _FIELDS}
            if bounded and ".uses_dynamic_stack" in row:
                row[".uses_dynamic_stack"] = False
    packed: bytes = msgpack.packb(metadata)
    name_size, _, kind = struct.unpack_from("<III", section.data)
    start = 12 + (name_size + 3 & ~3)
    header = struct.pack("<III", name_size, len(packed), kind)
    return header + bytes(section.data[12:start]) + packed + bytes(-len(packed) % 4)
