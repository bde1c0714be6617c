"""Whether elements that differ lie inside an envelope: what else the same kernel may have computed (D7).

An envelope is made of several results of one launch: the exact one, and some in which approximate
instructions were moved to the ends of their bounds. For each element it reaches from the exact result as far,
either way, as any of those; farther by as much as that exceeds their root mean square, since results that
scatter were not all seen; and one ULP. Integers lie between the smallest and the largest result.

Both sides must lie inside. A recorded element that does not was computed from something else than the kernel
that was repeated, and says so however near the replayed one is. Where all results agree, the element depends
on no approximate instruction and has no tolerance; nor have bytes of which nothing better is known.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from zluda.diff.kinds import ElementType, as_float64
from zluda.records import dataclass

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
    """The envelope of some elements of one type; ``recorded`` are their recorded bits.

    ``mixed``: some are integers as wide as the type, as in records. An element whose every result is a
    number of ordinary size (an exponent neither all zeros nor all ones) passes for a number; any other lies
    between the smallest and the largest result, read as signed integers.
    """

    kind: ElementType
    recorded: Array
    mixed: bool = False
    _runs: list[Array] = field(default_factory=list)

    def add(self, bits: Array) -> None:
        """One more result of the same elements; the first is the exact one."""
        self._runs.append(bits)

    def place(self, replayed: Array) -> Placed:
        """Where the replayed elements lie; inside are those whose recorded side is, too."""
        import numpy as np

        numbers = np.array([self._numbers(bits) for bits in self._runs])
        low, high = self._edges(numbers)
        if self.mixed:
            return self._place_mixed(replayed, low, high)
        inside = (np.array(self._runs) != self._runs[0]).any(axis=0) & (self.kind.name != "bytes")
        for side in (self.recorded, replayed):
            inside &= self._among(self._numbers(side), numbers, low, high)
        return Placed(inside, _position(self._numbers(replayed), numbers[0], low, high), low, high)

    def _place_mixed(self, replayed: Array, low: Array, high: Array) -> Placed:
        import numpy as np

        sides = np.array([*self._runs, self.recorded, replayed])
        exponents = sides >> self.kind.mantissa & (1 << 8 * self.kind.size - 1 - self.kind.mantissa) - 1
        top = exponents.dtype.type((1 << 8 * self.kind.size - 1 - self.kind.mantissa) - 1)
        ordinary = ((exponents > 0) & (exponents < top) | (sides == 0)).all(axis=0)
        whole = sides.view(f"<i{self.kind.size}")
        runs, values = whole[:-2], self._numbers(sides)
        least, most = runs.min(axis=0), runs.max(axis=0)
        inside = runs.min(axis=0) != runs.max(axis=0)
        for number, integer in zip(values[-2:], whole[-2:], strict=True):
            with np.errstate(invalid="ignore"):
                as_number = (low <= number) & (number <= high)
            inside &= np.where(ordinary, as_number, (least <= integer) & (integer <= most))
        way = np.where(ordinary, _position(values[-1], values[0], low, high), 0.0)
        edges = (np.where(ordinary, a, b.astype(np.float64)) for a, b in ((low, least), (high, most)))
        return Placed(inside, way, *edges)

    def _among(self, value: Array, numbers: Array, low: Array, high: Array) -> Array:
        """Between the edges; what is no finite number, where a result is the same."""
        import numpy as np

        with np.errstate(invalid="ignore"):
            among: Array = (low <= value) & (value <= high)
        if self.kind.kind == "float":
            among = np.where(np.isnan(value), np.isnan(numbers).any(axis=0), among)
            among = np.where(np.isinf(value), (numbers == value).any(axis=0), among)
        return among

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
            finite = np.where(np.isfinite(numbers), numbers, exact)  # the hull itself, lest rounding lose it
            low = np.fmin(exact - reach, finite.min(axis=0))
            high = np.fmax(exact + reach, finite.max(axis=0))
            return _stepped(low, self.kind, -np.inf), _stepped(high, self.kind, np.inf)

    def _numbers(self, bits: Array) -> Array:
        return numbers_of(bits, self.kind)


def numbers_of(bits: Array, kind: ElementType) -> Array:
    """Bit patterns as float64, or as integers of the kind."""
    if kind.kind == "float":
        return as_float64(bits, kind)
    return bits.view(f"<i{kind.size}") if kind.kind == "signed" else bits


# What NVIDIA's arithmetic makes of an invalid operation, and what its conversions make of that. Other NaNs
# are bits that were copied. -1 is none of them: a record of a float and an integer may pass for two floats.
_COMPUTED_NAN = {
    "f16": (0x7FFF, 0x7E00, 0xFE00),
    "bf16": (0x7FFF, 0x7FC0, 0xFFC0),
    "f32": (0x7FFFFFFF, 0x7FFF0000, 0xFFFF0000, 0x7FC00000, 0xFFC00000),
    "tf32": (0x7FFFFFFF, 0x7FC00000, 0xFFC00000),
    "f64": (0x7FF8 << 48, 0xFFF8 << 48, 0x7FFFFFFFE0000000, 0xFFFFFFFFE0000000),
}


def same_nan(recorded: Array, replayed: Array, kind: ElementType) -> Array:
    """Which elements are a NaN that NVIDIA computed, and any NaN here."""
    import numpy as np

    if kind.name not in _COMPUTED_NAN:
        return np.zeros(len(recorded), bool)
    computed = np.isin(recorded, np.array(_COMPUTED_NAN[kind.name], recorded.dtype))
    same: Array = computed & np.isnan(as_float64(replayed, kind))
    return same


def same_number(recorded: Array, replayed: Array, kind: ElementType) -> Array:
    """Which elements are such a NaN, or differ in a zero's sign only."""
    import numpy as np

    if kind.kind != "float":
        return np.zeros(len(recorded), bool)
    zeros: Array = (as_float64(recorded, kind) == 0) & (as_float64(replayed, kind) == 0)
    return zeros | same_nan(recorded, replayed, kind)


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
