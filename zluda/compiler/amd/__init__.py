"""AMD GPU machine code: targets, code objects, disassembly.

Owns what is known of AMD's targets (``targets.py``, one table), the reader of code objects
(``code_object.py``) and the disassembler (``disassembler.py``). Imports ``zluda.errors`` and the rest of
``zluda.compiler``; nothing here runs code. Machine code comes in and goes out as bytes.
"""
