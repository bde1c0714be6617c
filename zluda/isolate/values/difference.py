"""What the search inside a launch answers."""

from __future__ import annotations

from enum import StrEnum

from zluda.records import dataclass
from zluda.tracefile import Dim3


class Kind(StrEnum):
    """In which way two devices part."""

    VALUE = "value"  # an instruction's result differs, its inputs agree
    CONTROL = "control"  # a thread goes another way, though what decides it agrees
    STORE = "store"  # what was written differs, though address and value agree
    ORDER = "order"  # a load gives what another thread writes, and sees another write of it
    APPROXIMATE = "approximate"  # only within the bound of an approximate instruction, whose error then grows


@dataclass(frozen=True, slots=True)
class Input:
    """A register that the instruction read, with the value that both devices had in it."""

    register: str
    type: str
    value: str
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """The first instruction at which device ``device_a`` and ``device_b`` part.

    ``ptx_line`` is 1-based in the PTX of the launch's module and ``text`` the instruction; ``source`` is
    ``file:line`` of the ``.loc`` before it, empty where there is none. ``register`` of type ``type`` is its
    destination (for a store: what was stored), ``occurrence`` how often the thread had executed it before.
    ``value_a`` and ``value_b`` are decoded by the type, ``bits_a`` and ``bits_b`` their patterns. ``within``
    is the bound that both values are within of each other, for :data:`Kind.APPROXIMATE`. ``path`` says how it
    was found: from the result back, one line a store that was followed.
    """

    kind: Kind
    ptx_line: int
    text: str
    source: str
    function: str
    register: str
    type: str
    block: Dim3
    thread: Dim3
    occurrence: int
    inputs: tuple[Input, ...]
    device_a: str
    device_b: str
    value_a: str
    value_b: str
    bits_a: int
    bits_b: int
    within: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"line {self.ptx_line}" + (f" ({self.source})" if self.source else "")
        where = f"block {self.block}, thread {self.thread}, occurrence {self.occurrence}"
        given = "".join(f"; {one.register} = {one.value}" for one in self.inputs)
        values = f"{self.value_a} on {self.device_a}, {self.value_b} on {self.device_b}"
        return f"{place}: {self.text} {where}: {self.register} is {values}{given}"
