"""Addresses, loads and stores on AMD GPUs.

A PTX address is an integer. Global, const and kernel parameter addresses are the machine's (64 bits); shared
addresses are offsets in the block's LDS, local ones and those of parameters of calls are offsets in the
thread's scratch (32 bits). A generic address is the machine's flat one: LDS and scratch stand in apertures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.amd.machine import CONSTANT, FLAT, GLOBAL, SHARED, STACK, one
from zluda.compiler.amd.special import SpecialRegisters
from zluda.compiler.amd.surroundings import external
from zluda.compiler.analysis.shapes import constant_shape
from zluda.compiler.clusters import CLUSTER
from zluda.compiler.ir import Value, constant, vector_type
from zluda.compiler.layout import FUNCTION_STRIDE, FUNCTIONS, parameter_layout
from zluda.compiler.stack import stack_variable
from zluda.compiler.stops import FAULT_CODES
from zluda.compiler.target import UNIFORM, Lanes, Refusal, Shape
from zluda.errors import UnsupportedError
from zluda.ptx.module import Variable
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

PARAMETERS = Value(CONSTANT, 1, "%parameters")
"""A kernel's packed parameter buffer: the explicit part of its kernarg segment."""

REFUSAL = "zluda.refusal"
"""A symbol of this compiler's own: four bytes of memory for the number of what stopped a launch, from 1.

From :data:`STOPPED` on it is a kind of fault (``zluda.compiler.stops``), below that a refusal.
"""

STOPPED = 1 << 30
_SURVIVED = frozenset({"assert", "free", "recursion"})

_SPACES = {"": FLAT, "global": GLOBAL, "const": CONSTANT, "param": CONSTANT, "shared": SHARED, "local": STACK}
_NARROW = (SHARED, STACK)


