"""Opcode → lowering, where the module of a lowering is imported when one of its opcodes is first asked for.

A kernel uses a few of the families, and importing all takes longer than compiling a small kernel.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

F = TypeVar("F")


class Registry(dict[str, F]):
    """A dispatch table. ``families`` are modules of this package and the opcodes that each registers.

    An opcode that is named there is in the table before its module is imported. What is iterated over is
    whole once :mod:`zluda.compiler.lower.families` was imported.
    """

    def __init__(self, families: Mapping[str, str]) -> None:
        super().__init__()
        self.modules = {opcode: module for module, words in families.items() for opcode in words.split()}

    def __missing__(self, opcode: str) -> F:
        module = self.modules.get(opcode)
        if module is None:
            raise KeyError(opcode)
        importlib.import_module(f"{__package__}.{module}")
        if not super().__contains__(opcode):
            raise ImportError(f"{module} registers no {opcode}")
        return super().__getitem__(opcode)

    def __contains__(self, opcode: object) -> bool:
        return super().__contains__(opcode) or opcode in self.modules

    def get(self, opcode: str, default: Any = None) -> Any:
        """The lowering of an opcode, else ``default``."""
        try:
            return self[opcode]
        except KeyError:
            return default

    def __delitem__(self, opcode: str) -> None:
        if super().__contains__(opcode):
            super().__delitem__(opcode)
        self.modules.pop(opcode, None)
