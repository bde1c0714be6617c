"""``cvt`` between every pair of types with every rounding, saturation and FTZ form (PTX ISA 9.7.9.21)."""

from __future__ import annotations

from isa_forms.form import Form, rows

FAMILY = "convert"
INTEGERS = [f"{sign}{width}" for width in (8, 16, 32, 64) for sign in "us"]
_TO_INTEGER = "(.rni|.rzi|.rmi|.rpi)"
_ROUND = "(.rn|.rz|.rm|.rp)"


def _wide(kind: str) -> str:
    """The register a narrow integer result is put in, so that its extension shows."""
    return "b32" if kind.endswith(("8", "16")) and kind[0] in "us" else kind


def _holds(target: str, source: str) -> bool:
    """Whether ``target`` can hold every value of ``source``: ptxas refuses ``.sat`` there."""
    more = int(target[1:]) - int(source[1:])
    return more >= 0 if target[0] == source[0] else source[0] == "u" and more > 0


def _integers() -> list[Form]:
    forms: list[Form] = []
    for source in INTEGERS:
        for target in INTEGERS:
            saturate = "" if _holds(target, source) else "[.sat]"
            forms += rows(FAMILY, f"cvt{saturate}.{target}.{source}", _wide(target), source)
    # the low bits of a wider register
    forms += rows(FAMILY, "cvt.(u8|s8|u16|s16).(u8|s8)", "b32", "b32", note="of a 32-bit register")
    forms += rows(FAMILY, "cvt.(u32|s32|u64|s64).(u8|s8|u16|s16)", "b64", "b64", note="of a 64-bit register")
    return forms


def _between() -> list[Form]:
    forms: list[Form] = []
    for real in ("f16", "bf16", "f32", "f64"):
        flush = "[.ftz]" if real == "f32" else ""
        saturate = "" if real == "bf16" else "[.sat]"
        for integer in INTEGERS:
            if real != "bf16" or integer.endswith(("32", "64")):
                made = f"cvt{_TO_INTEGER}{flush}{saturate}.{integer}.{real}"
                forms += rows(FAMILY, made, _wide(integer), real)
            if real != "bf16" or not integer.endswith("8"):
                forms += rows(FAMILY, f"cvt{_ROUND}{saturate}.{real}.{integer}", real, integer)
    return forms


def _reals() -> list[Form]:
    forms = rows(FAMILY, "cvt[.ftz][.sat].f32.f16", "f32", "f16")
    forms += rows(FAMILY, f"cvt{_ROUND}[.ftz][.sat].f16.f32", "f16", "f32")
    forms += rows(
        FAMILY,
        "cvt(.rn.relu|.rz.relu|.rn.satfinite|.rz.satfinite|.rn.relu.satfinite|.rz.relu.satfinite).(f16|bf16).f32",
        "b16",
        "f32",
    )
    forms += rows(FAMILY, "cvt(.rn|.rz|.rm|.rp)[.ftz].bf16.f32", "bf16", "f32")
    forms += rows(FAMILY, "cvt[.ftz].f32.bf16", "f32", "bf16")
    forms += rows(FAMILY, f"cvt{_ROUND}[.sat].f16.f64", "f16", "f64")
    forms += rows(FAMILY, f"cvt{_ROUND}.bf16.f64", "bf16", "f64")
    forms += rows(FAMILY, "cvt[.sat].f64.f16", "f64", "f16")
    forms += rows(FAMILY, "cvt.f64.bf16", "f64", "bf16")
    forms += rows(FAMILY, f"cvt{_ROUND}[.ftz][.sat].f32.f64", "f32", "f64")
    forms += rows(FAMILY, "cvt[.ftz][.sat].f64.f32", "f64", "f32")
    forms += rows(FAMILY, f"cvt{_ROUND}.(f16.bf16|bf16.f16)", "b16", "b16")
    for real in ("f16", "f32", "f64"):
        flush = "[.ftz]" if real == "f32" else ""
        forms += rows(FAMILY, f"cvt[.rni|.rzi|.rmi|.rpi]{flush}[.sat].{real}.{real}", real, real)
    forms += rows(FAMILY, "cvt[.rni|.rzi|.rmi|.rpi].bf16.bf16", "bf16", "bf16")
    forms += rows(FAMILY, "cvt(.rn|.rz)[.relu][.satfinite].(f16x2|bf16x2).f32", "b32", "f32 f32")
    forms += rows(FAMILY, "cvt(.rna|.rna.satfinite|.rn|.rz|.rn.relu|.rz.relu).tf32.f32", "b32", "f32")
    return forms


def _pack() -> list[Form]:
    forms = rows(FAMILY, "cvt.pack.sat.(u16|s16).s32", "b32", "s32 s32")
    return forms + rows(FAMILY, "cvt.pack.sat.(u8|s8|u4|s4|u2|s2).s32.b32", "b32", "s32 s32 b32")


def forms() -> list[Form]:
    """All rows."""
    return _integers() + _between() + _reals() + _pack()
