"""A compiled kernel as an entry's payload, and back.

What follows from the kernel's text is not kept but taken from the module at hand: names, the parameters'
layout, and the lines at which refused instructions stand. An entry knows those by function and ordinal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zluda.compiler.layout import parameter_layout
from zluda.compiler.target import CompiledKernel, Refusal

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit

_FROM_MODULE = frozenset(("name", "block", "parameters", "parameter_bytes", "refusals"))
_KEPT = tuple(f.name for f in dataclasses.fields(CompiledKernel) if f.name not in _FROM_MODULE)


def encode(compiled: CompiledKernel, unit: Unit) -> bytes | None:
    """The payload; None for a kernel with a refusal that stands at no instruction."""
    import msgpack

    ordinals = {place: found for found, place in _places(unit)}
    if any(r.where not in ordinals for r in compiled.refusals):
        return None
    refusals = [(r.what, *ordinals[r.where]) for r in compiled.refusals]
    packed: bytes = msgpack.packb([[getattr(compiled, name) for name in _KEPT], refusals])
    return packed


def decode(payload: bytes, unit: Unit) -> CompiledKernel:
    """The kernel, with the names and places of ``unit``'s module."""
    import msgpack

    values, refusals = msgpack.unpackb(payload, use_list=False)
    places = dict(_places(unit)) if refusals else {}
    slots, size = parameter_layout(unit.kernel.parameters)
    kept: dict[str, Any] = dict(zip(_KEPT, values, strict=True))
    return CompiledKernel(
        name=unit.kernel.name,
        block=unit.block,
        parameters=slots,
        parameter_bytes=size,
        refusals=tuple(Refusal(what, places[(function, ordinal)]) for what, function, ordinal in refusals),
        **kept,
    )


def _places(unit: Unit) -> Iterator[tuple[tuple[int, int], str]]:
    """(function, ordinal) of each instruction and its place as messages name it."""
    for number, function in enumerate((unit.kernel, *unit.functions.values())):
        for instruction in function.instructions:
            yield (number, instruction.ordinal), unit.place(function, instruction)
