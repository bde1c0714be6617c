"""Logic, shifts, bit fields and byte permutation against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from lane_harness import run, run_many
from test_integer import check, to_int, values

AMOUNTS = np.array(
    [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 0x80000000, 0xFFFFFFFF], dtype=np.uint64
)


def with_amounts(kind: str, seed: int, number: int = 1) -> list[np.ndarray]:
    """Values beside every amount, ``number`` of them independent."""
    (x,) = values(kind, seed, 1)
    x = x[:200]
    random = np.random.default_rng(seed)
    return [x.repeat(4)] + [random.choice(AMOUNTS, 4 * len(x)) for _ in range(number)]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_bitwise(width: int) -> None:
    kind = f"b{width}"
    inputs = values(f"u{width}", 1, 2)
    operations: dict[str, Callable[[int, int], int]] = {
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
        "not": lambda x, y: ~x,
        "cnot": lambda x, y: int(x == 0),
    }
    tails = {"not": "{a};", "cnot": "{a};"}
    forms = [
        (f"{op}.{kind} {{d}}, {tails.get(op, '{a}, {b};')}", kind, f"{kind} {kind}") for op in operations
    ]
    for (op, reference), got in zip(operations.items(), run_many(forms, inputs), strict=True):
        check(got, inputs, [f"u{width}"] * 2, reference, op)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_clamp_their_amount(width: int) -> None:
    for op, kind in (("shl.b", "u"), ("shr.u", "u"), ("shr.s", "s"), ("shr.b", "u")):
        inputs = with_amounts(f"u{width}", 2)

        def reference(x: int, n: int, left: bool = op == "shl.b") -> int:
            return x << min(n, width) if left else x >> min(n, width)

        got = run(f"{op}{width} {{d}}, {{a}}, {{b}};", f"b{width}", inputs, f"b{width} shift")
        check(got, inputs, [f"{kind}{width}", "u32"], reference, op)
        for amount in (0, 3, width, width + 1):
            got = run(f"{op}{width} {{d}}, {{a}}, {amount};", f"b{width}", inputs[:1], f"b{width}")
            check(
                got,
                inputs[:1],
                [f"{kind}{width}"],
                lambda x, n=amount, r=reference: r(x, n),
                f"{op} by {amount}",
            )


def test_funnel_shifts() -> None:
    x, y = values("u32", 3, 2)
    n = np.resize(AMOUNTS, len(x))
    for mode, limit in (("clamp", lambda v: min(v, 32)), ("wrap", lambda v: v & 31)):
        left, right = run_many(
            [(f"shf.{d}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};", "b32", "b32 b32 shift") for d in "lr"],
            [x, y, n],
        )
        check(
            left,
            [x, y, n],
            ["u32"] * 3,
            lambda a, b, c, f=limit: (b << 32 | a) << f(c) >> 32,
            f"shf.l.{mode}",
        )
        check(right, [x, y, n], ["u32"] * 3, lambda a, b, c, f=limit: (b << 32 | a) >> f(c), f"shf.r.{mode}")


def test_lop3_every_table() -> None:
    x, y, z = (np.array([v], dtype=np.uint64) for v in (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA))
    forms = [(f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {t};", "b32", "b32 b32 b32") for t in range(256)]
    for table, got in enumerate(run_many(forms, [x, y, z])):
        assert int(got[0]) == table * 0x01010101


def test_lop3_predicate_combines_with_the_fourth_operand() -> None:
    a, q = np.array([0, 0, 5, 5], dtype=np.uint64), np.array([0, 1, 0, 1], dtype=np.uint64)
    body = ".reg .pred %q;\n.reg .b32 %x;\nlop3.or.b32 %x|%q, {a}, 0, 0, 0xF0, {b};\nselp.u32 {d}, 1, 0, %q;"
    assert run(body, "u32", [a, q], "b32 pred").tolist() == [0, 1, 1, 1]
    assert run(body.replace("lop3.or", "lop3.and"), "u32", [a, q], "b32 pred").tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("width", [32, 64])
def test_counting(width: int) -> None:
    inputs = values(f"u{width}", 4, 1)

    def find(x: int, signed: bool) -> int:
        return ((~x if signed and x < 0 else x).bit_length() - 1) & 0xFFFFFFFF

    def shift(x: int, signed: bool) -> int:
        position = find(x, signed)
        return position if position == 0xFFFFFFFF else width - 1 - position

    forms: dict[str, tuple[str, Callable[[int], int]]] = {
        f"popc.b{width}": ("u", lambda x: x.bit_count()),
        f"clz.b{width}": ("u", lambda x: width - x.bit_length()),
        f"bfind.u{width}": ("u", lambda x: find(x, False)),
        f"bfind.s{width}": ("s", lambda x: find(x, True)),
        f"bfind.shiftamt.u{width}": ("u", lambda x: shift(x, False)),
        f"bfind.shiftamt.s{width}": ("s", lambda x: shift(x, True)),
    }
    results = run_many([(f"{op} {{d}}, {{a}};", "u32", f"b{width}") for op in forms], inputs)
    for (op, (kind, reference)), got in zip(forms.items(), results, strict=True):
        check(got, inputs, [f"{kind}{width}"], reference, op)
    reversed_ = run(f"brev.b{width} {{d}}, {{a}};", f"b{width}", inputs, f"b{width}")
    check(reversed_, inputs, [f"u{width}"], lambda x: int(f"{x:0{width}b}"[::-1], 2), "brev")


def extract(x: int, position: int, length: int, width: int, *, signed: bool) -> int:
    """PTX ISA 9.7.1.20's pseudo-code."""
    top = width - 1
    sign = 0 if not signed or length == 0 else x >> min(position + length - 1, top) & 1
    return sum(
        (x >> position + i & 1 if i < length and position + i <= top else sign) << i for i in range(width)
    )


