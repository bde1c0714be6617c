"""Addresses of functions that the record holds in memory: vtables and tables of function pointers.

An address of code means nothing outside the process that recorded it. PTX says which words of a variable are
initialised with a function's address (PTX ISA 5.4.4), so the record's word there and the replay's name the
same function, and a replay can exchange them wherever they turn up.
"""

from __future__ import annotations

from zluda.tracefile import Allocation, AllocationKind, Trace

_WORD = 8


def recorded_functions(trace: Trace, variable: Allocation) -> dict[int, int]:
    """Byte offset in a module variable → the address of a function that the record first held there."""
    found: dict[int, int] = {}
    for offset in _function_words(trace, variable):
        recorded = _first_word(trace, variable, offset)
        if recorded:
            found[offset] = recorded
    return found


def _function_words(trace: Trace, variable: Allocation) -> list[int]:
    """Offsets of the words that the variable's initialiser fills with addresses of functions."""
    if variable.kind is not AllocationKind.GLOBAL or variable.module is None or variable.size < _WORD:
        return []
    module = next(one for one in trace.module_list if one.id == variable.module)
    text = trace.ptx(module)
    if text is None or b".func" not in text:
        return []
    from zluda.ptx import parse_module  # costs a tenth of a second that most replays need not spend

    parsed = parse_module(text)
    declared = parsed.variables.get(variable.name)
    functions = set(parsed.function_names)
    return [offset for offset, symbol in declared.relocations if symbol.name in functions] if declared else []


def _first_word(trace: Trace, variable: Allocation, offset: int) -> int | None:
    """The first word that the record knows there; None where it never does."""
    for call in sorted(trace.calls_with_pages):
        if call >= variable.born:
            data, known = trace.read_allocation(variable.id, call, offset, _WORD)
            if known is None or all(known):
                return int.from_bytes(data, "little")
    return None
