"""Clusters and tensor maps over NVIDIA's own driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zluda.device.cuda import libcuda
from zluda.device.cuda.launching import CLUSTER_DIMENSION, configuration
from zluda.driver.native_entries import INT

if TYPE_CHECKING:
    from zluda.compiler.tensor_map import Tensor
    from zluda.driver.base import Dim3

MAP_BYTES, _MAP_ALIGN = 128, 64  # CUtensorMap (cuda.h)
_SIZES, _COUNTS, _CORNERS = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int


def _array(element: type[Any], values: Sequence[int]) -> Any:
    return (element * max(len(values), 1))(*values)


class NativeTogether:
    """``cuOccupancyMaxActiveClusters`` and ``cuTensorMap*`` over libcuda."""

    _library: libcuda.LibCuda

    def cuOccupancyMaxActiveClusters(
        self, function: int, block: Dim3, shared_bytes: int, cluster: Dim3
    ) -> int:
        shape = b"".join(n.to_bytes(4, "little") for n in cluster)
        return self._of_clusters(
            "cuOccupancyMaxActiveClusters", function, cluster, block, shared_bytes, shape
        )

    def cuOccupancyMaxPotentialClusterSize(self, function: int, block: Dim3, shared_bytes: int) -> int:
        grid = (1, 1, 1)
        return self._of_clusters("cuOccupancyMaxPotentialClusterSize", function, grid, block, shared_bytes)

    def _of_clusters(
        self, entry: str, function: int, grid: Dim3, block: Dim3, shared_bytes: int, shape: bytes = b""
    ) -> int:
        attributes = [(CLUSTER_DIMENSION, shape)] if shape else []
        config, held = configuration(grid, block, shared_bytes, 0, attributes)
        found = self._library.get(entry, INT, function, config)
        del held  # the attributes, which the configuration points to
        return found

    def cuTensorMapEncodeTiled(self, tensor: Tensor, box: Sequence[int]) -> bytes:
        return self._encode("cuTensorMapEncodeTiled", tensor, _array(_COUNTS, box))

    def cuTensorMapEncodeIm2col(
        self, tensor: Tensor, lower: Sequence[int], upper: Sequence[int], channels: int, pixels: int
    ) -> bytes:
        corners = _array(_CORNERS, lower), _array(_CORNERS, upper)
        return self._encode("cuTensorMapEncodeIm2col", tensor, *corners, channels, pixels)

    def _encode(self, entry: str, tensor: Tensor, *shape: Any) -> bytes:
        kind, address, sizes, strides, steps, *options = tensor
        made = _Map()
        layout = _array(_SIZES, sizes), _array(_SIZES, strides), *shape, _array(_COUNTS, steps)
        self._library.call(entry, made.address, kind, len(sizes), address, *layout, *options)
        return made.content()

    def cuTensorMapReplaceAddress(self, found: bytes, address: int) -> bytes:
        made = _Map(bytes(found))
        self._library.call("cuTensorMapReplaceAddress", made.address, address)
        return made.content()


class _Map:
    """Room for a tensor map, aligned as the driver wants it."""

    def __init__(self, content: bytes = b"") -> None:
        self._room = ctypes.create_string_buffer(MAP_BYTES + _MAP_ALIGN)
        self.address = -(-ctypes.addressof(self._room) // _MAP_ALIGN) * _MAP_ALIGN
        ctypes.memmove(self.address, content, min(len(content), MAP_BYTES))

    def content(self) -> bytes:
        return ctypes.string_at(self.address, MAP_BYTES)
