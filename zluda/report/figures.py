"""Figures of the page, as SVG: launches in call order, how far elements are apart, where they lie.

A figure takes its colours from the page's style (``fill`` of a tone's class), carries its text alternative,
and never says anything by colour alone: what fails is taller than what holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from zluda.diff.metrics import EDGES, Metrics
from zluda.diff.results import BufferComparison, CountsAs, LaunchResult, Verdict, worst
from zluda.diff.spots import MOST_ACROSS, MOST_CELLS, Spots
from zluda.records import dataclass
from zluda.report import words
from zluda.report.names import readable

TONES = {
    CountsAs.HOLDS: "holds",
    CountsAs.FAILS: "fails",
    CountsAs.CANNOT_TELL: "unclear",
    CountsAs.NEUTRAL: "neutral",
}
"""What a verdict counts as → the class of the page's style."""

_HEIGHTS = {CountsAs.HOLDS: 6, CountsAs.FAILS: 12, CountsAs.CANNOT_TELL: 9, CountsAs.NEUTRAL: 2}
_LANE = 12  # a lane's height, in the units of _HEIGHTS
_LANES, _LANE_STEPS = 16, 240
_ACROSS = 32  # cells in a row of the drawing, where a buffer has no rows
_SHADES = 4
_TOGETHER = 64  # cells of a comparison in one of the drawing, at most
_WIDTH, _HEIGHT = 340, 72  # of a histogram; a phone is wider


@dataclass(frozen=True, slots=True)
class Lane:
    """All launches of one kernel (or copies by one function), along the calls of the trace."""

    kernel: str
    told: str
    svg: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing and what it shows, in words; ``legend`` are (class, what it stands for)."""

    svg: str
    told: str
    legend: tuple[tuple[str, str], ...] = ()


# --- launches in call order --------------------------------------------------------------------------------


def lanes(results: Sequence[LaunchResult]) -> tuple[list[Lane], int]:
    """(a lane for each kernel, what fails first; how many kernels more there are)."""
    by_kernel: dict[str, list[int]] = {}
    for place, one in enumerate(results):
        by_kernel.setdefault(one.kernel, []).append(place)
    steps = min(len(results), _LANE_STEPS)

    def rank(kernel: str) -> tuple[int, int]:
        places = by_kernel[kernel]
        return -worst(results[at].verdict for at in places).severity, places[0]

    shown = sorted(by_kernel, key=rank)[:_LANES]
    return [_lane(results, name, by_kernel[name], steps) for name in shown], len(by_kernel) - len(shown)


def _lane(results: Sequence[LaunchResult], kernel: str, places: Sequence[int], steps: int) -> Lane:
    cells: dict[int, Verdict] = {}
    for at in places:
        step, verdict = at * steps // len(results), results[at].verdict
        if step not in cells or verdict.severity > cells[step].severity:
            cells[step] = verdict
    runs: list[tuple[int, int, CountsAs]] = []
    for step in sorted(cells):
        counts_as = cells[step].counts_as
        if runs and runs[-1][1] == step and runs[-1][2] is counts_as:
            runs[-1] = (runs[-1][0], step + 1, counts_as)
        else:
            runs.append((step, step + 1, counts_as))
    told = f"{readable(kernel)}: {_verdicts([results[at] for at in places])}"
    bars = "".join(
        f'<rect class="{TONES[kind]}" x="{first}" width="{last - first}"'
        f' y="{(_LANE - _HEIGHTS[kind]) / 2:g}" height="{_HEIGHTS[kind]}"/>'
        for first, last, kind in runs
    )
    return Lane(kernel, told, _svg(f"0 0 {steps} {_LANE}", told, bars, stretch=True))


def _verdicts(results: Sequence[LaunchResult]) -> str:
    """``7 of 12 differ, the first #312``, or ``12 identical``"""
    failing = [one for one in results if one.verdict.counts_as is CountsAs.FAILS]
    if failing:
        verb = "fails" if len(failing) == 1 else "fail"
        return f"{len(failing):,} of {len(results):,} {verb}, the first #{failing[0].call}"
    seen = [one.verdict for one in results]
    return ", ".join(f"{seen.count(one):,} {one.value}" for one in Verdict if one in seen)


