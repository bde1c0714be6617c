"""Whether elements that differ lie inside an envelope: what else the same kernel may have computed (D7).

An envelope is made of several results of one launch: the exact one, and some in which approximate
instructions were moved to the ends of their bounds. For each element it reaches from the exact result as far,
either way, as any of those and the recorded one (which is such a result too) is from it; farther by as much
as that exceeds their root mean square, since results that scatter were not all seen; and one ULP.

Where all results agree, the element depends on no approximate instruction and has no tolerance; nor have
bytes of which nothing better is known. Integers lie between the smallest and the largest result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zluda.diff.values import ElementType, as_float64

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.typing.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where elements lie in their envelope; arrays of one value an element.

    ``position`` is 0 at the exact result and 1 at the edge on the element's side; ``low`` and ``high`` are
    the edges.
    """

    inside: Array
    position: Array
    low: Array
    high: Array


@dataclass(slots=True)
class Envelope:
    """The envelope of some elements of one type; ``recorded`` are their recorded bits."""

    kind: ElementType
    recorded: Array
    _runs: list[Array] = field(default_factory=list)

    def add(self, bits: Array) -> None:
        """One more result of the same elements; the first is the exact one."""
        self._runs.append(bits)

    def place(self, replayed: Array) -> Placed:
        """Where the replayed elements lie."""
        import numpy as np

        results = [*self._runs, self.recorded]
        numbers = np.array([self._numbers(bits) for bits in results])
        value = self._numbers(replayed)
        low, high = self._edges(numbers)
        moved = (np.array(results) != self._runs[0]).any(axis=0)
        with np.errstate(invalid="ignore"):
            inside = moved & (low <= value) & (value <= high)
        if self.kind.kind == "float":
            inside |= np.isnan(value) & np.isnan(numbers).any(axis=0)
            inside |= np.isinf(value) & (numbers == value).any(axis=0)
        return Placed(inside & self._has_hull, _position(value, numbers[0], low, high), low, high)

    def _edges(self, numbers: Array) -> tuple[Array, Array]:
        import numpy as np

        if self.kind.kind != "float":
            return numbers.min(axis=0), numbers.max(axis=0)
        exact = numbers[0]
        with np.errstate(all="ignore"):
            away = np.abs(numbers[1:] - exact)
            away = np.where(np.isfinite(away), away, 0.0)
            farthest = away.max(axis=0)
            scale = np.where(farthest > 0, farthest, 1.0)
            mean = np.sqrt(np.square(away / scale).mean(axis=0)) * scale
            reach = 2 * farthest - mean
            return _stepped(exact - reach, self.kind, -np.inf), _stepped(exact + reach, self.kind, np.inf)

    @property
    def _has_hull(self) -> bool:
        return self.kind.name != "bytes"

    def _numbers(self, bits: Array) -> Array:
        if self.kind.kind == "float":
            return as_float64(bits, self.kind)
        return bits.view(f"<i{self.kind.size}") if self.kind.kind == "signed" else bits


def same_number(recorded: Array, replayed: Array, kind: ElementType) -> Array:
    """Which elements differ in a NaN's payload or a zero's sign only."""
    import numpy as np

    if kind.kind != "float":
        return np.zeros(len(recorded), bool)
    a, b = as_float64(recorded, kind), as_float64(replayed, kind)
    same: Array = (np.isnan(a) & np.isnan(b)) | ((a == 0) & (b == 0))
    return same


def _stepped(edge: Array, kind: ElementType, away: float) -> Array:
    """One unit in the last place further; infinities and NaN stay."""
    import numpy as np

    _, exponent = np.frexp(edge)
    exponent = np.maximum(exponent - 1, kind.min_exponent)
    with np.errstate(over="ignore", invalid="ignore"):
        step = np.ldexp(1.0, exponent - kind.mantissa)
        moved: Array = np.where(np.isfinite(edge), edge + np.copysign(step, away), edge)
    return moved


def _position(value: Array, exact: Array, low: Array, high: Array) -> Array:
    """How far from the exact result to the edge; 0 where there is nothing between them."""
    import numpy as np

    value, exact, low, high = (side.astype(np.float64) for side in (value, exact, low, high))
    with np.errstate(all="ignore"):
        way = np.where(value >= exact, (value - exact) / (high - exact), (exact - value) / (exact - low))
    position: Array = np.where(np.isfinite(way), way, 0.0)
    return position
