"""What a row of the semantic table can call."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from zluda.device.amd.emulator import division, functions, integers
from zluda.device.amd.emulator.approximate import UNITS
from zluda.device.amd.emulator.outline import out_of_line

_LONG = (
    "div_fixup",
    "div_fmas",
    "fract",
    "frexp_exp",
    "frexp_mant",
    "ldexp",
    "lerp_u8",
    "med3",
    "mul_hi",
    "perm",
    "quad_sad_u16",
    "sad_u8",
    "snorm16",
    "to_int",
    "trig_preop",
    "truncated_half",
    "unorm16",
)


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

SCOPE |= {name: out_of_line(SCOPE[name]) for name in _LONG}
