"""What an operand is: the instruction that made it, a constant, or one of several.

ptxas forwards moves, signs and trivial operations, and folds constants, before it counts who uses a product.
"""

from __future__ import annotations

from collections.abc import Iterable

from zluda.compiler.analysis.operands import definitions, uses
from zluda.compiler.contract import constants
from zluda.compiler.contract.blocks import Blocks, holds_never
from zluda.compiler.contract.kinds import arithmetic, is_product, is_quotient
from zluda.ptx.module import Address, Element, Immediate, Instruction, Operand, Register, Variable
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType


@dataclass(frozen=True, slots=True)
class Value:
    """``kind``: ``"def"`` (instruction ``at`` made it), ``"const"`` (``bits`` of the type asked for),
    ``"phi"`` (any of the instructions ``choices``), ``"in"`` (nobody in this function made it).

    ``negative`` says that the sign is turned.
    """

    kind: str
    at: int = -1
    negative: bool = False
    bits: int = 0
    name: str = ""
    choices: tuple[int, ...] = ()

    def flipped(self) -> Value:
        """With the other sign; only of ``def`` and ``in``."""
        return Value(self.kind, self.at, not self.negative, name=self.name)


UNKNOWN = Value("unknown")


class Values:
    """The values of one function's operands.

    ``uses`` and ``definitions`` are the registers that each instruction reads and writes (``ret``:
    those of ``returns``). ``copies`` are
    instructions that do nothing but pass an operand on, ``folded`` those whose result is a constant
    (instruction to its bits).
    """

    def __init__(
        self, instructions: list[Instruction], blocks: Blocks, returns: Iterable[Variable] = ()
    ) -> None:
        self.instructions, self.blocks = instructions, blocks
        results = [Register(v.name, v.type) for v in returns if v.space == "reg"]
        self.uses = [uses(i) + (results if i.opcode == "ret" else []) for i in instructions]
        self.definitions = [definitions(instruction) for instruction in instructions]
        self.definers: dict[str, list[int]] = {}
        for i, found in enumerate(self.definitions):
            for register in found:
                self.definers.setdefault(register.name, []).append(i)
        self.reaching: dict[tuple[int, str], tuple[int, ...]] = {}
        self._flow()
        self.copies: set[int] = set()
        self.folded: dict[int, int] = {}
        self._made: dict[int, Value] = {}
        self._readers: dict[int, int] | None = None
        for i, instruction in enumerate(instructions):
            if blocks.of[i] in blocks.reachable and instruction.destinations:
                self.made_by(i)

    # --- reaching definitions ---------------------------------------------------------------------------

    def definitions_at(self, i: int, name: str) -> tuple[int, ...]:
        """The instructions that may have given register ``name`` the value that instruction ``i`` reads."""
        definers = self.definers.get(name, [])
        return tuple(definers) if len(definers) < 2 else self.reaching.get((i, name), ())

    def _flow(self) -> None:
        """Reaching definitions of the registers that have several, as one bit a definition."""
        bit: dict[int, list[int]] = {}
        several = {name: places for name, places in self.definers.items() if len(places) > 1}
        numbers: list[int] = []
        masks: dict[str, int] = {}
        for name, places in several.items():
            for place in places:
                bit.setdefault(place, []).append(len(numbers))
                masks[name] = masks.get(name, 0) | 1 << len(numbers)
                numbers.append(place)
        count = len(self.blocks.spans)
        generated, killed = [0] * count, [0] * count
        for b in self.blocks.reachable:
            gen, kill = 0, 0
            for i in range(*self.blocks.spans[b]):
                for name, own in self._several_at(i, bit, masks):
                    if self.instructions[i].guard is None:
                        gen, kill = gen & ~masks[name], kill | masks[name]
                    gen |= own
            generated[b], killed[b] = gen, kill
        entering = self._solve(generated, killed)
        for b in self.blocks.reachable:
            state = entering[b]
            for i in range(*self.blocks.spans[b]):
                for register in self.uses[i]:
                    mask = masks.get(register.name, 0)
                    if mask:
                        self.reaching[i, register.name] = tuple(_places(state & mask, numbers))
                for name, own in self._several_at(i, bit, masks):
                    if self.instructions[i].guard is None:
                        state &= ~masks[name]
                    state |= own

    def _several_at(
        self, i: int, bit: dict[int, list[int]], masks: dict[str, int]
    ) -> Iterable[tuple[str, int]]:
        """Registers with several definitions that ``i`` defines, each with its definition's bit."""
        for number in bit.get(i, ()):
            for register in self.definitions[i]:
                if masks.get(register.name, 0) >> number & 1:
                    yield register.name, 1 << number

    def _solve(self, generated: list[int], killed: list[int]) -> list[int]:
        entering = [0] * len(generated)
        visited: set[int] = set()
        pending = [0]
        while pending:
            b = pending.pop()
            visited.add(b)
            leaving = generated[b] | (entering[b] & ~killed[b])
            for after in self.blocks.successors[b]:
                if after not in visited or leaving & ~entering[after]:
                    entering[after] |= leaving
                    pending.append(after)
        return entering

    # --- values ------------------------------------------------------------------------------------------

    def of(self, i: int, operand: Operand, type: ScalarType) -> Value:
        """What instruction ``i`` reads there, as a value of ``type``."""
        if isinstance(operand, Immediate):
            return Value("const", bits=constants.literal(operand, type))
        if not isinstance(operand, Register) or operand.special:
            return UNKNOWN
        places = self.definitions_at(i, operand.name)
        if not places:
            return Value("in", name=operand.name)
        if len(places) > 1:
            return Value("phi", choices=places)
        return self.made_by(places[0])

    def made_by(self, d: int) -> Value:
        """What instruction ``d`` gives, seen through what ptxas forwards."""
        found = self._made.get(d)
        if found is None:
            self._made[d] = Value("def", d)  # should a loop lead back here
            found = self._made[d] = self._forward(d)
        return found

    def source(self, i: int, k: int) -> Value:
        """Source operand ``k`` of an instruction with one destination, in its own type."""
        instruction = self.instructions[i]
        return self.of(i, instruction.operands[1 + k], instruction.types[-1])

    def _forward(self, d: int) -> Value:
        itself = Value("def", d)
        instruction = self.instructions[d]
        rule = _FORWARDING.get(instruction.opcode)
        if rule is None or instruction.guard is not None or not instruction.types:
            return itself
        if not isinstance(instruction.operands[0], Register):
            return itself
        found = rule(self, d, instruction)
        return found if found.kind in ("def", "in", "const") else itself

    def _mov(self, d: int, instruction: Instruction) -> Value:
        if instruction.type is T.PRED or not isinstance(instruction.operands[1], Register | Immediate):
            return UNKNOWN
        return self.source(d, 0)

    def _neg(self, d: int, instruction: Instruction) -> Value:
        if instruction.type.kind != "f" or instruction.type is T.BF16X2:
            return UNKNOWN
        value = self.source(d, 0)
        if value.kind == "const":
            return self._fold(d, constants.negated(value.bits, instruction.type))
        if instruction.has("ftz") and not self._flushes(value):
            return UNKNOWN
        return value.flipped() if value.kind in ("def", "in") else UNKNOWN

    def _selp(self, d: int, instruction: Instruction) -> Value:
        """The second operand where the predicate is ``x < x``, which holds for no ``x``."""
        predicate = instruction.operands[3]
        places = self.definitions_at(d, predicate.name) if isinstance(predicate, Register) else ()
        never = len(places) == 1 and holds_never(self.instructions[places[0]])
        return self.source(d, 1) if never else UNKNOWN

    def _flushes(self, value: Value) -> bool:
        found = arithmetic(self.instructions[value.at]) if value.kind == "def" else None
        return found is not None and found.ftz

    def _abs(self, d: int, instruction: Instruction) -> Value:
        """``|x * x|`` is ``x * x`` where nobody else reads that product."""
        if instruction.type not in (T.F32, T.F64):
            return UNKNOWN
        value = self.source(d, 0)
        if value.kind != "def" or not self._is_own_product(value.at) or self._read_by(value.at) != 1:
            return UNKNOWN
        x, y = self.source(value.at, 0), self.source(value.at, 1)
        return Value("def", value.at) if x == y and x.kind in ("def", "in") else UNKNOWN

    def _is_own_product(self, d: int) -> bool:
        return (
            self.instructions[d].opcode == "mul"
            and arithmetic(self.instructions[d]) is not None
            and d not in self.copies
            and d not in self.folded
        )

    def _read_by(self, d: int) -> int:
        """How many operands read what ``d`` made and nothing else."""
        if self._readers is None:
            self._readers = {}
            for i, read in enumerate(self.uses):
                for register in read:
                    places = self.definitions_at(i, register.name)
                    if len(places) == 1:
                        self._readers[places[0]] = self._readers.get(places[0], 0) + 1
        return self._readers.get(d, 0)

    def _extreme(self, d: int, instruction: Instruction) -> Value:
        if (
            instruction.type.kind != "f"
            or instruction.slots.keys() - {"ftz"}
            or len(instruction.operands) != 3
        ):
            return UNKNOWN
        x, y = self.source(d, 0), self.source(d, 1)
        return x if x == y and not (instruction.has("ftz") and not self._flushes(x)) else UNKNOWN

    def _arithmetic(self, d: int, instruction: Instruction) -> Value:
        found = arithmetic(instruction)
        if found is None or found.type not in (T.F32, T.F64):
            return UNKNOWN
        x, y = self.source(d, 0), self.source(d, 1)
        if x.kind == y.kind == "const":
            bits = constants.evaluate(instruction, [x.bits, y.bits])
            return self._fold(d, bits) if bits is not None else UNKNOWN
        if found.ftz or found.saturates:
            return UNKNOWN
        passed = self._times_one(x, y, found.type) if found.operation == "mul" else self._plus_zero(d, x, y)
        if passed.kind not in ("def", "in"):
            return UNKNOWN
        self.copies.add(d)
        return passed

    def _times_one(self, x: Value, y: Value, type: ScalarType) -> Value:
        for value, factor in ((x, y), (y, x)):
            if factor.kind == "const" and value.kind in ("def", "in"):
                number = constants.number(factor.bits, type)
                if abs(number) == 1.0:
                    return value.flipped() if number < 0 else value
        return UNKNOWN

    def _plus_zero(self, d: int, x: Value, y: Value) -> Value:
        """``x + -0`` and ``x - +0`` are ``x``; of a product they stay sums: ``fma(a, b, -0)``."""
        instruction = self.instructions[d]
        if instruction.slots.get("rnd") is None and any(self._is_free_product(v) for v in (x, y)):
            return UNKNOWN
        minus, plus = constants.negative_zero(instruction.type), 0
        subtracts = instruction.opcode == "sub"
        if y.kind == "const" and y.bits == (plus if subtracts else minus):
            return x
        if x.kind == "const" and x.bits == minus and y.kind in ("def", "in"):
            return y.flipped() if subtracts else y
        return UNKNOWN

    def _is_free_product(self, value: Value) -> bool:
        if value.kind != "def" or value.at in self.copies:
            return False
        instruction = self.instructions[value.at]
        return instruction.opcode == "mul" and is_product(instruction)

    def _unit(self, d: int, instruction: Instruction) -> Value:
        """Approximate instructions of a constant."""
        if instruction.type is not T.F32:
            return UNKNOWN
        arguments = [self.source(d, k) for k in range(len(instruction.operands) - 1)]
        if any(a.kind != "const" for a in arguments):
            return UNKNOWN
        bits = constants.evaluate(instruction, [a.bits for a in arguments])
        return self._fold(d, bits) if bits is not None else UNKNOWN

    def _fold(self, d: int, bits: int) -> Value:
        self.folded[d] = bits
        return Value("const", bits=bits)

    # --- for the rule ------------------------------------------------------------------------------------

    def is_product(self, i: int) -> bool:
        """Whether sums may take instruction ``i`` in."""
        if i in self.copies or i in self.folded:
            return False
        return is_product(self.instructions[i])

    def has_constant_factor(self, i: int, entry: bool) -> bool:
        """Whether a factor of product ``i`` is a constant or a parameter of the kernel."""
        return any(self._is_constant(self.source(i, k), entry) for k in (0, 1))

    def _is_constant(self, value: Value, entry: bool) -> bool:
        if value.kind != "def":
            return value.kind == "const"
        instruction = self.instructions[value.at]
        if instruction.opcode != "ld" or not entry:
            return False
        address = instruction.operands[1]
        named = isinstance(address, Address) and not isinstance(address.base, Register | Element)
        return named and instruction.slots.get("space", "").split("::")[0] in ("param", "const")

    def constant_divisor(self, i: int) -> float | None:
        """The divisor of a quotient by a constant; None for another."""
        if not is_quotient(self.instructions[i]):
            return None
        value = self.source(i, 1)
        return constants.number(value.bits, T.F32) if value.kind == "const" else None


_FORWARDING = {
    "mov": Values._mov,
    "neg": Values._neg,
    "selp": Values._selp,
    "abs": Values._abs,
    "min": Values._extreme,
    "max": Values._extreme,
    "mul": Values._arithmetic,
    "add": Values._arithmetic,
    "sub": Values._arithmetic,
    **dict.fromkeys(("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos", "div", "fma"), Values._unit),
}


def _places(bits: int, numbers: list[int]) -> Iterable[int]:
    while bits:
        lowest = bits & -bits
        yield numbers[lowest.bit_length() - 1]
        bits ^= lowest