# --- how far -----------------------------------------------------------------------------------------------


def histogram(metrics: Metrics) -> Figure | None:
    """Differing elements by their distance; None where none has any."""
    steps = [n for n, count in enumerate(metrics.histogram) if count]
    if not steps:
        return None
    shown = range(steps[0], steps[-1] + 1)
    counts = [metrics.histogram[n] for n in shown]
    top, slot = max(counts), min(_WIDTH / len(counts), 40)
    labelled = max(1, math.ceil(34 / slot))
    unit = "difference" if metrics.max_ulp is None else "ULP"
    bars = []
    for place, (step, count) in enumerate(zip(shown, counts, strict=True)):
        height = (math.log1p(count) / math.log1p(top)) * (_HEIGHT - 14) if count else 0
        at, middle = place * slot, (place + 0.5) * slot
        bars.append(
            f'<rect class="fails" x="{at + 1:.1f}" width="{slot - 2:.1f}" y="{_HEIGHT - height:.1f}"'
            f' height="{height:.1f}"><title>{_edge(step)} {unit}: {count:,}</title></rect>'
        )
        if count == top and top in counts[: place + 1] and counts.index(top) == place:
            end = "start" if place == 0 else "end" if place == len(counts) - 1 else "middle"
            x = at if place == 0 else at + slot if end == "end" else middle
            bars.append(
                f'<text x="{x:.1f}" y="{_HEIGHT - height - 3:.1f}" text-anchor="{end}">{top:,}</text>'
            )
        if place % labelled == 0:
            bars.append(
                f'<text x="{middle:.1f}" y="{_HEIGHT + 12}" text-anchor="middle">{_edge(step)}</text>'
            )
    told = f"Differing elements by {unit}: {words.spread(metrics)}"
    width = max(len(counts) * slot, 120)
    svg = _svg(f"-12 0 {width + 24:g} {_HEIGHT + 16}", told, "".join(bars), width=width + 24)
    return Figure(svg, f"Elements by {unit}, up to; heights are logarithmic")


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _edge(step: int) -> str:
    """The upper end of a step of a histogram: ``½``, ``16``, ``2²⁰``, ``∞``"""
    edge = EDGES[step]
    if math.isinf(edge):
        return "∞"
    if edge < 1:
        return "½" if edge else "0"
    if edge < 4096:
        return f"{edge:g}"
    return "2" + str(int(math.log2(edge))).translate(_SUPERSCRIPTS)


# --- where -------------------------------------------------------------------------------------------------


