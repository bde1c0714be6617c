"""Shape algebra: what each computation does to uniform, affine and varying values.

:func:`combine` is asked twice: by the analysis to find the shape of every register, and by code generation,
with the same answer, to learn how an instruction is computed:

``scalar``   all operands are uniform: once for the warp;
``affine``   the instruction acts on the bases alone and the lanes' pattern follows at compile time;
``group``    operands are equal within each group of lanes: once a group;
``vector``   on vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from zluda.compiler.lower.lanewise import reads_carry, writes_carry
from zluda.compiler.target import UNIFORM, VARYING, ZEROS, Geometry, Shape
from zluda.ptx.module import Instruction, Register, Vector

_ALIGN_CAP = 1 << 40

Rule = Callable[[Instruction, Sequence[Shape]], Shape | None]


@functools.lru_cache(maxsize=4096)
def constant_shape(value: int) -> Shape:
    """The shape of a literal."""
    return Shape(ZEROS, 1, lowest_bit(value), value)


def lowest_bit(value: int) -> int:
    """The largest power of two (capped) that divides ``value``."""
    return min(value & -value, _ALIGN_CAP) if value else _ALIGN_CAP


def group_uniform(shape: Shape, geometry: Geometry) -> bool:
    """Whether the lanes of each group are equal."""
    if shape.pattern is None or shape.pattern is ZEROS:
        return shape.pattern is not None
    width = geometry.width
    return all(len(set(shape.pattern[g : g + width])) == 1 for g in range(0, geometry.lanes, width))


def join(a: Shape | None, b: Shape, geometry: Geometry) -> Shape:
    """The shape of a register that holds either."""
    if a is None or a == b:
        return b
    if a.pattern is None or b.pattern is None:
        return VARYING
    align = min(a.align, b.align)
    if a.pattern == b.pattern:
        return Shape(
            a.pattern, max(a.bases, b.bases), align, a.constant if a.constant == b.constant else None
        )
    if group_uniform(a, geometry) and group_uniform(b, geometry):
        return Shape(ZEROS, geometry.groups)
    return VARYING


def combine(instruction: Instruction, shapes: Sequence[Shape], geometry: Geometry) -> tuple[str, Shape]:
    """How a computation without effects is done, and its results' shape."""
    rule = None if reads_carry(instruction) or writes_carry(instruction) else _RULES.get(instruction.opcode)
    if all(s.uniform for s in shapes):
        found = rule(instruction, shapes) if rule else None
        return "scalar", Shape(ZEROS, 1, found.align, found.constant) if found else UNIFORM
    if rule and all(s.pattern is not None for s in shapes):
        found = rule(instruction, shapes)
        if found is not None:
            return "affine", found
    if all(group_uniform(s, geometry) for s in shapes):
        return "group", Shape(ZEROS, geometry.groups)
    return "vector", VARYING


# --- rules ---------------------------------------------------------------------------------------------
#
# A rule sees operands that all have patterns. It may give a shape only when applying the instruction to the
# bases, and the pattern it returns to the lanes, is applying the instruction to each lane, wrapping included.


def _affine(pattern: Sequence[int], shapes: Sequence[Shape], align: int) -> Shape:
    bases = max(s.bases for s in shapes)
    return Shape(tuple(pattern), bases, max(min(align, _ALIGN_CAP), 1))


def _pattern(shape: Shape) -> tuple[int, ...]:
    assert shape.pattern is not None
    return shape.pattern


def _carry_free(shape: Shape) -> bool:
    """No lane's offset carries out of the base's zero low bits, so base + offset is base | offset."""
    return all(0 <= p < shape.align for p in _pattern(shape))


def _integer(instruction: Instruction) -> bool:
    """Plain integers of register width: narrower results are extended into their register afterwards."""
    plain = all(t.kind in "usb" and "x" not in t.spelling for t in instruction.types)
    return plain and instruction.types[0].bits >= 32 and not instruction.has("sat")


def _widens_safely(shape: Shape, bits: int) -> bool:
    """Whether extending base + offset from ``bits`` bits is extending the base, plus the offset."""
    return not any(_pattern(shape)) or (_carry_free(shape) and max(_pattern(shape)) < 1 << bits)


