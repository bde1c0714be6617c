"""Loads, stores, address conversion and moves (PTX ISA 9.7.9.8-9.7.9.20).

Loads read this thread's operand word through ``%pa``. Every other state space is written by the thread
itself first: a slot of ``slots`` (shared), of a local array, of a global scratch variable; ``table`` is
constant.
"""

from __future__ import annotations

from isa_forms.form import Form, rows

FAMILY = "memory"
_SHARED = ".shared .align 16 .b8 slots[4096];"
_SCRATCH = ".global .align 16 .b8 scratch[2097152];"
_TABLE = (
    ".const .align 8 .b64 table[8] = "
    "{0x8081828384858687, 1, 0xffffffffffffffff, 0x7fffffff80000000, 4, 5, 6, 7};"
)
_PREPARE = {
    "shared": "mov.u32 %s, slots;\nshl.b32 %t, %thread, 5;\nadd.u32 %s, %s, %t;\ncvt.u64.u32 %q, %s;\n",
    "local": ".local .align 16 .b8 mine[32];\nmov.u64 %q, mine;\n",
    "global": "mov.u64 %q, scratch;\nmul.wide.u32 %r, %i, 32;\nadd.u64 %q, %q, %r;\n",
    "const": "mov.u64 %q, table;\nand.b32 %t, %i, 7;\nmul.wide.u32 %r, %t, 8;\nadd.u64 %q, %q, %r;\n",
}
_DECLARATION = {"shared": _SHARED, "global": _SCRATCH, "const": _TABLE, "local": ""}
_REGISTERS = ".reg .b32 %s, %t;\n.reg .b64 %q, %r;\n"
_ADDRESSES = {space: _REGISTERS + text for space, text in _PREPARE.items()}


def _with(forms: list[Form], declarations: str) -> list[Form]:
    return [Form(f.name, f.family, f.result, f.sources, f.body, declarations) for f in forms]


def _widths() -> list[tuple[str, str]]:
    """(type of the access, kind of the register): every register at least as wide, plus floats."""
    pairs = []
    for sign in "bus":
        for bits in (8, 16, 32, 64):
            for register in (16, 32, 64):
                if register >= bits:
                    pairs.append((f"{sign}{bits}", f"b{register}"))
    return [*pairs, ("f32", "f32"), ("f64", "f64")]


def _loads() -> list[Form]:
    forms: list[Form] = []
    for access, register in _widths():
        note = f"to {register}"
        forms += rows(FAMILY, f"ld.global.{access}", register, "b64", "{op} {d}, [%pa];", note=note)
        forms += rows(FAMILY, f"ld.{access}", register, "b64", "{op} {d}, [%pa];", note=note)
        for space in ("shared", "local", "global"):
            body = _ADDRESSES[space] + f"st.{space}.b64 [%q], {{a}};\n{{op}} {{d}}, [%q];"
            made = rows(FAMILY, f"ld.{space}.{access}", register, "b64", body, note=f"{note}, own slot")
            forms += _with(made, _DECLARATION[space])
        body = _ADDRESSES["const"] + "{op} {d}, [%q];"
        forms += _with(rows(FAMILY, f"ld.const.{access}", register, "b64", body, note=note), _TABLE)
    cached = ["ld.global(.ca|.cg|.cs|.lu|.cv|.nc).b32", "ld.(volatile|weak).global.b32", "ldu.global.b32"]
    cached += ["ld.(relaxed|acquire).(cta|cluster|gpu|sys).global.b32", "ld.global.nc.L1::no_allocate.b32"]
    cached += ["ld.global.L2::128B.b32"]
    forms += rows(FAMILY, cached, "b32", "b32", "{op} {d}, [%pa];")
    return forms


def _stores() -> list[Form]:
    """Store over a known pattern and read the whole word back."""
    forms: list[Form] = []
    for access, register in _widths():
        source = register
        for space in ("global", "shared", "local"):
            body = _ADDRESSES[space] + f"mov.b64 %r, 0x1122334455667788;\nst.{space}.b64 [%q], %r;\n"
            body += f"{{op}} [%q+{8 - min(int(access[1:]) // 8, 8)}], {{a}};\nld.{space}.b64 {{d}}, [%q];"
            made = rows(FAMILY, f"st.{space}.{access}", "b64", source, body, note=f"from {register}")
            forms += _with(made, _DECLARATION[space])
    body = _ADDRESSES["global"] + "{op} [%q], {a};\nld.global.b32 {d}, [%q];"
    patterns = ["st.global(.wb|.cg|.cs|.wt).b32", "st.(volatile|weak).global.b32"]
    patterns += ["st.(relaxed|release).(cta|cluster|gpu|sys).global.b32"]
    return forms + _with(rows(FAMILY, patterns, "b32", "b32", body), _SCRATCH)


