"""LLVM's own faults on AMDGPU, kept from happening: optimised IR in, the same IR with fences out."""

from __future__ import annotations

import re

_PRODUCT = re.compile(r"^  (%\S+) = fmul .*?(?:float|>) ", re.MULTILINE)
_NARROWING = re.compile(
    r"^(  %\S+ = fptrunc) ((?:<\d+ x )?float>?) (%\S+) to ((?:<\d+ x )?half>?)", re.MULTILINE
)


def may_fuse(text: str) -> bool:
    """Whether :func:`fence_products` can find anything in what this IR is optimised to."""
    return "fptrunc" in text and "half" in text


def fence_products(text: str) -> str:
    """Keep a product from being fused with its rounding to half.

    LLVM 22 selects ``v_fma_mixlo_f16 a, b, 0`` for ``fptrunc(a * b)``: a product of -0 becomes +0. Between
    the two stands assembly without an instruction (``llvm.arithmetic.fence`` is not selected for VGPRs).
    """
    products = set(_PRODUCT.findall(text))

    def fence(match: re.Match[str]) -> str:
        narrow, wide, value, half = match.groups()
        if value not in products:
            return match[0]
        name = f"%product.{match.start()}"
        return f'  {name} = call {wide} asm "", "=v,0"({wide} {value})\n{narrow} {wide} {name} to {half}'

    return _NARROWING.sub(fence, text)
