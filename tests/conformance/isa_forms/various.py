"""Small floats, out-of-bounds operands, control flow, barriers with counts, and clusters of one block."""

from __future__ import annotations

from isa_forms.form import Form, rows

FAMILY = "various"
_SHARED = ".shared .align 16 .b8 places[8192];"
_PLACE = ".reg .b32 %s, %t;\nmov.u32 %s, places;\nshl.b32 %t, %thread, 5;\nadd.u32 %s, %s, %t;\n"


def _small_floats() -> list[Form]:
    forms = rows(FAMILY, "cvt.rn.satfinite[.relu].(e4m3x2|e5m2x2).f32", "b16", "f32 f32")
    forms += rows(FAMILY, "cvt.rn.satfinite[.relu].(e4m3x2|e5m2x2).f16x2", "b16", "f16x2")
    return forms + rows(FAMILY, "cvt.rn[.relu].f16x2.(e4m3x2|e5m2x2)", "b32", "b16")


def _out_of_bounds() -> list[Form]:
    forms: list[Form] = []
    for kind, bits in (("f16", 16), ("bf16", 16), ("f16x2", 32), ("bf16x2", 32)):
        source = f"b{bits}"
        forms += rows(FAMILY, f"fma.rn.oob[.relu].{kind}", source, f"{source} {source} {source}")
    return forms


_SWITCH = """\
.reg .b32 %x;
and.b32 %x, {a}, 3;
TABLE: .branchtargets A, B, C, D;
brx.idx %x, TABLE;
A: add.u32 {d}, {b}, 1; bra OUT;
B: mul.lo.u32 {d}, {b}, {b}; bra OUT;
C: not.b32 {d}, {b}; bra OUT;
D: mov.u32 {d}, 7;
OUT:"""
_FUNCTIONS = """\
.func (.param .b32 r) twice(.param .b32 x) {
.reg .b32 %v;
ld.param.b32 %v, [x];
add.u32 %v, %v, %v;
st.param.b32 [r], %v;
ret;
}
.func (.param .b32 r) square(.param .b32 x) {
.reg .b32 %v;
ld.param.b32 %v, [x];
mul.lo.u32 %v, %v, %v;
st.param.b32 [r], %v;
ret;
}
.func (.param .b32 r) fibonacci(.param .b32 x) {
.reg .b32 %v, %w;
.reg .pred %p;
.param .b32 s, t;
ld.param.b32 %v, [x];
setp.lt.u32 %p, %v, 2;
@%p bra DONE;
sub.u32 %w, %v, 1;
st.param.b32 [s], %w;
call (t), fibonacci, (s);
ld.param.b32 %w, [t];
sub.u32 %v, %v, 2;
st.param.b32 [s], %v;
call (t), fibonacci, (s);
ld.param.b32 %v, [t];
add.u32 %v, %v, %w;
DONE:
st.param.b32 [r], %v;
ret;
}"""
_INDIRECT = """\
.reg .b64 %x, %y;
.reg .b32 %z;
.reg .pred %p;
.param .b32 s, t;
and.b32 %z, {a}, 1;
setp.eq.u32 %p, %z, 0;
mov.u64 %x, twice;
mov.u64 %y, square;
selp.b64 %x, %x, %y, %p;
st.param.b32 [s], {b};
P: .callprototype (.param .b32 _) _ (.param .b32 _);
call (t), %x, (s), P;
ld.param.b32 {d}, [t];"""
_RECURSIVE = """\
.reg .b32 %x;
.param .b32 s, t;
and.b32 %x, {a}, 7;
st.param.b32 [s], %x;
call (t), fibonacci, (s);
ld.param.b32 {d}, [t];"""


def _control() -> list[Form]:
    return [
        Form("brx.idx", FAMILY, "b32", ("b32", "b32"), _SWITCH),
        Form("call through a pointer", FAMILY, "b32", ("b32", "b32"), _INDIRECT, _FUNCTIONS, True),
        Form("call, recursive", FAMILY, "b32", ("b32",), _RECURSIVE, _FUNCTIONS, True),
    ]


_COUNTED = """\
.reg .b32 %x, %y;
.reg .pred %p, %q, %r;
and.b32 %x, {a}, 1;
setp.ne.u32 %p, %x, 0;
mov.u32 {d}, 0;
setp.lt.u32 %q, %thread, 64;
@!%q bra OUT;
OP
OUT:
"""


def _barriers() -> list[Form]:
    """Sixty-four of the block's 128 threads."""
    forms: list[Form] = []
    for op in ("bar", "barrier"):
        body = _COUNTED.replace("OP", f"{op}.red.popc.u32 {{d}}, 1, 64, %p;")
        forms.append(Form(f"{op}.red.popc 64", FAMILY, "u32", ("b32",), body, "", True))
        for logic in ("and", "or"):
            text = f"{op}.red.{logic}.pred %r, 2, 64, %p;\nselp.u32 {{d}}, 1, 0, %r;"
            body = _COUNTED.replace("OP", text)
            forms.append(Form(f"{op}.red.{logic} 64", FAMILY, "u32", ("b32",), body, "", True))
    return forms


_CLUSTER = """\
.reg .b32 %m, %n;
st.shared.b32 [%s], {a};
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
xor.b32 %m, %thread, 64;
shl.b32 %m, %m, 5;
mov.u32 %n, places;
add.u32 %m, %m, %n;
mapa.shared::cluster.u32 %m, %m, 0;
ld.shared::cluster.b32 {d}, [%m];"""
_ELECT = """\
.reg .pred %q;
.reg .b32 %x, %y;
elect.sync %x|%q, 0xffffffff;
selp.u32 %y, 32, 0, %q;
add.u32 {d}, %x, %y;"""


def _clusters() -> list[Form]:
    rank = ".reg .b64 %x;\nmov.u64 %x, places;\ncvta.shared.u64 %x, %x;\ngetctarank.u64 {d}, %x;"
    return [
        Form("barrier.cluster", FAMILY, "b32", ("b32",), _PLACE + _CLUSTER, _SHARED, True),
        Form("getctarank", FAMILY, "u32", ("b32",), rank, _SHARED),
        Form("elect.sync", FAMILY, "u32", ("b32",), _ELECT),
    ]


def forms() -> list[Form]:
    """All rows."""
    return _small_floats() + _out_of_bounds() + _control() + _barriers() + _clusters()
