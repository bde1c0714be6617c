"""How far two contents of a buffer are apart, as numbers: one pass over all of their elements.

Distances are real numbers in units in the last place of the recorded value, whose exponent is clamped at
the smallest normal, so that one ULP next to zero is the spacing of the subnormals (Muller, "On the definition
of ulp(x)", Goldberg's form). What has no distance is counted by kind instead: a NaN or an infinity on one
side is never near anything, however large the number on the other, and a subnormal that was flushed to zero
is ``flushed``, not as many ULP as it has.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from zluda.diff.kinds import ElementType, as_float64
from zluda.records import dataclass

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.typing.NDArray[Any]

CLASSES = {
    "value": "another number",
    "flushed": "a subnormal on one side, zero on the other",
    "subnormal": "a subnormal is involved, but nothing was flushed",
    "zero-sign": "zeros of opposite sign",
    "nan-payload": "NaNs with different bits",
    "nan": "NaN on one side only",
    "infinity": "an infinity on one side only, or infinities of opposite sign",
    "pointer": "addresses of different places",
}
"""Kinds of difference; every differing element is of exactly one."""

KINDS = ("normal", "subnormal", "+0", "-0", "infinity", "nan")
"""Kinds of floating-point number; every element is of exactly one on each side."""

_NEAREST, _FARTHEST = -1, 32
EDGES = (0.0, *(2.0**power for power in range(_NEAREST, _FARTHEST + 1)), math.inf)
"""Upper ends of a histogram's steps: 0, then ½ and the powers of two to 2^32, then all that is farther."""

_FEW_SPECIAL = 8  # one number in so many that is not normal is measured apart from the others
_FEW_STEPS = 8  # up to so many are counted one by one
_CHUNK = 1 << 16  # elements whose numbers nearly stay in a core's own cache; fewer are mostly numpy's calls
_PAIRS = 1 << 16  # pairs of bytes


class Scaled(NamedTuple):
    """``mantissa * 2**exponent``: a sum of squares, which may be larger or smaller than a float64 can be."""

    mantissa: float = 0.0
    exponent: int = 0

    def __add__(self, other: tuple[Any, ...]) -> Scaled:
        assert isinstance(other, Scaled)
        if not other.mantissa or not self.mantissa:
            return other if other.mantissa else self
        top = max(self.exponent, other.exponent)
        total = sum(math.ldexp(one.mantissa, max(one.exponent - top, -2000)) for one in (self, other))
        mantissa, more = math.frexp(total)
        return Scaled(mantissa, top + more)

    def over(self, other: Scaled) -> float:
        """The quotient; infinity where it is none, or is too large."""
        if not other.mantissa:
            return math.inf if self.mantissa else 0.0
        try:
            return math.ldexp(self.mantissa / other.mantissa, self.exponent - other.exponent)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class Metrics:
    """Elements of one type, recorded against replayed; ``offset`` is a field's in its structure.

    ``histogram`` counts differing elements that have a distance by :data:`EDGES`: in units in the last place,
    of integers by the difference. ``max_…`` run over the same elements, None where there are none. ``error``
    and ``energy`` are the sums of squares of differences and of recorded values, of elements finite on both
    sides. ``classes`` counts differing elements by :data:`CLASSES`; ``recorded`` and ``replayed`` count all
    by :data:`KINDS`, and are empty for what is no float.
    """

    element_type: str
    offset: int = 0
    elements: int = 0
    differing: int = 0
    histogram: tuple[int, ...] = ()
    max_ulp: float | None = None
    max_absolute: float | None = None
    max_relative: float | None = None
    error: Scaled = Scaled()
    energy: Scaled = Scaled()
    classes: Mapping[str, int] = field(default_factory=dict)
    recorded: Mapping[str, int] = field(default_factory=dict)
    replayed: Mapping[str, int] = field(default_factory=dict)

    @property
    def equal(self) -> int:
        """Elements whose bits are equal."""
        return self.elements - self.differing

    @property
    def nmse(self) -> float:
        """The normalised mean square error: of a share 1e-7, say, ggml's tests take a result for right."""
        return self.error.over(self.energy)

    @property
    def steps(self) -> list[tuple[float, int]]:
        """(upper end, how many elements) of the histogram's steps that are not empty."""
        return [(edge, count) for edge, count in zip(EDGES, self.histogram, strict=False) if count]

    def to_json(self) -> dict[str, Any]:
        """As ``zluda replay --json`` has it; an infinite distance or edge is null there."""
        return {
            "element_type": self.element_type,
            "offset": self.offset,
            "elements": self.elements,
            "equal": self.equal,
            "classes": dict(self.classes),
            "recorded": dict(self.recorded),
            "replayed": dict(self.replayed),
            "max_ulp": self.max_ulp,
            "max_absolute": self.max_absolute,
            "max_relative": self.max_relative,
            "nmse": self.nmse if math.isfinite(self.nmse) else None,
            "histogram": [
                {"upto": edge if math.isfinite(edge) else None, "elements": n} for edge, n in self.steps
            ],
        }


