"""LLVM for NVPTX: IR text in, PTX out."""

from __future__ import annotations

import functools
from typing import Any

from zluda.compiler.nvptx.targets import Target
from zluda.errors import Error

TRIPLE = "nvptx64-nvidia-cuda"

# nvcc has optimised before, and the driver's compiler will once more. Nothing here unrolls loops, which the
# driver does as it does the original's.
_PASSES = (
    "always_inliner",
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "reassociate",
    "new_gvn",
    "sccp",
    "simplify_cfg",
    "aggressive_dce",
)
_QUICK_PASSES = ("always_inliner", "sroa", "simplify_cfg")


# At 0 the back end translates what it is given. From 1 on its passes rearrange addresses (straight-line
# strength reduction), so that the driver's compiler does not see any more what two accesses have in common: a
# sort in shared memory took 12 % longer on an H200, whose driver no longer joined them.
_BACK_END = 0


@functools.cache
def _machine(target: Target, ptx: int) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _set_options()
    found = llvm.Target.from_triple(TRIPLE)
    return found.create_target_machine(cpu=target.name, features=f"+ptx{ptx}", opt=_BACK_END)


@functools.cache
def _set_options() -> None:
    """Shared and local addresses are 32 bits, as PTX's registers for them mostly are."""
    import llvmlite.binding as llvm

    llvm.set_option("zluda", "-nvptx-short-ptr")
    llvm.set_option("zluda", "-nvptx-fma-level=0")


def emit(text: str, target: Target, ptx: int, *, level: int = 3, kind: str = "asm") -> bytes:
    """PTX of IR text (``kind`` ``"llvm"``: the IR after optimisation). An error here is a fault of this
    compiler."""
    import llvmlite.binding as llvm

    machine = _machine(target, ptx)
    try:
        # The layout has to be there before LLVM computes with it: its pointers are not all of one size.
        module = llvm.parse_assembly(f'target datalayout = "{machine.target_data}"\n{text}')
        module.verify()
    except RuntimeError as error:
        raise Error(f"the compiler wrote LLVM IR that is not valid: {error}") from error
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level))
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES if level > 0 else _QUICK_PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    if kind == "llvm":
        return str(module).encode()
    return str(machine.emit_assembly(module)).encode()
