"""``alloca``, ``redux`` of f32 and ``cvt.rs`` on the CPU and emulated AMD GPUs, against their meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import zluda

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb)
{ .reg .b32 %r<32>; .reg .b64 %l<16>; .reg .f32 %f<16>; .reg .pred %p<8>; .reg .b16 %h<4>;
  mov.u32 %r0, %tid.x; ld.param.u64 %l0, [pa]; ld.param.u64 %l1, [pb];
  mad.wide.u32 %l2, %r0, 32, %l0; mad.wide.u32 %l3, %r0, 4, %l1;
"""
TAIL = "\n  ret; }\n"


@pytest.fixture(scope="module", params=["cpu", "gfx1030", pytest.param("gfx90a", marks=pytest.mark.nightly)])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as opened:
        yield opened


def results(device: Any, body: str, rows: np.ndarray, *, functions: str = "") -> np.ndarray:
    """A 32-bit result of each of the rows' eight words; functions go before the kernel."""
    head = HEAD.replace(".visible .entry", functions + ".visible .entry")
    given = np.zeros((len(rows), 8), rows.dtype)
    given[:, : rows.shape[1]] = rows
    out = device.array(np.full(len(rows), 0xA5A5A5A5, np.uint32))
    kernel = device.load_module(head + body + TAIL).kernel("k")
    kernel.launch(grid=1, block=len(rows), args=[device.array(given), out])
    return np.asarray(out.numpy())


# --- redux of f32 --------------------------------------------------------------------------------------

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1.5, 1e-45, -1e-45, 3.4e38], np.float32)


def _reduced(values: np.ndarray, op: str, *, magnitude: bool, propagates: bool) -> int:
    values = np.abs(values) if magnitude else values
    numbers = values[~np.isnan(values)]
    if not len(numbers) or (propagates and len(numbers) < len(values)):
        return 0x7FFFFFFF
    order = sorted(numbers, key=lambda x: (x, not np.signbit(x)))
    return int(order[0 if op == "min" else -1].view(np.uint32))


@pytest.mark.parametrize("op", ["min", "max", "min.abs", "max.abs", "min.NaN", "max.abs.NaN"])
def test_redux_of_floats(device: Any, op: str) -> None:
    generator = np.random.default_rng(3)
    words = op.split(".")
    for size in (32, 5, 1):
        values = generator.choice(SPECIAL if size > 5 else SPECIAL[:5], (32, 1))
        values[size:] = np.nan if "NaN" not in op else 0.5
        members = (1 << size) - 1
        body = f"ld.global.f32 %f1, [%l2]; setp.lt.u32 %p1, %r0, {size}; mov.b32 %f2, 0;"
        body += (
            f"@!%p1 bra done; redux.sync.{op}.f32 %f2, %f1, {members:#x};\ndone: st.global.f32 [%l3], %f2;"
        )
        expected = _reduced(values[:size, 0], words[0], magnitude="abs" in words, propagates="NaN" in words)
        assert results(device, body, values)[:size].tolist() == [expected] * size


# --- cvt.rs --------------------------------------------------------------------------------------------

PAIRS = {"f16x2": (13, 10, -14, 65504.0), "bf16x2": (16, 7, -126, float.fromhex("0x1.fep127"))}


def _stochastic(x: np.ndarray, random: np.ndarray, bits: int, mantissa: int, lowest: int) -> np.ndarray:
    """The magnitude with its quantum's random part added, cut to whole quanta: in exact arithmetic."""
    wide = x.astype(np.float64)
    exponent = np.maximum(np.frexp(np.where(np.isfinite(wide), wide, 1.0))[1] - 1, lowest)
    quantum = np.ldexp(1.0, exponent - mantissa)
    moved = np.abs(wide) / quantum + random / 2.0**bits
    with np.errstate(invalid="ignore"):
        return np.asarray(np.copysign(np.floor(moved) * quantum, wide))


