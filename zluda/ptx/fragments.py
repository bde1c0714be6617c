"""How many registers, and of which size, matrix, texture and surface instructions want in ``{…}``.

PTX ISA 9.7.14.2 to .5 (matrix fragments), 9.7.10, 9.7.11. ptxas looks at a register's size there, not at its
type.
"""

from __future__ import annotations

from collections.abc import Mapping

from zluda.patterns import pattern
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType


@dataclass(frozen=True, slots=True)
class Fragment:
    """``count`` registers of ``bits`` bits; a count of 0 is any."""

    count: int
    bits: int


Slots = Mapping[str, str]
Types = Mapping[str, ScalarType]

_SHAPE = pattern(r"m(\d+)n(\d+)k(\d+)")
_WARP = 32
_BITS = {T.TF32: 32, T.E3M2: 8, T.E2M3: 8, T.E2M1: 8}  # of an element in a register: six bits take a byte
_FOUR_BIT_KINDS = ("kind::mxf4", "kind::mxf4nvf4")

# wmma: (registers of a, of b) for each type of elements, by shape (PTX ISA 9.7.14.3.1)
_SQUARE, _WIDE, _TALL = "m16n16k16", "m8n32k16", "m32n8k16"
_WMMA_OPERANDS: dict[tuple[ScalarType, str], tuple[int, int]] = {
    **{(T.F16, shape): (8, 8) for shape in (_SQUARE, _WIDE, _TALL)},
    **{(T.BF16, shape): counts for shape, counts in ((_SQUARE, (4, 4)), (_WIDE, (2, 8)), (_TALL, (8, 2)))},
    **{
        (type, shape): counts
        for type in (T.S8, T.U8)
        for shape, counts in ((_SQUARE, (2, 2)), (_WIDE, (1, 4)), (_TALL, (4, 1)))
    },
    (T.TF32, "m16n16k8"): (4, 4),
    (T.F64, "m8n8k4"): (1, 1),
    (T.S4, "m8n8k32"): (1, 1),
    (T.U4, "m8n8k32"): (1, 1),
    (T.B1, "m8n8k128"): (1, 1),
}


def fragment(opcode: str, operand: str, slots: Slots, types: Types) -> Fragment | None:
    """What an operand of a row, by its name there, must be; None where any will do."""
    rule = _RULES.get(opcode)
    return None if rule is None else rule(operand, slots, types)


def _mma(operand: str, slots: Slots, types: Types) -> Fragment | None:
    shape = _SHAPE.fullmatch(slots["shape"])
    if operand not in ("D", "A", "B", "C") or shape is None:
        return None
    m, n, k = map(int, shape.groups())
    of = types[f"{operand.lower()}type"]
    if operand in "DC":
        if slots["shape"] == "m8n8k4" and of is not T.F64:
            return Fragment(4 if of is T.F16 else 8, 32)
        return _packed(m * n, 16 if of is T.F16 else 32, of)
    if slots["shape"] == "m8n8k4" and of is not T.F64:
        return Fragment(2, 32)
    bits = 4 if slots.get("kind") in _FOUR_BIT_KINDS else _BITS.get(of, of.bits)
    elements = m * k if operand == "A" else n * k
    return _packed(elements // 2 if operand == "A" and "sp" in slots else elements, bits, of)


def _packed(elements: int, bits: int, of: ScalarType) -> Fragment:
    """A warp's share of a matrix: elements of f64 in registers of their own, others packed into 32 bits."""
    if of is T.F64:
        return Fragment(elements // _WARP, 64)
    return Fragment(max(elements * bits // (_WARP * 32), 1), 32)


def _wmma(operand: str, slots: Slots, types: Types) -> Fragment | None:
    if operand not in ("D", "A", "B", "C"):
        return None
    if "fragment" in slots:
        letter, of = slots["fragment"].upper(), types["type"]
    else:
        letter, of = operand, types.get(f"{operand.lower()}type", T.F16)
    bits = 64 if of is T.F64 else 32
    if letter in "AB":
        counts = _WMMA_OPERANDS.get((of, slots["shape"]))
        return Fragment(counts["AB".index(letter)], bits) if counts else Fragment(0, bits)
    if slots["shape"].startswith("m8n8k"):
        return Fragment(2, bits)
    return Fragment(4 if of is T.F16 else 8, bits)


def _stored_matrix(operand: str, slots: Slots, types: Types) -> Fragment | None:
    if operand != "D":
        return None
    each = 2 if slots["shape"] == "m16n16" else 1
    return Fragment(each * int(slots["num"][1:]), 32)


def _surface(operand: str, slots: Slots, types: Types) -> Fragment | None:
    return Fragment(0, max(types["type"].bits, 16)) if operand in ("D", "A") else None


def _texture(operand: str, slots: Slots, types: Types) -> Fragment | None:
    return Fragment(0, types["dtype"].bits) if operand == "D{|p}" else None


_RULES = {
    "mma": _mma,
    "wmma": _wmma,
    "ldmatrix": _stored_matrix,
    "stmatrix": _stored_matrix,
    "suld": _surface,
    "sust": _surface,
    "tex": _texture,
    "tld4": _texture,
}
