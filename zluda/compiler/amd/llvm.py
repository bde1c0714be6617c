"""LLVM for AMDGPU: IR text in, object or assembly out.

Emitting changes a module, and LLVM aborts when it is asked twice: the text is parsed afresh each time.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from zluda.compiler.amd.faults import fence, may_need_fences
from zluda.compiler.amd.targets import default_wave_size, target_id
from zluda.compiler.llvm import GPU_PASSES, QUICK_PASSES, gpu_machine, parse, run_passes
from zluda.patterns import pattern
from zluda.records import dataclass

TRIPLE = "amdgcn-amd-amdhsa"

_WANTED = ("load-store-vectorizer", "sdwa-peephole", "dpp-combine")
"""Passes of -O2's back end that -O1 has when they are asked for by name. Those left out rearrange addresses:
over the twelve kernels code is as good without them.
"""
_OPTIONS = (
    "-disable-promote-alloca-to-lds",
    "-amdgpu-assume-external-call-stack-size=0",
    *(f"-amdgpu-{wanted}=1" for wanted in _WANTED),
)
"""LDS is laid out by this compiler (``compile.py``): LLVM must not move arrays there. What functions of other
objects take is added where it is known (``resources.py``).
"""

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
    wanted = target_id(name)
    # Two narrow accesses must not become one that is misaligned: a fault is then the program's own.
    chosen, features = wanted.target, [*wanted.features, "-unaligned-access-mode"]
    if len(chosen.wave_sizes) > 1:
        features.append(f"+wavefrontsize{wave_size}")
    if chosen.generation >= 11:
        # Halves of registers as operands: disassemblers before LLVM 21 do not know them.
        features.append("-real-true16")
    # Clang's -O1, with those of -O2's passes that gain something (_WANTED): a seventh less time.
    return gpu_machine(TRIPLE, chosen.name, features, min(level, 1), _OPTIONS)


_NOTHING = "define amdgpu_kernel void @nothing() { ret void }"


def warm_up(target: str, wave_size: int) -> None:
    """Emit an empty kernel, so that the code generator is set up, and read from its library, when it is
    needed. No lock of Python's is held meanwhile: for a thread. Raises as :func:`emit` does.
    """
    wanted = wave_size or default_wave_size(target_id(target).target)
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
            module = parse(text)
    emitted = machine.emit_assembly(module).encode() if options.kind == "asm" else machine.emit_object(module)
    return bytes(emitted)


def _optimised(text: str, machine: Any, level: int) -> Any:
    module = parse(text)
    module.data_layout = str(machine.target_data)
    passes = GPU_PASSES if level > 0 else QUICK_PASSES
    run_passes(module, machine, () if level > 0 and _OWN_CALL.search(text) else passes, level=level)
    return module
