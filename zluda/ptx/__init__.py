"""PTX text to a typed module and back; the instruction table; the containers PTX travels in.

Owns everything that knows PTX's syntax. Imports only :mod:`zluda.errors`. ``parse_module(text)`` skims a
text; ``Module.function(name)`` gives one function's typed statements (:mod:`zluda.ptx.module`), whose slot
names :mod:`zluda.ptx.table` lists; ``print_module`` writes PTX from the typed form;
``containers.ptx_from(data)`` finds PTX in fatbins and ELF files.
"""

from __future__ import annotations

from zluda.ptx import containers
from zluda.ptx.module import (
    Address,
    BranchTargets,
    CallPrototype,
    DebugLine,
    Element,
    Function,
    Guard,
    Immediate,
    Indexed,
    Instruction,
    Label,
    LabelStatement,
    Location,
    Negated,
    Operand,
    Pair,
    Pragma,
    Register,
    Selected,
    Sink,
    Statement,
    Symbol,
    Variable,
    Vector,
)
from zluda.ptx.parse import Module, Section, parse_module
from zluda.ptx.printer import print_function, print_instruction, print_module, print_parts
from zluda.ptx.types import ScalarType

__all__ = [
    "Address",
    "BranchTargets",
    "CallPrototype",
    "DebugLine",
    "Element",
    "Function",
    "Guard",
    "Immediate",
    "Indexed",
    "Instruction",
    "Label",
    "LabelStatement",
    "Location",
    "Module",
    "Negated",
    "Operand",
    "Pair",
    "Pragma",
    "Register",
    "ScalarType",
    "Section",
    "Selected",
    "Sink",
    "Statement",
    "Symbol",
    "Variable",
    "Vector",
    "containers",
    "parse_module",
    "print_function",
    "print_instruction",
    "print_module",
    "print_parts",
]