def insert(x: int, y: int, position: int, length: int, width: int) -> int:
    """PTX ISA 9.7.1.21's pseudo-code."""
    for i in range(length):
        if position + i < width:
            y = y & ~(1 << position + i) | (x >> i & 1) << position + i
    return y


@pytest.mark.parametrize("width", [32, 64])
def test_bit_fields(width: int) -> None:
    inputs = with_amounts(f"u{width}", 5, 2)
    low = (lambda v: v & 0xFF) if width == 32 else (lambda v: v)
    for kind in "us":
        got = run(
            f"bfe.{kind}{width} {{d}}, {{a}}, {{b}}, {{c}};", f"b{width}", inputs, f"b{width} count count"
        )

        def reference(x: int, p: int, n: int, signed: bool = kind == "s") -> int:
            return extract(x, low(p), low(n), width, signed=signed)

        check(got, inputs, [f"u{width}", "u32", "u32"], reference, f"bfe.{kind}{width}")
    body = f"bfi.b{width} {{d}}, {{a}}, 0x1234567, {{b}}, {{c}};"
    got = run(body, f"b{width}", inputs, f"b{width} count count")
    check(
        got,
        inputs,
        [f"u{width}", "u32", "u32"],
        lambda x, p, n: insert(x, 0x1234567, low(p), min(low(n), width), width),
        "bfi",
    )


def test_mask_and_extension() -> None:
    inputs = with_amounts("u32", 6, 1)
    for mode, limit in (("clamp", lambda v: min(v, 32)), ("wrap", lambda v: v & 31)):
        mask = run(f"bmsk.{mode}.b32 {{d}}, {{b}}, {{a}};", "b32", inputs, "b32 count")
        check(mask, inputs, ["u32", "u32"], lambda n, p, f=limit: ((1 << f(n)) - 1) << f(p), f"bmsk.{mode}")
        for kind in "us":
            got = run(f"szext.{mode}.{kind}32 {{d}}, {{a}}, {{b}};", "b32", inputs, "b32 count")

            def reference(x: int, n: int, f: Callable[[int], int] = limit, k: str = kind) -> int:
                return to_int(x, f"{k}{f(n)}") if f(n) else 0

            check(got, inputs, ["u32", "u32"], reference, f"szext.{mode}.{kind}32")


def test_find_nth_set() -> None:
    random = np.random.default_rng(7)
    mask = random.integers(0, 1 << 32, 500, dtype=np.uint64) & random.integers(
        0, 1 << 32, 500, dtype=np.uint64
    )
    base = random.integers(0, 32, 500).astype(np.uint64)
    offset = random.integers(-8, 9, 500).astype(np.int32).view(np.uint32).astype(np.uint64)

    def reference(m: int, start: int, n: int) -> int:
        if n == 0:
            return start if m >> start & 1 else -1
        places = range(start, 32) if n > 0 else range(start, -1, -1)
        found = [p for p in places if m >> p & 1]
        return found[abs(n) - 1] if len(found) >= abs(n) else -1

    got = run("fns.b32 {d}, {a}, {b}, {c};", "b32", [mask, base, offset], "b32 b32 s32")
    check(got, [mask, base, offset], ["u32", "u32", "s32"], reference, "fns")


MODES: dict[str, Callable[[int], list[int]]] = {  # control bits → byte numbers, low first
    ".f4e": lambda s: [s, s + 1, s + 2, s + 3],
    ".b4e": lambda s: [s, (s - 1) & 7, (s - 2) & 7, (s - 3) & 7],
    ".rc8": lambda s: [s] * 4,
    ".ecl": lambda s: [max(s, i) for i in range(4)],
    ".ecr": lambda s: [min(s, i) for i in range(4)],
    ".rc16": lambda s: [2 * (s & 1), 2 * (s & 1) + 1] * 2,
}


def permute(x: int, y: int, selectors: list[int]) -> int:
    both = y << 32 | x
    result = 0
    for i, s in enumerate(selectors):
        byte = both >> 8 * (s & 7) & 0xFF
        result |= ((0xFF if byte & 0x80 else 0) if s & 8 else byte) << 8 * i
    return result


@pytest.mark.parametrize("mode", ["", *MODES])
def test_byte_permutation(mode: str) -> None:
    x, y, control = values("u32", 8, 3)

    def reference(a: int, b: int, c: int) -> int:
        return permute(a, b, MODES[mode](c & 3) if mode else [c >> 4 * i & 15 for i in range(4)])

    got = run(f"prmt.b32{mode} {{d}}, {{a}}, {{b}}, {{c}};", "b32", [x, y, control], "b32 b32 b32")
    check(got, [x, y, control], ["u32"] * 3, reference, f"prmt{mode}")
    for fixed in (0x5410, 0x2, 0xBA98):
        got = run(f"prmt.b32{mode} {{d}}, {{a}}, {{b}}, {fixed};", "b32", [x, y], "b32 b32")
        check(got, [x, y], ["u32"] * 2, lambda a, b, c=fixed: reference(a, b, c), f"prmt{mode} {fixed:#x}")
