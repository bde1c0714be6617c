"""Instructions passed on: inline assembly of the PTX instruction itself.

Operands become the assembly's: a register by a constraint of its width, an address by the register that holds
it, constants as they are. Predicates go through words of 32 bits, since LLVM's assembly has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zluda.compiler.analysis.operands import split
from zluda.compiler.gpu.thread import one
from zluda.compiler.ir import Value
from zluda.ptx.instructions import spell
from zluda.ptx.module import (
    Address,
    Element,
    Immediate,
    Indexed,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Vector,
)
from zluda.ptx.printer import print_operand
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

PASSED_ON = frozenset(
    {"atom", "red", "membar", "fence", "bar", "barrier", "mbarrier", "multimem"}
    | {"shfl", "vote", "match", "redux", "activemask", "elect"}
    | {"mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix"}
    | {"cp", "tensormap", "mapa", "getctarank", "clusterlaunchcontrol", "griddepcontrol", "setmaxnreg"}
    | {"prefetch", "prefetchu", "discard", "applypriority", "createpolicy", "nanosleep", "pmevent"}
)
"""Opcodes that are passed on in every form."""

_PLAIN = frozenset({"space", "nc", "weak"})
"""What a load or store may say and still be LLVM's to write."""

_CONSTRAINTS = {16: "h", 32: "r", 64: "l", 128: "q"}
"""LLVM's constraints for registers by their bits (LLVM Language Reference, "NVPTX")."""

_PURE = frozenset({"mapa", "getctarank"})
"""Opcodes whose result depends on their operands alone."""


def is_passed_on(instruction: Instruction) -> bool:
    """Whether an instruction is. Loads and stores are where they say more than what they move and where."""
    if instruction.opcode in ("ld", "ldu", "st"):
        space = instruction.slots.get("space", "")
        return (
            instruction.opcode == "ldu" or space == "shared::cluster" or not {*_said(instruction)} <= _PLAIN
        )
    if instruction.opcode == "isspacep":  # constant memory is not where the machine has it
        return instruction.slots["space"] not in ("const", "global")
    return instruction.opcode in PASSED_ON


def _said(instruction: Instruction) -> Iterable[str]:
    return ("weak" if word == "weak" else slot for slot, word in instruction.slots.items())


def pass_on(f: FunctionCodegen, instruction: Instruction) -> None:
    """Write the instruction as assembly."""
    _Assembly(f, instruction).write()


