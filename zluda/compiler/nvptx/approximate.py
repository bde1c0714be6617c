"""Approximate instructions by the GPU's own: NVIDIA's, so that both numerics are one."""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value


def compute(b: Builder, name: str, xs: list[Value]) -> Value:
    """See :data:`zluda.compiler.ir.Approximate`."""
    kind = name.rsplit(".", 1)[1]
    if kind in ("f16", "bf16"):
        return _half(b, name, kind, xs[0])
    constraint, element = {"f32": ("f", "float"), "f64": ("l", "i64")}[kind]
    numbers = ", ".join(f"${i + 1}" for i in range(len(xs)))
    constraints = ",".join([f"={constraint}", *[constraint] * len(xs)])
    arguments = ", ".join(x.typed for x in xs)
    return b.pure(element, 1, f'call {element} asm "{name} $0, {numbers};", "{constraints}"({arguments})')


def _half(b: Builder, name: str, kind: str, x: Value) -> Value:
    """An operand that was widened, in its 16 bits again: no rounding is needed."""
    if kind == "f16":
        bits = b.bitcast(b.cast("fptrunc", x, "half"), "i16")
    else:
        bits = b.trunc(b.lshr(b.bitcast(x, "i32"), 16), "i16")
    found = b.pure("i16", 1, f'call i16 asm "{name} $0, $1;", "=h,h"({bits.typed})')
    return b.bitcast(found, "half") if kind == "f16" else found
