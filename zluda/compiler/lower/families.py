"""Importing this imports every module that lowers instructions, and so fills the dispatch tables.

A compiler has no need of it: the tables import what is asked for (:mod:`zluda.compiler.lower.registry`).
"""

from __future__ import annotations

import importlib

from zluda.compiler.lower.lanewise import LANEWISE
from zluda.compiler.lower.table import LOWERINGS, find

__all__ = ["LANEWISE", "LOWERINGS", "find"]

for _registry in (LANEWISE, LOWERINGS):
    for _module in dict.fromkeys(_registry.modules.values()):
        importlib.import_module(f"{__package__}.{_module}")
