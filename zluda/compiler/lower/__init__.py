"""From one typed PTX instruction to LLVM IR.

Lane-wise families (``integer``, ``logic``, ``floating``, ``rounding``, ``convert``, ``compare``,
``approximate``) register in :data:`zluda.compiler.lower.lanewise.LANEWISE`; the instructions that touch
memory, other lanes or control flow are lowered over a target's ``TargetOps``. May import ``ptx``,
``numerics`` and ``compiler.ir``.
"""

from zluda.compiler.lower import approximate, arithmetic, compare, convert, logic
from zluda.compiler.lower.lanewise import LANEWISE, lanewise

__all__ = ["LANEWISE", "approximate", "arithmetic", "compare", "convert", "lanewise", "logic"]
