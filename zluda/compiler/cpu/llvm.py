"""LLVM over a module's text: verify, a short list of passes, machine code.

Full O2 takes three to eight times as long and gains little on code that is vectorised already.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from zluda.compiler.cpu.faults import fence_conditions, fence_merges
from zluda.compiler.llvm import QUICK_PASSES, parse, run_passes

FUNCTION_ATTRIBUTES = (
    'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" '
    '"no-trapping-math"="true" }'
)
"""Both width attributes together: one without the other aborts the process inside LLVM."""

_LONG = 100_000
"""Lines of IR from which on registers are allocated quickly: a kernel of 12,000 PTX instructions and more.

Of 208,000 lines (Blender's ``kernel_gpu_integrator_intersect_closest``) code takes a third of the time
so, and is twice as large.
"""

_PASSES = (
    *QUICK_PASSES,
    "instruction_combine",
    "sccp",
    "simplify_cfg",
    "aggressive_dce",
)


@functools.cache
def target_machine(level: int = 2) -> Any:
    """Code generation for this host; ``level`` 0 is quick, however long a function is."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # the runtime switches stacks in assembly
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        reloc="static",  # addresses are final when an object is linked into this process
        codemodel="large",  # sections may land further than 2 GiB apart, which other models cannot reach
        jit=True,
    )


def emit_object(text: str, *, optimize: bool = True, quickly: bool = False) -> bytes:
    """A relocatable object from IR text. An error here is a fault of this compiler."""
    return bytes(_generator(text, quickly).emit_object(_compiled(text, optimize=optimize, quickly=quickly)))


def emit_assembly(text: str, *, quickly: bool = False) -> bytes:
    """Assembly from IR text."""
    return str(_generator(text, quickly).emit_assembly(_compiled(text, quickly=quickly))).encode()


def _generator(text: str, quickly: bool) -> Any:
    return target_machine(0 if quickly or text.count("\n") > _LONG else 2)


def _compiled(text: str, *, optimize: bool = True, quickly: bool = False) -> Any:
    import llvmlite.binding as llvm

    machine = target_machine()
    module = parse(text)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    if optimize:
        module = optimize_quickly(module, machine, QUICK_PASSES if quickly else _PASSES)
    return module


def optimize_quickly(module: Any, machine: Any, names: Sequence[str] = _PASSES) -> Any:
    """What the short list of passes makes of a module, kept from LLVM's faults in writing it."""
    run_passes(module, machine, names, vectorize=False)
    return without_faults(module)


def without_faults(module: Any) -> Any:
    """An optimised module as this host can be given it."""
    import llvmlite.binding as llvm

    if not llvm.get_host_cpu_features().get("avx512f", False):
        return module
    text = str(module)
    fenced = fence_conditions(fence_merges(text))
    return module if fenced == text else llvm.parse_assembly(fenced)
