"""The static class of a kernel: how far its results may be from NVIDIA's at all, told from its instructions.

A tolerance belongs to what a kernel computes with, not to its output: most kernels have none. Integers and
moves are exact, and so is what IEEE 754 says how to round; a product and a sum that may be fused are exact
once it is known which are (``compiler/contract``); only approximate instructions have bounds of their own
(``numerics/bounds.py``), floats that are added atomically an order of their own, and tensor cores an order
and a width in which they sum (``numerics/tensor_cores``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from zluda.compiler.contract.kinds import may_change
from zluda.compiler.lower.approximate import approximation
from zluda.diff.types.program import Program
from zluda.errors import Error, TraceError
from zluda.ptx import Module
from zluda.ptx.module import Function, Instruction
from zluda.records import dataclass


class KernelClass(Enum):
    """From the strictest to the loosest; the value is its name in text and JSON."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> KernelClass:
        member = object.__new__(cls)
        member._value_ = name
        member.meaning = meaning
        return member

    INTEGER = "integer-or-move", "integers and moves"
    IEEE_EXACT = "ieee-exact", "every operation is rounded as IEEE 754 says"
    CONTRACTIBLE = "contractible", "products and sums that may be rounded as one"
    APPROXIMATE = "approximate", "approximate instructions"
    FLOAT_ATOMICS = "float-atomics", "floats added in any order"
    TENSOR_CORE = "tensor-core", "sums of tensor cores"

    @property
    def rank(self) -> int:
        """Larger is looser."""
        return _RANKS[self]

    @property
    def exact(self) -> bool:
        """Whether every bit of a result is determined by PTX and by what ptxas fuses."""
        return self.rank <= KernelClass.CONTRACTIBLE.rank


_RANKS = {member: rank for rank, member in enumerate(KernelClass)}


