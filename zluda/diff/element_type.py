"""What a buffer's elements are, read off the PTX that loads and stores them (D7).

Two flow-insensitive analyses of one kernel:

* *origins*: which parameter words and module variables a register's address derives from, through ``mov``,
  ``cvta``, ``add`` and the like;
* *uses*: as what type a register takes part in arithmetic. Registers joined by untyped moves share their
  uses, so that ``ld.b32`` followed by ``mov`` and ``add.f32`` loads an f32.

Each load, store and atomic then votes for the origins of its address. The vote of an arithmetic use is
strong; a memory operation's own integer type is weak, since compilers copy floats through ``u32`` and
``b32``. Strong votes that disagree, or weak ones for something narrower, make ``bytes``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from zluda.errors import PtxError
from zluda.ptx.module import (
    Address,
    Element,
    Function,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.ptx import Module
    from zluda.tracefile import Launch, Trace

BYTES = "bytes"

Key = TypeVar("Key")


class Origin(NamedTuple):
    """Where an address comes from: 8 bytes of a parameter at ``offset``, or (offset 0) a module variable."""

    name: str
    offset: int = 0


# Address arithmetic: the destination points where its sources point.
_ADDRESS_OPCODES = frozenset(("mov", "cvta", "add", "sub", "mad", "selp", "min", "max", "and", "or", "cvt"))
_LOADS = frozenset(("ld", "ldu"))
_ATOMICS = frozenset(("atom", "red"))
_MEMORY_OPCODES = _LOADS | _ATOMICS | {"st"}
# Operations that carry bits without looking at them join their registers; bitwise ones say nothing of a type.
_MOVES = frozenset(("mov", "selp", "shfl"))
_UNTYPED = frozenset(("and", "or", "xor", "not", "shl", "lop3", "shf", "prmt", "bfi", "brev", "popc"))
_SILENT = _MOVES | _UNTYPED | _LOADS | {"st", "call", "cvta", "ldmatrix", "stmatrix", "movmatrix"}
_PRODUCTS = frozenset(("mma", "wmma", "wgmma"))

# Neither compute an address nor let one out.
_HARMLESS = frozenset(("setp", "set", "isspacep", "prefetch", "prefetchu", "bra", "ret", "exit", "bar"))
_OWN_SPACES = ("param", "shared", "local")

# Elements of packed and alternate types.
_ELEMENT_OF = {
    "f16x2": "f16",
    "bf16x2": "bf16",
    "f32x2": "f32",
    "u16x2": "u16",
    "s16x2": "s16",
    "tf32": "f32",
}
_FLOATS = frozenset(("f16", "bf16", "f32", "f64"))


def element_types(function: Function) -> dict[Origin, str]:
    """Element type of what each parameter word and module variable of ``function`` points to.

    Types are spelt as PTX spells them (``"f32"``, ``"u8"``), or ``"bytes"`` where the uses disagree. An
    origin that no memory operation uses is absent.
    """
    strong, weak = _counted(function)
    return {origin: _decided(strong.get(origin, set()), weak.get(origin, set())) for origin in strong | weak}


def _counted(function: Function) -> tuple[dict[Origin, set[str]], dict[Origin, set[str]]]:
    """Strong and weak votes for each origin."""
    origins = _address_origins(function)
    uses = _arithmetic_uses(function)
    strong: dict[Origin, set[str]] = defaultdict(set)
    weak: dict[Origin, set[str]] = defaultdict(set)
    local = {Origin(name) for name in function.variables}
    for instruction in function.instructions:
        if not _accesses_memory(instruction):
            continue
        votes, is_strong = _votes(instruction, uses)
        for origin in _accessed(instruction, origins) - local:
            (strong if is_strong else weak)[origin] |= votes
    return strong, weak


def written_only(function: Function) -> frozenset[Origin]:
    """What ``function`` stores to and certainly does not read: its pure outputs.

    An address that is passed on, stored, or computed with in unusual ways counts as read. A kernel that loads
    through an address it got from memory may read anything, so it has none.
    """
    origins = _address_origins(function)
    stored: set[Origin] = set()
    read = {Origin(name) for name in function.variables}
    for instruction in function.instructions:
        if _accesses_memory(instruction):
            accessed = _accessed(instruction, origins)
            if instruction.opcode == "st" or instruction.has("store"):
                stored |= accessed
            elif accessed:
                read |= accessed
            elif not instruction.slots.get("space", "").startswith(_OWN_SPACES):
                return frozenset()
            if instruction.opcode not in _LOADS:
                values = [operand for operand in instruction.operands if not isinstance(operand, Address)]
                read |= _origins_of(values, origins)
        elif instruction.opcode not in _ADDRESS_OPCODES and instruction.opcode not in _HARMLESS:
            bases = [operand.base for operand in instruction.operands if isinstance(operand, Address)]
            read |= _origins_of([*instruction.operands, *bases], origins)
    return frozenset(stored - read)


def _accesses_memory(instruction: Instruction) -> bool:
    """Whether it loads or stores elements of the type it names; a ``wmma`` may."""
    is_fragment = instruction.opcode == "wmma" and (instruction.has("load") or instruction.has("store"))
    return is_fragment or instruction.opcode in _MEMORY_OPCODES


def _origins_of(operands: Iterable[Operand], origins: Mapping[str, set[Origin]]) -> set[Origin]:
    found: set[Origin] = set()
    for leaf in _leaves(operands):
        if isinstance(leaf, Register):
            found |= origins.get(leaf.name, set())
        elif isinstance(leaf, Symbol):
            found.add(Origin(leaf.name))
    return found


def launch_element_types(
    function: Function, parameters: bytes, find: Callable[[int], Key | None], variables: Mapping[str, Key]
) -> dict[Key, str]:
    """Element type of each allocation that one launch of ``function`` reads or writes directly.

    ``parameters`` is the packed parameter buffer, ``find`` maps an address to its allocation's key and
    ``variables`` the module's variables to theirs. Two parameters that name one allocation must agree.
    """
    place = _placer(function, parameters, find, variables)
    votes: dict[Key, set[str]] = defaultdict(set)
    for origin, element in element_types(function).items():
        key = place(origin)
        if key is not None:
            votes[key].add(element)
    return {key: _agreed(found) for key, found in votes.items()}


def launch_records(
    function: Function, parameters: bytes, find: Callable[[int], Key | None], variables: Mapping[str, Key]
) -> dict[Key, str]:
    """Allocations that hold both numbers of one floating type and integers of its width, and that type.

    Structures of ``float`` and ``int``, say; their element type is ``bytes``.
    """
    place = _placer(function, parameters, find, variables)
    votes: dict[Key, set[str]] = defaultdict(set)
    for counted in _counted(function):
        for origin, types in counted.items():
            key = place(origin)
            if key is not None:
                votes[key] |= types
    found = {}
    for key, types in votes.items():
        floats = types & _FLOATS
        if len(floats) == 1 and floats < types and len({_width(t) for t in types}) == 1:
            found[key] = next(iter(floats))
    return found


def launch_outputs(
    function: Function, parameters: bytes, find: Callable[[int], Key | None], variables: Mapping[str, Key]
) -> set[Key]:
    """Allocations that one launch of ``function`` stores to and does not read; as :func:`written_only`."""
    place = _placer(function, parameters, find, variables)
    outputs = written_only(function)
    read = {place(origin) for origin in set(element_types(function)) - outputs}
    return {key for key in map(place, outputs) if key is not None and key not in read}


def _placer(
    function: Function, parameters: bytes, find: Callable[[int], Key | None], variables: Mapping[str, Key]
) -> Callable[[Origin], Key | None]:
    """Origin → the allocation that it names in one launch."""
    starts = dict(_parameter_offsets(function.parameters))

    def place(origin: Origin) -> Key | None:
        if origin.name not in starts:
            return variables.get(origin.name)
        start = starts[origin.name] + origin.offset
        return find(int.from_bytes(parameters[start : start + 8], "little"))

    return place


class TraceModules:
    """A trace's modules as typed PTX, each parsed once, when asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._modules: dict[int, Module | None] = {}

    def get(self, module: int) -> Module | None:
        """None for a module without PTX, or whose text is not PTX."""
        from zluda.ptx import parse_module

        if module not in self._modules:
            loaded = next((one for one in self._trace.module_list if one.id == module), None)
            text = None if loaded is None else self._trace.ptx(loaded)
            try:
                self._modules[module] = None if text is None else parse_module(text, file=f"module {module}")
            except PtxError:
                self._modules[module] = None
        return self._modules[module]