def merged(one: Metrics, other: Metrics) -> Metrics:
    """Of two parts of a buffer; ValueError where they are not of one type."""
    if (one.element_type, one.offset) != (other.element_type, other.offset):
        raise ValueError(f"{one.element_type} and {other.element_type} cannot be merged")
    if not one.histogram or not other.histogram:
        histogram = one.histogram or other.histogram
    else:
        histogram = tuple(a + b for a, b in zip(one.histogram, other.histogram, strict=True))
    return Metrics(
        one.element_type,
        one.offset,
        one.elements + other.elements,
        one.differing + other.differing,
        histogram,
        largest(one.max_ulp, other.max_ulp),
        largest(one.max_absolute, other.max_absolute),
        largest(one.max_relative, other.max_relative),
        one.error + other.error,
        one.energy + other.energy,
        _summed(one.classes, other.classes, CLASSES),
        _summed(one.recorded, other.recorded, KINDS),
        _summed(one.replayed, other.replayed, KINDS),
    )


def largest(*values: Any) -> Any:
    """Of those that are not None; None where all are."""
    return max((value for value in values if value is not None), default=None)


def _summed(one: Mapping[str, int], other: Mapping[str, int], names: Any) -> dict[str, int]:
    counts = {name: one.get(name, 0) + other.get(name, 0) for name in names}
    return {name: count for name, count in counts.items() if count}


def metrics_of(recorded: Array, replayed: Array, kind: ElementType, *, offset: int = 0) -> Metrics:
    """Of two arrays of bit patterns, unsigned integers of the type's size; of one given twice, all equal."""
    found = Metrics(kind.name, offset)
    if kind.kind == "float" and kind.bits <= 8 and len(recorded) > _PAIRS:
        pairs, times = _pairs(recorded, replayed)
        return merged(found, _chunk(pairs >> 8, pairs & 0xFF, kind, offset, times))
    apart: list[tuple[Array, Array]] = []
    for left, right in _chunks(recorded, replayed):
        found = merged(found, _chunk(left, right, kind, offset, apart=apart))
    return merged(found, _measured_apart(apart, kind, offset)) if apart else found


def _measured_apart(apart: list[tuple[Array, Array]], kind: ElementType, offset: int) -> Metrics:
    """What there is to say of elements that are counted already; together, since there are few in a chunk."""
    import numpy as np

    left, right = (np.concatenate(side) for side in zip(*apart, strict=True))
    found = Metrics(kind.name, offset)
    for a, b in _chunks(left, right):
        part = _differing_floats(a, b, kind, as_float64(a, kind), None, plain=False)
        told = Metrics(
            kind.name, offset, 0, 0, part.histogram, *part.largest, part.error, classes=part.classes
        )
        found = merged(found, told)
    return found


def _chunks(left: Array, right: Array) -> Iterator[tuple[Array, Array]]:
    for start in range(0, len(left), _CHUNK):
        yield left[start : start + _CHUNK], right[start : start + _CHUNK]


def _pairs(left: Array, right: Array) -> tuple[Array, Array]:
    """The pairs of bytes that there are, as ``left << 8 | right``, and how many of each: they are fewer than
    elements.
    """
    import numpy as np

    counts = np.zeros(_PAIRS, np.int64)
    for start in range(0, len(left), _CHUNK):
        pair = left[start : start + _CHUNK].astype(np.intp)
        pair <<= 8
        pair |= right[start : start + _CHUNK]
        counts += np.bincount(pair, minlength=_PAIRS)
    found = np.flatnonzero(counts)
    return found.astype(np.uint16), counts[found]


