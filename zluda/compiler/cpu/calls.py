"""Functions on the CPU: called with the lanes that call, parameters in memory, one slot a lane.

``i32 function(context, warp, active lanes, results…, parameters…)`` returns the lanes that are still there:
those that executed ``exit`` are not. Results and parameters are pointers to 32 copies side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.cpu.addresses import lane_stride
from zluda.compiler.cpu.context import STACK_BYTES
from zluda.compiler.cpu.masked import MaskedControl
from zluda.compiler.cpu.memory import MemoryOps
from zluda.compiler.cpu.special import context_field, context_pointer, warp_number
from zluda.compiler.cpu.warp import refuse_apart, stop
from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.calls import of_another_module
from zluda.compiler.target import VARYING, WARP, CallValue, Geometry, Lanes, Refusal
from zluda.compiler.unit import Unit
from zluda.errors import UnsupportedError
from zluda.ptx.module import Function, Register, Variable

if TYPE_CHECKING:
    from zluda.compiler.cpu.ops import CpuOps

_STACK_LEFT = 4 << 20  # bytes: more than the frames of a recursive function and of what it may call besides


def define_function(unit: Unit, name: str, ops: CpuOps) -> None:
    """Write a function that a kernel may call; one without a lowering spoils only launches that reach it."""
    function = unit.functions[name]
    pointers = len(function.returns) + len(function.parameters)
    formal = ", ".join(
        ["ptr %context", "i32 %warp", "i32 %active", *(f"ptr %parameter.{i}" for i in range(pointers))]
    )
    try:
        body = _function_body(unit, function, ops)
    except UnsupportedError as error:
        body = Builder(unit.ir)
        index = unit.refusal_index(Refusal(error.what, error.where))
        stop(body, Value("i32", 1, "%active"), "unsupported", index)
    linkage = "" if name == unit.exported else "internal "
    header = f"{linkage}i32 @{unit.ir_name(name)}({formal}) noinline #0"
    unit.ir.define(unit.ir_name(name), header, body)


def _function_body(unit: Unit, function: Function, ops: CpuOps) -> Builder:
    f = FunctionCodegen(unit, function, ops, partial=True)
    variables = [*function.returns, *function.parameters]
    pointers = [Value("ptr", 1, f"%parameter.{i}") for i in range(len(variables))]
    f.stack_variables |= {v.name: p for v, p in zip(variables, pointers, strict=True)}
    active = Value("i32", 1, "%active")
    if function.name in unit.recursive_functions():
        _guard_stack(f, active)
    if unit.may_exit:
        f.exited = f.b.alloca("i32", align=4)
        f.b.entry.append(f"store i32 0, ptr {f.exited.ref}, align 4")
    mask = tuple(f.unpack_bits(active))
    for variable, pointer in zip(function.parameters, pointers[len(function.returns) :], strict=True):
        if variable.space == "reg":
            f.initialize(Register(variable.name, variable.type), load_lanes(f, pointer, variable))
    MaskedControl(f, mask).write()
    for variable, pointer in zip(function.returns, pointers, strict=False):
        if variable.space == "reg":
            store_lanes(f, pointer, f.final(Register(variable.name, variable.type)), lane_stride(variable))
    alive = active
    if f.exited is not None:
        alive = f.b.and_(active, f.b.not_(f.b.load("i32", f.exited, align=4)))
    f.b.ret(alive)
    return f.b


def _guard_stack(f: FunctionCodegen, active: Value) -> None:
    """End the launch before calls leave their warp's stack: stacks lie side by side in the block's region."""
    b = f.b
    here = b.cast("ptrtoint", b.alloca("i8", align=1), "i64")
    left = b.and_(b.sub(here, context_field(f, "stack_low", "i64")), STACK_BYTES - 1)
    deep, on = b.fresh("deep"), b.fresh("on")
    b.cond_branch(b.icmp("ult", left, _STACK_LEFT), deep, on)
    b.label(deep)
    stop(b, active, "recursion")
    b.label(on)


def load_lanes(f: FunctionCodegen, pointer: Value, variable: Variable) -> Lanes:
    """A register-sized value of every lane."""
    width, stride = f.geometry.width, lane_stride(variable)
    parts = [
        f.b.load(f"i{variable.type.bits}", f.b.gep(pointer, g * width * stride), width, align=1)
        for g in range(f.geometry.groups)
    ]
    return Lanes(VARYING, tuple(parts))


def store_lanes(f: FunctionCodegen, pointer: Value, lanes: Lanes, stride: int) -> None:
    """Every lane's value, side by side."""
    for g, part in enumerate(f.vectors(lanes)):
        f.b.store(part, f.b.gep(pointer, g * f.geometry.width * stride), align=1)


