"""A kernel for an AMD GPU: LLVM IR of its functions, and the object and code object they make.

The kernel's one argument is PTX's packed parameter buffer, so its kernarg segment is what CUDA's launch is
given. LDS is laid out here, static variables from offset 0 and dynamic shared memory behind them, and its
size told to LLVM by attribute. Module variables are external symbols: :func:`~zluda.compiler.amd.linker.link`
is given their addresses when the code is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.amd import clusters, slow
from zluda.compiler.amd.barriers import Together
from zluda.compiler.amd.calls import define_function
from zluda.compiler.amd.inputs import in_all, unread_inputs
from zluda.compiler.amd.llvm import TRIPLE, Options, emit
from zluda.compiler.amd.ops import AmdOps
from zluda.compiler.amd.targets import CODE_OBJECT_VERSION, Target, target_id
from zluda.compiler.amd.unit import MAX_THREADS, build_unit
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.gpu.thread import CONSTANT
from zluda.compiler.large import choose_solo, is_large, is_quick
from zluda.compiler.layout import parameter_layout
from zluda.compiler.lower.approximate import choose_numerics
from zluda.compiler.native import LEAVE, NativeControl
from zluda.compiler.target import WARP, CompiledKernel
from zluda.compiler.unit import Unit

if TYPE_CHECKING:
    from zluda.compiler.ir import Builder, Value
    from zluda.compiler.library import LibraryFunction


def _native(b: Builder, name: str, xs: list[Value]) -> Value:
    """See :data:`zluda.compiler.ir.Approximate`."""
    from zluda.compiler.amd import approximate  # few kernels have any such instruction

    return approximate.compute(b, name, xs)


_NUMERICS = {"native": lambda unit: _native}


def compile_unit(
    unit: Unit,
    target_name: str,
    *,
    wave_size: int = 0,
    code_object_version: int = CODE_OBJECT_VERSION,
    end_refused: bool = False,
) -> CompiledKernel:
    """A kernel, with what it calls, as a relocatable object.

    ``target_name`` is a target id (``gfx1030``, ``gfx90a:sramecc+:xnack-``), ``wave_size`` 0 the target's
    native one, ``code_object_version`` 4 for HIP before 6, else 5. ``end_refused``: a wave that comes to what
    cannot be done ends instead of trapping. Raises UnsupportedError (naming the instruction), DeviceError for
    an unknown target.
    """
    chosen = target_id(target_name).target
    ops = target_ops(unit, chosen, wave_size, code_object_version, end_refused=end_refused)
    if unit.outside:
        code = _with_library(unit, ops, target_name, code_object_version)
    else:
        text = _kernel_text(unit, ops, code_object_version)
        code = emit(text, Options(target_name, ops.wave_size, level=level(unit)))
    return unit.finished(code)


def level(unit: Unit) -> int:
    """How much LLVM is to optimise."""
    return 0 if is_quick(unit) else 3


def kernel_ir(
    unit: Unit,
    chosen: Target,
    wave_size: int = 0,
    code_object_version: int = CODE_OBJECT_VERSION,
    *,
    end_refused: bool = False,
) -> str:
    """LLVM IR of a whole kernel, complete but for the data layout."""
    ops = target_ops(unit, chosen, wave_size, code_object_version, end_refused=end_refused)
    return _kernel_text(unit, ops, code_object_version)


def target_ops(
    unit: Unit,
    chosen: Target,
    wave_size: int = 0,
    code_object_version: int = CODE_OBJECT_VERSION,
    *,
    end_refused: bool = False,
) -> AmdOps:
    """The target's operations, as they are for this kernel."""
    ops = AmdOps(chosen, wave_size or chosen.wave_size)
    unit.one_warp = _one_warp(unit, ops.wave_size)
    ops.one_warp = bool(unit.one_warp)
    ops.end_refused = end_refused
    ops.hidden_arguments = code_object_version >= CODE_OBJECT_VERSION
    return ops


def _kernel_text(unit: Unit, ops: AmdOps, code_object_version: int, unread: Sequence[str] = ()) -> str:
    """``unread``: the inputs that each function of another object does not read."""
    _define_functions(unit, ops)
    _define_kernel(unit, ops)
    attributes = {
        "amdgpu-flat-work-group-size": f"1,{_max_work_items(unit)}",
        "amdgpu-lds-size": str(unit.shared.static_bytes),
    }
    spelled = " ".join(f'"{k}"="{v}"' for k, v in attributes.items())
    body = unit.ir.text()
    return _module_text(body, in_all([unread_inputs(body), *unread]), code_object_version, spelled)


def _define_functions(unit: Unit, ops: AmdOps) -> None:
    choose_numerics(unit, _NUMERICS)
    choose_solo(unit)
    unit.ir.any_nan = unit.numerics == "native"
    unit.ir.compact = is_large(unit)
    unit.ir.quick = is_quick(unit)
    for name in unit.functions:
        define_function(unit, name, ops)


