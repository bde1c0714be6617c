"""What lowering asks of a target: the seam between PTX's meaning and a machine.

*Lanes* are how a register of a warp is held: one part a group of lanes, each part an LLVM value. A *shape*
says how the lanes' values relate, so that what is equal or evenly spaced in all lanes costs one scalar.
The CPU holds a warp as two groups of 16 lanes; a GPU target has one group of one lane, where every value
is :data:`VARYING` and all code below degenerates to scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from zluda.compiler.ir import Builder, Value
from zluda.ptx.module import Register
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen
    from zluda.compiler.lower.table import WarpLowering
    from zluda.ptx.module import Instruction

WARP = 32
ZEROS = (0,) * WARP
"""The pattern of what is the same in all lanes; mostly this very tuple."""
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Together:
    """What a launch says of blocks that run together.

    ``cluster`` is the shape of its clusters in blocks where it names one, by attribute or the kernel's
    directive; ``cooperative``: all of its blocks are resident at once, and may synchronise.
    """

    cluster: Dim3 | None = None
    cooperative: bool = False

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z


APART = Together()
"""A launch whose blocks have nothing to do with each other."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A warp as ``groups`` vectors of ``width`` lanes (their product is 32, or 1 lane a thread on a GPU)."""

    groups: int
    width: int

    @property
    def lanes(self) -> int:
        return self.groups * self.width


@dataclass(frozen=True, slots=True)
class Shape:
    """How a value's lanes relate: lane *i* is ``base + pattern[i]``, modulo the register's width.

    ``pattern`` None: the lanes are unrelated (held as vectors). Else there are ``bases`` scalars: one for
    the warp, or one for each group. ``align`` is a power of two that divides every base; ``constant`` is the
    value where it is known at compile time.
    """

    pattern: tuple[int, ...] | None
    bases: int = 1
    align: int = 1
    constant: int | None = None

    @property
    def varying(self) -> bool:
        return self.pattern is None

    @property
    def uniform(self) -> bool:
        """One value in all lanes of the warp."""
        if self.pattern is None or self.bases != 1:
            return False
        return self.pattern is ZEROS or not any(self.pattern)

    @property
    def loose(self) -> Shape:
        """The same, but for what is known of the bases."""
        return self if self.align == 1 and self.constant is None else Shape(self.pattern, self.bases)


VARYING = Shape(None)
UNIFORM = Shape(ZEROS)


@dataclass(frozen=True, slots=True)
class Lanes:
    """A register's value in a warp: ``parts`` has one Value a base, or one vector a group when varying."""

    shape: Shape
    parts: tuple[Value, ...]

    @property
    def type(self) -> str:
        return self.parts[0].type


@dataclass(frozen=True, slots=True)
class CallValue:
    """An argument or result of a call: a ``.param`` variable of the caller's by name, or a register's value.

    ``lanes`` holds a register argument's bits; for a register result it is None and ``target`` is written.
    """

    variable: str = ""
    lanes: Lanes | None = None
    target: Register | None = None


@dataclass(frozen=True, slots=True)
class ParameterSlot:
    """One ``.param`` in the packed parameter buffer: offset, size and alignment in bytes."""

    name: str
    offset: int
    size: int
    align: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that has no lowering: ``what`` by its own name, ``where`` it stands."""

    what: str
    where: str


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Machine code of one kernel for one block shape.

    ``entry`` names the function in ``code`` (a relocatable object). ``symbols`` are the module variables
    whose addresses the code reads, in the order of the address table it is given. ``shared_bytes`` is static
    shared memory; dynamic shared memory begins right after it, at ``dynamic_shared_offset``. ``refusals`` are
    what the code cannot do, named should a thread come to it. ``waits_for_blocks``: a block may wait in a
    loop for memory that another block writes. ``one_warp`` says why waves of 64 lanes hold one warp each
    (``zluda.compiler.amd.slow``); empty where they hold two.
    """

    name: str
    block: Dim3
    entry: str
    code: bytes
    symbols: tuple[str, ...]
    parameters: tuple[ParameterSlot, ...]
    parameter_bytes: int
    shared_bytes: int
    dynamic_shared_offset: int
    instructions: int
    refusals: tuple[Refusal, ...] = ()
    one_warp: str = ""
    waits_for_blocks: bool = False


