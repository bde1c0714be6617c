"""Addresses on NVIDIA GPUs.

Shared and local addresses are 32 bits, in their own state spaces; others are 64. Variables in shared and
local memory are LLVM's, and so are parameters; those of ``.global`` and ``.const`` are in global memory,
where the device has put them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from zluda.compiler.gpu.memory import GpuMemory
from zluda.compiler.gpu.thread import FLAT, GLOBAL, LOCAL, SHARED, one
from zluda.compiler.ir import Value, constant
from zluda.compiler.nvptx.surroundings import SpecialRegisters, symbol_address
from zluda.compiler.target import UNIFORM, Lanes, Shape

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_NARROW = (SHARED, LOCAL)
_WINDOWED = ("shared", "local", "shared::cluster")
_OWN_TRAPS = ("trap", "brkpt")
"""Of other faults the machine's driver would not tell which it was."""


class MemoryOps(GpuMemory, SpecialRegisters):
    """The memory part of NVPTX's TargetOps."""

    parameters = Value(FLAT, 1, "%parameters")
    spaces = MappingProxyType(
        {"": FLAT, "global": GLOBAL, "const": GLOBAL, "param": FLAT, "shared": SHARED, "local": LOCAL}
    )

    def window(self, f: FunctionCodegen, space: str) -> Value:
        """Where a window begins, as ``cvta`` says; 0 for spaces whose addresses are generic ones."""
        if space not in _WINDOWED:
            return constant("i64", 0)
        name = space.split("::")[0]
        text = f"{{ .reg .b64 %zw; mov.b64 %zw, 0; cvta.{name}.u64 $0, %zw; }}"
        return f.at_entry(
            f"window.{name}", "i64", lambda: [f'%window.{name} = call i64 asm "{text}", "=l"()']
        )

    def in_window(self, f: FunctionCodegen, space: str, address: Lanes) -> Lanes:
        """``isspacep`` of ``.global`` and ``.const``, whose variables are in global memory."""
        b, at = f.b, address.parts[0]
        constant_memory = self.in_const(f, at)
        if space == "const":
            return one(constant_memory)
        text = f"{{ .reg .pred %zp; isspacep.{space} %zp, $1; selp.u32 $0, 1, 0, %zp; }}"
        found = b.icmp("ne", b.define("i32", 1, f'call i32 asm "{text}", "=r,l"({at.typed})'), 0)
        return one(b.and_(found, b.not_(constant_memory)) if space == "global" else found)

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """One thread's: uniform."""
        return UNIFORM

    def placed(self, f: FunctionCodegen, name: str, align: int) -> Value:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        return symbol_address(f, name)

    def shared_symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        return one(f.b.cast("ptrtoint", _shared_variable(f, name), "i32"))

    def stack_address(self, f: FunctionCodegen, pointer: Value) -> Value:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        local = f.b.define(LOCAL, 1, f"addrspacecast {pointer.typed} to {LOCAL}")
        return f.b.cast("ptrtoint", local, "i32")

    def pointer_to(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`. The driver's compiler folds the sum."""
        kind = self.spaces[space]
        bits = "i32" if kind in _NARROW else "i64"
        return f.b.cast("inttoptr", f.b.add(f.b.resize(address, bits), offset), kind)

    def unchanging(self, f: FunctionCodegen, space: str, pointer: Value, *, invariant: bool) -> bool:
        """In global memory, what is constant, and what a load says that nobody writes (``.nc``): the driver's
        compiler asks no more."""
        return pointer.type == GLOBAL and (space == "const" or _never_written(f))

    def ends_plainly(self, kind: str) -> bool:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        return kind in _OWN_TRAPS

    def trap_plainly(self, f: FunctionCodegen, kind: str) -> None:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        f.b.emit(f'call void asm sideeffect "{kind};", "~{{memory}}"() #0')

    def end(self, f: FunctionCodegen) -> None:
        """The thread ends."""
        f.b.emit('call void asm sideeffect "exit;", "~{memory}"() #0')


def _never_written(f: FunctionCodegen) -> bool:
    return f.instruction is not None and f.instruction.has("nc")


def _shared_variable(f: FunctionCodegen, name: str) -> Value:
    """A shared variable, as LLVM's; an unsized one is where the launch's memory begins."""
    variable = next(v for v in f.unit.shared_variables() if v.name == name)
    align = max(variable.align, 1)
    kind = "internal addrspace(3) global" if variable.size else "external addrspace(3) global"
    # No initial value: LLVM has none for shared memory.
    value = " undef" if variable.size else ""
    symbol = f'@"{name}"'
    f.unit.ir.globals[symbol] = f"{symbol} = {kind} [{variable.size} x i8]{value}, align {align}"
    return Value(SHARED, 1, symbol)
