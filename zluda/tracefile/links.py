"""What the driver's linker was given (``cuLinkAddData``, ``cuLinkAddFile``), for the modules that came of it.

``cuLinkComplete`` hands out machine code without its PTX. Where one PTX text went in, that is what the GPU's
code was compiled from, and what a replay translates; several would have to be linked first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from zluda.tracefile.completed_call import Completed

# CUjitInputType
_PTX, _FAT_BINARY = 1, 2

_TARGET = re.compile(rb"^\s*\.target\s+(sm_\w+)", re.MULTILINE)

PtxOf = Callable[[bytes], bytes | None]
"""A fat binary → the PTX in it, if any."""


@dataclass(slots=True)
class _Link:
    """One CUlinkState, and what it made: ``size`` bytes at ``address``."""

    ptx: list[bytes] = field(default_factory=list)
    address: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Linked:
    """Where a module came from: its one PTX text; else ``problem`` says why there is none."""

    ptx: bytes = b""
    problem: str = ""

    @property
    def architecture(self) -> str:
        """What the text's ``.target`` names."""
        found = _TARGET.search(self.ptx)
        return found[1].decode() if found else ""


class Links:
    """The links of one process."""

    def __init__(self, ptx_of: PtxOf) -> None:
        self._ptx_of = ptx_of
        self._open: dict[int, _Link] = {}  # by CUlinkState
        self._done: list[_Link] = []

    def added_data(self, call: Completed) -> None:
        """``cuLinkAddData (state, type, data, size, …)``."""
        self._add(call, call.content(2))

    def added_file(self, call: Completed) -> None:
        """``cuLinkAddFile (state, type, path, …)``."""
        if call.words[1] & 0xFFFFFFFF not in (_PTX, _FAT_BINARY):
            return
        try:
            with open(call.content(2).decode("utf-8", "surrogateescape"), "rb") as file:
                self._add(call, file.read())
        except OSError:
            self._add(call, b"")  # gone already: a text that is not known

    def completed(self, call: Completed) -> None:
        """``cuLinkComplete (state, cubin, size)``."""
        link = self._open.pop(call.words[0], None)
        if link is not None:
            link.address, link.size = call.output(1), call.output(2)
            self._done.append(link)

    def find(self, address: int, image: bytes) -> Linked | None:
        """What a module was linked from that is loaded from ``address``; None where it was not linked here.

        Programs load the linker's own copy, or theirs of it, which is told by its size where one link alone
        has that.
        """
        same = [link for link in self._done if link.address == address and link.size >= len(image)]
        same = same[-1:] or [link for link in self._done if link.size == len(image)]
        if len(same) != 1 or not same[0].ptx:
            return None
        texts = same[0].ptx
        if len(texts) != 1:
            return Linked(problem=f"linked from {len(texts)} PTX texts; one alone can be translated")
        return (
            Linked(texts[0]) if texts[0] else Linked(problem="the PTX it was linked from could not be read")
        )

    def _add(self, call: Completed, data: bytes) -> None:
        link = self._open.setdefault(call.words[0], _Link())
        kind = call.words[1] & 0xFFFFFFFF
        if kind == _PTX:
            link.ptx.append(data.rstrip(b"\0"))
        elif kind == _FAT_BINARY:
            ptx = self._ptx_of(data)
            if ptx is not None:
                link.ptx.append(ptx)