def _random_floats(count: int, top: int) -> np.ndarray:
    generator = np.random.default_rng(top)
    exponents = generator.integers(-160 if top > 100 else -top - 12, top + 2, count)
    values = np.ldexp(generator.uniform(-2, 2, count), exponents)
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(np.float32))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("word", ["", ".relu", ".satfinite"])
def test_two_floats_round_by_random_bits(device: Any, kind: str, word: str) -> None:
    bits, mantissa, lowest, largest = PAIRS[kind]
    a, b = _random_floats(128, -lowest + 1), _random_floats(256, -lowest + 1)[128:]
    a[:3] = np.inf, -np.inf, 0.0
    random = np.random.default_rng(5).integers(0, 1 << 32, 128, np.uint64).astype(np.uint32)
    random[3:6] = 0, 0xFFFFFFFF, 0x10001
    body = "ld.global.v2.f32 {%f1, %f2}, [%l2]; ld.global.u32 %r1, [%l2+8];"
    body += f"cvt.rs{word}.{kind}.f32 %r2, %f1, %f2, %r1; st.global.u32 [%l3], %r2;"
    rows = np.stack([a.view(np.uint32), b.view(np.uint32), random], 1)
    found = results(device, body, rows)
    mask = (1 << bits) - 1
    for x, r, got in ((a, random >> 16 & mask, found >> 16), (b, random & mask, found & 0xFFFF)):
        given = np.where(x < 0, np.float32(0), x) if word == ".relu" else x
        expected = _stochastic(given, r, bits, mantissa, lowest)
        limit = largest if word == ".satfinite" else np.inf
        step = 2.0 ** (16 if kind == "f16x2" else 128)
        over = np.abs(expected) >= step
        expected = np.where(over, np.copysign(np.inf, expected), expected)
        expected = np.clip(expected, -limit, limit)
        codes = got.astype(np.uint16)
        value = (
            (codes.astype(np.uint32) << 16).view(np.float32) if kind == "bf16x2" else codes.view(np.float16)
        )
        assert value.astype(np.float64).tolist() == expected.tolist()


FOURS = {
    "e4m3x4": (3, -6, 448.0, 8),
    "e5m2x4": (2, -14, 57344.0, 8),
    "e2m3x4": (3, 0, 7.5, 8),
    "e3m2x4": (2, -2, 28.0, 8),
    "e2m1x4": (1, 0, 6.0, 4),
}


def _decoded(codes: np.ndarray, mantissa: int, lowest: int, width: int) -> np.ndarray:
    """Values of small codes: sign in the top bit that the type has."""
    size = {8: 8 if lowest in (-6, -14) else 6, 4: 4}[width]
    sign, rest = codes >> (size - 1) & 1, codes & ((1 << (size - 1)) - 1)
    exponent, fraction = rest >> mantissa, rest & ((1 << mantissa) - 1)
    normal = np.ldexp(1.0 + fraction / 2.0**mantissa, exponent.astype(np.int64) - 1 + lowest)
    small = np.ldexp(fraction / 2.0**mantissa, lowest)
    value = np.where(exponent == 0, small, normal)
    return np.asarray(np.where(sign == 1, -value, value))


@pytest.mark.parametrize("kind", FOURS)
def test_four_floats_round_by_a_byte_each(device: Any, kind: str) -> None:
    mantissa, lowest, largest, width = FOURS[kind]
    values = _random_floats(512, int(np.log2(largest)) + 1).reshape(128, 4)
    random = np.random.default_rng(6).integers(0, 1 << 32, 128, np.uint64).astype(np.uint32)
    body = "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%l2]; ld.global.u32 %r1, [%l2+16];"
    target = "%h1" if kind == "e2m1x4" else "%r2"
    body += f"cvt.rs.satfinite.{kind}.f32 {target}, {{%f1, %f2, %f3, %f4}}, %r1;"
    body += "cvt.u32.u16 %r2, %h1;" if kind == "e2m1x4" else ""
    body += "st.global.u32 [%l3], %r2;"
    found = results(device, body, np.concatenate([values.view(np.uint32), random[:, None]], 1))
    for i in range(4):
        expected = _stochastic(values[:, i], random >> (24 - 8 * i) & 0xFF, 8, mantissa, lowest)
        expected = np.clip(expected, -largest, largest)
        codes = found >> (width * (3 - i)) & ((1 << width) - 1)
        assert _decoded(codes, mantissa, lowest, width).tolist() == expected.tolist()


# --- alloca --------------------------------------------------------------------------------------------

