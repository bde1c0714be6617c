"""What the CUDA system defines for device code: ``vprintf``, ``__assertfail``, ``malloc``, ``free``,
``cudaGraphSetConditional``; and what texture units do, as functions that texture instructions become calls of
(:mod:`zluda.compiler.textures`).

PTX declares the former ``.extern``. Here they are PTX functions (made of the ``.cu`` files beside them,
``make services``), put behind a module's own text, so that they are compiled like any other function, for
every target; and so are instructions that some GPUs lack (128-bit atomics). Each library has one *hidden
variable*, an address in device memory that whoever loads the module fills in
(``zluda/device/services.py``); that of conditions is a table itself.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.textures import INSTRUCTION
from zluda.numerics.texture import ROOT_VARIABLE
from zluda.patterns import pattern
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.ptx import Module


@dataclass(frozen=True, slots=True)
class Library:
    """PTX in ``file`` that defines ``functions`` over the table that ``variable`` points to.

    A module needs it that declares one of them, or in whose text ``instruction`` is found.
    """

    file: str
    variable: str
    functions: frozenset[str]
    instruction: re.Pattern[str] | None = None


OUTPUT, HEAP, LOCKS = "__zluda_printf", "__zluda_heap", "__zluda_locks"

CONDITIONS, CONDITION_PLACES = "__zluda_conditions", 64
"""Of a module that sets conditions of graphs, a table in it: for each place eight bytes of a condition's
handle, 0 where it is free, four of its value, and four more.
"""

PRINTING = frozenset({"vprintf", "__assertfail"})
"""What a module that can print declares."""

EXCHANGE_128 = "__zluda_exchange128"

TEXTURES = Library("textures.ptx", ROOT_VARIABLE, frozenset({"__zluda_descriptor"}), INSTRUCTION)

LIBRARIES = (
    Library("output.ptx", OUTPUT, PRINTING),
    Library("heap.ptx", HEAP, frozenset({"malloc", "free"})),
    Library("conditional.ptx", CONDITIONS, frozenset({"cudaGraphSetConditional"})),
    TEXTURES,
    Library("wide.ptx", LOCKS, frozenset({EXCHANGE_128}), pattern(r"\batom[\w.:]*\.b128\b")),
)

STOPS = {
    "__zluda_stop_assert": "assert",
    "__zluda_stop_free": "free",
    "__zluda_stop_texture": "texture",
    "__zluda_stop_surface": "surface",
}
"""Functions by which the libraries end a launch, and the kind of fault that is (``TargetOps.trap``)."""


_linked: weakref.WeakKeyDictionary[Module, Module | None] = weakref.WeakKeyDictionary()


def linked(module: Module) -> Module:
    """The module with the libraries that it declares functions of and does not define; itself for none.

    A module's text is searched once, not once a kernel.
    """
    if module not in _linked:
        needed = [library for library in LIBRARIES if _needs(module, library)]
        _linked[module] = _with_libraries(module, needed) if needed else None
    whole = _linked[module]
    return module if whole is None else whole


def _with_libraries(module: Module, needed: Sequence[Library]) -> Module:
    from zluda.ptx import parse_module  # a replay's near side only asks for names

    text = "\n".join([module.source, *(_text(library.file) for library in needed)])
    return parse_module(text, file=module.file)


_OWN = pattern(r"(?:__|_Z\d+)zluda_")


def sets_conditions(module: Module) -> bool:
    """Whether there is a table :data:`CONDITIONS` in it."""
    return CONDITIONS in linked(module).variables


def is_service(function: str) -> bool:
    """Whether a function is of a library, by its name."""
    return _OWN.match(function) is not None or any(function in library.functions for library in LIBRARIES)


_DEFINITION = pattern(r"^\.(?:visible|weak) \.func .*?(\w+)\($", re.MULTILINE)


def compiled_apart(module: Module) -> frozenset[str]:
    """The texture library's functions, where a module has that behind it.

    They are large, and the same for all kernels: see :mod:`zluda.compiler.library`.
    """
    whole = linked(module)
    if not all(map(whole.defines, TEXTURES.functions)) or _text(TEXTURES.file) not in whole.source:
        return frozenset()
    return texture_functions()


@functools.cache
def texture_functions() -> frozenset[str]:
    """The names of all functions of the texture library."""
    return frozenset(_texture_places())


@functools.cache
def texture_callees(name: str) -> tuple[str, ...]:
    """Functions of the texture library that one of them calls: no other's name is in its text."""
    start = _texture_places()[name]
    words = re.findall(r"\w+", _text(TEXTURES.file)[start : _text(TEXTURES.file).index("\n}", start)])
    return tuple(word for word in dict.fromkeys(words) if word != name and word in texture_functions())


@functools.cache
def _texture_places() -> dict[str, int]:
    """Where each function of the texture library is defined."""
    return {match[1]: match.start() for match in _DEFINITION.finditer(_text(TEXTURES.file))}


@functools.cache
def texture_library() -> Module:
    """The texture library as a module, with one kernel, :data:`NO_KERNEL`, that does nothing."""
    from zluda.ptx import parse_module

    return parse_module("\n".join((_HEADER, _text(TEXTURES.file), _NOTHING)), file=TEXTURES.file)


NO_KERNEL = "__zluda_nothing"
_HEADER = ".version 8.0\n.target sm_90\n.address_size 64"
_NOTHING = f".visible .entry {NO_KERNEL}() {{ ret; }}\n"


def prepare() -> None:
    """Read the libraries: a process that is confined later can open no file then."""
    for library in LIBRARIES:
        _text(library.file)


def _needs(module: Module, library: Library) -> bool:
    declared = library.functions.intersection(module.function_names)
    if library.instruction is not None and not declared:
        return library.instruction.search(module.source) is not None
    return bool(declared) and not any(module.defines(name) for name in declared)


@functools.cache
def _text(file: str) -> str:
    return importlib.resources.files(__package__).joinpath(file).read_text()
