"""Two ranges of bytes, compared as the numbers they hold.

Equality is by bits: NaN payloads and signs of zero count. How far apart elements are is
:mod:`zluda.diff.metrics`'s to say. Equal bytes need no numbers, so numpy is imported only where something
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from zluda.diff import spots
from zluda.diff.grid import Grid, grids, layout_named
from zluda.diff.kinds import element_type
from zluda.diff.metrics import CLASSES, Metrics, largest, measure, merged, metrics_of
from zluda.diff.results import BufferComparison, Element
from zluda.diff.types.layout import Layout

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.typing.NDArray[Any]

FIRST_ELEMENTS = 8
"""How many differing elements a comparison keeps."""

Coordinates = Callable[[int], tuple[int, ...]]
"""A byte of the allocation → the coordinates of the element there; empty where they are not known."""


def compare(
    recorded: bytes,
    replayed: bytes,
    elements: Layout | str,
    *,
    base: int = 0,
    offset: int = 0,
    allocation: int | None = None,
    name: str = "",
    known: bytes | None = None,
    first: int = FIRST_ELEMENTS,
    coordinates: Coordinates | None = None,
    rows: tuple[int, int] | None = None,
) -> BufferComparison:
    """Compare two contents of ``[base + offset, base + offset + len(recorded))``.

    ``known`` has a byte a byte: where it is 0 the record does not know the byte and it is not compared (it
    reads as zero on both sides). Elements lie on the grid of the allocation at ``base`` that the layout has;
    bytes of an element outside the range read as zero too. ``rows``: the byte of the allocation at which the
    first row begins, and the bytes of each. Raises ValueError where the lengths differ.
    """
    if len(recorded) != len(replayed) or (known is not None and len(known) != len(recorded)):
        raise ValueError("record, replay and mask must have the same length")
    layout, size = layout_named(elements), len(recorded)
    nothing = BufferComparison(
        allocation=allocation,
        name=name,
        base=base,
        offset=offset,
        size=size,
        element_type=str(layout),
        bytes_compared=size if known is None else size - known.count(0),
        elements=_count(layout, offset, size),
        differing=0,
        layout=layout,
    )
    if recorded == replayed:
        return nothing
    recorded, replayed = masked(recorded, known), masked(replayed, known)
    presence = (known or b"\1" * size) if known is not None or _ragged(layout, offset, size) else None
    rows = _whole_rows(layout, rows)
    parts = [
        _field(grid, recorded, replayed, presence, nothing, first, coordinates, rows)
        for grid, _ in grids(layout)
    ]
    differing = [one for part in parts for one in part[1]]
    return _together(nothing, [part[0] for part in parts], differing, first, [part[2] for part in parts])


def combine(parts: Sequence[BufferComparison], *, first: int = FIRST_ELEMENTS) -> BufferComparison:
    """Comparisons of several ranges of one allocation, by one element type, as one."""
    head = parts[0]
    if any((part.base, part.element_type) != (head.base, head.element_type) for part in parts):
        raise ValueError("only comparisons of one allocation and element type can be combined")
    offset = min(part.offset for part in parts)
    whole = replace(
        head,
        offset=offset,
        size=max(part.offset + part.size for part in parts) - offset,
        bytes_compared=sum(part.bytes_compared for part in parts),
        elements=sum(part.elements for part in parts),
    )
    metrics = [one for part in parts for one in part.metrics]
    elements = [one for part in parts for one in part.first]
    return _together(whole, metrics, elements, first, [part.spots for part in parts])


def with_equal(comparison: BufferComparison, contents: Iterable[tuple[int, bytes]]) -> BufferComparison:
    """A comparison that has also seen ``contents`` of its allocation, (offset, bytes) equal on both sides:
    the elements that lie in them whole.
    """
    layout = comparison.layout
    found = []
    for start, data in contents:
        skipped = (layout.phase - start) % layout.period
        whole = data[skipped : skipped + (len(data) - skipped) // layout.period * layout.period]
        for grid, _ in grids(layout) if whole else ():
            bits = grid.take(whole, start + skipped)
            found.append(metrics_of(bits, bits, grid.kind, offset=grid.offset))
    metrics = [*comparison.metrics, *found]
    return _together(comparison, metrics, comparison.first, len(comparison.first), [comparison.spots])


def masked(data: bytes, known: bytes | None) -> bytes:
    """Zeros where the mask has zeros."""
    import numpy as np

    if known is None:
        return data
    mask = np.frombuffer(known, np.uint8) != 0
    return np.where(mask, np.frombuffer(data, np.uint8), np.uint8(0)).tobytes()


def _count(layout: Layout, offset: int, size: int) -> int:
    """How many elements a range touches."""
    if not size:
        return 0
    kind = element_type(layout.single)
    if layout.homogeneous:
        first, last = Grid(kind, layout.phase, layout.period).span(offset, offset + size)
        return (last - first) // layout.period * kind.packed
    return -(-size * len(layout.fields) // layout.period)


def _ragged(layout: Layout, offset: int, size: int) -> bool:
    """Whether the range does not begin and end with whole periods."""
    return bool((offset - layout.phase) % layout.period or (offset + size - layout.phase) % layout.period)


def _whole_rows(layout: Layout, rows: tuple[int, int] | None) -> tuple[int, int]:
    """(first byte, bytes of a row) of rows that hold whole elements; without such, of none (0)."""
    if rows is not None and not (rows[0] - layout.phase) % layout.period and not rows[1] % layout.period:
        return rows
    return layout.phase % layout.period, 0


def _field(
    grid: Grid,
    recorded: bytes,
    replayed: bytes,
    presence: bytes | None,
    of: BufferComparison,
    first: int,
    coordinates: Coordinates | None,
    rows: tuple[int, int],
) -> tuple[Metrics, list[Element], spots.Spots | None]:
    """One field's metrics, the first elements of it that differ, and where all lie that do. Where
    ``presence`` has zeros nothing was compared.
    """
    import numpy as np

    left, right = grid.take(recorded, of.offset), grid.take(replayed, of.offset)
    differs = left != right
    where = np.flatnonzero(differs)[:first]
    elements = _elements(grid, left[where], right[where], where, of, coordinates)
    if presence is not None:
        there = grid.take(presence, of.offset) != 0
        if grid.kind.packed > 1:  # the lower half of a byte stands for both
            there = np.repeat(there[:: grid.kind.packed], grid.kind.packed)
        left, right = left[there], right[there]
        differs &= there
    start, _ = grid.span(of.offset, of.offset + 1)
    origin, pitch = rows
    found = spots.spots_of(differs, start, grid.period, grid.each, origin=origin, pitch=pitch)
    return metrics_of(left, right, grid.kind, offset=grid.offset), elements, found


def _elements(
    grid: Grid,
    left: Array,
    right: Array,
    where: Array,
    of: BufferComparison,
    coordinates: Coordinates | None,
) -> list[Element]:
    if not len(where):
        return []
    measured = measure(left, right, grid.kind)
    found = []
    for i in range(len(where)):
        number, at = grid.locate(of.offset, int(where[i]))
        place = () if coordinates is None else coordinates(at)
        found.append(
            Element(
                index=number,
                address=of.base + at,
                recorded=measured.left[i].item(),
                replayed=measured.right[i].item(),
                recorded_bits=int(left[i]),
                replayed_bits=int(right[i]),
                ulp=measured.ulp_of(i),
                place=f"({', '.join(map(str, place))})" if place else "",
                type=grid.kind.name,
            )
        )
    return found


def _together(
    of: BufferComparison,
    metrics: Iterable[Metrics],
    elements: Iterable[Element],
    first: int,
    places: Iterable[spots.Spots | None],
) -> BufferComparison:
    """A comparison with metrics of all its parts, one a field, the first of its elements and the places of
    all.
    """
    by_field: dict[tuple[int, str], Metrics] = {}
    for one in metrics:
        key = (one.offset, one.element_type)
        by_field[key] = one if key not in by_field else merged(by_field[key], one)
    found = list(by_field.values())
    classes = {name: sum(one.classes.get(name, 0) for one in found) for name in CLASSES}
    return replace(
        of,
        differing=sum(one.differing for one in found),
        first=tuple(sorted(elements, key=lambda one: one.address)[:first]),
        max_ulp=largest(*(one.max_ulp for one in found)),
        max_absolute=largest(*(one.max_absolute for one in found)),
        max_relative=largest(*(one.max_relative for one in found)),
        classes={name: count for name, count in classes.items() if count},
        metrics=tuple(found),
        spots=reduce(spots.merged, places, None),
    )