class _Assembly:
    """One instruction. In its text ``$0`` and so on are the results, then the operands."""

    def __init__(self, f: FunctionCodegen, instruction: Instruction) -> None:
        self.f, self.instruction = f, instruction
        self.results: list[Register] = []
        self.inputs: list[Value] = []
        self.constraints: list[str] = []
        self.before: list[str] = []
        self.after: list[str] = []
        self.predicates = 0

    def write(self) -> None:
        instruction, b = self.instruction, self.f.b
        destinations, sources = split(instruction)
        stored = [isinstance(o, Address | Indexed) for o in destinations]
        written = [o for o, place in zip(destinations, stored, strict=True) if not place]
        self.outputs = _count(written)
        texts = [
            self.operand(o) if place else self.result(o)
            for o, place in zip(destinations, stored, strict=True)
        ]
        texts += [self.operand(o) for o in sources]
        line = f"{spell(instruction)} {', '.join(texts)}".rstrip() + ";"
        if instruction.opcode == "wgmma":  # accumulators are read as well
            self.tie()
        text = " ".join(["{", *self.before, line, *self.after, "}"]) if self.predicates else line
        self.give_back(b, text)

    def give_back(self, b: Any, text: str) -> None:
        """Write the call, and its results to their registers."""
        f, pure = self.f, self.instruction.opcode in _PURE
        types = [f"i{_word_bits(r)}" for r in self.results]
        kind = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}" if types else "void"
        outputs = [f"={_CONSTRAINTS[_word_bits(r)]}" for r in self.results]
        constraints = ",".join([*outputs, *self.constraints, *([] if pure else ["~{memory}"])])
        effect = "" if pure else "sideeffect "
        arguments = ", ".join(v.typed for v in self.inputs)
        call = f'call {kind} asm {effect}"{text}", "{constraints}"({arguments}) #0'
        if not types:
            b.emit(call)
            return
        found = b.define(types[0], 1, call)
        for i, (register, type) in enumerate(zip(self.results, types, strict=True)):
            value = found
            if len(types) > 1:
                value = b.define(type, 1, f"extractvalue {kind} {found.ref}, {i}")
            if register.type is ScalarType.PRED:
                value = b.icmp("ne", value, 0)
            f.write(register, one(b.resize(value, f"i{register.type.bits}")))

    def tie(self) -> None:
        """Each result is an operand, too, in the same register."""
        for i, register in enumerate(self.results):
            self.inputs.append(self.f.read_bits(register, _word_bits(register)).parts[0])
            self.constraints.append(str(i))

    # --- operands --------------------------------------------------------------------------------------

    def result(self, operand: Operand) -> str:
        """A destination's text."""
        match operand:
            case Register():
                self.results.append(operand)
                place = f"${len(self.results) - 1}"
                if operand.type is not ScalarType.PRED:
                    return place
                name = self.predicate()
                self.after.append(f"selp.u32 {place}, 1, 0, {name};")
                return name
            case Pair(first=first, second=second):
                return f"{self.result(first)}|{self.result(second)}"
            case Vector(elements=elements):
                return f"{{{', '.join(map(self.result, elements))}}}"
            case Sink():
                return "_"
        raise self.f.unsupported(self.instruction)

    def operand(self, operand: Operand) -> str:
        """A source's text."""
        match operand:
            case Register():
                return self.register(operand)
            case Negated(operand=register):
                return f"!{self.register(register)}"
            case Symbol():
                return self.value(self.f.read_bits(operand, self.instruction.type.bits).parts[0])
            case Vector(elements=elements):
                return f"{{{', '.join(map(self.operand, elements))}}}"
            case Address():
                return self.address(operand)
            case Indexed(objects=objects, coordinates=coordinates):
                inside = [self.object(o) for o in objects]
                return f"[{', '.join([*inside, self.operand(coordinates)])}]"
            case Immediate() | Sink():
                return print_operand(operand)
        raise self.f.unsupported(self.instruction)

    def register(self, register: Register) -> str:
        if register.type is not ScalarType.PRED:
            value = self.f.read(register).parts[0]
            return self.value(self.f.b.zext(value, "i16") if value.width < 16 else value)
        word = self.f.b.zext(self.f.read(register).parts[0], "i32")
        name = self.predicate()
        self.before.append(f"setp.ne.u32 {name}, {self.value(word)}, 0;")
        return name

    def object(self, operand: Operand) -> str:
        """What stands first in ``[object, {coordinates}]``: a tensor map's generic address."""
        if isinstance(operand, Symbol):
            return self.value(self.f.read_bits(operand, 64).parts[0])
        return self.operand(operand)

    def address(self, operand: Address) -> str:
        base = operand.base
        offset = operand.offset
        if isinstance(base, Immediate):
            return print_operand(operand)
        if isinstance(base, Element):
            value = self.f.element(base).parts[0]
        elif isinstance(base, Symbol):
            value = self.symbol(base)
            offset += base.offset
        else:
            value = self.f.read(base).parts[0]
        return f"[{self.value(value)}+{offset}]" if offset else f"[{self.value(value)}]"

    def symbol(self, base: Symbol) -> Value:
        """A variable's address: in its own state space where the instruction names one, else generic."""
        f = self.f
        value = f.ops.symbol(f, base.name).parts[0]
        if value.width == 64 or {"space", "dst", "src"} & self.instruction.slots.keys():
            return value
        variable = f.function.variables.get(base.name) or f.unit.module.variables[base.name]
        return f.b.add(f.b.zext(value, "i64"), f.ops.window(f, variable.space))

    def value(self, value: Value) -> str:
        """An operand in a register."""
        self.inputs.append(value)
        self.constraints.append(_CONSTRAINTS[value.width])
        return f"${self.outputs + len(self.inputs) - 1}"

    def predicate(self) -> str:
        """A predicate of the assembly's own."""
        self.predicates += 1
        name = f"%zp{self.predicates}"
        self.before.insert(0, f".reg .pred {name};")
        return name


def _word_bits(register: Register) -> int:
    """Bits of the word in which a register comes out of assembly."""
    return 32 if register.type is ScalarType.PRED else max(register.type.bits, 16)


def _count(operands: Iterable[Operand]) -> int:
    """Registers among destinations."""
    inner: dict[type, Callable[[Any], Iterable[Operand]]] = {
        Pair: lambda o: (o.first, o.second),
        Vector: lambda o: o.elements,
    }
    return sum(
        1 if isinstance(o, Register) else _count(inner[type(o)](o)) if type(o) in inner else 0
        for o in operands
    )
