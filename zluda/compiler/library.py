"""Texture functions, each compiled once for a target and put behind the kernels that call it.

Sampling takes a hundred times as long to compile as the kernel that samples. Each function of the texture
library (:func:`~zluda.compiler.services.compiled_apart`) is therefore an object of its own, kept in the
kernel cache, and by this process. A kernel's object names those that it calls, and
:func:`~zluda.compiler.relocatable.merge` makes one object of it, of them, and of what they call in turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from zluda.compiler import cache, siblings
from zluda.compiler.services import texture_callees, texture_functions, texture_library
from zluda.compiler.unit import Unit
from zluda.errors import Error
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A function's object. ``symbols`` are the variables it names, as ``Unit.symbols`` has them, ``calls``
    the library functions it calls, ``unread`` the inputs it does not read (``amd/inputs.py``), ``resources``
    what it takes of the machine (``amd/resources.py``).
    """

    name: str
    code: bytes
    symbols: tuple[str, ...]
    calls: tuple[str, ...]
    unread: str = ""
    resources: tuple[int, ...] = ()


_kept: dict[str, LibraryFunction] = {}


def library_function(
    key: str, name: str, make: Callable[[], LibraryFunction], *, label: str, wait: bool = True
) -> LibraryFunction | None:
    """``make()``, or what it gave before: in this process, for another of its job, or for the kernel cache.

    None where another process is at it, and it is not to ``wait`` for that.
    """
    if key not in _kept:
        found = siblings.once(
            key, lambda: cache.remember(key, lambda: _packed(make()), label=f"{label} {name}"), wait=wait
        )
        if found is None:
            return None
        start = 4 + int.from_bytes(found[:4], "little")
        symbols, calls, unread, resources = json.loads(found[4:start])
        lists = tuple(symbols), tuple(calls)
        _kept[key] = LibraryFunction(name, found[start:], *lists, unread, tuple(resources))
    return _kept[key]


def _packed(function: LibraryFunction) -> bytes:
    fields = (function.symbols, function.calls, function.unread, function.resources)
    told = json.dumps(fields).encode()
    return len(told).to_bytes(4, "little") + told + function.code


def reached(
    names: Iterable[str],
    get: Callable[[str, bool], LibraryFunction | None],
    callees: Callable[[str], Iterable[str]] = texture_callees,
) -> list[LibraryFunction]:
    """The functions so named and all that they call, each once.

    ``get(name, wait)`` gives None for one that another process is at, unless it is to wait: those come last.
    """
    order = list(_closure(names, callees))
    found = {name: function for name in order if (function := get(name, False)) is not None}
    for name in order:
        if name not in found:
            function = get(name, True)
            assert function is not None  # it has waited
            found[name] = function
    return [found[name] for name in order]


def _closure(names: Iterable[str], callees: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """The functions so named and all that they call, directly or not."""
    found: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = None
            pending += callees(name)
    return found


def add_symbols(unit: Unit, functions: Sequence[LibraryFunction]) -> None:
    """Have a kernel's table begin with what library functions find there: before it is written."""
    for symbol in dict.fromkeys(s for function in functions for s in function.symbols):
        unit.symbol_index(symbol)


def export(unit: Unit, name: str) -> Unit:
    """Make a unit of :func:`~zluda.compiler.services.texture_library` one of that library function.

    All variables of the library come first among its symbols: every function finds them at the same places.
    """
    unit.apart, unit.exported = texture_functions() - {name}, name
    unit.include(name)
    for variable in texture_library().variables:
        unit.symbol_index(variable)
    return unit


def check(unit: Unit) -> None:
    """Raise Error where a library function, now written, depends on the kernel that it is called by."""
    if (
        unit.refusals
        or unit.uses_fibers
        or unit.waits_for_blocks
        or unit.may_exit
        or unit.shared.static_bytes
    ):
        raise Error(f"the library function {unit.exported} cannot be compiled apart")
