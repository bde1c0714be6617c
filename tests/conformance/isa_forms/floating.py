"""Floating-point arithmetic and the approximate units (PTX ISA 9.7.3, 9.7.4, 9.7.5)."""

from __future__ import annotations

from isa_forms.form import Form, rows

FAMILY = "floating"
_ROUND = "[.rn|.rz|.rm|.rp]"
_ROUNDED = "(.rn|.rz|.rm|.rp)"


def _single() -> list[Form]:
    forms = rows(FAMILY, [f"(add|sub|mul){_ROUND}[.ftz][.sat].f32"], "f32", "f32 f32")
    forms += rows(FAMILY, [f"(fma|mad){_ROUNDED}[.ftz][.sat].f32"], "f32", "f32 f32 f32")
    forms += rows(FAMILY, ["(min|max)[.ftz][.NaN][.xorsign.abs].f32"], "f32", "f32 f32")
    forms += rows(FAMILY, ["(abs|neg)[.ftz].f32"], "f32", "f32")
    forms += rows(FAMILY, ["div(.approx|.full|.rn|.rz|.rm|.rp)[.ftz].f32"], "f32", "f32 f32")
    forms += rows(FAMILY, ["(rcp|sqrt)(.approx|.rn|.rz|.rm|.rp)[.ftz].f32"], "f32", "f32")
    forms += rows(FAMILY, ["(rsqrt|ex2|lg2|sin|cos).approx[.ftz].f32", "tanh.approx.f32"], "f32", "f32")
    forms += rows(FAMILY, "copysign.f32", "f32", "f32 f32")
    return forms


def _double() -> list[Form]:
    forms = rows(FAMILY, f"(add|sub|mul){_ROUND}.f64", "f64", "f64 f64")
    forms += rows(FAMILY, f"(fma|mad){_ROUNDED}.f64", "f64", "f64 f64 f64")
    forms += rows(FAMILY, [f"div{_ROUNDED}.f64", "(min|max|copysign).f64"], "f64", "f64 f64")
    forms += rows(FAMILY, [f"(rcp|sqrt){_ROUNDED}.f64", "(abs|neg).f64"], "f64", "f64")
    forms += rows(FAMILY, ["(rcp|rsqrt).approx.ftz.f64", "rsqrt.approx.f64"], "f64", "f64")
    return forms


def _half() -> list[Form]:
    forms: list[Form] = []
    for kind in ("f16", "f16x2"):
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        forms += rows(FAMILY, [f"(add|sub|mul)[.rn][.ftz][.sat].{kind}"], kind, two)
        forms += rows(FAMILY, [f"fma.rn[.ftz][.sat|.relu].{kind}"], kind, three)
        forms += rows(FAMILY, [f"(min|max)[.ftz][.NaN][.xorsign.abs].{kind}"], kind, two)
        forms += rows(FAMILY, [f"(abs|neg)[.ftz].{kind}", f"(tanh|ex2).approx.{kind}"], kind, kind)
    for kind in ("bf16", "bf16x2"):
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        forms += rows(FAMILY, [f"(add|sub|mul)[.rn].{kind}"], kind, two)
        forms += rows(FAMILY, [f"fma.rn[.relu].{kind}"], kind, three)
        forms += rows(FAMILY, [f"(min|max)[.NaN][.xorsign.abs].{kind}"], kind, two)
        forms += rows(
            FAMILY, [f"(abs|neg).{kind}", f"tanh.approx.{kind}", f"ex2.approx.ftz.{kind}"], kind, kind
        )
    return forms


_TEST = ".reg .pred %q;\n{op} %q, {a};\nselp.u32 {d}, 1, 0, %q;"


def forms() -> list[Form]:
    """All rows."""
    made = _single() + _double() + _half()
    for kind in ("f32", "f64"):
        made += rows(
            FAMILY, f"testp.(finite|infinite|number|notanumber|normal|subnormal).{kind}", "u32", kind, _TEST
        )
    return made
