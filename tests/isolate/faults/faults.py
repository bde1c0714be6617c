"""One fault of each layer: the module that is spoilt, and how."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any


def _lowering(families: Any) -> None:
    """Of what all targets share: a sum of floats is a difference."""
    import dataclasses

    from zluda.compiler.lower.lanewise import LANEWISE

    lower = LANEWISE["add"]

    def broken(b: Any, instruction: Any, operands: Any) -> Any:
        if instruction.type.kind == "f":
            return LANEWISE["sub"](b, dataclasses.replace(instruction, opcode="sub"), operands)
        return lower(b, instruction, operands)

    LANEWISE["add"] = broken


def _amd_lowering(warp: Any) -> None:
    """Of AMD's own operations: a shuffle takes the lane beside the right one."""
    shuffle = warp.WarpOps.shuffle

    def broken(self: Any, f: Any, mode: str, value: Any, lane: Any, clamp: Any) -> Any:
        return shuffle(self, f, mode, value, warp.one(f.b.xor(lane.parts[0], 1)), clamp)

    warp.WarpOps.shuffle = broken


def _emulator(vector_float: Any) -> None:
    """A row of the emulator: sums are differences."""
    vector_float.TABLE = vector_float.TABLE.replace("D.f32 = S0.f32 + S1.f32", "D.f32 = S0.f32 - S1.f32")


def _optimiser(llvm: Any) -> None:
    """LLVM's passes for AMD make differences of sums."""
    optimised = llvm._optimised

    def broken(text: str, machine: Any, level: int) -> Any:
        module = optimised(text, machine, level)
        return llvm._parse(str(module).replace(" fadd ", " fsub ")) if level else module

    llvm._optimised = broken


def _flipped_bit(llvm: Any) -> None:
    """One bit of a code object for gfx1030: the first v_add_f32 (VOP2, opcode 3) multiplies (opcode 7)."""
    emit = llvm.emit

    def broken(text: str, options: Any) -> bytes:
        code = bytearray(emit(text, options))
        if options.target == "gfx1030" and options.kind == "obj":
            for at in range(0x100, len(code) - 3, 4):
                (word,) = struct.unpack_from("<I", code, at)
                if word >> 25 == 3:
                    code[at + 3] ^= 1 << 3
                    break
        return bytes(code)

    llvm.emit = broken


def _fill(memory: Any) -> None:
    """The runtime fills memory with another value."""
    fill = memory.MemoryEntries._fill

    def broken(self: Any, destination: int, value: int, size: int, count: int) -> None:
        fill(self, destination, value ^ 1, size, count)

    memory.MemoryEntries._fill = broken


FAULTS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "lowering": ("zluda.compiler.lower.families", _lowering),
    "amd_lowering": ("zluda.compiler.amd.warp", _amd_lowering),
    "emulator": ("zluda.device.amd.emulator.table.vector_float", _emulator),
    "optimiser": ("zluda.compiler.amd.llvm", _optimiser),
    "flipped_bit": ("zluda.compiler.amd.llvm", _flipped_bit),
    "fill": ("zluda.driver.translated.memory", _fill),
}
