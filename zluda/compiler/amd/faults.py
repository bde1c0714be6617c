"""LLVM's own faults on AMDGPU, kept from happening: optimised IR in, the same IR with fences out."""

from __future__ import annotations

import re

_PRODUCT = re.compile(r"^  (%\S+) = fmul .*?(?:float|>) ", re.MULTILINE)
_NARROWING = re.compile(
    r"^(  %\S+ = fptrunc) ((?:<\d+ x )?float>?) (%\S+) to ((?:<\d+ x )?half>?)", re.MULTILINE
)
_BALLOT = re.compile(
    r"^(  %\S+ = .*call i\d+ @llvm\.amdgcn\.ballot\.i\d+\(i1) (%[^)\s]+)(\).*)", re.MULTILINE
)
_WHOLE_COMPARISON = re.compile(r"^  (%\S+) = icmp ", re.MULTILINE)


def fence(text: str) -> str:
    """Every fence of this module."""
    return fence_ballots(fence_products(text))


def may_need_fences(text: str) -> bool:
    """Whether :func:`fence` can find anything in what this IR is optimised to."""
    return ("fptrunc" in text and "half" in text) or ("ballot" in text and "fcmp" in text)


def fence_ballots(text: str) -> str:
    """Keep a ballot from being fused with the comparison of floats that it asks about.

    LLVM 22 selects ``v_cmp_neq`` for ``ballot(fcmp one …)``, which holds for NaNs too; and it makes ``one``
    of other comparisons. Between the two stands assembly without an instruction.
    """
    whole = set(_WHOLE_COMPARISON.findall(text))

    def apart(match: re.Match[str]) -> str:
        call, asked, rest = match.groups()
        if asked in whole:
            return match[0]
        wide, same, again = (f"%ballot.{kind}.{match.start()}" for kind in ("wide", "same", "asked"))
        return (
            f"  {wide} = zext i1 {asked} to i32\n"
            f'  {same} = call i32 asm "", "=v,0"(i32 {wide})\n'
            f"  {again} = icmp ne i32 {same}, 0\n{call} {again}{rest}"
        )

    return _BALLOT.sub(apart, text) if "fcmp" in text else text


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
