"""The device ``interpreter``: PTX executed as the ISA manual words it, one short function an opcode.

It judges the other devices where they agree with each other and not with the record: they share the lowerings
of :mod:`zluda.compiler`, of which nothing is imported here (a contract in ``pyproject.toml`` holds that).
What it shares with them is the parser and its table (:mod:`zluda.ptx`), the measured models of NVIDIA's units
(:mod:`zluda.numerics`), and device memory. What ptxas adds to a module's text, above all which products and
sums it fuses, the caller hands over as rewritten PTX (:class:`~.code.Sources`).

``machine`` has threads and their order, ``step`` operands, ``spaces`` memory, ``floats`` and ``doubles``
exact arithmetic, ``opcodes/`` the instructions by chapters of the manual.
"""

from __future__ import annotations

from zluda.device.interpreter.code import Sources
from zluda.device.interpreter.device import InterpreterDevice

__all__ = ["InterpreterDevice", "Sources"]
