"""Device memory of a kernel whose blocks run together: clusters' shared memory, a grid's workspace."""

from __future__ import annotations

from zluda.compiler.amd import clusters
from zluda.compiler.target import Together
from zluda.device.base import Dim3
from zluda.device.placement import VariableMemory

_WORKSPACE_BYTES = 64
_ALIGN = 1024  # what shared memory may be aligned to, for matrix instructions


class ClusterMemory:
    """Made when a launch first needs it, and as large as one needed it; launches of a kernel share it."""

    def __init__(self, memory: VariableMemory) -> None:
        self._memory = memory
        self._workspace = self._place = self._size = 0

    def workspace(self) -> int:
        """The address of a cooperative grid's workspace: its size, then a barrier nobody is at."""
        if not self._workspace:
            self._workspace = self._memory.allocate(_WORKSPACE_BYTES, None)
            self._memory.write(self._workspace, (16).to_bytes(_WORKSPACE_BYTES, "little"))
        return self._workspace

    def parameters(
        self, explicit: bytes, grid: Dim3, together: Together, shared_bytes: int, dynamic_bytes: int
    ) -> bytes:
        """A kernel's own parameters and those of a launch in clusters; ``shared_bytes`` are a block's."""
        blocks = grid[0] * grid[1] * grid[2]
        shift = max(shared_bytes - 1, _ALIGN - 1).bit_length()
        records = blocks // together.blocks * clusters.RECORD_BYTES
        start = -(-records >> shift << shift) if records >> shift else 1 << shift
        address = self._provide(start + (blocks << shift), 1 << shift)
        begin = address + start
        self._memory.write(begin - records, bytes(records))
        return clusters.parameters(explicit, begin, shift, dynamic_bytes)

    def _provide(self, size: int, align: int) -> int:
        """An address at a multiple of ``align`` with so many bytes behind it."""
        if self._size < size + align:
            self.free_clusters()
            self._place, self._size = self._memory.allocate(size + align, None), size + align
        return -(-self._place // align) * align

    def free_clusters(self) -> None:
        """Give clusters' memory back."""
        if self._place:
            self._memory.free(self._place)
            self._place = self._size = 0

    def free(self) -> None:
        """Give everything back."""
        self.free_clusters()
        if self._workspace:
            self._memory.free(self._workspace)
            self._workspace = 0