def _vectors() -> list[Form]:
    forms: list[Form] = []
    for space in ("global", "shared", "local"):
        for vector in [
            "2.b8",
            "4.b8",
            "2.b16",
            "4.b16",
            "2.b32",
            "4.b32",
            "2.b64",
            "2.f32",
            "4.f32",
            "2.f64",
            "4.u8",
            "2.s16",
        ]:
            count, kind = int(vector[0]), vector[2:]
            forms += _vector(space, count, kind)
    return forms


def _vector(space: str, count: int, kind: str) -> list[Form]:
    """Store two or four elements as words, load them as a vector, store it as a vector, mix the words."""
    register = {"f32": ".f32", "f64": ".f64"}.get(kind, f".b{max(int(kind[1:]), 16)}")
    names = ", ".join(f"%v{k}" for k in range(count))
    size = count * int(kind[1:]) // 8
    turned = ", ".join(f"%v{(k + 1) % count}" for k in range(count))
    body = _ADDRESSES[space] + f".reg {register} %v<4>;\n.reg .b64 %w;\n"
    body += f"st.{space}.b64 [%q], {{a}};\nst.{space}.b64 [%q+8], {{b}};\n"
    body += f"ld.{space}.v{count}.{kind} {{{{{names}}}}}, [%q];\n".replace("{{", "{").replace("}}", "}")
    body += f"st.{space}.v{count}.{kind} [%q], {{{{{turned}}}}};\n".replace("{{", "{").replace("}}", "}")
    body += f"ld.{space}.b64 {{d}}, [%q];\n"
    body += f"ld.{space}.b64 %w, [%q+{8 if size > 8 else 0}];"
    if size > 8:
        body += "\nxor.b64 {d}, {d}, %w;"
    made = rows(FAMILY, f"ld.v{count} + st.v{count} {space} {kind}", "b64", "b64 b64", body)
    return _with(made, _DECLARATION[space])


_IS = "{op} %is, %g;\nselp.u32 {d}, 1, 0, %is;"


def _address_conversion() -> list[Form]:
    forms: list[Form] = []
    for space in ("shared", "local", "global", "const"):
        head = _ADDRESSES[space] + f".reg .pred %is;\n.reg .b64 %g;\ncvta.{space}.u64 %g, %q;\n"
        made = rows(
            FAMILY, "isspacep.(shared|local|global|const)", "u32", "b64", head + _IS, note=f"of {space}"
        )
        body = head + "{op} %r, %g;\nsetp.eq.u64 %is, %r, %q;\nselp.u32 {d}, 1, 0, %is;"
        made += rows(FAMILY, f"cvta.to.{space}.u64", "u32", "b64", body, note="and back")
        if space != "const":
            body = head + f"st.{space}.b64 [%q], {{a}};\n{{op}} {{d}}, [%g];"
            made += rows(FAMILY, "ld.b64", "b64", "b64", body, note=f"generic, of {space}")
            body = head + f"{{op}} [%g], {{a}};\nld.{space}.b64 {{d}}, [%q];"
            made += rows(FAMILY, "st.b64", "b64", "b64", body, note=f"generic, of {space}")
            body = head + f"st.{space}.b64 [%q], {{a}};\n{{op}} {{d}}, [%g], 3;"
            atom = rows(FAMILY, "atom.add.u32", "b32", "b64", body, note=f"generic, of {space}")
            made += atom if space != "local" else []
        else:
            made += rows(
                FAMILY, "ld.b64", "b64", "b64", head + "{op} {d}, [%g];", note=f"generic, of {space}"
            )
        forms += _with(made, _DECLARATION[space])
    return forms


def _moves() -> list[Form]:
    forms: list[Form] = []
    for kind in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"):
        forms += rows(FAMILY, f"mov.{kind}", kind, kind)
    pack = {
        "mov.b32 {h, h}": ("b32", "b16 b16", "mov.b32 {d}, {{a}, {b}};"),
        "mov.b64 {w, w}": ("b64", "b32 b32", "mov.b64 {d}, {{a}, {b}};"),
        "mov.b64 {h, h, h, h}": ("b64", "b16 b16 b16", "mov.b64 {d}, {{a}, {b}, {c}, {a}};"),
        "mov.b64 {f, f}": ("b64", "f32 f32", "mov.b64 {d}, {{a}, {b}};"),
        "mov {h, h} of b32": ("b16", "b32", ".reg .b16 %x;\nmov.b32 {%x, {d}}, {a};"),
        "mov {h, _} of b32": ("b16", "b32", "mov.b32 {{d}, _}, {a};"),
        "mov {w, w} of b64": ("b32", "b64", ".reg .b32 %x;\nmov.b64 {%x, {d}}, {a};"),
        "mov {h, h, h, h} of b64": ("b16", "b64", ".reg .b16 %x, %y, %z;\nmov.b64 {%x, %y, {d}, %z}, {a};"),
    }
    for name, (result, sources, body) in pack.items():
        forms += [Form(name, FAMILY, result, tuple(sources.split()), body)]
    return forms


def forms() -> list[Form]:
    """All rows."""
    return _loads() + _stores() + _vectors() + _address_conversion() + _moves()
