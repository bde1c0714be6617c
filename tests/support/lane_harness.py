"""Straight-line PTX over numpy arrays, through nothing but the lane-wise lowerings.

    run("add.u32 {d}, {a}, {b};", "u32", [x, y], "u32 u32")

compiles the body once for one lane and once for sixteen, runs both over the arrays, insists that they
agree, and returns the bits. Values are unsigned arrays of bit patterns throughout.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from zluda.compiler.ir import Builder, Module, Value, constant
from zluda.compiler.lower.families import LANEWISE
from zluda.compiler.lower.lanewise import as_bits, canonical_nan, reads_carry, writes_carry
from zluda.ptx.module import Immediate, Instruction, Negated, Operand, Pair, Register, Selected, Sink
from zluda.ptx.parse import Module as PtxModule
from zluda.ptx.types import BY_SPELLING

Bits = NDArray[Any]
LANES = (1, 16)
WIDTHS = {"pred": 8, "shift": 32, "count": 32, "lane": 32}
_REGISTERS = {8: ".b16", 16: ".b16", 32: ".b32", 64: ".b64"}


def width_of(kind: str) -> int:
    """Bits of one stored value of a kind: a PTX type, or one of :data:`WIDTHS`."""
    return WIDTHS[kind] if kind in WIDTHS else BY_SPELLING[kind].bits


def _register(kind: str) -> str:
    return ".pred" if kind == "pred" else _REGISTERS[width_of(kind)]


def instructions(body: str, result: str, sources: Sequence[str]) -> list[Instruction]:
    """The body's instructions; ``{d}``, ``{a}``, ``{b}``, ``{c}`` stand for result and sources."""
    names = dict(zip("dabc", (result, *sources), strict=False))
    declared = "".join(f"\t.reg {_register(kind)} %{name};\n" for name, kind in names.items())
    text = re.sub(r"\{([dabc])\}", r"%\1", body)
    ptx = f".version 9.0\n.target sm_100\n.address_size 64\n.visible .entry k()\n{{\n{declared}{text}\n}}\n"
    return PtxModule(ptx, "<test>").function("k").instructions


class _Evaluator:
    """Register file of one straight line of instructions."""

    def __init__(self, b: Builder, registers: dict[str, Value]) -> None:
        self.b, self.registers = b, registers

    def operand(self, operand: Operand) -> Value:
        if isinstance(operand, Register):
            return self.registers[operand.name]
        if isinstance(operand, Selected):
            return self.registers[operand.operand.name]
        if isinstance(operand, Negated):
            return self.b.not_(self.registers[operand.operand.name])
        assert isinstance(operand, Immediate), operand
        return constant("i64" if operand.float_bits is None else f"i{operand.float_bits}", operand.value)

    def assign(self, destination: Operand, value: Value, *, signed: bool) -> None:
        if isinstance(destination, Sink):
            return
        destination = destination.operand if isinstance(destination, Selected) else destination
        assert isinstance(destination, Register)
        bits = canonical_nan(self.b, value)
        self.registers[destination.name] = self.b.resize(bits, f"i{destination.type.bits}", signed=signed)

    def execute(self, inst: Instruction) -> None:
        values = [self.operand(o) for o in inst.operands[1:]]
        if inst.opcode == "mov":
            self.assign(inst.operands[0], as_bits(self.b, values[0], inst.type.bits), signed=False)
            return
        if reads_carry(inst):
            values.append(self.registers["%cc"])
        result = LANEWISE[inst.opcode](self.b, inst, values)
        if writes_carry(inst):
            assert not isinstance(result, Value)
            result, self.registers["%cc"] = result
        first = inst.operands[0]
        targets = (first.first, first.second) if isinstance(first, Pair) else (first,)
        results = (result,) if isinstance(result, Value) else result
        for target, value in zip(targets, results, strict=True):
            self.assign(target, value, signed=bool(inst.types) and inst.type.kind == "s")


