"""LLVM values as text: element types, constants by their bits, and how types are spelled."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

FLOAT_BITS = {"half": 16, "float": 32, "double": 64}
FLOAT_OF_BITS = {16: "half", 32: "float", 64: "double"}
_MANGLED = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}


class Value(NamedTuple):
    """An SSA value or a constant. A tuple, since a kernel has ten thousands of them.

    ``type`` is the LLVM element type (``"i32"``, ``"float"``, ``"i1"``, ``"ptr"``, ``"ptr addrspace(3)"``),
    ``lanes`` the vector length, 1 for a scalar.
    ``bits`` is the bit pattern of a known constant (always one lane), else None.
    """

    type: str
    lanes: int
    ref: str
    bits: int | None = None

    @property
    def ir_type(self) -> str:
        """The LLVM type: ``"i32"`` or ``"<16 x i32>"``."""
        return vector_type(self.type, self.lanes)

    @property
    def typed(self) -> str:
        """Type and reference, as an instruction's first operand is written."""
        return f"{vector_type(self.type, self.lanes)} {self.ref}"

    @property
    def width(self) -> int:
        """Bits of one lane."""
        return type_bits(self.type)


Operand = Value | int | float


def vector_type(element: str, lanes: int) -> str:
    """``"<lanes x element>"``, or the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@lru_cache
def type_bits(element: str) -> int:
    """Bits of an integer, floating-point or pointer element type."""
    if element in FLOAT_BITS:
        return FLOAT_BITS[element]
    if element.startswith("ptr"):
        return 64
    return int(element[1:])


@lru_cache
def mangle(element: str, lanes: int = 1) -> str:
    """A type as intrinsic names spell it: ``"v16f32"``."""
    name = _MANGLED.get(element, element)
    if name.startswith("ptr addrspace("):
        name = f"p{name[14:-1]}"
    return name if lanes == 1 else f"v{lanes}{name}"


def float_to_bits(value: float, element: str) -> int:
    """The bits of ``value`` rounded to the element type."""
    code, unsigned = {"half": ("<e", "<H"), "float": ("<f", "<I"), "double": ("<d", "<Q")}[element]
    bits: int = struct.unpack(unsigned, struct.pack(code, value))[0]
    return bits


def constant(element: str, value: int | float) -> Value:
    """A constant of one lane. An int is the bit pattern, for floating types too; a float is rounded."""
    bits = float_to_bits(value, element) if isinstance(value, float) else value
    return _constant(element, bits)


@lru_cache(maxsize=4096)
def _constant(element: str, bits: int) -> Value:
    bits &= (1 << type_bits(element)) - 1
    return Value(element, 1, constant_text(element, bits), bits)


def constant_text(element: str, bits: int) -> str:
    if element == "i1":
        return "true" if bits else "false"
    if element.startswith("ptr"):
        return "null" if bits == 0 else f"inttoptr (i64 {bits} to {element})"
    width = type_bits(element)
    signed = bits - (1 << width) if bits >> (width - 1) else bits
    if element not in FLOAT_BITS:
        return str(signed)
    if element == "float" and (bits >> 23) & 0xFF != 0xFF:
        # LLVM writes a float as the double of equal value.
        wide = struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", bits))[0]))[0]
        return f"0x{wide:016X}"
    if element == "double":
        return f"0x{bits:016X}"
    return f"bitcast (i{width} {signed} to {element})"
