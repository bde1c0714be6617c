"""From one typed PTX instruction to LLVM IR.

Lane-wise families (``integer``, ``logic``, ``floating``, ``rounding``, ``convert``, ``compare``,
``approximate``) register in :data:`zluda.compiler.lower.lanewise.LANEWISE`; the instructions that touch
memory, other lanes or control flow are lowered over a target's ``TargetOps``. Importing ``families`` fills
the tables; importing this package alone costs nothing. May import ``ptx``, ``numerics`` and ``compiler.ir``.
"""