SUM = """
.func (.param .b32 result) triangle(.param .b32 n)
{ .reg .b32 %r<8>; .reg .b64 %l<4>; .reg .pred %p;
  ld.param.u32 %r1, [n]; shl.b32 %r2, %r1, 2; add.u32 %r2, %r2, 4; cvt.u64.u32 %l2, %r2;
  alloca.u64 %l1, %l2, 16;
  cvta.local.u64 %l1, %l1; and.b64 %l3, %l1, 15; cvt.u32.u64 %r3, %l3;
  mov.u32 %r4, 0;
fill: mad.wide.u32 %l3, %r4, 4, %l1; st.u32 [%l3], %r4; add.u32 %r4, %r4, 1;
  setp.le.u32 %p, %r4, %r1; @%p bra fill;
  mov.u32 %r4, 0;
add: mad.wide.u32 %l3, %r4, 4, %l1; ld.u32 %r5, [%l3]; add.u32 %r3, %r3, %r5; add.u32 %r4, %r4, 1;
  setp.le.u32 %p, %r4, %r1; @%p bra add;
  st.param.b32 [result], %r3; ret; }
"""


def test_lanes_allocate_different_sizes(device: Any) -> None:
    body = """ld.global.u32 %r1, [%l2]; { .param .b32 n; .param .b32 result; st.param.b32 [n], %r1;
      call (result), triangle, (n); ld.param.b32 %r2, [result]; } st.global.u32 [%l3], %r2;"""
    sizes = np.arange(40, dtype=np.uint32)[:, None] * 5 % 61
    expected = (sizes * (sizes + 1) // 2)[:, 0]
    assert results(device, body, sizes, functions=SUM).tolist() == expected.tolist()


def test_what_is_given_back_is_had_again(device: Any) -> None:
    """More than the stack holds, a piece at a time, by odd lanes only."""
    body = """and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0;
      @%p1 bra done;
      again: stacksave.u64 %l4; alloca.u64 %l5, 4096; cvta.local.u64 %l5, %l5; st.u32 [%l5+4092], %r2;
      ld.u32 %r4, [%l5+4092]; add.u32 %r3, %r3, %r4; stackrestore.u64 %l4;
      add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 50; @%p2 bra again;
      done: st.global.u32 [%l3], %r3;"""
    found = results(device, body, np.zeros((32, 1), np.uint32))
    assert found.tolist() == [0, 1225] * 16


def test_too_large_an_allocation_ends_the_launch(device: Any) -> None:
    body = "alloca.u64 %l4, 20000; cvta.local.u64 %l4, %l4; st.u32 [%l4], %r0;"
    with pytest.raises(zluda.LaunchError, match="alloca beyond the 16 KiB"):
        results(device, body, np.zeros((32, 1), np.uint32))


# --- moves of vectors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("mov.v2.b32 {%r1,%r2}, {%r2,%r1};", lambda a, b: (b - a) & 0xFFFFFFFF),  # read before written
        ("mov.v4.u32 {%r1,_,%r2,_}, {%r2,%r1,7,%r1};", lambda a, b: (b - 7) & 0xFFFFFFFF),
        ("mov.b32 {%h0,%h1}, %r1; mov.v2.b16 {%h0,%h1}, {%h1,%h0}; mov.b32 %r1, {%h0,%h1};",
         lambda a, b: ((a << 16 | a >> 16) - b) & 0xFFFFFFFF),
        ("mov.b32 %f1, %r1; mov.v2.f32 {%f1,%f2}, {0f3F800000,%f1}; mov.b32 %r1, %f2; mov.b32 %r2, %f1;",
         lambda a, b: (a - 0x3F800000) & 0xFFFFFFFF),
    ],
)  # fmt: skip
def test_moves_of_vectors(device: Any, body: str, meant: Any) -> None:
    rows = np.array([[1, 2], [0x80000000, 5], [0xFFFF0001, 0x12345678], [0x7F812345, 0]], np.uint32)
    loads = "ld.global.u32 %r1, [%l2]; ld.global.u32 %r2, [%l2+4];"
    got = results(device, loads + body + "sub.u32 %r1, %r1, %r2; st.global.u32 [%l3], %r1;", rows)
    assert got.tolist() == [meant(int(a), int(b)) for a, b in rows]
