"""The AMD emulator: machine code, lifted to host vector code.

The way of the data: code object → disassembly text (``zluda.compiler.amd.disassembler``) → typed
instructions (``instruction.py``) → LLVM IR over the lanes of a whole wave (``lift.py``; what instructions
mean is in ``table/``, what operands and modifiers mean in ``vector.py``, ``scalar.py``, ``memory.py``) →
host code → waves of a launch on native threads (``schedule.py``, ``schedule.ll``).

A wave's registers live in memory (``state.py``), so a wave can stop at a barrier or in a loop and another
go on. EXEC is an integer register like any other; vector results are merged under it.
"""
