"""Integer arithmetic, bit operations, logic and shifts (PTX ISA 9.7.1, 9.7.2, 9.7.8)."""

from __future__ import annotations

from isa_forms.form import Form, rows

FAMILY = "integer"
_NEXT = {"16": "32", "32": "64"}


def _arithmetic() -> list[Form]:
    forms: list[Form] = []
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        saturate = "[.sat]" if kind == "s32" else ""
        forms += rows(
            FAMILY, [f"(add|sub){saturate}.{kind}", f"(mul.lo|mul.hi|div|rem|min|max).{kind}"], kind, two
        )
        forms += rows(FAMILY, f"(mad.lo|mad.hi|sad).{kind}", kind, three)
        if kind.endswith(("16", "32")):
            wide = kind[0] + _NEXT[kind[1:]]
            forms += rows(FAMILY, f"mul.wide.{kind}", wide, two)
            forms += rows(FAMILY, f"mad.wide.{kind}", wide, f"{kind} {kind} {wide}")
        if kind[0] == "s":
            forms += rows(FAMILY, f"(abs|neg).{kind}", kind, kind)
    forms += rows(FAMILY, "mad.hi.sat.s32", "s32", "s32 s32 s32")
    for kind in ("u32", "s32"):
        forms += rows(FAMILY, f"mul24.(lo|hi).{kind}", kind, f"{kind} {kind}")
        forms += rows(FAMILY, f"mad24.(lo|hi).{kind}", kind, f"{kind} {kind} {kind}")
    forms += rows(FAMILY, "mad24.hi.sat.s32", "s32", "s32 s32 s32")
    for kind in ("u16x2", "s16x2"):
        forms += rows(FAMILY, f"(add|min|max).{kind}", kind, f"{kind} {kind}")
    forms += rows(FAMILY, "(min|max).relu.(s32|s16x2)", "b32", "s16x2 s16x2")
    return forms


_CARRIED = "START;\nMAD.cc.{k} %x, {a}, {b}, {c};\naddc.{k} {d}, 0, 0;"


def _carry_chain(kind: str) -> list[Form]:
    """Two-word sums and differences; the chain's last carry is materialised by a third word."""
    forms: list[Form] = []
    chains = {
        "add.cc + addc": "add.cc.{k} %x, {a}, {b};\naddc.{k} {d}, {a}, {c};",
        "add.cc + addc.cc + addc": "add.cc.{k} %x, {a}, {b};\naddc.cc.{k} %y, {b}, {c};\naddc.{k} {d}, 0, 0;",
        "sub.cc + subc": "sub.cc.{k} %x, {a}, {b};\nsubc.{k} {d}, {a}, {c};",
        "sub.cc + subc.cc + subc": "sub.cc.{k} %x, {a}, {b};\nsubc.cc.{k} %y, {b}, {c};\nsubc.{k} {d}, 0, 0;",
        "mad.lo.cc + madc.hi": "mad.lo.cc.{k} %x, {a}, {b}, {c};\nmadc.hi.{k} {d}, {a}, {b}, {c};",
        "mad.lo.cc + madc.lo": "mad.lo.cc.{k} %x, {a}, {b}, {c};\nmadc.lo.{k} {d}, {b}, {c}, {a};",
        "mad.hi.cc + addc": "mad.hi.cc.{k} %x, {a}, {b}, {c};\naddc.{k} {d}, {a}, {c};",
        "madc.hi.cc + addc": _CARRIED.replace("START", "add.cc.{k} %y, {a}, {b}").replace("MAD", "madc.hi"),
        "madc.lo.cc + addc": _CARRIED.replace("START", "sub.cc.{k} %y, {a}, {a}").replace("MAD", "madc.lo"),
    }
    for name, body in chains.items():
        text = f".reg .b{kind[1:]} %x, %y;\n" + body.replace("{k}", kind)
        forms += rows(FAMILY, f"{name} {kind}", kind, f"{kind} {kind} {kind}", text)
    return forms


