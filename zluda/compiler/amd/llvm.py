"""LLVM for AMDGPU: IR text in, object or assembly out.

Emitting changes a module, and LLVM aborts when it is asked twice: the text is parsed afresh each time.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from zluda.compiler.amd.faults import fence, may_need_fences
from zluda.compiler.amd.targets import target_id
from zluda.errors import Error
from zluda.patterns import pattern
from zluda.records import dataclass

TRIPLE = "amdgcn-amd-amdhsa"

# What nvcc wrote is optimised already, and the back end has passes of its own. Over the twelve kernels of
# bench/amd_code.py this takes less than a third of O3's time, and gives fewer instructions and registers.
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
_WANTED = ("load-store-vectorizer", "sdwa-peephole", "dpp-combine")
"""Passes of -O2's back end that -O1 has when they are asked for by name. Those left out rearrange addresses:
over the twelve kernels code is as good without them.
"""
_QUICK_PASSES = ("always_inliner", "sroa", "simplify_cfg")
"""At level 0, for large units (:mod:`zluda.compiler.large`)."""

_OWN_CALL = pattern(r"^define internal (?!.*\b(?:always|no)inline\b)", re.MULTILINE)
"""Functions that the inliner should weigh: it is in O3 alone."""


@dataclass(frozen=True, slots=True)
class Options:
    """``kind`` is ``obj``, ``asm``, or ``llvm`` (the IR after optimisation).

    ``target`` is a target id: a processor, with settings (``gfx90a:xnack-``) or without. ``level`` says how
    much is optimised: 0 is quick, however much there is.
    """

    target: str
    wave_size: int
    kind: str = "obj"
    level: int = 3


@functools.cache
def _machine(name: str, wave_size: int, level: int) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _set_options()
    wanted = target_id(name)
    # Two narrow accesses must not become one that is misaligned: a fault is then the program's own.
    chosen, features = wanted.target, [*wanted.features, "-unaligned-access-mode"]
    if len(chosen.wave_sizes) > 1:
        features.append(f"+wavefrontsize{wave_size}")
    if chosen.generation >= 11:
        # Halves of registers as operands: disassemblers before LLVM 21 do not know them.
        features.append("-real-true16")
    machine = llvm.Target.from_triple(TRIPLE)
    # Clang's -O1, with those of -O2's passes that gain something (_set_options): a seventh less time.
    return machine.create_target_machine(cpu=chosen.name, features=",".join(features), opt=min(level, 1))


@functools.cache
def _set_options() -> None:
    """LDS is laid out by this compiler (``compile.py``): LLVM must not move arrays there. What functions of
    other objects take is added where it is known (``resources.py``).
    """
    import llvmlite.binding as llvm

    llvm.set_option("zluda", "-disable-promote-alloca-to-lds")
    llvm.set_option("zluda", "-amdgpu-assume-external-call-stack-size=0")
    for wanted in _WANTED:
        llvm.set_option("zluda", f"-amdgpu-{wanted}=1")


_NOTHING = "define amdgpu_kernel void @nothing() { ret void }"


def warm_up(target: str, wave_size: int) -> None:
    """Emit an empty kernel, so that the code generator is set up, and read from its library, when it is
    needed. No lock of Python's is held meanwhile: for a thread. Raises as :func:`emit` does.
    """
    wanted = wave_size or target_id(target).target.wave_size
    emit(f'target triple = "{TRIPLE}"\n{_NOTHING}\n', Options(target, wanted))


def emit(text: str, options: Options) -> bytes:
    """Compile IR text. An error here is a fault of this compiler."""
    machine = _machine(options.target, options.wave_size, options.level)
    module = _optimised(text, machine, options.level)
    generation = target_id(options.target).target.generation
    if options.kind == "llvm" or may_need_fences(text, generation):
        optimised = str(module)
        text = fence(optimised, generation)
        if options.kind == "llvm":
            return text.encode()
        if text != optimised:
            module = _parse(text)
    emitted = machine.emit_assembly(module).encode() if options.kind == "asm" else machine.emit_object(module)
    return bytes(emitted)


def _parse(text: str) -> Any:
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise Error(f"the compiler wrote LLVM IR that is not valid: {error}") from error
    return module


def _optimised(text: str, machine: Any, level: int) -> Any:
    import llvmlite.binding as llvm

    module = _parse(text)
    module.data_layout = str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    builder = llvm.create_pass_builder(machine, tuning)
    if level > 0 and _OWN_CALL.search(text):
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        for name in _PASSES if level > 0 else _QUICK_PASSES:
            getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    return module
