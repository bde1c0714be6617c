"""The outcome as PTX in which every rounding is explicit.

A fused sum becomes ``fma.rn``; what stays apart is given ``.rn``. A product taken in is left in place, and
is dead code if nobody else reads it. A factor whose register is written again later is copied at the product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from zluda.compiler.contract import constants
from zluda.compiler.contract.kinds import arithmetic, is_folded, is_quotient
from zluda.compiler.contract.rule import Fusion, Outcome, Scaling, decide
from zluda.ptx.module import Function, Guard, Immediate, Instruction, Operand, Register, Statement
from zluda.ptx.types import ScalarType

T = ScalarType
_LARGE, _SMALL = 0x7E800000, 0x00800000  # 2^126 and 2^-126: beyond, ptxas scales a quotient's operands
_QUARTER, _UP = 0x3E800000, 0x4B800000  # 0.25 and 2^24


def rewrite(function: Function, *, everything: bool = False, keep_products: bool = False) -> Function:
    """The function with contraction decided.

    ``keep_products`` leaves products that stay apart as written: ptxas, given the text, makes the same of
    them (``x * 2`` to ``x + x``, ``(a * b) * 2^k``) as in the original.
    """
    outcome = decide(function, everything=everything)
    if keep_products:
        outcome.scalings.clear()
    return _Writer(outcome, keep_products).run()


class _Writer:
    def __init__(self, outcome: Outcome, keep_products: bool) -> None:
        self.keep_products = keep_products
        self.function, self.outcome, self.values = outcome.function, outcome, outcome.values
        self.registers: dict[str, ScalarType] = {}
        self.body: list[Statement] = []
        self.at: Instruction | None = None
        self.count = 0
        self.factors: dict[int, tuple[Operand, Operand]] = {}
        self.taken = {fusion.product for fusion in outcome.fusions.values()}
        self.taken |= {scaling.product for scaling in outcome.scalings.values()}

    def run(self) -> Function:
        function = self.function
        first: list[int] = []  # the new number of each old instruction
        i = 0
        for statement in function.body or ():
            if not isinstance(statement, Instruction):
                self.body.append(statement)
                continue
            first.append(self.count)
            self.at = statement
            self.statement(i, statement)
            i += 1
        first.append(self.count)
        return replace(
            function,
            body=self.body,
            registers={**function.registers, **self.registers},
            debug_lines=tuple(replace(d, ordinal=first[d.ordinal]) for d in function.debug_lines),
            pragmas=tuple(replace(p, ordinal=first[p.ordinal]) for p in function.pragmas),
        )

    # --- one instruction ---------------------------------------------------------------------------------

    def statement(self, i: int, instruction: Instruction) -> None:
        fusion, scaling = self.outcome.fusions.get(i), self.outcome.scalings.get(i)
        if i in self.taken:
            self.factors[i] = self.keep_factors(i, instruction)
        if fusion is not None:
            self.fuse(instruction, fusion)
        elif scaling is not None:
            self.scale(instruction, scaling)
        elif i in self.values.folded and (is_folded(instruction) or is_quotient(instruction)):
            literal = Immediate(self.values.folded[i], 32)
            self.put("mov", {}, (T.F32,), instruction.operands[0], literal, guard=instruction.guard)
        elif (divisor := self.values.constant_divisor(i)) is not None:
            slots = {"rnd": "rn", **_flag(instruction, "ftz")}
            x, inverse = self.constant_quotient(instruction, divisor)
            self.put("mul", slots, (T.F32,), instruction.operands[0], x, inverse, guard=instruction.guard)
        else:
            self.keep(instruction)

    def keep(self, instruction: Instruction) -> None:
        """As it is, its rounding said."""
        found = arithmetic(instruction)
        if found is not None and found.free and not (self.keep_products and found.operation == "mul"):
            instruction = replace(instruction, slots={"rnd": "rn", **instruction.slots})
        self.append(self.in_order(instruction))

    def in_order(self, instruction: Instruction) -> Instruction:
        """The operands of an f64 sum or product as ptxas sorts them, the value made first first: of two NaNs
        the second is the result."""
        if instruction.opcode not in ("add", "mul") or instruction.type is not T.F64:
            return instruction
        target, x, y = instruction.operands
        places = [self.values.definers.get(v.name, []) for v in (x, y) if isinstance(v, Register)]
        if [len(p) for p in places] != [1, 1] or places[0] <= places[1]:
            return instruction
        return replace(instruction, operands=(target, y, x))

    def fuse(self, total: Instruction, fusion: Fusion) -> None:
        """``fma.rn`` of the product's factors and the other operand."""
        type = total.type
        a, b = self.factors[fusion.product]
        addend = total.operands[2 - fusion.operand]
        if fusion.negative:
            a = self.negated(a, type)
        if total.opcode == "sub" and fusion.operand == 0:
            addend = self.negated(addend, type)
        slots = {"rnd": "rn", **_flag(total, "ftz"), **_flag(total, "sat")}
        self.put("fma", slots, (type,), total.operands[0], a, b, addend, guard=total.guard)

    def scale(self, outer: Instruction, scaling: Scaling) -> None:
        """The exact product in f64, shifted, rounded once; times one, which makes its NaN that of f32."""
        ftz = _flag(outer, "ftz")
        a, b = (self.computed("cvt", ftz, (T.F64, T.F32), x) for x in self.factors[scaling.product])
        power = -(2.0**scaling.power) if scaling.negative else 2.0**scaling.power
        exact = self.computed("mul", {"rnd": "rn"}, (T.F64,), a, b)
        shifted = self.computed("mul", {"rnd": "rn"}, (T.F64,), exact, _literal(power, T.F64))
        slots = {"rnd": "rn", **ftz}
        rounded = self.computed("cvt", slots, (T.F32, T.F64), shifted)
        self.put("mul", slots, (T.F32,), outer.operands[0], rounded, _literal(1.0), guard=outer.guard)

    # --- operands ----------------------------------------------------------------------------------------

    def keep_factors(self, i: int, product: Instruction) -> tuple[Operand, Operand]:
        """A product's factors, to be read where it is taken in."""
        divisor = self.values.constant_divisor(i)
        if divisor is not None:
            x, inverse = self.constant_quotient(product, divisor)
            return self.kept(x), inverse
        if is_quotient(product):
            return self.quotient(product)
        return self.kept(product.operands[1]), self.kept(product.operands[2])

    def kept(self, operand: Operand) -> Operand:
        """The operand, or a copy of it if its register may be written before it is read."""
        if not isinstance(operand, Register) or len(self.values.definers.get(operand.name, ())) < 2:
            return operand
        return self.computed("mov", {}, (_move_type(operand.type),), operand)

    def constant_quotient(self, division: Instruction, divisor: float) -> tuple[Operand, Operand]:
        """As :meth:`quotient`, the divisor known: ``x``, scaled where it would be, and the reciprocal."""
        x, ftz = division.operands[1], _flag(division, "ftz")
        divisor = constants.flushed(divisor) if ftz else divisor
        factor = 1.0
        if division.has("full") and abs(divisor) > constants.number(_LARGE, T.F32):
            factor = 0.25
        elif not ftz and 0.0 < abs(divisor) < constants.number(_SMALL, T.F32):
            factor = 2.0**24
        if factor != 1.0:
            x = self.computed("mul", {"rnd": "rn", **ftz}, (T.F32,), x, _literal(factor))
        return x, _literal(constants.flushed(constants.reciprocal(divisor * factor)))

    def quotient(self, division: Instruction) -> tuple[Operand, Operand]:
        """``x / y`` as the factors that ptxas multiplies: ``x`` and the reciprocal of ``y``, both scaled."""
        x, y = division.operands[1], division.operands[2]
        ftz = _flag(division, "ftz")
        size = self.computed("abs", {}, (T.F32,), y) if division.has("full") or not ftz else y
        if division.has("full"):
            x, y = self.scaled_both("gt", size, _LARGE, _QUARTER, x, y, ftz)
        if not ftz:
            x, y = self.scaled_both("lt", size, _SMALL, _UP, x, y, ftz)
        inverse = self.computed("rcp", {"approx": "approx", "ftz": "ftz"}, (T.F32,), y)
        return self.kept(x), inverse

    def scaled_both(
        self,
        compare: str,
        size: Operand,
        limit: int,
        factor: int,
        x: Operand,
        y: Operand,
        ftz: Mapping[str, str],
    ) -> tuple[Operand, Operand]:
        """Both times ``factor`` where ``size`` compares with ``limit``."""
        outside = self.new(T.PRED)
        self.put("setp", {"cmp": compare}, (T.F32,), outside, size, Immediate(limit, 32))
        scaled = [
            self.computed("mul", {"rnd": "rn", **ftz}, (T.F32,), v, Immediate(factor, 32)) for v in (x, y)
        ]
        first, second = (
            self.computed("selp", {}, (T.F32,), s, v, outside) for s, v in zip(scaled, (x, y), strict=True)
        )
        return first, second

    def negated(self, operand: Operand, type: ScalarType) -> Operand:
        if isinstance(operand, Immediate):
            bits = constants.negated(constants.literal(operand, type), type)
            return Immediate(bits, type.bits if operand.float_bits is not None else None)
        return self.computed("neg", {}, (type,), operand)

    # --- writing -----------------------------------------------------------------------------------------

    def computed(
        self, opcode: str, slots: Mapping[str, str], types: tuple[ScalarType, ...], *sources: Operand
    ) -> Register:
        """A new register with an instruction's result."""
        target = self.new(types[0])
        self.put(opcode, slots, types, target, *sources)
        return target

    def new(self, type: ScalarType) -> Register:
        kind = (
            type
            if type in (T.PRED, T.F32, T.F64)
            else {16: T.B16, 32: T.B32, 64: T.B64, 128: T.B128}[type.bits]
        )
        name = f"%contract{len(self.registers)}"
        while name in self.function.registers:
            name += "_"
        self.registers[name] = kind
        return Register(name, kind)

    def put(
        self,
        opcode: str,
        slots: Mapping[str, str],
        types: tuple[ScalarType, ...],
        *operands: Operand,
        guard: Guard | None = None,
    ) -> None:
        assert self.at is not None
        self.append(Instruction(opcode, dict(slots), types, operands, guard, self.at.location, 0))

    def append(self, instruction: Instruction) -> None:
        if instruction.ordinal != self.count:
            i = instruction  # dataclasses.replace would take longer than all the rest
            instruction = Instruction(
                i.opcode,
                i.slots,
                i.types,
                i.operands,
                i.guard,
                i.location,
                self.count,
                i.vector,
                i.destinations,
            )
        self.body.append(instruction)
        self.count += 1


def _flag(instruction: Instruction, name: str) -> Mapping[str, str]:
    return {name: name} if instruction.has(name) else {}


def _literal(value: float, type: ScalarType = T.F32) -> Immediate:
    return Immediate(constants.bits_of(value, type), type.bits)


def _move_type(type: ScalarType) -> ScalarType:
    return type if type in (T.F32, T.F64) else {16: T.B16, 32: T.B32, 64: T.B64}[type.bits]
