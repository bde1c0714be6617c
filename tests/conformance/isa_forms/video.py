"""Scalar and SIMD video instructions (PTX ISA 9.7.18)."""

from __future__ import annotations

import itertools

from isa_forms.form import Form, rows

FAMILY = "video"
_SIGNS = ("u32", "s32")
_SELECTORS = [  # of d, a and b
    ("", "", ""),
    (".h0", "", ".h1"),
    (".h1", ".b0", ".b3"),
    (".b0", ".h1", ""),
    (".b2", ".b1", ".h0"),
    (".b3", ".b3", ".b2"),
]


def _operation(op: str, sources: str, operands: str, note: str = "") -> list[Form]:
    return rows(FAMILY, op, "b32", sources, f"{{op}} {operands};", note=note)


def _scalar() -> list[Form]:
    forms: list[Form] = []
    three = "b32 b32 b32"
    for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        for d, a, b in itertools.product(_SIGNS, repeat=3):
            for sat in ("", ".sat"):
                name = f"{op}.{d}.{a}.{b}{sat}"
                forms += _operation(name, "b32 b32", "{d}, {a}, {b}")
                into, first, second = _SELECTORS[1 + len(forms) % 5]
                note = f"d{into} a{first} b{second}"
                forms += _operation(name, three, f"{{d}}{into}, {{a}}{first}, {{b}}{second}, {{c}}", note)
        for d, sat in itertools.product(_SIGNS, ("", ".sat")):
            for secop in ("add", "min", "max"):
                name = f"{op}.{d}.s32.u32{sat}.{secop}"
                forms += _operation(name, three, "{d}, {a}.h1, {b}.b0, {c}")
    for op, mode in itertools.product(("vshl", "vshr"), ("clamp", "wrap")):
        for d, a in itertools.product(_SIGNS, repeat=2):
            for sat in ("", ".sat"):
                name = f"{op}.{d}.{a}.u32{sat}.{mode}"
                forms += _operation(name, "b32 shift", "{d}, {a}, {b}")
                into, first, second = _SELECTORS[1 + len(forms) % 5]
                note = f"d{into} a{first} b{second}"
                sources = "b32 shift b32"
                forms += _operation(name, sources, f"{{d}}{into}, {{a}}{first}, {{b}}{second}, {{c}}", note)
    return forms


def _multiply() -> list[Form]:
    forms: list[Form] = []
    for a, b in itertools.product(_SIGNS, repeat=2):
        d = "s32" if "s32" in (a, b) else "u32"
        for form in ("", ".po", ".sat", ".shr7", ".shr15", ".sat.shr7", ".sat.shr15", ".po.sat.shr15"):
            for first, second in (("", ""), (".h1", ".b2")):
                note = f"a{first} b{second}"
                operands = f"{{d}}, {{a}}{first}, {{b}}{second}, {{c}}"
                forms += _operation(f"vmad.{d}.{a}.{b}{form}", "b32 b32 b32", operands, note)
    for form in ("", ".sat", ".sat.shr7"):
        forms += _operation(f"vmad.s32.s32.s32{form}", "b32 b32 b32", "{d}, -{a}, {b}, {c}", "-a")
        forms += _operation(f"vmad.s32.s32.s32{form}", "b32 b32 b32", "{d}, {a}, {b}, -{c}", "-c")
    return forms


def _compare() -> list[Form]:
    forms: list[Form] = []
    for cmp, a, b in itertools.product(("eq", "ne", "lt", "le", "gt", "ge"), _SIGNS, _SIGNS):
        forms += _operation(f"vset.{a}.{b}.{cmp}", "b32 b32", "{d}, {a}, {b}")
        forms += _operation(f"vset.{a}.{b}.{cmp}", "b32 b32 b32", "{d}.h1, {a}.b1, {b}.h0, {c}", "in parts")
    for secop in ("add", "min", "max"):
        forms += _operation(f"vset.s32.u32.lt.{secop}", "b32 b32 b32", "{d}, {a}, {b}, {c}")
    return forms


_SIMD_SELECTORS = {
    "2": [("", "", ""), (".h0", ".h01", ".h32"), (".h1", ".h13", ".h20"), (".h10", ".h10", ".h01")],
    "4": [("", "", ""), (".b20", ".b7610", ".b4321"), (".b3", ".b0123", ".b7777"), (".b210", "", ".b5540")],
}


def _simd() -> list[Form]:
    forms: list[Form] = []
    for op, size in itertools.product(("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"), "24"):
        for d, a, b in itertools.product(_SIGNS, repeat=3):
            for modifier in ("", ".sat", ".add"):
                into, first, second = _SIMD_SELECTORS[size][len(forms) % 4]
                note = f"d{into} a{first} b{second}"
                operands = f"{{d}}{into}, {{a}}{first}, {{b}}{second}, {{c}}"
                forms += _operation(f"{op}{size}.{d}.{a}.{b}{modifier}", "b32 b32 b32", operands, note)
    for cmp, size in itertools.product(("eq", "ne", "lt", "le", "gt", "ge"), "24"):
        for a, b in itertools.product(_SIGNS, repeat=2):
            for modifier in ("", ".add"):
                into, first, second = _SIMD_SELECTORS[size][len(forms) % 4]
                note = f"d{into} a{first} b{second}"
                operands = f"{{d}}{into}, {{a}}{first}, {{b}}{second}, {{c}}"
                forms += _operation(f"vset{size}.{a}.{b}.{cmp}{modifier}", "b32 b32 b32", operands, note)
    return forms


def forms() -> list[Form]:
    """All rows."""
    return _scalar() + _multiply() + _compare() + _simd()
