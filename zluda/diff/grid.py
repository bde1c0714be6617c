"""Where the elements of one field lie in an allocation, and reading them out of its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zluda.diff.kinds import ElementType, element_type, unpacked
from zluda.diff.types.layout import BYTES, Field, Layout, uniform
from zluda.records import dataclass

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.typing.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """Elements of a kind at ``phase + n * period + offset`` bytes of an allocation, ``kind.size`` bytes each.

    ``columns``, where given, are single bytes at those places of the period instead.
    """

    kind: ElementType
    phase: int
    period: int
    offset: int = 0
    columns: tuple[int, ...] = ()

    @classmethod
    def of(cls, kind: ElementType) -> Grid:
        """Elements of one type from the allocation's start on."""
        return cls(kind, 0, kind.size)

    @property
    def each(self) -> int:
        """Elements in a period."""
        return len(self.columns) or self.kind.packed

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The smallest range of whole periods around [start, stop); it may begin before the allocation."""
        first = (start - self.phase) // self.period * self.period + self.phase
        return first, first + -(-(stop - first) // self.period) * self.period

    def take(self, data: bytes, start: int) -> Array:
        """Bit patterns of the elements in the whole periods around ``data``, which lies at ``start``; bytes
        outside of it are zeros.
        """
        import numpy as np

        first, last = self.span(start, start + len(data))
        cells = np.frombuffer(data, np.uint8)
        if first != start or last != start + len(data):
            cells = np.pad(cells, (start - first, last - start - len(data)))
        rows = cells.reshape(-1, self.period)
        if self.columns:
            return rows[:, list(self.columns)].reshape(-1)
        if self.period != self.kind.size:
            rows = np.ascontiguousarray(rows[:, self.offset : self.offset + self.kind.size])
        return unpacked(rows.reshape(-1).view(f"<u{self.kind.size}"), self.kind)

    def locate(self, start: int, where: int) -> tuple[int, int]:
        """(number, byte in the allocation) of element ``where`` of what :meth:`take` gives for ``start``."""
        first, _ = self.span(start, start + 1)
        if self.columns:
            row, column = divmod(where, len(self.columns))
            at = first + row * self.period + self.columns[column]
        else:
            at = first + where // self.kind.packed * self.period + self.offset
        number = (at - self.phase) // self.period * self.kind.packed + where % self.kind.packed
        return number, at


def grids(layout: Layout) -> Iterator[tuple[Grid, Field]]:
    """One for each field of a layout, and one for the bytes between them."""
    covered: set[int] = set()
    for field in layout.fields:
        covered.update(range(field.offset, field.offset + field.size))
        yield Grid(element_type(field.element), layout.phase, layout.period, field.offset), field
    rest = tuple(at for at in range(layout.period) if at not in covered)
    if rest:
        between = Field(rest[0], BYTES, 1, layout.confidence)
        yield Grid(element_type(BYTES), layout.phase, layout.period, rest[0], rest), between


def layout_named(element: Layout | str) -> Layout:
    """A layout as it is; of a type's name, elements of it. Raises UnsupportedError for what is no type."""
    from zluda.diff.types.layout import Confidence

    if isinstance(element, Layout):
        return element
    kind = element_type(element)
    return uniform(kind.name, kind.size, Confidence.GUESS if element == BYTES else Confidence.CERTAIN)
