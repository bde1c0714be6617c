"""Settings from the environment: one field a variable, each with its type, default and one line of help."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any

from zluda.errors import Error
from zluda.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of this process. A field's metadata holds its variable's name and help."""

    device: str = field(default="auto", metadata={"env": "ZLUDA_DEVICE", "help": "default of --device"})
    wave64_mode: str = field(
        default="0",
        metadata={
            "env": "ZLUDA_WAVE64_MODE",
            "help": "1: waves of 64 lanes, two warps each, on AMD targets that have both",
            "choices": ("0", "1"),
        },
    )
    wave64_slow_mode: str = field(
        default="",
        metadata={
            "env": "ZLUDA_WAVE64_SLOW_MODE",
            "help": "waves of 64 lanes hold one warp: 1 always, 0 never (default: where a kernel's warps may "
            "meet different barriers or wait for each other)",
            "choices": ("0", "1"),
        },
    )
    optimization_level: str = field(
        default="",
        metadata={
            "env": "ZLUDA_OPTIMIZATION_LEVEL",
            "help": "0: LLVM optimises as little as it can, on cpu and AMD GPUs (default: what pays)",
            "choices": ("0",),
        },
    )
    cache_dir: str = field(
        default="",
        metadata={
            "env": "ZLUDA_CACHE_DIR",
            "help": "directory of the kernel cache (default: the user's cache directory)",
        },
    )
    cache_policy: str = field(
        default="normal",
        metadata={
            "env": "ZLUDA_CACHE_POLICY",
            "help": "off: compile anew each time; normal: keep 512 MiB of machine code; aggressive: keep "
            "4 GiB, and compile a replayed trace's kernels ahead of their launch in a process of its own",
            "choices": ("off", "normal", "aggressive"),
        },
    )


# Variables whose feature is not built yet: refused by name when set, never ignored.
NOT_BUILT = [
    "ZLUDA_ROOT",
    "ZLUDA_LOG_LEVEL",
    "ZLUDA_COMPILE_VERBOSE",
    "ZLUDA_PROFILE",
    "ZLUDA_PERF_MODE",
    "ZLUDA_UNIFIED_MEMORY",
    "ZLUDA_MEMORY_POOL_SIZE",
    "ZLUDA_PGO_ENABLE",
    "ZLUDA_TORCH_FUSION",
    "ZLUDA_CUDNN_BENCHMARK",
    "ZLUDA_RAY_TRACING",
    "ZLUDA_TEXTURE_CACHE",
    "ZLUDA_CC",
]

_PREFIX = "ZLUDA_"


def load(environment: Mapping[str, str] = os.environ) -> Config:
    """Read the settings; raises :class:`Error` naming a variable that this version does not have, or that is
    empty.
    """
    known = {f.metadata["env"]: f.name for f in fields(Config)}
    for name in environment:
        if name in NOT_BUILT:
            raise Error(f"{name} is set, but this version does not have that feature yet; unset it")
        if name.startswith(_PREFIX) and name not in known:
            raise Error(f"{name} is set, but there is no such variable; there is {', '.join(known)}")
        if name in known and not environment[name]:
            raise Error(f"{name} is set to nothing; give it a value or unset it")
    for f in fields(Config):
        value, choices = environment.get(f.metadata["env"], f.default), f.metadata.get("choices")
        if choices and value not in (*choices, f.default):
            raise Error(f"{f.metadata['env']} is {value!r}; expected {' or '.join(choices)}")
    return Config(**{known[name]: environment[name] for name in known if name in environment})


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its type as a person would say it, default, and what it is set to."""

    name: str
    type: str
    default: str
    value: str | None
    help: str
    built: bool = True

    def lines(self) -> list[str]:
        """For a person."""
        if not self.built:
            return [f"{self.name}: {self.help}"]
        now = "" if self.value is None else f", set to {self.value!r}"
        return [f"{self.name}: {self.type}, default {self.default or 'empty'}{now}", f"    {self.help}"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def variables(environment: Mapping[str, str] = os.environ) -> list[Variable]:
    """Every variable there is, then those of features to come, which are refused when set."""
    found = []
    for f in fields(Config):
        name, choices = f.metadata["env"], f.metadata.get("choices")
        kind = " | ".join(choices) if choices else "text"
        found.append(Variable(name, kind, str(f.default), environment.get(name), f.metadata["help"]))
    later = "refused when set: this version does not have that feature yet"
    found += [Variable(name, "", "", environment.get(name), later, built=False) for name in NOT_BUILT]
    return found
