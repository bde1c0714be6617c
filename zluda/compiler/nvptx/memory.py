"""Addresses, loads and stores on NVIDIA GPUs.

Shared and local addresses are 32 bits, in their own state spaces; others are 64. Variables in shared and
local memory are LLVM's, and so are parameters; those of ``.global`` and ``.const`` are in global memory,
where the device has put them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.ir import Value, constant, vector_type
from zluda.compiler.layout import FUNCTIONS, parameter_layout
from zluda.compiler.nvptx.surroundings import SpecialRegisters, one, symbol_address
from zluda.compiler.nvptx.unit import FLAT, GLOBAL, LOCAL, SHARED
from zluda.compiler.stack import stack_variable
from zluda.compiler.stops import FAULT_CODES
from zluda.compiler.target import UNIFORM, Lanes, Refusal, Shape
from zluda.errors import UnsupportedError
from zluda.ptx.module import Variable
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

PARAMETERS = Value(FLAT, 1, "%parameters")
"""A kernel's packed parameter buffer, which is its one parameter."""

REFUSAL = "zluda.refusal"
"""A symbol of this compiler's own: four bytes for the number of what stopped a launch, from 1; from
:data:`STOPPED` on it is a kind of fault (``zluda.compiler.stops``)."""

STOPPED = 1 << 30

_SPACES = {"": FLAT, "global": GLOBAL, "const": GLOBAL, "param": FLAT, "shared": SHARED, "local": LOCAL}
_NARROW = (SHARED, LOCAL)
_WINDOWED = ("shared", "local", "shared::cluster")


