"""Where PTX's declarations lie: parameter buffers, shared memory, functions' addresses."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from zluda.compiler.target import ParameterSlot
from zluda.ptx.module import Variable
from zluda.ptx.types import ScalarType

FUNCTIONS = "zluda.functions"
"""The symbol by which code finds the address of its module's first function, which its device assigns.

Function pointers are no addresses of code, since each kernel is compiled apart from others; but they are
unique on a device.
"""

FUNCTION_WINDOW = 0x7A1F
"""The upper half of every function's address."""

FUNCTION_STRIDE = 16


ALLOCA = Variable("zluda.alloca", "local", ScalarType.B8, 64, (16 << 10,))
"""What a function has for ``alloca``, a thread (``lower/stack.py``)."""


def round_up(value: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-value // step) * step


def parameter_layout(parameters: Iterable[Variable]) -> tuple[tuple[ParameterSlot, ...], int]:
    """Slots of a packed parameter buffer, and its size: each at its natural or declared alignment."""
    slots: list[ParameterSlot] = []
    offset = 0
    for p in parameters:
        offset = round_up(offset, max(p.align, 1))
        slots.append(ParameterSlot(p.name, offset, p.size, max(p.align, 1)))
        offset += p.size
    return tuple(slots), offset


def function_offset(function_names: Iterable[str], name: str) -> int:
    """A function's address, from that of its module's first one."""
    return FUNCTION_STRIDE * _positions(tuple(function_names))[name]


@cache
def _positions(names: tuple[str, ...]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


class SharedLayout:
    """Offsets of shared variables in a block's shared memory; unsized arrays begin where sized ones end."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        self.offsets: dict[str, int] = {}
        unsized: list[Variable] = []
        end = 0
        for v in variables:
            if v.size == 0:
                unsized.append(v)
                continue
            end = round_up(end, max(v.align, 1))
            self.offsets[v.name] = end
            end += v.size
        self.static_bytes = end
        self.dynamic_offset = (
            round_up(end, max([16, *(v.align for v in unsized)])) if unsized else round_up(end, 16)
        )
        self.offsets |= {v.name: self.dynamic_offset for v in unsized}
