"""A kernel for the CPU: its functions, the loop over its warps, and the object they make."""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler import library
from zluda.compiler.cache.key import host_key
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.cpu.calls import define_function
from zluda.compiler.cpu.llvm import FUNCTION_ATTRIBUTES, emit_object
from zluda.compiler.cpu.masked import MaskedControl
from zluda.compiler.cpu.ops import CpuOps
from zluda.compiler.cpu.solo import define_solo
from zluda.compiler.ir import Approximate, Builder, Value, constant
from zluda.compiler.large import choose_solo, is_large, is_quick
from zluda.compiler.library import LibraryFunction
from zluda.compiler.lower.approximate import choose_numerics
from zluda.compiler.registers import Mask
from zluda.compiler.relocatable import merge
from zluda.compiler.services import NO_KERNEL, texture_library
from zluda.compiler.target import WARP, CompiledKernel
from zluda.compiler.unit import Unit, kernel_unit

ENTRY = "kernel"


def _native(b: Builder, name: str, xs: list[Value]) -> Value:
    """See :data:`zluda.compiler.ir.Approximate`."""
    from zluda.compiler.cpu import approximate  # few kernels have any such instruction

    return approximate.compute(b, name, xs)


def _envelope(unit: Unit) -> Approximate:
    from zluda.compiler.cpu.envelope import envelope

    return envelope(unit)


_NUMERICS: dict[str, Callable[[Unit], Approximate]] = {
    "native": lambda unit: _native,
    "envelope": _envelope,
}


def compile_unit(unit: Unit) -> CompiledKernel:
    """See :func:`zluda.compiler.compile_kernel`."""
    functions = library.reached(unit.outside, lambda name, wait: _library_function(name, unit, wait=wait))
    library.add_symbols(unit, functions)
    text = kernel_ir(unit)
    code = emit_object(text, quickly=is_quick(unit))
    return unit.finished(merge(code, [f.code for f in functions]) if functions else code, ENTRY)


def kernel_ir(unit: Unit) -> str:
    """LLVM IR of a whole kernel."""
    ops = CpuOps()
    _define_functions(unit, ops)
    _define_warp(unit, ops)
    _define_entry(unit)
    return _whole(unit)


def _define_functions(unit: Unit, ops: CpuOps) -> None:
    choose_numerics(unit, _NUMERICS)
    choose_solo(unit)
    unit.ir.compact = is_large(unit)
    unit.ir.quick = is_quick(unit)
    for name in unit.functions:
        if name in unit.solo:
            define_solo(unit, name)
        else:
            define_function(unit, name, ops)


def _whole(unit: Unit) -> str:
    functions = unit.ir.text().replace(") {\n", ") #0 {\n")
    return f"{functions}\n{FUNCTION_ATTRIBUTES}\n!0 = !{{}}\n"


def _library_function(name: str, caller: Unit, *, wait: bool) -> LibraryFunction | None:
    """A texture function for kernels of the caller's numerics; see :func:`library.reached`."""

    def make() -> LibraryFunction:
        unit = kernel_unit(texture_library(), NO_KERNEL, (WARP, 1, 1), caller.contract)
        unit.numerics = caller.numerics
        _define_functions(library.export(unit, name), CpuOps())
        library.check(unit)
        return LibraryFunction(name, emit_object(_whole(unit)), tuple(unit.symbols), tuple(unit.outside))

    key = host_key("library", [name, caller.numerics, caller.contract])
    return library.library_function(key, name, make, label="cpu", wait=wait)


def _define_warp(unit: Unit, ops: CpuOps) -> None:
    partial = unit.threads % WARP != 0 or unit.may_exit
    f = FunctionCodegen(unit, unit.kernel, ops, partial=partial)
    MaskedControl(f, _entry_mask(f)).write()
    f.b.ret()
    inline = "" if unit.uses_fibers else "alwaysinline "
    unit.ir.define("warp", f"internal void @warp(ptr %context, i32 %warp) {inline}#0", f.b)


def _entry_mask(f: FunctionCodegen) -> Mask | None:
    """The lanes that are threads of the block: not all, in the last warp of a block that does not fill it."""
    threads, b = f.unit.threads, f.b
    if threads % WARP == 0:
        return None
    from zluda.compiler.cpu.special import warp_number

    first = b.shl(warp_number(), 5)
    return tuple(
        b.icmp("ult", b.add(f.lane_numbers(g), b.splat(first, f.geometry.width)), threads)
        for g in range(f.geometry.groups)
    )


def _define_entry(unit: Unit) -> None:
    """``kernel(context)`` runs one block: its warps in a loop, or as fibers."""
    b = Builder(unit.ir)
    if unit.uses_fibers:
        unit.ir.declare("zluda_fibers", "void (ptr, ptr)")
        b.emit("call void @zluda_fibers(ptr %context, ptr @warp)")
    else:
        b.branch("each")
        b.label("each")
        warp = (
            b.define("i32", 1, "phi i32 [ 0, %0 ], [ %next, %each ]")
            if unit.warps > 1
            else constant("i32", 0)
        )
        b.emit(f"call void @warp(ptr %context, i32 {warp.ref})")
        if unit.warps > 1:
            b.emit(f"%next = add i32 {warp.ref}, 1")
            b.emit(f"%more = icmp ult i32 %next, {unit.warps}")
            b.emit("br i1 %more, label %each, label %out")
            b.label("out")
    b.ret()
    unit.ir.define(ENTRY, f"void @{ENTRY}(ptr %context) #0", b)
