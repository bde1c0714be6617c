"""Comparison and selection against numpy and the manual's truth tables."""

from __future__ import annotations

import operator
from collections.abc import Callable

import exact_floats as exact
import numpy as np
import pytest
from exact_floats import FORMATS, Format
from lane_harness import run, run_many
from test_integer import to_int, values

ORDER: dict[str, Callable[[object, object], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
BOOL: dict[str, Callable[[bool, bool], bool]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
PREDICATE = ".reg .pred %q;\n{op} %q, {a}, {b};\nselp.u32 {d}, 1, 0, %q;"


def real_compare(name: str, x: int, y: int, format: Format) -> bool:
    """Ordered comparisons are false of NaN, unordered ones true."""
    unordered = format.is_nan(x) or format.is_nan(y)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return name.endswith("u")
    return ORDER[name.removesuffix("u")](*(_key(v, format) for v in (x, y)))


def _key(bits: int, format: Format) -> int:
    size = format.magnitude(bits)
    return -size if format.sign(bits) else size


def predicates(names: list[str], suffix: str, inputs: list[np.ndarray], kind: str) -> list[np.ndarray]:
    bodies = [PREDICATE.replace("{op}", f"setp.{name}{suffix}") for name in names]
    return run_many([(body, "u32", f"{kind} {kind}") for body in bodies], inputs)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers(kind: str) -> None:
    inputs = values(kind, 1, 2)
    names = [*ORDER, *(UNSIGNED if kind[0] == "u" else ())]
    for name, got in zip(names, predicates(names, f".{kind}", inputs, kind), strict=True):
        compare = ORDER[UNSIGNED.get(name, name)]
        expected = [
            compare(to_int(x, kind), to_int(y, kind))
            for x, y in zip(*(a.tolist() for a in inputs), strict=True)
        ]
        assert got.tolist() == expected, name


@pytest.mark.parametrize("kind,flush", [*((kind, "") for kind in FORMATS), ("f16", ".ftz"), ("f32", ".ftz")])
def test_reals(kind: str, flush: str) -> None:
    format = FORMATS[kind]
    inputs = exact.operands(format, 2, 700, 2)
    names = [*ORDER, *(f"{name}u" for name in ORDER), "num", "nan"]
    pairs = [
        [format.flush(x) if flush else x for x in xs]
        for xs in zip(*(a.tolist() for a in inputs), strict=True)
    ]
    for name, got in zip(names, predicates(names, f"{flush}.{kind}", inputs, kind), strict=True):
        assert got.tolist() == [real_compare(name, x, y, format) for x, y in pairs], name


@pytest.mark.parametrize("boolop", BOOL)
def test_third_operand_and_second_destination(boolop: str) -> None:
    x, y, p = np.meshgrid([1, 2], [1, 2], [0, 1])
    inputs = [v.ravel().astype(np.uint64) for v in (x, y, p)]
    body = f".reg .pred %q, %r;\n.reg .b32 %t;\nsetp.lt.{boolop}.s32 %q|%r, {{a}}, {{b}}, !{{c}};\n"
    body += "selp.u32 {d}, 1, 0, %q;\nselp.u32 %t, 2, 0, %r;\nor.b32 {d}, {d}, %t;"
    expected = []
    for a, b, c in zip(*(v.tolist() for v in inputs), strict=True):
        less = a < b
        expected.append(BOOL[boolop](less, not c) + 2 * BOOL[boolop](not less, not c))
    assert run(body, "u32", inputs, "s32 s32 pred").tolist() == expected


def test_packed_comparison_gives_one_predicate_a_half() -> None:
    x, y = (
        np.array([0x3C004000], dtype=np.uint64),
        np.array([0x40003C00], dtype=np.uint64),
    )  # (2, 1) and (1, 2)
    body = ".reg .pred %q, %r;\n.reg .b32 %t;\nsetp.lt.f16x2 %q|%r, {a}, {b};\n"
    body += "selp.u32 {d}, 1, 0, %q;\nselp.u32 %t, 2, 0, %r;\nor.b32 {d}, {d}, %t;"
    assert run(body, "u32", [x, y], "f16x2 f16x2").tolist() == [2]
    assert run("set.lt.f16x2.f16x2 {d}, {a}, {b};", "f16x2", [x, y], "f16x2 f16x2").tolist() == [0x3C000000]
    assert run("set.lt.u32.f16x2 {d}, {a}, {b};", "u32", [x, y], "f16x2 f16x2").tolist() == [0xFFFF0000]


@pytest.mark.parametrize(
    "form,result,true",
    [("u32.s32", "u32", 0xFFFFFFFF), ("f32.s32", "f32", 0x3F800000), ("s32.f64", "s32", 0xFFFFFFFF)],
)
def test_set_writes_ones_or_one(form: str, result: str, true: int) -> None:
    kind = form.split(".")[1]
    one, two = (1, 2) if kind == "s32" else (0x3FF0 << 48, 0x4000 << 48)
    inputs = [np.array([one, two], dtype=np.uint64), np.array([two, one], dtype=np.uint64)]
    assert run(f"set.lt.{form} {{d}}, {{a}}, {{b}};", result, inputs, f"{kind} {kind}").tolist() == [true, 0]


def test_select_moves_bits() -> None:
    a, b = np.array([0xFFC00001, 7], dtype=np.uint64), np.array([1, 0x7F800001], dtype=np.uint64)
    p = np.array([1, 0], dtype=np.uint64)
    assert run("selp.f32 {d}, {a}, {b}, {c};", "f32", [a, b, p], "f32 f32 pred").tolist() == [
        0xFFC00001,
        0x7F800001,
    ]


def test_select_by_sign() -> None:
    a, b = np.full(5, 1, dtype=np.uint64), np.full(5, 2, dtype=np.uint64)
    c = np.array([0, 0x80000000, 0x3F800000, 0xBF800000, 0x7FC00000], dtype=np.uint64)
    forms = [(f"slct{f} {{d}}, {{a}}, {{b}}, {{c}};", "b32", "b32 b32 b32") for f in (".b32.f32", ".b32.s32")]
    by_real, by_integer = run_many(forms, [a, b, c])
    assert by_real.tolist() == [1, 1, 1, 2, 2]  # -0 counts as 0, NaN takes b
    assert by_integer.tolist() == [1, 2, 1, 2, 1]
    tiny = np.array([0x80000001], dtype=np.uint64)
    flushed = run("slct.ftz.b32.f32 {d}, {a}, {b}, {c};", "b32", [a[:1], b[:1], tiny], "b32 b32 f32")
    assert flushed.tolist() == [1]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_classes_of_numbers(kind: str) -> None:
    format = FORMATS[kind]
    sizes = {"zero": 0, "subnormal": 1, "normal": 1 << format.mantissa_bits, "infinite": format.infinity}
    sizes["nan"] = format.infinity + 1
    x = np.array([s | sign << (format.width - 1) for s in sizes.values() for sign in (0, 1)], dtype=np.uint64)
    members = {
        "finite": {"zero", "subnormal", "normal"},
        "infinite": {"infinite"},
        "number": set(sizes) - {"nan"},
        "notanumber": {"nan"},
        "normal": {"zero", "normal"},  # as an H200 has it
        "subnormal": {"subnormal"},
    }
    body = ".reg .pred %q;\ntestp.{test}.{kind} %q, {a};\nselp.u32 {d}, 1, 0, %q;"
    forms = [(body.replace("{test}", t).replace("{kind}", kind), "u32", kind) for t in members]
    for (test, classes), got in zip(members.items(), run_many(forms, [x]), strict=True):
        assert got.tolist() == [name in classes for name in sizes for _ in (0, 1)], test
