"""Which registers somebody reads later: stores of the others need not be made.

The lifter cuts a kernel into *segments*, stretches of code entered only at their beginning, with all
registers in the wave's record before and after. Registers are bits of Python integers here; -1 is all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from zluda.records import dataclass

SCALARS = 160  # bits for scalar registers, ahead of the vector registers


@dataclass(slots=True)
class Segment:
    """``reads``: registers whose value at the beginning matters; ``writes``: wholly written ones.

    ``stores`` are (line, registers) of the stores that write registers back at the end.
    ``targets`` are code offsets where control goes on; ``follower`` is the segment right behind;
    ``anywhere`` says that control may go to any address that a register can hold.
    """

    reads: int = 0
    writes: int = 0
    stores: list[tuple[int, int]] = field(default_factory=list)
    targets: set[int] = field(default_factory=set)
    follower: Segment | None = None
    anywhere: bool = False
    live: int = 0  # at the beginning

    def read(self, registers: int) -> None:
        """Note a read: it matters unless the segment wrote the register before."""
        self.reads |= registers & ~self.writes


def scalar_bits(index: int, words: int = 1) -> int:
    """Scalar registers from ``index`` on."""
    return ((1 << words) - 1) << index


def vector_bit(index: int) -> int:
    return 1 << SCALARS + index


def drop_dead_stores(
    lines: list[str], segments: list[Segment], at: dict[int, Segment], resumable: Iterable[int]
) -> None:
    """Blank the lines of stores whose registers are dead; ``at`` is the segment at each code offset.

    Nothing is live where a wave ends. A vector register written in some lanes is live before if it is after.
    """
    jumps = [at[offset] for offset in resumable if offset in at]
    changed = True
    while changed:
        changed = False
        anywhere = 0
        for segment in jumps:
            anywhere |= segment.live
        for segment in reversed(segments):
            live = segment.reads | _live_after(segment, at, anywhere) & ~segment.writes
            changed |= live != segment.live
            segment.live = live
    anywhere = 0
    for segment in jumps:
        anywhere |= segment.live
    for segment in segments:
        live = _live_after(segment, at, anywhere)
        for line, registers in segment.stores:
            if not live & registers:
                lines[line] = ""


def _live_after(segment: Segment, at: dict[int, Segment], anywhere: int) -> int:
    live = anywhere if segment.anywhere else 0
    if segment.follower is not None:
        live |= segment.follower.live
    for target in segment.targets:
        live |= at[target].live
    return live
