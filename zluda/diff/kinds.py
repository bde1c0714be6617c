"""Types of elements: how their bytes are read as numbers, exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from zluda.errors import UnsupportedError
from zluda.records import dataclass

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.typing.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ElementType:
    """How the bytes of one element are read. ``mantissa`` are the stored bits of it, ``min_exponent`` is of
    the smallest normal.

    ``bits`` are those of a float narrower than its ``size`` bytes; two of 4 bits share a byte, low ones first
    (``packed``). ``specials`` says what the largest exponent holds: infinity and NaN as IEEE 754 has it,
    one NaN (all ones), or numbers.
    """

    name: str
    size: int
    kind: Literal["unsigned", "signed", "float", "pointer"]
    mantissa: int = 0
    min_exponent: int = 0
    bits: int = 0
    packed: int = 1
    specials: Literal["ieee", "nan", "none"] = "ieee"

    @property
    def numbers(self) -> bool:
        """Whether a distance between two has a meaning."""
        return self.kind != "pointer"


_TYPES = [
    ElementType("bytes", 1, "unsigned"),
    *(ElementType(f"u{8 * size}", size, "unsigned") for size in (1, 2, 4, 8)),
    *(ElementType(f"s{8 * size}", size, "signed") for size in (1, 2, 4, 8)),
    ElementType("f16", 2, "float", 10, -14, 16),
    ElementType("bf16", 2, "float", 7, -126, 16),
    ElementType("f32", 4, "float", 23, -126, 32),
    ElementType("tf32", 4, "float", 10, -126, 32),  # held as f32; a unit in the last place is tf32's
    ElementType("f64", 8, "float", 52, -1022, 64),
    # PTX ISA 5.2.3, the OCP formats.
    ElementType("e4m3", 1, "float", 3, -6, 8, specials="nan"),
    ElementType("e5m2", 1, "float", 2, -14, 8),
    ElementType("e2m3", 1, "float", 3, 0, 6, specials="none"),
    ElementType("e3m2", 1, "float", 2, -2, 6, specials="none"),
    ElementType("e2m1", 1, "float", 1, 0, 4, packed=2, specials="none"),
    ElementType("ue8m0", 1, "float", 0, -127, 8, specials="nan"),
    ElementType("pointer", 8, "pointer"),
]
_ALIASES = {
    "b8": "u8",
    "b16": "u16",
    "b32": "u32",
    "b64": "u64",
    "f16x2": "f16",
    "bf16x2": "bf16",
    **{f"{name}x{count}": name for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1") for count in (2, 4)},
}
ELEMENT_TYPES: dict[str, ElementType] = {known.name: known for known in _TYPES}
ELEMENT_TYPES |= {alias: ELEMENT_TYPES[name] for alias, name in _ALIASES.items()}


def element_type(name: str) -> ElementType:
    """The element type of a PTX type's name without its dot, or of ``bytes`` and ``pointer``; raises
    :class:`UnsupportedError`.
    """
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise UnsupportedError(f"element type {name}", "comparison of buffers") from None


def as_float64(bits: Array, kind: ElementType) -> Array:
    """The numbers of bit patterns, exactly; of a type with two in a byte, a pattern each."""
    import numpy as np

    if kind.bits <= 8:
        small: Array = _small(kind)[bits & np.uint8((1 << kind.bits) - 1)]
        return small
    if kind.name == "bf16":
        bits = bits.astype("<u4") << np.uint32(16)
    numbers: Array = bits.view(f"<f{bits.dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return numbers.astype(np.float64)


@lru_cache
def _small(kind: ElementType) -> Array:
    """Every number of a float of at most 8 bits, by its pattern."""
    import numpy as np

    if kind.name == "ue8m0":
        return np.array([2.0 ** (n - 127) for n in range(255)] + [np.nan])
    found = np.zeros(1 << kind.bits)
    half = 1 << (kind.bits - 1)
    top = (half >> kind.mantissa) - 1
    for pattern in range(half):
        exponent, fraction = pattern >> kind.mantissa, pattern & ((1 << kind.mantissa) - 1)
        value = (fraction + (bool(exponent) << kind.mantissa)) * 2.0 ** (
            max(exponent, 1) - 1 + kind.min_exponent - kind.mantissa
        )
        if kind.specials == "ieee" and exponent == top:
            value = np.nan if fraction else np.inf
        if kind.specials == "nan" and pattern == half - 1:
            value = np.nan
        found[pattern], found[half + pattern] = value, -value
    return found


def unpacked(cells: Array, kind: ElementType) -> Array:
    """A pattern an element; cells themselves where each holds one."""
    import numpy as np

    if kind.packed == 1:
        return cells
    mask = np.uint8((1 << kind.bits) - 1)
    return np.stack([cells & mask, cells >> np.uint8(kind.bits) & mask], axis=1).reshape(-1)
