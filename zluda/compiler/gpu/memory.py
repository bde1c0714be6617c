"""Addresses, loads and stores of a GPU's thread.

A PTX address is an integer: of 32 bits in shared and local memory, of 64 elsewhere. Local variables and
parameters of calls lie in the thread's stack, a kernel's in its parameter buffer, and variables of
``.global`` and ``.const`` where the device has put them. What is the machine's own, a target adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zluda.compiler.gpu.calls import stack_variable
from zluda.compiler.gpu.thread import GLOBAL, LOCAL, Thread, one
from zluda.compiler.ir import Value, constant, vector_type
from zluda.compiler.layout import FUNCTION_STRIDE, FUNCTIONS, parameter_layout
from zluda.compiler.stops import FAULT_CODES, REFUSAL, STOPPED
from zluda.compiler.target import Lanes, Refusal
from zluda.errors import UnsupportedError
from zluda.ptx.module import Variable
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_PARAMETER = "%parameters.at."
"""How the name of a kernel parameter's address begins; its offset follows."""


class GpuMemory(Thread):
    """The memory part of a GPU's TargetOps.

    ``parameters`` is a kernel's packed parameter buffer, its one parameter; ``spaces`` gives the pointer type
    of each state space.
    """

    parameters: Value
    spaces: Mapping[str, str]

    # --- what a target says of its machine ---------------------------------------------------------------

    def placed(self, f: FunctionCodegen, name: str, align: int) -> Value:
        """The address (``i64``) of what the device places, aligned to ``align`` bytes."""
        raise NotImplementedError

    def shared_symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """The address of a shared variable, in its own space."""
        raise NotImplementedError

    def stack_address(self, f: FunctionCodegen, pointer: Value) -> Value:
        """The local address (``i32``) of a pointer into the stack."""
        raise NotImplementedError

    def pointer_to(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """See :meth:`pointer`; of all but kernel parameters."""
        raise NotImplementedError

    def end(self, f: FunctionCodegen) -> None:
        """End a thread that has noted why, or the launch with it."""
        raise NotImplementedError

    def ends_plainly(self, kind: str) -> bool:
        """Whether the machine has a trap of its own that says all of a kind of fault."""
        raise NotImplementedError

    def trap_plainly(self, f: FunctionCodegen, kind: str) -> None:
        """Such a trap."""
        raise NotImplementedError

    def unchanging(self, f: FunctionCodegen, space: str, pointer: Value, *, invariant: bool) -> bool:
        """Whether nobody writes what a load reads while the kernel runs; ``invariant``: analysis says so."""
        raise NotImplementedError

    def before_access(self, f: FunctionCodegen, address: Value, offset: int, size: int) -> None:
        """Test the address of an access of ``size`` bytes, where that is asked for."""

    def acquire(self, f: FunctionCodegen) -> None:
        """After a load: what its order asks for (PTX ISA 8.8)."""

    def release(self, f: FunctionCodegen) -> None:
        """Before a store: what its order asks for (PTX ISA 8.8)."""

    # --- symbols -----------------------------------------------------------------------------------------

    def symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """The address of a variable, parameter or function in its own space. Raises UnsupportedError."""
        stack = stack_variable(f, name)
        if stack is not None:
            return one(self.stack_address(f, self.stack_pointer(f, stack)))
        if name in f.unit.shared.offsets:
            return self.shared_symbol(f, name)
        if f.function.is_entry:
            for slot in parameter_layout(f.function.parameters)[0]:
                if slot.name == name:
                    return one(self._parameter_address(f, slot.offset))
        variable = f.function.variables.get(name) or f.unit.module.variables.get(name)
        if variable is not None:
            return one(self._variable(f, variable))
        if name in f.unit.module.function_names:
            return one(f.b.add(self.first_function(f), f.unit.function_offset(name)))
        raise UnsupportedError(f"address of {name}")

    def first_function(self, f: FunctionCodegen) -> Value:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        return self.placed(f, FUNCTIONS, FUNCTION_STRIDE)

    def stack_pointer(self, f: FunctionCodegen, variable: Variable) -> Value:
        """A local variable, or a parameter of a call or function."""
        found = f.stack_variables.get(variable.name)
        if found is None:
            found = f.b.alloca("i8", count=max(variable.size, 1), align=max(variable.align, 4))
            f.stack_variables[variable.name] = found
        return found

    def in_const(self, f: FunctionCodegen, address: Value) -> Value:
        """Whether a generic address is in a variable of ``.const`` (``i1``)."""
        b = f.b
        found: Value = constant("i1", 0)
        for variable in f.unit.module.variables.values():
            if variable.space == "const" and variable.size:
                start = self._variable(f, variable)
                found = b.or_(b.icmp("ult", b.sub(address, start), variable.size), found)
        return found

    def _variable(self, f: FunctionCodegen, variable: Variable) -> Value:
        return self.placed(f, variable.name, max(variable.align, 1))

    def _parameter_address(self, f: FunctionCodegen, offset: int) -> Value:
        """The generic address of a kernel parameter, whose name tells :meth:`pointer` the offset."""
        name = f"{_PARAMETER.removeprefix('%')}{offset}"
        start = self.parameters

        def lines() -> list[str]:
            return [
                f"%{name}.p = getelementptr i8, {start.typed}, i64 {offset}",
                f"%{name} = ptrtoint {start.type} %{name}.p to i64",
            ]

        return f.at_entry(name, "i64", lines)

    # --- loads and stores --------------------------------------------------------------------------------

    def pointer(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """LLVM's pointer to an address of a state space, ``offset`` bytes further."""
        if is_parameter(address):  # as a pointer, so that LLVM sees which memory it is
            return f.b.gep(self.parameters, int(address.ref.removeprefix(_PARAMETER)) + offset)
        return self.pointer_to(f, space, address, offset)

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
        b, element, size = f.b, f"i{type.bits}", type.bits // 8 * count
        self.before_access(f, address.parts[0], offset, size)
        pointer = self.pointer(f, space, address.parts[0], offset)
        fixed = self.unchanging(f, space, pointer, invariant=invariant)
        suffix = ", !invariant.load !0" if fixed else ""
        kind = "load volatile" if volatile else "load"
        align = _alignment(pointer, size)
        loaded = b.define(
            element, count, f"{kind} {vector_type(element, count)}, {pointer.typed}, align {align}{suffix}"
        )
        self.acquire(f)
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
        size = type.bits // 8 * len(values)
        self.release(f)
        self.before_access(f, address.parts[0], offset, size)
        pointer = self.pointer(f, space, address.parts[0], offset)
        kind = "store volatile" if volatile else "store"
        packed = f.b.pack([v.parts[0] for v in values])
        f.b.emit(f"{kind} {packed.typed}, {pointer.typed}, align {_alignment(pointer, size)}")

    # --- stops -------------------------------------------------------------------------------------------

    def refuse(self, f: FunctionCodegen, refusal: Refusal) -> None:
        """Note what cannot be done, for the device to name, and stop."""
        self._stop(f, f.unit.refusal_index(refusal) + 1)

    def trap(self, f: FunctionCodegen, kind: str) -> None:
        """Stop for a kind of fault: noted, for the device to name, unless the machine's own trap says it."""
        if kind not in FAULT_CODES:
            raise UnsupportedError(kind)
        if self.ends_plainly(kind):
            self.trap_plainly(f, kind)
        else:
            self._stop(f, STOPPED + FAULT_CODES[kind])

    def _stop(self, f: FunctionCodegen, number: int) -> None:
        cell = f.b.cast("inttoptr", self.placed(f, REFUSAL, 4), GLOBAL)
        f.b.emit(f"store volatile i32 {number}, {cell.typed}, align 4")
        self.end(f)


def is_parameter(address: Value) -> bool:
    """Whether an address is that of a kernel parameter by its name."""
    return address.ref.startswith(_PARAMETER)


def _alignment(pointer: Value, size: int) -> int:
    """Natural; parameters of calls are laid out to 4 bytes at least, whatever is read at once."""
    return size if pointer.type != LOCAL else min(size, 4)
