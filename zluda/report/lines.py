"""A kernel's PTX beside the AMD instructions and the LLVM IR that it becomes, as the page shows them."""

from __future__ import annotations

from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A line of PTX (1-based ``number`` in the module's text) and what it becomes."""

    number: int
    ptx: str
    ir: tuple[str, ...] = ()
    amd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """One kernel, compiled for ``target``; or ``missing``, why there is nothing to show.

    ``guilty`` is the line of the first instruction that differs, 0 where nobody looked or none was found;
    ``found`` says what differs there, or why nothing is marked. ``left_out`` lines of the kernel are not
    shown.
    """

    kernel: str
    target: str
    lines: tuple[Line, ...] = ()
    guilty: int = 0
    found: str = ""
    left_out: int = 0
    missing: str = ""
