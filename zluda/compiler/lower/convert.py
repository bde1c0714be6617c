"""``cvt`` (PTX ISA 9.7.9.21): integers and floating types, every rounding, saturation and FTZ form."""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import nan, rounding
from zluda.compiler.lower.floating import rectify
from zluda.compiler.lower.formats import load_float, store_float
from zluda.compiler.lower.lanewise import Result, as_bits, canonical_nan, lanewise, unsupported
from zluda.compiler.lower.packed import join_halves
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType

T = ScalarType
_FLOATS = (T.F16, T.BF16, T.F32, T.F64)
_TO_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_LARGEST = {T.F16: 65504.0, T.BF16: float.fromhex("0x1.FEp127"), T.TF32: float.fromhex("0x1.FFCp127")}
_SMALL = frozenset((T.E4M3X2, T.E5M2X2, T.E2M3X2, T.E3M2X2, T.E2M1X2, T.UE8M0X2))
_PAIRS = {T.F16X2: T.F16, T.BF16X2: T.BF16}


def _is_integer(type: ScalarType) -> bool:
    return type.kind in "us" and type.bits in (8, 16, 32, 64)


@lanewise("cvt")
def cvt(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """One of four conversions by the kinds of the two types, or a pair of f32 into a packed type."""
    destination, source = inst.types[0], inst.types[1]
    if inst.has("pack"):
        return _pack_integers(b, inst, operands)
    if inst.slots.get("rnd") == "rs":
        from zluda.compiler.lower import stochastic

        found = stochastic.convert(b, inst, operands)
        if found is None:
            raise unsupported(inst)
        return found
    if destination in _SMALL or source in _SMALL:
        from zluda.compiler.lower import small_floats

        found = small_floats.convert(b, inst, operands)
        if found is None:
            raise unsupported(inst)
        return found
    if moves := _move(b, inst, operands[0]):
        return moves
    if destination in _PAIRS and source is T.F32 and len(operands) == 2:
        return _pack(b, inst, operands)
    if destination is T.TF32 and source is T.F32:
        return _to_tf32(b, inst, load_float(b, operands[0], source))
    from_integer, to_integer = _is_integer(source), _is_integer(destination)
    if not ((from_integer or source in _FLOATS) and (to_integer or destination in _FLOATS)):
        raise unsupported(inst)
    if from_integer:
        x = as_bits(b, operands[0], source.bits)
        convert = _integer_to_integer if to_integer else _integer_to_float
        return convert(b, inst, x)
    x = _source_float(b, inst, operands[0])
    if to_integer:
        return _float_to_integer(b, inst, x)
    result = _float_to_float(b, inst, x)
    return _with_nan(b, inst, x, result)


_PLAIN_MOVES = {(T.F32, T.F32): 0, (T.F32, T.BF16): 16}


def _move(b: Builder, inst: Instruction, operand: Value) -> Value | None:
    """Conversions without a modifier that only move bits, so that NaN payloads stay."""
    shift = _PLAIN_MOVES.get((inst.types[0], inst.types[1]))
    if shift is None or inst.slots:
        return None
    return b.shl(b.resize(as_bits(b, operand, inst.types[1].bits), "i32"), shift)


_MANTISSA = {T.F32: 23, T.F16: 10, T.BF16: 7}


def _with_nan(b: Builder, inst: Instruction, x: Value, result: Value) -> Value:
    """From f64 NaN keeps the top of its payload; f32 flushed on its way to f64 becomes the one NaN first."""
    destination, source = inst.types[0], inst.types[1]
    if destination is T.F64 and source is T.F32 and inst.has("ftz") and not inst.has("sat"):
        return b.select(nan.is_nan(b, x), 0x7FFFFFFFE0000000, result)
    if source is not T.F64 or destination is T.F64 or inst.has("sat"):
        return result
    bits = nan.shortened(b, x, destination.bits, _MANTISSA[destination])
    return b.select(nan.is_nan(b, x), bits, as_bits(b, result, destination.bits))


def _source_float(b: Builder, inst: Instruction, operand: Value) -> Value:
    """The operand, flushed by ``.ftz``, which a conversion to f16 pays no heed to."""
    x = load_float(b, operand, inst.types[1])
    flushed = inst.has("ftz") and inst.types[1] is T.F32 and inst.types[0] not in (T.F16, T.F16X2)
    return rounding.flush(b, x) if flushed else x


# --- integers ----------------------------------------------------------------------------------------


def _limits(width: int, *, signed: bool) -> tuple[int, int]:
    if signed:
        return -(1 << (width - 1)), (1 << (width - 1)) - 1
    return 0, (1 << width) - 1


def _integer_to_integer(b: Builder, inst: Instruction, x: Value) -> Value:
    destination, source = inst.types[0], inst.types[1]
    signed = source.kind == "s"
    if inst.has("sat"):
        low, high = _limits(destination.bits, signed=destination.kind == "s")
        source_low, source_high = _limits(source.bits, signed=signed)
        if low > source_low:
            x = b.intrinsic("smax", x, low)
        if high < source_high:
            x = b.intrinsic("smin" if signed else "umin", x, high)
    return b.resize(x, f"i{destination.bits}", signed=signed)


def _float_to_integer(b: Builder, inst: Instruction, x: Value) -> Value:
    """Rounded to an integral value, then clamped to the destination's range (PTX ISA 9.7.9.21, .sat)."""
    destination, source = inst.types[0], inst.types[1]
    mode = inst.slots.get("rnd", "")
    if mode not in _TO_INTEGRAL:
        raise unsupported(inst)
    integral = b.intrinsic(_TO_INTEGRAL[mode], x)
    result = _clamped_integer(b, integral, destination)
    if source is T.F64 or destination.bits == 64:  # else NaN is 0, as LLVM has it
        result = b.select(b.fcmp("uno", x, x), 1 << (destination.bits - 1), result)
    return result


def _clamped_integer(b: Builder, integral: Value, type: ScalarType) -> Value:
    letter, width = type.kind, max(type.bits, 32)
    element = f"i{width}"
    name = "fptosi.sat" if letter == "s" else "fptoui.sat"
    wide = b.convert_saturating(name, integral, element)
    if type.bits == width:
        return wide
    low, high = _limits(type.bits, signed=letter == "s")
    if letter == "s":
        wide = b.intrinsic("smin", b.intrinsic("smax", wide, low), high)
    else:
        wide = b.intrinsic("umin", wide, high)
    return b.trunc(wide, f"i{type.bits}")


# --- to floating point -------------------------------------------------------------------------------


def _integer_to_float(b: Builder, inst: Instruction, x: Value) -> Value:
    destination, signed = inst.types[0], inst.types[1].kind == "s"
    mode = inst.slots.get("rnd", "rn")
    if mode not in rounding.MODES:
        raise unsupported(inst)
    if destination is T.F32 and mode == "rn" and x.width <= 32:
        value = b.cast("sitofp" if signed else "uitofp", x, "float")
    elif destination is T.F64:
        value = _integer_to_double(b, x, mode, signed=signed)
    else:
        exact = _integer_to_odd_double(b, x, signed=signed)
        value = (
            rounding.narrow(b, exact, "float", mode)
            if destination is T.F32
            else rounding.narrow_odd(b, exact)
        )
    if inst.has("sat"):
        value = rounding.saturate(b, value)
    return store_float(b, value, destination, mode)


def _integer_halves(b: Builder, x: Value, *, signed: bool) -> tuple[Value, Value]:
    """A 64-bit integer as the unrounded sum of two f64: a nearest value and its error."""
    shift, cast = (b.ashr, "sitofp") if signed else (b.lshr, "uitofp")
    high = b.fmul(b.cast(cast, b.trunc(shift(x, 32), "i32"), "double"), 2.0**32)
    low = b.cast("uitofp", b.trunc(x, "i32"), "double")
    return rounding.two_sum(b, high, low)


def _integer_to_odd_double(b: Builder, x: Value, *, signed: bool) -> Value:
    if x.width <= 32:
        return b.cast("sitofp" if signed else "uitofp", x, "double")
    return rounding.odd(b, *_integer_halves(b, x, signed=signed))


def _integer_to_double(b: Builder, x: Value, mode: str, *, signed: bool) -> Value:
    if x.width <= 32:
        return b.cast("sitofp" if signed else "uitofp", x, "double")
    nearest, error = _integer_halves(b, x, signed=signed)
    if mode == "rn":
        return nearest
    if mode == "rm":
        flipped = b.fneg(nearest)
        return b.fneg(rounding.directed_double(b, flipped, b.fneg(error), "rp", [flipped]))
    return rounding.directed_double(b, nearest, error, mode, [nearest])


def _float_to_float(b: Builder, inst: Instruction, x: Value) -> Value:
    destination = inst.types[0]
    mode = inst.slots.get("rnd", "rn")
    if mode in _TO_INTEGRAL:
        x, mode = b.intrinsic(_TO_INTEGRAL[mode], x), "rn"
    if mode not in rounding.MODES and not (mode == "rna" and destination is T.BF16):
        raise unsupported(inst)
    x = _clamps(b, inst, destination, x)
    if destination is T.F64:
        return b.cast("fpext", x, "double")
    if destination is T.F32:
        return _to_single(b, inst, x, mode)
    if x.type == "double":
        x = rounding.narrow_odd(b, x)
    return store_float(b, x, destination, mode)


def _to_single(b: Builder, inst: Instruction, x: Value, mode: str) -> Value:
    if x.type == "double":
        convert = rounding.narrow_flushed if inst.has("ftz") else rounding.narrow
        return convert(b, x, "float", mode)
    return rounding.flush(b, x) if inst.has("ftz") else x


def _clamps(b: Builder, inst: Instruction, destination: ScalarType, x: Value) -> Value:
    """``.sat``, ``.relu`` and ``.satfinite``: the bounds are exact in every type, so before rounding."""
    if inst.has("sat"):
        x = rounding.saturate(b, x)
    if inst.has("relu"):
        x = rectify(b, x)
    if inst.has("satfinite"):
        largest = _LARGEST[destination]
        x = b.select(b.fcmp("ogt", x, largest), largest, x)
        x = b.select(b.fcmp("olt", x, -largest), -largest, x)
    return x


def _pack(b: Builder, inst: Instruction, operands: list[Value]) -> Value:
    """Two f32 into one packed register, the first in the upper half."""
    element = _PAIRS[inst.types[0]]
    mode = inst.slots.get("rnd", "rn")
    if mode not in rounding.MODES:
        raise unsupported(inst)
    halves = []
    for operand in operands:
        x = _clamps(b, inst, element, _source_float(b, inst, operand))
        halves.append(canonical_nan(b, store_float(b, x, element, mode)))
    return join_halves(b, halves[1], halves[0])


def _pack_integers(b: Builder, inst: Instruction, operands: list[Value]) -> Value:
    """``cvt.pack``: ``a`` above ``b``, both saturated, below the low bits of ``c`` (PTX ISA 9.7.9.22)."""
    name = inst.slots.get("dtype", inst.types[0].spelling)  # u2 and s2 are no types elsewhere
    width = int(name[1:])
    low, high = _limits(width, signed=name[0] == "s")
    pieces = []
    for operand in operands[:2]:
        clamped = b.intrinsic("smin", b.intrinsic("smax", as_bits(b, operand, 32), low), high)
        pieces.append(b.and_(clamped, (1 << width) - 1))
    packed = b.or_(b.shl(pieces[0], width), pieces[1])
    if len(operands) > 2:
        packed = b.or_(packed, b.shl(as_bits(b, operands[2], 32), 2 * width))
    return packed


def _to_tf32(b: Builder, inst: Instruction, x: Value) -> Value:
    """10 mantissa bits; the 13 below are zero, in NaN too.

    ``.rna`` is an integer sequence that keeps the payload, and whose ``.satfinite`` steps down from NaN as
    from infinity; the other modes have one NaN.
    """
    operand, x = x, _clamps(b, inst, T.TF32, x)
    bits = rounding.bits_of(b, x)
    mode = inst.slots.get("rnd", "")
    special = b.const("i32", 0x7FFFE000)
    if mode == "rna":
        bits = b.add(bits, 0x1000)
        special = b.and_(rounding.bits_of(b, operand), 0xFFFFE000)
        special = b.sub(special, 0x2000) if inst.has("satfinite") else special
    elif mode == "rn":
        bits = b.add(bits, b.add(b.and_(b.lshr(bits, 13), 1), 0xFFF))
    elif mode != "rz":
        raise unsupported(inst)
    return b.select(nan.is_nan(b, operand), special, b.and_(bits, 0xFFFFE000))
