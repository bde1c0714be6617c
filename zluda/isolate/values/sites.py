"""Places in PTX where a value is looked at: every register that an instruction writes, every branch, every
store.

What the value of a site depends on besides the instruction's own registers decides what a difference there
means: a table by opcode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from zluda.compiler.analysis.operands import CARRY, definitions, uses
from zluda.ptx.module import Address, Function, Immediate, Instruction, Operand, Register, Symbol, Vector
from zluda.ptx.types import ScalarType
from zluda.records import dataclass


class Reads(Enum):
    """What an instruction's result depends on besides its registers."""

    NOTHING = "nothing"
    LANES = "lanes"  # other lanes' registers
    MEMORY = "memory"
    SURROUNDINGS = "surroundings"  # the clock, the scheduler: differs lawfully
    PLACE = "place"  # where the device has put a variable: differs lawfully, by one distance


_READS = {
    **dict.fromkeys(("shfl", "vote", "match", "redux", "mma", "movmatrix", "wgmma"), Reads.LANES),
    **dict.fromkeys(("ld", "ldu", "atom", "tex", "tld4", "suld", "ldmatrix", "multimem"), Reads.MEMORY),
    **dict.fromkeys(("tcgen05", "mbarrier", "txq", "suq", "istypep"), Reads.MEMORY),
    **dict.fromkeys(("activemask", "elect", "clusterlaunchcontrol", "createpolicy"), Reads.SURROUNDINGS),
    **dict.fromkeys(("cvta", "mapa", "alloca", "stacksave", "getctarank"), Reads.PLACE),
}

_LAWFUL = (
    *("%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%pm", "%envreg"),
    *("%total_smem_size", "%aggr_smem_size", "%reserved_smem", "%current_graph_exec"),
)

LINEAR = frozenset(("add", "sub", "mov", "cvt", "cvta", "mad", "selp"))
"""Of addresses, these keep the distance between two devices' places; the rest is not held against them."""

_PLACELESS = frozenset(
    ("setp", "set", "isspacep", "bra", "brx", "st", "red", "bar", "barrier", "ret", "exit")
)


def reads(instruction: Instruction) -> Reads:
    """What a difference of its result may come from besides its registers."""
    if instruction.opcode == "wmma":
        return Reads.MEMORY if "load" in instruction.slots.values() else Reads.LANES
    found = _READS.get(instruction.opcode, Reads.NOTHING)
    if instruction.opcode == "ld" and space_of(instruction) == "param":
        return Reads.NOTHING
    if found is not Reads.NOTHING:
        return found
    sources = instruction.operands[instruction.destinations :]
    special = [r.name for operand in sources for r in _specials(operand)]
    if any(name.startswith(_LAWFUL) for name in special):
        return Reads.SURROUNDINGS
    if instruction.opcode == "mov" and any(isinstance(operand, Symbol) for operand in sources):
        return Reads.PLACE
    return Reads.NOTHING


def _specials(operand: Operand) -> Iterator[Register]:
    if isinstance(operand, Register) and operand.special:
        yield operand
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from _specials(element)


def space_of(instruction: Instruction) -> str:
    """The state space; empty for a generic address."""
    return instruction.slots.get("space", "").partition("::")[0]


class Look(Enum):
    """When a site is looked at, and what its value is."""

    RESULT = "result"  # after the instruction: a register that it wrote
    GUARD = "guard"  # before a branch: what decides it
    STORE = "store"  # before a store: the address


@dataclass(frozen=True, slots=True)
class Site:
    """One thing to look at: ``operand``, of 128 bits the half ``part``. Sites are numbered from 1.

    ``inputs`` are the names of the registers that the instruction reads; ``hashed`` says whether the value
    must be the same on all devices.
    """

    number: int
    function: str
    instruction: Instruction
    look: Look
    operand: Register | Symbol | Immediate
    part: int
    reads: Reads
    inputs: tuple[str, ...]
    hashed: bool

    @property
    def name(self) -> str:
        """The register's or variable's name."""
        return "" if isinstance(self.operand, Immediate) else self.operand.name


