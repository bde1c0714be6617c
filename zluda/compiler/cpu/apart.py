"""Lanes that come to a barrier while others of their warp are on the way to another.

Whoever is not at the barrier has left, waits at a block under a mask, or is where the masked blocks end.
Those that can only leave are waited for by nobody; the others would have to run on while these wait (PTX ISA
9.7.13.1), which masks cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from zluda.compiler.analysis.barriers import before_barriers, meets
from zluda.compiler.analysis.cfg import EXIT
from zluda.compiler.analysis.uniformity import Zone
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.ir import Value, constant
from zluda.compiler.registers import Mask


class Absentees:
    """Writes the test; ``mask_at`` loads the lanes that wait at a block, ``entered`` are the function's."""

    def __init__(
        self, f: FunctionCodegen, mask_at: Callable[[int], list[Value]], entered: Mask | None
    ) -> None:
        self.f, self.b, self._mask_at = f, f.b, mask_at
        self._entered = f.mask_bits(entered) if entered is not None else constant("i32", -1)
        synchronising, returning = f.unit.barriers()
        self._returning = f.function.name in returning
        self._before = before_barriers(f.graph, meets(synchronising), returning=self._returning)
        if self._before & f.uniformity.masked:
            f.left = f.b.alloca("i32", align=4)
            f.b.entry.append(f"store i32 0, ptr {f.left.ref}, align 4")

    def leave(self, mask: list[Value], *, exits: bool) -> None:
        """Note lanes that are done with the kernel, or with a function behind which there is no barrier."""
        if exits or not self._returning:
            self.f.leave_for_good(self.f.pack_bits(mask))

    def elsewhere(self, index: int, zone: Zone) -> Value:
        """Whether lanes are not at this block, and a barrier may be where they are."""
        b, f = self.b, self.f
        assert f.left is not None
        here = b.or_(f.mask_bits(), b.load("i32", f.left, align=4))
        absent = b.and_(self._entered, b.not_(here))
        found = b.alloca("i1", align=1)
        b.store(constant("i1", 0), found, align=1)
        look, looked = b.fresh("absent"), b.fresh("present")
        b.cond_branch(b.icmp("ne", absent, 0), look, looked)
        b.label(look)
        waiting = self._waiting(n for n in self._places(index, zone) if n in self._before)
        if self._returning if zone.exit == EXIT else zone.exit in self._before:
            waiting = b.or_(waiting, b.and_(absent, b.not_(self._waiting(zone.blocks))))
        b.store(b.icmp("ne", waiting, 0), found, align=1)
        b.branch(looked)
        b.label(looked)
        return b.load("i1", found, align=1)

    def _places(self, index: int, zone: Zone) -> Sequence[int]:
        """Blocks at which lanes may wait while this one executes: see :mod:`zluda.compiler.cpu.masked`."""
        if self.f.uniformity.apart:
            return zone.blocks
        heads = {loop.head for loop in self.f.order.around(index)}
        behind = zone.blocks.index(index) + 1
        return [n for at, n in enumerate(zone.blocks) if at >= behind or n in heads]

    def _waiting(self, blocks: Iterable[int]) -> Value:
        """The lanes that wait at one of these blocks."""
        found: Value = constant("i32", 0)
        for n in blocks:
            found = self.b.or_(self.f.pack_bits(self._mask_at(n)), found)
        return found
