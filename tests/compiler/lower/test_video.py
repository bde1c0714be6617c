"""Video instructions against plain integer arithmetic, as an H200 gives them (PTX ISA 9.7.18)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy
import pytest
from lane_harness import Bits, run

EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80FF7F01)


def _inputs(seed: int, count: int = 3) -> list[Bits]:
    pairs = numpy.array(list(itertools.product(EDGES, EDGES)), dtype=numpy.uint32).T
    third = numpy.random.default_rng(seed).integers(0, 2**32, pairs.shape[1], dtype=numpy.uint32)
    noise = numpy.random.default_rng(seed).integers(0, 2**32, (3, 200), dtype=numpy.uint32)
    return [numpy.concatenate(both) for both in zip([*pairs, third], noise, strict=True)][:count]


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _extended(value: int, bits: int, kind: str) -> int:
    return _signed(value, bits) if kind == "s" else value & ((1 << bits) - 1)


def _part(value: int, selector: str, kind: str) -> int:
    if not selector:
        return _extended(value, 32, kind)
    bits = {"b": 8, "h": 16}[selector[0]]
    return _extended(value >> int(selector[1]) * bits, bits, kind)


def _clamped(value: int, bits: int, kind: str) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def _merged(value: int, selector: str, c: int) -> int:
    if not selector:
        return value & 0xFFFFFFFF
    bits = {"b": 8, "h": 16}[selector[0]]
    mask, shift = (1 << bits) - 1, int(selector[1]) * bits
    value >>= 16 if selector == "h1" else 0  # the result's own upper half
    return (c & ~(mask << shift)) | (value & mask) << shift


def _saturated(value: int, selector: str, kind: str) -> int:
    if selector:  # negative numbers are above all
        return min(value & (1 << 64) - 1, (1 << {"b": 8, "h": 16}[selector[0]] - (kind == "s")) - 1)
    return _clamped(value, 32, kind) if kind == "s" else max(value, 0)


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda x, y: (x + y + 1) >> 1 if x + y >= 0 else (x + y) >> 1,
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def _second(secop: str, value: int, c: int, kind: str) -> int:
    value, c = _extended(value, 32 if kind == "s" else 64, kind), _extended(c, 32, kind)
    return {"add": value + c, "min": min(value, c), "max": max(value, c)}[secop] & 0xFFFFFFFF


def _check(text: str, columns: list[Bits], expected: Callable[..., int]) -> None:
    got = run(text, "u32", columns, " ".join(["u32"] * len(columns)))
    want = [expected(*map(int, row)) & 0xFFFFFFFF for row in zip(*columns, strict=True)]
    assert got.tolist() == want, text


def _cases(seed: int, count: int) -> list[tuple[str, ...]]:
    pick = random.Random(seed)
    parts = ("", "", "b0", "b3", "h0", "h1")
    return [
        tuple(pick.choice(("u", "s")) for _ in range(3)) + tuple(pick.choice(parts) for _ in range(3))
        for _ in range(count)
    ]


def _dot(selector: str) -> str:
    return f".{selector}" if selector else ""


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("opcode", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
def test_scalar_arithmetic(opcode: str, number: int) -> None:
    d, a, b, into, first, second = _cases(len(opcode), 12)[number]
    sat = number % 2 == 0
    secop = ("add", "min", "max")[number % 3] if number % 4 == 3 else ""

    def expected(x: int, y: int, z: int) -> int:
        value = OPERATIONS[opcode](_part(x, first, a), _part(y, second, b))
        target = "" if secop else into
        if sat:
            value = _saturated(value, target, d)
        return _second(secop, value, z, d) if secop else _merged(value, target, z)

    name = f"{opcode}.{d}32.{a}32.{b}32{'.sat' if sat else ''}{_dot(secop)}"
    target = "" if secop else _dot(into)
    third = ", {c}" if secop or into else ""
    text = f"{name} {{d}}{target}, {{a}}{_dot(first)}, {{b}}{_dot(second)}{third};"
    columns = _inputs(number)
    if third:
        _check(text, columns, expected)
    else:
        _check(text, columns[:2], lambda x, y: expected(x, y, 0))


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("opcode", ["vshl", "vshr"])
@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_shifts(opcode: str, mode: str, number: int) -> None:
    d, a, _, into, first, second = _cases(7, 8)[number]
    sat = number % 2 == 0

    def expected(x: int, y: int, z: int) -> int:
        value, amount = _part(x, first, a), _part(y, second, "u")
        amount = min(amount, 32) if mode == "clamp" else amount & 31
        value = value << amount if opcode == "vshl" else value >> amount
        if sat:
            value = _clamped(_signed(value, 34), 32, d)
        return _merged(value, into, z)

    text = (
        f"{opcode}.{d}32.{a}32.u32{'.sat' if sat else ''}.{mode} "
        f"{{d}}{_dot(into)}, {{a}}{_dot(first)}, {{b}}{_dot(second)}, {{c}};"
    )
    _check(text, _inputs(number), expected)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize(
    ("form", "signs"),
    [
        *((form, signs) for form in ("", ".sat", ".shr15", ".sat.shr15") for signs in ("", "-a", "-c")),
        *((form, "") for form in (".po", ".po.sat.shr7")),  # .po and a turned sign exclude each other
    ],
)
def test_multiply_add(form: str, signs: str, number: int) -> None:
    _, a, b, _, first, second = _cases(3, 6)[number]
    signed = "s" in (a, b) or bool(signs)

    def expected(x: int, y: int, z: int) -> int:
        product = _signed(_part(x, first, a), 32) * _signed(_part(y, second, b), 32)
        addend = _signed(z, 32)
        total = (-product if signs == "-a" else product) + (-addend if signs == "-c" else addend)
        total += ".po" in form
        if "shr" in form and not signed:
            total &= (1 << 64) - 1
        total >>= 7 if "shr7" in form else 15 if "shr15" in form else 0
        return _clamped(total, 32, "s" if signed else "u") if ".sat" in form else total

    minus = ["-" if signs == f"-{letter}" else "" for letter in "ac"]
    text = (
        f"vmad.{'s' if signed else 'u'}32.{a}32.{b}32{form} "
        f"{{d}}, {minus[0]}{{a}}{_dot(first)}, {{b}}{_dot(second)}, {minus[1]}{{c}};"
    )
    _check(text, _inputs(number), expected)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("cmp", list(COMPARE))
def test_set(cmp: str, number: int) -> None:
    _, a, b, into, first, second = _cases(5, 4)[number]
    text = f"vset.{a}32.{b}32.{cmp} {{d}}{_dot(into)}, {{a}}{_dot(first)}, {{b}}{_dot(second)}, {{c}};"
    _check(
        text,
        _inputs(number),
        lambda x, y, z: _merged(COMPARE[cmp](_part(x, first, a), _part(y, second, b)), into, z),
    )


SIMD = [
    ("vadd", "2", "", "", ""),
    ("vsub", "2", "h1", "h32", "h10"),
    ("vavrg", "2", "", "h01", "h32"),
    ("vabsdiff", "2", "h0", "h13", "h20"),
    ("vmin", "2", "", "", ""),
    ("vadd", "4", "b20", "b7610", "b4321"),
    ("vsub", "4", "", "", ""),
    ("vavrg", "4", "", "b0123", "b7777"),
    ("vabsdiff", "4", "b3", "", "b6543"),
    ("vmax", "4", "b210", "", ""),
]


def _lanes(selector: str, number: int, lanes: int) -> list[int]:
    return [int(c) for c in selector[:0:-1]] if selector else [number * lanes + i for i in range(lanes)]


@pytest.mark.parametrize("modifier", ["", ".sat", ".add"])
@pytest.mark.parametrize(("opcode", "size", "into", "first", "second"), SIMD)
@pytest.mark.parametrize("kinds", ["uuu", "sss", "usu", "sus", "suu"])
def test_simd_arithmetic(
    opcode: str, size: str, into: str, first: str, second: str, modifier: str, kinds: str
) -> None:
    lanes = int(size)
    bits = 32 // lanes
    d, a, b = tuple(kinds)

    def expected(x: int, y: int, z: int) -> int:
        parts = [word >> i * bits for word in (x, y) for i in range(lanes)]
        chosen = [int(c) for c in into[1:]] or list(range(lanes))
        result = z
        for i in chosen:
            p = _extended(parts[_lanes(first, 0, lanes)[i]], bits, a)
            q = _extended(parts[_lanes(second, 1, lanes)[i]], bits, b)
            value = OPERATIONS[opcode](p, q)
            if modifier == ".sat":
                value = _clamped(value, bits, d)
            mask = (1 << bits) - 1 << i * bits
            result = result + value if modifier == ".add" else (result & ~mask) | (value << i * bits & mask)
        return result

    name = f"{opcode}{size}.{d}32.{a}32.{b}32{modifier}"
    text = f"{name} {{d}}{_dot(into)}, {{a}}{_dot(first)}, {{b}}{_dot(second)}, {{c}};"
    _check(text, _inputs(lanes), expected)


@pytest.mark.parametrize("cmp", ["lt", "ne", "ge"])
@pytest.mark.parametrize("modifier", ["", ".add"])
@pytest.mark.parametrize("lanes", [2, 4])
def test_simd_set(lanes: int, cmp: str, modifier: str) -> None:
    bits = 32 // lanes

    def expected(x: int, y: int, z: int) -> int:
        result = z if modifier else 0
        for i in range(lanes):
            holds = COMPARE[cmp](_extended(x >> i * bits, bits, "s"), _extended(y >> i * bits, bits, "u"))
            result += holds if modifier else holds << i * bits
        return result

    _check(f"vset{lanes}.s32.u32.{cmp}{modifier} {{d}}, {{a}}, {{b}}, {{c}};", _inputs(lanes), expected)