class TargetOps(Protocol):
    """The instructions whose form depends on the machine. ``f`` is the function being generated.

    Addresses are Lanes of ``i32`` or ``i64`` in the given state space; ``f.mask`` says which lanes execute.
    In clusters of several blocks, and only there, a space may be ``shared::cluster``; ``shared`` is then the
    block's own part of that window.
    """

    geometry: Geometry
    many_registers: bool
    """Whether hundreds of values are better kept in registers than in stack memory."""

    def own(self, instruction: Instruction) -> WarpLowering | None:
        """How the target writes an instruction by itself; None: as its lowering has it."""
        ...

    def special_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """The shape :meth:`special` will give."""
        ...

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """The shape :meth:`symbol` will give."""
        ...

    def special(self, f: FunctionCodegen, name: str) -> Lanes:
        """A special register (``%tid.x``). Raises UnsupportedError by its name."""
        ...

    def window(self, f: FunctionCodegen, space: str) -> Value:
        """The generic address (``i64``) at which a state space's window begins."""
        ...

    def in_window(self, f: FunctionCodegen, space: str, address: Lanes) -> Lanes:
        """``isspacep``: an ``i1`` a lane."""
        ...

    def symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """The address of a module or local variable, in its own state space."""
        ...

    def first_function(self, f: FunctionCodegen) -> Value:
        """The address of the module's first function (``i64``); others follow it."""
        ...

    def load(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        type: ScalarType,
        count: int,
        *,
        volatile: bool,
        invariant: bool = False,
    ) -> list[Lanes]:
        """``count`` consecutive elements a lane, each of ``type``'s bits."""
        ...

    def store(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        type: ScalarType,
        values: list[Lanes],
        *,
        volatile: bool,
    ) -> None: ...

    def atomic(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        op: str,
        type: ScalarType,
        operands: list[Lanes],
        *,
        wanted: bool,
    ) -> Lanes | None:
        """A read-modify-write in lane order; the old values when ``wanted``."""
        ...

    def fence(self, f: FunctionCodegen, scope: str) -> None: ...

    def require_whole_warp(self, f: FunctionCodegen) -> None:
        """Before a barrier that lanes may reach apart: stop the launch if this target cannot let them."""
        ...

    def barrier(
        self,
        f: FunctionCodegen,
        identifier: Lanes,
        threads: Lanes | None,
        *,
        wait: bool,
        reduce: str = "",
        predicate: Lanes | None = None,
    ) -> Lanes | None:
        """``bar.sync`` (wait), ``bar.arrive`` (not wait), ``bar.red`` (reduce popc, and, or)."""
        ...

    def cluster_arrive(self, f: FunctionCodegen) -> None:
        """``barrier.cluster.arrive`` for the executing lanes."""
        ...

    def cluster_wait(self, f: FunctionCodegen) -> None:
        """``barrier.cluster.wait``: until all threads of the cluster have arrived."""
        ...

    def block_shift(self, f: FunctionCodegen) -> Value:
        """In a shared address of a cluster of several blocks, how many bits (``i32``) are below the rank."""
        ...

    def shuffle(
        self, f: FunctionCodegen, mode: str, value: Lanes, lane: Lanes, clamp: Lanes
    ) -> tuple[Lanes, Lanes]:
        """The source lane's value, and whether it was in range (``i1``)."""
        ...

    def lane_numbers(self, b: Builder) -> tuple[Value, ...]:
        """Each lane's number in the warp (``i32``), one Value a group; in any function."""
        ...

    def permute(self, b: Builder, parts: tuple[Value, ...], sources: Sequence[int]) -> tuple[Value, ...]:
        """In each lane the value that lane ``sources[lane]`` holds, one Value a group; in any function.

        All lanes execute it together. ``sources`` are linear in the lane's bits.
        """
        ...

    def ballot(self, f: FunctionCodegen, predicate: Lanes, members: Lanes | None) -> Lanes:
        """A bit a lane (``i32``) of the active member lanes whose predicate is set."""
        ...

    def match(self, f: FunctionCodegen, op: str, value: Lanes, members: Lanes) -> tuple[Lanes, Lanes]: ...

    def reduce(
        self, f: FunctionCodegen, op: str, type: ScalarType, value: Lanes, members: Lanes
    ) -> Lanes: ...

    def first_active(self, f: FunctionCodegen, lanes: Lanes) -> Value:
        """The value of the lowest active lane, as a scalar."""
        ...

    def trap(self, f: FunctionCodegen, kind: str) -> None:
        """Stop the launch for the active lanes: ``trap``, ``brkpt``, ``call`` (through a bad pointer)."""
        ...

    def refuse(self, f: FunctionCodegen, refusal: Refusal) -> None:
        """Stop the launch for the active lanes because this target cannot go on."""
        ...

    def loop_head(self, f: FunctionCodegen, blocks: Sequence[int]) -> None:
        """At the head of a loop of these blocks, each time round."""
        ...

    def call(
        self, f: FunctionCodegen, name: str, results: list[CallValue], arguments: list[CallValue]
    ) -> None:
        """Call a function of the unit for the active lanes; lanes that left the kernel stop here."""
        ...

    def call_through(
        self,
        f: FunctionCodegen,
        target: Lanes,
        names: list[str],
        results: list[CallValue],
        arguments: list[CallValue],
        others: Refusal,
    ) -> None:
        """Call, for each active lane, that one of ``names`` whose address ``target`` holds.

        ``others`` is what to say of the address of another module's function.
        """
        ...