def _chunk(
    left: Array,
    right: Array,
    kind: ElementType,
    offset: int,
    times: Array | None = None,
    apart: list[tuple[Array, Array]] | None = None,
) -> Metrics:
    """``times``: how many elements each of the arrays' stands for (None: one). To ``apart`` go those that
    differ and are counted here, but are to be measured elsewhere.
    """
    if times is not None:
        left, right = left.astype("u1"), right.astype("u1")
    differs = left != right
    count, size = _count(differs, times), len(left) if times is None else int(times.sum())
    is_float = kind.kind == "float"
    numbers = as_float64(left, kind) if is_float else None
    recorded = _kinds(left, kind, times) if is_float else {}
    energy = Scaled() if numbers is None else _energy(numbers, recorded, times)
    if not count:
        return Metrics(kind.name, offset, size, energy=energy, recorded=recorded, replayed=dict(recorded))
    every = count == size
    a, b, some = left, right, times
    if not every:
        a, b, some = left[differs], right[differs], None if times is None else times[differs]
    before = recorded if every else _kinds(a, kind, some) if is_float else {}
    after = _kinds(b, kind, some) if is_float else {}
    plain = before.keys() | after.keys() == {"normal"}
    part = _differing(a, b, kind, numbers if every else None, some, apart, plain=plain)
    replayed = {k: recorded.get(k, 0) - before.get(k, 0) + after.get(k, 0) for k in KINDS} if is_float else {}
    return Metrics(
        kind.name,
        offset,
        size,
        count,
        part.histogram,
        *part.largest,
        part.error,
        energy,
        part.classes,
        recorded,
        {name: number for name, number in replayed.items() if number},
    )


def _count(mask: Array, times: Array | None) -> int:
    import numpy as np

    return int(np.count_nonzero(mask)) if times is None else int(times[mask].sum())


def _kinds(bits: Array, kind: ElementType, times: Array | None = None) -> dict[str, int]:
    """How many are of each of KINDS, told from the patterns."""
    size = len(bits) if times is None else int(times.sum())
    if kind.name == "ue8m0":
        nan = _count(bits == 0xFF, times)
        return _some({"normal": size - nan, "nan": nan})
    stored = 23 if kind.name == "tf32" else kind.mantissa
    sign = 1 << (kind.bits - 1)
    first_normal, top = 1 << stored, sign - (1 << stored)
    word = bits.dtype.type
    magnitude = bits & word(sign - 1)
    if size and first_normal <= magnitude.min() and magnitude.max() < (top if kind.specials == "ieee" else 0):
        return {"normal": size}
    zeros = _count(magnitude == 0, times)
    negative = _count(bits & word(2 * sign - 1) == word(sign), times) if zeros else 0
    small = _count(magnitude < word(first_normal), times)
    large, infinite = 0, 0
    if kind.specials == "ieee":
        large = _count(magnitude >= word(top), times)
        infinite = _count(magnitude == word(top), times) if large else 0
    elif kind.specials == "nan":
        large = _count(magnitude == word(sign - 1), times)
    counts = (
        size - small - large,
        small - zeros,
        zeros - negative,
        negative,
        infinite,
        large - infinite,
    )
    return _some(dict(zip(KINDS, counts, strict=True)))


