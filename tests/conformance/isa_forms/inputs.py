"""Operand values: edge cases, and seeded random bit patterns that meet alignment, rounding and range edges.

Everything is integer arithmetic on numpy ``uint64`` (splitmix64), so that the same bits come out under every
numpy. An operand is one 64-bit word whose low bits are the value.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
BLOCK = 4096  # results per digest

# kind → (exponent bits, mantissa bits)
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 23)}
PACKED = {"f16x2": "f16", "bf16x2": "bf16", "u16x2": "u16", "s16x2": "s16", "f32x2": "f32"}
INTEGER_BITS = {
    **{f"{k}{w}": w for k in "bus" for w in (8, 16, 32, 64) if f"{k}{w}" != "b8"},
}


def random_words(seed: int, count: int) -> Words:
    """``count`` 64-bit words of splitmix64."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 20)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def integer_edges(bits: int) -> list[int]:
    """0, ±1, …, the ends of the signed and unsigned ranges, patterns and powers of two."""
    top = 1 << (bits - 1)
    values = [
        0,
        1,
        2,
        3,
        5,
        7,
        10,
        -1,
        -2,
        -3,
        -7,
        top,
        top - 1,
        top + 1,
        top - 2,
        0x5555555555555555,
        0xAAAAAAAAAAAAAAAA,
    ]
    values += [
        1 << (bits // 2),
        (1 << (bits // 2)) - 1,
        (1 << (bits // 2)) + 1,
        -(1 << (bits // 2)),
        0x0123456789ABCDEF,
    ]
    values += [bits - 1, bits, bits + 1, 2 * bits, 0xFF, 0x80, 0x7F, 0x0F, 1 << (bits - 2)]
    return _unique(values, bits)


def float_edges(kind: str) -> list[int]:
    """±0, ±1, subnormal and normal ends, infinities, NaNs with payloads, halves and powers of two as bits."""
    exponent_bits, mantissa_bits = FLOATS[kind]
    bias = (1 << (exponent_bits - 1)) - 1
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    quiet = 1 << (mantissa_bits - 1)
    one, hidden = bias << mantissa_bits, 1 << mantissa_bits
    magnitudes = [0, 1, 2, hidden - 1, hidden, hidden + 1, quiet, one, one + 1, one - 1, one + quiet]
    magnitudes += [
        one + hidden,
        one - hidden,
        one + hidden + quiet // 2,
        infinity - 1,
        infinity - 2,
        infinity,
    ]
    magnitudes += [
        infinity | quiet,
        infinity | (hidden - 1),
        infinity | 1,
        infinity | (quiet >> 1) | 5,
        infinity | quiet | 3,
    ]
    for power in (7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 63, 64):
        if power <= bias:
            scaled = (bias + power) << mantissa_bits
            magnitudes += [scaled, scaled - 1] + ([scaled | quiet] if power in (7, 31, 63) else [])
    sign = 1 << (exponent_bits + mantissa_bits)
    return _unique([m | s for m in magnitudes for s in (0, sign)], 1 + exponent_bits + mantissa_bits)


def _unique(values: list[int], bits: int) -> list[int]:
    return list(dict.fromkeys(v & ((1 << bits) - 1) for v in values))


def edges(kind: str) -> list[int]:
    """The edge values of one kind, as bits."""
    if kind in FLOATS:
        return float_edges(kind)
    if kind in PACKED:
        low = edges(PACKED[kind])
        half = 16 if kind != "f32x2" else 32
        return [v | (low[(5 * k + 3) % len(low)] << half) for k, v in enumerate(low)]
    if kind == "pred":
        return [0, 1]
    if kind == "shift":
        return [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 0x80000000, 0xFFFFFFFF, 0x100]
    if kind == "count":
        return [0, 1, 4, 8, 15, 16, 31, 32, 33, 63, 64, 255, 256, 257, 0x1F00, 0xFFFFFFFF]
    if kind == "lane":
        return [*range(34), 63, 64, 0xFFFFFFFF]
    return integer_edges(INTEGER_BITS[kind])


def _random_integers(bits: int, seed: int, count: int) -> Words:
    """Uniform bits, shifted by a random amount in half of the words so that magnitudes vary."""
    words, shifts = random_words(seed, count), random_words(seed + 1, count)
    small = words & _mask(bits)
    shift = (shifts >> np.uint64(8)) % np.uint64(bits)
    signed = np.where(shifts & np.uint64(2) != 0, ~(small >> shift), small >> shift)
    return np.where(shifts & np.uint64(1) != 0, signed, small) & _mask(bits)


def _random_floats(kind: str, position: int, seed: int, count: int, first: list[Words]) -> Words:
    """Bit patterns whose exponents relate to the operands before: near sums, products near both range
    ends."""
    exponent_bits, mantissa_bits = FLOATS[kind]
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    words = random_words(seed + 101 * position + 7, count)
    chance = random_words(seed + 101 * position + 8, count)
    style = random_words(seed, count) % np.uint64(8)  # shared by the operands of one result
    jitter = (chance >> np.uint64(20)).astype(np.int64) % (2 * mantissa_bits + 6) - (mantissa_bits + 3)
    uniform = ((words >> np.uint64(mantissa_bits)) & np.uint64(top)).astype(np.int64)
    near_one = bias + jitter % 9 - 4
    past = [((w >> np.uint64(mantissa_bits)) & np.uint64(top)).astype(np.int64) for w in first]
    if not past:
        related = low = high = quotient = np.where(style == 1, near_one, uniform)
    else:
        product = past[0] if len(past) < 2 else past[0] + past[1] - bias
        related = product + jitter
        low, high = bias - past[0] + jitter // 2, bias + top - past[0] + jitter // 4
        quotient = past[0] + bias - 1 + jitter // 4
        if len(past) == 2:
            low, high, quotient = product - jitter // 4, product + jitter // 8, product + jitter // 2
    subnormal = np.where(jitter % 2 == 0, 0, np.abs(jitter) % 3)
    exponent = np.choose(
        style.astype(np.int64), [uniform, near_one, related, low, high, quotient, subnormal, related]
    )
    exponent = np.clip(exponent, 0, top - (style != 0)).astype(np.uint64)
    sparse = (
        words
        & random_words(seed + 101 * position + 9, count)
        & random_words(seed + 101 * position + 10, count)
    )
    few = np.uint64(1) << (chance % np.uint64(mantissa_bits))
    mantissa = np.choose(
        ((chance >> np.uint64(60)) % np.uint64(4)).astype(np.int64), [words, words, sparse, few]
    )
    sign = (chance >> np.uint64(50)) & np.uint64(1)
    value = (
        (sign << np.uint64(exponent_bits + mantissa_bits))
        | (exponent << np.uint64(mantissa_bits))
        | (mantissa & _mask(mantissa_bits))
    )
    if first:
        value = np.where(style == 7, _cancelling(kind, first, chance), value)
    return value


def _cancelling(kind: str, first: list[Words], chance: Words) -> Words:
    """About minus the first operand, or minus the product of two, so that sums cancel to their last bits."""
    product = first[0]
    if len(first) == 2 and kind in ("f32", "f64"):
        bits, real = (np.uint32, np.float32) if kind == "f32" else (np.uint64, np.float64)
        a, b = (w.astype(bits).view(real) for w in first)
        with np.errstate(all="ignore"):
            product = np.where(np.isnan(a * b), a, a * b).view(bits).astype(np.uint64)
    sign = np.uint64(1 << sum(FLOATS[kind]))
    return (product ^ sign ^ (chance & np.uint64(3))) & _mask(sum(FLOATS[kind]) + 1)


def _random(kind: str, position: int, seed: int, count: int, first: list[tuple[str, Words]]) -> Words:
    if kind in FLOATS:
        same = [w for k, w in first if k == kind]
        return _random_floats(kind, position, seed, count, same)
    if kind in PACKED:
        half, width = PACKED[kind], 32 if kind == "f32x2" else 16
        low = [(half, w & _mask(width)) for k, w in first if k == kind]
        high = [(half, w >> np.uint64(width)) for k, w in first if k == kind]
        upper = _random(half, position, seed + 5003, count, high)
        return _random(half, position, seed, count, low) | (upper << np.uint64(width))
    if kind == "pred":
        return random_words(seed + 11 + position, count) & np.uint64(1)
    if kind in ("shift", "count", "lane"):
        return random_words(seed + 13 + position, count) % np.uint64(
            {"shift": 70, "count": 40, "lane": 32}[kind]
        )
    return _random_integers(INTEGER_BITS[kind], seed + 17 * position, count)


def exhaustive_bits(sources: tuple[str, ...]) -> int | None:
    """8 or 16 where one narrow operand is tried with every bit pattern."""
    if len(sources) == 1 and sources[0] in ("u8", "s8", "u16", "s16", "b16", "f16", "bf16"):
        return 8 if sources[0].endswith("8") else 16
    return None


def result_count(sources: tuple[str, ...]) -> int:
    """How many results each form with these sources computes; a multiple of :data:`BLOCK`."""
    if bits := exhaustive_bits(sources):
        return max(BLOCK, 1 << bits)
    floating = any(kind in FLOATS or kind in PACKED for kind in sources)
    return BLOCK * ((4 if len(sources) == 3 else 2) if floating else 1)


def operands(sources: tuple[str, ...]) -> list[Words]:
    """The operand words of every result, one array a source."""
    count = result_count(sources)
    if bits := exhaustive_bits(sources):
        return [np.arange(count, dtype=np.uint64) & _mask(bits)]
    seed = zlib.crc32(" ".join(sources).encode())
    lists = [np.array(edges(kind), dtype=np.uint64) for kind in sources]
    combinations = int(np.prod([len(values) for values in lists])) if lists else 0
    if combinations <= count // 2:
        index = np.arange(combinations, dtype=np.int64)
    else:
        index = (random_words(seed + 3, count // 2) >> np.uint64(3)).astype(np.int64) % combinations
    order = np.argsort(random_words(seed + 4, count), kind="stable")
    result: list[tuple[str, Words]] = []
    for position, (kind, values) in enumerate(zip(sources, lists, strict=True)):
        chosen = values[index % len(values)]
        index = index // len(values)
        random = _random(
            kind, position, seed + 29, count - len(chosen), [(k, w[len(chosen) :]) for k, w in result]
        )
        result.append((kind, np.concatenate([chosen, random])))
    return [words[order] for _, words in result]
