"""Integer arithmetic against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from lane_harness import run, run_many

TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
COUNT = 400


def values(kind: str, seed: int, number: int) -> list[np.ndarray]:
    """Edge values against each other, then random ones of all sizes; raw bits."""
    width, random = int(kind[1:]), np.random.default_rng(seed)
    top = 1 << (width - 1)
    edges = [
        0,
        1,
        2,
        3,
        7,
        width - 1,
        width,
        top - 1,
        top,
        top + 1,
        2 * top - 1,
        2 * top - 2,
        1 << width // 2,
    ]
    grid = np.array(np.meshgrid(*[np.array(edges, dtype=np.uint64)] * number)).reshape(number, -1)
    picked = grid[:, random.permutation(grid.shape[1])[:COUNT]]
    arrays = []
    for row in picked:
        noise = random.integers(0, 2 * top - 1, COUNT, dtype=np.uint64, endpoint=True)
        arrays.append(np.concatenate([row, noise >> random.integers(0, width, COUNT).astype(np.uint64)]))
    return arrays


def to_int(bits: int, kind: str) -> int:
    """The number that bits of a type stand for."""
    width = int(kind[1:])
    bits &= (1 << width) - 1
    return bits - (1 << width) if kind[0] == "s" and bits >> (width - 1) else bits


def clamp(value: int, kind: str) -> int:
    width = int(kind[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    return max(low, min(high, value))


def quotient(x: int, y: int) -> int:
    """Truncating; a zero divisor gives all ones."""
    return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def remainder(x: int, y: int) -> int:
    return -1 if y == 0 else x - quotient(x, y) * y


# opcode → (operand count, result as a Python integer of the operands and the width)
SAME_WIDTH: dict[str, tuple[int, Callable[..., int]]] = {
    "add": (2, lambda w, x, y: x + y),
    "sub": (2, lambda w, x, y: x - y),
    "mul.lo": (2, lambda w, x, y: x * y),
    "mul.hi": (2, lambda w, x, y: x * y >> w),
    "div": (2, lambda w, x, y: quotient(x, y)),
    "rem": (2, lambda w, x, y: remainder(x, y)),
    "min": (2, lambda w, x, y: min(x, y)),
    "max": (2, lambda w, x, y: max(x, y)),
    "mad.lo": (3, lambda w, x, y, z: x * y + z),
    "mad.hi": (3, lambda w, x, y, z: (x * y >> w) + z),
    "sad": (3, lambda w, x, y, z: abs(x - y) + z),
}


def form(op: str, kind: str, number: int) -> tuple[str, str, str]:
    operands = ", ".join(["{a}", "{b}", "{c}"][:number])
    return f"{op}.{kind} {{d}}, {operands};", kind, " ".join([kind] * number)


def check(
    got: np.ndarray, inputs: list[np.ndarray], kinds: list[str], reference: Callable[..., int], name: str
) -> None:
    mask = (1 << 8 * got.itemsize) - 1
    for index, bits in enumerate(zip(*(a.tolist() for a in inputs), strict=True)):
        numbers = [to_int(v, k) for v, k in zip(bits, kinds, strict=True)]
        expected = reference(*numbers) & mask
        assert int(got[index]) == expected, f"{name} of {numbers}: {int(got[index]):#x}, not {expected:#x}"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("number", [2, 3])
def test_arithmetic_of_one_width(kind: str, number: int) -> None:
    inputs, width = values(kind, 1, number), int(kind[1:])
    operations = {op: reference for op, (count, reference) in SAME_WIDTH.items() if count == number}
    results = run_many([form(op, kind, number) for op in operations], inputs)
    for (op, reference), got in zip(operations.items(), results, strict=True):
        check(got, inputs, [kind] * number, lambda *xs, r=reference: r(width, *xs), f"{op}.{kind}")


@pytest.mark.parametrize("kind", TYPES)
def test_division_by_a_constant(kind: str) -> None:
    inputs, width = values(kind, 2, 1), int(kind[1:])
    for divisor in (1, 3, 7, (1 << width - 1) - 1, -1 if kind[0] == "s" else 10):
        got = run(f"div.{kind} {{d}}, {{a}}, {divisor};", kind, inputs, kind)
        check(got, inputs, [kind], lambda x, d=divisor: quotient(x, d), f"div.{kind} by {divisor}")


@pytest.mark.parametrize("kind,wide", [("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")])
def test_wide_products(kind: str, wide: str) -> None:
    inputs = values(kind, 3, 2)
    got = run(f"mul.wide.{kind} {{d}}, {{a}}, {{b}};", wide, inputs, f"{kind} {kind}")
    check(got, inputs, [kind, kind], lambda x, y: x * y, "mul.wide")
    inputs.append(values(wide, 4, 1)[0].repeat(2)[: len(inputs[0])])
    got = run(f"mad.wide.{kind} {{d}}, {{a}}, {{b}}, {{c}};", wide, inputs, f"{kind} {kind} {wide}")
    check(got, inputs, [kind, kind, wide], lambda x, y, z: x * y + z, "mad.wide")


def test_saturating_forms() -> None:
    inputs = values("s32", 5, 3)
    operations: dict[str, Callable[..., int]] = {
        "add.sat": lambda x, y, z: x + y,
        "sub.sat": lambda x, y, z: x - y,
        "mad.hi.sat": lambda x, y, z: (x * y >> 32) + z,
    }
    bodies = [("add.sat", 2), ("sub.sat", 2), ("mad.hi.sat", 3)]
    forms = [(form(op, "s32", number)[0], "s32", "s32 s32 s32") for op, number in bodies]
    for (op, reference), got in zip(operations.items(), run_many(forms, inputs), strict=True):
        check(got, inputs, ["s32"] * 3, lambda *xs, r=reference: clamp(r(*xs), "s32"), op)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_products(kind: str) -> None:
    inputs = values(kind, 6, 3)

    def low24(x: int) -> int:
        return to_int(x & 0xFFFFFF, kind[0] + "24")

    for mode, shift in (("lo", 0), ("hi", 16)):
        mul, mad = run_many(
            [form(f"mul24.{mode}", kind, 2), form(f"mad24.{mode}", kind, 3)][:1], inputs[:2]
        ) + run_many([form(f"mad24.{mode}", kind, 3)], inputs)
        check(mul, inputs[:2], [kind] * 2, lambda x, y, s=shift: low24(x) * low24(y) >> s, f"mul24.{mode}")
        check(
            mad, inputs, [kind] * 3, lambda x, y, z, s=shift: (low24(x) * low24(y) >> s) + z, f"mad24.{mode}"
        )


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_abs_and_neg_wrap(kind: str) -> None:
    inputs = values(kind, 7, 1)
    absolute, negative = run_many([form(op, kind, 1) for op in ("abs", "neg")], inputs)
    check(absolute, inputs, [kind], abs, "abs")
    check(negative, inputs, [kind], lambda x: -x, "neg")


def test_dot_products() -> None:
    inputs = values("u32", 8, 3)
    for left in "us":
        for right in "us":
            types = f"{left}32.{right}32"

            def dot(x: int, y: int, z: int, size: int, first: int, a: str = left, b: str = right) -> int:
                count = 32 // size
                xs = [to_int(x >> size * i, f"{a}{size}") for i in range(count)]
                ys = [to_int(y >> 8 * (first + i), f"{b}8") for i in range(count)]
                return z + sum(p * q for p, q in zip(xs, ys, strict=True))

            for op, size, first in (("dp4a", 8, 0), ("dp2a.lo", 16, 0), ("dp2a.hi", 16, 2)):
                got = run(f"{op}.{types} {{d}}, {{a}}, {{b}}, {{c}};", "b32", inputs, "b32 b32 b32")
                check(
                    got,
                    inputs,
                    ["u32"] * 3,
                    lambda x, y, z, s=size, f=first: dot(x, y, z, s, f),
                    f"{op}.{types}",
                )


@pytest.mark.parametrize("width", [32, 64])
def test_carry_chains_add_and_subtract_double_words(width: int) -> None:
    kind, mask = f"u{width}", (1 << width) - 1
    x, y, z = values(kind, 9, 3)
    declare = f".reg .b{width} %x;\n"
    add = f"{declare}add.cc.{kind} %x, {{a}}, {{b}};\naddc.{kind} {{d}}, {{c}}, {{a}};"
    sub = f"{declare}sub.cc.{kind} %x, {{a}}, {{b}};\nsubc.{kind} {{d}}, {{c}}, {{a}};"
    mad = f"{declare}mad.lo.cc.{kind} %x, {{a}}, {{b}}, {{c}};\nmadc.hi.{kind} {{d}}, {{a}}, {{b}}, {{c}};"
    kinds = f"{kind} {kind} {kind}"
    added, subtracted, multiplied = run_many([(body, kind, kinds) for body in (add, sub, mad)], [x, y, z])
    check(
        added, [x, y, z], [kind] * 3, lambda a, b, c: (a + (c << width) + b + (a << width)) >> width, "addc"
    )
    check(
        subtracted,
        [x, y, z],
        [kind] * 3,
        lambda a, b, c: (a + (c << width) - b - (a << width)) >> width,
        "subc",
    )
    check(
        multiplied, [x, y, z], [kind] * 3, lambda a, b, c: (a * b + (c << width) + c) >> width & mask, "madc"
    )


def test_carry_after_a_subtraction_is_the_inverted_borrow() -> None:
    x, y, _ = values("u32", 10, 3)
    body = ".reg .b32 %x;\nsub.cc.u32 %x, {a}, {b};\naddc.u32 {d}, 0, 0;"
    check(run(body, "u32", [x, y], "u32 u32"), [x, y], ["u32"] * 2, lambda a, b: int(a >= b), "sub.cc, addc")


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_packed_halves(kind: str) -> None:
    inputs, half = values("u32", 11, 2), f"{kind[0]}16"
    operations: dict[str, Callable[[int, int], int]] = {"add": lambda x, y: x + y, "min": min, "max": max}
    if kind == "s16x2":
        operations["max.relu"] = lambda x, y: max(x, y, 0)
    results = run_many(
        [(f"{op}.{kind} {{d}}, {{a}}, {{b}};", kind, f"{kind} {kind}") for op in operations], inputs
    )
    for (op, operation), got in zip(operations.items(), results, strict=True):

        def both(x: int, y: int, f: Callable[[int, int], int] = operation) -> int:
            low, high = (f(to_int(x >> s, half), to_int(y >> s, half)) & 0xFFFF for s in (0, 16))
            return low | high << 16

        check(got, inputs, ["u32", "u32"], both, f"{op}.{kind}")
