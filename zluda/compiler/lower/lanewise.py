"""The dispatch table of lane-wise instructions: those whose every lane depends on that lane's operands alone.

A lowering is a function ``(builder, instruction, operands) -> Value`` (a tuple of Values when the
instruction has several destinations), registered under its opcode with :func:`lanewise`. It is written
once, for scalars and vectors of any length.

*Operands* are the evaluated source operands, in order, without destinations. Each is of raw bits (``i1``
for predicates, ``i8`` … ``i64``, wider than the instruction's type where PTX lets the register be) or of a
floating type (``half``, ``float``, ``double``); :func:`as_bits` and :func:`as_float` take either form.

*Results* of floating type are ``float``, ``double`` or ``half`` values whose NaN payload is unspecified;
``bf16`` and packed types are integers of their width, with NVIDIA's NaN. :func:`canonical_nan` gives the
bits NVIDIA stores. Integer results have exactly the destination's width by the instruction's type
(``mul.wide.u16`` gives ``i32``, ``cvt.s32.s8`` ``i32``, ``cvt.u8.u32`` ``i8``, ``popc.b64`` ``i32``); the
caller extends into a wider register: sign-extending for signed types, else by zeros (PTX ISA 9.4.1).

*The condition code* ``CC.CF`` (PTX ISA 9.7.2) is an ``i1``: an instruction for which :func:`reads_carry`
holds is given it as an extra last operand, one for which :func:`writes_carry` holds returns
``(result, carry)``.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import FLOAT_BITS, FLOAT_OF_BITS, Builder, Value
from zluda.compiler.lower.registry import Registry
from zluda.errors import UnsupportedError
from zluda.ptx.instructions import spell
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType

Result = Value | tuple[Value, ...]
Lowering = Callable[[Builder, Instruction, list[Value]], Result]

LANEWISE: Registry[Lowering] = Registry(
    {
        "approximate": "ex2 tanh rsqrt lg2 sin cos rcp sqrt",
        "arithmetic": "add sub mul mad abs neg min max div",
        "compare": "setp set selp slct testp",
        "convert": "cvt",
        "floating": "fma copysign",
        "integer": "addc subc madc mul24 mad24 rem sad dp4a dp2a",
        "logic": "and or xor not cnot lop3 shl shr shf popc clz bfind brev fns bfe bfi bmsk szext prmt",
        "video": "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vabsdiff2 vmin2 vmax2 vavrg2 "
        "vset2 vadd4 vsub4 vabsdiff4 vmin4 vmax4 vavrg4 vset4",
    }
)


def lanewise(*opcodes: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for the opcodes."""

    def register(lowering: Lowering) -> Lowering:
        LANEWISE.update(dict.fromkeys(opcodes, lowering))
        return lowering

    return register


def reads_carry(instruction: Instruction) -> bool:
    """Whether the instruction takes ``CC.CF`` as an extra last operand."""
    return instruction.opcode in ("addc", "subc", "madc")


def writes_carry(instruction: Instruction) -> bool:
    """Whether the instruction returns ``CC.CF`` beside its result."""
    return instruction.has("cc")


def unsupported(instruction: Instruction) -> UnsupportedError:
    """The error for a form that has no lowering; the caller adds the place."""
    return UnsupportedError(spell(instruction), f"line {instruction.location.line}")


def as_bits(b: Builder, value: Value, bits: int) -> Value:
    """The value as an integer of ``bits`` bits: floats by their pattern, wider registers truncated."""
    if value.type in FLOAT_BITS:
        value = b.bitcast(value, f"i{value.width}")
    return b.resize(value, f"i{bits}")


def as_float(b: Builder, value: Value, type: ScalarType) -> Value:
    """The value as ``half``, ``float`` or ``double`` by the PTX type's width."""
    element = FLOAT_OF_BITS[type.bits]
    return value if value.type == element else b.bitcast(as_bits(b, value, type.bits), element)


_CANONICAL_NAN = {16: 0x7FFF, 32: 0x7FFFFFFF}


def with_one_nan(b: Builder, value: Value) -> Value:
    """A float with NVIDIA's NaN for any that no arithmetic gave, on machines whose own is NVIDIA's."""
    nan = _CANONICAL_NAN.get(value.width)
    if nan is None or value.bits is not None or value.ref in (b.arithmetic or ()):
        return value
    bits = b.select(b.fcmp("uno", value, value), nan, b.bitcast(value, f"i{value.width}"))
    found = b.bitcast(bits, value.type)
    if b.arithmetic is not None:
        b.arithmetic.add(found.ref)
    return found


def canonical_nan(b: Builder, value: Value) -> Value:
    """A floating value's bits as an integer, with NVIDIA's NaN (f16 0x7fff, f32 0x7fffffff).

    NVIDIA keeps f64 NaN payloads (IEEE 754 6.2.3), as does the host: those bits are left as they are; so are
    all where the module says that any NaN will do.
    """
    if b.arithmetic is not None and value.type in FLOAT_BITS:
        value = with_one_nan(b, value)
    bits = as_bits(b, value, value.width)
    nan = _CANONICAL_NAN.get(value.width)
    if nan is None or value.type not in FLOAT_BITS or b.module.any_nan:
        return bits
    return b.select(b.fcmp("uno", value, value), nan, bits)
