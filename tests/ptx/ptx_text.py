"""Comparing typed PTX without its places, and small modules around a body."""

from __future__ import annotations

import dataclasses
from typing import Any

from zluda.ptx import Function, Module, parse_module


def canonical(value: Any) -> Any:
    """The typed form as nested tuples, without locations; comparable with ``==``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f.name for f in dataclasses.fields(value) if f.name != "location")
        return (type(value).__name__, *((name, canonical(getattr(value, name))) for name in fields))
    if isinstance(value, list | tuple):
        return tuple(canonical(item) for item in value)
    if isinstance(value, dict):
        return tuple(sorted((key, canonical(item)) for key, item in value.items()))
    return value


def canonical_module(module: Module) -> Any:
    functions = {name: canonical(module.function(name)) for name in module.function_names}
    head = (module.version, module.target, module.address_size, module.files, module.aliases, module.sections)
    return head, canonical(module.variables), functions


HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"

REGISTERS = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .b16 %h<9>;"


def module_of(body: str, *, before: str = "") -> Module:
    """A module with one kernel ``k`` of this body; the body starts on line 6."""
    return parse_module(
        f"{HEAD}{before}\n.visible .entry k(.param .u64 a) {{ {REGISTERS}\n{body}\n}}\n", "t.ptx"
    )


def function_of(body: str, *, before: str = "") -> Function:
    return module_of(body, before=before).function("k")
