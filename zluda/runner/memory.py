"""Device memory seen from the near side, through the memory file that the runner's device lives in."""

from __future__ import annotations

import bisect
import mmap
import os
from collections.abc import Callable, Sequence


class DeviceMemory:
    """Reads device memory; what it reads is coherent between commands.

    ``ranges`` are (address, size, offset in the file ``fd``). ``copy`` reads what is in no range.
    """

    def __init__(
        self, fd: int | None, ranges: Sequence[tuple[int, int, int]], copy: Callable[[int, int], bytes]
    ) -> None:
        self._fd, self._ranges, self._copy = fd, sorted(ranges), copy
        self._starts = [start for start, _, _ in self._ranges]
        self._file: mmap.mmap | None = None

    def read(self, address: int, size: int) -> bytes:
        """``size`` bytes at ``address``: from the shared file where it is mapped, else by a message.

        Raises CudaError where neither has the bytes.
        """
        offset = self._offset(address, size)
        if offset is None or self._fd is None:
            return self._copy(address, size)
        pieces = []
        while size:  # pread stops short at 2 GiB
            piece = os.pread(self._fd, size, offset)
            if not piece:
                return self._copy(address, size)
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def view(self, address: int, size: int) -> memoryview | None:
        """A read-only view without a copy, or None where the bytes are not in the shared file.

        It shows memory as it changes and must be released before the runner is closed.
        """
        offset = self._offset(address, size)
        if offset is None or self._fd is None:
            return None
        if self._file is None:
            self._file = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
        return memoryview(self._file)[offset : offset + size]

    def _offset(self, address: int, size: int) -> int | None:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start, length, offset = self._ranges[at]
        return offset + address - start if address + size <= start + length else None

    def close(self) -> None:
        """Unmap and close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
