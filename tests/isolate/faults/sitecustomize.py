"""Break one part of zluda in every Python process that has this directory on PYTHONPATH.

``FAULT_OF_ZLUDA`` names the fault (see :data:`faults.FAULTS`). The module to be broken is patched right after
it is imported, wherever that happens: in the command itself or in the runner process.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Patcher(MetaPathFinder):
    """Finds one module as everybody does, and has ``spoil`` called with it when it has been executed."""

    def __init__(self, name: str, spoil: Any) -> None:
        self._name, self._spoil = name, spoil

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None
        execute, spoil = spec.loader.exec_module, self._spoil

        def exec_module(module: ModuleType) -> None:
            execute(module)
            spoil(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if name := os.environ.get("FAULT_OF_ZLUDA"):
    from faults import FAULTS

    sys.meta_path.insert(0, _Patcher(*FAULTS[name]))
