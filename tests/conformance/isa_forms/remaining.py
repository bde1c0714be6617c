"""What the other families leave: ``set`` of halves with a predicate, and vectors of ``red``.

PTX ISA 9.7.6.1 and 9.7.13.7.
"""

from __future__ import annotations

from isa_forms.asynchronous import _FAR, _SCRATCH
from isa_forms.compare import _HALVES, _comparisons, _flush
from isa_forms.form import Form, rows

FAMILY = "remaining"


def _sets() -> list[Form]:
    forms: list[Form] = []
    for kind in _HALVES:
        compare, flush, sources = _comparisons(kind), _flush(kind), f"{kind} {kind} pred"
        forms += rows(FAMILY, f"set.({compare}).(and|or|xor){flush}.u32.{kind}", "u32", sources)
        forms += rows(FAMILY, f"set.(lt|equ|num).(and|or|xor){flush}.s32.{kind}", "s32", sources)
        forms += rows(FAMILY, f"set.(ge|ne|nan).(and|or|xor){flush}.{kind}.{kind}", kind, sources)
    return forms


def _reductions() -> list[Form]:
    """What is in memory afterwards: up to 16 bytes, of which each counts in a result of eight."""
    forms = [_reduction("add", "f32", 32, count) for count in (2, 4)]
    for kind in _HALVES:
        bits = 32 if kind.endswith("x2") else 16
        for count in (2, 4, 8) if bits == 16 else (2, 4):
            forms += [_reduction(f"{op}.noftz", kind, bits, count) for op in ("add", "min", "max")]
    return forms


def _reduction(op: str, kind: str, bits: int, count: int) -> Form:
    given = ", ".join(("{a}", "{b}")[k % 2] for k in range(count))
    access = "f32" if kind == "f32" else f"b{bits}"
    text = _FAR + "mov.b64 %z, 0;\nst.global.b64 [%far], %z;\nst.global.b64 [%far+8], %z;\n"
    for k in range(count):
        text += f"st.global.{access} [%far+{k * bits // 8}], {'{b}' if k % 3 else '{a}'};\n"
    text += f"red.global.{op}.v{count}.{kind} [%far], {{{given}}};\n"
    text += "ld.global.b64 {d}, [%far];\nld.global.b64 %z, [%far+8];\n"
    text += "shl.b64 %w, {d}, 7;\nshr.b64 {d}, {d}, 57;\nor.b64 {d}, {d}, %w;\nxor.b64 {d}, {d}, %z;"
    return Form(f"red.global.{op}.v{count}.{kind}", FAMILY, "b64", (kind, kind), text, _SCRATCH)


def forms() -> list[Form]:
    """All rows."""
    return _sets() + _reductions()
