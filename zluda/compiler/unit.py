"""One kernel with everything it needs: the functions it calls, the variables it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from zluda.compiler import ir
from zluda.compiler.analysis import barriers
from zluda.compiler.analysis.recursion import recursive
from zluda.compiler.contract import contract_function
from zluda.compiler.layout import ALLOCA, SharedLayout, function_offset, parameter_layout
from zluda.compiler.services import linked
from zluda.compiler.target import APART, CompiledKernel, Dim3, Refusal, Together
from zluda.compiler.textures import expanded
from zluda.errors import Error, PtxError
from zluda.ptx import Module
from zluda.ptx.module import (
    Address,
    CallPrototype,
    Element,
    Function,
    Immediate,
    Instruction,
    Label,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)
from zluda.records import dataclass


def kernel_unit(
    module: Module,
    name: str,
    block: Dim3,
    contract: str = "auto",
    together: Together = APART,
    *,
    outside: frozenset[str] = frozenset(),
) -> Unit:
    """A kernel with all it reaches, but for functions called in ``outside``, whose code is elsewhere.

    Raises Error where there is no kernel so named, PtxError for its text.
    """
    module = linked(module)
    function = module.function(name)
    if not function.is_entry or function.body is None:
        raise Error(f"{module.file}: {name} is not a kernel")
    return Unit(module, function, block, contract=contract, together=together, apart=outside)


_NAMELESS = frozenset((Register, Immediate))  # most operands


def symbols_in(operand: Operand) -> Iterator[str]:
    """Names an operand takes the address of (or calls)."""
    match operand:
        case Symbol(name=name):
            yield name
        case Element(array=array):
            yield array.name
        case Address(base=base):
            yield from symbols_in(base)
        case Vector(elements=elements):
            for element in elements:
                yield from symbols_in(element)
        case Pair(first=first, second=second):
            yield from symbols_in(first)
            yield from symbols_in(second)
        case _:
            return


def named(function: Function) -> Iterator[tuple[Instruction, str]]:
    """Every symbol a function's instructions name."""
    for instruction in function.instructions:
        for operand in instruction.operands:
            if operand.__class__ not in _NAMELESS:
                for name in symbols_in(operand):
                    yield instruction, name