@dataclass(frozen=True, slots=True)
class StaticClass:
    """A kernel's class, and what makes it one: for each class that it has instructions of, their names."""

    kind: KernelClass
    causes: dict[KernelClass, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """The instructions on whose account it is of its class."""
        return self.causes.get(self.kind, ())


def static_class(kernel: Function, module: Module | None = None) -> StaticClass:
    """The class of a kernel and all that it calls by name."""
    program = Program.of(kernel, module)
    causes: dict[KernelClass, set[str]] = {}
    for _, inst in program.instructions():
        for kind, name in _of(inst):
            causes.setdefault(kind, set()).add(name)
    fused = sorted({name for function in program.functions.values() for name in _fused(function)})
    if fused:
        causes[KernelClass.CONTRACTIBLE] = set(fused)
    kind = max(causes, key=lambda one: one.rank, default=KernelClass.INTEGER)
    return StaticClass(kind, {one: tuple(sorted(causes[one])) for one in KernelClass if one in causes})


def classes_of(path: str) -> dict[str, StaticClass]:
    """The class of each kernel that was launched in a trace; the loosest of those of one name. Kernels
    without PTX, and a file that can no longer be read, have none.
    """
    from zluda.diff.types.launches import TraceModules
    from zluda.tracefile import open_trace

    found: dict[str, StaticClass] = {}
    try:
        with open_trace(path) as trace:
            modules = TraceModules(trace)
            for number, name in dict.fromkeys((one.module, one.kernel) for one in trace.iter_launches()):
                module = None if number is None else modules.get(number)
                one = None if module is None else _told(module, name)
                if one is not None and (name not in found or one.kind.rank > found[name].kind.rank):
                    found[name] = one
    except TraceError:
        return found
    return found


def _told(module: Module, kernel: str) -> StaticClass | None:
    """None for a kernel that this version does not take: NVIDIA's driver ran it all the same."""
    try:
        return static_class(module.function(kernel), module)
    except Error:
        return None


def bound(of: StaticClass, *, numerics: str, contract: str = "auto") -> str:
    """The bound that a launch of such a kernel is held to, in words."""
    return _BOUNDS[of.kind](of, numerics, contract)


# --- instructions ------------------------------------------------------------------------------------------

_PRODUCTS = frozenset(("mma", "wmma", "wgmma"))
_REDUCING = frozenset(("atom", "red", "multimem"))
_CARRIED = frozenset(("ld", "ldu", "st", "mov", "selp", "shfl", "call", "cp"))  # floats, unlooked at


def _of(inst: Instruction) -> Iterator[tuple[KernelClass, str]]:
    floats = [type for type in inst.types if type.kind == "f"]
    if inst.opcode == "tcgen05":
        if inst.has("mma"):
            yield KernelClass.TENSOR_CORE, f"tcgen05.mma.{inst.slots.get('kind', '')}"
        return
    if inst.opcode in _PRODUCTS:
        if floats and not (inst.has("load") or inst.has("store")):
            words = [inst.opcode, *(type.spelling for type in inst.types)]
            yield KernelClass.TENSOR_CORE, ".".join(words)
        return
    if inst.opcode in _REDUCING or (inst.opcode == "cp" and "op" in inst.slots):
        if floats and inst.slots.get("op") == "add":
            yield KernelClass.FLOAT_ATOMICS, f"{inst.opcode}.add.{floats[0].spelling}"
        return
    name = approximation(inst)
    if name is not None:
        yield KernelClass.APPROXIMATE, name
    elif floats and inst.opcode not in _CARRIED:
        yield KernelClass.IEEE_EXACT, f"{inst.opcode}.{floats[0].spelling}"


def _fused(function: Function) -> Iterator[str]:
    """The sums that can take a product in, or products that can take a scaling in."""
    if function.body is None or not may_change(function):
        return
    from zluda.compiler.contract.rule import decide

    outcome = decide(function, everything=True)
    instructions = outcome.function.instructions
    for index in (*outcome.fusions, *outcome.scalings):
        inst = instructions[index]
        yield f"{inst.opcode}.{inst.type.spelling}"


# --- bounds ------------------------------------------------------------------------------------------------

_SHOWN = 4  # names

Words = Callable[[StaticClass, str, str], str]


def _exact(of: StaticClass, numerics: str, contract: str) -> str:
    return f"0 ULP: {of.kind.meaning}"


def _contractible(of: StaticClass, numerics: str, contract: str) -> str:
    if contract != "auto":
        return f"0 ULP where ptxas fuses as --contract {contract} does"
    return "0 ULP: fused as NVIDIA's assembler does"


def _approximate(of: StaticClass, numerics: str, contract: str) -> str:
    if numerics != "native":
        return "0 ULP: approximated bit for bit as on NVIDIA"
    return f"the envelope of {_listed(of.names)}"


def _float_atomics(of: StaticClass, numerics: str, contract: str) -> str:
    return f"what NVIDIA's own runs vary, for the order of {_listed(of.names)}"


def _tensor_core(of: StaticClass, numerics: str, contract: str) -> str:
    """Devices that translate compute these as NVIDIA's tensor cores do, in their order and width, whatever
    the numerics; what else the kernel has of looser kinds keeps its own bound.
    """
    rest = [kind for kind in (KernelClass.FLOAT_ATOMICS, KernelClass.APPROXIMATE) if kind in of.causes]
    for kind in rest:
        if kind is KernelClass.FLOAT_ATOMICS or numerics == "native":
            return _BOUNDS[kind](StaticClass(kind, of.causes), numerics, contract)
    return "0 ULP: summed in the order and width of NVIDIA's tensor cores"


_BOUNDS: dict[KernelClass, Words] = {
    KernelClass.INTEGER: _exact,
    KernelClass.IEEE_EXACT: _exact,
    KernelClass.CONTRACTIBLE: _contractible,
    KernelClass.APPROXIMATE: _approximate,
    KernelClass.FLOAT_ATOMICS: _float_atomics,
    KernelClass.TENSOR_CORE: _tensor_core,
}


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
