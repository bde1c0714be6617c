"""Functions of one thread on the CPU, for large units (:mod:`zluda.compiler.large`).

``void solo.N(context, warp, lane, results…, parameters…)`` computes one lane; pointers are to that lane's
copies. Vector code calls ``function.N`` as it does any other: that calls ``solo.N`` for each active lane, in
lane order. Solo functions call each other directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.analysis.shapes import lowest_bit
from zluda.compiler.clusters import alias
from zluda.compiler.cpu.addresses import STACK_ALIGN, lane_stride, stack_variable
from zluda.compiler.cpu.atomics import one_lane
from zluda.compiler.cpu.ops import CpuOps
from zluda.compiler.cpu.special import LANE_MASKS, along, context_pointer, warp_number
from zluda.compiler.cpu.warp import stop
from zluda.compiler.ir import Builder, Value
from zluda.compiler.lanes import uniform
from zluda.compiler.native import DONE, NativeControl
from zluda.compiler.stops import FAULT_CODES, sized
from zluda.compiler.target import VARYING, ZEROS, CallValue, Geometry, Lanes, Refusal, Shape
from zluda.compiler.unit import Unit
from zluda.errors import UnsupportedError
from zluda.ptx.module import Function, Register, Variable
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

LANE = Value("i32", 1, "%lane")
"""The thread's lane in its warp: an argument of every solo function."""


