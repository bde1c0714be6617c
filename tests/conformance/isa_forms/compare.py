"""Comparison and selection (PTX ISA 9.7.6, 9.7.7).

A ``setp`` form packs what the instruction can say into one byte: bit 0 the predicate, bit 1 its complement
destination, bits 2 and 3 the same with the third operand negated. Packed types use both predicates.
"""

from __future__ import annotations

from isa_forms.form import Form, rows

FAMILY = "compare"
_BIT, _SIGNED = ("eq", "ne"), ("eq", "ne", "lt", "le", "gt", "ge")
_UNSIGNED = (*_SIGNED, "lo", "ls", "hi", "hs")
_FLOAT = (*_SIGNED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_COMPARISONS = {"b": _BIT, "s": _SIGNED, "u": _UNSIGNED, "f": _FLOAT}
_SCALARS = ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"]
_HALVES = ["f16", "f16x2", "bf16", "bf16x2"]

_SETP = """\
.reg .pred %q0, %q1;
.reg .b32 %x;
{op} %q0|%q1, {a}, {b};
selp.b32 {d}, 1, 0, %q0;
selp.b32 %x, 2, 0, %q1;
or.b32 {d}, {d}, %x;"""

_SETP_BOOL = """\
.reg .pred %q0, %q1, %q2, %q3;
.reg .b32 %x;
{op} %q0|%q1, {a}, {b}, {c};
{op} %q2|%q3, {a}, {b}, !{c};
selp.b32 {d}, 1, 0, %q0;
selp.b32 %x, 2, 0, %q1;
or.b32 {d}, {d}, %x;
selp.b32 %x, 4, 0, %q2;
or.b32 {d}, {d}, %x;
selp.b32 %x, 8, 0, %q3;
or.b32 {d}, {d}, %x;"""


def _comparisons(kind: str) -> str:
    return "|".join(_COMPARISONS["f" if "f" in kind else kind[0]])


def _flush(kind: str) -> str:
    return "[.ftz]" if kind in ("f32", "f16", "f16x2") else ""


def _setp() -> list[Form]:
    forms: list[Form] = []
    for kind in _SCALARS + _HALVES:
        compare, flush = _comparisons(kind), _flush(kind)
        single = kind in ("f16", "bf16")
        plain = _SETP.replace("%q0|%q1", "%q0").replace("2, 0, %q1", "0, 0, %q0") if single else _SETP
        full = _SETP_BOOL
        if single:
            full = full.replace("%q0|%q1", "%q0").replace("%q2|%q3", "%q2")
            full = full.replace("2, 0, %q1", "0, 0, %q0").replace("8, 0, %q3", "0, 0, %q2")
        forms += rows(FAMILY, f"setp.({compare}){flush}.{kind}", "b32", f"{kind} {kind}", plain)
        forms += rows(
            FAMILY, f"setp.({compare}).(and|or|xor){flush}.{kind}", "b32", f"{kind} {kind} pred", full
        )
    return forms


def _set() -> list[Form]:
    forms: list[Form] = []
    for kind in _SCALARS:
        compare, flush = _comparisons(kind), _flush(kind)
        for result in ("u32", "s32", "f32"):
            forms += rows(FAMILY, f"set.({compare}){flush}.{result}.{kind}", result, f"{kind} {kind}")
        forms += rows(FAMILY, f"set.({compare}).(and|or|xor){flush}.u32.{kind}", "u32", f"{kind} {kind} pred")
    for kind in _HALVES:
        compare, flush = _comparisons(kind), _flush(kind)
        results = ("u32", "s32", kind) if kind.endswith("x2") else ("u16", "s16", "u32", "s32", kind)
        for result in results:
            forms += rows(FAMILY, f"set.({compare}){flush}.{result}.{kind}", result, f"{kind} {kind}")
    return forms


def _select() -> list[Form]:
    forms: list[Form] = []
    for kind in _SCALARS:
        forms += rows(FAMILY, f"selp.{kind}", kind, f"{kind} {kind} pred")
        forms += rows(FAMILY, f"slct.{kind}.s32", kind, f"{kind} {kind} s32")
        forms += rows(FAMILY, f"slct[.ftz].{kind}.f32", kind, f"{kind} {kind} f32")
    return forms


def forms() -> list[Form]:
    """All rows."""
    return _setp() + _set() + _select()