def heat_map(buffer: BufferComparison) -> Figure | None:
    """Where in a buffer elements differ; None where nothing does."""
    spots = buffer.spots
    if spots is None:
        return None
    cells, first, last, by = _extent(buffer, spots)
    across = spots.columns if spots.pitch else min(last - first + 1, _ACROSS)
    drawn = {
        ((row - first, column) if spots.pitch else divmod(column - first, across)): count
        for (row, column), count in cells.items()
    }
    down = last - first + 1 if spots.pitch else -(-(last - first + 1) // across)
    top = max(drawn.values())
    squares = [f'<rect class="empty" width="{across}" height="{down}"/>']
    for (row, column), count in sorted(drawn.items()):
        squares.append(
            f'<rect class="fails shade{_shade(count, top)}" x="{column}" y="{row}" width="1" height="1"/>'
        )
    told = f"{_where(buffer, spots)}; {_cell(buffer, spots, by)}"
    side = max(4, min(16, 320 // across))
    svg = _svg(f"0 0 {across} {down}", told, "".join(squares), width=across * side)
    return Figure(svg, told, tuple(_legend(top)))


def _extent(buffer: BufferComparison, spots: Spots) -> tuple[dict[tuple[int, int], int], int, int, int]:
    """(cells to be drawn, the first and the last row or cell, how many of a comparison's cells each is).

    All that was compared is drawn where its cells are not too many or can be taken together; else from the
    first that differs to the last.
    """
    axis, most = (0, MOST_ACROSS) if spots.pitch else (1, MOST_CELLS)
    size = spots.pitch * spots.rows if spots.pitch else spots.step
    first = max(buffer.offset - spots.origin, 0) // size
    last = max(buffer.offset + buffer.size - 1 - spots.origin, 0) // size
    places, by = [key[axis] for key in spots.cells], 1
    while by < _TOGETHER and last // by - first // by >= most:
        by *= 2
    if last // by - first // by >= most:
        first, last, by = min(places), max(places), 1
    cells: dict[tuple[int, int], int] = {}
    for (row, column), count in spots.cells.items():
        key = (row // by, column) if spots.pitch else (row, column // by)
        cells[key] = cells.get(key, 0) + count
    # A range that was put together of rows may name other bytes than it has; what differs is always drawn.
    return cells, min(first, *places) // by, max(last, *places) // by, by


def _shade(count: int, top: int) -> int:
    """1 to :data:`_SHADES`, by powers of the largest count."""
    if top <= _SHADES:
        return count if count < top else _SHADES
    return min(1 + int(_SHADES * math.log(count) / math.log(top + 1)), _SHADES)


def _legend(top: int) -> list[tuple[str, str]]:
    """(class, counts of a cell) of each shade that there can be."""
    if top > 1 << 16:  # a bound for each shade, not each count
        edges = [math.ceil((top + 1) ** (shade / _SHADES)) for shade in range(_SHADES + 1)]
        spans = {shade + 1: (edges[shade], edges[shade + 1] - 1) for shade in range(_SHADES)}
    else:
        spans = {}
        for count in range(1, top + 1):
            low, _ = spans.get(_shade(count, top), (count, count))
            spans[_shade(count, top)] = (low, count)
    return [
        (f"shade{shade}", f"{low:,}" if low == high else f"{low:,}–{high:,}")
        for shade, (low, high) in sorted(spans.items())
    ]


def _where(buffer: BufferComparison, spots: Spots) -> str:
    """``Rows 4–7, columns 16–31 of 64``, as finely as cells tell; else elements or bytes."""
    cells, (size, *noun) = spots.cells, _unit(buffer)
    columns = [column for _, column in cells]
    low, high = min(columns) * spots.step, (max(columns) + 1) * spots.step
    if not spots.pitch:
        return _span(noun[0], noun[1], low // size, high // size - 1).capitalize()
    high, rows = min(high, spots.pitch), [row for row, _ in cells]
    first, last = min(rows) * spots.rows, (max(rows) + 1) * spots.rows - 1
    across = _span("column", "columns", low // size, high // size - 1)
    return f"{_span('row', 'rows', first, last).capitalize()}, {across} of {spots.pitch // size:,}"


def _cell(buffer: BufferComparison, spots: Spots, by: int) -> str:
    """``a square is 4 elements``, ``a square is 2 rows of 8 elements``"""
    size, one, several = _unit(buffer)
    if not spots.pitch:
        return f"a square is {words.plural(max(by * spots.step // size, 1), one, several)}"
    width = words.plural(max(spots.step // size, 1), one, several)
    rows = by * spots.rows
    return f"a square is {width}" if rows == 1 else f"a square is {rows:,} rows of {width}"


def _unit(buffer: BufferComparison) -> tuple[int, str, str]:
    """(bytes, name, plural) of what places are counted in."""
    if buffer.layout.homogeneous and buffer.layout.single != "bytes":
        return max(buffer.layout.period, 1), "element", "elements"
    return 1, "byte", "bytes"


def _span(one: str, several: str, first: int, last: int) -> str:
    return f"{one} {first:,}" if first >= last else f"{several} {first:,}–{last:,}"


def _svg(view: str, told: str, inside: str, *, width: float = 0, stretch: bool = False) -> str:
    """An image with its text alternative; ``told`` is escaped here, ``inside`` is ours."""
    from markupsafe import escape

    how = ' preserveAspectRatio="none"' if stretch else f' style="width:{width:g}px"'
    return f'<svg role="img" viewBox="{view}"{how} aria-label="{escape(told)}">{inside}</svg>'
