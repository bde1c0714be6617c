"""NVIDIA GPUs as a target: typed PTX → LLVM IR → LLVM's NVPTX back end → PTX for NVIDIA's driver.

What it is for: arithmetic, addresses, memory and control flow go the way that they go to every target, so
that a kernel which is right in the recorded PTX and wrong here has a fault in the lowering. Instructions that
concern the machine around a thread (:data:`~zluda.compiler.nvptx.passed_on.PASSED_ON`: other lanes, barriers,
atomic and ordered memory, matrices, asynchronous copies) are passed on as they are.

``unit.py`` and ``targets.py`` need no lowering; ``compile.py`` writes a kernel; ``llvm.py`` makes PTX of it.
"""
