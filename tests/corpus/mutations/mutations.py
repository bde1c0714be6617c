"""The faults: each replaces one entry of the lowering tables once they are filled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

Mutation = Callable[[], None]


def _replaced(instruction: Any, **slots: str) -> Any:
    return dataclasses.replace(instruction, slots={**instruction.slots, **slots})


def _lanewise(opcode: str, broken: Callable[..., Any]) -> Mutation:
    """``broken(lower, b, instruction, operands)`` in place of the opcode's lane-wise lowering ``lower``."""

    def mutate() -> None:
        from zluda.compiler.lower.lanewise import LANEWISE

        lower = LANEWISE[opcode]
        LANEWISE[opcode] = lambda b, instruction, operands: broken(lower, b, instruction, operands)

    return mutate


def _warp(opcode: str, broken: Callable[..., Any]) -> Mutation:
    """``broken(lower, f, instruction)`` in place of the lowering over ``TargetOps``."""

    def mutate() -> None:
        from zluda.compiler.lower.families import LOWERINGS, find

        lower = find(opcode)
        LOWERINGS[opcode] = lambda f, instruction: broken(lower, f, instruction)

    return mutate


def _add_is_sub(lower: Any, b: Any, instruction: Any, operands: Any) -> Any:
    from zluda.compiler.lower.lanewise import LANEWISE

    if instruction.type.kind == "f":  # integers make addresses
        return LANEWISE["sub"](b, dataclasses.replace(instruction, opcode="sub"), operands)
    return lower(b, instruction, operands)


def _fma_rounds_twice(lower: Any, b: Any, instruction: Any, operands: Any) -> Any:
    from zluda.compiler.lower.lanewise import LANEWISE

    product = LANEWISE["mul"](b, dataclasses.replace(instruction, opcode="mul"), operands[:2])
    return LANEWISE["add"](b, dataclasses.replace(instruction, opcode="add"), [product, operands[2]])


def _one_ulp_more(lower: Any, b: Any, instruction: Any, operands: Any) -> Any:
    from zluda.compiler.lower.lanewise import as_bits, as_float

    result = lower(b, instruction, operands)
    return as_float(b, b.add(as_bits(b, result, result.width), 1), instruction.type)


def _lane_zero(lower: Any, f: Any, instruction: Any) -> None:
    from zluda.ptx import Immediate

    operands = list(instruction.operands)
    operands[2] = Immediate(0)
    lower(f, dataclasses.replace(instruction, operands=tuple(operands)))


def _negated_vote(lower: Any, f: Any, instruction: Any) -> None:
    from zluda.ptx import Negated

    operands = list(instruction.operands)
    operands[1] = Negated(operands[1])
    lower(f, dataclasses.replace(instruction, operands=tuple(operands)))


def _operation(was: str, becomes: str) -> Callable[..., None]:
    def broken(lower: Any, f: Any, instruction: Any) -> None:
        changed = instruction.slots["op"] == was
        lower(f, _replaced(instruction, op=becomes) if changed else instruction)

    return broken


def _rounds_down(lower: Any, b: Any, instruction: Any, operands: Any) -> Any:
    return lower(b, _replaced(instruction, rnd="rm"), operands)


def _rounded_terms() -> None:
    """Terms of a tensor core's sum rounded where they are to be cut."""
    from zluda.compiler.lower import tensor_step

    def cut(b: Any, term: Any, lift: Any) -> Any:
        exponent = b.intrinsic("smax", b.add(term.code, lift), 1)
        scale = b.bitcast(b.shl(exponent, 23), "float")
        return b.cast("fptosi", b.intrinsic("rint", b.fmul(term.significand, scale)), "i32")

    tensor_step._cut = cut


def _next_chunk() -> None:
    """The metadata of a sparse matrix read from the chunk beside."""
    from zluda.compiler.lower import tensor_mma

    place = tensor_mma.metadata_place
    tensor_mma.metadata_place = lambda kind, k, half, chunk, selector: place(
        kind, k, half, chunk ^ 1, selector
    )


def _unturned(lower: Any, f: Any, instruction: Any) -> None:
    slots = {name: word for name, word in instruction.slots.items() if name != "trans"}
    lower(f, dataclasses.replace(instruction, slots=slots))


def _native(name: str, factor: float) -> Mutation:
    """A constant of the native lowering that is off, on every target."""

    def mutate() -> None:
        from zluda.compiler.amd import approximate as amd
        from zluda.compiler.cpu import approximate as cpu

        for table in (amd.NATIVE, cpu.NATIVE):
            row = table[name]
            table[name] = dataclasses.replace(row, emit=_scaled(row.emit, factor))

    return mutate


def _scaled(emit: Any, factor: float) -> Any:
    return lambda b, xs: b.fmul(emit(b, xs), factor)


MUTATIONS: dict[str, Mutation] = {
    "native_power_is_off": _native("ex2.approx.ftz.f32", 1 + 1e-4),
    "native_logarithm_is_off": _native("lg2.approx.f32", 1 + 1e-4),
    "native_root_is_off": _native("rsqrt.approx.f32", 1 - 1e-4),
    "nothing": lambda: None,
    "add_is_sub": _lanewise("add", _add_is_sub),
    "fma_rounds_twice": _lanewise("fma", _fma_rounds_twice),
    "fma_rounds_down": _lanewise("fma", _rounds_down),
    "square_root_is_off_by_one": _lanewise("sqrt", _one_ulp_more),
    "reciprocal_square_root_is_off_by_one": _lanewise("rsqrt", _one_ulp_more),
    "shuffle_ignores_the_lane": _warp("shfl", _lane_zero),
    "ballot_is_inverted": _warp("vote", _negated_vote),
    "atomic_add_is_or": _warp("atom", _operation("add", "or")),
    "atomic_maximum_is_minimum": _warp("atom", _operation("max", "min")),
    "terms_are_rounded": _rounded_terms,
    "metadata_is_of_the_next_chunk": _next_chunk,
    "matrices_are_not_turned": _warp("ldmatrix", _unturned),
    "barrier_does_nothing": _warp("bar", lambda lower, f, instruction: None),
}