def value_sites(functions: Iterable[Function]) -> list[Site]:
    """The sites of all results, branches and stores, in the order of the text."""
    found: list[Site] = []
    for function in functions:
        placed = _placed(function)
        for instruction in function.instructions:
            kind = reads(instruction)
            inputs = tuple(dict.fromkeys(r.name for r in uses(instruction)))
            for look, operand, part in _looked_at(instruction):
                free = kind is Reads.SURROUNDINGS or isinstance(operand, Symbol)
                hashed = not free and getattr(operand, "name", "") not in placed
                place = (len(found) + 1, function.name, instruction, look, operand, part)
                found.append(Site(*place, kind, inputs, hashed))
    return found


_BRANCHES = frozenset(("bra", "exit", "ret", "trap"))


def _looked_at(instruction: Instruction) -> Iterator[tuple[Look, Register | Symbol | Immediate, int]]:
    if instruction.opcode in _BRANCHES and instruction.guard is not None:
        yield Look.GUARD, instruction.guard.register, 0
    elif instruction.opcode == "brx":
        yield from ((Look.GUARD, register, 0) for register in uses(instruction))
    elif instruction.opcode in ("st", "red"):
        at = address_of(instruction)
        if at is not None and isinstance(at.base, Register | Symbol | Immediate):
            yield Look.STORE, at.base, 0
    else:
        for register in definitions(instruction):
            for part in range(2 if register.type.bits == 128 else 1):
                if register is not CARRY:
                    yield Look.RESULT, register, part


def address_of(instruction: Instruction) -> Address | None:
    """Where a load, store or atomic operation goes."""
    return next((operand for operand in instruction.operands if isinstance(operand, Address)), None)


def extent_of(instruction: Instruction) -> int:
    """How many bytes it reads or writes there."""
    return max(instruction.types[-1].bits // 8, 1) * instruction.vector


def _placed(function: Function) -> frozenset[str]:
    """Registers that may hold addresses of what a device places where it likes, or what comes of one."""
    placed: set[str] = set()
    while True:
        before = len(placed)
        for one in function.instructions:
            root = reads(one) in (Reads.PLACE, Reads.SURROUNDINGS)
            carries = one.opcode not in _PLACELESS and reads(one) is not Reads.MEMORY
            if root or (carries and any(r.name in placed for r in uses(one))):
                placed |= {r.name for r in definitions(one) if r.type is not ScalarType.PRED}
        if len(placed) == before:
            return frozenset(placed)


@dataclass(frozen=True, slots=True)
class Store:
    """One element that an instruction writes to memory: ``value`` of ``size`` bytes at ``address`` +
    ``offset``.

    ``space`` is ``global``, ``shared`` or empty for a generic address. ``value`` is None where what is
    written is no register (an asynchronous copy).
    """

    number: int
    function: str
    instruction: Instruction
    address: Register | Symbol | Immediate
    offset: int
    size: int
    space: str
    value: Operand | None


_WRITERS = frozenset(("st", "red", "atom"))


def store_sites(functions: Iterable[Function]) -> list[Store]:
    """Every element that is stored where other threads can see it. Numbers begin at 1."""
    found: list[Store] = []
    for function in functions:
        for instruction in function.instructions:
            space = space_of(instruction)
            if instruction.opcode not in _WRITERS or space not in ("", "global", "shared"):
                continue
            at = address_of(instruction)
            if at is None or not isinstance(at.base, Register | Symbol | Immediate):
                continue
            operand = instruction.operands[instruction.operands.index(at) + 1]
            values = operand.elements if isinstance(operand, Vector) else (operand,)
            size = max(instruction.types[-1].bits // 8, 1)
            for index, value in enumerate(values):
                number, offset = len(found) + 1, at.offset + index * size
                place = (at.base, offset, size, space)
                found.append(Store(number, function.name, instruction, *place, value))
    return found
