"""The OpenCL kernels of tests/device/amd/data: arguments, and what numpy or Python says they compute.

A case is a function of a random generator and the wave size. It returns the launch's arguments (arrays are
passed by address) and a function that returns pairs (what the kernel left, what it should have left), each
with a relative tolerance of 0 for equal bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

BLOCK, BLOCKS = 256, 4
N, COUNT = BLOCK * BLOCKS, 1000  # threads, and the elements that guarded kernels work on

Array = np.ndarray[Any, Any]
Outcome = list[tuple[Array, Array, float]]
Case = Callable[[np.random.Generator, int], tuple[list[Any], Callable[[], Outcome]]]
CASES: dict[str, tuple[str, Case]] = {}
GRIDS = {"k_matmul": (9, 1, 1), "q_ids": (2, 2, 2), "k_private": (BLOCKS, 1, 1)}
BLOCK_SHAPES = {"q_ids": (4, 4, 4)}
SHARED_BYTES = {"q_dynlds": 1024}


def case(file: str) -> Callable[[Case], Case]:
    def register(function: Case) -> Case:
        CASES[function.__name__] = (file, function)
        return function

    return register


def pack(arguments: list[Any]) -> bytes:
    """The explicit part of a kernarg segment, naturally aligned."""
    data = bytearray()
    for argument in arguments:
        piece = (
            struct.pack("<Q", argument.ctypes.data)
            if isinstance(argument, np.ndarray)
            else argument.tobytes()
        )
        data += b"\0" * (-len(data) % len(piece)) + piece
    return bytes(data)


def i32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def i64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def quotient(x: int, y: int) -> int:
    """C's division: towards zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def guarded(values: Array) -> Array:
    """Zero where a kernel's guard keeps threads out."""
    return np.where(np.arange(len(values)) < COUNT, values, 0).astype(values.dtype)


def _floats(
    r: np.random.Generator, low: float = -10, high: float = 10, kind: str = "f4", n: int = N
) -> Array:
    return r.uniform(low, high, n).astype(kind)


def _small(r: np.random.Generator) -> Array:
    return r.integers(0, 1000, N).astype("i4")


def _any32(r: np.random.Generator) -> Array:
    return r.integers(0, 1 << 32, N, dtype=np.uint32)


_COUNT = np.int32(COUNT)


@case("general")
def k_vadd(r, wave):
    a, b, c = _floats(r), _floats(r), np.zeros(N, "f4")
    return [a, b, c, _COUNT], lambda: [(c, guarded(a + b), 0)]


@case("general")
def k_saxpy_f64(r, wave):
    a, c = _floats(r, kind="f8"), _floats(r, kind="f8")
    old = c.copy()
    expected = np.where(np.arange(N) < COUNT, (1.25 * a + old) / (1 + a * a), old)
    return [a, c, np.float64(1.25), _COUNT], lambda: [(c, expected, 1e-14)]


@case("general")
def k_reduce(r, wave):
    a, out = _floats(r), np.zeros(BLOCKS, "f4")
    return [a, out, _COUNT], lambda: [(out, guarded(a).reshape(-1, BLOCK).sum(1), 1e-4)]


@case("general")
def k_shfl(r, wave):
    a, out = _small(r), np.zeros(N, "i4")

    def steps(x):
        x, count = x | 1, 0
        while x != 1 and count < 200:
            x, count = (3 * x + 1) & 0xFFFFFFFF if x & 1 else x >> 1, count + 1
        return count

    sums = a.reshape(-1, 32).sum(1).repeat(32)
    return [a, out, _COUNT], lambda: [(out, (sums * 1000 + [steps(int(x)) for x in a]).astype("i4"), 0)]


@case("general")
def k_dpp(r, wave):
    a, out = _small(r), np.zeros(N, "i4")
    scan = a.reshape(-1, 16).cumsum(1).reshape(-1).astype("i4")
    return [a, out], lambda: [(out, scan + scan[np.arange(N) ^ 1], 0)]


