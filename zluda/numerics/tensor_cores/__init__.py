"""Tensor cores: what an H200 computes for ``mma``, ``wmma`` and ``wgmma``, bit for bit.

``formats`` describes the operand types, ``fragments`` which lane holds which element, ``operations`` which
instruction forms exist and by which rule each computes; none of these needs numpy, and lowering reads them.
``reference`` is the arithmetic over numpy arrays, ``double`` that of f64, ``warp`` a whole instruction from
registers to registers: what lowered code is held to. May import nothing of zluda but ``errors``.

The rules were measured on an H200 (driver 580.159.04, ptxas 13.0.88) and compared with it on 5.8e11 elements
without a mismatch; ``docs/tensor-cores.md`` states them.
"""
