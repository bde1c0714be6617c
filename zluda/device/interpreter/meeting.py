"""Barriers: who waits at them, and when they let go (PTX ISA 9.7.13.1, 9.7.13.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from zluda.device.interpreter.values import Bits
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.device.interpreter.machine import Key, Machine
    from zluda.device.interpreter.step import Step

_WARP = 32
_MEMBERS = {"shfl": -1, "vote": -1, "match": -1, "redux": -1, "elect": -1, "bar": -1}
"""Which operand of ``.sync`` instructions is the mask of lanes; those that are not named want all lanes."""


def members(step: Step) -> Bits | None:
    """For each thread the lanes that it waits for; None: it waits for none."""
    inst = step.inst
    if inst.opcode in ("shfl", "vote") and "sync" not in _words(step):
        return None
    which = _MEMBERS.get(inst.opcode)
    if which is None:
        return np.full(step.count, 0xFFFFFFFF, np.uint32)
    return step.value(inst.operands[which], ScalarType.B32)


def _words(step: Step) -> set[str]:
    return {*step.inst.slots, *step.inst.slots.values()}


@dataclass(slots=True)
class _Barrier:
    """One barrier of one block. ``arrived`` counts threads of ``bar.arrive``."""

    waiting: list[tuple[Key, Bits]] = field(default_factory=list)
    arrived: int = 0
    expected: int = 0
    finish: list[tuple[Step, Bits, Callable[[Step, Bits, Bits], None]]] = field(default_factory=list)


class Barriers:
    """The barriers of a machine's blocks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._barriers: dict[tuple[int, int], _Barrier] = {}

    def wait(
        self,
        step: Step,
        key: Key,
        number: Bits,
        expected: Bits,
        vote: Bits | None,
        finish: Callable[[Step, Bits, Bits], None] | None,
    ) -> None:
        """Threads wait; those that vote are told all votes by ``finish`` when the barrier lets go."""
        for barrier, mine, _ in self._of(step, number, expected):
            threads = step.threads[mine]
            barrier.waiting.append((key, threads))
            if finish is not None and vote is not None:
                barrier.finish.append((_part(step, threads), vote[mine], finish))
        self.check()

    def arrive(self, step: Step, number: Bits, expected: Bits) -> None:
        """Threads are counted, and go on."""
        for barrier, mine, _ in self._of(step, number, expected):
            warps = len(np.unique(step.threads[mine] // _WARP))
            barrier.arrived += warps * _WARP
        self.check()

    def _of(self, step: Step, number: Bits, expected: Bits) -> list[tuple[_Barrier, Bits, int]]:
        found = []
        blocks = self._machine.block_of(step.threads)
        for block, which in sorted(set(zip(blocks.tolist(), number.tolist(), strict=True))):
            mine = (blocks == block) & (number == which)
            barrier = self._barriers.setdefault((block, which), _Barrier())
            barrier.expected = int(expected[mine][0])
            found.append((barrier, mine, block))
        return found

    def check(self) -> None:
        """Let go those barriers that all have come to."""
        for (block, number), barrier in list(self._barriers.items()):
            if barrier.waiting and self._is_complete(block, barrier):
                del self._barriers[block, number]
                votes = [vote for _, vote, _ in barrier.finish]
                for step, _, finish in barrier.finish:
                    finish(step, step.threads, np.concatenate(votes))
                for key, threads in barrier.waiting:
                    self._machine.push((key[0], key[1], key[2] + 1), threads)

    def _is_complete(self, block: int, barrier: _Barrier) -> bool:
        machine = self._machine
        first = block * machine.per_block
        alive = machine.alive[first : first + machine.per_block].reshape(-1, _WARP)
        here = np.zeros(machine.per_block, np.bool_)
        for _, threads in barrier.waiting:
            here[threads - first] = True
        waits = here.reshape(-1, _WARP)
        complete = waits.any(axis=1) & (waits == alive).all(axis=1)
        if (waits.any(axis=1) & ~complete).any():
            return False  # a warp comes as a whole
        everybody = int(alive.any(axis=1).sum()) * _WARP
        return int(complete.sum()) * _WARP + barrier.arrived >= (barrier.expected or everybody)


def _part(step: Step, threads: Bits) -> Step:
    return type(step)(step.machine, step.frame, step.inst, step.pc, threads)


class Clusters:
    """``barrier.cluster``: arrivals and phases of clusters (PTX ISA 9.7.13.4)."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        size = machine.grid.cluster_blocks
        self._cluster = np.arange(len(machine.blocks)) // size
        count = len(machine.blocks) // size
        self._phase = np.zeros(count, np.int64)
        self._arrived = np.zeros(machine.count, np.bool_)
        self._of_thread = np.repeat(self._cluster, machine.per_block)
        self._wanted = np.zeros(machine.count, np.int64)
        self._waiting: list[tuple[Key, Bits]] = []

    def arrive(self, threads: Bits) -> None:
        """Threads are counted for the phase."""
        self._arrived[threads] = True
        self._wanted[threads] = self._phase[self._of_thread[threads]]
        self.check()

    def wait(self, threads: Bits, key: Key) -> None:
        """Threads wait for the end of the phase in which they arrived."""
        self._waiting.append((key, threads))
        self.check()

    def check(self) -> None:
        """End the phases that all threads have arrived in, and let go who waits for that."""
        alive = self._machine.alive
        missing = np.bincount(self._of_thread[alive & ~self._arrived], minlength=len(self._phase))
        came = np.bincount(self._of_thread[self._arrived], minlength=len(self._phase))
        over = (missing == 0) & (came > 0)
        self._phase[over] += 1
        self._arrived[over[self._of_thread]] = False
        waiting, self._waiting = self._waiting, []
        for key, threads in waiting:
            free = self._phase[self._of_thread[threads]] > self._wanted[threads]
            self._machine.push((key[0], key[1], key[2] + 1), threads[free])
            if not free.all():
                self._waiting.append((key, threads[~free]))
