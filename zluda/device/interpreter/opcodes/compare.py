"""Comparison and selection (PTX ISA 9.7.6, 9.7.7)."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter import floats
from zluda.device.interpreter.floats import ELEMENTS, FORMATS, Format
from zluda.device.interpreter.opcodes.integer import typed
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits, signed
from zluda.ptx.module import Pair
from zluda.ptx.types import ScalarType

T = ScalarType
_ORDERS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED_WORDS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _compared_floats(s: Step, of: Format, x: Bits, y: Bits) -> Bits:
    """9.3.1.1: with NaN the plain words are false, those with ``u`` true."""
    if s.has("ftz"):
        x, y = floats.flush(x, of), floats.flush(y, of)
    unordered = floats.is_nan(x, of) | floats.is_nan(y, of)
    word = s.slot("cmp")
    if word in ("num", "nan"):
        return unordered if word == "nan" else ~unordered
    found = _ORDERS[word[:2]](floats.widen(x, of), floats.widen(y, of))
    return found | unordered if word.endswith("u") else found & ~unordered


def _compared(s: Step, type: ScalarType, x: Bits, y: Bits) -> Bits:
    if type.kind == "f":
        return _compared_floats(s, FORMATS[type.spelling], x, y)
    word = s.slot("cmp")
    return np.asarray(_ORDERS[_UNSIGNED_WORDS.get(word, word)](typed(x, type), typed(y, type)))


def _combined(s: Step, holds: Bits) -> Bits:
    """``holds BoolOp c``."""
    if not s.has("boolop"):
        return holds
    c = s.read(-1, T.PRED)
    return np.asarray(
        {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[s.slot("boolop")](holds, c)
    )


def _halves(s: Step, type: ScalarType) -> tuple[Bits, Bits]:
    """Of a packed type the lower and the upper comparison."""
    of = FORMATS[ELEMENTS[type.spelling]]
    x, y = s.read(1, type), s.read(2, type)
    shift, kind = np.uint32(of.bits), UNSIGNED[of.bits]
    low = _compared_floats(s, of, x.astype(kind), y.astype(kind))
    high = _compared_floats(s, of, (x >> shift).astype(kind), (y >> shift).astype(kind))
    return _combined(s, low), _combined(s, high)


@lane("setp")
def setp(s: Step) -> None:
    """9.7.6.2, 9.7.7.2: ``q`` is of the comparison's complement, of packed types the upper half's."""
    if s.type.spelling in ELEMENTS:
        s.write_both(*_halves(s, s.type))
        return
    holds = _compared(s, s.type, s.read(1), s.read(2))
    if isinstance(s.inst.operands[0], Pair):
        s.write_both(_combined(s, holds), _combined(s, ~holds))
    else:
        s.write(_combined(s, holds))


_ONE = {T.F32: 0x3F800000, T.F16: 0x3C00, T.BF16: 0x3F80}


def _truth(holds: Bits, type: ScalarType) -> Bits:
    """1.0 of a floating type, all ones of an integer one; else 0."""
    one = _ONE.get(type, (1 << type.bits) - 1)
    return np.where(holds, one, 0).astype(UNSIGNED[type.bits])


@lane("set")
def set_(s: Step) -> None:
    """9.7.6.1, 9.7.7.1."""
    result, source = s.inst.types
    if source.spelling not in ELEMENTS:
        holds = _compared(s, source, s.read(1, source), s.read(2, source))
        s.write(_truth(_combined(s, holds), result))
        return
    element = {"f16x2": T.F16, "bf16x2": T.BF16}.get(result.spelling, T.U16)
    low, high = (_truth(holds, element).astype(np.uint32) for holds in _halves(s, source))
    s.write(low | high << np.uint32(16))


@lane("selp")
def selp(s: Step) -> None:
    """9.7.6.3."""
    s.write(np.where(s.read(3, T.PRED), s.read(1), s.read(2)))


@lane("slct")
def slct(s: Step) -> None:
    """9.7.6.4: ``a`` where ``c >= 0``; -0 is, NaN is not."""
    selector = s.inst.types[1]
    c = s.read(3, selector)
    if selector is T.F32:
        holds = floats.widen(floats.flush(c, floats.F32) if s.has("ftz") else c, floats.F32) >= 0
    else:
        holds = signed(c) >= 0
    s.write(np.where(holds, s.read(1), s.read(2)))
