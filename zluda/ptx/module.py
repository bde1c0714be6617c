"""The typed form of PTX: what the parser makes and everything below the line of text reads.

A :class:`Module` holds variables and functions; a :class:`Function` holds statements; an
:class:`Instruction` names its row of the instruction table, its modifiers by slot, its types and its
operands. No consumer ever looks at PTX text again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from zluda.ptx.types import ScalarType
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the PTX text, 1-based."""

    line: int
    column: int


# --- operands --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register, or a special register (``%tid.x``: ``special`` is true, type the ISA's)."""

    name: str
    type: ScalarType
    special: bool = False


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. Integers are Python ints (signed as written); floats are their IEEE bits.

    ``float_bits`` is None for integers, else 32 or 64 (``0f…``/``0d…`` or a decimal literal, which PTX
    holds as f64).
    """

    value: int
    float_bits: int | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, parameter or function, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Element:
    """``v[r + first]``: the address of an array's element, counted in elements of ``size`` bytes."""

    array: Symbol
    index: Register
    size: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; base is a register, symbol, element or immediate address."""

    base: Register | Symbol | Element | Immediate
    offset: int = 0

    @property
    def variable(self) -> str | None:
        """The variable that is named; None where none is."""
        base = self.base.array if isinstance(self.base, Element) else self.base
        return base.name if isinstance(base, Symbol) else None


@dataclass(frozen=True, slots=True)
class Indexed:
    """``[a, {x, y}]``, ``[tex, sampler, {x, y}]``: an opaque object (or two) and a place in it."""

    objects: tuple[Operand, ...]
    coordinates: Operand


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, …}``."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: a destination with a predicate (or second) destination. Either side may be :class:`Sink`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p``."""

    operand: Register


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target, branch-table name or call-prototype name."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that is thrown away."""


@dataclass(frozen=True, slots=True)
class Selected:
    """``a.b0``, ``a.h1``: a byte or half-word of a video instruction's operand (PTX ISA 9.7.18)."""

    operand: Register
    selector: str


@dataclass(frozen=True, slots=True)
class Minus(Selected):
    """``-a``, ``-a.h1``: an operand of ``vmad`` whose sign is turned. ``selector`` begins with ``-``."""


Operand = (
    Register
    | Immediate
    | Symbol
    | Element
    | Address
    | Vector
    | Pair
    | Negated
    | Label
    | Sink
    | Indexed
    | Selected
)


# --- statements ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p``."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. Destinations come first in ``operands``, as PTX writes them.

    ``opcode`` is the word before the first dot (``"ld"``, ``"setp"``, ``"shfl"``). ``slots`` maps the slot
    names of the instruction table's row to the word written there (``{"space": "global", "cop": "ca"}``,
    ``{"rnd": "rn"}``; a flag such as ``.ftz`` maps to itself; absent when not written). ``types`` are the
    type modifiers in the order written (``cvt.rn.f32.s32``: f32, s32). ``vector`` is 1, 2, 4 or 8
    (``.v2`` …). For ``call``, the operands are the return parameters (a :class:`Vector`), the callee, the
    arguments (a :class:`Vector`), and, for an indirect call, the prototype :class:`Label`.
    """

    opcode: str
    slots: Mapping[str, str]
    types: tuple[ScalarType, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    location: Location
    ordinal: int
    vector: int = 1
    destinations: int = 1

    @property
    def type(self) -> ScalarType:
        """The first type modifier."""
        return self.types[0]

    def has(self, flag: str) -> bool:
        """Whether a flag slot (``"ftz"``, ``"sat"``, ``"uni"``, …) was written."""
        return flag in self.slots


@dataclass(frozen=True, slots=True)
class LabelStatement:
    """``name:``."""

    name: str
    location: Location


@dataclass(frozen=True, slots=True)
class BranchTargets:
    """``name: .branchtargets a, b, …;``, or ``.calltargets``: functions an indirect call may reach."""

    name: str
    targets: tuple[str, ...]
    location: Location
    calls: bool = False


@dataclass(frozen=True, slots=True)
class CallPrototype:
    """``name: .callprototype (ret) _ (params);``."""

    name: str
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    location: Location
    noreturn: bool = False


@dataclass(frozen=True, slots=True)
class DebugLine:
    """``.loc``: the source line of the instructions from ``ordinal`` on.

    ``file`` is an index into :attr:`Module.files`; an inlined call names the ``function`` label and the
    (file, line, column) it was ``inlined_at``.
    """

    ordinal: int
    file: int
    line: int
    column: int
    function: str = ""
    inlined_at: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Pragma:
    """``.pragma "…"`` before the instruction ``ordinal``; ``before_label``: before its label, too.

    ptxas looks for ``nounroll`` in the block that a loop begins with (PTX ISA 11.5), and that begins with
    its label.
    """

    ordinal: int
    text: str
    before_label: bool = False


Statement = Instruction | LabelStatement | BranchTargets | CallPrototype


# --- declarations ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter in a state space.

    ``space`` is ``"global" "const" "shared" "local" "param" "reg"``; ``shape`` is the array dimensions (empty
    for a scalar; 0 for an unsized extern array); ``vector`` is 1, 2 or 4; ``align`` in bytes. ``initializer``
    is the initial bytes, little-endian, zero-extended to the size (None: not initialised), and
    ``relocations`` the (byte offset, symbol) pairs whose address belongs there.
    """

    name: str
    space: str
    type: ScalarType
    align: int
    shape: tuple[int, ...] = ()
    vector: int = 1
    linkage: str = ""
    initializer: bytes | None = None
    relocations: tuple[tuple[int, Symbol], ...] = ()
    attributes: tuple[str, ...] = ()
    location: Location = Location(0, 0)

    @property
    def size(self) -> int:
        """Size in bytes; 0 for an unsized array."""
        count = self.vector
        for n in self.shape:
            count *= n
        return count * max(self.type.bits // 8, 1)


@dataclass(slots=True)
class Function:
    """An ``.entry`` (kernel) or ``.func``.

    Registers of nested scopes have been renamed apart, so a name means one register in the whole body.
    ``body`` is None for a declaration without a body.
    """

    name: str
    is_entry: bool
    linkage: str
    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    directives: Mapping[str, tuple[int, ...]]
    registers: dict[str, ScalarType]
    variables: dict[str, Variable]
    body: list[Statement] | None
    location: Location
    callees: tuple[str, ...] = field(default=())
    debug_lines: tuple[DebugLine, ...] = ()
    pragmas: tuple[Pragma, ...] = ()
    attributes: tuple[str, ...] = ()

    @property
    def instructions(self) -> list[Instruction]:
        """The body's instructions; ``instructions[i].ordinal == i``."""
        return [s for s in self.body or () if isinstance(s, Instruction)]