def _some(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _energy(numbers: Array, kinds: Mapping[str, int], times: Array | None) -> Scaled:
    import numpy as np

    if "nan" in kinds or "infinity" in kinds:
        numbers = _zeroed(numbers, np.flatnonzero(~np.isfinite(numbers)))
    return _squares(numbers, times)


def _zeroed(numbers: Array, where: Array) -> Array:
    """A copy with zeros at some places: quicker than without those, where they are few."""
    found: Array = numbers.copy()
    found[where] = 0
    return found


def _squares(numbers: Array, times: Array | None = None) -> Scaled:
    """The sum of the squares."""
    import numpy as np

    if not len(numbers):
        return Scaled()
    total = _dot(numbers, times)
    if 1e-280 < total < 1e290:
        mantissa, exponent = math.frexp(total)
        return Scaled(mantissa, exponent)
    top = float(np.abs(numbers).max())
    if top == 0:
        return Scaled()
    power = math.frexp(top)[1]
    half = -power // 2  # in two steps: 2**1074 is no float64
    scaled = np.ldexp(np.ldexp(numbers, half), -power - half)
    mantissa, exponent = math.frexp(_dot(scaled, times))
    return Scaled(mantissa, exponent + 2 * power)


def _dot(numbers: Array, times: Array | None = None) -> float:
    """Not ``numpy.dot``, which asks BLAS's threads."""
    import numpy as np

    with np.errstate(over="ignore"):
        if times is None:
            return float(np.einsum("i,i->", numbers, numbers))
        return float(np.einsum("i,i,i->", numbers, numbers, times.astype(np.float64)))


# --- elements that differ ---------------------------------------------------------------------------------


class _Part(NamedTuple):
    histogram: tuple[int, ...]
    largest: tuple[float | None, float | None, float | None]
    error: Scaled
    classes: dict[str, int]


def _differing(
    left: Array,
    right: Array,
    kind: ElementType,
    numbers: Array | None,
    times: Array | None,
    apart: list[tuple[Array, Array]] | None,
    *,
    plain: bool,
) -> _Part:
    """``numbers`` are the left side's, where they are known; ``plain``: all are normal, on both sides."""
    import numpy as np

    if kind.kind == "pointer":
        return _Part((), (None, None, None), Scaled(), {"pointer": len(left)})
    if kind.kind != "float":
        return _differing_integers(left, right, kind)
    if numbers is None:
        numbers = as_float64(left, kind)
    if times is not None or kind.size == 1:
        return _differing_floats(left, right, kind, numbers, times, plain=plain)
    if plain:
        return _differing_normals(numbers, as_float64(right, kind), kind)
    special = np.flatnonzero(~(_normal(left, kind) & _normal(right, kind)))
    if apart is None or len(special) > len(left) // _FEW_SPECIAL:
        return _differing_floats(left, right, kind, numbers, times, plain=False)
    apart.append((left[special], right[special]))
    return _differing_normals(numbers, as_float64(right, kind), kind, special)


def _normal(bits: Array, kind: ElementType) -> Array:
    """Which are normal numbers, of a format with infinities."""
    word = bits.dtype.type
    stored = 23 if kind.name == "tf32" else kind.mantissa
    lowest, sign = word(1 << stored), word((1 << (kind.bits - 1)) - 1)
    above = (bits & sign) - lowest  # a subnormal is beyond all numbers then
    found: Array = above < sign - lowest - lowest + word(1)
    return found


def _differing_integers(left: Array, right: Array, kind: ElementType) -> _Part:
    import numpy as np

    if kind.kind == "signed":
        left, right = left.view(f"<i{kind.size}"), right.view(f"<i{kind.size}")
    # Two's complement: the difference of the larger and the smaller is right as an unsigned number.
    distance = np.maximum(left, right).view(f"<u{kind.size}")
    distance -= np.minimum(left, right).view(f"<u{kind.size}")
    absolute = distance.astype(np.float64)
    farthest, error, histogram = int(distance.max()), _squares(absolute), _histogram(absolute)
    magnitude = left.astype(np.float64)
    with np.errstate(divide="ignore"):
        np.divide(absolute, magnitude, out=absolute)
    if not left.all():
        absolute[left == 0] = 0.0
    relative = max(float(absolute.max()), -float(absolute.min()))
    return _Part(histogram, (None, farthest, relative), error, {"value": len(left)})


_MANTISSA_BITS, _BIAS = 52, 1023  # of a float64
_EXPONENT = 0x7FF << _MANTISSA_BITS
_SMALLEST = sys.float_info.min


def _differing_normals(a: Array, b: Array, kind: ElementType, but: Array | None = None) -> _Part:
    """Of normal numbers: what is most of most buffers, in few passes over what a core's own cache holds.

    The few places ``but`` are left out: there the first pair of normal numbers stands in their place, which
    changes no maximum, and is taken from the counts again.
    """
    import numpy as np

    left_out = 0 if but is None else len(but)
    if but is not None and left_out:
        first = _first_but(but)
        a, b = a.copy(), b.copy()
        a[but], b[but] = a[first], b[first]
    with np.errstate(over="ignore"):
        difference = np.subtract(a, b)
    absolute = np.abs(difference, out=difference)
    farthest = float(absolute.max())
    finite = math.isfinite(farthest)
    if but is not None and left_out:
        error = _squares_of_differences(_zeroed(a, but), _zeroed(b, but))
    else:
        error = _squares(absolute) if finite else _squares_of_differences(a, b)
    told = _in_units(absolute, a, kind) if finite else None
    if told is None:
        distances = ulp(a, b, kind)
        told = float(distances.max()), _histogram(distances)
    counts = told[1]
    if left_out:
        step = _step(float(absolute[first]), float(a[first]), kind)
        counts = (*counts[:step], counts[step] - left_out, *counts[step + 1 :])
    with np.errstate(over="ignore"):
        np.divide(absolute, a, out=absolute)
    relative = max(float(absolute.max()), -float(absolute.min()))
    classes = {"value": len(a) - left_out}
    return _Part(counts, (told[0], _at_most(farthest), _at_most(relative)), error, classes)


def _step(distance: float, of: float, kind: ElementType) -> int:
    """At which of EDGES a distance from a normal number is counted, by units in its last place."""
    mantissa, exponent = math.frexp(distance)
    if not math.isfinite(distance):
        return len(EDGES) - 1
    unit = math.frexp(of)[1] - 1 - kind.mantissa
    power = exponent - unit - (mantissa == 0.5)  # of two, that is the distance or the next above it
    return min(max(power - _NEAREST + 1, 1), len(EDGES) - 1)


def _first_but(places: Array) -> int:
    """The first place that is none of ``places``, which are in order."""
    import numpy as np

    return int(np.flatnonzero(np.append(places, -1) != np.arange(len(places) + 1))[0])


def _in_units(absolute: Array, a: Array, kind: ElementType) -> tuple[float, tuple[int, ...]] | None:
    """The largest of distances in units in the last place of ``a``, and their histogram; None where a float64
    does not hold them all.

    A unit is a power of two, so a distance's exponent is the difference of two.
    """
    import numpy as np

    distances = np.bitwise_and(a.view("<i8"), _EXPONENT)
    np.subtract(absolute.view("<i8"), distances, out=distances)
    unit = (_BIAS + kind.mantissa) << _MANTISSA_BITS
    low, high = int(distances.min()) + unit, int(distances.max()) + unit
    exact = low >> _MANTISSA_BITS > 0 and high < _EXPONENT
    if not exact or (kind.size == 8 and float(absolute.min()) < _SMALLEST):
        return None
    farthest = float(np.int64(high).view(np.float64))
    distances += unit + (1 << _MANTISSA_BITS) - 1 - ((_BIAS + _NEAREST - 1) << _MANTISSA_BITS)
    np.right_shift(distances, _MANTISSA_BITS, out=distances)
    return farthest, _counted(np.maximum(distances, 1, out=distances) if kind.name == "tf32" else distances)


def _at_most(distance: float) -> float:
    """Distances beyond float64 are given as its largest number, never as infinity."""
    return min(distance, sys.float_info.max)


def _differing_floats(
    left: Array, right: Array, kind: ElementType, a: Array, times: Array | None, *, plain: bool
) -> _Part:
    import numpy as np

    b = as_float64(right, kind)
    size = len(a) if times is None else int(times.sum())
    classes = {"value": size} if plain else _classes(a, b, kind, times)
    if classes.keys() - {"value", "subnormal"}:
        finite = np.isfinite(a) & np.isfinite(b)
        flushed = finite & _flushed(a, b, kind)
        error = _squares_of_differences(a[finite], b[finite], None if times is None else times[finite])
        kept = finite & ~flushed
        a, b, left, times = a[kept], b[kept], left[kept], None if times is None else times[kept]
        if not len(a):
            return _Part((), (None, None, None), error, classes)
    else:
        error = _squares_of_differences(a, b, times)
    with np.errstate(over="ignore"):
        absolute = np.abs(a - b)
    distances = _ulp_by_bits(absolute, left, kind) if kind.bits <= 32 else ulp(a, b, kind)
    farthest = (float(distances.max()), float(_capped(absolute).max()), _largest_relative(a, absolute))
    return _Part(_histogram(distances, times), farthest, error, classes)


def _squares_of_differences(a: Array, b: Array, times: Array | None = None) -> Scaled:
    """Of numbers near the largest float64 half the differences are squared, and the sum made up for it."""
    import numpy as np

    with np.errstate(over="ignore"):
        difference = a - b
    if np.isfinite(difference).all():
        return _squares(difference, times)
    half = _squares(a / 2 - b / 2, times)
    return Scaled(half.mantissa, half.exponent + 2)


def _largest_relative(a: Array, absolute: Array) -> float:
    """The largest of absolute / |a|, over those that are not zero."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotients = absolute / np.abs(a)
    largest_one = float(quotients.max())
    if math.isfinite(largest_one):
        return largest_one
    nonzero = a != 0
    return float(_capped(quotients[nonzero]).max()) if nonzero.any() else 0.0


def _ulp_by_bits(absolute: Array, left: Array, kind: ElementType) -> Array:
    """|recorded - replayed| in units in the last place of ``left``, for formats whose units a float64 holds:
    by the exponent's bits.
    """
    stored = 23 if kind.name == "tf32" else kind.mantissa
    units = _units(kind)
    exponents = (left >> left.dtype.type(stored)) & left.dtype.type(len(units) - 1)
    found: Array = absolute * units.take(exponents)
    return found


@lru_cache
def _units(kind: ElementType) -> Array:
    """Units in the last place in 1, by the exponent's bits; of subnormals as of the smallest normal."""
    import numpy as np

    stored = 23 if kind.name == "tf32" else kind.mantissa
    if kind.name == "ue8m0":
        scales: Array = 2.0 ** (127 - np.arange(256.0))
        return scales
    exponents = np.maximum(np.arange(1 << (kind.bits - 1 - stored)), 1) - 1 + kind.min_exponent
    units: Array = np.ldexp(1.0, kind.mantissa - exponents)
    return units


def _histogram(distances: Array, times: Array | None = None) -> tuple[int, ...]:
    """Counts by :data:`EDGES`: of 0, and by the exponent of the next power of two."""
    import numpy as np

    power = distances.view("<i8") + ((1 << _MANTISSA_BITS) - 1)
    np.right_shift(power, _MANTISSA_BITS, out=power)
    power -= _BIAS + _NEAREST - 1
    if power.min() < 1:  # a zero, or, of tf32, less than half a unit
        power = np.where(distances == 0, 0, np.maximum(power, 1))
    return _counted(power, times)


def _counted(power: Array, times: Array | None = None) -> tuple[int, ...]:
    """How many are at each of EDGES, by the numbers of those."""
    import numpy as np

    low, high = (min(max(int(one), 0), len(EDGES) - 1) for one in (power.min(), power.max()))
    if high - low > _FEW_STEPS or times is not None:
        np.clip(power, 0, len(EDGES) - 1, out=power)
        return tuple(int(n) for n in np.bincount(power, times, minlength=len(EDGES)))
    counts, left = [0] * len(EDGES), len(power)
    small = power.astype("<i2")
    for step in range(low + 1, high):
        counts[step] = int(np.count_nonzero(small == step))
    counts[low] = int(np.count_nonzero(small <= low))
    counts[high] = left - sum(counts[low:high])
    return tuple(counts)


def _flushed(a: Array, b: Array, kind: ElementType) -> Array:
    import numpy as np

    smallest = 2.0**kind.min_exponent
    found: Array = ((np.abs(a) < smallest) & (b == 0) | (np.abs(b) < smallest) & (a == 0)) & (
        (a != 0) | (b != 0)
    )
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """Differing elements as numbers; ``finite`` marks those where a distance has a meaning."""

    left: Array
    right: Array
    finite: Array
    absolute: Array
    relative: Array
    ulp: Array | None

    def ulp_of(self, index: int) -> float | None:
        if self.ulp is None or not self.finite[index]:
            return None
        return float(self.ulp[index])

    def largest(self, values: Array | None) -> Any:
        if values is None or not self.finite.any():
            return None
        return values[self.finite].max().item()


def measure(left_bits: Array, right_bits: Array, kind: ElementType) -> Measured:
    """How far elements that differ are from each other, one by one; the left side is the recorded one."""
    if kind.kind == "pointer":
        return _measure_pointers(left_bits, right_bits)
    return (_measure_floats if kind.kind == "float" else _measure_integers)(left_bits, right_bits, kind)


def _measure_pointers(left: Array, right: Array) -> Measured:
    import numpy as np

    nothing = np.zeros(len(left))
    return Measured(left, right, np.zeros(len(left), bool), nothing, nothing, None)


def _measure_integers(left: Array, right: Array, kind: ElementType) -> Measured:
    import numpy as np

    if kind.kind == "signed":
        left, right = left.view(f"<i{kind.size}"), right.view(f"<i{kind.size}")
    # Two's complement: the difference of the larger and the smaller is right as an unsigned number, even
    # where it does not fit the signed type.
    wide = f"<{'i' if kind.kind == 'signed' else 'u'}8"
    low, high = np.minimum(left, right).astype(wide), np.maximum(left, right).astype(wide)
    absolute = high.view("<u8") - low.view("<u8")
    magnitude = np.abs(left.astype(np.float64))
    relative = np.where(magnitude > 0, absolute / np.where(magnitude > 0, magnitude, 1), 0)
    return Measured(left, right, np.ones(len(left), bool), absolute, relative, None)


def _measure_floats(left_bits: Array, right_bits: Array, kind: ElementType) -> Measured:
    import numpy as np

    left, right = as_float64(left_bits, kind), as_float64(right_bits, kind)
    finite = np.isfinite(left) & np.isfinite(right)
    a, b = np.where(finite, left, 0), np.where(finite, right, 0)
    with np.errstate(over="ignore"):
        absolute = _capped(np.abs(a - b))
        magnitude = np.where(a != 0, np.abs(a), 1)
        relative = _capped(np.where(a != 0, absolute / magnitude, 0))
    return Measured(left, right, finite, absolute, relative, ulp(a, b, kind))


def ulp(recorded: Array, replayed: Array, kind: ElementType) -> Array:
    """|recorded - replayed| in units in the last place of ``recorded``; both finite.

    Both are scaled by a power of two first, which is exact, so that the difference neither over- nor
    underflows where its quotient does not.
    """
    import numpy as np

    _, exponent = np.frexp(recorded)  # recorded = m * 2**exponent with 0.5 <= m < 1
    exponent = np.where(recorded == 0, kind.min_exponent, np.maximum(exponent - 1, kind.min_exponent))
    scale = kind.mantissa - exponent
    half = scale // 2  # in two steps: 2**1074 is no float64
    with np.errstate(over="ignore", invalid="ignore"):
        a = np.ldexp(np.ldexp(recorded, half), scale - half)
        b = np.ldexp(np.ldexp(replayed, half), scale - half)
        return _capped(np.abs(a - b))


def _capped(values: Array) -> Array:
    """Distances beyond float64 are given as its largest number, never as infinity."""
    import numpy as np

    found: Array = np.minimum(values, np.finfo(np.float64).max)
    return found


def _classes(left: Array, right: Array, kind: ElementType, times: Array | None = None) -> dict[str, int]:
    """How many elements are of each of CLASSES; the first rule that applies holds."""
    import numpy as np

    smallest = 2.0**kind.min_exponent
    subnormal = [(side != 0) & (np.abs(side) < smallest) for side in (left, right)]
    nan = [np.isnan(side) for side in (left, right)]
    infinite = [np.isinf(side) for side in (left, right)]
    rules = {
        "nan-payload": nan[0] & nan[1],
        "nan": nan[0] | nan[1],
        "infinity": infinite[0] | infinite[1],
        "zero-sign": (left == 0) & (right == 0),
        "flushed": (subnormal[0] & (right == 0)) | (subnormal[1] & (left == 0)),
        "subnormal": subnormal[0] | subnormal[1],
    }
    names = [*rules, "value"]
    chosen = np.select(list(rules.values()), list(range(len(rules))), default=len(rules))
    counts = np.bincount(chosen, times, minlength=len(names))
    found = dict(zip(names, map(int, counts), strict=True))
    return {name: found[name] for name in CLASSES if found.get(name)}
