"""LLVM's own faults on x86, kept from happening: optimised IR in, the same IR with fences out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from zluda.patterns import pattern

_FUNCTION = pattern(r"^define .*?^}", re.MULTILINE | re.DOTALL)
_MERGE = pattern(
    r"^(  %\S+ = select (?:\w+ )*<(\d+) x i1> %\S+, )"
    r"(<\2 x (i32|i64|float|double)>) (%[^\s,]+), \3 (%[^\s,]+)",
    re.MULTILINE,
)
_BITS = {"i32": 32, "i64": 64, "float": 32, "double": 64}
_VALUE = pattern(r"^  (%\S+) = (or|xor|and|zext|trunc|bitcast|freeze) (.*)", re.MULTILINE)
_OPERAND = pattern(r"%[^\s,()]+")
_DEPTH = 4
_REGISTER = 512  # bits

_RESULT = pattern(r"^  (%\S+) = ([a-z]\w*) (.*)", re.MULTILINE)
_LITERAL = pattern(r"<i\d+ [^>]")
_WIDENED = pattern(r"^  %\S+ = [sz]ext <(\d+) x i1> (%\S+) to <\1 x (i32|i64)>$", re.MULTILINE)
_STARTS = frozenset({"load", "phi", "call"})
_BOTH = ("and", "select")  # conditions that hold together

_Values = dict[str, tuple[str, list[str]]]


def fence_merges(text: str) -> str:
    """Keep a choice of bits from being fused with a choice of lanes after it.

    For ``select(lanes, x & C | y & ~C, x)`` LLVM 22 writes ``vpternlogd`` with a mask, and where it takes
    ``y`` or ``C`` from memory, with the truth table of another order of operands. Between the two stands
    assembly without an instruction.
    """
    return _FUNCTION.sub(lambda function: _fenced(function[0]), text) if _MERGE.search(text) else text


def fence_conditions(text: str) -> str:
    """Keep LLVM from combining sums with ``zext(a & b)``, where constants that differ by lane made ``a``.

    Where a vector takes several registers, and the constants make ``a`` false in all lanes of one of them
    (``x + 0 < x``) but not of others, code generation of LLVM 22 combines the sum for ever. Between the
    two stands assembly without an instruction.
    """
    return _FUNCTION.sub(lambda f: _conditions_fenced(f[0]), text) if _WIDENED.search(text) else text


def _conditions_fenced(function: str) -> str:
    if not any(_several(widened) for widened in _WIDENED.finditer(function)):
        return function
    opcodes: dict[str, str] = {}
    apart: set[str] = set()  # values that lanes' constants made
    for name, opcode, rest in _RESULT.findall(function):
        opcodes[name] = opcode
        if opcode not in _STARTS and (
            (opcode != "shufflevector" and _LITERAL.search(rest))
            or not apart.isdisjoint(_OPERAND.findall(rest))
        ):
            apart.add(name)

    def fenced(widened: re.Match[str]) -> str:
        lanes, condition, element = int(widened[1]), widened[2], widened[3]
        if not (_several(widened) and opcodes.get(condition) in _BOTH and condition in apart):
            return widened[0]
        name, _, value = widened[0].strip().partition(" = ")
        before = f"%condition.{widened.start()}"
        *lines, last = _opaque(before, f"{before}.again", lanes, element)
        last = last.replace(f"{before}.again =", f"{name} =")  # a number, maybe, which no name may begin with
        return "\n".join([f"  {before} = {value}", *lines, last])

    return _WIDENED.sub(fenced, function)


def _several(widened: re.Match[str]) -> bool:
    """Whether it takes several registers."""
    return int(widened[1]) * _BITS[widened[3]] > _REGISTER


def _fenced(function: str) -> str:
    values: _Values = {
        name: (opcode, _OPERAND.findall(rest)) for name, opcode, rest in _VALUE.findall(function)
    }

    def apart(merge: re.Match[str]) -> str:
        head, lanes, kind, element, *chosen = merge.groups()
        lines, operands = [], []
        for position, value in enumerate(chosen):
            if _chooses_bits(values, value):
                again = f"%bits.{merge.start()}.{position}"
                lines += _opaque(value, again, int(lanes), element)
                value = again
            operands.append(f"{kind} {value}")
        return "\n".join([*lines, head + ", ".join(operands)])

    return _MERGE.sub(apart, function)


def _chooses_bits(values: _Values, value: str) -> bool:
    """Whether LLVM may make a value of a mask's bits of one value and the other bits of another."""
    opcode, operands = values.get(value, ("", []))
    while opcode in ("bitcast", "freeze"):
        opcode, operands = values.get(operands[0] if operands else "", ("", []))  # none of a constant
    if opcode not in ("or", "xor"):
        return False
    below = [name for operand in operands for name in (operand, *_below(values, operand, _DEPTH))]
    return any(values.get(name, ("",))[0] in ("and", "zext") for name in below)


def _below(values: _Values, value: str, depth: int) -> Iterator[str]:
    """The operands of a value, their operands and so on."""
    for operand in values[value][1] if value in values and depth else ():
        yield operand
        yield from _below(values, operand, depth - 1)


def _opaque(value: str, again: str, lanes: int, element: str) -> list[str]:
    """``again``: the lanes of ``value``, through assembly a register at a time."""
    width = min(lanes, _REGISTER // _BITS[element])
    whole, piece = f"<{lanes} x {element}>", f"<{width} x {element}>"
    if width == lanes:
        return [f'  {again} = call {whole} asm "", "=v,0"({whole} {value})']
    lines, joined = [], "poison"
    for at in range(0, lanes, width):
        part, same, wide, next_ = (f"{again}.{name}.{at}" for name in ("part", "same", "wide", "joined"))
        next_ = again if at + width == lanes else next_
        lines += [
            f"  {part} = shufflevector {whole} {value}, {whole} poison, {_indices(range(at, at + width))}",
            f'  {same} = call {piece} asm "", "=v,0"({piece} {part})',
            f"  {wide} = shufflevector {piece} {same}, {piece} poison, "
            f"{_indices(min(i, width) for i in range(lanes))}",
            f"  {next_} = shufflevector {whole} {joined}, {whole} {wide}, "
            f"{_indices(i + lanes - at if at <= i < at + width else i for i in range(lanes))}",
        ]
        joined = next_
    return lines


def _indices(chosen: Iterable[int]) -> str:
    """A shuffle's mask."""
    indices = [f"i32 {i}" for i in chosen]
    return f"<{len(indices)} x i32> <{', '.join(indices)}>"