class CallOps(MemoryOps):
    """The call part of the CPU's TargetOps."""

    geometry: Geometry

    def call(
        self,
        f: FunctionCodegen,
        name: str,
        results: list[CallValue],
        arguments: list[CallValue],
        *,
        cut: bool = True,
    ) -> None:
        """Call a function for the active lanes; ``cut`` drops lanes that left the kernel in it."""
        function = f.unit.callee(name)
        assert function is not None
        b = f.b
        pointers = [self._place(f, v, p) for v, p in zip(results, function.returns, strict=True)]
        pointers += [self._place(f, v, p) for v, p in zip(arguments, function.parameters, strict=True)]
        alive = b.call(
            f.unit.ir_name(name), [context_pointer(), warp_number(), f.mask_bits(), *pointers], "i32"
        )
        for value, pointer, variable in zip(results, pointers, function.returns, strict=False):
            if value.target is not None:
                f.write(value.target, load_lanes(f, pointer, variable))
        if f.unit.may_exit:
            if cut:
                f.survive(alive)
            else:
                f.mask = tuple(f.unpack_bits(alive))

    def call_through(
        self,
        f: FunctionCodegen,
        target: Lanes,
        names: list[str],
        results: list[CallValue],
        arguments: list[CallValue],
        others: Refusal,
    ) -> None:
        """For each function it may be, call it for the lanes whose pointer says so."""
        remaining = f.mask_bits()
        b = f.b
        slot = b.alloca("i32", align=4)
        b.store(remaining, slot, align=4)
        alive = b.alloca("i32", align=4)
        b.store(b.const("i32", 0), alive, align=4)
        whole = f.mask
        first = self.first_function(f)
        targets = f.vectors(target)
        offsets = [b.sub(t, b.splat(first, t.lanes)) for t in targets]
        for name in names:
            chosen = f.pack_bits([b.icmp("eq", o, f.unit.function_offset(name)) for o in offsets])
            bits = b.and_(b.load("i32", slot, align=4), chosen)
            some, past = b.fresh("calls"), b.fresh("called")
            b.cond_branch(b.icmp("ne", bits, 0), some, past)
            b.label(some)
            if name in f.unit.barriers()[0]:
                refuse_apart(f, b.icmp("ne", bits, remaining))
            with f.masked(tuple(f.unpack_bits(bits))):
                self.call(f, name, results, arguments, cut=False)
                b.store(b.or_(f.mask_bits(), b.load("i32", alive, align=4)), alive, align=4)
            b.store(b.and_(b.load("i32", slot, align=4), b.not_(bits)), slot, align=4)
            b.branch(past)
            b.label(past)
        bad, good = b.fresh("nowhere"), b.fresh("everybody")
        left = b.load("i32", slot, align=4)
        b.cond_branch(b.icmp("ne", left, 0), bad, good)
        b.label(bad)
        foreign = b.and_(left, f.pack_bits([of_another_module(f, t) for t in targets]))
        refused, invalid = b.fresh("refused"), b.fresh("invalid")
        b.cond_branch(b.icmp("ne", foreign, 0), refused, invalid)
        b.label(refused)
        with f.masked(tuple(f.unpack_bits(foreign))):
            f.ops.refuse(f, others)
        b.branch(invalid)
        b.label(invalid)
        with f.masked(tuple(f.unpack_bits(left))):
            f.ops.trap(f, "call")
        b.branch(good)
        b.label(good)
        f.mask = whole
        if f.unit.may_exit:
            f.survive(b.load("i32", alive, align=4))

    def _place(self, f: FunctionCodegen, value: CallValue, variable: Variable) -> Value:
        """Where a result goes or an argument lies."""
        if value.variable:
            self.symbol(f, value.variable)
            return f.stack_variables[value.variable]
        stride = lane_stride(variable)
        pointer = f.b.alloca("i8", count=WARP * stride)
        if value.lanes is not None:
            store_lanes(f, pointer, f.resize(value.lanes, variable.type.bits), stride)
        return pointer
