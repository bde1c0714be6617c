"""A candidate: the PTX that is run, the launch's shape, and memory before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from zluda.isolate.alone import Part, Setting, part_of
from zluda.ptx import parse_module
from zluda.records import dataclass
from zluda.tracefile import Dim3


@dataclass(frozen=True, slots=True)
class Case:
    """``memory`` are the contents of allocations that are others than on record, by id."""

    part: Part
    text: str
    grid: Dim3
    block: Dim3
    memory: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        """As a stage takes it."""
        return Setting(self.grid, self.block, self.memory)

    @property
    def threads(self) -> int:
        """In the whole grid."""
        x, y, z = (g * b for g, b in zip(self.grid, self.block, strict=True))
        return x * y * z

    @property
    def instructions(self) -> int:
        """Of the kernel and what it calls."""
        return sum(len(function.instructions) for function in self.part.functions)

    def with_text(self, text: str) -> Case:
        """Another PTX, of which the kernel and what it needs are kept. Raises PtxError where it does not
        parse.
        """
        part = part_of(parse_module(text), self.part.kernel)
        for function in part.functions:
            assert function.body is not None or not function.is_entry
        return replace(self, part=part, text=part.text())

    def with_memory(self, allocation: int, data: bytes) -> Case:
        """Other contents of an allocation."""
        return replace(self, memory={**self.memory, allocation: data})
