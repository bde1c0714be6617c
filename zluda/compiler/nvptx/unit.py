"""What a kernel is compiled with for an NVIDIA GPU. Nothing here needs lowering: see ``amd/unit.py``."""

from __future__ import annotations

from zluda.compiler.gpu.thread import FLAT, GLOBAL
from zluda.compiler.target import Dim3
from zluda.compiler.unit import Unit, kernel_unit
from zluda.ptx import Module

ANY_BLOCK: Dim3 = (1024, 1, 1)
"""Code serves every block shape."""


def build_unit(module: Module, name: str, contract: str = "auto") -> Unit:
    """The kernel with all it reaches."""
    unit = kernel_unit(module, name, ANY_BLOCK, contract)
    unit.ir.stack, unit.ir.tables, unit.ir.helpers = FLAT, GLOBAL, "alwaysinline nounwind"
    return unit
