"""What every target does with LLVM: parse IR text, run passes by name, have a GPU's code generator."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from zluda.errors import Error

QUICK_PASSES = ("always_inliner", "sroa", "simplify_cfg")
"""For large units (:mod:`zluda.compiler.large`)."""

GPU_PASSES = (
    *QUICK_PASSES,
    "instruction_combine",
    "reassociate",
    "new_gvn",
    "sccp",
    "simplify_cfg",
    "aggressive_dce",
)
"""What nvcc wrote is optimised already, and what comes behind has passes of its own: AMD's back end, or
NVIDIA's driver. Over the twelve kernels of bench/amd_code.py this takes less than a third of O3's time, and
gives fewer instructions and registers. Nothing here unrolls loops, which the driver does as it does the
original's.
"""


def parse(text: str) -> Any:
    """IR text as LLVM's module. An error here is a fault of this compiler."""
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise Error(f"the compiler wrote LLVM IR that is not valid: {error}") from error
    return module


def run_passes(
    module: Any, machine: Any, names: Sequence[str], *, level: int = 2, vectorize: bool = True
) -> None:
    """Run passes over a module, in this order; without names those of the level's pipeline.

    ``machine`` is LLVM's target machine, ``level`` its optimisation level, 0 to 3.
    """
    import llvmlite.binding as llvm

    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    if not vectorize:
        tuning.loop_vectorization = tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    passes = llvm.create_new_module_pass_manager() if names else builder.getModulePassManager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)


def gpu_machine(triple: str, cpu: str, features: Sequence[str], level: int, options: Sequence[str]) -> Any:
    """LLVM's target machine for a GPU; ``options`` are command-line options of LLVM's that it is to heed."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for option in options:
        _set_option(option)
    found = llvm.Target.from_triple(triple)
    return found.create_target_machine(cpu=cpu, features=",".join(features), opt=level)


@functools.cache
def _set_option(option: str) -> None:
    """They hold for all of the process, and may be set once."""
    import llvmlite.binding as llvm

    llvm.set_option("zluda", option)
