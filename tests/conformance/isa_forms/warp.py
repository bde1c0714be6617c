"""Warp-wide instructions: shfl, vote, match, redux, activemask (PTX ISA 9.7.9.6 and 9.7.13)."""

from __future__ import annotations

from isa_forms.form import Form, rows

FAMILY = "warp"
_FULL = "0xffffffff"

# the result in the low word, the predicate in bit 32
_SHUFFLE = """\
.reg .pred %q;
.reg .b32 %x, %y;
{op} %x|%q, {a}, LANE, CONTROL, 0xffffffff;
selp.u32 %y, 1, 0, %q;
mov.b64 {d}, {%x, %y};"""

# only the lower half of the warp takes part
_HALF_SHUFFLE = """\
.reg .pred %q, %low;
.reg .b32 %x, %y, %z;
mov.b32 %x, 0;
setp.lt.u32 %low, %lane, 16;
@%low {op} %x|%q, {a}, LANE, CONTROL, 0xffff;
selp.u32 %y, 1, 0, %q;
selp.u32 %y, %y, 0, %low;
mov.b64 {d}, {%x, %y};"""


def control(mode: str, width: int) -> int:
    """The ``c`` operand of segments of ``width`` lanes: segment mask in bits 8…12, clamp in bits 0…4."""
    return ((32 - width) << 8) | (0 if mode == "up" else 31)


def _shuffles() -> list[Form]:
    forms: list[Form] = []
    for mode in ("up", "down", "bfly", "idx"):
        op = f"shfl.sync.{mode}.b32"
        cases = [
            (lane, control(mode, width)) for width in (32, 16, 8, 4, 2, 1) for lane in (0, 1, 3, 7, 16, 31)
        ]
        # clamps that are no segment's end, and lanes beyond the warp
        cases += [
            (5, 0x0007),
            (9, 0x1805),
            (2, 0x0010),
            (33, control(mode, 32)),
            (40, control(mode, 16)),
            (1, 0x0A13),
        ]
        for lane, c in cases:
            body = _SHUFFLE.replace("LANE", str(lane)).replace("CONTROL", str(c))
            forms += rows(FAMILY, op, "b64", "b32", body, note=f"b={lane} c={c:#06x}")
        for width in (32, 16, 8, 4):
            body = _SHUFFLE.replace("LANE", "{b}").replace("CONTROL", str(control(mode, width)))
            forms += rows(FAMILY, op, "b64", "b32 lane", body, note=f"b by lane, width {width}")
        body = _SHUFFLE.replace("LANE", "{b}").replace("CONTROL", "{c}")
        forms += rows(FAMILY, op, "b64", "b32 lane b32", body, note="b and c by lane")
        for width in (16, 4):
            body = _HALF_SHUFFLE.replace("LANE", "3").replace("CONTROL", str(control(mode, width)))
            forms += rows(FAMILY, op, "b64", "b32", body, note=f"lower half, width {width}")
    return forms


_VOTE = """\
.reg .pred %p, %q;
.reg .b32 %x, %y;
and.b32 %x, {a}, BITS;
setp.ne.b32 %p, %x, 0;
{op} %q, SIGN%p, 0xffffffff;
selp.u32 {d}, 1, 0, %q;"""

_BALLOT = """\
.reg .pred %p;
.reg .b32 %x;
and.b32 %x, {a}, BITS;
setp.ne.b32 %p, %x, 0;
{op} {d}, SIGN%p, 0xffffffff;"""

_HALF_VOTE = """\
.reg .pred %p, %q, %low;
.reg .b32 %x;
setp.lt.u32 %low, %lane, 16;
and.b32 %x, {a}, 1;
setp.ne.b32 %p, %x, 0;
mov.b32 {d}, 0;
@%low {op} {d}, %p, 0xffff;
@!%low {op} {d}, !%p, 0xffff0000;"""


def _votes() -> list[Form]:
    forms: list[Form] = []
    for sign, word in (("", "p"), ("!", "!p")):
        for bits in ("1", "0x0fffffff", "0"):
            note = f"{word}, a & {bits}"
            body = _VOTE.replace("SIGN", sign).replace("BITS", bits)
            forms += rows(FAMILY, "vote.sync.(all|any|uni).pred", "u32", "b32", body, note=note)
            body = _BALLOT.replace("SIGN", sign).replace("BITS", bits)
            forms += rows(FAMILY, "vote.sync.ballot.b32", "b32", "b32", body, note=note)
    return forms + rows(FAMILY, "vote.sync.ballot.b32", "b32", "b32", _HALF_VOTE, note="by halves")


_MATCH = """\
.reg .b{bits} %x;
and.b{bits} %x, {{a}}, {mask};
{{op}} {{d}}, %x, 0xffffffff;"""
_MATCH_ALL = """\
.reg .pred %q;
.reg .b{bits} %x;
.reg .b32 %y, %z;
and.b{bits} %x, {{a}}, {mask};
{{op}} %y|%q, %x, 0xffffffff;
selp.u32 %z, 1, 0, %q;
mov.b64 {{d}}, {{%y, %z}};"""


def _matches() -> list[Form]:
    forms: list[Form] = []
    for bits in (32, 64):
        for mask in ("0", "1", "3", "0xff"):
            kind, note = f"b{bits}", f"a & {mask}"
            text = _MATCH.format(bits=bits, mask=mask)
            forms += rows(FAMILY, f"match.any.sync.{kind}", "b32", kind, text, note=note)
            text = _MATCH_ALL.format(bits=bits, mask=mask)
            forms += rows(FAMILY, f"match.all.sync.{kind}", "b64", kind, text, note=note)
    return forms


_HALF_REDUCTION = """\
.reg .pred %low;
setp.lt.u32 %low, %lane, 16;
mov.b32 {d}, 0;
@%low {op} {d}, {a}, 0xffff;
@!%low {op} {d}, {a}, 0xffff0000;"""


def _reductions() -> list[Form]:
    patterns = ["redux.sync.(add|min|max).(u32|s32)", "redux.sync.(and|or|xor).b32"]
    whole = rows(FAMILY, patterns, "b32", "b32", "{op} {d}, {a}, 0xffffffff;")
    halves = rows(FAMILY, patterns, "b32", "b32", _HALF_REDUCTION, note="by halves")
    return whole + halves + rows(FAMILY, "activemask.b32", "b32", "b32", "{op} {d};")


_SPECIAL = "mov.u32 {d}, %SPECIAL;"


def _special() -> list[Form]:
    names = ["tid.x", "tid.y", "ntid.x", "ntid.y", "ctaid.x", "ctaid.z", "nctaid.x", "nctaid.y", "laneid"]
    names += [f"lanemask_{which}" for which in ("eq", "le", "lt", "ge", "gt")]
    forms: list[Form] = []
    for name in names:
        forms += rows(FAMILY, f"mov.u32 %{name}", "u32", "b32", _SPECIAL.replace("SPECIAL", name))
    return forms


def forms() -> list[Form]:
    """All rows."""
    return _shuffles() + _votes() + _matches() + _reductions() + _special()
