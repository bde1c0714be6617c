"""Arrays, copies of rows, textures and surfaces over NVIDIA's own driver: structures in, handles out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from zluda.device.cuda import libcuda
from zluda.driver import descriptors
from zluda.driver.descriptors import Copy, CopyEnd, MemoryType, Resource, Texture, View
from zluda.driver.native_entries import HANDLE, SIZE
from zluda.tracefile.arrays import ArrayShape, Box

Bytes = bytes | bytearray | memoryview
_OBJECT = ctypes.c_uint64
_GETTERS: dict[str, tuple[int, Callable[[bytes], Any]]] = {
    "cuArrayGetDescriptor": (24, descriptors.decode_array),
    "cuArray3DGetDescriptor": (40, descriptors.decode_array),
    "cuTexObjectGetResourceDesc": (144, descriptors.decode_resource),
    "cuTexObjectGetTextureDesc": (104, descriptors.decode_texture),
    "cuTexObjectGetResourceViewDesc": (112, descriptors.decode_view),
    "cuSurfObjectGetResourceDesc": (144, descriptors.decode_resource),
}
"""Entry → bytes of the structure it writes, and what reads them."""


class NativeArrays:
    """:class:`zluda.driver.arrays.ArrayDriver` over libcuda."""

    _library: libcuda.LibCuda
    _call: Callable[..., None]

    def __init__(self) -> None:
        self._shapes: dict[int, ArrayShape] = {}  # array or mipmapped array → its shape
        self._levels: dict[int, list[int]] = {}  # mipmapped array → the arrays that are its levels

    # --- arrays -----------------------------------------------------------------------------------------

    def cuArrayCreate(self, shape: ArrayShape) -> int:
        return self._create("cuArrayCreate", shape, descriptors.encode_array(ArrayShape(*shape)))

    def cuArray3DCreate(self, shape: ArrayShape) -> int:
        return self._create("cuArray3DCreate", shape, descriptors.encode_array_3d(ArrayShape(*shape)))

    def cuMipmappedArrayCreate(self, shape: ArrayShape) -> int:
        shape = ArrayShape(*shape)
        content = descriptors.encode_array_3d(shape)
        array = self._create("cuMipmappedArrayCreate", shape, content, shape.levels)
        self._levels[array] = [
            self._library.get("cuMipmappedArrayGetLevel", HANDLE, array, level)
            for level in range(shape.levels)
        ]
        return array

    def _create(self, entry: str, shape: ArrayShape, descriptor: bytes, *rest: int) -> int:
        array = self._library.get(entry, HANDLE, descriptor, *rest)
        self._shapes[array] = ArrayShape(*shape)
        return array

    def cuMipmappedArrayGetLevel(self, array: int, level: int) -> int:
        return self._library.get("cuMipmappedArrayGetLevel", HANDLE, array, level)

    def cuArrayDestroy(self, array: int) -> None:
        self._call("cuArrayDestroy", array)
        self._shapes.pop(array, None)

    def cuMipmappedArrayDestroy(self, array: int) -> None:
        self._call("cuMipmappedArrayDestroy", array)
        self._shapes.pop(array, None)
        self._levels.pop(array, None)

    def cuArrayGetDescriptor(self, array: int) -> ArrayShape:
        shape: ArrayShape = self._get("cuArrayGetDescriptor", array)
        return shape

    def cuArray3DGetDescriptor(self, array: int) -> ArrayShape:
        shape: ArrayShape = self._get("cuArray3DGetDescriptor", array)
        return shape

    def array_address(self, array: int) -> int:
        """0: an NVIDIA GPU keeps arrays in an order of its own."""
        return 0

    def read_array(self, array: int, offset: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(max(size, 1))
        at = ctypes.addressof(data)
        for box in self._shapes[array].boxes(offset, size):
            ends = self._end(array, box), CopyEnd(host=at, pitch=box.width, height=box.height)
            at += self._copy_box(Copy(*ends, box.width, box.height, box.depth))
        return data.raw[:size]

    def write_array(self, array: int, offset: int, data: Bytes) -> None:
        content = ctypes.create_string_buffer(bytes(data), max(len(data), 1))
        at = ctypes.addressof(content)
        for box in self._shapes[array].boxes(offset, len(data)):
            ends = CopyEnd(host=at, pitch=box.width, height=box.height), self._end(array, box)
            at += self._copy_box(Copy(*ends, box.width, box.height, box.depth))

    def _end(self, array: int, box: Box) -> CopyEnd:
        levels = self._levels.get(array)
        handle = array if levels is None else levels[box.level]
        return CopyEnd(box.x, box.y, box.z, MemoryType.ARRAY, array=handle)

    def _copy_box(self, copy: Copy) -> int:
        self._call("cuMemcpy3D", descriptors.encode_copy(copy))
        return copy.size

    # --- copies -----------------------------------------------------------------------------------------

    def cuMemcpy2D(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._copy("cuMemcpy2D", copy, data)

    def cuMemcpy2DUnaligned(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._copy("cuMemcpy2DUnaligned", copy, data)

    def cuMemcpy2DAsync(self, copy: Copy, stream: int, data: Bytes = b"") -> bytes:
        return self._copy("cuMemcpy2DAsync", copy, data, stream)

    def cuMemcpy3D(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._copy("cuMemcpy3D", copy, data)

    def cuMemcpy3DAsync(self, copy: Copy, stream: int, data: Bytes = b"") -> bytes:
        return self._copy("cuMemcpy3DAsync", copy, data, stream)

    def _copy(self, entry: str, copy: Copy, data: Bytes, *stream: int) -> bytes:
        """The host's end is a buffer of rows without gaps."""
        copy = descriptors.copy_of(copy)
        buffer = ctypes.create_string_buffer(bytes(data), max(copy.size, len(data), 1))
        host = CopyEnd(host=ctypes.addressof(buffer), pitch=copy.width, height=copy.height)
        source, destination = (
            host if end.type == MemoryType.HOST else end for end in (copy.source, copy.destination)
        )
        flat = entry.startswith("cuMemcpy2D")
        encode = descriptors.encode_copy_2d if flat else descriptors.encode_copy
        self._call(entry, encode(copy._replace(source=source, destination=destination)), *stream)
        for one in stream:  # the buffer goes
            self._call("cuStreamSynchronize", one)
        return buffer.raw[: copy.size] if destination is host else b""

    def cuMemcpyHtoA(self, array: int, offset: int, data: Bytes) -> None:
        self._call("cuMemcpyHtoA", array, offset, bytes(data), len(data))

    def cuMemcpyHtoAAsync(self, array: int, offset: int, data: Bytes, stream: int) -> None:
        self._call("cuMemcpyHtoAAsync", array, offset, bytes(data), len(data), stream)
        self._call("cuStreamSynchronize", stream)

    def cuMemcpyAtoH(self, array: int, offset: int, size: int) -> bytes:
        return self._deliver("cuMemcpyAtoH", array, offset, size)

    def cuMemcpyAtoHAsync(self, array: int, offset: int, size: int, stream: int) -> bytes:
        return self._deliver("cuMemcpyAtoHAsync", array, offset, size, stream)

    def _deliver(self, entry: str, array: int, offset: int, size: int, *stream: int) -> bytes:
        data = ctypes.create_string_buffer(max(size, 1))
        self._call(entry, data, array, offset, size, *stream)
        for one in stream:
            self._call("cuStreamSynchronize", one)
        return data.raw[:size]

    # --- textures and surfaces --------------------------------------------------------------------------

    def cuTexObjectCreate(
        self, resource: Resource, texture: Texture, view: View | None = None, *, handle: int | None = None
    ) -> int:
        """``handle`` is not honoured: the driver gives out its own."""
        structures = (
            descriptors.encode_resource(Resource(*resource)),
            descriptors.encode_texture(descriptors.texture_of(texture)),
            None if view is None else descriptors.encode_view(View(*view)),
        )
        return self._library.get("cuTexObjectCreate", _OBJECT, *structures)

    def cuSurfObjectCreate(self, resource: Resource, *, handle: int | None = None) -> int:
        """As :meth:`cuTexObjectCreate`."""
        content = descriptors.encode_resource(Resource(*resource))
        return self._library.get("cuSurfObjectCreate", _OBJECT, content)

    def cuTexObjectGetResourceDesc(self, handle: int) -> Resource:
        resource: Resource = self._get("cuTexObjectGetResourceDesc", handle)
        return resource

    def cuTexObjectGetTextureDesc(self, handle: int) -> Texture:
        texture: Texture = self._get("cuTexObjectGetTextureDesc", handle)
        return texture

    def cuTexObjectGetResourceViewDesc(self, handle: int) -> View:
        view: View = self._get("cuTexObjectGetResourceViewDesc", handle)
        return view

    def cuSurfObjectGetResourceDesc(self, handle: int) -> Resource:
        resource: Resource = self._get("cuSurfObjectGetResourceDesc", handle)
        return resource

    def _get(self, entry: str, handle: int) -> Any:
        size, decode = _GETTERS[entry]
        data = ctypes.create_string_buffer(size)
        self._call(entry, data, handle)
        return decode(data.raw)

    # --- references -------------------------------------------------------------------------------------

    def cuTexRefSetAddress(self, reference: int, address: int, size: int) -> int:
        return self._library.get("cuTexRefSetAddress", SIZE, reference, address, size)

    def cuTexRefSetAddress2D(self, reference: int, shape: ArrayShape, address: int, pitch: int) -> None:
        content = descriptors.encode_array(ArrayShape(*shape))
        self._call("cuTexRefSetAddress2D", reference, content, address, pitch)

    def cuTexRefSetBorderColor(self, reference: int, color: tuple[float, float, float, float]) -> None:
        self._call("cuTexRefSetBorderColor", reference, (ctypes.c_float * 4)(*color))
