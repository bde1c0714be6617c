"""``atom`` and ``red`` on 32 and 64 bits, on a thread's own word and contended where the outcome is the same
in any order.

PTX ISA 9.7.13.5 and 9.7.13.7.
"""

from __future__ import annotations

from isa_forms.form import Form, rows
from isa_forms.memory import _ADDRESSES, _DECLARATION

FAMILY = "atomics"
_SPACES = ("global", "shared")
_PLAIN = ["add.u32", "add.s32", "add.u64", "inc.u32", "dec.u32", "exch.b32", "exch.b64"]
_PLAIN += [f"{op}.{kind}" for op in ("min", "max") for kind in ("u32", "s32", "u64", "s64")]
_PLAIN += [f"{op}.b{bits}" for op in ("and", "or", "xor") for bits in (32, 64)]
_FLOATS = ["add.f32", "add.f64", "add.noftz.f16", "add.noftz.f16x2", "add.noftz.bf16", "add.noftz.bf16x2"]


def _kind(op: str) -> str:
    return op.rsplit(".", 1)[1]


def _bits(kind: str) -> int:
    return 32 if kind.endswith("x2") else int(kind[-2:])


def _own(space: str) -> list[Form]:
    """The thread's own word: what was there, and what is there afterwards."""
    forms: list[Form] = []
    for op in _PLAIN + _FLOATS:
        kind, bits = _kind(op), _bits(_kind(op))
        store, load = f"st.{space}.b{bits} [%q], {{a}};\n", f"ld.{space}.b{bits} {{d}}, [%q];"
        # a float operand stands in a float register; the word is stored through an untyped one
        head = _ADDRESSES[space]
        if kind in ("f32", "f64"):
            store, load = store.replace(f".b{bits}", f".{kind}"), load.replace(f".b{bits}", f".{kind}")
        sources = f"{kind} {kind}"
        made = rows(
            FAMILY,
            f"atom.{space}.{op}",
            kind,
            sources,
            f"{head}{store}{{op}} {{d}}, [%q], {{b}};",
            note="before",
        )
        register = {"f32": ".f32", "f64": ".f64"}.get(kind, f".b{bits}")
        after = f"{head}{store}.reg {register} %old;\n{{op}} %old, [%q], {{b}};\n{load}"
        made += rows(FAMILY, f"atom.{space}.{op}", kind, sources, after, note="after")
        if not op.startswith("exch"):
            made += rows(
                FAMILY, f"red.{space}.{op}", kind, sources, f"{head}{store}{{op}} [%q], {{b}};\n{load}"
            )
        forms += [Form(f.name, f.family, f.result, f.sources, f.body, _DECLARATION[space]) for f in made]
    return forms


def _compare_and_swap(space: str) -> list[Form]:
    """The comparand is the word itself for odd values of ``c``, so that half of them succeed."""
    forms: list[Form] = []
    for bits in (16, 32, 64):
        head = _ADDRESSES[space] + f".reg .b{bits} %old, %with, %odd;\n.reg .pred %is;\n"
        head += f"and.b{bits} %odd, {{c}}, 1;\nsetp.ne.b{bits} %is, %odd, 0;\n"
        head += f"selp.b{bits} %with, {{a}}, {{c}}, %is;\n"
        head += f"st.{space}.b{bits} [%q], {{a}};\n"
        sources = f"b{bits} b{bits} b{bits}"
        made = rows(
            FAMILY,
            f"atom.{space}.cas.b{bits}",
            f"b{bits}",
            sources,
            head + "{op} {d}, [%q], %with, {b};",
            note="before",
        )
        after = head + "{op} %old, [%q], %with, {b};\n" + f"ld.{space}.b{bits} {{d}}, [%q];"
        made += rows(FAMILY, f"atom.{space}.cas.b{bits}", f"b{bits}", sources, after, note="after")
        forms += [Form(f.name, f.family, f.result, f.sources, f.body, _DECLARATION[space]) for f in made]
    return forms


def _orders() -> list[Form]:
    head = _ADDRESSES["global"] + "st.global.b32 [%q], {a};\n"
    patterns = ["atom[.relaxed|.acquire|.release|.acq_rel][.cta|.cluster|.gpu|.sys].global.add.u32"]
    made = rows(FAMILY, patterns, "u32", "u32 u32", head + "{op} {d}, [%q], {b};", note="order")
    reductions = ["red[.relaxed|.release][.cta|.cluster|.gpu|.sys].global.add.u32"]
    made += rows(
        FAMILY, reductions, "u32", "u32 u32", head + "{op} [%q], {b};\nld.global.b32 {d}, [%q];", note="order"
    )
    return [Form(f.name, f.family, f.result, f.sources, f.body, _DECLARATION["global"]) for f in made]


_CONTENDED = """\
.reg .b32 %s;
.reg .pred %first;
setp.eq.u32 %first, %thread, 0;
mov.u32 %s, cell;
@%first st.shared.b{bits} [%s], START;
bar.sync 0;
{{op}} [%s], {value};
bar.sync 0;
ld.shared.b{bits} {{d}}, [%s];"""


def _contended() -> list[Form]:
    """All threads of a block on one shared word; each reads the outcome after a barrier."""
    forms: list[Form] = []
    for op in _PLAIN:
        if op.startswith("exch"):
            continue
        kind = _kind(op)
        value = "77" if op.startswith(("inc", "dec")) else "{a}"
        body = _CONTENDED.format(bits=_bits(kind), value=value).replace("START", "13")
        name, declaration = f"red.shared.{op} contended", ".shared .align 8 .b8 cell[8];"
        forms.append(
            Form(name, FAMILY, kind, (kind,), body.replace("{op}", f"red.shared.{op}"), declaration, True)
        )
    return forms


def forms() -> list[Form]:
    """All rows."""
    made = [form for space in _SPACES for form in _own(space) + _compare_and_swap(space)]
    return made + _orders() + _contended()