class LaunchTypes:
    """Element types for the launches of one trace; modules and kernels are parsed once, when asked for."""

    def __init__(self, trace: Trace) -> None:
        self._modules = TraceModules(trace)
        self._functions: dict[tuple[int, str], Function | None] = {}

    def of(
        self, launch: Launch, find: Callable[[int], Key | None], variables: Mapping[str, Key]
    ) -> dict[Key, str]:
        """As :func:`launch_element_types`; empty where there is no PTX to tell."""
        function = self._function(launch)
        return launch_element_types(function, launch.parameters, find, variables) if function else {}

    def outputs(
        self, launch: Launch, find: Callable[[int], Key | None], variables: Mapping[str, Key]
    ) -> set[Key]:
        """As :func:`launch_outputs`; empty where there is no PTX to tell."""
        function = self._function(launch)
        return launch_outputs(function, launch.parameters, find, variables) if function else set()

    def _function(self, launch: Launch) -> Function | None:
        if launch.module is None:
            return None
        key = (launch.module, launch.kernel)
        if key not in self._functions:
            module = self._modules.get(launch.module)
            try:
                self._functions[key] = module.function(launch.kernel) if module is not None else None
            except PtxError:  # then the launch's verdict says so, and its bytes are compared as bytes
                self._functions[key] = None
        return self._functions[key]


