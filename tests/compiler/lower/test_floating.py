"""IEEE arithmetic with every rounding, saturation and FTZ form, against exact rational arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import exact_floats as exact
import numpy as np
import pytest
from exact_floats import F32, F64, FORMATS, MODES, Format
from lane_harness import run_many

COUNT = 800


def _sum_zero(addends: Sequence[int], format: Format, mode: str) -> bool:
    """Whether an exact zero sum is negative: both addends are -0, or they cancel and the mode is rm."""
    signs = {format.sign(x) for x in addends}
    if len(signs) == 1 and all(format.magnitude(x) == 0 for x in addends):
        return signs == {1}
    return mode == "rm"


def reference(
    op: str, xs: Sequence[int], format: Format, mode: str, *, ftz: bool = False, sat: bool = False
) -> int:
    """The exact result of ``add``, ``mul`` or ``fma`` on bits."""
    if ftz:
        xs = [format.flush(x) for x in xs]
    result = _special(op, xs, format)
    if result is None:
        values = [format.value(x) for x in xs]
        product_sign = format.sign(xs[0]) ^ format.sign(xs[1])
        if op == "mul":
            negative, value = bool(product_sign), values[0] * values[1]
        elif op == "add":
            negative, value = _sum_zero(xs, format, mode), values[0] + values[1]
        else:
            value = values[0] * values[1] + values[2]
            product = product_sign << (format.width - 1) | int(values[0] * values[1] != 0)
            negative = _sum_zero([product, xs[2]], format, mode)
        result = format.round(value, mode, negative_zero=negative, ftz=ftz)
    return _saturated(result, format) if sat else result


def _saturated(bits: int, format: Format) -> int:
    one = format.bias << format.mantissa_bits
    if format.is_nan(bits) or format.sign(bits):
        return 0
    return min(bits, one)


def _special(op: str, xs: Sequence[int], format: Format) -> int | None:
    """The result where an operand is infinite or NaN, else None."""
    if all(format.is_finite(x) for x in xs):
        return None
    for index in {"add": (1, 0), "mul": (1, 0), "fma": (1, 2, 0)}[op]:
        if format.is_nan(xs[index]):
            return xs[index] | 1 << (format.mantissa_bits - 1) if format is F64 else format.nan
    infinite = [format.magnitude(x) == format.infinity for x in xs]
    signs = [format.sign(x) for x in xs]
    top = format.width - 1
    if op == "add":
        clash = all(infinite) and signs[0] != signs[1]
        return format.nan if clash else signs[infinite.index(True)] << top | format.infinity
    if infinite[0] or infinite[1]:
        if any(format.magnitude(x) == 0 for x in xs[:2]):
            return format.nan
        sign = signs[0] ^ signs[1]
        if op == "fma" and infinite[2] and signs[2] != sign:
            return format.nan
        return sign << top | format.infinity
    return signs[2] << top | format.infinity


def _check(
    body: str, format: Format, got: np.ndarray, inputs: list[np.ndarray], expected: Callable[..., int]
) -> None:
    for index, xs in enumerate(zip(*(a.tolist() for a in inputs), strict=True)):
        wanted = expected(xs)
        assert int(got[index]) == wanted, (
            f"{body} of {[hex(x) for x in xs]}: {int(got[index]):#x}, not {wanted:#x}"
        )


ARITHMETIC = [("add", "add", 2), ("mul", "mul", 2), ("fma", "fma", 3)]


@pytest.mark.parametrize("op,opcode,number", ARITHMETIC)
def test_single_precision(op: str, opcode: str, number: int) -> None:
    inputs = exact.operands(F32, 1, COUNT, number)
    variants = [
        (m, ftz, sat) for m in MODES for ftz in (False, True) for sat in (False, True) if not sat or m == "rz"
    ]
    bodies = [
        f"{opcode}.{m}{'.ftz' if ftz else ''}{'.sat' if sat else ''}.f32 {{d}}, " + _sources(number)
        for m, ftz, sat in variants
    ]
    results = run_many([(body, "f32", " ".join(["f32"] * number)) for body in bodies], inputs)
    for body, got, (mode, ftz, sat) in zip(bodies, results, variants, strict=True):
        _check(
            body, F32, got, inputs, lambda xs, m=mode, f=ftz, s=sat: reference(op, xs, F32, m, ftz=f, sat=s)
        )


def _sources(number: int) -> str:
    return ", ".join(["{a}", "{b}", "{c}"][:number]) + ";"


@pytest.mark.parametrize("op,opcode,number", ARITHMETIC)
def test_double_precision(op: str, opcode: str, number: int) -> None:
    inputs = exact.operands(F64, 2, COUNT, number)
    bodies = [f"{opcode}.{mode}.f64 {{d}}, {_sources(number)}" for mode in MODES]
    results = run_many([(body, "f64", " ".join(["f64"] * number)) for body in bodies], inputs)
    for body, got, mode in zip(bodies, results, MODES, strict=True):
        _check(body, F64, got, inputs, lambda xs, m=mode: reference(op, xs, F64, m))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("op,opcode,number", ARITHMETIC)
def test_half_precision_rounds_once(op: str, opcode: str, number: int, name: str) -> None:
    format = FORMATS[name]
    inputs = exact.operands(format, 3, COUNT, number)
    flushes = (False, True) if name == "f16" else (False,)
    bodies = [f"{opcode}.rn{'.ftz' if f else ''}.{name} {{d}}, {_sources(number)}" for f in flushes]
    results = run_many([(body, name, " ".join([name] * number)) for body in bodies], inputs)
    for body, got, ftz in zip(bodies, results, flushes, strict=True):
        _check(body, format, got, inputs, lambda xs, f=ftz: reference(op, xs, format, "rn", ftz=f))


def test_sub_is_add_of_the_negative() -> None:
    inputs = exact.operands(F32, 4, COUNT, 2)
    flipped = [inputs[0], inputs[1] ^ np.uint64(1 << 31)]
    forms = [("sub", inputs), ("add", flipped)]
    sub, add = (
        run_many([(f"{op}.rm.f32 {{d}}, {{a}}, {{b}};", "f32", "f32 f32")], xs)[0] for op, xs in forms
    )
    assert np.array_equal(sub, add)


def test_packed_halves_are_independent() -> None:
    low, high = exact.operands(FORMATS["f16"], 5, 600, 2), exact.operands(FORMATS["f16"], 6, 600, 2)
    packed = [a | b << np.uint64(16) for a, b in zip(low, high, strict=True)]
    (both,) = run_many([("mul.rn.f16x2 {d}, {a}, {b};", "f16x2", "f16x2 f16x2")], packed)
    halves = [run_many([("mul.rn.f16 {d}, {a}, {b};", "f16", "f16 f16")], xs)[0] for xs in (low, high)]
    assert np.array_equal(both, halves[0].astype(np.uint32) | halves[1].astype(np.uint32) << 16)


# --- quotients and roots -----------------------------------------------------------------------------


def quotient(xs: Sequence[int], format: Format, mode: str, ftz: bool) -> int:
    x, y = (format.flush(v) if ftz else v for v in xs)
    top, sign = format.width - 1, format.sign(x) ^ format.sign(y)
    for v in (x, y):
        if format.is_nan(v):
            return v | 1 << (format.mantissa_bits - 1) if format is F64 else format.nan
    infinite = [format.magnitude(v) == format.infinity for v in (x, y)]
    zero = [format.magnitude(v) == 0 for v in (x, y)]
    if all(infinite) or all(zero):
        return format.nan
    if infinite[0] or zero[1]:
        return sign << top | format.infinity
    if infinite[1] or zero[0]:
        return sign << top
    return format.round(format.value(x) / format.value(y), mode, ftz=ftz)


def root(xs: Sequence[int], format: Format, mode: str, ftz: bool) -> int:
    x = format.flush(xs[1]) if ftz else xs[1]
    if format.is_nan(x):
        return x | 1 << (format.mantissa_bits - 1) if format is F64 else format.nan
    if format.magnitude(x) == 0 or x == format.infinity:
        return x
    return format.nan if format.sign(x) else exact.square_root(format.value(x), format, mode, ftz=ftz)


@pytest.mark.parametrize("format", [F32, F64], ids=lambda f: f.name)
def test_div_rcp_sqrt(format: Format) -> None:
    inputs = exact.operands(format, 7, COUNT, 2)
    kinds = f"{format.name} {format.name}"
    for mode in MODES:
        for ftz in (False, True) if format is F32 else (False,):
            suffix = f"{mode}{'.ftz' if ftz else ''}.{format.name}"
            bodies = [f"{op}.{suffix} {{d}}, {tail}" for op, tail in _QUOTIENTS.items()]
            results = run_many([(body, format.name, kinds) for body in bodies], inputs)
            for op, body, got in zip(_QUOTIENTS, bodies, results, strict=True):
                _check(body, format, got, inputs, partial(_REFERENCES[op], format=format, mode=mode, ftz=ftz))


def _reciprocal(xs: Sequence[int], format: Format, mode: str, ftz: bool) -> int:
    return quotient((format.bias << format.mantissa_bits, xs[1]), format, mode, ftz)


_QUOTIENTS = {"div": "{a}, {b};", "rcp": "{b};", "sqrt": "{b};"}
_REFERENCES = {"div": quotient, "rcp": _reciprocal, "sqrt": root}


def test_double_fma_that_cancels_or_hides_a_tiny_addend() -> None:
    random = np.random.default_rng(8)
    x = random.random(COUNT) + 1
    y = random.random(COUNT) + 1
    z = -(x * y)  # leaves the product's rounding error
    scale = 2.0 ** random.integers(-500, 460, COUNT)
    tiny = np.where(random.random(COUNT) < 0.5, 5e-324, -1e-300)
    z = np.where(random.random(COUNT) < 0.5, z * scale, tiny)
    x = np.where(z == tiny, np.ldexp(1 + np.round(x), 400), x * scale)
    inputs = [v.view(np.uint64) for v in (x, y, z)]
    bodies = [f"fma.{mode}.f64 {{d}}, {{a}}, {{b}}, {{c}};" for mode in MODES]
    results = run_many([(body, "f64", "f64 f64 f64") for body in bodies], inputs)
    for body, got, mode in zip(bodies, results, MODES, strict=True):
        _check(body, F64, got, inputs, lambda xs, m=mode: reference("fma", xs, F64, m))


# --- sign, min, max ----------------------------------------------------------------------------------


def _ordered(x: int, format: Format) -> int:
    """A key in the order of the numbers, -0 before +0."""
    return -format.magnitude(x) - 1 if format.sign(x) else format.magnitude(x)


def _extreme(xs: Sequence[int], format: Format, name: str, *, nan: bool, xorsign: bool) -> int:
    top = format.width - 1
    sign = (xs[0] ^ xs[1]) >> top << top
    pair = [format.magnitude(x) for x in xs] if xorsign else list(xs)
    numbers = [x for x in pair if not format.is_nan(x)]
    if not numbers or (nan and len(numbers) < 2):
        return format.nan
    best = (min if name == "min" else max)(numbers, key=lambda x: _ordered(x, format))
    return best | sign if xorsign else best


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_min_max(name: str, kind: str) -> None:
    format = FORMATS[kind]
    inputs = exact.operands(format, 9, COUNT, 2)
    variants = [(nan, xorsign) for nan in (False, True) for xorsign in (False, True)]
    bodies = [
        f"{name}{'.NaN' if nan else ''}{'.xorsign.abs' if xorsign else ''}.{kind} {{d}}, {{a}}, {{b}};"
        for nan, xorsign in variants
    ]
    results = run_many([(body, kind, f"{kind} {kind}") for body in bodies], inputs)
    for body, got, (nan, xorsign) in zip(bodies, results, variants, strict=True):
        _check(
            body,
            format,
            got,
            inputs,
            lambda xs, n=nan, x=xorsign: _extreme(xs, format, name, nan=n, xorsign=x),
        )


def test_sign_instructions_keep_a_double_nan_and_quiet_it() -> None:
    x = np.array([0x3FF0 << 48, 0xFFF0000000000001, 1 << 63, 0x7FF8000000000003], dtype=np.uint64)
    forms = [(f"{op}.f64 {{d}}, {{a}};", "f64", "f64") for op in ("neg", "abs")]
    negative, absolute = run_many(forms, [x])
    assert [hex(v) for v in negative] == [
        "0xbff0000000000000",
        "0xfff8000000000001",
        "0x0",
        "0x7ff8000000000003",
    ]
    assert [hex(v) for v in absolute] == [
        "0x3ff0000000000000",
        "0xfff8000000000001",
        "0x0",
        "0x7ff8000000000003",
    ]


def test_copysign_takes_the_sign_of_a_and_the_rest_of_b() -> None:
    a, b = np.array([0x80000000, 0, 0xFFC00001]), np.array([0x3F800000, 0xC0000000, 0x7FC00002])
    (got,) = run_many([("copysign.f32 {d}, {a}, {b};", "f32", "f32 f32")], [a, b])
    assert got.tolist() == [0xBF800000, 0x40000000, 0xFFC00002]


def test_three_operands_and_mixed_precision() -> None:
    a, b, c = (np.array([v], dtype=np.float32).view(np.uint32) for v in (3.0, 1.0, 2.0))
    (least,) = run_many([("min.f32 {d}, {a}, {b}, {c};", "f32", "f32 f32 f32")], [a, b, c])
    assert least.view(np.float32)[0] == 1.0
    half = np.array([1.5], dtype=np.float16).view(np.uint16)
    (mixed,) = run_many([("fma.rn.f32.f16 {d}, {a}, {b}, {c};", "f32", "f16 f16 f32")], [half, half, c])
    assert mixed.view(np.float32)[0] == 1.5 * 1.5 + 2.0


def test_reference_rounding_agrees_with_the_hosts() -> None:
    random = np.random.default_rng(10)
    doubles = np.ldexp(random.random(500) - 0.5, random.integers(-160, 130, 500))
    expected = doubles.astype(np.float32).view(np.uint32)
    got = [F32.round(Fraction(float(x)), "rn") for x in doubles]
    assert got == expected.tolist()
