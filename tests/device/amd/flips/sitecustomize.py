"""Turn over one bit of a kernel's machine code in every Python process that has this directory on PYTHONPATH.

``FLIPPED_BIT`` is ``kernel,number``: the number of the bit in the kernel's code, taken modulo its size. What
stood there and what stands there now goes into the file that ``FLIPPED_NOTE`` names, before anything runs.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PATCHED = "zluda.device.amd.code"


class _Patcher(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != PATCHED:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _flip_in(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _flip_in(module: Any) -> None:
    link = module.link
    kernel, _, number = os.environ["FLIPPED_BIT"].partition(",")

    def flipped(data: bytes, addresses: dict[str, int]) -> bytes:
        from zluda.compiler.amd.code_object import CodeObject

        linked: bytes = link(data, addresses)
        code = CodeObject(linked)
        if kernel not in code.kernels:
            return linked
        start, size = code.kernel(kernel).address, code.symbols[kernel].size
        bit = int(number) % (8 * size)
        place = code.file_offset(start) + bit // 8
        changed = bytearray(linked)
        changed[place] ^= 1 << bit % 8
        return bytes(changed)

    module.link = flipped


if "FLIPPED_BIT" in os.environ:
    sys.meta_path.insert(0, _Patcher())
