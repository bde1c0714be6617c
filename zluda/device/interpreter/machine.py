"""Some blocks of a grid, executed instruction by instruction.

All threads of these blocks that stand at one instruction execute it together, as one NumPy operation. Threads
that go different ways form *groups*; the group that is deepest in calls, then farthest behind in the text,
goes first, so that ways meet again where they join. PTX promises no order among threads (PTX ISA 3.1), and
any is lawful; so that a thread that waits for another in a loop does not keep it from ever going on, every
now and then it is the turn of the group that has waited longest.

An instruction that names lanes (``.sync``) is executed when they are there; until then its threads are
*parked*. Barriers count warps that wait (:mod:`.meeting`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from zluda.device.interpreter import special
from zluda.device.interpreter.frames import Code, Frame
from zluda.device.interpreter.meeting import Barriers, Clusters, members
from zluda.device.interpreter.registry import Opcode, load, spelled
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits
from zluda.errors import Error, LaunchError, UnsupportedError

if TYPE_CHECKING:
    from zluda.device.interpreter.code import KernelCode
    from zluda.device.interpreter.grid import Grid
    from zluda.device.interpreter.spaces import Spaces

WARP = 32
_TURNS, _OTHERS = 256, 32  # of so many choices, the last are the longest waiting group's
_LOOK = 16  # choices between two looks at the clock

Key = tuple[int, int, int]
"""Depth of calls as a negative number, number of the function, number of the instruction."""


class Machine:
    """``blocks`` are linear numbers of blocks of the grid; of a cluster all or none."""

    def __init__(
        self, kernel: KernelCode, grid: Grid, blocks: range, spaces: Callable[[Machine], Spaces]
    ) -> None:
        self.kernel, self.grid, self.blocks = kernel, grid, blocks
        self.warps_per_block = -(-grid.threads // WARP)
        self.per_block = self.warps_per_block * WARP
        self.count = len(blocks) * self.per_block
        self.alive = np.tile(np.arange(self.per_block) < grid.threads, len(blocks))
        self.steps = 0
        self.barriers, self.clusters = Barriers(self), Clusters(self)
        self.ready: dict[Key, Bits] = {}
        self.parked: dict[Key, Bits] = {}
        self.forced = False
        """Whether an instruction across lanes goes on without lanes that cannot come."""
        self.frames: dict[tuple[int, int], Frame] = {}
        self.returns: dict[int, tuple[Bits, Bits]] = {}  # depth → (function, instruction) to return to
        self.top = np.zeros(self.count, np.int64)  # where a thread's locals end
        self.scratch: dict[str, object] = {}
        """What opcodes keep about the blocks: asynchronous copies and the like."""
        self.spaces = spaces(self)
        self._opcodes: dict[str, Opcode] = load()
        self._special: dict[str, Bits] = {}

    # --- threads --------------------------------------------------------------------------------------

    def block_of(self, threads: Bits) -> Bits:
        """Which of this machine's blocks, from 0, threads are in."""
        return threads // self.per_block

    def special(self, name: str, step: Step) -> Bits:
        """A special register (PTX ISA 10)."""
        if special.varies(name):
            return special.varying(self, name, step)
        found = self._special.get(name)
        if found is None:
            found = self._special[name] = special.fixed(self, name, step)
        return found if step.count == self.count else found[step.threads]

    def address_of(self, step: Step, name: str) -> Bits:
        """The address of a variable or parameter in its own state space, or of a function."""
        return self.spaces.address_of(step, name)

    def frame(self, code: Code, depth: int) -> Frame:
        """The registers of a function at a depth."""
        key = (code.number, depth)
        found = self.frames.get(key)
        if found is None:
            found = self.frames[key] = Frame(code, self.count, np.zeros(self.count, np.int64))
        return found

    # --- running --------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end of all threads. Raises LaunchError and UnsupportedError."""
        entry = self.kernel.entry
        threads = np.flatnonzero(self.alive)
        self.top[:] = entry.frame_bytes
        self.spaces.reserve(entry.frame_bytes)
        self.push((0, entry.number, 0), threads)
        with np.errstate(all="ignore"):
            for turn in itertools.count():
                if not self.ready and not self._release():
                    return
                if turn % _LOOK == 0 and time.monotonic() > self.grid.deadline:
                    raise UnsupportedError(self.grid.too_long, f"kernel {self.kernel.name}", began=True)
                other = turn % _TURNS >= _TURNS - _OTHERS
                key = next(iter(self.ready)) if other else min(self.ready)
                self._go(key, self.ready.pop(key), alone=other)

    def push(self, key: Key, threads: Bits) -> None:
        """Have threads go on at an instruction."""
        if not len(threads):
            return
        there = self.ready.get(key)
        self.ready[key] = threads if there is None else np.union1d(there, threads)

    def park(self, key: Key, threads: Bits) -> None:
        """Have threads wait at an instruction for other lanes."""
        there = self.parked.get(key)
        self.parked[key] = threads if there is None else np.union1d(there, threads)

    def _go(self, key: Key, threads: Bits, *, alone: bool) -> None:
        """Until they part, meet others or end, or others are to go first."""
        depth, function, pc = key
        code = self.kernel.code(function)
        frame = self.frame(code, -depth)
        instructions, ready = code.instructions, self.ready
        while pc < len(instructions):
            inst = instructions[pc]
            self.steps += 1
            opcode = self._opcodes.get(spelled(inst))
            step = Step(self, frame, inst, pc, threads, depth)
            if opcode is None:
                raise step.unsupported()
            guarded = self._guarded(step)
            if opcode.kind == "control":
                self._control(step, guarded, depth, opcode)
                return
            if opcode.kind == "warp":
                threads = self._together(step, guarded, depth, opcode)
            elif guarded is None:
                self._execute(opcode, step)
            elif len(guarded):
                self._execute(opcode, Step(self, frame, inst, pc, guarded, depth))
            pc += 1
            if not len(threads):
                return
            if ready:
                here = (depth, function, pc)
                if here in ready or (not alone and min(ready) < here):
                    self.push(here, threads)
                    return
        self.exit_or_return(threads, depth, function)

    def _guarded(self, step: Step) -> Bits | None:
        """The threads whose guard holds; None where all execute it."""
        guard = step.inst.guard
        if guard is None:
            return None
        holds = step.register(guard.register)
        if guard.negated:
            holds = ~holds
        return None if holds.all() else step.threads[holds]

    def _execute(self, opcode: Opcode, step: Step) -> None:
        try:
            opcode.execute(step)
        except Error:
            raise
        except (KeyError, IndexError, ValueError, OverflowError, TypeError) as error:
            where = f"{step.frame.place}:{step.inst.location.line}"
            raise UnsupportedError(f"{step.inst.opcode}: {error}", where, began=True) from error

    def _control(self, step: Step, guarded: Bits | None, depth: int, opcode: Opcode) -> None:
        if guarded is not None:
            others = np.setdiff1d(step.threads, guarded, assume_unique=True)
            self.push((depth, step.frame.code.number, step.pc + 1), others)
            step = Step(self, step.frame, step.inst, step.pc, guarded, depth)
        if step.count:
            self._execute(opcode, step)

    # --- across lanes ---------------------------------------------------------------------------------

    def _together(self, step: Step, guarded: Bits | None, depth: int, opcode: Opcode) -> Bits:
        """Execute what has all its lanes; the threads that go on."""
        key = (depth, step.frame.code.number, step.pc)
        mine = step.threads if guarded is None else guarded
        others = None if guarded is None else np.setdiff1d(step.threads, mine, assume_unique=True)
        waiting = self.parked.pop(key, None)
        if waiting is not None:
            mine = np.union1d(mine, waiting)
        if not len(mine):
            return step.threads
        step = Step(self, step.frame, step.inst, step.pc, mine, depth)
        complete = None if self.forced else self._complete(step)
        self.forced = False
        go = mine if complete is None else mine[complete]
        if len(go) < len(mine):
            self.park(key, np.setdiff1d(mine, go, assume_unique=True))
        step = Step(self, step.frame, step.inst, step.pc, go, depth)
        self._others_go(step)
        if len(go):
            self._execute(opcode, step)
        return go if others is None or not len(others) else np.union1d(go, others)

    def _complete(self, step: Step) -> Bits | None:
        """Whether all lanes that an instruction names are there; None: of all threads."""
        if step.count == int(self.alive.sum()):
            return None
        needed = members(step)
        if needed is None:
            return None
        here = [step.threads, *(threads for _, threads in self._elsewhere(step))]
        present, alive = self.lanes(np.concatenate(here)), self.lanes(np.flatnonzero(self.alive))
        warp = step.threads // WARP
        wanted = needed & alive[warp]
        complete = (present[warp] & wanted) == wanted
        return None if complete.all() else complete

    def _elsewhere(self, step: Step) -> list[tuple[Key, Bits]]:
        """Threads that wait at another ``bar.warp.sync``: that will do (PTX ISA 9.7.13.2)."""
        if step.inst.opcode != "bar":
            return []
        return [
            (key, threads)
            for key, threads in self.parked.items()
            if self.kernel.code(key[1]).instructions[key[2]].opcode == "bar"
        ]

    def _others_go(self, step: Step) -> None:
        """With the lanes that go on, those of their warps go that waited elsewhere."""
        for key, threads in self._elsewhere(step):
            mine = np.isin(threads // WARP, step.threads // WARP)
            self.push((key[0], key[1], key[2] + 1), threads[mine])
            self.parked.pop(key)
            if not mine.all():
                self.park(key, threads[~mine])

    def lanes(self, threads: Bits) -> Bits:
        """Of each warp a mask of its lanes among threads."""
        found = np.zeros(self.count // WARP, np.uint32)
        np.bitwise_or.at(found, threads // WARP, np.uint32(1) << (threads % WARP).astype(np.uint32))
        return found

    # --- waiting --------------------------------------------------------------------------------------

    def exit_or_return(self, threads: Bits, depth: int, left: int) -> None:
        """Of threads at a function's end: back to who called it, or the thread's end."""
        if depth == 0:
            self.exit(threads)
            return
        from zluda.device.interpreter.opcodes.control import give_back  # which needs this module

        functions, instructions = self.returns[-depth]
        places = np.stack([functions[threads], instructions[threads]], axis=1)
        for function, pc in np.unique(places, axis=0).tolist():
            here = threads[(places[:, 0] == function) & (places[:, 1] == pc)]
            give_back(self, here, -depth, left, function, pc)
            self.push((depth + 1, function, pc + 1), here)

    def exit(self, threads: Bits) -> None:
        """The end of threads."""
        self.alive[threads] = False
        self.barriers.check()
        self.clusters.check()

    def _release(self) -> bool:
        """Nobody can go on: let go who waits for lanes that have ended, or cannot come; False at the end."""
        if self.parked:
            whole = [key for key in sorted(self.parked) if self._has_all(key)]
            key = whole[0] if whole else min(self.parked)
            self.forced = not whole
            self._go(key, self.parked.pop(key), alone=True)
            return True
        if not self.alive.any():
            return False
        first = int(np.flatnonzero(self.alive)[0])
        block, thread = self.place_of(first)
        raise LaunchError(
            "threads wait at a barrier for others that do not come to it",
            kernel=self.kernel.name,
            block=block,
            thread=thread,
        )

    def _has_all(self, key: Key) -> bool:
        """Whether some of the parked threads have the lanes that they wait for (others may have ended)."""
        code = self.kernel.code(key[1])
        step = Step(self, self.frame(code, -key[0]), code.instructions[key[2]], key[2], self.parked[key])
        complete = self._complete(step)
        return complete is None or bool(complete.any())

    def place_of(self, thread: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread, as PTX numbers them."""
        block, inside = divmod(thread, self.per_block)
        return self.grid.block_index(self.blocks[block]), self.grid.thread_index(inside)

    def fault(self, step: Step, message: str, which: int, address: int | None = None) -> LaunchError:
        """An error of the ``which``-th thread of a step."""
        block, thread = self.place_of(int(step.threads[which]))
        where = f"{message}, line {step.inst.location.line}"
        return LaunchError(where, kernel=self.kernel.name, block=block, thread=thread, address=address)