@case("general")
def k_atomics(r, wave):
    a, counters = _small(r), np.array([0, -5, 0, 0, 0, 0, 0, 0], "i4")
    histogram, total = np.zeros(16, "u4"), np.zeros(1, "u8")
    used = a[:COUNT]

    def check():
        assert counters[3] in used
        expected = np.array([used.sum(), used.max(), 2 * COUNT, counters[3], 0, 0, 0, 0])
        bins = np.bincount(used & 15, minlength=16)
        return [(counters, expected, 0), (histogram, bins, 0), (total, np.array([used.sum()]), 0)]

    return [counters, histogram, total, a, _COUNT], check


@case("general")
def k_matmul(r, wave):
    a, b, c = _floats(r, -1, 1, n=48 * 48), _floats(r, -1, 1, n=48 * 48), np.zeros(48 * 48, "f4")
    expected = (a.reshape(48, 48).astype("f8") @ b.reshape(48, 48)).reshape(-1)
    return [a, b, c, np.int32(48)], lambda: [(c, expected, 1e-4)]


@case("general")
def k_math(r, wave):
    a, out = _floats(r), np.zeros(N, "f4")
    x = a.astype("f8")
    s = np.sqrt(abs(x)) + 1 / x + 2 ** (x * 0.125) + np.log2(abs(x) + 1) + np.sin(2 * np.pi * x)
    s += (
        np.cos(2 * np.pi * x)
        + 1 / np.sqrt(abs(x) + 0.5)
        + np.floor(x)
        - np.ceil((a * np.float32(0.3)).astype("f8"))
    )
    s += np.trunc(a * np.float32(0.7)) + np.rint(a * np.float32(1.3))
    s = np.maximum(s, np.minimum(x, 3.0))
    return [a, out, _COUNT], lambda: [(out, guarded(x / (s * s + 1) + np.copysign(s, x)), 1e-3)]


