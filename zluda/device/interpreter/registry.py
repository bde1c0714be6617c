"""Which function executes which opcode, and what kind of instruction it is.

Three kinds: a *lane* instruction has nothing to do with other threads, or does not mind which of them come
to it together; a *warp* instruction waits for the lanes that it names; a *control* instruction says where
its threads go next.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.device.interpreter.step import Step
    from zluda.ptx.module import Instruction

Execute = Callable[["Step"], None]


@dataclass(frozen=True, slots=True)
class Opcode:
    """``kind`` is ``"lane"``, ``"warp"`` or ``"control"``."""

    execute: Execute
    kind: str


OPCODES: dict[str, Opcode] = {}
"""Filled by the modules of :data:`FAMILIES`."""

FAMILIES = (
    "integer",
    "extended",
    "logic",
    "floating",
    "approximate",
    "compare",
    "convert",
    "small_floats",
    "moves",
    "memory",
    "atomics",
    "warp",
    "barriers",
    "control",
    "video",
    "asynchronous",
    "matrix",
)


def _register(kind: str, names: tuple[str, ...]) -> Callable[[Execute], Execute]:
    def add(execute: Execute) -> Execute:
        OPCODES.update(dict.fromkeys(names, Opcode(execute, kind)))
        return execute

    return add


def lane(*names: str) -> Callable[[Execute], Execute]:
    """Of an instruction that each thread executes by itself."""
    return _register("lane", names)


def warp(*names: str) -> Callable[[Execute], Execute]:
    """Of an instruction that waits for other lanes of its warp."""
    return _register("warp", names)


def control(*names: str) -> Callable[[Execute], Execute]:
    """Of an instruction that decides where its threads go on."""
    return _register("control", names)


def load() -> dict[str, Opcode]:
    """All opcodes, their modules imported."""
    if not OPCODES:
        for family in FAMILIES:
            importlib.import_module(f"zluda.device.interpreter.opcodes.{family}")
    return OPCODES


def spelled(inst: Instruction) -> str:
    """The name of an instruction in :data:`OPCODES`: ``bar.warp.sync`` is another thing than ``bar.sync``."""
    return "bar.warp" if inst.opcode == "bar" and ("warp" in inst.slots) else inst.opcode