class MemoryOps(SpecialRegisters):
    """The memory part of AMD's TargetOps."""

    # --- windows and symbols ---------------------------------------------------------------------------

    def window(self, f: FunctionCodegen, space: str) -> Value:
        """Where an aperture begins; 0 for spaces whose addresses are the machine's."""
        if f.unit.clustered and space in ("shared", CLUSTER):
            return self.cluster_memory(f)
        pointer = {"shared": SHARED, "local": STACK}.get(space)
        if pointer is None:
            return constant("i64", 0)
        flat = f.b.define(FLAT, 1, f"addrspacecast {pointer} null to ptr")
        return f.b.cast("ptrtoint", flat, "i64")

    def in_window(self, f: FunctionCodegen, space: str, address: Lanes) -> Lanes:
        """``isspacep`` (PTX ISA 9.7.9.17); kernel parameters are part of the global window."""
        b, at = f.b, address.parts[0]
        inside = {
            **self._in_shared(f, at),
            "local": self._in_aperture(f, at, "local"),
            "const": self._in_const(f, at),
            "param": self._in_parameters(f, at),
        }
        inside["global"] = b.not_(b.or_(b.or_(inside[CLUSTER], inside["local"]), inside["const"]))
        return one(inside[space])

    def _in_aperture(self, f: FunctionCodegen, address: Value, space: str) -> Value:
        """By the upper halves: LLVM 22 folds ``is.shared`` or ``is.private`` of one pointer wrongly."""
        b = f.b
        return b.icmp("eq", b.lshr(address, 32), b.lshr(self.window(f, space), 32))

    def _in_shared(self, f: FunctionCodegen, address: Value) -> dict[str, Value]:
        """Whether it is in the block's shared memory, and whether in its cluster's."""
        b = f.b
        if not f.unit.clustered:
            inside = self._in_aperture(f, address, "shared")
            return {"shared": inside, CLUSTER: inside}
        size = b.zext(self.group_bytes(f), "i64")
        return {
            "shared": b.icmp("ult", b.sub(address, self.own_memory(f)), size),
            CLUSTER: b.icmp("ult", b.sub(address, self.cluster_memory(f)), self.cluster_bytes(f)),
        }

    def _in_const(self, f: FunctionCodegen, address: Value) -> Value:
        b = f.b
        found: Value = constant("i1", 0)
        for variable in f.unit.module.variables.values():
            if variable.space == "const" and variable.size:
                start = _module_variable(f, variable)
                found = b.or_(b.icmp("ult", b.sub(address, start), variable.size), found)
        return found

    def _in_parameters(self, f: FunctionCodegen, address: Value) -> Value:
        if not f.function.is_entry:
            return constant("i1", 0)  # the parameters of a call are in scratch
        size = parameter_layout(f.function.parameters)[1]
        start = f.b.cast("ptrtoint", PARAMETERS, "i64")
        return f.b.icmp("ult", f.b.sub(address, start), size)

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """A shared variable's offset is known; addresses in memory are the same in all lanes."""
        if stack_variable(f, name) is None and name in f.unit.shared.offsets and not f.unit.clustered:
            return constant_shape(f.unit.shared.offsets[name])
        return UNIFORM

    def symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """The address of a variable, parameter or function in its own space. Raises UnsupportedError."""
        stack = stack_variable(f, name)
        if stack is not None:
            return one(f.b.cast("ptrtoint", self.stack_pointer(f, stack), "i32"))
        if name in f.unit.shared.offsets:
            offset = constant("i32", f.unit.shared.offsets[name])
            if f.unit.clustered:
                return one(f.b.add(f.b.shl(self.cluster_rank(f), self.block_shift(f)), offset))
            return Lanes(self.symbol_shape(f, name), (offset,))
        if f.function.is_entry:
            for slot in parameter_layout(f.function.parameters)[0]:
                if slot.name == name:
                    return one(_parameter_address(f, slot.offset))
        variable = f.function.variables.get(name) or f.unit.module.variables.get(name)
        if variable is not None:
            return one(_module_variable(f, variable))
        if name in f.unit.module.function_names:
            return one(f.b.add(self.first_function(f), f.unit.function_offset(name)))
        raise UnsupportedError(f"address of {name}")

    def first_function(self, f: FunctionCodegen) -> Value:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        return external(f, FUNCTIONS, FUNCTION_STRIDE)

    def stack_pointer(self, f: FunctionCodegen, variable: Variable) -> Value:
        """A local variable, or a parameter of a call or function, in scratch."""
        found = f.stack_variables.get(variable.name)
        if found is None:
            align = max(variable.align, 4)
            found = f.b.alloca("i8", count=max(variable.size, 1), align=align)
            f.stack_variables[variable.name] = found
        return found

    def pointer(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """LLVM's pointer to an address of a state space, ``offset`` bytes further."""
        b = f.b
        if address.ref.startswith(_PARAMETER):  # as a pointer, so that LLVM sees which memory it is
            return b.gep(PARAMETERS, int(address.ref.removeprefix(_PARAMETER)) + offset)
        if f.unit.clustered and space in ("shared", CLUSTER):
            pointer = self._shared_pointer(f, b.resize(address, "i32"), own=space == "shared")
            return b.gep(pointer, offset) if offset else pointer
        kind = _SPACES[space]
        pointer = b.cast("inttoptr", b.resize(address, "i32" if kind in _NARROW else "i64"), kind)
        return b.gep(pointer, offset) if offset else pointer

    def _shared_pointer(self, f: FunctionCodegen, address: Value, *, own: bool) -> Value:
        """Into the shared memory of a cluster of several blocks, or by the bits below the rank its own."""
        b = f.b
        if own:
            address = b.and_(address, b.sub(b.shl(constant("i32", 1), self.block_shift(f)), 1))
        start = self.own_memory(f) if own else self.cluster_memory(f)
        return b.cast("inttoptr", b.add(start, b.zext(address, "i64")), GLOBAL)

    def refuse(self, f: FunctionCodegen, refusal: Refusal) -> None:
        """Note what cannot be done, for the device to name, and stop."""
        self._stop(f, f.unit.refusal_index(refusal) + 1)

    def trap(self, f: FunctionCodegen, kind: str) -> None:
        """The wave stops, and with it the launch; noted, for the device to name, unless it is a plain trap.

        On a GPU whose runtime would end the process, what the device can tell afterwards only ends the wave.
        """
        if kind not in FAULT_CODES:
            raise UnsupportedError(kind)
        if kind in _SURVIVED if self.end_refused else kind != "trap":
            self._stop(f, STOPPED + FAULT_CODES[kind])
        else:
            f.b.call("llvm.trap", [])

    def _stop(self, f: FunctionCodegen, number: int) -> None:
        cell = f.b.cast("inttoptr", external(f, REFUSAL, 4), GLOBAL)
        f.b.emit(f"store volatile i32 {number}, {cell.typed}, align 4")
        f.b.call("llvm.amdgcn.endpgm" if self.end_refused else "llvm.trap", [])

    def check_alignment(self, f: FunctionCodegen, address: Value, offset: int, size: int) -> None:
        """Stop at an access that is not at a multiple of its size, where ``Unit.check`` asks for it.

        The machine itself minds words only, and LLVM joins accesses of words to longer ones.
        """
        b = f.b
        if f.unit.check != "memory" or size <= 4 or address.ref.startswith(_PARAMETER):
            return
        odd = b.icmp("ne", b.and_(b.add(address, offset), size - 1), 0)
        stop, fine = b.fresh("misaligned"), b.fresh("aligned")
        b.cond_branch(odd, stop, fine)
        b.label(stop)
        self.trap(f, "misaligned")
        b.unreachable()
        b.label(fine)

    # --- loads and stores ------------------------------------------------------------------------------

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
        self.check_alignment(f, address.parts[0], offset, type.bits // 8 * count)
        pointer = self.pointer(f, space, address.parts[0], offset)
        suffix = ", !invariant.load !0" if invariant and pointer.type == CONSTANT else ""
        kind = "load volatile" if volatile else "load"
        align = _alignment(pointer, type.bits // 8 * count)
        loaded = b.define(
            element, count, f"{kind} {vector_type(element, count)}, {pointer.typed}, align {align}{suffix}"
        )
        if _semantics(f) == "acquire":
            self.fence_of(f, "acquire")
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
        b = f.b
        if _semantics(f) == "release":
            self.fence_of(f, "release")
        self.check_alignment(f, address.parts[0], offset, type.bits // 8 * len(values))
        pointer = self.pointer(f, space, address.parts[0], offset)
        kind = "store volatile" if volatile else "store"
        align = _alignment(pointer, type.bits // 8 * len(values))
        packed = b.pack([v.parts[0] for v in values])
        b.emit(f"{kind} {packed.typed}, {pointer.typed}, align {align}")

    def fence(self, f: FunctionCodegen, scope: str) -> None:
        """``membar`` and ``fence``; a fence without a weaker order named is sequentially consistent."""
        self.fence_of(f, {"acq_rel": "acq_rel"}.get(_semantics(f), "seq_cst"), scope)

    def fence_of(self, f: FunctionCodegen, order: str, scope: str = "") -> None:
        """LLVM's fence of an order at the instruction's scope."""
        f.b.emit(f"fence{sync_scope(scope or _scope(f))} {order}")


_SCOPES = {"cta": "workgroup", "cluster": "agent", "gpu": "agent", "gl": "agent", "": "agent", "sys": ""}


def sync_scope(scope: str) -> str:
    """A PTX scope (PTX ISA 8.5) as LLVM spells it, with a leading space; nothing for the system's."""
    name = _SCOPES[scope]
    return f' syncscope("{name}")' if name else ""


def _scope(f: FunctionCodegen) -> str:
    return f.instruction.slots.get("scope", "") if f.instruction is not None else ""


def _semantics(f: FunctionCodegen) -> str:
    return f.instruction.slots.get("sem", "") if f.instruction is not None else ""


def _alignment(pointer: Value, size: int) -> int:
    """Natural; parameters of calls are laid out to 4 bytes at least, whatever is read at once."""
    return size if pointer.type != STACK else min(size, 4)


_PARAMETER = "%parameters.at."


def _parameter_address(f: FunctionCodegen, offset: int) -> Value:
    """The address of a kernel parameter, whose name tells :meth:`MemoryOps.pointer` the offset."""
    name = f"{_PARAMETER.removeprefix('%')}{offset}"

    def lines() -> list[str]:
        return [
            f"%{name}.p = getelementptr i8, {PARAMETERS.typed}, i64 {offset}",
            f"%{name} = ptrtoint {CONSTANT} %{name}.p to i64",
        ]

    return f.at_entry(name, "i64", lines)


def _module_variable(f: FunctionCodegen, variable: Variable) -> Value:
    """A variable's address: a symbol that the linker is given when the code is loaded."""
    return external(f, variable.name, max(variable.align, 1))
