"""Seed a fault into every Python process that has this directory on PYTHONPATH (see ``seeding``).

``SEEDED_FAULT_OF_ZLUDA`` is a JSON object: ``changes``, a list of (module, old text, new text), and
``cache``, the directory below which compiled kernels are kept, empty where none are.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType
from typing import Any

_Texts = list[tuple[str, str]]


class _Changed(SourceFileLoader):
    """Reads a module's source with texts in place of others. No bytecode of it is read or kept."""

    def __init__(self, name: str, path: str, texts: _Texts) -> None:
        super().__init__(name, path)
        self._texts = texts

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname) or ""
        for old, new in self._texts:
            if source.count(old) != 1:
                raise ImportError(f"{fullname} has {source.count(old)} times {old!r}, expected once")
            source = source.replace(old, new)
        code: CodeType = compile(source, self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    """Finds the modules that are changed as everybody does, and has their source read otherwise."""

    def __init__(self, changes: list[list[str]]) -> None:
        self._texts: dict[str, _Texts] = {}
        for module, old, new in changes:
            self._texts.setdefault(module, []).append((old, new))

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        texts = self._texts.pop(fullname, None)
        if texts is None:
            return None
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.origin is not None
        spec.loader = _Changed(fullname, spec.origin, texts)
        return spec


def _own_cache(changes: list[list[str]], directory: str) -> None:
    """The kernel cache of these changes, or none: never the one that the environment names."""
    if directory:
        digest = hashlib.blake2b(json.dumps(changes).encode(), digest_size=8).hexdigest()
        os.environ["ZLUDA_CACHE_DIR"] = os.path.join(directory, digest)
        os.environ["ZLUDA_CACHE_POLICY"] = "normal"
    else:
        os.environ["ZLUDA_CACHE_POLICY"] = "off"


if text := os.environ.get("SEEDED_FAULT_OF_ZLUDA"):
    seeded = json.loads(text)
    _own_cache(seeded["changes"], seeded["cache"])
    sys.meta_path.insert(0, _Finder(seeded["changes"]))
