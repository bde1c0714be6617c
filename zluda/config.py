"""Settings from the environment: one field a variable, each with its type, default and one line of help."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from zluda.errors import Error


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of this process. A field's metadata holds its variable's name and help."""

    device: str = field(default="auto", metadata={"env": "ZLUDA_DEVICE", "help": "default of --device"})
    log_level: str = field(
        default="warn",
        metadata={"env": "ZLUDA_LOG_LEVEL", "help": "error, warn, info, debug or trace, on standard error"},
    )


# Variables whose feature is not built yet: refused by name when set, never ignored.
NOT_BUILT = [
    "ZLUDA_ROOT",
    "ZLUDA_COMPILE_VERBOSE",
    "ZLUDA_PROFILE",
    "ZLUDA_PERF_MODE",
    "ZLUDA_CACHE_DIR",
    "ZLUDA_CACHE_POLICY",
    "ZLUDA_WAVE64_MODE",
    "ZLUDA_WAVE64_SLOW_MODE",
    "ZLUDA_UNIFIED_MEMORY",
    "ZLUDA_MEMORY_POOL_SIZE",
    "ZLUDA_OPTIMIZATION_LEVEL",
    "ZLUDA_PGO_ENABLE",
    "ZLUDA_TORCH_FUSION",
    "ZLUDA_CUDNN_BENCHMARK",
    "ZLUDA_RAY_TRACING",
    "ZLUDA_TEXTURE_CACHE",
    "ZLUDA_CC",
]

LOG_LEVELS = ("error", "warn", "info", "debug", "trace")


def load(environment: Mapping[str, str] = os.environ) -> Config:
    """Read the settings; raises :class:`Error` naming a variable that is malformed or unknown here."""
    for name in NOT_BUILT:
        if name in environment:
            raise Error(f"{name} is set, but this version does not have that feature yet; unset it")
    values = {
        f.name: environment[f.metadata["env"]] for f in fields(Config) if f.metadata["env"] in environment
    }
    config = Config(**values)
    if config.log_level not in LOG_LEVELS:
        raise Error(f"ZLUDA_LOG_LEVEL is {config.log_level!r}; expected one of {', '.join(LOG_LEVELS)}")
    return config
