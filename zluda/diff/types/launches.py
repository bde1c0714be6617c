"""Element types for the launches of a trace: what a kernel's text says, placed by a launch's parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from zluda.diff.types.layout import Confidence, Layout, Vote, is_float
from zluda.diff.types.outputs import written_only
from zluda.diff.types.override import Override
from zluda.diff.types.places import Origin, Term
from zluda.diff.types.regions import BufferTypes, Pointer
from zluda.diff.types.signature import bits_of, pointee_types, triton_types
from zluda.diff.types.votes import evidence
from zluda.errors import Error, PtxError
from zluda.ptx.module import Function, Variable
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.ptx import Module
    from zluda.tracefile import Launch, Trace

Key = TypeVar("Key")

Find = Callable[[int], tuple[Key, int] | None]
"""An address → the allocation that it lies in, and where in it."""

_MOST_PITCH = 1 << 32


@dataclass(slots=True)
class KernelTypes:
    """What is known of a kernel's pointers before it is launched.

    ``starts`` are the parameters' places in the packed buffer, by name; ``signature`` is by origin.
    """

    function: Function
    votes: Mapping[Origin, list[Vote]]
    terms: Mapping[Origin, frozenset[Term]]
    signature: Mapping[Origin, str]
    given: Mapping[Origin, Layout]
    starts: Mapping[str, int]

    @classmethod
    def of(
        cls,
        function: Function,
        module: Module | None = None,
        overrides: Sequence[Override] = (),
        framework: Sequence[str] = (),
    ) -> KernelTypes:
        """``framework``: the parameters' types as Triton named them."""
        found = evidence(function, module)
        names = [one.name for one in function.parameters]
        told = {
            Origin(names[index]): element
            for index, element in (pointee_types(function.name) | triton_types(framework)).items()
            if index < len(names)
        }
        variables = module.variables if module is not None else function.variables
        given = {
            origin: one.layout
            for one in overrides
            if (origin := one.origin_in(function, variables)) is not None
        }
        return cls(function, found.votes, found.terms, told, given, dict(parameter_offsets(function)))

    def layout(self, origin: Origin) -> Layout | None:
        """The layout of what an origin points to; None where nothing is known of it."""
        pointer = self._pointer(origin, 0, b"")
        if not pointer.votes and not pointer.signature and pointer.given is None:
            return None
        return BufferTypes.of([pointer]).regions[0].layout

    @property
    def origins(self) -> Iterator[Origin]:
        """All that something is known of."""
        yield from dict.fromkeys([*self.votes, *self.signature, *self.given])

    def place(
        self, parameters: bytes, find: Find[Key], variables: Mapping[str, Key]
    ) -> dict[Key, BufferTypes]:
        """The types of each allocation that a launch with these parameters reads or writes directly."""
        pointers: dict[Key, list[Pointer]] = defaultdict(list)
        for origin in self.origins:
            placed = self.placed(origin, parameters, find, variables)
            if placed is not None:
                key, offset = placed
                pointers[key].append(self._pointer(origin, offset, parameters))
        for key, pointer in self._tensor_maps(parameters, find):
            pointers[key].append(pointer)
        return {key: BufferTypes.of(found) for key, found in pointers.items()}

    def mixed(self, parameters: bytes, find: Find[Key], variables: Mapping[str, Key]) -> dict[Key, str]:
        """Allocations that hold both numbers of one floating type and integers of its width in the same
        places, and that type.
        """
        types: dict[Key, set[tuple[str, int]]] = defaultdict(set)
        for origin, votes in self.votes.items():
            placed = self.placed(origin, parameters, find, variables)
            if placed is not None:
                types[placed[0]] |= {(vote.element, vote.size) for vote in votes}
        found = {}
        for key, names in types.items():
            floats = [name for name, _ in names if is_float(name)]
            if len(floats) == 1 and len(names) > 1 and len({size for _, size in names}) == 1:
                found[key] = floats[0]
        return found

    def placed(
        self, origin: Origin, parameters: bytes, find: Find[Key], variables: Mapping[str, Key]
    ) -> tuple[Key, int] | None:
        """The allocation that an origin names, and where in it."""
        if origin.name not in self.starts:
            return (variables[origin.name], 0) if origin.name in variables else None
        start = self.starts[origin.name] + origin.offset
        word = parameters[start : start + 8]
        return find(int.from_bytes(word, "little")) if len(word) == 8 else None

    def _pointer(self, origin: Origin, offset: int, parameters: bytes) -> Pointer:
        return Pointer(
            offset,
            tuple(self.votes.get(origin, ())),
            self.signature.get(origin, ""),
            self.given.get(origin),
            tuple(self._pitches(origin, parameters)),
            self._label(origin),
        )

    def _label(self, origin: Origin) -> str:
        """``parameter 2``; a variable has a name of its own."""
        names = [one.name for one in self.function.parameters]
        return f"parameter {names.index(origin.name)}" if origin.name in names else ""

    def _pitches(self, origin: Origin, parameters: bytes) -> Iterator[int]:
        """Products with integer parameters in its addresses, as bytes."""
        sizes = {one.name: one.size for one in self.function.parameters}
        for term in self.terms.get(origin, ()):
            name, at = term.parameter
            start = self.starts.get(name)
            if start is None or not parameters or term.factor <= 0:
                continue
            size = 8 if sizes[name] >= at + 8 and sizes[name] != 4 else 4
            value = int.from_bytes(parameters[start + at : start + at + size], "little", signed=True)
            if 0 < value * term.factor < _MOST_PITCH:
                yield value * term.factor

    def _tensor_maps(self, parameters: bytes, find: Find[Key]) -> Iterator[tuple[Key, Pointer]]:
        """What tensor maps among the parameters say: they name their tensor's type."""
        from zluda.diff.types.tensor_maps import MAP_BYTES, element_of, pitches_of

        for one in self.function.parameters:
            start = self.starts[one.name]
            data = parameters[start : start + MAP_BYTES]
            if one.size != MAP_BYTES or len(data) != MAP_BYTES:
                continue
            placed = find(int.from_bytes(data[:8], "little"))
            element = element_of(data)
            if placed is not None and element:
                size = bits_of(element) // 8
                vote = Vote(size, 0, element, size, Confidence.CERTAIN)
                yield (
                    placed[0],
                    Pointer(
                        placed[1], (vote,), pitches=pitches_of(data), label=self._label(Origin(one.name))
                    ),
                )