class SoloOps(CpuOps):
    """A thread by itself. What lanes do together is in no solo function."""

    geometry = Geometry(groups=1, width=1)

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}  # of stack variables, by the value that is their address

    def special_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        shape = super().special_shape(f, name)
        return shape if shape.uniform else VARYING

    def special(self, f: FunctionCodegen, name: str) -> Lanes:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        b, plain = f.b, alias(f.unit, name)
        if self.special_shape(f, plain).constant is None:
            if plain.startswith("%tid."):
                thread = b.add(b.shl(warp_number(), 5), LANE)
                return _lane(along(f, thread, "xyz".index(plain[-1])))
            if plain == "%laneid":
                return _lane(LANE)
            if plain in LANE_MASKS:
                return _lane(_lane_mask(b, plain))
        return super().special(f, name)

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        variable = stack_variable(f, name)
        if variable is None:
            return super().symbol_shape(f, name)
        return Shape(ZEROS, 1, lowest_bit(lane_stride(variable) | STACK_ALIGN))

    def symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        found, variable = super().symbol(f, name), stack_variable(f, name)
        if variable is not None:
            self._sizes[found.parts[0].ref] = variable.size
        return found

    def check_access(self, f: FunctionCodegen, space: str, address: Lanes, offset: int, size: int) -> None:
        """See :class:`~zluda.compiler.cpu.addresses.AddressOps`: nothing to do for a variable by its name."""
        if 0 <= offset <= self._sizes.get(address.parts[0].ref, 0) - size and not offset % size:
            return
        super().check_access(f, space, address, offset, size)

    def check_alignment(self, f: FunctionCodegen, space: str, address: Lanes, offset: int, size: int) -> None:
        """See :class:`~zluda.compiler.cpu.addresses.AddressOps`; tested by a function, for there are many."""
        if size <= 1 or (address.shape.align % size == 0 and offset % size == 0):
            return
        b, value = f.b, address.parts[0]
        checked = (value.ref, offset % size, size)
        if checked not in f.checked:
            f.checked.add(checked)
            parameters = [("ptr", 1), ("i32", 1), ("i32", 1), ("i64", 1)]
            name = b.module.function(
                f"solo.aligned.{size}", parameters, lambda c, a: _test_aligned(c, a, size)
            )
            where = b.add(b.resize(value, "i64"), offset)
            b.call(name, [context_pointer(), warp_number(), LANE, where])

    def stack_bytes(self, variable: Variable) -> int:
        """One copy."""
        return lane_stride(variable)

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
        """See :class:`~zluda.compiler.target.TargetOps`."""
        whole = _whole(address)
        return super().load(f, space, whole, offset, type, count, volatile=volatile, invariant=invariant)

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
        """See :class:`~zluda.compiler.target.TargetOps`."""
        whole = [_whole(v) for v in values]
        super().store(f, space, _whole(address), offset, type, whole, volatile=volatile)

    def report(
        self, f: FunctionCodegen, kind: str, bad: list[Value], parts: list[Value], offset: int, size: int
    ) -> None:
        """See :meth:`~zluda.compiler.cpu.addresses.AddressOps.report`."""
        b = f.b
        thread = b.add(b.shl(warp_number(), 5), LANE)
        code = b.const("i32", sized(FAULT_CODES[kind], size))
        where = b.add(b.resize(parts[0], "i64"), offset)
        b.call("zluda_fault", [context_pointer(), code, thread, where])
        b.unreachable()

    def atomic(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        op: str,
        type: ScalarType,
        operands: list[Lanes],
        *,
        wanted: bool,
    ) -> Lanes | None:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        self.check_access(f, space, _whole(address), offset, type.bits // 8)
        pointer = self.pointer(f, space, address.parts[0], offset)
        return _lane(one_lane(f, pointer, [o.parts[0] for o in operands], space, op, type))

    def trap(self, f: FunctionCodegen, kind: str) -> None:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        if kind not in FAULT_CODES:
            raise UnsupportedError(kind)
        self._stop(f, kind)

    def refuse(self, f: FunctionCodegen, refusal: Refusal) -> None:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        self._stop(f, "unsupported", f.unit.refusal_index(refusal))

    def _stop(self, f: FunctionCodegen, kind: str, detail: int = 0) -> None:
        stop(f.b, f.b.shl(1, LANE), kind, detail)
        f.b.label(f.b.fresh("stopped"))

    def call(
        self,
        f: FunctionCodegen,
        name: str,
        results: list[CallValue],
        arguments: list[CallValue],
        *,
        cut: bool = True,
    ) -> None:
        """Call another solo function: they call no others, and none of them leaves the kernel."""
        function = f.unit.functions[name]
        pointers = [self._place(f, v, p) for v, p in zip(results, function.returns, strict=True)]
        pointers += [self._place(f, v, p) for v, p in zip(arguments, function.parameters, strict=True)]
        f.b.call(solo_name(f.unit, name), [context_pointer(), warp_number(), LANE, *pointers])
        for value, pointer, variable in zip(results, pointers, function.returns, strict=False):
            if value.target is not None:
                f.write(value.target, _lane(f.b.load(f"i{variable.type.bits}", pointer, align=1)))

    def _place(self, f: FunctionCodegen, value: CallValue, variable: Variable) -> Value:
        if value.variable:
            self.symbol(f, value.variable)
            return f.stack_variables[value.variable]
        pointer = f.b.alloca("i8", count=lane_stride(variable))
        if value.lanes is not None:
            f.b.store(f.resize(value.lanes, variable.type.bits).parts[0], pointer, align=1)
        return pointer


def solo_name(unit: Unit, name: str) -> str:
    """The LLVM name of a solo function; :meth:`Unit.ir_name` is that of what calls it for a warp."""
    return f"solo.{unit.ir_name(name)}"


def define_solo(unit: Unit, name: str) -> None:
    """Write a function for one thread, and for a warp what calls it lane by lane."""
    function = unit.functions[name]
    formal = [f"ptr %parameter.{i}" for i in range(len(function.returns) + len(function.parameters))]
    solo = solo_name(unit, name)
    try:
        body = _body(unit, function, SoloOps())
    except UnsupportedError as error:
        body = Builder(unit.ir)
        index = unit.refusal_index(Refusal(error.what, error.where))
        stop(body, body.shl(1, LANE), "unsupported", index)
    arguments = ", ".join(["ptr %context", "i32 %warp", LANE.typed, *formal])
    unit.ir.define(solo, f"internal void @{solo}({arguments}) noinline #0", body)
    _define_each(unit, name, solo, formal)


def _body(unit: Unit, function: Function, ops: SoloOps) -> Builder:
    from zluda.compiler.codegen import FunctionCodegen

    f = FunctionCodegen(unit, function, ops, partial=False)
    variables = [*function.returns, *function.parameters]
    pointers = [Value("ptr", 1, f"%parameter.{i}") for i in range(len(variables))]
    f.stack_variables |= {v.name: p for v, p in zip(variables, pointers, strict=True)}
    for variable, pointer in zip(function.parameters, pointers[len(function.returns) :], strict=True):
        if variable.space == "reg":
            loaded = f.b.load(f"i{variable.type.bits}", pointer, align=1)
            f.initialize(Register(variable.name, variable.type), _lane(loaded))
    NativeControl(f, _nobody_leaves).write()
    for variable, pointer in zip(function.returns, pointers, strict=False):
        if variable.space == "reg":
            f.b.store(f.final(Register(variable.name, variable.type)).parts[0], pointer, align=1)
    f.b.ret()
    return f.b


def _nobody_leaves() -> None:
    raise AssertionError("a solo function that executes exit")


def _define_each(unit: Unit, name: str, solo: str, formal: list[str]) -> None:
    """``function.N``: the solo function for each active lane."""
    function, b = unit.functions[name], Builder(unit.ir)
    strides = [lane_stride(v) for v in (*function.returns, *function.parameters)]
    b.label("start")
    b.branch("next")
    b.label("next")
    left = b.define("i32", 1, "phi i32 [ %active, %start ], [ %rest, %each ]")
    b.cond_branch(b.icmp("eq", left, 0), DONE, "each")
    b.label("each")
    lane = b.intrinsic("cttz", left, True)
    b.emit(f"%rest = and i32 {left.ref}, {b.sub(left, 1).ref}")
    pointers = [
        b.gep(Value("ptr", 1, f"%parameter.{i}"), b.mul(b.zext(lane, "i64"), stride))
        for i, stride in enumerate(strides)
    ]
    b.call(solo, [context_pointer(), warp_number(), lane, *pointers])
    b.branch("next")
    b.label(DONE)
    b.ret(Value("i32", 1, "%active"))
    arguments = ", ".join(["ptr %context", "i32 %warp", "i32 %active", *formal])
    unit.ir.define(unit.ir_name(name), f"internal i32 @{unit.ir_name(name)}({arguments}) noinline #0", b)


def _test_aligned(b: Builder, arguments: list[Value], size: int) -> Value:
    """(context, warp, lane, address): a fault unless the address is a multiple of ``size``."""
    context, warp, lane, address = arguments
    b.cond_branch(b.icmp("ne", b.and_(address, size - 1), 0), "misaligned", "aligned")
    b.label("misaligned")
    thread = b.add(b.shl(warp, 5), lane)
    code = b.const("i32", sized(FAULT_CODES["misaligned"], size))
    b.call("zluda_fault", [context, code, thread, address])
    b.unreachable()
    b.label("aligned")
    return Value("void", 1, "")


def _whole(lanes: Lanes) -> Lanes:
    """One lane's value as one for all lanes, since there is no other: one scalar access."""
    return uniform(lanes.parts[0], align=lanes.shape.align)


def _lane(value: Value) -> Lanes:
    """One lane's value."""
    return Lanes(VARYING, (value,))


_ONE_LANE: dict[str, Callable[[Builder, Value], Value]] = {
    "%lanemask_eq": lambda b, bit: bit,
    "%lanemask_lt": lambda b, bit: b.sub(bit, 1),
    "%lanemask_le": lambda b, bit: b.sub(b.shl(bit, 1), 1),
    "%lanemask_gt": lambda b, bit: b.not_(b.sub(b.shl(bit, 1), 1)),
    "%lanemask_ge": lambda b, bit: b.not_(b.sub(bit, 1)),
}
"""Masks of lanes from the lane's own bit; shifted out of the word, what is below it is all ones."""


def _lane_mask(b: Builder, name: str) -> Value:
    return _ONE_LANE[name](b, b.shl(1, LANE))
