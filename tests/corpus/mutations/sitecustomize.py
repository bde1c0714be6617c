"""Break one lowering in every Python process that has this directory on PYTHONPATH.

``MUTATION_OF_ZLUDA`` names the fault (see :data:`mutations.MUTATIONS`). The module to be broken is patched
right after it is imported, wherever that happens: in the command itself or in the runner process.
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
    """Finds one module as everybody does, and has ``mutate`` called when it has been executed."""

    def __init__(self, name: str, mutate: Any) -> None:
        self._name, self._mutate = name, mutate

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None
        execute, mutate = spec.loader.exec_module, self._mutate

        def exec_module(module: ModuleType) -> None:
            execute(module)
            mutate()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if name := os.environ.get("MUTATION_OF_ZLUDA"):
    from mutations import MUTATIONS

    # by then every lowering is registered
    sys.meta_path.insert(0, _Patcher("zluda.compiler.lower.families", MUTATIONS[name]))
