"""CUDA arrays: device memory that holds their texels without gaps, level after level.

That is the layout of :mod:`zluda.tracefile.arrays`, and the one that compiled code reads
(:func:`zluda.numerics.texture.layout.tight_levels`).
"""

from __future__ import annotations

from zluda.driver.arrays import Bytes
from zluda.driver.descriptors import ResourceType
from zluda.driver.errors import CudaError
from zluda.driver.translated.state import Array, State, entry
from zluda.errors import DeviceError, UnsupportedError
from zluda.tracefile.arrays import CUBE, LAYERED, ArrayShape

CHANNELS = (1, 2, 4)
OF_ARRAYS = (ResourceType.ARRAY, ResourceType.MIPMAPPED_ARRAY)
_SPARSE = 0x40  # CUDA_ARRAY3D_SPARSE
# Most texels of a side, by dimensions (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability").
_LARGEST = {1: (131072,), 2: (131072, 65536), 3: (16384, 16384, 16384)}


class ArrayEntries:
    """``cuArray*``, ``cuMipmappedArray*``."""

    _state: State

    @entry()
    def cuArrayCreate(self, shape: ArrayShape) -> int:
        shape = ArrayShape(*shape)
        return self._create_array(shape._replace(depth=0, flags=0, levels=1))

    @entry()
    def cuArray3DCreate(self, shape: ArrayShape) -> int:
        return self._create_array(ArrayShape(*shape)._replace(levels=1))

    @entry()
    def cuMipmappedArrayCreate(self, shape: ArrayShape) -> int:
        shape = ArrayShape(*shape)
        sides = (shape.width, shape.height, 0 if shape.layered else shape.depth)
        if not 1 <= shape.levels <= max(sides).bit_length():
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{shape.levels} levels of {shape.text}")
        whole = self._create_array(shape)
        state = self._state
        made = state.arrays[whole]
        made.levels = tuple(state.arrays.add(level) for level in _levels(made, whole))
        return whole

    @entry()
    def cuMipmappedArrayGetLevel(self, array: int, level: int) -> int:
        levels = self._state.arrays[array].levels
        if not 0 <= level < len(levels):
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"level {level} of {len(levels)}")
        return levels[level]

    @entry()
    def cuArrayDestroy(self, array: int) -> None:
        found = self._state.arrays[array]
        if found.levels or found.whole:
            raise CudaError("CUDA_ERROR_INVALID_HANDLE", detail=f"{array:#x} belongs to a mipmapped array")
        free_array(self._state, array)

    @entry()
    def cuMipmappedArrayDestroy(self, array: int) -> None:
        if not self._state.arrays[array].levels:
            raise CudaError("CUDA_ERROR_INVALID_HANDLE", detail=f"{array:#x} is no mipmapped array")
        free_array(self._state, array)

    @entry()
    def cuArrayGetDescriptor(self, array: int) -> ArrayShape:
        return self._state.arrays[array].shape._replace(depth=0, flags=0)

    @entry()
    def cuArray3DGetDescriptor(self, array: int) -> ArrayShape:
        return self._state.arrays[array].shape

    @entry()
    def array_address(self, array: int) -> int:
        return self._state.arrays[array].address

    @entry()
    def read_array(self, array: int, offset: int, size: int) -> bytes:
        found = self._checked_range(array, offset, size)
        return self._state.device.read(found.address + offset, size) if size else b""

    @entry()
    def write_array(self, array: int, offset: int, data: Bytes) -> None:
        size = memoryview(data).nbytes
        found = self._checked_range(array, offset, size)
        if size:
            self._state.device.write(found.address + offset, data)

    def _checked_range(self, array: int, offset: int, size: int) -> Array:
        found = self._state.arrays[array]
        if offset < 0 or size < 0 or offset + size > found.shape.size:
            held = f"{found.shape.size} bytes of {found.shape.text}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{offset:#x}+{size:#x} leaves the {held}")
        return found

    def _create_array(self, shape: ArrayShape) -> int:
        _check(shape)
        state = self._state
        try:
            address = state.device.allocate(shape.size)
        except (DeviceError, MemoryError, OSError) as error:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY", detail=str(error)) from error
        return state.arrays.add(Array(shape, address, state.current()))


def _levels(made: Array, whole: int) -> list[Array]:
    """A mipmapped array's levels as arrays of their own, in its memory."""
    found = []
    for level in range(made.shape.levels):
        width, height, depth = (
            max(side >> level, 1) if side else 0
            for side in (made.shape.width, made.shape.height, made.shape.depth)
        )
        shape = made.shape._replace(
            width=width, height=height, depth=made.shape.depth if made.shape.layered else depth, levels=1
        )
        found.append(Array(shape, made.address + made.shape.level_at(level), made.context, whole=whole))
    return found


def _check(shape: ArrayShape) -> None:
    """UnsupportedError for a format that is not linearised, CUDA_ERROR_INVALID_VALUE for what is no array."""
    if shape.flags & _SPARSE:
        raise UnsupportedError("CUDA_ARRAY3D_SPARSE", "array descriptor")
    if not shape.element:
        raise UnsupportedError(f"CUarray_format {shape.format:#x}", "array descriptor")
    sides = [shape.width, shape.height] + ([] if shape.layered else [shape.depth])
    dimensions = sum(1 for side in sides if side)
    cube_of_6 = shape.width == shape.height and shape.depth and shape.depth % 6 == 0
    if (
        shape.channels not in CHANNELS
        or not shape.width
        or (len(sides) == 3 and shape.depth and not shape.height)
        or any(not 0 <= side <= most for side, most in zip(sides, _LARGEST[dimensions], strict=False))
        or (shape.flags & CUBE and not cube_of_6)
        or (shape.flags & CUBE and not shape.flags & LAYERED and shape.depth != 6)
        or (shape.flags & LAYERED and not 1 <= shape.depth <= 2048 * (1 + 5 * bool(shape.flags & CUBE)))
    ):
        detail = f"no such array: {shape.text}, flags {shape.flags:#x}"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)


def free_array(state: State, handle: int) -> None:
    """Free an array, and with a mipmapped one its levels. Code that reads a texture of it is stopped."""
    gone = state.arrays.remove(handle)
    for level in gone.levels:
        state.arrays.remove(level)
    _unbind(state, {handle, *gone.levels})
    if not gone.whole:
        state.device.free(gone.address)


def _unbind(state: State, arrays: set[int]) -> None:
    """Leave no descriptor that tells of these arrays' memory. Objects stay until they are destroyed."""
    for objects in (state.texture_objects, state.surface_objects):
        for handle, one in objects.items():
            if one.resource.type in OF_ARRAYS and one.resource.at in arrays:
                state.services.textures.remove(handle)
    for _, reference in state.references.items():
        bound = reference.resource
        if bound is not None and bound.type in OF_ARRAYS and bound.at in arrays:
            reference.resource = None
            if reference.address:
                state.services.textures.remove(reference.address)


def free_arrays_of(state: State, context: int) -> None:
    """Free the arrays that were made in a context."""
    for handle, array in state.arrays.items():
        if array.context == context and not array.whole:
            free_array(state, handle)
