"""Every instruction form whose results are held against an NVIDIA GPU's, bit for bit.

:mod:`form` says what a form is and expands a row's alternatives; one module a family
(:mod:`integer`, :mod:`floating`, :mod:`convert`, :mod:`compare`, :mod:`warp`, :mod:`memory`,
:mod:`atomics`) holds the rows; :mod:`inputs` makes the operand values, the same on every machine;
:mod:`kernels` turns a group of forms into PTX. Only numpy is needed, so that the recording side runs on a
bare GPU host.
"""

from __future__ import annotations

from types import ModuleType

from isa_forms import (
    asynchronous,
    atomics,
    clusters,
    compare,
    contraction,
    convert,
    floating,
    integer,
    memory,
    remaining,
    sparse_wgmma,
    tensor,
    various,
    video,
    warp,
)
from isa_forms.form import Form

FAMILIES = {
    "integer": integer,
    "floating": floating,
    "convert": convert,
    "compare": compare,
    "warp": warp,
    "memory": memory,
    "atomics": atomics,
    "tensor": tensor,
    "video": video,
    "various": various,
    "asynchronous": asynchronous,
    "clusters": clusters,
    "contraction": contraction,
    "sparse_wgmma": sparse_wgmma,
    "remaining": remaining,
}
AWAITING: dict[str, ModuleType] = {}
"""Families that do not hold yet, or that no GPU has been asked about."""


def all_forms(*, awaiting: bool = False) -> list[Form]:
    """Every form, in the order of the families; names are unique. ``awaiting``: those of AWAITING too."""
    families = [*FAMILIES.values(), *(AWAITING.values() if awaiting else ())]
    forms = [form for family in families for form in family.forms()]
    names = [form.name for form in forms]
    doubled = (
        sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    )
    if doubled:
        raise ValueError(f"form names must be unique: {doubled[:5]}")
    return forms
