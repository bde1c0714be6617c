"""``cvt`` to and from floats of 8, 6 and 4 bits, two or four to a register (PTX ISA 9.7.9.21).

Their numbers are listed, and rounding looks up the nearest: so nothing of it is arithmetic on bits.
"""

from __future__ import annotations

import functools

import numpy as np

from zluda.device.interpreter import floats
from zluda.device.interpreter.floats import BF16, F16, F32
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType


@dataclass(frozen=True, slots=True)
class Small:
    """``exponent`` and ``fraction`` bits; codes from ``first_special`` on are no numbers.

    ``nan`` is the code that NaN becomes, ``infinite`` that of infinity, -1 for none. ``apart`` is the
    distance of two elements in a register in bits.
    """

    exponent: int
    fraction: int
    first_special: int
    nan: int
    apart: int
    infinite: int = -1

    @property
    def sign(self) -> int:
        """The sign's place."""
        return self.exponent + self.fraction


_PAIRS = {
    T.E4M3X2: Small(4, 3, 0x7F, 0x7F, 8),
    T.E5M2X2: Small(5, 2, 0x7C, 0x7F, 8, infinite=0x7C),
    T.E2M3X2: Small(2, 3, 0x20, 0x1F, 8),
    T.E3M2X2: Small(3, 2, 0x20, 0x1F, 8),
    T.E2M1X2: Small(2, 1, 0x8, 0x7, 4),
}
_OTHERS = frozenset((T.UE8M0X2, T.E4M3X4, T.E5M2X4, T.E2M3X4, T.E3M2X4, T.E2M1X4, T.S2F6X2))


def is_one(type: ScalarType) -> bool:
    """Whether a type holds such floats."""
    return type in _PAIRS or type in _OTHERS


@functools.cache
def _numbers(kind: Small) -> Bits:
    """The number of each code without a sign, ascending."""
    found = []
    bias = (1 << (kind.exponent - 1)) - 1
    for code in range(kind.first_special):
        field, fraction = code >> kind.fraction, code & ((1 << kind.fraction) - 1)
        significand = fraction + ((1 << kind.fraction) if field else 0)
        found.append(significand * 2.0 ** (max(field, 1) - bias - kind.fraction))
    return np.array(found)


def converted(s: Step) -> Bits:
    """The result of a conversion. Raises UnsupportedError for forms that are not known here."""
    result, source = s.inst.types[:2]
    if source in _PAIRS and result is T.F16X2:
        return _widened(s, _PAIRS[source])
    if source is T.UE8M0X2 and result is T.BF16X2:
        return _powers(s)
    if s.slot("rnd") == "rs" or (result not in _PAIRS and result is not T.UE8M0X2):
        raise s.unsupported()
    high, low = _sources(s, source)
    if result is T.UE8M0X2:
        return _exponent(s, high) << np.uint16(8) | _exponent(s, low)
    kind = _PAIRS[result]
    codes = [_code(kind, floats.rectify(x) if s.has("relu") else x) for x in (high, low)]
    return (codes[0] << kind.apart | codes[1]).astype(UNSIGNED[result.bits])


def _sources(s: Step, source: ScalarType) -> tuple[Bits, Bits]:
    """The upper and the lower element."""
    if source is T.F32:
        return floats.widen(s.read(1, source), F32), floats.widen(s.read(2, source), F32)
    of = F16 if source is T.F16X2 else BF16
    both = s.read(1, source)
    high = (both >> np.uint32(16)).astype(np.uint16)
    return floats.widen(high, of), floats.widen(both.astype(np.uint16), of)


def _code(kind: Small, x: Bits) -> Bits:
    """The nearest number, the even code of two; what is too large is the largest."""
    numbers, size = _numbers(kind), np.where(np.isnan(x), 0.0, np.abs(x))
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
    below = above - 1
    up, down = numbers[above] - size, size - numbers[below]
    nearer = (up < down) | ((up == down) & (above % 2 == 0))
    code = np.where(nearer, above, below) | (np.signbit(x).astype(np.int64) << kind.sign)
    return np.where(np.isnan(x), kind.nan, code)


def _widened(s: Step, kind: Small) -> Bits:
    """Two codes as f16."""
    both = s.read(1, s.inst.types[1]).astype(np.int64)
    halves = []
    for start in (0, kind.apart):
        code = both >> start & ((1 << kind.apart) - 1)
        size, negative = code & ((1 << kind.sign) - 1), code >> kind.sign & 1 == 1
        numbers = _numbers(kind)
        value = numbers[np.minimum(size, len(numbers) - 1)]
        value = np.where(size == kind.infinite, np.inf, value)
        if kind.nan >= kind.first_special:
            first = kind.first_special if kind.infinite < 0 else kind.infinite + 1
            value = np.where(size >= first, np.nan, value)
        value = np.where(negative, -value, value)
        halves.append(floats.narrow(floats.rectify(value) if s.has("relu") else value, F16).astype(np.uint32))
    return halves[0] | halves[1] << np.uint32(16)


def _exponent(s: Step, x: Bits) -> Bits:
    """The power of two at or below (``.rz``), or at or above (``.rp``), a magnitude; code 0 is 2^-127."""
    size = np.where(np.isfinite(x) & (x != 0), np.abs(x), 1.0)
    m, e = np.frexp(size)
    power = e - 1 + ((m > 0.5) if s.slot("rnd") == "rp" else 0)
    code = np.clip(power + 127, 0, 0xFE if s.has("satfinite") else 0xFF)
    code = np.where(x == 0, 0, np.where(np.isinf(x), 0xFE if s.has("satfinite") else 0xFF, code))
    return np.where(np.isnan(x), 0xFF, code).astype(np.uint16)


def _powers(s: Step) -> Bits:
    both = s.read(1, T.B16).astype(np.int64)
    halves = []
    for start in (0, 8):
        code = both >> start & 0xFF
        value = np.where(code == 0xFF, np.nan, np.ldexp(1.0, code - 127))
        halves.append(floats.narrow(value, BF16).astype(np.uint32))
    return halves[0] | halves[1] << np.uint32(16)
