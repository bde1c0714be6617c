"""What a row of the semantic table can call."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from zluda.device.amd.emulator import division, functions, integers
from zluda.device.amd.emulator.approximate import UNITS


def _defined_in(module: ModuleType) -> dict[str, Any]:
    """A module's own public functions."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and callable(value)
    }


SCOPE: dict[str, Any] = (
    _defined_in(functions)
    | _defined_in(division)
    | _defined_in(integers)
    | functions.CONVERSIONS
    | UNITS
    | {"same": functions.constant, "zero": lambda x: functions.constant(x, 0.0)}
)
"""Functions by name; ``same(x, 1)`` is 1 in x's type."""