@dataclass(slots=True)
class Unit:
    """What is compiled together. ``functions`` are those that ``kernel`` can reach, in discovery order.

    ``together`` says how its blocks are launched, ``waits_for_blocks`` that one may wait for what another
    writes (found as code is generated). ``numerics`` says how approximate instructions are computed,
    ``contract`` which products and sums are rounded as one (:mod:`zluda.compiler.contract`), ``check`` which
    accesses are tested as they are made (``"memory"``: all), ``scheduled`` that warps take turns
    as a seed has it, ``level`` how much LLVM optimises (``"0"``: little), ``slow_mode`` whether waves of 64
    lanes hold one warp (``"1"``, ``"0"``, or where the code asks for it), ``one_warp`` why they do. ``solo``
    names functions that are written for one thread (:mod:`zluda.compiler.large`). ``apart`` names functions
    that are compiled apart (:mod:`zluda.compiler.library`), ``outside`` holds those of them that are called;
    ``exported`` is the function that other objects can call.
    """

    module: Module
    kernel: Function
    block: Dim3
    ir: ir.Module = field(default_factory=ir.Module)
    functions: dict[str, Function] = field(default_factory=dict)
    symbols: list[str] = field(default_factory=list)
    shared: SharedLayout = field(init=False)
    calls_through_pointers: bool = field(default=False, init=False)
    may_exit: bool = False
    uses_fibers: bool = False
    candidates: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    numerics: str = "nvidia"
    level: str = ""
    slow_mode: str = ""
    one_warp: str = ""
    contract: str = "auto"
    check: str = "none"
    scheduled: bool = False
    together: Together = APART
    waits_for_blocks: bool = False
    recursive: frozenset[str] | None = field(default=None, init=False)
    solo: frozenset[str] = field(default=frozenset(), init=False)
    _barriers: tuple[set[str], set[str]] | None = field(default=None, init=False)
    apart: frozenset[str] = frozenset()
    outside: dict[str, Function] = field(default_factory=dict)
    exported: str = ""

    def __post_init__(self) -> None:
        if self.contract == "auto" and "debug" in self.module.target:
            self.contract = "off"  # ptxas does not optimise such a module
        self.kernel = expanded(contract_function(self.kernel, self.contract))
        self._reach(self.kernel)
        self.calls_through_pointers = any(self._is_indirect(i) for f in self._all() for i in f.instructions)
        if self.calls_through_pointers:
            self.candidates = self._address_taken()
            for name in self.candidates:
                self.include(name)
        for function in self._all():
            if any(i.opcode in ("alloca", "stacksave", "stackrestore") for i in function.instructions):
                function.variables[ALLOCA.name] = ALLOCA
        self.may_exit = any(i.opcode == "exit" for f in self.functions.values() for i in f.instructions)
        self.shared = SharedLayout(self.shared_variables())

    @property
    def file(self) -> str:
        """The PTX file's name, for messages."""
        return self.module.file

    @property
    def threads(self) -> int:
        """Threads a block."""
        x, y, z = self.block
        return x * y * z

    @property
    def warps(self) -> int:
        """Warps a block, the last one perhaps partly filled."""
        return -(-self.threads // 32)

    @property
    def instructions(self) -> int:
        """Instructions of PTX, of the kernel and all functions."""
        return sum(len(f.instructions) for f in self._all())

    @property
    def clustered(self) -> bool:
        """Whether it runs in clusters of several blocks."""
        return self.together.blocks > 1

    def symbol_index(self, name: str) -> int:
        """Where a module variable's address stands in the table the code reads."""
        if name not in self.symbols:
            self.symbols.append(name)
        return self.symbols.index(name)

    def refusal_index(self, refusal: Refusal) -> int:
        """Where a refusal stands in the table that a launch that comes to it is told by."""
        if refusal not in self.refusals:
            self.refusals.append(refusal)
        return self.refusals.index(refusal)

    def function_offset(self, name: str) -> int:
        """A function's address as PTX sees it, from that of the module's first function."""
        return function_offset(self.module.function_names, name)

    def place(self, function: Function, instruction: Instruction) -> str:
        """Where an instruction stands, for messages."""
        kind = "kernel" if function.is_entry else "function"
        return f"{kind} {function.name}, {self.file}:{instruction.location.line}"

    def ir_name(self, name: str) -> str:
        """The LLVM name of a reachable function."""
        if name in self.outside or name == self.exported:
            return name
        return f"function.{list(self.functions).index(name)}"

    def prototype(self, instruction: Instruction, function: Function) -> CallPrototype | None:
        """The ``.callprototype`` an indirect call names."""
        last = instruction.operands[-1]
        if not isinstance(last, Label):
            return None
        return next(
            (s for s in function.body or () if isinstance(s, CallPrototype) and s.name == last.name), None
        )

    def finished(self, code: bytes, entry: str = "") -> CompiledKernel:
        """The kernel with its code; ``entry`` names the function in it, if not as the kernel is."""
        slots, size = parameter_layout(self.kernel.parameters)
        return CompiledKernel(
            name=self.kernel.name,
            block=self.block,
            entry=entry or self.kernel.name,
            code=code,
            symbols=tuple(self.symbols),
            parameters=slots,
            parameter_bytes=size,
            shared_bytes=self.shared.static_bytes,
            dynamic_shared_offset=self.shared.dynamic_offset,
            instructions=self.instructions,
            refusals=tuple(self.refusals),
            one_warp=self.one_warp,
            waits_for_blocks=self.waits_for_blocks,
        )

    # --- discovery -------------------------------------------------------------------------------------

    def _all(self) -> list[Function]:
        return [self.kernel, *self.functions.values()]

    def _reach(self, function: Function) -> None:
        for _, name in named(function):
            if name in self.module.function_names and name not in function.variables:
                self.include(name)

    def callee(self, name: str) -> Function | None:
        """A function that can be called: compiled with the kernel, or apart."""
        return self.functions.get(name) or self.outside.get(name)

    def include(self, name: str) -> None:
        """Have a function of the module, and what it reaches, compiled too."""
        if name in self.functions:
            return
        if name in self.apart:
            self.outside[name] = self.module.function(name)
            return
        function = expanded(contract_function(self.module.function(name), self.contract))
        if function.body is None:
            return  # an external function: the call is where it is missed
        self.functions[name] = function
        self._reach(function)

    def _is_indirect(self, instruction: Instruction) -> bool:
        return instruction.opcode == "call" and not any(
            isinstance(o, Symbol) and o.name in self.module.function_names for o in instruction.operands
        )

    def _address_taken(self) -> list[str]:
        """Functions whose address may be in a register: moved somewhere in the module, or in its data."""
        taken: dict[str, None] = {}
        names = set(self.module.function_names)
        for variable in self.module.variables.values():
            taken |= dict.fromkeys(s.name for _, s in variable.relocations if s.name in names)
        for name in self.module.function_names:
            try:
                function = self.module.function(name)
            except PtxError:
                continue  # it cannot have run, so it cannot have handed out an address
            for instruction, symbol in named(function):
                if symbol in names and instruction.opcode != "call":
                    taken[symbol] = None
        return list(taken)

    def recursive_functions(self) -> frozenset[str]:
        """Functions that may call themselves, through others and through pointers too."""
        if self.recursive is None:
            calls: dict[str, set[str]] = {}
            for name, function in self.functions.items():
                calls[name] = {symbol for _, symbol in named(function)}
                if any(self._is_indirect(i) for i in function.instructions):
                    calls[name].update(self.candidates)
            self.recursive = recursive(calls)
        return self.recursive

    def barriers(self) -> tuple[set[str], set[str]]:
        """Functions in which a barrier may be met (``""``: in some called through a pointer), and functions
        behind whose return one may be."""
        if self._barriers is None:
            functions = self._all()
            found = barriers.synchronising(functions, self.candidates)
            self._barriers = found, barriers.returning(functions, found, self.candidates, self.file)
        return self._barriers

    def meets_in(self, instruction: Instruction) -> bool:
        """Whether threads of a block may meet in a barrier, or in a call of who has one."""
        return barriers.meets(self.barriers()[0])(instruction)

    def shared_variables(self) -> list[Variable]:
        """Every shared variable of the kernel and what it calls."""
        found: dict[str, Variable] = {}
        for function in self._all():
            found |= {v.name: v for v in function.variables.values() if v.space == "shared"}
            for _, name in named(function):
                variable = self.module.variables.get(name)
                if variable is not None and variable.space == "shared" and name not in function.variables:
                    found[name] = variable
        return list(found.values())
