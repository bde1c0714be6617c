"""LLVM's own faults on AMDGPU, kept from happening: optimised IR in, the same IR with fences out."""

from __future__ import annotations

import re

from zluda.patterns import pattern

_PRODUCT = pattern(r"^  (%\S+) = fmul .*?(?:float|>) ", re.MULTILINE)
_NARROWING = pattern(
    r"^(  %\S+ = fptrunc) ((?:<\d+ x )?float>?) (%\S+) to ((?:<\d+ x )?half>?)", re.MULTILINE
)
_BALLOT = pattern(r"^(  %\S+ = .*call i\d+ @llvm\.amdgcn\.ballot\.i\d+\(i1) (%[^)\s]+)(\).*)", re.MULTILINE)
_WHOLE_COMPARISON = pattern(r"^  (%\S+) = icmp ", re.MULTILINE)
_BELOW = ("ult", "ugt")
_FUNCTION = pattern(r"^define .*?^}", re.MULTILINE | re.DOTALL)
_SUM = pattern(r"^  (%\S+) = (add|sub) (?:\w+ )*(i32|i64) ([^\s,]+), ([^\s,]+)$", re.MULTILINE)
_CARRY = pattern(r"^  (%\S+) = zext (?:nneg )?i1 \S+ to i(?:32|64)$", re.MULTILINE)
_COMPARISON = pattern(r"^  %\S+ = icmp (?:samesign )?(\w+) i(?:32|64) ([^\s,]+), ([^\s,]+)$", re.MULTILINE)
_DEFINITION = pattern(r"^  (%\S+) = (\w+) ", re.MULTILINE)
_NO_SUMS = {"load", "phi", "extractelement"}

_SUB_DWORD = (8, 9, 10)
"""Generations whose operands can be bytes and halves of registers (SDWA)."""
_VALUE = re.compile(r"^  (%\S+) = (?:tail )?(\w+) (.*)", re.MULTILINE)
_OPERAND = re.compile(r"%[^\s,()]+")
_READ_AS_FLOAT = re.compile(
    r"^  (%\S+) = bitcast (?:i\d+|<\d+ x i\d+>) (%\S+) to ((?:<\d+ x )?(?:half|float)>?)$", re.MULTILINE
)
_EXTENDS = {"sext", "ashr", "sdiv", "srem"}
_SIGNED_FIELD = "@llvm.amdgcn.sbfe"
_SAME_REGISTER = {
    *("trunc", "freeze", "bitcast", "select", "phi"),
    *("extractelement", "insertelement", "shufflevector"),
    *("or", "and", "xor"),  # where known bits make them nothing
}


def fence(text: str, generation: int) -> str:
    """Every fence of this module that code for GPUs of a generation needs."""
    text = fence_carries(fence_ballots(fence_products(text)))
    return fence_signs(text) if generation in _SUB_DWORD else text


def may_need_fences(text: str, generation: int) -> bool:
    """Whether :func:`fence` can find anything in what this IR is optimised to."""
    return (
        ("fptrunc" in text and "half" in text)
        or ("ballot" in text and "fcmp" in text)
        or ("icmp ult i" in text and "zext i1" in text)
        or (generation in _SUB_DWORD and _may_extend(text))
    )


def _may_extend(text: str) -> bool:
    return (" to half" in text or " to float" in text) and any(f" = {opcode} " in text for opcode in _EXTENDS)


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


def fence_carries(text: str) -> str:
    """Keep a sum from being fused with a carry added to it, where the carry out of that is asked for.

    LLVM 22 makes ``a + b + carry`` of ``(a + b) + carry``, whose carry out is another one. A sum whose own
    carry is asked for is not concerned: the three become one addition, rightly.
    """
    if _CARRY.search(text) is None:
        return text
    return _FUNCTION.sub(lambda function: _with_carries_apart(function[0]), text)


def _with_carries_apart(function: str) -> str:
    carries = set(_CARRY.findall(function))
    if not carries:
        return function
    comparisons: list[tuple[str, str, str]] = _COMPARISON.findall(function)
    compared = {value for _, *pair in comparisons for value in pair}
    below = {(x, y) if how == "ult" else (y, x) for how, x, y in comparisons if how in _BELOW}
    whole = {
        name
        for name, how, _, *operands in _SUM.findall(function)
        if how == "add" and any((name, x) in below for x in operands)
    }
    sums = (
        {name for name, opcode in _DEFINITION.findall(function) if opcode not in _NO_SUMS} - whole - carries
    )

    def apart(match: re.Match[str]) -> str:
        total, opcode, kind, *operands = match.groups()
        first = next((x for x in operands if x in sums), None)
        if total not in compared or first is None or carries.isdisjoint(operands):
            return match[0]
        again = f"%sum.{match.start()}"
        rest = ", ".join(again if x == first else x for x in operands)
        return f'  {again} = call {kind} asm "", "=v,0"({kind} {first})\n  {total} = {opcode} {kind} {rest}'

    return _SUM.sub(apart, function)


def fence_signs(text: str) -> str:
    """Keep the extension of a sign from becoming part of an instruction that reads its operand as a float.

    LLVM 22's peephole for SDWA makes an operand ``sext(v1), BYTE_0`` of an extended byte, and the same of
    halves. Instructions on floats have no such modifier: encoded, it is gone, and the operand is extended
    by zeros. Between the two stands assembly without an instruction.
    """
    if not _READ_AS_FLOAT.search(text):
        return text
    return _FUNCTION.sub(lambda function: _with_signs_apart(function[0]), text)


def _with_signs_apart(function: str) -> str:
    extended = _extended(function)
    if not extended:
        return function

    def apart(read: re.Match[str]) -> str:
        name, value, kind = read.groups()
        if value not in extended:
            return read[0]
        before = f"%signed.{read.start()}"
        cast = read[0].replace(f"  {name} =", f"  {before} =", 1)
        return f'{cast}\n  {name} = call {kind} asm "", "=v,0"({kind} {before})'

    return _READ_AS_FLOAT.sub(apart, function)


def _extended(function: str) -> set[str]:
    """The values whose register may be one that an extension of a sign wrote.

    Halves of 64 bits are registers of their own, and what leaves one as it is is no instruction.
    """
    users: dict[str, list[str]] = {}
    found: list[str] = []
    for name, opcode, rest in _VALUE.findall(function):
        if opcode in _EXTENDS or (opcode == "call" and _SIGNED_FIELD in rest):
            found.append(name)
        elif opcode in _SAME_REGISTER or " i64 " in f" {rest}":
            for operand in _OPERAND.findall(rest):
                users.setdefault(operand, []).append(name)
    extended = set(found)
    while found:
        for user in users.pop(found.pop(), ()):
            if user not in extended:
                extended.add(user)
                found.append(user)
    return extended
