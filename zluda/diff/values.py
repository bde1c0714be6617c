"""Two ranges of bytes, compared as the numbers they hold.

Equality is by bits: NaN payloads and signs of zero count. Distances are real numbers in units in the last
place of the recorded value, whose exponent is clamped at the smallest normal, so that one ULP next to zero
is the spacing of the subnormals (Muller, "On the definition of ulp(x)", Goldberg's form). Equal bytes need
no numbers, so numpy is imported only where something differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from zluda.diff.results import BufferComparison, Element
from zluda.errors import UnsupportedError
from zluda.records import dataclass

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.typing.NDArray[Any]

FIRST_ELEMENTS = 8
"""How many differing elements a comparison keeps."""

CLASSES = {
    "value": "another number",
    "flushed": "a subnormal on one side, zero on the other",
    "subnormal": "a subnormal is involved, but nothing was flushed",
    "zero-sign": "zeros of opposite sign",
    "nan-payload": "NaNs with different bits",
    "nan": "NaN on one side only",
    "infinity": "an infinity on one side only, or infinities of opposite sign",
}
"""Kinds of difference; every differing element is of exactly one."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """How the bytes of one element are read. ``mantissa`` are the stored bits of it, ``min_exponent`` is of
    the smallest normal.
    """

    name: str
    size: int
    kind: Literal["unsigned", "signed", "float"]
    mantissa: int = 0
    min_exponent: int = 0


_TYPES = [
    ElementType("bytes", 1, "unsigned"),
    *(ElementType(f"u{8 * size}", size, "unsigned") for size in (1, 2, 4, 8)),
    *(ElementType(f"s{8 * size}", size, "signed") for size in (1, 2, 4, 8)),
    ElementType("f16", 2, "float", 10, -14),
    ElementType("bf16", 2, "float", 7, -126),
    ElementType("f32", 4, "float", 23, -126),
    ElementType("f64", 8, "float", 52, -1022),
]
_ALIASES = {
    "b8": "u8",
    "b16": "u16",
    "b32": "u32",
    "b64": "u64",
    "f16x2": "f16",
    "bf16x2": "bf16",
    "tf32": "f32",
}
ELEMENT_TYPES: dict[str, ElementType] = {known.name: known for known in _TYPES}
ELEMENT_TYPES |= {alias: ELEMENT_TYPES[name] for alias, name in _ALIASES.items()}


def element_type(name: str) -> ElementType:
    """The element type of a PTX type's name without its dot, or of ``bytes``; raises
    :class:`UnsupportedError`.
    """
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise UnsupportedError(f"element type {name}", "comparison of buffers") from None


def compare(
    recorded: bytes,
    replayed: bytes,
    type_name: str,
    *,
    base: int = 0,
    offset: int = 0,
    allocation: int | None = None,
    name: str = "",
    known: bytes | None = None,
    first: int = FIRST_ELEMENTS,
) -> BufferComparison:
    """Compare two contents of ``[base + offset, base + offset + len(recorded))``.

    ``known`` has a byte a byte: where it is 0 the record does not know the byte and it is not compared (it
    reads as zero on both sides). Elements lie on the grid of the allocation at ``base``; bytes of an
    element outside the range read as zero too. Raises ValueError where the lengths differ.
    """
    if len(recorded) != len(replayed) or (known is not None and len(known) != len(recorded)):
        raise ValueError("record, replay and mask must have the same length")
    kind = element_type(type_name)
    size = len(recorded)
    start, stop = offset // kind.size, -(-(offset + size) // kind.size)
    nothing = BufferComparison(
        allocation=allocation,
        name=name,
        base=base,
        offset=offset,
        size=size,
        element_type=kind.name,
        bytes_compared=size if known is None else size - known.count(0),
        elements=stop - start if size else 0,
        differing=0,
    )
    if recorded == replayed:
        return nothing
    left, right = _on_grid(recorded, replayed, known, kind, offset)
    return _differences(nothing, left, right, kind, start, first)


def combine(parts: Sequence[BufferComparison], *, first: int = FIRST_ELEMENTS) -> BufferComparison:
    """Comparisons of several ranges of one allocation, by one element type, as one."""
    head = parts[0]
    if any((part.base, part.element_type) != (head.base, head.element_type) for part in parts):
        raise ValueError("only comparisons of one allocation and element type can be combined")
    offset = min(part.offset for part in parts)
    elements = sorted(
        (element for part in parts for element in part.first), key=lambda element: element.index
    )
    classes = {name: sum(part.classes.get(name, 0) for part in parts) for name in CLASSES}
    return replace(
        head,
        offset=offset,
        size=max(part.offset + part.size for part in parts) - offset,
        bytes_compared=sum(part.bytes_compared for part in parts),
        elements=sum(part.elements for part in parts),
        differing=sum(part.differing for part in parts),
        first=tuple(elements[:first]),
        max_ulp=_largest(part.max_ulp for part in parts),
        max_absolute=_largest(part.max_absolute for part in parts),
        max_relative=_largest(part.max_relative for part in parts),
        classes={name: count for name, count in classes.items() if count},
    )


def _largest(values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def _on_grid(
    recorded: bytes, replayed: bytes, known: bytes | None, kind: ElementType, offset: int
) -> tuple[Array, Array]:
    """Both sides as arrays of bit patterns, padded to whole elements, unknown bytes zero."""
    import numpy as np

    before = offset % kind.size
    padding = (before, -(before + len(recorded)) % kind.size)
    sides = []
    for side in (recorded, replayed):
        data = np.frombuffer(side, np.uint8)
        if known is not None:
            data = np.where(np.frombuffer(known, np.uint8) != 0, data, np.uint8(0))
        if any(padding):
            data = np.pad(data, padding)
        sides.append(data.view(f"<u{kind.size}"))
    return sides[0], sides[1]


def _differences(
    nothing: BufferComparison, left: Array, right: Array, kind: ElementType, start: int, first: int
) -> BufferComparison:
    """Fill in what differs. Only differing elements are turned into numbers."""
    import numpy as np

    where = np.flatnonzero(left != right)
    if not len(where):
        return nothing
    left_bits, right_bits = left[where], right[where]
    measured = measure(left_bits, right_bits, kind)
    elements = tuple(
        Element(
            index=start + int(where[i]),
            address=nothing.base + (start + int(where[i])) * kind.size,
            recorded=measured.left[i].item(),
            replayed=measured.right[i].item(),
            recorded_bits=int(left_bits[i]),
            replayed_bits=int(right_bits[i]),
            ulp=measured.ulp_of(i),
        )
        for i in range(min(first, len(where)))
    )
    return replace(
        nothing,
        differing=len(where),
        first=elements,
        max_ulp=measured.largest(measured.ulp),
        max_absolute=measured.largest(measured.absolute),
        max_relative=measured.largest(measured.relative),
        classes=measured.classes,
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """Differing elements as numbers; ``finite`` marks those where a distance has a meaning."""

    left: Array
    right: Array
    finite: Array
    absolute: Array
    relative: Array
    ulp: Array | None
    classes: dict[str, int]

    def ulp_of(self, index: int) -> float | None:
        if self.ulp is None or not self.finite[index]:
            return None
        return float(self.ulp[index])

    def largest(self, values: Array | None) -> Any:
        if values is None or not self.finite.any():
            return None
        return values[self.finite].max().item()


def measure(left_bits: Array, right_bits: Array, kind: ElementType) -> Measured:
    """How far elements that differ are from each other; the left side is the recorded one."""
    return (_measure_floats if kind.kind == "float" else _measure_integers)(left_bits, right_bits, kind)


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
    return Measured(left, right, np.ones(len(left), bool), absolute, relative, None, {"value": len(left)})


def _measure_floats(left_bits: Array, right_bits: Array, kind: ElementType) -> Measured:
    import numpy as np

    left, right = as_float64(left_bits, kind), as_float64(right_bits, kind)
    finite = np.isfinite(left) & np.isfinite(right)
    a, b = np.where(finite, left, 0), np.where(finite, right, 0)
    with np.errstate(over="ignore"):
        absolute = _capped(np.abs(a - b))
        magnitude = np.where(a != 0, np.abs(a), 1)
        relative = _capped(np.where(a != 0, absolute / magnitude, 0))
    return Measured(left, right, finite, absolute, relative, _ulp(a, b, kind), _classes(left, right, kind))


def _ulp(recorded: Array, replayed: Array, kind: ElementType) -> Array:
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

    largest: Array = np.minimum(values, np.finfo(np.float64).max)
    return largest


def as_float64(bits: Array, kind: ElementType) -> Array:
    """The numbers, exactly."""
    import numpy as np

    if kind.name == "bf16":
        bits = bits.astype("<u4") << np.uint32(16)
    numbers: Array = bits.view(f"<f{bits.dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return numbers.astype(np.float64)


def _classes(left: Array, right: Array, kind: ElementType) -> dict[str, int]:
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
    counts = np.bincount(chosen, minlength=len(names))
    found = dict(zip(names, counts.tolist(), strict=True))
    return {name: found[name] for name in CLASSES if found[name]}