class MemoryOps(SpecialRegisters):
    """The memory part of NVPTX's TargetOps."""

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
        constant_memory = self._in_const(f, at)
        if space == "const":
            return one(constant_memory)
        text = f"{{ .reg .pred %zp; isspacep.{space} %zp, $1; selp.u32 $0, 1, 0, %zp; }}"
        found = b.icmp("ne", b.define("i32", 1, f'call i32 asm "{text}", "=r,l"({at.typed})'), 0)
        return one(b.and_(found, b.not_(constant_memory)) if space == "global" else found)

    def _in_const(self, f: FunctionCodegen, address: Value) -> Value:
        b = f.b
        found: Value = constant("i1", 0)
        for variable in f.unit.module.variables.values():
            if variable.space == "const" and variable.size:
                start = symbol_address(f, variable.name)
                found = b.or_(b.icmp("ult", b.sub(address, start), variable.size), found)
        return found

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """One thread's: uniform."""
        return UNIFORM

    def symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """The address of a variable, parameter or function in its own space. Raises UnsupportedError."""
        b, unit = f.b, f.unit
        stack = stack_variable(f, name)
        if stack is not None:
            pointer = b.define(LOCAL, 1, f"addrspacecast {self.stack_pointer(f, stack).typed} to {LOCAL}")
            return one(b.cast("ptrtoint", pointer, "i32"))
        if name in unit.shared.offsets:
            return one(b.cast("ptrtoint", _shared_variable(f, name), "i32"))
        if f.function.is_entry:
            for slot in parameter_layout(f.function.parameters)[0]:
                if slot.name == name:
                    return one(_parameter_address(f, slot.offset))
        variable = f.function.variables.get(name) or unit.module.variables.get(name)
        if variable is not None:
            return one(symbol_address(f, variable.name))
        if name in unit.module.function_names:
            return one(b.add(self.first_function(f), unit.function_offset(name)))
        raise UnsupportedError(f"address of {name}")

    def first_function(self, f: FunctionCodegen) -> Value:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        return symbol_address(f, FUNCTIONS)

    def stack_pointer(self, f: FunctionCodegen, variable: Variable) -> Value:
        """A local variable, or a parameter of a call or function."""
        found = f.stack_variables.get(variable.name)
        if found is None:
            found = f.b.alloca("i8", count=max(variable.size, 1), align=max(variable.align, 4))
            f.stack_variables[variable.name] = found
        return found

    def pointer(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """LLVM's pointer to an address of a state space, ``offset`` bytes further."""
        b = f.b
        if address.ref.startswith(_PARAMETER):  # as a pointer, so that LLVM sees which memory it is
            return b.gep(PARAMETERS, int(address.ref.removeprefix(_PARAMETER)) + offset)
        kind = _SPACES[space]
        bits = "i32" if kind in _NARROW else "i64"
        return b.cast("inttoptr", b.add(b.resize(address, bits), offset), kind)

    def load(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        type: ScalarType,
        count: int,
        *,
        volatile: bool,
        invariant: bool = False,
    ) -> list[Lanes]:
        """One load of all elements: PTX aligns vectors to their size (PTX ISA 6.4.1.1)."""
        b, element = f.b, f"i{type.bits}"
        pointer = self.pointer(f, space, address.parts[0], offset)
        unchanging = pointer.type == GLOBAL and (space == "const" or _never_written(f))
        suffix = ", !invariant.load !0" if unchanging else ""
        kind = "load volatile" if volatile else "load"
        align = _alignment(space, type.bits // 8 * count)
        loaded = b.define(
            element, count, f"{kind} {vector_type(element, count)}, {pointer.typed}, align {align}{suffix}"
        )
        return [one(b.extract(loaded, i)) for i in range(count)]

    def store(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        type: ScalarType,
        values: list[Lanes],
        *,
        volatile: bool,
    ) -> None:
        """One store of all elements."""
        pointer = self.pointer(f, space, address.parts[0], offset)
        kind = "store volatile" if volatile else "store"
        packed = f.b.pack([v.parts[0] for v in values])
        align = _alignment(space, type.bits // 8 * len(values))
        f.b.emit(f"{kind} {packed.typed}, {pointer.typed}, align {align}")

    def refuse(self, f: FunctionCodegen, refusal: Refusal) -> None:
        """Note what cannot be done, for the device to name, and end the thread."""
        self._stop(f, f.unit.refusal_index(refusal) + 1)

    def trap(self, f: FunctionCodegen, kind: str) -> None:
        """A trap and a breakpoint are the machine's own; of others, which its driver would not tell apart,
        the kind is noted, and the thread ends."""
        if kind not in FAULT_CODES:
            raise UnsupportedError(kind)
        if kind in ("trap", "brkpt"):
            f.b.emit(f'call void asm sideeffect "{kind};", "~{{memory}}"() #0')
        else:
            self._stop(f, STOPPED + FAULT_CODES[kind])

    def _stop(self, f: FunctionCodegen, number: int) -> None:
        cell = f.b.cast("inttoptr", symbol_address(f, REFUSAL), GLOBAL)
        f.b.emit(f"store volatile i32 {number}, {cell.typed}, align 4")
        f.b.emit('call void asm sideeffect "exit;", "~{memory}"() #0')


def _never_written(f: FunctionCodegen) -> bool:
    """Whether a load says that nobody writes there while the kernel runs (``.nc``)."""
    return f.instruction is not None and f.instruction.has("nc")


def _alignment(space: str, size: int) -> int:
    """Natural; parameters of calls are laid out to 4 bytes at least, whatever is read at once."""
    return size if space != "local" else min(size, 4)


_PARAMETER = "%parameters.at."


def _parameter_address(f: FunctionCodegen, offset: int) -> Value:
    """The generic address of a kernel parameter, whose name tells :meth:`MemoryOps.pointer` the offset."""
    name = f"{_PARAMETER.removeprefix('%')}{offset}"

    def lines() -> list[str]:
        return [
            f"%{name}.p = getelementptr i8, {PARAMETERS.typed}, i64 {offset}",
            f"%{name} = ptrtoint {FLAT} %{name}.p to i64",
        ]

    return f.at_entry(name, "i64", lines)


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