def parameter_offsets(function: Function) -> Iterator[tuple[str, int]]:
    """Offsets in the packed buffer: each parameter at the next multiple of its alignment (PTX ISA 5.1.6)."""
    offset = 0
    for parameter in function.parameters:
        offset = _up(offset, parameter)
        yield parameter.name, offset
        offset += parameter.size


def _up(offset: int, parameter: Variable) -> int:
    align = max(parameter.align, 1)
    return (offset + align - 1) // align * align


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

    def signature(self, module: int, kernel: str) -> Sequence[str]:
        """A kernel's parameters' types as a framework named them; empty for none."""
        loaded = next((one for one in self._trace.module_list if one.id == module), None)
        return () if loaded is None else self._trace.kernel_signatures(loaded).get(kernel, ())


class LaunchTypes:
    """Element types for the launches of one trace; modules and kernels are parsed once, when asked for."""

    def __init__(self, trace: Trace, overrides: Sequence[Override] = ()) -> None:
        self._modules = TraceModules(trace)
        self._overrides = overrides
        self._kernels: dict[tuple[int, str], KernelTypes | None] = {}

    def of(self, launch: Launch, find: Find[Key], variables: Mapping[str, Key]) -> dict[Key, BufferTypes]:
        """As :meth:`KernelTypes.place`; empty where there is no PTX to tell."""
        kernel = self.kernel(launch)
        return {} if kernel is None else kernel.place(launch.parameters, find, variables)

    def outputs(self, launch: Launch, find: Find[Key], variables: Mapping[str, Key]) -> set[Key]:
        """Allocations that one launch stores to and does not read; empty where there is no PTX to tell."""
        kernel = self.kernel(launch)
        return set() if kernel is None else launch_outputs(kernel, launch.parameters, find, variables)

    def kernel(self, launch: Launch) -> KernelTypes | None:
        """What is known of a launch's kernel; None where there is no PTX to tell."""
        if launch.module is None:
            return None
        key = (launch.module, launch.kernel)
        if key not in self._kernels:
            module = self._modules.get(launch.module)
            framework = self._modules.signature(launch.module, launch.kernel)
            try:
                self._kernels[key] = (
                    self._looked_at(module, launch.kernel, framework) if module is not None else None
                )
            except PtxError:  # then the launch's verdict says so, and its bytes are compared as bytes
                self._kernels[key] = None
        return self._kernels[key]

    def _looked_at(self, module: Module, kernel: str, framework: Sequence[str]) -> KernelTypes:
        mine = [one for one in self._overrides if one.names(kernel)]
        return KernelTypes.of(module.function(kernel), module, mine, framework)


def launch_outputs(
    kernel: KernelTypes, parameters: bytes, find: Find[Key], variables: Mapping[str, Key]
) -> set[Key]:
    """Allocations that one launch of a kernel stores to and does not read; as :func:`written_only`."""

    def keys(origins: set[Origin]) -> set[Key]:
        placed = (kernel.placed(origin, parameters, find, variables) for origin in origins)
        return {one[0] for one in placed if one is not None}

    outputs = written_only(kernel.function)
    return keys(set(outputs)) - keys(set(kernel.votes) - outputs)


def check_overrides(trace: Trace, overrides: Sequence[Override]) -> None:
    """Raises Error naming an override that no launch of the trace has a kernel and parameter for."""
    kernels = dict.fromkeys((one.module, one.kernel) for one in trace.iter_launches()) if overrides else {}
    modules = TraceModules(trace)
    for override in overrides:
        named = [(module, kernel) for module, kernel in kernels if override.names(kernel)]
        if not named:
            raise Error(f"--dtype {override.text}: no kernel that was launched is named so")
        functions = [found for module, kernel in named if (found := _function(modules, module, kernel))]
        if not any(override.origin_in(function, names) for function, names in functions):
            counts = sorted({len(function.parameters) for function, _ in functions})
            told = f"{named[0][1]} has {' or '.join(map(str, counts))} parameters, the first is 0"
            raise Error(f"--dtype {override.text}: {told if counts else 'there is no PTX of ' + named[0][1]}")


def _function(
    modules: TraceModules, number: int | None, kernel: str
) -> tuple[Function, Mapping[str, Variable]] | None:
    """A kernel and its module's variables; None where there is no PTX of it."""
    module = None if number is None else modules.get(number)
    try:
        return None if module is None else (module.function(kernel), module.variables)
    except PtxError:
        return None
