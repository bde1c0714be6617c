"""Calls of CUDA's libraries on record: they stand one level above the driver's, with the driver calls inside
them.

A driver call's ``parent`` is the library call inside which it was made; unlike one that the driver made
inside a call of its own, the program's library made it, so it is part of what is replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zluda.tracefile.reader import Trace
    from zluda.tracefile.records import Call

# How the names of a library's functions begin; the longer of two first.
_PREFIXES = {
    "cublasLt": "cuBLASLt",
    "cublas": "cuBLAS",
    "cufft": "cuFFT",
    "curand": "cuRAND",
    "cusparse": "cuSPARSE",
    "cusolver": "cuSOLVER",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "nvrtc": "NVRTC",
    "nvJitLink": "nvJitLink",
}
# The driver's own, for debuggers too; NVTX; and calls that stand for others (STATE_CALL in subset.py).
_NO_LIBRARY = re.compile(r"cu[A-Z]|cudbg|nvtx|zluda_")


@cache
def library_of(function: str) -> str | None:
    """The library that a recorded function is of; None for the driver's own.

    Of one that a later recorder knows and this reader does not, some name: its calls are read all the same.
    """
    known = next((name for prefix, name in _PREFIXES.items() if function.startswith(prefix)), None)
    return known or (None if _NO_LIBRARY.match(function) else "another library")


class LibraryCalls:
    """Which calls of a trace are of libraries, and which were made inside one."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._any = any(library_of(one.function) for one in trace.signatures.values())
        self._last: tuple[int, Call | None] = (-1, None)  # neighbours have the same parent

    def inside(self, call: Call) -> Call | None:
        """The library call that made this driver call; None where the program or the driver did."""
        if not self._any or call.parent is None or not 0 <= call.parent < call.sequence:
            return None
        if self._last[0] != call.parent:
            parent = self._trace.call(call.parent)
            self._last = (call.parent, parent if library_of(parent.function) else None)
        return self._last[1]

    def outermost(self, call: Call) -> Call | None:
        """The library call that the program made, inside which this one was: libraries call one another."""
        found = None
        while (around := self.inside(call)) is not None:
            found = call = around
        return found


def launches_inside(trace: Trace) -> Iterator[tuple[str, int, int | None]]:
    """(function that the program called, launches inside, their GPU time in nanoseconds, None where not
    known) of each library function, in one query.
    """
    functions = {number: one.function for number, one in trace.signatures.items() if library_of(one.function)}
    if functions:
        for number, launches, time_ns in trace.launches_below(list(functions)):
            yield functions[number], launches, time_ns