def _add(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    if not _integer(instruction):
        return None
    return _affine(
        [x + y for x, y in zip(_pattern(s[0]), _pattern(s[1]), strict=True)], s, min(s[0].align, s[1].align)
    )


def _sub(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    if not _integer(instruction):
        return None
    return _affine(
        [x - y for x, y in zip(_pattern(s[0]), _pattern(s[1]), strict=True)], s, min(s[0].align, s[1].align)
    )


def _as_typed(constant: int, instruction: Instruction) -> int:
    """A literal as the instruction's type has it: ``-1`` is 2³²-1 to ``mul.wide.u32``."""
    bits = instruction.type.bits
    low = constant & ((1 << bits) - 1)
    return low - (1 << bits) if instruction.type.kind == "s" and low >> (bits - 1) else low


def _product(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    """``s[0] * s[1]``, in low or wide form, of a base with a known factor or of two uniform values."""
    mode = instruction.slots.get("mode")
    if not _integer(instruction) or mode not in ("lo", "wide"):
        return None
    a, b = s
    if a.constant is not None and any(_pattern(b)):
        a, b = b, a
    align = a.align * b.align
    if not any(_pattern(a)) and not any(_pattern(b)):
        return _affine(ZEROS, s, align)
    if b.constant is None or (mode == "wide" and not _widens_safely(a, instruction.type.bits)):
        return None
    factor = _as_typed(b.constant, instruction)
    return _affine([p * factor for p in _pattern(a)], s, align)


def _mad(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    product = _product(instruction, s[:2])
    return None if product is None else _add(instruction, [product, s[2]])


def _shl(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    count = s[1].constant
    if count is None or not 0 <= count < instruction.type.bits:
        return None
    return _affine([p << count for p in _pattern(s[0])], s, s[0].align << count)


def _shr(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    count = s[1].constant
    if count is None or not 0 <= count < instruction.type.bits or s[0].align % (1 << count):
        return None
    if not _carry_free(s[0]):
        return None
    return _affine([p >> count for p in _pattern(s[0])], s, s[0].align >> count)


def _and(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    a, b = s if s[1].constant is not None else (s[1], s[0])
    if b.constant is None:
        return None if any(_pattern(a)) or any(_pattern(b)) else _affine(ZEROS, s, max(a.align, b.align))
    mask = b.constant & ((1 << instruction.type.bits) - 1) if instruction.type.kind != "pred" else 1
    if instruction.type.kind == "pred" or not _carry_free(a):
        return None
    align = _ALIGN_CAP if mask < a.align else max(a.align, lowest_bit(mask))
    return _affine([p & mask for p in _pattern(a)], s, align)


def _or(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    a, b = s if s[1].constant is not None else (s[1], s[0])
    if b.constant is None or instruction.type.kind == "pred" or not 0 <= b.constant < a.align:
        return None
    if not _carry_free(a) or any(p & b.constant for p in _pattern(a)):
        return None
    return _affine(_pattern(a), s, min(a.align, lowest_bit(b.constant)))


def _mov(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    whole = isinstance(instruction.operands[0], Register) and not isinstance(instruction.operands[1], Vector)
    return s[0] if whole else None


def _cvta(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    """Adds or subtracts a window's base, which is at least 256-byte aligned."""
    a = s[0]
    return Shape(a.pattern, a.bases, min(a.align, 256)) if instruction.types[0].bits == 64 else None


def _cvt(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    to, source = instruction.types[:2]
    destination = instruction.operands[0]
    if not _integer(instruction) or not isinstance(destination, Register) or destination.type.bits != to.bits:
        return None
    if to.bits > source.bits and not _widens_safely(s[0], source.bits):
        return None
    return _affine(_pattern(s[0]), s, s[0].align)


def _selp(instruction: Instruction, s: Sequence[Shape]) -> Shape | None:
    same = s[0].pattern == s[1].pattern and s[2].uniform
    return _affine(_pattern(s[0]), s, min(s[0].align, s[1].align)) if same else None


_RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _product,
    "mad": _mad,
    "shl": _shl,
    "shr": _shr,
    "and": _and,
    "or": _or,
    "mov": _mov,
    "cvta": _cvta,
    "cvt": _cvt,
    "selp": _selp,
}
