"""Floating-point arithmetic with every rounding, saturation and FTZ form (PTX ISA 9.7.3 to 9.7.5)."""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import FLOAT_BITS, Builder, Value
from zluda.compiler.lower import nan, rounding
from zluda.compiler.lower.formats import by_elements, load_float, store_float
from zluda.compiler.lower.lanewise import Result, as_bits, lanewise, unsupported
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType

_SCALE = 2.0**64  # brings results near the smallest f32 to where their rounding is unbounded


# --- add, mul, fma -----------------------------------------------------------------------------------


def _nearest(b: Builder, op: str, xs: list[Value]) -> Value:
    if op == "fma":
        return b.intrinsic("fma", *xs)
    return b.binary(f"f{op}", xs[0], xs[1])


def _negated(b: Builder, op: str, xs: list[Value]) -> list[Value]:
    """Operands for which the operation gives the negative."""
    return [x if op != "add" and i == 1 else b.fneg(x) for i, x in enumerate(xs)]


def _tiny_nearest(b: Builder, op: str, xs: list[Value], result: Value) -> Value:
    """Whether an f32 nearest result of flushed operands is to be flushed.

    A small sum is exact. A small product or fma may have been rounded on the subnormal grid, so it is asked
    of the same operation scaled by 2^64; where scaling overflows the result cannot be small, and the
    comparison with infinity or NaN says so.
    """
    smallest = 2.0**-126
    if op == "add":
        return b.fcmp("olt", rounding.magnitude(b, result), smallest)
    scaled = [b.fmul(x, _SCALE) if i != 1 else x for i, x in enumerate(xs)]
    return b.fcmp("olt", rounding.magnitude(b, _nearest(b, op, scaled)), smallest * _SCALE)


def single(b: Builder, op: str, mode: str, xs: list[Value], *, ftz: bool) -> Value:
    if mode == "rm":
        return b.fneg(single(b, op, "rp", _negated(b, op, xs), ftz=ftz))
    if ftz:
        xs = [rounding.flush(b, x) for x in xs]
    if mode == "rn":
        result = _nearest(b, op, xs)
        if not ftz:
            return result
        tiny = _tiny_nearest(b, op, xs, result)
        return rounding.flushed(b, b.select(tiny, rounding.signed_zero(b, result), result))
    convert = rounding.narrow_flushed if ftz else rounding.narrow
    return convert(b, rounding.exact_double(b, op, xs), "float", mode)


def _compact(b: Builder, op: str, xs: list[Value]) -> Value:
    """:func:`single` to nearest with ``.ftz``, as the call of a function: one for each set of operands that
    are no subnormal numbers."""
    normal = [rounding.is_normal(b, x) for x in xs]
    xs = b.unify(*xs)
    lanes = xs[0].lanes

    def write(inner: Builder, arguments: list[Value]) -> Value:
        inner.normal.update(a.ref for a, known in zip(arguments, normal, strict=True) if known)
        return single(inner, op, "rn", arguments, ftz=True)

    flushed = "".join("fn"[known] for known in normal)
    name = b.module.function(f"zluda.{op}.{flushed}.f32.v{lanes}", [("float", lanes)] * len(xs), write)
    result = b.call(name, xs, "float", lanes)
    b.normal.add(result.ref)
    return result


def _double(b: Builder, op: str, mode: str, xs: list[Value]) -> Value:
    if mode == "rm":
        return _negated_result(b, _double(b, op, "rp", _negated(b, op, xs)))
    nearest = _nearest(b, op, xs)
    if mode == "rn":
        return nearest
    one, minus_zero = b.const("double", 1.0), b.const("double", -0.0)
    x, y, z = {"add": (xs[0], one, xs[-1]), "mul": (xs[0], xs[1], minus_zero), "fma": tuple(xs)}[op]
    return rounding.directed_double(b, nearest, rounding.residual(b, x, y, z, nearest), mode, xs)


