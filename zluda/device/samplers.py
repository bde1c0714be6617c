"""Samplers that PTX declares: ``.global .samplerref s = {addr_mode_0 = wrap, …};`` (PTX ISA 5.3).

They exist in modules of ``texmode_independent``. CUDA's driver has no entry that binds one, so a sampler is
what its initialiser says, and all zeros for what that leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zluda.errors import UnsupportedError
from zluda.numerics.texture.layout import (
    MAX_LEVELS,
    Address,
    Descriptor,
    Filter,
    Flags,
    Format,
    Geometry,
    Kind,
    Level,
)

if TYPE_CHECKING:
    from zluda.ptx import Module, Variable

_BYTES = 8  # of one sampler of an array
_FIELD = re.compile(r"(\w+)\s*=\s*(\w+)")
_ADDRESS = {
    "wrap": Address.WRAP,
    "mirror": Address.MIRROR,
    "clamp_ogl": Address.CLAMP,
    "clamp_to_edge": Address.CLAMP,
    "clamp_to_border": Address.BORDER,
}
_NAMES = list(_ADDRESS)  # their order is that of their numbers
_FILTERS = ("nearest", "linear")


def samplers(module: Module) -> Iterator[tuple[str, int, Descriptor]]:
    """A module's samplers: variable, offset in bytes, descriptor.

    Raises UnsupportedError for a value that is none of PTX's.
    """
    for variable in module.variables.values():
        if variable.type.spelling == "samplerref":
            count = max(variable.size // _BYTES, 1)
            for number, fields in enumerate(_fields(variable, count)):
                yield variable.name, _BYTES * number, _descriptor(variable.name, fields)


def _fields(variable: Variable, count: int) -> list[dict[str, str]]:
    text = next((a for a in variable.attributes if a.startswith("init(")), "")
    given = [dict(_FIELD.findall(one)) for one in re.findall(r"\{([^{}]*)\}", text)]
    return [*given, *[{}] * (count - len(given))][:count]


def _descriptor(name: str, fields: dict[str, str]) -> Descriptor:
    modes = [_value(name, fields.get(f"addr_mode_{i}", "0"), _NAMES) for i in range(3)]
    filtered = _value(name, fields.get("filter_mode", "0"), _FILTERS)
    forced = fields.get("force_unnormalized_coords", "0") not in ("0", "False")
    x, y, z = (_ADDRESS[mode] for mode in modes)
    return Descriptor(
        Kind.SAMPLER,
        Geometry.D1,
        Format.FLOAT,
        1,
        [Level(0, 0, 0, 1)],
        flags=Flags(0) if forced else Flags.NORMALIZED_COORDINATES,
        address=(x, y, z),
        filter=Filter(_FILTERS.index(filtered)),
        max_lod=MAX_LEVELS,
    )


def _value(name: str, written: str, names: list[str] | tuple[str, ...]) -> str:
    """A name, or its number, as a name."""
    if written.isdigit() and int(written) < len(names):
        return names[int(written)]
    if written not in names:
        raise UnsupportedError(f"sampler with {written} for one of {', '.join(names)}", f"variable {name}")
    return written
