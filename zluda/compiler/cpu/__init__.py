"""The CPU target: warps as two vectors of 16 lanes, control flow under masks, a small native runtime.

``ops.py`` and its siblings implement ``TargetOps``; ``masked.py`` is the control-flow strategy;
``compile.py`` puts a kernel together and runs LLVM over it; ``runtime.ll`` schedules blocks, warps and
barriers, over the records that ``context.py`` lays out. May import everything in ``zluda.compiler`` outside
target folders.
"""