def _negated_result(b: Builder, x: Value) -> Value:
    """``-x``, but an invalid operation's NaN as it is."""
    return b.select(nan.is_nan(b, x), x, b.fneg(x))


# f64 operands by rising claim on a NaN result; in the modes made by negation the first has to be told too
_NAN_ORDER = {"add": (0, 1), "mul": (0, 1), "fma": (0, 2, 1), "div": (1, 0)}


def _with_nan(b: Builder, op: str, mode: str, operands: list[Value], result: Value) -> Value:
    first, *others = (operands[i] for i in _NAN_ORDER[op])
    if mode == "rm":
        result = nan.propagate(b, result, [first])
    elif op in nan.REWRITTEN:
        result = nan.propagate_rewritten(b, op, result, first, operands[1])
    return nan.propagate(b, result, others)


def fma_double(b: Builder, mode: str, x: Value, y: Value, z: Value) -> Value:
    """``x * y + z`` of doubles, rounded in the mode, with NVIDIA's NaN."""
    return _with_nan(b, "fma", mode, [x, y, z], _double(b, "fma", mode, [x, y, z]))


def _half(b: Builder, type: ScalarType, op: str, xs: list[Value], *, ftz: bool) -> Value:
    """The f32 that rounds to the 16-bit result, without a second rounding's error.

    24 bits are more than twice those of f16 or bf16 plus two, so one f32 operation is enough (Figueroa,
    "When is double rounding innocuous?", 1995), but for fma and for bf16 products, which may be subnormal.
    """
    if ftz:
        xs = [_flush_half(b, x) for x in xs]
    if op == "add" or (op == "mul" and type is ScalarType.F16):
        value = _nearest(b, op, xs)
    else:
        value = rounding.narrow_odd(b, rounding.exact_double(b, op, xs))
    if ftz:
        tiny = rounding.is_tiny(b, value, "half", "rn")
        value = b.select(tiny, rounding.signed_zero(b, value), value)
    return value


def _flush_half(b: Builder, x: Value) -> Value:
    """An f16, widened, flushed by f16's smallest normal."""
    small = b.fcmp("olt", rounding.magnitude(b, x), 2.0**-14)
    return b.select(small, rounding.signed_zero(b, x), x)


def rectify(b: Builder, x: Value) -> Value:
    """``.relu``: negative numbers and -0 become +0, NaN stays."""
    return b.select(b.fcmp("ole", x, 0.0), 0.0, x)


def _finish(b: Builder, inst: Instruction, value: Value) -> Value:
    if inst.has("sat"):
        value = rounding.saturate(b, value)
    return rectify(b, value) if inst.has("relu") else value


def _arithmetic(b: Builder, inst: Instruction, op: str, type: ScalarType, xs: list[Value]) -> Value:
    mode, ftz = inst.slots.get("rnd", "rn"), inst.has("ftz")
    if mode not in rounding.MODES:
        raise unsupported(inst)
    if type is ScalarType.F64:
        value = _double(b, op, mode, xs)
    elif type is ScalarType.F32:
        compact = b.module.compact and ftz and mode == "rn"
        value = _compact(b, op, xs) if compact else single(b, op, mode, xs, ftz=ftz)
    else:
        value = _half(b, type, op, xs, ftz=ftz)
    return store_float(b, _finish(b, inst, value), type)


_OUT_OF_BOUNDS = 0xFFF7  # the NaN that means so, in f16 and bf16: measured on an H200, of all that were tried


def _out_of_bounds(b: Builder, factors: list[Value], result: Value) -> Value:
    """``.oob``: +0 where a factor is the NaN that tensor copies fill with (PTX ISA 9.7.4.3)."""
    for factor in factors:
        result = b.select(b.icmp("eq", as_bits(b, factor, 16), _OUT_OF_BOUNDS), 0, result)
    return result