def _with_library(unit: Unit, ops: AmdOps, target_name: str, code_object_version: int) -> bytes:
    """The object of a kernel that calls texture functions, with these."""
    from zluda.compiler import library  # most kernels need nothing of this
    from zluda.compiler.amd.resources import with_functions

    def get(name: str, wait: bool) -> LibraryFunction | None:
        return _library_function(name, unit, ops, target_name, code_object_version, wait=wait)

    functions = library.reached(unit.outside, get)
    library.add_symbols(unit, functions)
    text = _kernel_text(unit, ops, code_object_version, [f.unread for f in functions])
    code = emit(text, Options(target_name, ops.wave_size, level=level(unit)))
    sizes, bounded = (ops.target, ops.wave_size), not unit.recursive_functions()
    return with_functions(code, unit.kernel.name, unit.outside, functions, *sizes, bounded=bounded)


def _library_function(
    name: str, caller: Unit, ops: AmdOps, target_name: str, code_object_version: int, *, wait: bool
) -> LibraryFunction | None:
    """A texture function for kernels that are compiled as the caller is; see :func:`library.reached`."""
    import dataclasses

    from zluda.compiler import library
    from zluda.compiler.amd.resources import measured, measuring_kernel
    from zluda.compiler.cache.key import target_key
    from zluda.compiler.library import LibraryFunction
    from zluda.compiler.services import NO_KERNEL, texture_library

    told = (target_name, ops.wave_size, code_object_version, ops.one_warp, ops.end_refused)

    def make() -> LibraryFunction:
        unit = build_unit(texture_library(), NO_KERNEL, caller.contract)
        unit.numerics = caller.numerics
        _define_functions(library.export(unit, name), ops)
        library.check(unit)
        body = unit.ir.text()
        unread = unread_inputs(body)
        function = unit.functions[name]
        body += measuring_kernel(name, len(function.returns) + len(function.parameters))
        text = _module_text(body, unread, code_object_version)
        code, taken = measured(emit(text, Options(target_name, ops.wave_size, level=level(unit))))
        lists = tuple(unit.symbols), tuple(unit.outside)
        return LibraryFunction(name, code, *lists, unread, dataclasses.astuple(taken))

    key = target_key("library", [name, caller.numerics, caller.contract, repr(told)])
    return library.library_function(key, name, make, label=target_name, wait=wait)


def _module_text(body: str, unread: str, code_object_version: int, attributes: str = "") -> str:
    """A module's IR; ``attributes`` are the kernel's beside those of all functions."""
    return "\n".join(
        [
            f'target triple = "{TRIPLE}"',
            body,
            f"attributes #0 = {{ convergent nounwind {unread} }}",
            f"attributes #1 = {{ convergent nounwind {unread} {attributes} }}",
            "!0 = !{}",
            f'!1 = !{{i32 1, !"amdhsa_code_object_version", i32 {code_object_version * 100}}}',
            "!llvm.module.flags = !{!1}",
            "",
        ]
    )


def _one_warp(unit: Unit, wave_size: int) -> str:
    """Why waves hold one warp each; nothing where they are of 32 lanes, or hold two."""
    if wave_size == WARP or unit.slow_mode == "0":
        return ""
    if unit.slow_mode == "1":
        return "ZLUDA_WAVE64_SLOW_MODE=1"
    from zluda.compiler.amd.halves import may_disturb  # an analysis that waves of 32 lanes do without

    return may_disturb(unit)


def _max_work_items(unit: Unit) -> int:
    """Work items of the largest block."""
    threads = _max_threads(unit)
    return min(-(-threads // WARP) * slow.WAVE, MAX_THREADS) if unit.one_warp else threads


def _max_threads(unit: Unit) -> int:
    """``.maxntid`` or ``.reqntid``'s product: registers may be many where threads are few."""
    limit = MAX_THREADS
    for directive in ("maxntid", "reqntid"):
        product = 1
        for n in unit.kernel.directives.get(directive, ()):
            product *= n
        limit = min(limit, product) if unit.kernel.directives.get(directive) else limit
    return limit


def _define_kernel(unit: Unit, ops: AmdOps) -> None:
    f = FunctionCodegen(unit, unit.kernel, ops, partial=False)
    ops.clear_barriers(f)
    if ops.one_warp:
        slow.guard(ops, f, LEAVE)
    NativeControl(f, lambda: ops.leave(f), Together(f, ops)).write()
    f.b.branch(LEAVE)
    f.b.label(LEAVE)
    f.b.ret()
    size = parameter_layout(unit.kernel.parameters)[1]
    if unit.clustered:
        size = clusters.parameter_bytes(size)
    if ops.one_warp:
        size = slow.parameter_bytes(size)
    parameters = f"{CONSTANT} byref([{size} x i8]) align 16 {ops.parameters.ref}" if size else ""
    unit.ir.define(unit.kernel.name, f"amdgpu_kernel void @{unit.kernel.name}({parameters}) #1", f.b)
