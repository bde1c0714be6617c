"""What NVIDIA itself varies: gathered from runs of a launch on one GPU, and held against a replay (D7).

A launch whose results depend on the order of threads leaves other bits each time: a float sum rounds
otherwise, an appended list comes in another order. Runs on the recording GPU say which elements vary and how
far, or that an allocation holds the same rows in any order. A replay elsewhere sees other orders than those
few runs did, so a float may be :data:`FACTOR` times as far from the record; an integer, which has no near and
far, may be any. And where a good part of what a launch changed was seen to vary (:data:`SHARE`), or it adds
floats, all that it changed may: what was seen is a sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zluda.diff.kinds import ElementType, element_type
from zluda.diff.metrics import measure
from zluda.records import dataclass
from zluda.tracefile import Noise, NoiseKind

if TYPE_CHECKING:
    import numpy.typing

    Array = numpy.typing.NDArray[Any]

FACTOR = 4.0
"""A replay may be this many times as far from the record as NVIDIA's own runs were."""

FEW_ULP = 32.0
"""Up to so many units in the last place, no matter how far that is. More of them, as sums near zero give, are
held to the absolute distance too.
"""

SHARE = 0.25
"""Of the elements that a launch changed: where at least so many were seen to vary, all of them may."""

_ROWS = (16, 12, 8, 4, 2, 1)
"""Bytes of a row that is looked for: what one store writes (PTX ISA 9.7.9.11), and three words."""


@dataclass(slots=True)
class Differences:
    """Differing elements of one allocation after a launch: their numbers from its start, and their bits."""

    kind: ElementType
    where: Array
    recorded: Array
    replayed: Array


@dataclass(slots=True)
class Seen:
    """What was seen to vary of one allocation after one launch, over all runs.

    ``origin`` is where its elements or rows are counted from, in bytes. ``rows`` are the sizes of rows that
    came in another order and were otherwise the same, in each run that differed.
    """

    kind: ElementType
    origin: int
    where: Array
    rows: tuple[int, ...]
    max_ulp: float | None = None
    max_absolute: float | None = None
    unbounded: bool = False

    @classmethod
    def nothing(cls, kind: ElementType, origin: int) -> Seen:
        import numpy as np

        rows = tuple(row for row in _ROWS if row % kind.size == 0)
        return cls(kind, origin, np.zeros(0, np.int64), rows)

    @classmethod
    def of(cls, noise: Noise, mask: bytes) -> Seen:
        """What a trace says was seen."""
        kind = element_type(noise.element_type)
        rows = tuple(
            row for row in _ROWS if noise.row_bytes and noise.row_bytes % row == 0 and row % kind.size == 0
        )
        where = masked(noise, mask)
        return cls(
            kind, noise.origin, where, rows, noise.max_ulp, noise.max_absolute, unbounded=noise.unbounded
        )

    def add(self, found: Differences, contents: tuple[bytes, bytes] | None) -> None:
        """One more run. ``contents`` are record and replay from ``origin`` on, None where they are too many
        to look for rows in.
        """
        import numpy as np

        self.where = np.union1d(self.where, found.where)
        distances = measure(found.recorded, found.replayed, found.kind)
        self.max_ulp = _larger(self.max_ulp, distances.largest(distances.ulp))
        self.max_absolute = _larger(self.max_absolute, distances.largest(distances.absolute))
        self.unbounded |= not distances.finite.all()
        self.rows = tuple(r for r in self.rows if contents is not None and same_rows(*contents, r))

    def noise(self, call: int, allocation: int, runs: int) -> tuple[Noise, bytes]:
        """What a trace is to say, and the mask."""
        import numpy as np

        where, row = self.where, self.rows[0] if self.rows else 0
        # Whole bytes of the mask, so that masks of one pattern are one blob.
        first = self.origin // self.kind.size if row else int(where[0]) // 8 * 8
        bits = np.zeros(int(where[-1]) + 1 - first, np.uint8)
        bits[where - first] = 1
        found = Noise(
            call=call,
            allocation=allocation,
            kind=NoiseKind.SET if row else NoiseKind.ELEMENTS,
            element_type=self.kind.name,
            origin=first * self.kind.size,
            elements=len(bits),
            mask=0,
            row_bytes=row,
            max_ulp=self.max_ulp,
            max_absolute=self.max_absolute,
            unbounded=self.unbounded,
            runs=runs,
        )
        return found, np.packbits(bits, bitorder="little").tobytes()


@dataclass(slots=True)
class Bound:
    """How far NVIDIA's own runs were from the record at most; None where no distance was seen."""

    max_ulp: float | None = None
    max_absolute: float | None = None
    unbounded: bool = False  # a NaN or an infinity was on one side only

    def add(self, noise: Noise) -> None:
        self.max_ulp = _larger(self.max_ulp, noise.max_ulp)
        self.max_absolute = _larger(self.max_absolute, noise.max_absolute)
        self.unbounded |= noise.unbounded

    def near(self, found: Differences) -> Array:
        """Which elements are no further from the record than is allowed."""
        import numpy as np

        if found.kind.kind != "float":
            return np.ones(len(found.where), bool)
        distances = measure(found.recorded, found.replayed, found.kind)
        assert distances.ulp is not None
        few = distances.absolute <= FACTOR * (self.max_absolute or 0.0)
        near: Array = distances.ulp <= FACTOR * (self.max_ulp or 0.0)
        near &= few | (distances.ulp <= FEW_ULP)
        return np.where(distances.finite, near, self.unbounded)


def masked(noise: Noise, mask: bytes) -> Array:
    """The numbers of the elements that were seen to vary."""
    import numpy as np

    bits = np.unpackbits(np.frombuffer(mask, np.uint8), count=noise.elements, bitorder="little")
    return noise.origin // element_type(noise.element_type).size + np.flatnonzero(bits)


def allowed(seen: Array, changed: Array, *, sums: bool) -> Array:
    """The elements that may vary, where ``seen`` were seen to and a launch changed ``changed``, by adding
    floats or not.
    """
    import numpy as np

    if sums or (len(changed) and np.isin(seen, changed).sum() >= SHARE * len(changed)):
        return np.union1d(seen, changed)
    return seen


def outside(found: Differences, may_vary: Array, bound: Bound) -> tuple[int, int, str] | None:
    """(how many elements, the number of the first, in which way) are not explained by what varies; None
    where all are.
    """
    import numpy as np

    there = np.isin(found.where, may_vary)
    bad = np.flatnonzero(~(there & bound.near(found)))
    if not len(bad):
        return None
    first = int(bad[0])
    how = "further from the record than it varies" if there[first] else "which does not vary"
    return len(bad), int(found.where[first]), how


def same_rows(recorded: bytes, replayed: bytes, row: int) -> bool:
    """Whether both are the same rows of ``row`` bytes in any order; what is left at the end must be equal."""
    import numpy as np

    whole = len(recorded) // row * row
    if recorded[whole:] != replayed[whole:]:
        return False
    sides = [np.frombuffer(side, np.uint8, whole).reshape(-1, row) for side in (recorded, replayed)]
    moved = (sides[0] != sides[1]).any(axis=1)
    # Rows that stand where they stood cancel. Bytes as text sort as bytes do.
    left, right = (np.sort(np.ascontiguousarray(side[moved]).view(f"S{row}").ravel()) for side in sides)
    return bool((left == right).all())


def _larger(one: float | None, other: float | int | None) -> float | None:
    return max((float(value) for value in (one, other) if value is not None), default=None)
