"""Control flow (PTX ISA 9.7.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zluda.device.interpreter.registry import control
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits
from zluda.ptx.module import Function, Label, Operand, Register, Sink, Symbol, Variable, Vector
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.device.interpreter.machine import Machine

T = ScalarType


def _next(s: Step, pc: int, threads: Bits) -> None:
    s.machine.push((s.depth, s.frame.code.number, pc), threads)


@control("bra")
def bra(s: Step) -> None:
    """9.7.12.2."""
    label = s.inst.operands[0]
    assert isinstance(label, Label)
    _next(s, s.frame.code.labels[label.name], s.threads)


@control("brx")
def brx(s: Step) -> None:
    """9.7.12.3: the label of a table that an index names."""
    index = s.value(s.inst.operands[0], T.B32)
    label = s.inst.operands[1]
    assert isinstance(label, Label)
    targets = s.frame.code.targets[label.name].targets
    for which in np.unique(index).tolist():
        mine = index == which
        if which >= len(targets):
            first = int(np.flatnonzero(mine)[0])
            raise s.machine.fault(s, f"brx.idx {which} of {len(targets)} targets", first)
        _next(s, s.frame.code.labels[targets[which]], s.threads[mine])


@control("exit")
def exit_(s: Step) -> None:
    """9.7.12.6."""
    s.machine.exit(s.threads)


@control("ret")
def ret(s: Step) -> None:
    """9.7.12.5."""
    s.machine.exit_or_return(s.threads, s.depth, s.frame.code.number)


@control("trap")
def trap(s: Step) -> None:
    """9.7.19.4."""
    raise s.machine.fault(s, "trap", 0)


# --- calls (9.7.12.4) ----------------------------------------------------------------------------------


@control("call")
def call(s: Step) -> None:
    """9.7.12.4: a function by name, or by an address in a register."""
    callee = _callee(s)
    if isinstance(callee, Symbol):
        _enter(s, callee.name)
        return
    addresses = s.value(callee, T.B64)
    for address in np.unique(addresses).tolist():
        mine = addresses == address
        name = s.machine.kernel.called_by(int(address))
        if name is None:
            raise s.unsupported(f"call of {address:#x}, which is no function of this module")
        _enter(Step(s.machine, s.frame, s.inst, s.pc, s.threads[mine], s.depth), name)


def _parts(s: Step) -> tuple[tuple[Operand, ...], Operand, tuple[Operand, ...]]:
    """What is returned, who is called, what is handed over."""
    operands = [o for o in s.inst.operands if not isinstance(o, Label)]
    at = next(i for i, o in enumerate(operands) if not isinstance(o, Vector))
    returned = operands[0] if at > 0 else Vector(())
    handed = operands[at + 1] if len(operands) > at + 1 else Vector(())
    return s.elements(returned), operands[at], s.elements(handed)


def _callee(s: Step) -> Operand:
    return _parts(s)[1]


def _enter(s: Step, name: str) -> None:
    machine, kernel = s.machine, s.machine.kernel
    number = kernel.number(name)
    code = kernel.code(number)
    depth = -s.depth + 1
    if depth not in machine.returns:
        machine.returns[depth] = np.zeros(machine.count, np.int64), np.zeros(machine.count, np.int64)
    functions, instructions = machine.returns[depth]
    functions[s.threads], instructions[s.threads] = s.frame.code.number, s.pc
    frame = machine.frame(code, depth)
    base = -(-machine.top[s.threads] // 16) * 16
    frame.base[s.threads] = base
    machine.top[s.threads] = base + code.frame_bytes
    machine.spaces.reserve(int(machine.top.max()))
    _hand_over(s, code.function, Step(machine, frame, s.inst, 0, s.threads, -depth))
    machine.push((-depth, number, 0), s.threads)


def _hand_over(s: Step, function: Function, inside: Step) -> None:
    for operand, parameter in zip(_parts(s)[2], function.parameters, strict=True):
        _copy(s, operand, inside, parameter)


def _type(variable: Variable) -> ScalarType:
    return {8: T.B8, 16: T.B16, 32: T.B32, 64: T.B64, 1: T.PRED}.get(variable.type.bits, T.B64)


def _copy(s: Step, operand: Operand, inside: Step, parameter: Variable) -> None:
    """An argument, by register or in ``.param`` memory, to where the function has it."""
    if isinstance(operand, Symbol) and parameter.space != "reg":
        start, end = s.machine.address_of(s, operand.name), inside.machine.address_of(inside, parameter.name)
        _move(s, start, inside, end, parameter.size)
        return
    value = s.value(operand, _type(parameter))
    if parameter.space == "reg":
        inside.put(Register(parameter.name, parameter.type), value)
    else:
        inside.machine.spaces.store(inside, "", inside.machine.address_of(inside, parameter.name), value)


def _move(s: Step, start: Bits, inside: Step, end: Bits, size: int) -> None:
    done = 0
    while done < size:
        step = next(n for n in (8, 4, 2, 1) if size - done >= n and not _misaligned(start, end, done, n))
        value = s.machine.spaces.load(s, "", start + np.uint64(done), step)
        inside.machine.spaces.store(inside, "", end + np.uint64(done), value)
        done += step


def _misaligned(start: Bits, end: Bits, done: int, size: int) -> bool:
    return bool(
        ((start + np.uint64(done)) % np.uint64(size)).any()
        or ((end + np.uint64(done)) % np.uint64(size)).any()
    )


def give_back(machine: Machine, threads: Bits, depth: int, left: int, function: int, pc: int) -> None:
    """At a return from ``left`` at ``depth``: what it returns goes to the call at ``pc`` of ``function``."""
    kernel = machine.kernel
    code, caller = kernel.code(left), kernel.code(function)
    frame, outer = machine.frame(code, depth), machine.frame(caller, depth - 1)
    inst = caller.instructions[pc]
    inside = Step(machine, frame, inst, pc, threads, -depth)
    outside = Step(machine, outer, inst, pc, threads, -depth + 1)
    for operand, result in zip(_parts(outside)[0], code.function.returns, strict=True):
        if isinstance(operand, Sink):
            continue
        if result.space == "reg":
            value = inside.register(Register(result.name, result.type))
            _receive(outside, operand, value)
        elif isinstance(operand, Symbol):
            start, end = machine.address_of(inside, result.name), machine.address_of(outside, operand.name)
            _move(inside, start, outside, end, result.size)
        else:
            at = machine.address_of(inside, result.name)
            _receive(outside, operand, machine.spaces.load(inside, "", at, result.size))
    machine.top[threads] = frame.base[threads]


def _receive(outside: Step, operand: Operand, value: Bits) -> None:
    if isinstance(operand, Symbol):
        outside.machine.spaces.store(outside, "", outside.machine.address_of(outside, operand.name), value)
    else:
        outside.put(operand, value)