def _bits() -> list[Form]:
    forms: list[Form] = []
    for width in ("32", "64"):
        kind = f"b{width}"
        forms += rows(FAMILY, f"(popc|clz).{kind}", "u32", kind)
        forms += rows(FAMILY, f"brev.{kind}", kind, kind)
        forms += rows(FAMILY, f"bfi.{kind}", kind, f"{kind} {kind} count", _BFI)
        for sign in "us":
            typed = sign + width
            forms += rows(FAMILY, f"bfind[.shiftamt].{typed}", "u32", typed)
            forms += rows(FAMILY, f"bfe.{typed}", typed, f"{typed} count count")
    forms += rows(FAMILY, "fns.b32", "b32", "b32 lane s32", _FNS)
    forms += rows(FAMILY, "bmsk.(clamp|wrap).b32", "b32", "count count")
    forms += rows(FAMILY, "szext.(clamp|wrap).u32", "u32", "u32 count")
    forms += rows(FAMILY, "szext.(clamp|wrap).s32", "s32", "s32 count")
    forms += rows(FAMILY, "prmt.b32[.f4e|.b4e|.rc8|.ecl|.ecr|.rc16]", "b32", "b32 b32 b32")
    forms += rows(FAMILY, "(dp4a|dp2a.lo|dp2a.hi).(u32|s32).(u32|s32)", "b32", "b32 b32 b32")
    return forms


_BFI = """\
.reg .b32 %from, %length;
and.b32 %from, {c}, 127;
shr.u32 %length, {c}, 3;
{op} {d}, {a}, {b}, %from, %length;"""

# the base must be 0…31 and the offset's magnitude within the word
_FNS = """\
.reg .b32 %base, %nth;
and.b32 %base, {b}, 31;
rem.s32 %nth, {c}, 34;
{op} {d}, {a}, %base, %nth;"""


def _logic() -> list[Form]:
    forms: list[Form] = []
    for width in ("16", "32", "64"):
        kind = f"b{width}"
        forms += rows(FAMILY, f"(and|or|xor).{kind}", kind, f"{kind} {kind}")
        forms += rows(FAMILY, f"(not|cnot).{kind}", kind, kind)
        forms += rows(FAMILY, f"(shl.b|shr.b|shr.u|shr.s){width}", kind, f"{kind} shift")
    forms += rows(FAMILY, "(and|or|xor).pred", "u32", "pred pred", _PREDICATE_2)
    forms += rows(FAMILY, "not.pred", "u32", "pred", _PREDICATE_1)
    for table in range(0, 256, 5):
        forms += rows(
            FAMILY,
            "lop3.b32",
            "b32",
            "b32 b32 b32",
            f"{{op}} {{d}}, {{a}}, {{b}}, {{c}}, {table};",
            note=hex(table),
        )
    for boolop in ("and", "or"):
        forms += rows(
            FAMILY, f"lop3.{boolop}.b32 0x96", "u32", "b32 b32 pred", _LOP3_PREDICATE.format(boolop=boolop)
        )
    forms += rows(FAMILY, "shf.(l|r).(clamp|wrap).b32", "b32", "b32 b32 shift")
    return forms


_PREDICATE_2 = ".reg .pred %q;\n{op} %q, {a}, {b};\nselp.u32 {d}, 1, 0, %q;"
_PREDICATE_1 = ".reg .pred %q;\n{op} %q, {a};\nselp.u32 {d}, 1, 0, %q;"
_LOP3_PREDICATE = """\
.reg .pred %q;
.reg .b32 %x, %y;
lop3.{boolop}.b32 %x|%q, {{a}}, {{b}}, 0x5A5A, 0x96, {{c}};
selp.u32 %y, 0x80000000, 0, %q;
xor.b32 {{d}}, %x, %y;"""


def forms() -> list[Form]:
    """All rows."""
    made = _arithmetic() + _bits() + _logic()
    for kind in ("u32", "s32", "u64", "s64"):
        made += _carry_chain(kind)
    return made
