"""A launch: its shape, its parameters, and which blocks run together."""

from __future__ import annotations

from zluda.device.base import Dim3
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """``cluster`` is the shape of clusters in blocks, None where the launch has none. Sizes are in bytes.
    ``workspace`` is where the blocks of a cooperative grid synchronise, 0 of others.
    The launch has so many ``seconds``, until the ``deadline`` of the monotonic clock.
    """

    grid: Dim3
    block: Dim3
    parameters: bytes
    dynamic_shared: int
    cluster: Dim3 | None
    number: int
    seconds: float
    deadline: float
    workspace: int = 0

    @property
    def too_long(self) -> str:
        """That the time for a launch is over, in words."""
        return f"interpreting {self.blocks * self.threads:,} threads in {self.seconds:g} s"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster."""
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z

    def block_index(self, order: int) -> Dim3:
        """The index of the block that comes at a place: cluster after cluster, in each block after block."""
        if self.cluster is None:
            return _index(order, self.grid)
        which, inside = divmod(order, self.cluster_blocks)
        x, y, z = self.grid
        a, b, c = self.cluster
        i, j, k = _index(which, (x // a, y // b, z // c))
        p, q, r = _index(inside, self.cluster)
        return i * a + p, j * b + q, k * c + r

    def thread_index(self, number: int) -> Dim3:
        """A thread's index in its block."""
        return _index(number, self.block)


def _index(number: int, shape: Dim3) -> Dim3:
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])
