"""``cvt`` (PTX ISA 9.7.9.21) and ``cvt.pack`` (9.7.9.22)."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter import doubles, floats
from zluda.device.interpreter.floats import FORMATS, Format
from zluda.device.interpreter.opcodes import small_floats
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits, resize, signed, unsigned
from zluda.ptx.types import ScalarType

T = ScalarType
_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.FEp127"), "tf32": float.fromhex("0x1.FFCp127")}
_PAIRS = {T.F16X2: T.F16, T.BF16X2: T.BF16}


def _limits(bits: int, *, sign: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign else (0, (1 << bits) - 1)


@lane("cvt")
def cvt(s: Step) -> None:
    """9.7.9.21."""
    if s.has("pack"):
        s.write(_packed_integers(s))
        return
    result, source = s.inst.types[:2]
    if small_floats.is_one(result) or small_floats.is_one(source) or s.slot("rnd") == "rs":
        s.write(small_floats.converted(s))
    elif result in _PAIRS:
        s.write(_pair(s))
    elif result is T.TF32:
        s.write(_to_tf32(s, s.read(1, source)))
    elif source.kind == "f" and result.kind == "f":
        s.write(_float_to_float(s, s.read(1, source)))
    elif source.kind == "f":
        s.write(_float_to_integer(s, s.read(1, source)), sign=result.kind == "s")
    elif result.kind == "f":
        s.write(_integer_to_float(s, s.read(1, source)))
    else:
        s.write(_integer_to_integer(s, s.read(1, source)), sign=result.kind == "s")


# --- integers --------------------------------------------------------------------------------------------


def _integer_to_integer(s: Step, x: Bits) -> Bits:
    """Cut or extended by the source's sign; ``.sat`` clamps to the result's range."""
    result, source = s.inst.types
    sign = source.kind == "s"
    if not s.has("sat"):
        return resize(x, result.bits, sign=sign)
    wide = signed(x).astype(np.int64) if sign else x.astype(np.uint64)
    lowest, highest = _limits(64, sign=sign)
    low, high = _limits(result.bits, sign=result.kind == "s")
    return unsigned(np.clip(wide, max(low, lowest), min(high, highest))).astype(UNSIGNED[result.bits])


def _float_to_integer(s: Step, x: Bits) -> Bits:
    """To an integral value as the modifier says, then into the result's range."""
    result, source = s.inst.types
    of = FORMATS[source.spelling]
    if s.has("ftz"):
        x = floats.flush(x, of)
    value = _INTEGRAL[s.slot("rnd")](floats.widen(x, of))
    low, high = _limits(result.bits, sign=result.kind == "s")
    nan = np.isnan(value)
    above, below = value >= float(high) + (result.bits < 54), value <= float(low)
    inside = np.where(nan | above | below, 0.0, value)
    if result.kind == "s":
        whole = inside.astype(np.int64).astype(np.uint64)
    else:
        half = float(1 << 63)
        upper = np.where(inside >= half, inside - half, 0.0).astype(np.uint64) + np.uint64(1 << 63)
        whole = np.where(inside >= half, upper, np.where(inside >= half, 0.0, inside).astype(np.uint64))
    whole = np.where(above, np.uint64(high), np.where(below, np.uint64(low % 2**64), whole))
    # Of NaN, which PTX leaves open, an H200 makes 0, but where 64 bits are involved the top bit.
    of_nan = 1 << (result.bits - 1) if source is T.F64 or result.bits == 64 else 0
    return np.where(nan, np.uint64(of_nan), whole).astype(UNSIGNED[result.bits])


def _integer_to_float(s: Step, x: Bits) -> Bits:
    """Rounded once."""
    result, source = s.inst.types
    sign, mode = source.kind == "s", s.slot("rnd", "rn")
    of = FORMATS[result.spelling]
    if of is floats.F64:
        numbers = (signed(x) if sign else x).tolist()
        bits = np.array([doubles.rounded(n < 0, abs(n), 0, mode) for n in numbers], np.uint64)
        return _saturated_double(bits) if s.has("sat") else bits
    wide = resize(x, 64, sign=sign)
    high = (signed(wide) >> 32).astype(np.float64) if sign else (wide >> np.uint64(32)).astype(np.float64)
    value = floats.add(high * 2.0**32, (wide & np.uint64(0xFFFFFFFF)).astype(np.float64))
    return floats.narrow(floats.saturate(value) if s.has("sat") else value, of, mode)


def _saturated_double(bits: Bits) -> Bits:
    return floats.saturate(np.ascontiguousarray(bits).view(np.float64)).view(np.uint64)


# --- floats ------------------------------------------------------------------------------------------------


