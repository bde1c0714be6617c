"""Copies and fills of rows: between host memory, device memory and arrays.

Each end is a place for the first row, with the distances of rows and slices; rows that adjoin on both sides
are moved together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zluda.driver.arrays import Bytes
from zluda.driver.descriptors import Copy, CopyEnd, MemoryType, copy_of
from zluda.driver.errors import CudaError
from zluda.driver.translated.arrays import ArrayEntries
from zluda.driver.translated.memory import MemoryEntries
from zluda.driver.translated.services import check_output
from zluda.driver.translated.state import entry
from zluda.tracefile.arrays import rows


class _Place(NamedTuple):
    """Where an end's rows are: on the device, or (host) in the bytes that go in or come out."""

    first: int
    pitch: int
    slice_bytes: int
    host: bool = False

    def starts(self, copy: Copy) -> Iterator[int]:
        return rows(self.first, self.pitch, self.slice_bytes, copy.width, copy.height, copy.depth)


class BoxEntries(MemoryEntries, ArrayEntries):
    """``cuMemcpy2D*``, ``cuMemcpy3D*``, ``cuMemcpy*A*``, ``cuMemsetD2D*``."""

    # --- boxes ------------------------------------------------------------------------------------------

    @entry()
    def cuMemcpy2D(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._waited(self._copy_box(copy, data))

    @entry()
    def cuMemcpy2DUnaligned(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._waited(self._copy_box(copy, data))

    @entry()
    def cuMemcpy3D(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._waited(self._copy_box(copy, data))

    @entry()
    def cuMemcpy2DAsync(self, copy: Copy, stream: int, data: Bytes = b"") -> bytes:
        self._check_stream(stream)
        return self._copy_box(copy, data)

    @entry()
    def cuMemcpy3DAsync(self, copy: Copy, stream: int, data: Bytes = b"") -> bytes:
        self._check_stream(stream)
        return self._copy_box(copy, data)

    def _waited(self, delivered: bytes) -> bytes:
        """After an entry that waits for the device."""
        check_output(self._state)
        return delivered

    def _copy_box(self, copy: Copy, data: Bytes) -> bytes:
        copy = copy_of(copy)
        if not copy.size:
            return b""
        source, destination = (self._place(copy, end) for end in (copy.source, copy.destination))
        if source.host and memoryview(data).nbytes != copy.size:
            detail = f"{memoryview(data).nbytes} bytes from the host; the copy takes {copy.size}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        delivered = bytearray(copy.size if destination.host else 0)
        view, device = memoryview(data).cast("B"), self._state.device
        for at, to, size in _runs(copy, source, destination):
            if source.host and destination.host:
                delivered[to : to + size] = view[at : at + size]
            elif source.host:
                device.write(to, view[at : at + size])
            elif destination.host:
                delivered[to : to + size] = device.read(at, size)
            else:
                device.copy(to, at, size)
        return bytes(delivered)

    def _place(self, copy: Copy, end: CopyEnd) -> _Place:
        """CUDA_ERROR_INVALID_VALUE where the box leaves its array or its allocation."""
        if end.type == MemoryType.HOST:
            return _Place(0, copy.width, copy.width * copy.height, host=True)
        if end.type == MemoryType.ARRAY:
            return self._place_in_array(copy, end)
        if end.type not in (MemoryType.DEVICE, MemoryType.UNIFIED):
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"memory type {end.type}")
        pitch, slice_bytes = end.step(copy.width, copy.height)
        if copy.height > 1 and pitch < end.x + copy.width:
            detail = f"a pitch of {pitch} bytes; the rows have {end.x + copy.width}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        first = end.device + end.z * slice_bytes + end.y * pitch + end.x
        self._checked(first, (copy.depth - 1) * slice_bytes + (copy.height - 1) * pitch + copy.width)
        return _Place(first, pitch, slice_bytes)

    def _place_in_array(self, copy: Copy, end: CopyEnd) -> _Place:
        array = self._state.arrays[end.array]
        row, height, depth = array.shape.extent()
        ends = (end.x + copy.width, end.y + copy.height, end.z + copy.depth)
        if any(stop > most for stop, most in zip(ends, (row, height, depth), strict=True)):
            detail = f"a box up to {ends} in {array.shape.text}, which ends at {(row, height, depth)}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        texel = array.shape.texel_bytes
        if end.x % texel or copy.width % texel:
            detail = f"{copy.width} bytes from byte {end.x}; texels have {texel}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        first = array.address + end.z * row * height + end.y * row + end.x
        return _Place(first, row, row * height)

    # --- one range of an array --------------------------------------------------------------------------

    @entry()
    def cuMemcpyHtoA(self, array: int, offset: int, data: Bytes) -> None:
        self.write_array(array, offset, data)
        check_output(self._state)

    @entry()
    def cuMemcpyHtoAAsync(self, array: int, offset: int, data: Bytes, stream: int) -> None:
        self._check_stream(stream)
        self.write_array(array, offset, data)

    @entry()
    def cuMemcpyAtoH(self, array: int, offset: int, size: int) -> bytes:
        return self._waited(self.read_array(array, offset, size))

    @entry()
    def cuMemcpyAtoHAsync(self, array: int, offset: int, size: int, stream: int) -> bytes:
        self._check_stream(stream)
        return self.read_array(array, offset, size)

    @entry()
    def cuMemcpyDtoA(self, array: int, offset: int, source: int, size: int) -> None:
        found = self._checked_range(array, offset, size)
        if self._checked(source, size):
            self._state.device.copy(found.address + offset, source, size)

    @entry()
    def cuMemcpyAtoD(self, destination: int, array: int, offset: int, size: int) -> None:
        found = self._checked_range(array, offset, size)
        if self._checked(destination, size):
            self._state.device.copy(destination, found.address + offset, size)

    @entry()
    def cuMemcpyAtoA(self, array: int, offset: int, source: int, source_offset: int, size: int) -> None:
        to = self._checked_range(array, offset, size)
        origin = self._checked_range(source, source_offset, size)
        if size:
            self._state.device.copy(to.address + offset, origin.address + source_offset, size)

    # --- fills ------------------------------------------------------------------------------------------

    @entry()
    def cuMemsetD2D8(self, destination: int, pitch: int, value: int, width: int, height: int) -> None:
        self._fill_rows(destination, pitch, value, 1, width, height)

    @entry()
    def cuMemsetD2D16(self, destination: int, pitch: int, value: int, width: int, height: int) -> None:
        self._fill_rows(destination, pitch, value, 2, width, height)

    @entry()
    def cuMemsetD2D32(self, destination: int, pitch: int, value: int, width: int, height: int) -> None:
        self._fill_rows(destination, pitch, value, 4, width, height)

    @entry()
    def cuMemsetD2D8Async(
        self, destination: int, pitch: int, value: int, width: int, height: int, stream: int
    ) -> None:
        self._check_stream(stream)
        self._fill_rows(destination, pitch, value, 1, width, height)

    @entry()
    def cuMemsetD2D16Async(
        self, destination: int, pitch: int, value: int, width: int, height: int, stream: int
    ) -> None:
        self._check_stream(stream)
        self._fill_rows(destination, pitch, value, 2, width, height)

    @entry()
    def cuMemsetD2D32Async(
        self, destination: int, pitch: int, value: int, width: int, height: int, stream: int
    ) -> None:
        self._check_stream(stream)
        self._fill_rows(destination, pitch, value, 4, width, height)

    def _fill_rows(
        self, destination: int, pitch: int, value: int, unit: int, width: int, height: int
    ) -> None:
        if destination % unit or (height > 1 and (pitch % unit or pitch < width * unit)):
            detail = f"{destination:#x}, pitch {pitch}, rows of {width} × {unit} bytes"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        if not width or not height or not self._checked(destination, (height - 1) * pitch + width * unit):
            return
        pattern = (value & ((1 << 8 * unit) - 1)).to_bytes(unit, "little")
        together = height if pitch == width * unit else 1
        for row in range(0, height, together):
            self._state.device.fill(destination + row * pitch, pattern, width * together)


def _runs(copy: Copy, source: _Place, destination: _Place) -> Iterator[tuple[int, int, int]]:
    """(from, to, bytes) of the rows, those together that adjoin on both sides."""
    run: tuple[int, int, int] | None = None
    for at, to in zip(source.starts(copy), destination.starts(copy), strict=True):
        if run is not None and (at, to) == (run[0] + run[2], run[1] + run[2]):
            run = (run[0], run[1], run[2] + copy.width)
            continue
        if run is not None:
            yield run
        run = (at, to, copy.width)
    if run is not None:
        yield run
