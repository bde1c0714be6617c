"""LLVM's own faults on AMDGPU, kept from happening: optimised IR in, the same IR with fences out."""

from __future__ import annotations

import re

from zluda.compiler.values import mangle

_PRODUCT = re.compile(r"^  (%\S+) = fmul .*?(?:float|>) ", re.MULTILINE)
_NARROWING = re.compile(
    r"^(  %\S+ = fptrunc) ((?:<(\d+) x )?float>?) (%\S+) to ((?:<\d+ x )?half>?)", re.MULTILINE
)


def fence_products(text: str) -> str:
    """Keep a product from being fused with its rounding to half.

    LLVM 22 selects ``v_fma_mixlo_f16 a, b, 0`` for ``fptrunc(a * b)``: a product of -0 becomes +0 there.
    """
    products = set(_PRODUCT.findall(text))
    used: set[str] = set()

    def fence(match: re.Match[str]) -> str:
        narrow, wide, lanes, value, half = match.groups()
        if value not in products:
            return match[0]
        intrinsic = f"@llvm.arithmetic.fence.{mangle('float', int(lanes or 1))}"
        used.add(f"declare {wide} {intrinsic}({wide})")
        name = f"%product.{match.start()}"
        return f"  {name} = call {wide} {intrinsic}({wide} {value})\n{narrow} {wide} {name} to {half}"

    fenced = _NARROWING.sub(fence, text)
    return "\n".join([fenced, *sorted(d for d in used if d not in fenced)])
