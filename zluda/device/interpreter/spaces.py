"""State spaces (PTX ISA 5.1): what an address means, and reading and writing there.

Global memory and constants are where the device has placed them. Shared memory is one array for all blocks of
the machine, local memory one for all threads. A generic address of those is in a *window*, told by its upper
bits (PTX ISA 5.1.7 leaves their place open); no device memory reaches so high. In shared::cluster addresses,
bits from 24 on are 0 for the thread's own block, else one more than the rank of the block in its cluster.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from zluda.device.faults import outside
from zluda.device.interpreter.values import UNSIGNED, Bits

if TYPE_CHECKING:
    from zluda.device.cpu.memory import Memory
    from zluda.device.interpreter.machine import Machine
    from zluda.device.interpreter.step import Step

WINDOW_SHIFT = 52
SHARED, LOCAL, PARAM = 1, 2, 3
WINDOWS = {"shared": SHARED, "local": LOCAL, "param": PARAM}
RANK_SHIFT = 24
_OFFSET = np.uint64((1 << WINDOW_SHIFT) - 1)


def window(space: str) -> np.uint64:
    """The generic address at which a space begins; 0 for global memory and constants."""
    return np.uint64(WINDOWS.get(space, 0) << WINDOW_SHIFT)


class Spaces:
    """The memory of one machine; ``checked`` are (start, size) of what accesses may reach, None: all there
    is."""

    def __init__(self, machine: Machine, memory: Memory, *, checked: list[tuple[int, int]] | None) -> None:
        self._machine, self._memory = machine, memory
        self._ranges = [(one.start, one.size) for one in memory.ranges]
        self._checked = None if checked is None else np.array(sorted(checked) or [(0, 0)], np.uint64)
        self._views: dict[tuple[int, int], Bits] = {}
        kernel, grid = machine.kernel, machine.grid
        self._shared_size = (
            kernel.dynamic_offset + grid.dynamic_shared if grid.dynamic_shared else kernel.shared_bytes
        )
        self._stride = -(-max(self._shared_size, 16) // 16) * 16
        self._shared = np.zeros(len(machine.blocks) * self._stride, np.uint8)
        self._parameters = np.frombuffer(
            grid.parameters.ljust(16 + len(grid.parameters), b"\0"), np.uint8
        ).copy()
        self._row = 0  # bytes of local memory of a thread
        self._local = np.zeros((machine.count, 0), np.uint8)

    def reserve(self, size: int) -> None:
        """Have so many bytes of local memory a thread."""
        if size > self._row:
            row = max(64, 1 << (size - 1).bit_length())
            local = np.zeros((self._machine.count, row), np.uint8)
            local[:, : self._row] = self._local
            self._row, self._local = row, local

    # --- addresses ------------------------------------------------------------------------------------

    def address_of(self, step: Step, name: str) -> Bits:
        """Of a variable, parameter or function, in its own space."""
        machine, code = self._machine, step.frame.code
        if name in code.locals:
            own = step.frame.base[step.threads] + code.locals[name]
            variable = code.variables.get(name)
            found = own.astype(np.uint64)
            # A function's parameter is kept where locals are, and its address is generic.
            return found if variable is not None and variable.space == "local" else found | window("local")
        kernel = machine.kernel
        if code.function.is_entry and name in kernel.parameter_offsets:
            return np.full(step.count, kernel.parameter_offsets[name], np.uint64)
        if name in kernel.shared_offsets:
            return np.full(step.count, kernel.shared_offsets[name], np.uint64)
        return np.full(step.count, kernel.address(name), np.uint64)

    def space_of(self, step: Step, name: str) -> str:
        """The space that a variable's address is in; empty for a generic one."""
        code, kernel = step.frame.code, self._machine.kernel
        variable = code.variables.get(name)
        if name in code.locals:
            return "local" if variable is not None and variable.space == "local" else ""
        if code.function.is_entry and name in kernel.parameter_offsets:
            return "param"
        return "shared" if name in kernel.shared_offsets else "global"

    # --- access ---------------------------------------------------------------------------------------

    def load(self, step: Step, space: str, addresses: Bits, size: int) -> Bits:
        """``size`` bytes (1, 2, 4 or 8) at each address."""
        found = np.zeros(step.count, UNSIGNED[8 * size])
        for view, index, mine in self._places(step, space, addresses, size):
            if mine is None:
                return np.asarray(view[index])
            found[mine] = view[index]
        return found

    def store(self, step: Step, space: str, addresses: Bits, values: Bits) -> None:
        """Write each value; of several at one address the last thread's stays."""
        for view, index, mine in self._places(step, space, addresses, values.dtype.itemsize):
            view[index] = values if mine is None else values[mine]

    def places(
        self, step: Step, space: str, addresses: Bits, size: int
    ) -> list[tuple[Bits, Bits, Bits | None]]:
        """Arrays with the element of each that an address names; and whose those are, None: everybody's."""
        return self._places(step, space, addresses, size)

    def _places(
        self, step: Step, space: str, addresses: Bits, size: int
    ) -> list[tuple[Bits, Bits, Bits | None]]:
        if not step.count:
            return []
        if (addresses % np.uint64(size)).any():
            which = int(np.flatnonzero(addresses % np.uint64(size))[0])
            raise step.machine.fault(step, f"misaligned address: {size} bytes", which, int(addresses[which]))
        if space in ("", "generic") or space == "param":
            return self._generic(step, space, addresses, size)
        if space.startswith("shared"):
            return [(*self._in_shared(step, addresses, size, None), None)]
        if space == "local":
            return [(*self._in_local(step, addresses, size, None), None)]
        return self._in_global(step, addresses, size, None)

    def _generic(
        self, step: Step, space: str, addresses: Bits, size: int
    ) -> list[tuple[Bits, Bits, Bits | None]]:
        windows = (addresses >> np.uint64(WINDOW_SHIFT)).astype(np.int64)
        if space == "param":
            windows = np.where(windows == 0, PARAM, windows)
        found: list[tuple[Bits, Bits, Bits | None]] = []
        kinds = np.unique(windows)
        for kind in kinds.tolist():
            mine = None if len(kinds) == 1 else np.flatnonzero(windows == kind)
            part = (addresses if mine is None else addresses[mine]) & (
                _OFFSET if 1 <= kind <= 3 else ~np.uint64(0)
            )
            if kind == SHARED:
                found.append((*self._in_shared(step, part, size, mine), mine))
            elif kind == LOCAL:
                found.append((*self._in_local(step, part, size, mine), mine))
            elif kind == PARAM:
                self._inside(step, part, size, len(self._parameters) - 16, "parameters", mine)
                found.append(
                    (
                        self._parameters[: len(self._parameters) // 8 * 8].view(UNSIGNED[8 * size]),
                        part // np.uint64(size),
                        mine,
                    )
                )
            else:
                found += self._in_global(step, part, size, mine)
        return found

    def _inside(self, step: Step, offsets: Bits, size: int, end: int, what: str, mine: Bits | None) -> None:
        wrong = offsets + np.uint64(size) > np.uint64(end)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            which = first if mine is None else int(mine[first])
            told = f"out of bounds of {what}: {size} bytes at {int(offsets[first]):#x}, {end} bytes are there"
            raise step.machine.fault(step, told, which, int(offsets[first]))

    def _in_shared(self, step: Step, addresses: Bits, size: int, mine: Bits | None) -> tuple[Bits, Bits]:
        block = self._machine.block_of(step.threads if mine is None else step.threads[mine])
        rank = (addresses >> np.uint64(RANK_SHIFT)).astype(np.int64)
        offsets = addresses & np.uint64((1 << RANK_SHIFT) - 1)
        if rank.any():
            blocks = self._machine.grid.cluster_blocks
            self._inside(step, np.maximum(rank - 1, 0).astype(np.uint64), 1, blocks, "the cluster", mine)
            block = np.where(rank > 0, block // blocks * blocks + rank - 1, block)
        self._inside(step, offsets, size, self._shared_size, "shared memory", mine)
        index = (offsets.astype(np.int64) + block * self._stride) // size
        return self._shared.view(UNSIGNED[8 * size]), index

    def _in_local(self, step: Step, addresses: Bits, size: int, mine: Bits | None) -> tuple[Bits, Bits]:
        self._inside(step, addresses, size, self._row, "local memory", mine)
        threads = step.threads if mine is None else step.threads[mine]
        index = (addresses.astype(np.int64) + threads * self._row) // size
        return self._local.reshape(-1).view(UNSIGNED[8 * size]), index

    def _in_global(
        self, step: Step, addresses: Bits, size: int, mine: Bits | None
    ) -> list[tuple[Bits, Bits, Bits | None]]:
        if self._checked is not None:
            self._allowed(step, addresses, size, mine)
        found: list[tuple[Bits, Bits, Bits | None]] = []
        left = np.ones(len(addresses), np.bool_)
        for start, length in self._ranges:
            inside = (
                left
                & (addresses >= np.uint64(start))
                & (addresses + np.uint64(size) <= np.uint64(start + length))
            )
            if not inside.any():
                continue
            left &= ~inside
            whole = bool(inside.all())
            part = addresses if whole else addresses[inside]
            whose = mine if whole else (np.flatnonzero(inside) if mine is None else mine[inside])
            found.append(
                (self._view(start, length, size), (part - np.uint64(start)) // np.uint64(size), whose)
            )
            if whole:
                break
        if left.any():
            self._outside(step, addresses, size, left, mine)
        return found

    def _view(self, start: int, length: int, size: int) -> Bits:
        found = self._views.get((start, size))
        if found is None:
            raw = memoryview((ctypes.c_char * length).from_address(start)).cast("B")
            found = self._views[start, size] = np.frombuffer(raw, UNSIGNED[8 * size])
        return found

    def _allowed(self, step: Step, addresses: Bits, size: int, mine: Bits | None) -> None:
        assert self._checked is not None
        starts = self._checked[:, 0]
        which = np.searchsorted(starts, addresses, side="right").astype(np.int64) - 1
        there = self._checked[np.maximum(which, 0)]
        wrong = (which < 0) | (addresses + np.uint64(size) > there[:, 0] + there[:, 1])
        if wrong.any():
            self._outside(step, addresses, size, wrong, mine)

    def _outside(self, step: Step, addresses: Bits, size: int, wrong: Bits, mine: Bits | None) -> None:
        first = int(np.flatnonzero(wrong)[0])
        which = first if mine is None else int(mine[first])
        address = int(addresses[first])
        told = f"illegal address: {outside(address, size, self._memory.allocations())}"
        raise step.machine.fault(step, told, which, address)
