"""Products and sums that the driver's assembler may fuse, and constants that it folds."""

from __future__ import annotations

import struct

from isa_forms.form import Form, rows

FAMILY = "contraction"
_TEXTS = {  # {k} is the type
    "a*b+c": "mul{f}.{k} %x, {a}, {b};\nadd{f}.{k} {d}, %x, {c};",
    "c+a*b": "mul{f}.{k} %x, {a}, {b};\nadd{f}.{k} {d}, {c}, %x;",
    "a*b-c": "mul{f}.{k} %x, {a}, {b};\nsub{f}.{k} {d}, %x, {c};",
    "c-a*b": "mul{f}.{k} %x, {a}, {b};\nsub{f}.{k} {d}, {c}, %x;",
    "-(a*b)+c": "mul{f}.{k} %x, {a}, {b};\nneg{f}.{k} %y, %x;\nadd{f}.{k} {d}, %y, {c};",
    "a*b+a*c": "mul{f}.{k} %x, {a}, {b};\nmul{f}.{k} %y, {a}, {c};\nadd{f}.{k} {d}, %x, %y;",
    "a*b+b*a": "mul{f}.{k} %x, {a}, {b};\nmul{f}.{k} %y, {b}, {a};\nadd{f}.{k} {d}, %x, %y;",
    "(a*b+c)*(a*b)": "mul{f}.{k} %x, {a}, {b};\nadd{f}.{k} %y, %x, {c};\nmul{f}.{k} {d}, %x, %y;",
    "(a*b+c)+(a*b)": "mul{f}.{k} %x, {a}, {b};\nadd{f}.{k} %y, %x, {c};\nadd{f}.{k} {d}, %x, %y;",
    "a*b+c, rounded mul": "mul.rn{f}.{k} %x, {a}, {b};\nadd{f}.{k} {d}, %x, {c};",
    "a*b+c, rounded add": "mul{f}.{k} %x, {a}, {b};\nadd.rn{f}.{k} {d}, %x, {c};",
}
_REGISTER = {"f32": ".f32", "f64": ".f64", "f16": ".b16", "bf16": ".b16", "f16x2": ".b32", "bf16x2": ".b32"}


def _sums() -> list[Form]:
    forms: list[Form] = []
    for kind, flush in (
        *(("f32", f) for f in ("", ".ftz")),
        *((k, "") for k in ("f64", "f16", "bf16", "f16x2", "bf16x2")),
    ):
        declared = f".reg {_REGISTER[kind]} %x, %y;\n"
        for name, text in _TEXTS.items():
            body = declared + text.replace("{f}", flush).replace("{k}", kind)
            forms += rows(FAMILY, f"{name} {kind}{flush}", kind, f"{kind} {kind} {kind}", body)
    saturated = ".reg .f32 %x;\nmul.f32 %x, {a}, {b};\nadd.sat.f32 {d}, %x, {c};"
    return forms + rows(FAMILY, "a*b+c saturated f32", "f32", "f32 f32 f32", saturated)


def _quotients() -> list[Form]:
    forms: list[Form] = []
    for form in ("approx", "approx.ftz", "full", "full.ftz"):
        flush = ".ftz" if "ftz" in form else ""
        body = f".reg .f32 %x;\ndiv.{form}.f32 %x, {{a}}, {{b}};\nadd{flush}.f32 {{d}}, %x, {{c}};"
        forms += rows(FAMILY, f"a/b+c {form}", "f32", "f32 f32 f32", body)
        body = f".reg .f32 %x;\ndiv.{form}.f32 %x, {{a}}, {{b}};\nsub{flush}.f32 {{d}}, {{c}}, %x;"
        forms += rows(FAMILY, f"c-a/b {form}", "f32", "f32 f32 f32", body)
        for divisor in (3.0, -7.5, 0.1, 2.0, 2.0**-127, 3e38, float("inf")):
            bits = _hex(divisor)
            forms += rows(FAMILY, f"a / {bits} {form}", "f32", "f32", f"div.{form}.f32 {{d}}, {{a}}, {bits};")
    return forms


def _scaled() -> list[Form]:
    forms: list[Form] = []
    for flush in ("", ".ftz"):
        for factor in (2.0, 4.0, 8.0, 0.5, 0.25, 0.125, 16.0, -2.0):
            body = (
                f".reg .f32 %x;\nmul{flush}.f32 %x, {{a}}, {{b}};\nmul{flush}.f32 {{d}}, %x, {_hex(factor)};"
            )
            forms += rows(FAMILY, f"(a*b)*{factor}{flush}", "f32", "f32 f32", body)
    return forms


def _hex(value: float) -> str:
    return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"


def _constants() -> list[Form]:
    """Approximate instructions of a literal; the operand is not read."""
    values = (0.1, 0.7, 1.7, 2.0, 3.3, 10.25, 77.7, 1e-3)
    forms: list[Form] = []
    for op in ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos", "tanh"):
        for flush in ("", ".ftz") if op != "tanh" else ("",):
            for value in values:
                literal = _hex(value)
                name = f"{op}.approx{flush}.f32"
                forms += rows(FAMILY, name, "f32", "f32", f"{{op}} {{d}}, {literal};", note=f"of {value}")
    return forms


def forms() -> list[Form]:
    """All rows."""
    return _sums() + _quotients() + _scaled() + _constants()