@case("general")
def k_int(r, wave):
    a, b, out = _any32(r).view("i4"), _any32(r).view("i4"), np.zeros(N, "i4")

    def one(x, y):
        ux, uy, y1, y3 = x & 0xFFFFFFFF, (y | 1) & 0xFFFFFFFF, y | 1, y | 3
        s = i32(quotient(x, y1) + x - quotient(x, y3) * y3)
        s = i32(s ^ i32(ux // uy + ux % uy))
        s = i32(s + ux.bit_count() + 32 - (ux | 1).bit_length() + (uy & -uy).bit_length() - 1)
        s = i32(s + (x * y >> 32) + i32(ux * uy >> 32))
        s = i32(((s & 0xFFFFFFFF) << (y & 31)) & 0xFFFFFFFF | ux >> (x & 31))
        s = max(i32(s + (x >> (y & 15))), y)
        s = i32(i32(s ^ i32(int(f"{ux:032b}"[::-1], 2))) + i32((ux << 7 | ux >> 25) & 0xFFFFFFFF))
        return i32(s + ((x & y) | (~x & s)))

    expected = np.array([one(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], "i4")
    return [a, b, out, _COUNT], lambda: [(out, guarded(expected), 0)]


@case("general")
def k_i64(r, wave):
    a, b, out = r.integers(-(2**62), 2**62, N), r.integers(-(2**40), 2**40, N), np.zeros(N, "i8")

    def one(x, y):
        u = x & (1 << 64) - 1
        s = i64(x * y + i64(u << (y & 63)) - (x >> (y & 31)))
        s = i64(i64(s ^ i64(u >> (y & 63))) + quotient(x, y | 1))
        s = i64(s + u % ((y | 5) & (1 << 64) - 1))
        return i64(s + min(x, y) + u.bit_count())

    expected = np.array([one(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], "i8")
    return [a, b, out, _COUNT], lambda: [(out, guarded(expected), 0)]


@case("general")
def k_f64(r, wave):
    a, out = _floats(r, -100, 100, "f8"), np.zeros(N)
    s = a * (np.sqrt(abs(a)) + a / 3.7 + np.floor(a)) + 1
    s = (
        np.fmax(s, a)
        - np.fmin(a, 2.0)
        + a.astype("i4")
        + a.astype("i8")
        + abs(a).astype("u4")
        + a.astype("f4")
    )
    return [a, out, _COUNT], lambda: [(out, guarded(abs(s)), 1e-12)]


@case("general")
def k_cvt(r, wave):
    a = _floats(r, 0)
    out, half, byte = np.zeros(N, "i4"), np.zeros(N, "u2"), np.zeros(N, "u1")
    k, h = a.astype("i4"), a.astype("f2")
    expected = k + k + k + h.astype("f4").astype("i4") + k + k + k.astype("u1").view("i1") + h.view("i2")
    return [a, out, half, byte, _COUNT], lambda: [
        (out, guarded(expected.astype("i4")), 0),
        (half, guarded(h.view("u2")), 0),
        (byte, guarded(k.astype("u1")), 0),
    ]


@case("general")
def k_f16(r, wave):
    a, b, out = (*(_floats(r, 0.5, 4, "f2") for _ in range(2)), np.zeros(N, "f2"))
    x, y = a.astype("f4"), b.astype("f4")
    s = (x * y + x - y) / (y + 1)
    return [a, b, out, _COUNT], lambda: [(out.astype("f4"), guarded(np.where(s > x, s, y)), 5e-3)]


@case("general")
def k_h2(r, wave):
    a, b, out = (*(_floats(r, 0.5, 4, "f2", 2 * N) for _ in range(2)), np.zeros(2 * N, "f2"))
    x, y = a.astype("f4"), b.astype("f4")
    return [a, b, out], lambda: [(out.astype("f4"), x * y + x + x * y - y, 1e-2)]


@case("general")
def k_vec4(r, wave):
    a, out = _floats(r, n=4 * N), np.zeros(4 * N, "f4")
    v = a.reshape(N, 4)
    expected = (v * v + v[:, ::-1]) * (np.arange(N) < COUNT)[:, None]
    return [a, out, _COUNT], lambda: [(out.reshape(N, 4), expected, 1e-5)]


@case("general")
def k_bytes(r, wave):
    a, s = r.integers(0, 256, N + 1).astype("u1"), r.integers(-300, 300, N).astype("i2")
    out, t = np.zeros(N, "u1"), np.zeros(N, "i2")
    return [a, out, s, t, _COUNT], lambda: [
        (out, guarded(((a[:-1].astype("i4") * 3 + a[1:]) >> 1).astype("u1")), 0),
        (t, guarded((s.astype("i4") ** 2 - a[:-1]).astype("i2")), 0),
    ]


@case("general")
def k_switch(r, wave):
    a, out = _small(r), np.zeros(N, "i4")

    def one(i):
        v = int(a[i])
        s = [v * 3, v + 77, v ^ 0x55, sum(j * v for j in range(v & 31)), -v, v << 3, v >> 2, v >> 2][v & 7]
        if s & 1:
            j = 0
            while j < s & 15 and j != v & 7:
                s, j = i32(s + int(a[(i + j) % COUNT])), j + 1
        return s

    return [a, out, _COUNT], lambda: [(out[:COUNT], np.array([one(i) for i in range(COUNT)]), 0)]


@case("general")
def k_private(r, wave):
    a, out = _small(r), np.zeros(N, "i4")

    def one(i):
        buffer, s = [int(a[(i + j) % COUNT]) * j for j in range(32)], 0
        for j in range(32):
            k = (int(a[i]) + j * 7) & 31
            s = i32(s + buffer[k])
            buffer[k * 3 & 31] = s
        return s

    return [a, out, _COUNT], lambda: [(out, np.array([one(i) for i in range(N)]), 0)]


@case("general")
def k_lds_atomic(r, wave):
    a, out = _small(r), np.zeros(64, "u4")
    return [a, out, _COUNT], lambda: [(out, np.bincount(a[:COUNT] & 63, minlength=64), 0)]


@case("general")
def k_ballot(r, wave):
    a, out = _small(r), np.zeros(N, "u4")
    odd = a.reshape(-1, wave) & 1
    before = (odd.cumsum(1) - odd).reshape(-1)
    picked = (a.reshape(-1, wave)[:, 0] + a.reshape(-1, wave)[:, 5]).repeat(wave)
    return [a, out], lambda: [(out, odd.sum(1).repeat(wave) + before + picked, 0)]


@case("general")
def k_const(r, wave):
    a, out = _small(r), np.zeros(N, "f4")
    table = np.array([0.5, 1.5, 2.25, *range(3, 16)], "f4")
    return [a, out, _COUNT], lambda: [(out, guarded(table[a & 15]), 0)]


@case("general")
def k_fatomic(r, wave):
    a, s, d = _floats(r, 0), np.zeros(1, "f4"), np.zeros(1)
    total = a[:COUNT].astype("f8").sum()
    return [s, d, a, _COUNT], lambda: [(s, np.array([total]), 1e-4), (d, np.array([total]), 1e-9)]


@case("general")
def k_call(r, wave):
    a, out = _small(r), np.zeros(N, "i4")

    def helper(x, y):
        for _ in range(y & 7):
            x = i32(x * 1103515245 + 12345)
        return x

    expected = [i32(helper(int(v), i) + helper(i, int(v))) for i, v in enumerate(a)]
    return [a, out, _COUNT], lambda: [(out, guarded(np.array(expected)), 0)]


# --- idioms -------------------------------------------------------------------------------------------


@case("idioms")
def q_divrn(r, wave):
    a = np.concatenate([_floats(r, n=N // 2), 2.0 ** r.uniform(-140, 120, N // 2)]).astype("f4")
    b = np.concatenate([_floats(r, n=N // 2), 2.0 ** r.uniform(-140, 120, N // 2)]).astype("f4")
    out = np.zeros(N, "f4")
    with np.errstate(all="ignore"):
        expected = a / b + np.sqrt(abs(a))
    return [a, b, out, _COUNT], lambda: [(out, guarded(expected), 2.5e-7)]  # OpenCL's 2.5 ULP division


@case("idioms")
def q_generic(r, wave):
    a, out = _small(r), np.zeros(N, "i4")
    expected = a.reshape(-1, BLOCK)[:, ::-1].reshape(-1) + 1
    return [a, out, _COUNT, np.int32(1)], lambda: [(out, expected, 0)]


@case("idioms")
def q_dynlds(r, wave):
    a, out = _floats(r), np.zeros(N, "f4")
    index = (np.arange(BLOCK)[:, None] * 7 + np.arange(8)) & 255
    expected = a.reshape(-1, BLOCK)[:, index].astype("f8").sum(2).reshape(-1)
    return [a, out, np.uint32(0), _COUNT], lambda: [(out, expected, 1e-4)]


@case("idioms")
def q_sfatomic(r, wave):
    a, out = _floats(r, 0), np.zeros(BLOCKS, "f4")
    most = 77.0 * (BLOCK * np.arange(1, BLOCKS + 1) - 1)
    # in which order waves take their maximum and their xor is free: that is worth the low eight bits
    return [a, out, _COUNT], lambda: [(out, a.reshape(-1, BLOCK).sum(1) + most, 512 / most.min())]


@case("idioms")
def q_prmt(r, wave):
    a, b, out = _any32(r), _any32(r), np.zeros(N, "u4")

    def one(x, y):
        m = 0xFFFFFFFF
        source = [(y >> 8 * i) & 255 for i in range(4)] + [(x >> 8 * i) & 255 for i in range(4)]
        selector = 0x05040100
        s = sum(source[selector >> 8 * i & 255] << 8 * i for i in range(4))
        s ^= x >> (y & 31) & 31
        field = y >> 3 & 127
        s ^= (field - 128 if field & 64 else field) & m
        wide = x << 32 | y
        s ^= wide >> (x & 31) & m
        s ^= wide >> 8 & m
        sad = sum(abs((x >> 8 * i & 255) - (y >> 8 * i & 255)) for i in range(4))
        lerp = sum(((x >> 8 * i & 255) + (y >> 8 * i & 255) + 1 >> 1) << 8 * i for i in range(4))
        s = s + (s + sad) + lerp & m
        s ^= x & ~y & m | s & y
        sx, sy = i32(x << 8 & m) >> 8, i32(y << 8 & m) >> 8
        s = s + (x & 0xFFFFFF) * (y & 0xFFFFFF) + sx * sy & m
        rotated = (x << 13 | x >> 19) & m
        return s + rotated + int.from_bytes(y.to_bytes(4, "little"), "big") & m

    expected = np.array([one(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], "u4")
    return [a, b, out, _COUNT], lambda: [(out, expected, 0)]


@case("idioms")
def q_sat(r, wave):
    a, x, out = _floats(r, -0.5, 1.5), _any32(r).view("i4"), np.zeros(N, "i4")

    def one(f, v):
        f = min(max(f, np.float32(0)), np.float32(1))
        c, s = int(f * np.float32(255)), int(f * np.float32(1000))
        t = min(max(2 * v, -(2**31)), 2**31 - 1) + max((v & 0xFFFFFFFF) - 77, 0) + abs(v)
        t += min(max(v, -32768), 32767) + max(v, 5) + (v & 0xFF) * (v & 0xFFFF)
        return i32(t + c + s)

    expected = np.array([one(f, int(v)) for f, v in zip(a, x, strict=True)], "i4")
    return [a, x, out, _COUNT], lambda: [(out, expected, 0)]


@case("idioms")
def q_ids(r, wave):
    out = np.full(112 * 64, -1, "i4")
    expected = out.copy()
    for g in range(8):
        number = (g & 1) + 10 * (g >> 1 & 1) + 100 * (g >> 2)
        for t in range(64):
            expected[number * 64 + t] = number * 1000 + (t & 3) + 10 * (t >> 2 & 3) + 100 * (t >> 4)
    return [out], lambda: [(out, expected, 0)]


@case("idioms")
def q_stack(r, wave):
    a, out = _small(r), np.zeros(N, "i4")

    def one(i):
        stack = [int(a[i * j % COUNT]) for j in range(256)]
        for k in range(64):
            p, q = int(a[(i + k) % COUNT]) & 255, int(a[(i + 3 * k) % COUNT]) & 255
            stack[p], stack[q] = stack[q] + k, stack[p]
        s = 0
        for v in stack:
            s = i32(s * 31 + v)
        return s

    return [a, out, _COUNT], lambda: [(out, np.array([one(i) for i in range(N)]), 0)]


@case("idioms")
def q_i8(r, wave):
    a, b, out = (*(r.integers(-128, 128, 4 * N).astype("i1") for _ in range(2)), np.zeros(N, "i4"))
    return [a, b, out, _COUNT], lambda: [(out, (a.astype("i4") * b).reshape(N, 4).sum(1), 0)]


@case("idioms")
def q_long(r, wave):
    a, b = (r.integers(0, 1 << 64, N, dtype=np.uint64) for _ in range(2))
    out = np.zeros(N, "u8")

    def one(x, y):
        s = (x * y >> 64) + 64 - (x | 1).bit_length() + ((y | 2) & -(y | 2)).bit_length() - 1
        s += (x << 17 | x >> 47) & (1 << 64) - 1
        return (s + abs(x - y) + int(f"{y:064b}"[::-1], 2)) & (1 << 64) - 1

    expected = np.array([one(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], "u8")
    return [a, b, out, _COUNT], lambda: [(out, expected, 0)]


@case("idioms")
def q_dbl(r, wave):
    a, b, out = (*(_floats(r, -100, 100, "f8") for _ in range(2)), np.zeros(N))
    s = np.rint(a) + np.ceil(b) + np.trunc(a * b) + np.where(a < b, a * 0.5, b * 2)
    s = s + (
        a.astype("f4").astype("f8") + abs(b).astype("u8").astype("f8") + (a * 1e6).astype("i8").astype("f8")
    )
    s = s + np.copysign(1.5, b)
    return [a, b, out, _COUNT], lambda: [(out, 1 / s + abs(s), 1e-9)]


@case("idioms")
def q_f32misc(r, wave):
    a, out = _floats(r), np.zeros(N, "f4")
    x = a.astype("f8")
    whole, mantissa_exponent = np.trunc(x), np.frexp(a)
    s = 4 + (x * x - 1) - 2 * abs(x) + whole + abs(whole) + (whole.astype("i8") & 255)
    s += (
        x
        - np.floor(x)
        + np.clip(x, 0, 1)
        + 1 / (x + 100)
        + mantissa_exponent[0]
        + mantissa_exponent[1]
        + x * 8
        + 2
    )
    return [a, out, _COUNT], lambda: [(out, s, 1e-4)]


@case("idioms")
def q_waveop(r, wave):
    a, out = _small(r), np.zeros(N, "i4")
    v, lane = a.astype("i8"), np.arange(N)
    m = v + 2 + np.where((a.reshape(-1, wave) > 500).any(1).repeat(wave), 0, 1)
    row = lane & 15
    m = m + v[lane ^ 1] + v[lane & ~15 | 15 - row] + np.where(row < 15, v[np.minimum(lane + 1, N - 1)], 7)
    return [a, out, _COUNT], lambda: [(out, np.where(m > m[lane ^ 2], m, 0), 0)]


@case("idioms")
def q_struct(r, wave):
    a, s = r.integers(0, 1 << 32, 4 * N, dtype=np.uint32), r.integers(0, 1 << 16, 4 * N).astype("u2")
    out, t = np.zeros(4 * N, "u4"), np.zeros(4 * N, "u1")
    v, w = a.reshape(N, 4) + s.reshape(N, 4), s.reshape(N, 4)
    bytes_ = np.stack([v[:, 0], w[:, 1] >> 3, v[:, 2] * np.uint32(3), w[:, 3]], axis=1).astype("u1")
    return [a, out, s, t, _COUNT], lambda: [
        (out.reshape(N, 4), v >> np.array([1, 2, 3, 4], "u4"), 0),
        (t.reshape(N, 4), bytes_, 0),
    ]


@case("idioms")
def q_hmix(r, wave):
    a, b, out, p = _floats(r, 0, 4, "f2"), _floats(r, 0, 4), np.zeros(N, "f2"), _floats(r, 0, 2, "f2", 2 * N)
    q = p.astype("f4").reshape(N, 2)
    q = np.maximum(q * q + np.array([1.0, 2.0]), 0.5)
    x = a.astype("f4")
    s = x * b + x + np.sqrt(x) + np.arange(N) + np.floor(x)
    return [a, b, out, p, _COUNT], lambda: [
        (out.astype("f4"), s, 1e-2),
        (p.astype("f4").reshape(N, 2), q, 1e-2),
    ]


@case("idioms")
def q_nested(r, wave):
    a, out = _small(r), np.zeros(N, "i4")

    def one(i):
        s = 0
        for x in range(int(a[i]) & 7):
            if x == 3 and i & 1:
                continue
            for y in range(x, int(a[(i + 1) % COUNT]) & 7):
                if a[(i + y) % COUNT] > 900:
                    return s
                s += x * y
                if s > 100:
                    break
        return s

    return [a, out, _COUNT], lambda: [(out, np.array([one(i) for i in range(N)]), 0)]


@case("idioms")
def q_atom2(r, wave):
    a, c, d = _small(r), np.zeros(8 + N, "u4"), np.zeros(2, "u8")
    c[1], c[4] = 0xFFFFFFFF, 1000
    bits = np.bitwise_or.reduce(np.uint32(1) << (a & 31).astype("u4"))
    expected = [
        -a.sum() & 0xFFFFFFFF,
        ~bits & 0xFFFFFFFF,
        bits,
        np.bitwise_xor.reduce(a),
        a.min(),
        a.max(),
        N % 8,
    ]
    return [c, d, a, _COUNT], lambda: [(c[:7], np.array(expected).astype("u4"), 0)]