def emit(module: Module, name: str, body: str, result: str, sources: Sequence[str], lanes: int) -> None:
    """``void name(in0, in1, in2, out, count)`` looping over arrays ``lanes`` at a time."""
    b = Builder(module)
    b.label("entry")
    b.branch("loop")
    b.label("loop")
    index = Value("i64", 1, "%i")
    b.emit("%i = phi i64 [ 0, %entry ], [ %next, %loop ]")
    registers: dict[str, Value] = {}
    for position, kind in enumerate(sources):
        element = f"i{width_of(kind)}"
        address = b.gep(Value("ptr", 1, f"%in{position}"), index, element)
        value = b.load(element, address, lanes)
        if kind == "pred":
            value = b.icmp("ne", value, 0)
        elif width_of(kind) == 8:
            value = b.resize(value, "i16", signed=kind == "s8")
        registers[f"%{'abc'[position]}"] = value
    evaluator = _Evaluator(b, registers)
    for inst in instructions(body, result, sources):
        evaluator.execute(inst)
    value = b.splat(as_bits(b, registers["%d"], width_of(result)), lanes)
    b.store(value, b.gep(Value("ptr", 1, "%out"), index, f"i{width_of(result)}"))
    b.emit(f"%next = add i64 %i, {lanes}")
    b.cond_branch(b.icmp("ult", Value("i64", 1, "%next"), Value("i64", 1, "%count")), "loop", "done")
    b.label("done")
    b.ret()
    header = f"void @{name}(ptr %in0, ptr %in1, ptr %in2, ptr %out, i64 %count) nounwind"
    module.define(name, header + ' "prefer-vector-width"="512" "min-legal-vector-width"="512"', b)


@functools.cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


@functools.cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(_machine(), use_jit_link=False)


_libraries: list[Any] = []  # keeps the code alive


def load(module: Module, *names: str) -> list[int]:
    """Compile a module; the addresses of its functions."""
    parsed = llvm.parse_assembly(module.text())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(_machine(), options)
    passes = llvm.create_new_module_pass_manager()
    for add in ("sroa", "simplify_cfg", "instruction_combine"):
        getattr(passes, f"add_{add}_pass")()
    passes.run(parsed, builder)
    image = _machine().emit_object(parsed)
    library = llvm.JITLibraryBuilder().add_object_img(image)
    for name in names:
        library = library.export_symbol(name)
    tracker = library.add_current_process().link(_jit(), f"library{len(_libraries)}")
    _libraries.append(tracker)
    return [tracker[name] for name in names]


_SIGNATURE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)


def call(address: int, inputs: Sequence[Bits], result_width: int) -> Bits:
    """Run a loop made by :func:`emit` over equally long arrays."""
    count = len(inputs[0])
    padded = -(-count // 16) * 16
    arrays = [np.concatenate([x, np.repeat(x[-1:], padded - count)]) for x in inputs]
    out = np.zeros(padded, dtype=f"<u{result_width // 8}")
    pointers = [a.ctypes.data for a in arrays] + [0] * (3 - len(arrays))
    _SIGNATURE(address)(*pointers, out.ctypes.data, padded)
    return out[:count]


def run_many(forms: Sequence[tuple[str, str, str]], inputs: Sequence[Bits]) -> list[Bits]:
    """Several (body, result, sources) over the same inputs, compiled as one module."""
    module = Module()
    names: list[str] = []
    for number, (body, result, sources) in enumerate(forms):
        for lanes in LANES:
            names.append(f"f{number}.{lanes}")
            emit(module, names[-1], body, result, sources.split(), lanes)
    addresses = iter(load(module, *names))
    results = []
    for body, result, sources in forms:
        arrays = [
            np.asarray(x, dtype=f"<u{width_of(k) // 8}") for x, k in zip(inputs, sources.split(), strict=True)
        ]
        scalar, vector = (call(next(addresses), arrays, width_of(result)) for _ in LANES)
        wrong = np.flatnonzero(scalar != vector)
        assert not len(wrong), f"{body}: lanes disagree at {[hex(int(a[wrong[0]])) for a in arrays]}"
        results.append(vector)
    return results


def run(body: str, result: str, inputs: Sequence[Bits], sources: str) -> Bits:
    """One form; see the module's docstring."""
    return run_many([(body, result, sources)], inputs)[0]
