"""Seed a bug into every Python process that has this directory on PYTHONPATH.

``SEEDED_BUG_OF_ZLUDA`` is a JSON object: ``module``, and ``old``, a text that stands once in its source,
which is read as ``new`` instead when the module is imported, in the command itself or in a runner process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType
from typing import Any


class _Patched(SourceFileLoader):
    """Reads a module's source with one text in place of another."""

    def __init__(self, name: str, path: str, old: str, new: str) -> None:
        super().__init__(name, path)
        self._old, self._new = old, new

    def get_code(self, fullname: str) -> CodeType:
        text = self.get_source(fullname) or ""
        if text.count(self._old) != 1:
            raise ImportError(f"{fullname} has {text.count(self._old)} times {self._old!r}, expected once")
        code: CodeType = compile(text.replace(self._old, self._new), self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, bug: dict[str, str]) -> None:
        self._bug = bug

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self._bug["module"]:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.origin is not None
        spec.loader = _Patched(fullname, spec.origin, self._bug["old"], self._bug["new"])
        return spec


if text := os.environ.get("SEEDED_BUG_OF_ZLUDA"):
    sys.meta_path.insert(0, _Finder(json.loads(text)))
