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

_TRAP = pattern(r"^  (?:tail )?call void @llvm\.trap\(\).*\n(?=  unreachable$)", re.MULTILINE)

_SIMULATED_TRAPS = 11
"""The generation for which LLVM writes a trap as several blocks of instructions."""

_SUB_DWORD = (8, 9, 10)
"""Generations whose operands can be bytes and halves of registers (SDWA)."""
_VALUE = re.compile(r"^  (%\S+) = (?:tail )?(\w+) (.*)", re.MULTILINE)
_OPERAND = re.compile(r"%[^\s,()]+")
_READ_AS_FLOAT = re.compile(
    r"^  (%\S+) = bitcast (?:i\d+|<\d+ x i\d+>) (%\S+) to ((?:<\d+ x )?(?:half|float)>?)$", re.MULTILINE
)
_EXTENDS = {"sext", "ashr", "sdiv", "srem"}
_SIGNED_FIELD = "@llvm.amdgcn.sbfe"
_CONVERGENT = pattern(
    r"@llvm\.amdgcn\.(?!workitem|workgroup|dispatch|queue|kernarg|implicitarg|mbcnt|lds)\w+"
)
_OR = pattern(r"^  (%\S+) = or (?:disjoint )?(i\d+) ([^\s,]+), ([^\s,]+)$", re.MULTILINE)
_CHOSEN = pattern(r"^  (%\S+) = select i1 ([^\s,]+), (i\d+) ([^\s,]+), i\d+ ([^\s,]+)$", re.MULTILINE)
_LABEL = pattern(r"^(\S+):")
_NO_CHAIN = {"load", "atomicrmw", "cmpxchg", "alloca"}
_WORDS = ("i32", "i64")
_SAME_REGISTER = {
    *("trunc", "freeze", "bitcast", "select", "phi"),
    *("extractelement", "insertelement", "shufflevector"),
    *("or", "and", "xor"),  # where known bits make them nothing
}


def fence(text: str, generation: int) -> str:
    """Every fence of this module that code for GPUs of a generation needs."""
    text = fence_unions(fence_carries(fence_ballots(fence_products(text))))
    text = fence_traps(text) if generation == _SIMULATED_TRAPS else text
    return fence_signs(text) if generation in _SUB_DWORD else text


def may_need_fences(text: str, generation: int) -> bool:
    """Whether :func:`fence` can find anything in what this IR is optimised to."""
    return (
        ("fptrunc" in text and "half" in text)
        or ("ballot" in text and "fcmp" in text)
        or ("icmp ult i" in text and "zext i1" in text)
        or _CONVERGENT.search(text) is not None
        or (generation == _SIMULATED_TRAPS and "@llvm.trap" in text)
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


def fence_unions(text: str) -> str:
    """Keep constants that only the code generator finds out of ``or``.

    LLVM 22 folds ``or x, -1`` of machine code to ``x`` (SIFoldOperands removes the wrong operand). IR has no
    such ``or``; but two ballots that are the same to the code generator are not to IR's passes, and what is
    made of them may be a constant, in another block than the ``or`` that it comes to. There, an operand
    that stems from such a call of another block passes assembly without an instruction.
    """
    if _CONVERGENT.search(text) is None or not (_OR.search(text) or _CHOSEN.search(text)):
        return text
    return _FUNCTION.sub(lambda function: _with_unions_apart(function[0]), text)


def _with_unions_apart(function: str) -> str:
    sources, blocks = _origins(function)

    def hidden(name: str, kind: str, value: str, at: int) -> tuple[str, str]:
        """Lines that hide what is known of a value, and the value after them."""
        if not sources.get(value, set()) - {blocks[name]}:
            return "", value
        wide = kind if kind in _WORDS else "i32"
        first, same, last = (f"%union.{part}.{at}" for part in ("wide", "same", "narrow"))
        extended = f"  {first} = zext {kind} {value} to {wide}\n" if wide != kind else ""
        back = f"\n  {last} = trunc {wide} {same} to {kind}" if wide != kind else ""
        given = first if wide != kind else value
        call = f'  {same} = call {wide} asm "", "=v,0"({wide} {given})'
        return f"{extended}{call}{back}\n", last if back else same

    def union(match: re.Match[str]) -> str:
        name, kind, *values = match.groups()
        lines, kept = zip(
            *(hidden(name, kind, value, match.start() + i) for i, value in enumerate(values)), strict=True
        )
        return (
            "".join(lines) + match[0].replace(", ".join(values), ", ".join(kept)) if any(lines) else match[0]
        )

    def chosen(match: re.Match[str]) -> str:
        name, condition, _, yes, _ = match.groups()
        if yes not in ("true", "-1"):
            return match[0]
        lines, kept = hidden(name, "i1", condition, match.start())
        return lines + match[0].replace(f"select i1 {condition},", f"select i1 {kept},", 1)

    return _OR.sub(union, _CHOSEN.sub(chosen, function)) if any(sources.values()) else function


def _origins(function: str) -> tuple[dict[str, set[str]], dict[str, str]]:
    """For each value the blocks of the convergent calls that it is computed from, and its own block."""
    sources: dict[str, set[str]] = {}
    blocks: dict[str, str] = {}
    block, again = "", True
    while again:  # what a loop carries comes later in the text
        again = False
        for line in function.splitlines():
            if (label := _LABEL.match(line)) is not None:
                block = label[1]
            if (value := _VALUE.match(line)) is None:
                continue
            name, opcode, rest = value.groups()
            blocks[name] = block
            if opcode in _NO_CHAIN:
                continue
            found = {block} if opcode == "call" and _CONVERGENT.search(rest) else set[str]()
            for operand in _OPERAND.findall(rest):
                found |= sources.get(operand, set())
            if found - sources.get(name, set()):
                sources[name] = found
                again = " = phi " in function
    return sources, blocks


def fence_traps(text: str) -> str:
    """Keep a trap from being the last thing in its block.

    For gfx11 LLVM 22 writes a trap as blocks that it puts at a function's end. One at the end of its own
    block has the pass that does so (finalize-isel) go on there: what stands in between is never finished,
    and LLVM stops itself at a second trap, a call, or a sum of 64 bits. Behind the trap stands assembly
    without an instruction.
    """
    return _TRAP.sub(lambda trap: trap[0] + '  call void asm sideeffect "", ""()\n', text)


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