def _bounded(s: Step, x: Bits, name: str) -> Bits:
    """``.sat``, ``.relu``, ``.satfinite``: their bounds are exact in every format."""
    if s.has("sat"):
        x = floats.saturate(x)
    if s.has("relu"):
        x = floats.rectify(x)
    if s.has("satfinite"):
        largest = _LARGEST[name]
        x = np.where(np.isnan(x), x, np.clip(x, -largest, largest))
    return x


def _float_to_float(s: Step, bits: Bits) -> Bits:
    result, source = s.inst.types
    into, of = FORMATS[result.spelling], FORMATS[source.spelling]
    if not s.inst.slots and result is source and of.bits >= 32:  # bits are moved
        return bits.copy()
    if not s.inst.slots and result is T.F32 and source is T.BF16:
        return bits.astype(np.uint32) << np.uint32(16)
    if s.has("ftz") and source is T.F32 and result is not T.F16:
        bits = floats.flush(bits, of)
    value = floats.widen(bits, of)
    mode = s.slot("rnd", "rn")
    if mode in _INTEGRAL:
        value, mode = _INTEGRAL[mode](value), "rn"
    value = _bounded(s, value, result.spelling)
    nan = floats.is_nan(bits, of)
    if into is floats.F64:
        return _to_double(s, value, bits, nan, of)
    found = floats.narrow(value, into, mode, ftz=s.has("ftz") and result is T.F32)
    if of is floats.F64 and not s.has("sat"):  # the upper part of the payload stays
        kind = found.dtype.type
        payload = (bits >> np.uint64(52 - into.fraction)).astype(found.dtype) & kind((1 << into.fraction) - 1)
        sign = (bits >> np.uint64(63)).astype(found.dtype) << kind(into.bits - 1)
        found = np.where(nan, payload | sign | kind(into.infinity | 1 << (into.fraction - 1)), found)
    return found


def _to_double(s: Step, value: Bits, bits: Bits, nan: Bits, of: Format) -> Bits:
    found = value.view(np.uint64)
    if s.has("sat"):
        return found
    if of is floats.F64:
        return np.where(nan, bits | np.uint64(1 << 51), found)
    if s.has("ftz"):  # the operand became the one NaN of f32 first
        return np.where(nan, np.uint64(0x7FFFFFFFE0000000), found)
    return np.where(nan, found | np.uint64(1 << 51), found)


def _pair(s: Step) -> Bits:
    """``d, a, b``: the first operand in the upper half."""
    result, source = s.inst.types
    element = _PAIRS[result]
    of = FORMATS[element.spelling]
    halves = []
    for index in (1, 2):
        bits = s.read(index, source)
        value = _bounded(s, floats.widen(bits, floats.F32), element.spelling)
        halves.append(floats.narrow(value, of, s.slot("rnd", "rn")).astype(np.uint32))
    return halves[0] << np.uint32(16) | halves[1]


def _to_tf32(s: Step, bits: Bits) -> Bits:
    """10 bits of fraction, the 13 below zero. As an H200 has it, ``.rna`` is an integer sequence that keeps
    NaN's payload, and whose ``.satfinite`` steps down from NaN as from infinity."""
    nan, mode = floats.is_nan(bits, floats.F32), s.slot("rnd", "rn")
    x = floats.widen(bits, floats.F32)
    bounded = np.where(np.isnan(x), 0.0, _bounded(s, x, "tf32"))
    found = floats.narrow(bounded, floats.Format(32, 23, 0), "rz")
    cut = found & np.uint32(0xFFFFE000)
    rest, half, step = found & np.uint32(0x1FFF), np.uint32(0x1000), np.uint32(0x2000)
    up = {"rna": rest >= half, "rn": (rest > half) | ((rest == half) & (cut & step != 0)), "rz": rest > step}[
        mode
    ]
    found = np.where(up, cut + step, cut)
    special = np.full_like(bits, 0x7FFFE000)
    if mode == "rna":
        special = (bits & np.uint32(0xFFFFE000)) - (step if s.has("satfinite") else np.uint32(0))
    return np.where(nan, special, found)


# --- cvt.pack ----------------------------------------------------------------------------------------------


def _packed_integers(s: Step) -> Bits:
    """9.7.9.22: ``a`` above ``b``, both clamped, below them the low bits of ``c`` moved up."""
    name = s.slot("dtype", s.type.spelling)
    bits = int(name[1:])
    low, high = _limits(bits, sign=name[0] == "s")
    pieces = [
        np.clip(signed(s.read(i, T.S32)), low, high).astype(np.int64) & ((1 << bits) - 1) for i in (1, 2)
    ]
    packed = (pieces[0] << bits | pieces[1]).astype(np.uint32)
    if len(s.inst.operands) > 3:
        packed = packed | s.read(3, T.B32) << np.uint32(2 * bits)
    return packed
