"""Element types of tensor-core operands (PTX ISA 5.2.2 and 5.2.3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format.

    ``bits`` is what an element occupies, ``exponent`` and ``mantissa`` the fields' widths. A format without
    infinity (e4m3) has one NaN, all ones, or none (``nan``). ``unread`` low bits are ignored: tf32 is the
    upper 19 of 32 bits. Bits above the sign are ignored too.
    """

    name: str
    bits: int
    exponent: int
    mantissa: int
    infinity: bool = True
    unread: int = 0
    nan: bool = True

    @property
    def bias(self) -> int:
        """What is subtracted from an exponent field."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def smallest_exponent(self) -> int:
        """That of the smallest normal number, and of every subnormal one."""
        return 1 - self.bias


FLOATS: dict[str, FloatFormat] = {
    f.name: f
    for f in (
        FloatFormat("f16", 16, 5, 10),
        FloatFormat("bf16", 16, 8, 7),
        FloatFormat("tf32", 32, 8, 10, unread=13),
        FloatFormat("e4m3", 8, 4, 3, infinity=False),
        FloatFormat("e5m2", 8, 5, 2),
        FloatFormat("e3m2", 8, 3, 2, infinity=False, nan=False),
        FloatFormat("e2m3", 8, 2, 3, infinity=False, nan=False),
        FloatFormat("e2m1", 4, 2, 1, infinity=False, nan=False),
        # In the middle of a byte, as .kind::f8f6f4 and .kind::mxf8f6f4 have it (PTX ISA 9.7.14.5.14).
        FloatFormat("e2m1_b8", 8, 2, 1, infinity=False, nan=False, unread=2),
        FloatFormat("f32", 32, 8, 23),
    )
}
SCALES: dict[str, FloatFormat] = {
    "ue4m3": FloatFormat("ue4m3", 8, 4, 3, infinity=False),
    "ue8m0": FloatFormat("ue8m0", 8, 8, 0, infinity=False),
}
"""Formats of the scales of blocks, which have no sign; a ue8m0 has neither zero nor subnormal numbers."""
INTEGERS: dict[str, tuple[int, bool]] = {
    "s8": (8, True),
    "u8": (8, False),
    "s4": (4, True),
    "u4": (4, False),
}
"""Integer type to its bits and whether it is signed."""

_OTHERS = {"b1": 1, "s32": 32, "f64": 64}


def element_bits(name: str) -> int:
    """Bits an element occupies in a register."""
    if name in FLOATS:
        return FLOATS[name].bits
    return INTEGERS[name][0] if name in INTEGERS else _OTHERS[name]


def register_bits(name: str) -> int:
    """Bits of the registers that hold elements of a type."""
    return max(element_bits(name), 32)