def _parameter_offsets(parameters: Iterable[Variable]) -> Iterator[tuple[str, int]]:
    """Offsets in the packed buffer: each parameter at the next multiple of its alignment (PTX ISA 5.1.6)."""
    offset = 0
    for parameter in parameters:
        align = max(parameter.align, 1)
        offset = (offset + align - 1) // align * align
        yield parameter.name, offset
        offset += parameter.size


# --- origins ---------------------------------------------------------------------------------------


def _address_origins(function: Function) -> dict[str, set[Origin]]:
    """Register name → origins, as the smallest sets closed under the kernel's address arithmetic."""
    parameters = {parameter.name for parameter in function.parameters}
    origins: dict[str, set[Origin]] = defaultdict(set)
    flows: dict[str, set[str]] = defaultdict(set)  # source register → registers computed from it
    for instruction in function.instructions:
        if instruction.opcode in _LOADS:
            _seed_from_parameters(instruction, parameters, origins)
        elif instruction.opcode in _ADDRESS_OPCODES and instruction.operands:
            sources = list(_leaves(instruction.operands[1:]))
            for target in _register_names(instruction.operands[:1]):
                for source in sources:
                    if isinstance(source, Register):
                        flows[source.name].add(target)
                    elif isinstance(source, Symbol):
                        origins[target].add(Origin(source.name))
    _close(origins, flows)
    return origins


