"""Which operands agree with an instruction's types (PTX ISA 9.2 and 9.4).

An operand is reduced to its *shape*, a small hashable value: a register is its type, a constant ``"int"``,
``"f32"`` or ``"f64"``, and so on (:func:`shape_of`). What an operand position takes is a set of shapes, made
once for each rule and type; so a check is a membership test, and an instruction whose operand shapes were
met before costs one dictionary look-up.

The rules a row of the instruction table may name for an operand, in its ``as`` clause:

============  =====================================================================================
``type``      (the name of a type modifier, or a type) the same size and a kind that agrees
``type+``     as above, or wider: ``ld``, ``st``, ``cvt`` (PTX ISA 9.4.1)
``type*``     any register that is not narrower
``…%``        a special register too: only ``mov`` and ``cvt`` read them
``double``    twice the row's type: ``mul.wide``
``count``     a 32-bit amount, whatever the row's type: shift amounts, bit positions
``pointer``   an integer of 32 or 64 bits
``constant``  an integer constant
``any``       not checked
============  =====================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable

from zluda.ptx.module import Address, Immediate, Negated, Operand, Pair, Register, Sink, Vector
from zluda.ptx.types import BY_SPELLING, ScalarType

Shape = Hashable
"""A :class:`ScalarType` (a register), a tuple (see :func:`shape_of`), a word (a constant) or a class."""

_T = ScalarType
REGISTER_TYPES: tuple[ScalarType, ...] = (
    *(_T.PRED, _T.B8, _T.U8, _T.S8, _T.B16, _T.U16, _T.S16, _T.F16, _T.B32, _T.U32, _T.S32, _T.F32),
    *(_T.F16X2, _T.B64, _T.U64, _T.S64, _T.F64, _T.B128),
)
"""The types a register may be declared with, as ptxas has them."""

_PACKED_F16 = (_T.F16X2, _T.U16X2, _T.S16X2)
_COUNT = frozenset({_T.B32, _T.U32, _T.S32})
_POINTER = _COUNT | {_T.B64, _T.U64, _T.S64}
_NAMED = "name"
"""Shape of an address that begins with a variable."""


@functools.cache
def addresses(least: int = 8, *, constant: bool = False) -> frozenset[Shape]:
    """The shapes of addresses: a variable, an integer register of at least so many bits, or a constant."""
    return frozenset(
        {
            _NAMED,
            *(["int"] if constant else ()),
            *(r for r in REGISTER_TYPES if r.kind in "bus" and least <= r.bits <= 64),
        }
    )


def _kinds_that_agree(of: ScalarType) -> str:
    """Kinds of registers of the same size that hold a value of this type: "b", "u", "s", "f"."""
    return {"b": "busf", "u": "bus", "s": "bus", "f": "b"}.get(of.kind, "")


def _registers(of: ScalarType) -> frozenset[ScalarType]:
    """Registers of exactly this size that agree. A ``.f16x2`` register counts as ``.b32`` for integers."""
    if of is _T.PRED:
        return frozenset({_T.PRED})
    same = {r for r in REGISTER_TYPES if r.bits == of.bits and r is not _T.PRED and r is not _T.F16X2}
    if of in _PACKED_F16:
        return frozenset({_T.B32, _T.F16X2})
    found: set[ScalarType] = {r for r in same if r.kind in _kinds_that_agree(of)}
    found |= {of} & set(REGISTER_TYPES)
    if of.bits == 32 and of.kind != "f":
        found.add(_T.F16X2)
    return frozenset(found)


def _wider(of: ScalarType) -> frozenset[ScalarType]:
    """Registers that are wider than this type and may hold it: for a floating type only untyped ones."""
    kinds = "" if of is _T.BF16 else "b" if of.kind == "f" else _kinds_that_agree(of)
    found = {r for r in REGISTER_TYPES if r.bits > of.bits and r.kind in kinds}
    found |= {_T.F16X2} if of.kind in "us" and of.bits < 32 else set()
    return frozenset(found if of.kind != "f" else found - {_T.F16X2})


EXACT: dict[ScalarType, frozenset[ScalarType]] = {t: _registers(t) for t in ScalarType}
"""Instruction type to the register types of the same size that agree with it (PTX ISA 9.4)."""

WIDE: dict[ScalarType, frozenset[ScalarType]] = {t: EXACT[t] | _wider(t) for t in ScalarType}
"""The same with the wider registers that ``ld``, ``st`` and ``cvt`` take (PTX ISA 9.4.1)."""

_CONSTANTS: dict[str, frozenset[str]] = {
    **{word: frozenset({"int"}) for word in ("b8", "b16", "b128", "pred")},
    "b32": frozenset({"int", "f32"}),
    "b64": frozenset({"int", "f64"}),
    "f32": frozenset({"f32", "f64"}),
    "f64": frozenset({"f32", "f64"}),
}


def constants(of: ScalarType) -> frozenset[str]:
    """The kinds of constants an operand of this type may be; none for 16-bit floats and packed types."""
    known = _CONSTANTS.get(of.spelling)
    if known is not None:
        return known
    whole = of.kind in "us" and "x" not in of.spelling
    return frozenset({"int"}) if whole else frozenset()


def _not_narrower(of: ScalarType) -> frozenset[ScalarType]:
    return frozenset(r for r in REGISTER_TYPES if r.bits >= of.bits and r is not _T.PRED)


def shape_of(operand: Operand) -> Shape:
    """An operand without its name and value: what decides whether it suits a position."""
    if isinstance(operand, Register):
        return ("special", operand.type) if operand.special else operand.type
    if isinstance(operand, Immediate):
        return "int" if operand.float_bits is None else f"f{operand.float_bits}"
    if isinstance(operand, Vector):
        return (Vector, *map(shape_of, operand.elements))
    if isinstance(operand, Pair):
        return (Pair, shape_of(operand.first), shape_of(operand.second))
    if isinstance(operand, Address):
        base = operand.base
        return (
            Address,
            base.type if isinstance(base, Register) else "int" if isinstance(base, Immediate) else _NAMED,
        )
    if isinstance(operand, Negated):
        return (Negated, operand.operand.type)
    kind: type = type(operand)
    return kind


@functools.cache
def accepted(of: ScalarType | None, rule: str, destination: bool) -> frozenset[Shape] | None:
    """The shapes of registers and constants that a rule takes for a type; None: whatever there is."""
    word = rule.rstrip("+%*")
    if word == "count":
        return _COUNT if destination else _COUNT | {"int"}
    if word == "pointer":
        return _POINTER | {"int"}
    if word == "constant":
        return frozenset({"int"})
    if of is None or of.kind == "ref" or word == "any":
        return None
    if word == "double":
        of = BY_SPELLING[f"{of.kind}{2 * of.bits}"]
    registers = _not_narrower(of) if "*" in rule else (WIDE if "+" in rule else EXACT)[of]
    if not registers:
        return None
    shapes: frozenset[Shape] = registers
    if not destination:
        shapes |= constants(of)
    if "%" in rule:
        shapes |= {("special", r) for r in registers | (_COUNT if of.bits == 16 else frozenset())}
    return shapes


@functools.cache
def of_size(bits: int, destination: bool) -> frozenset[Shape]:
    """What an element of a fragment may be: any register of the size (:mod:`zluda.ptx.fragments`)."""
    registers = [r for r in REGISTER_TYPES if r.bits == bits]
    if destination:
        return frozenset({*registers, Sink})
    return frozenset({*registers, *(("special", r) for r in registers), "int", "f32", "f64"})


@functools.cache
def of_vector(of: ScalarType, destination: bool) -> frozenset[Shape]:
    """What an element of ``.v2`` … may be: what is loaded or stored alone, 16 bits for 8 (PTX ISA 9.4.1)."""
    held = BY_SPELLING[f"{of.kind}16"] if of.bits == 8 else of
    shapes: frozenset[Shape] = WIDE[held] | EXACT[of]
    if destination:
        return shapes | {Sink}
    return shapes | ({"int", "f32", "f64"} if constants(of) else set())


def suits(shape: Shape, takes: frozenset[Shape] | None, vector: int | None) -> bool:
    """Whether an operand of this shape (its class is right already) suits a position.

    ``vector`` is how many elements a vector must have, 0 any number; None: they are not looked at.
    """
    if not isinstance(shape, tuple):
        return takes is None or isinstance(shape, type) or shape in takes
    head, *parts = shape
    if head is Address:
        return parts[0] in (addresses() if takes is None else takes)
    if head is Negated:
        return parts[0] is _T.PRED
    if head is Pair:
        return suits(parts[0], takes, vector) and suits(parts[1], EXACT[_T.PRED], vector)
    if head is Vector:
        if vector is None:
            return True
        # Registers wider than the element's type must be as wide as each other, ptxas says.
        widths = {part.bits for part in parts if isinstance(part, ScalarType)}
        floats = any(isinstance(part, ScalarType) and part.kind == "f" for part in parts)
        fitting = takes is None or (len(widths) <= 1 and not (floats and "int" in parts))
        return (
            fitting and len(parts) == (vector or len(parts)) and all(_element_suits(p, takes) for p in parts)
        )
    return takes is None or shape in takes


def _element_suits(shape: Shape, takes: frozenset[Shape] | None) -> bool:
    """As :func:`suits` for one element of a vector, which may be a special register of the type, or ``_``."""
    if takes is None:
        return True
    if isinstance(shape, tuple) and shape[0] == "special":
        return shape[1] in takes or shape in takes
    return shape in takes


def describe(shape: Shape, takes: frozenset[Shape] | None, vector: int | None) -> str:
    """What a position would have accepted, for an error."""
    head = shape[0] if isinstance(shape, tuple) else None
    if head is Address:
        return "a variable, or an address in a .b32, .u32, .b64 or .u64 register"
    if head is Negated:
        return "a .pred register"
    if head is Vector and isinstance(shape, tuple) and vector and len(shape) - 1 != vector:
        return f"{vector} elements"
    return _names(takes or ())


def _names(takes: Iterable[Shape]) -> str:
    types = sorted(REGISTER_TYPES.index(t) for t in takes if isinstance(t, ScalarType))
    words = ["a register of type " + " ".join(f".{REGISTER_TYPES[i]}" for i in types)] if types else []
    words += ["an integer constant"] if "int" in takes else []
    words += ["a floating-point constant"] if {"f32", "f64"} & set(takes) else []
    return " or ".join(words)
