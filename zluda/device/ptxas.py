"""What NVIDIA's assembler and driver add to a module's text, written as PTX for a device that executes PTX.

The interpreter imports nothing of the compiler; what it needs of it is text, and made here: which products
and sums are fused (:mod:`zluda.compiler.contract`), what texture units do (:mod:`zluda.compiler.textures`),
and the functions that the CUDA system defines (:mod:`zluda.compiler.services`).
"""

from __future__ import annotations

from zluda.compiler.contract import contract_function
from zluda.compiler.services import linked
from zluda.compiler.textures import expanded
from zluda.device.interpreter import Sources
from zluda.ptx import Module
from zluda.ptx.module import Function


def sources(contract: str) -> Sources:
    """For one of the modes of :mod:`zluda.compiler.contract`."""

    def decided(module: Module, function: Function) -> Function:
        # ptxas does not optimise a module with .target debug
        mode = "off" if contract == "auto" and "debug" in module.target else contract
        return expanded(contract_function(function, mode))

    return Sources(linked, decided)
