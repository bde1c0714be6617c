"""LLVM for NVPTX: IR text in, PTX out."""

from __future__ import annotations

import functools
from typing import Any

from zluda.compiler.llvm import GPU_PASSES, QUICK_PASSES, gpu_machine, parse, run_passes
from zluda.compiler.nvptx.targets import Target

TRIPLE = "nvptx64-nvidia-cuda"

# At 0 the back end translates what it is given. From 1 on its passes rearrange addresses (straight-line
# strength reduction), so that the driver's compiler does not see any more what two accesses have in common: a
# sort in shared memory took 12 % longer on an H200, whose driver no longer joined them.
_BACK_END = 0

_OPTIONS = ("-nvptx-short-ptr", "-nvptx-fma-level=0")
"""Shared and local addresses are 32 bits, as PTX's registers for them mostly are; nothing is fused here."""


@functools.cache
def _machine(target: Target, ptx: int) -> Any:
    return gpu_machine(TRIPLE, target.name, [f"+ptx{ptx}"], _BACK_END, _OPTIONS)


def emit(text: str, target: Target, ptx: int, *, level: int = 3, kind: str = "asm") -> bytes:
    """PTX of IR text (``kind`` ``"llvm"``: the IR after optimisation). An error here is a fault of this
    compiler."""
    machine = _machine(target, ptx)
    # The layout has to be there before LLVM computes with it: its pointers are not all of one size.
    module = parse(f'target datalayout = "{machine.target_data}"\n{text}')
    run_passes(module, machine, GPU_PASSES if level > 0 else QUICK_PASSES, level=level)
    if kind == "llvm":
        return str(module).encode()
    return str(machine.emit_assembly(module)).encode()