def arithmetic(
    op: str, *, negate: int | None = None
) -> Callable[[Builder, Instruction, list[Value]], Result]:
    """The lowering of ``add``, ``mul`` or ``fma``; ``negate`` is the operand whose sign is turned first."""

    def lower(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
        addend = len(operands) - 1

        def compute(type: ScalarType, values: list[Value]) -> Value:
            # add.f32.f16 a, c: all operands but the last are of the second type (PTX ISA 9.7.5)
            sources = [
                inst.types[-1] if len(inst.types) > 1 and i != addend else type for i in range(len(values))
            ]
            xs = [load_float(b, v, t) for v, t in zip(values, sources, strict=True)]
            signed = [b.fneg(x) if i == negate else x for i, x in enumerate(xs)]
            value = _arithmetic(b, inst, op, type, signed)
            if inst.has("oob"):
                value = _out_of_bounds(b, values[:2], value)
            return (
                _with_nan(b, op, inst.slots.get("rnd", "rn"), xs, value) if type is ScalarType.F64 else value
            )

        return by_elements(b, inst.type, operands, compute)

    return lower


lanewise("fma")(arithmetic("fma"))


# --- quotients and roots -----------------------------------------------------------------------------


def _divide_double(b: Builder, mode: str, x: Value, y: Value) -> Value:
    result = _quotient(b, mode, x, y)
    return _with_nan(b, "div", mode, [x, y], result) if x.type == "double" else result


def _quotient(b: Builder, mode: str, x: Value, y: Value) -> Value:
    if mode == "rm":
        return _negated_result(b, _quotient(b, "rp", b.fneg(x), y))
    nearest = b.fdiv(x, y)
    if mode == "rn":
        return nearest
    # exact > r where r*y < x, for positive y
    short = rounding.residual(b, nearest, y, b.fneg(x), b.const("double", 0.0))
    sign = b.and_(rounding.bits_of(b, y), 1 << 63)
    error = b.bitcast(b.xor(b.xor(rounding.bits_of(b, short), sign), 1 << 63), "double")
    inverse = b.fdiv(1.0, y)  # infinite for y = 0, whose quotient is exact; NaN is no input either
    guard = b.select(b.fcmp("oeq", y, 0.0), inverse, y)
    return rounding.directed_double(b, nearest, error, mode, [x, guard])


def _root_double(b: Builder, mode: str, x: Value) -> Value:
    nearest = b.intrinsic("sqrt", x)
    if mode == "rn":
        return nearest
    excess = rounding.residual(b, nearest, nearest, b.fneg(x), b.const("double", 0.0))
    error = b.fneg(excess)
    return rounding.directed_double(b, nearest, error, "rz" if mode == "rm" else mode, [x])


def _quotient_or_root(
    b: Builder, inst: Instruction, operation: Callable[..., Value], operands: list[Value]
) -> Result:
    """IEEE ``div``, ``rcp``, ``sqrt``: f64 by residual; f32 by the f64 result, which is close enough.

    The quotient of two 24-bit numbers, or the root of one, is either a 24-bit number or at least 2^-49 of
    itself away from any, further than f64's rounding moves it.
    """
    mode, ftz = inst.slots["rnd"], inst.has("ftz")
    xs = [load_float(b, v, inst.type) for v in operands]
    if inst.type is ScalarType.F64:
        return operation(mode, xs)
    if mode == "rn" and not ftz:
        return operation("rn", xs)
    if ftz:
        xs = [rounding.flush(b, x) for x in xs]
    wide = operation("rn", [b.cast("fpext", x, "double") for x in xs])
    convert = rounding.narrow_flushed if ftz else rounding.narrow
    return convert(b, wide, "float", mode)


def divide(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``div.rn`` and its kin; ``.approx`` and ``.full`` are in :mod:`approximate`."""
    return _quotient_or_root(b, inst, lambda mode, xs: _divide_double(b, mode, *xs), operands)


def reciprocal(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``rcp.rn`` and its kin."""

    def operation(mode: str, xs: list[Value]) -> Value:
        return _divide_double(b, mode, b.const(xs[0].type, 1.0), xs[0])

    return _quotient_or_root(b, inst, operation, operands)


def square_root(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``sqrt.rn`` and its kin."""
    return _quotient_or_root(b, inst, lambda mode, xs: _root_double(b, mode, *xs), operands)


# --- sign --------------------------------------------------------------------------------------------


def _signed(
    b: Builder, inst: Instruction, operands: list[Value], operation: Callable[[Value], Value]
) -> Result:
    def compute(type: ScalarType, values: list[Value]) -> Value:
        x = load_float(b, values[0], type)
        if inst.has("ftz"):
            x = rounding.flush(b, x) if type is ScalarType.F32 else _flush_half(b, x)
        value = operation(x)
        return nan.keep_sign(b, x, value) if type is ScalarType.F64 else store_float(b, value, type)

    return by_elements(b, inst.type, operands, compute)


def negate(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``neg`` of floating types."""
    return _signed(b, inst, operands, b.fneg)


def absolute(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``abs`` of floating types."""
    return _signed(b, inst, operands, lambda x: rounding.magnitude(b, x))


@lanewise("copysign")
def copysign(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.3.2: the sign of ``a`` on the value of ``b``, bits otherwise untouched."""
    sign, value = (as_bits(b, v, inst.type.bits) for v in operands)
    mask = 1 << (inst.type.bits - 1)
    return b.or_(b.and_(sign, mask), b.and_(value, mask - 1))


# --- min, max ----------------------------------------------------------------------------------------


def minmax_float(name: str) -> Callable[[Builder, Instruction, list[Value]], Result]:
    """The lowering of ``min`` or ``max``: -0 < +0; NaN loses, or wins with ``.NaN`` (PTX ISA 9.7.3.11)."""

    def lower(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
        intrinsic = f"{name}imum" if inst.has("NaN") else f"{name}imumnum"

        def compute(type: ScalarType, values: list[Value]) -> Value:
            xs = [load_float(b, v, type) for v in values]
            if inst.has("ftz"):
                flush = rounding.flush if type is ScalarType.F32 else _flush_half
                xs = [flush(b, x) for x in xs]
            if inst.has("xorsign"):
                best = _with_signs(b, intrinsic, xs, [as_bits(b, v, type.bits) for v in values])
            else:
                best = _pick(b, intrinsic, xs)
            if type is ScalarType.F64:
                both = b.and_(nan.is_nan(b, xs[0]), nan.is_nan(b, xs[1]))
                return b.select(both, nan.quieted(b, xs[1]), best)
            return store_float(b, best, type)

        return by_elements(b, inst.type, operands, compute)

    return lower


def _pick(b: Builder, intrinsic: str, xs: list[Value]) -> Value:
    """The extreme of two or three."""
    best = b.intrinsic(intrinsic, xs[0], xs[1])
    return b.intrinsic(intrinsic, best, xs[2]) if len(xs) > 2 else best


def _with_signs(b: Builder, intrinsic: str, xs: list[Value], operands: list[Value]) -> Value:
    """``.xorsign.abs``: the extreme of the magnitudes, its sign the xor of the operands' own.

    Those of the operands' bits: widening a NaN may lose its sign.
    """
    best = _pick(b, intrinsic, [rounding.magnitude(b, x) for x in xs])
    sign = operands[0]
    for operand in operands[1:]:
        sign = b.xor(sign, operand)
    wide = rounding.integer_type(best.type)
    shift = FLOAT_BITS[best.type] - sign.width
    sign = b.and_(b.shl(b.zext(sign, wide), shift), rounding.sign_mask(best.type))
    return b.bitcast(b.or_(rounding.bits_of(b, best), sign), best.type)
