"""What a framework has to be told so that the PTX of its kernels is seen, by name of the framework.

A preset only sets environment variables of the recorded program, and never one that the user has set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from zluda.trace.provenance import FORCE_JIT

PTX_JIT = {FORCE_JIT[0]: "1"}
"""What ``--ptx-jit`` sets."""

_TRITON = {
    "TRITON_STORE_BINARY_ONLY": "0"  # 1 would keep machine code without the PTX it was made of
}


def _xla(environment: Mapping[str, str], trace: Path) -> dict[str, str]:
    """XLA writes the PTX of what it compiles beside the trace; other flags of the user's stay. It takes
    memory as it
    needs it, not most of the GPU's at once: all of that would be one allocation, which every launch reaches.
    """
    chosen = _fixed({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})(environment, trace)
    flags = environment.get("XLA_FLAGS", "")
    if "--xla_dump_to=" not in flags:
        dump = trace.absolute().with_name(trace.name + ".xla")
        chosen["XLA_FLAGS"] = f"{flags} --xla_dump_to={dump}".strip()
    return chosen


def _fixed(variables: Mapping[str, str]) -> Callable[[Mapping[str, str], Path], dict[str, str]]:
    return lambda environment, trace: {k: v for k, v in variables.items() if k not in environment}


_PRESETS: dict[str, Callable[[Mapping[str, str], Path], dict[str, str]]] = {
    "pytorch": _fixed(_TRITON),
    "triton": _fixed(_TRITON),
    "jax": _xla,
    "cupy": _fixed({"CUPY_COMPILE_WITH_PTX": "1"}),
}

# Frameworks that no variable makes give PTX, or that give it anyhow: what to do instead.
_NOTHING = {
    "warp": "Warp hands over PTX where the driver is new enough; where it does not, set"
    ' wp.config.cuda_output = "ptx" in the program',
    "numba": "numba-cuda links its kernels from LTO-IR, which has no PTX",
}

PRESETS = (*_PRESETS, *_NOTHING)


def variables(preset: str, environment: Mapping[str, str], trace: Path) -> dict[str, str]:
    """The environment variables that ``preset`` sets for a program that is recorded to ``trace``."""
    return {} if preset in _NOTHING else _PRESETS[preset](environment, trace)


def explained(preset: str, chosen: Mapping[str, str]) -> str:
    """One line: what was set, or why nothing was."""
    if preset in _NOTHING:
        return f"preset {preset} sets nothing: {_NOTHING[preset]}"
    if not chosen:
        return f"preset {preset} sets nothing: the environment has all of it"
    return f"preset {preset}: " + ", ".join(f"{name}={value}" for name, value in chosen.items())