def _seed_from_parameters(
    instruction: Instruction, parameters: set[str], origins: dict[str, set[Origin]]
) -> None:
    target, source = instruction.operands[0], instruction.operands[1]
    if not (
        isinstance(source, Address) and isinstance(source.base, Symbol) and source.base.name in parameters
    ):
        return
    step = max(instruction.type.bits // 8, 1)
    for index, name in enumerate(_register_names([target])):
        origins[name].add(Origin(source.base.name, source.base.offset + source.offset + index * step))


def _close(origins: dict[str, set[Origin]], flows: Mapping[str, set[str]]) -> None:
    pending = list(origins)
    while pending:
        source = pending.pop()
        for target in flows.get(source, ()):
            if not origins[source] <= origins[target]:
                origins[target] |= origins[source]
                pending.append(target)


def _accessed(instruction: Instruction, origins: Mapping[str, set[Origin]]) -> set[Origin]:
    """Origins of the address that a memory instruction uses; its address is the only Address operand."""
    found: set[Origin] = set()
    for operand in instruction.operands:
        if not isinstance(operand, Address):
            continue
        if isinstance(operand.base, Register):
            found |= origins.get(operand.base.name, set())
        elif operand.variable is not None and not _is_parameter_space(instruction):
            found.add(Origin(operand.variable))
    return found


def _is_parameter_space(instruction: Instruction) -> bool:
    return instruction.slots.get("space", "").startswith("param")


# --- uses ------------------------------------------------------------------------------------------


class _Classes:
    """Registers joined by moves (union–find), each class with the types it is used as."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._types: dict[str, set[str]] = defaultdict(set)

    def _root(self, name: str) -> str:
        while (parent := self._parent.get(name, name)) != name:
            self._parent[name] = self._parent.get(parent, parent)
            name = parent
        return name

    def join(self, first: str, second: str) -> None:
        a, b = self._root(first), self._root(second)
        if a != b:
            self._parent[b] = a
            self._types[a] |= self._types.pop(b, set())

    def use(self, name: str, element: str) -> None:
        self._types[self._root(name)].add(element)

    def types(self, name: str) -> set[str]:
        return self._types.get(self._root(name), set())


def _arithmetic_uses(function: Function) -> _Classes:
    classes = _Classes()
    for instruction in function.instructions:
        registers = list(_registers(instruction.operands))
        if instruction.opcode in _MOVES:
            _join_equal_widths(registers, classes)
        elif instruction.opcode in _PRODUCTS:
            _use_in_product(instruction, classes)
        elif instruction.opcode not in _SILENT:
            for register in registers:
                element = _used_as(instruction, register)
                if element:
                    classes.use(register.name, element)
    for name, declared in function.registers.items():
        if declared.kind == "f":
            classes.use(name, _element(declared))
    return classes


def _use_in_product(instruction: Instruction, classes: _Classes) -> None:
    """Registers of D, A, B and C have the types of those; ``wmma.mma`` of f16 names D's and C's alone."""
    if _accesses_memory(instruction):
        return
    named = list(instruction.types)
    d_a_b_c = [named[0], ScalarType.F16, ScalarType.F16, named[1]] if len(named) == 2 else named
    for operand, of in zip(instruction.operands, d_a_b_c, strict=False):
        element = _element(of)
        if element in _FLOATS or element == "s32":
            for register in _registers([operand]):
                classes.use(register.name, element)


def _join_equal_widths(registers: list[Register], classes: _Classes) -> None:
    """A move of equal widths passes its bits on; packing and unpacking moves say nothing of the elements."""
    values = [r for r in registers if r.type.kind != "pred" and not r.special]
    if len(values) > 1 and len({r.type.bits for r in values}) == 1:
        for other in values[1:]:
            classes.join(values[0].name, other.name)


def _used_as(instruction: Instruction, register: Register) -> str:
    """The type modifier of the register's width: ``cvt.f32.s32`` uses its 32-bit operands by position."""
    types = [t for t in instruction.types if t.kind in "fus" and t.bits == register.type.bits]
    if not types:
        return ""
    if instruction.opcode == "cvt" and len(instruction.types) == 2:
        is_target = register.name in set(_register_names(instruction.operands[:1]))
        chosen = instruction.types[0 if is_target else 1]
        return _element(chosen) if chosen in types else ""
    return _element(types[0])


def _votes(instruction: Instruction, uses: _Classes) -> tuple[set[str], bool]:
    """The element types that one memory instruction speaks for, and whether strongly."""
    own = instruction.type
    if own.bits < 8:
        return {BYTES}, True
    if own.kind == "f" or (instruction.opcode in _ATOMICS and own.kind in "us"):
        return {_element(own)}, True
    found: set[str] = set()
    for operand in instruction.operands:
        if isinstance(operand, Address):
            continue
        for register in _registers([operand]):
            found |= {t for t in uses.types(register.name) if _width(t) == own.bits or _is_half_of(t, own)}
    if found:
        return found, True
    return {_element(own)}, False


def _is_half_of(element: str, memory: ScalarType) -> bool:
    """A packed pair moved as one ``b32``."""
    return memory.bits == 32 and element in ("f16", "bf16")


def _decided(strong: set[str], weak: set[str]) -> str:
    if not strong:
        return _agreed(weak)
    narrowest = min(map(_width, strong))
    return _agreed(strong | {element for element in weak if _width(element) < narrowest})


def _agreed(types: set[str]) -> str:
    """One type for all votes: integers of one width agree (signed wins), anything else is bytes."""
    if len(types) == 1:
        return next(iter(types))
    if types & _FLOATS or BYTES in types or len({_width(t) for t in types}) != 1:
        return BYTES
    return min(types)  # "s32" < "u32"


def _element(type: ScalarType) -> str:
    name = _ELEMENT_OF.get(type.spelling, type.spelling)
    if type.kind == "b" or (type.kind == "f" and name not in _FLOATS):  # fp8 and smaller are compared as bits
        return f"u{min(type.bits, 64)}"
    return name


def _width(element: str) -> int:
    return int(element.lstrip("bfsu")) if element != BYTES else 0


# --- operands --------------------------------------------------------------------------------------


def _leaves(operands: Iterable[Operand]) -> Iterator[Operand]:
    for operand in operands:
        if isinstance(operand, Vector):
            yield from _leaves(operand.elements)
        elif isinstance(operand, Pair):
            yield from _leaves((operand.first, operand.second))
        elif isinstance(operand, Negated):
            yield operand.operand
        elif isinstance(operand, Element):
            yield from (operand.array, operand.index)
        else:
            yield operand


def _registers(operands: Iterable[Operand]) -> Iterator[Register]:
    return (leaf for leaf in _leaves(operands) if isinstance(leaf, Register))


def _register_names(operands: Iterable[Operand]) -> Iterator[str]:
    return (register.name for register in _registers(operands))
