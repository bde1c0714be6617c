"""Machine code that a library made while the program ran (NVRTC, nvJitLink), and the PTX of it.

NVRTC compiles to PTX and assembles that, and tells both; the agent asks it for both after each compilation.
nvJitLink
is given PTX (by numba-cuda, for one), machine code or LTO-IR: where one PTX text alone went in, that is what
a replay translates. Modules are found again by the machine code itself.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from zluda.tracefile import ring
from zluda.tracefile.completed_call import Completed
from zluda.tracefile.links import Linked, PtxOf

# What the agent asks for, in the order of `MADE` in scripts/library_api_tables.py
_NVRTC_PTX, _NVRTC_CUBIN, _NVRTC_LTOIR = range(3)
_LINKED_PTX, _LINKED_CUBIN = range(2)

# nvJitLinkInputType
_CUBIN, _PTX, _LTOIR, _FATBIN, _ANY = 1, 2, 3, 4, 10

_ELF_MAGIC = b"\x7fELF"
_SECTION = struct.Struct("<4xI16xQQ")  # sh_type, sh_offset, sh_size
_NOBITS = 8
_ELF_HEADER = struct.Struct("<32xQQ6xHHHH")  # e_phoff, e_shoff, e_phentsize, e_phnum, e_shentsize, e_shnum
_MOST_MADE = 20_000
"""Programs remembered: one that compiles more loses the oldest."""


@dataclass(slots=True)
class _Made:
    """PTX of some machine code, packed, or why there is none."""

    packed: bytes
    problem: str
    origin: str


@dataclass(slots=True)
class _Link:
    """One nvJitLinkHandle: what went in."""

    ptx: list[bytes] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


class JitLibraries:
    """What NVRTC and nvJitLink made in one process."""

    def __init__(self, ptx_of: PtxOf) -> None:
        self._ptx_of = ptx_of
        self._names: dict[int, str] = {}  # nvrtcProgram → the name that it was given
        self._links: dict[int, _Link] = {}
        self._made: dict[bytes, _Made] = {}  # digest of machine code →
        self.handlers: dict[str, Callable[[Completed], None]] = {
            "nvrtcCreateProgram": self._created,
            "nvrtcCompileProgram": self._compiled,
            "nvJitLinkCreate": self._began,
            "nvJitLinkAddData": self._added_data,
            "nvJitLinkAddFile": self._added_file,
            "nvJitLinkComplete": self._linked,
        }

    def find(self, image: bytes) -> tuple[Linked, str] | None:
        """The PTX of a module's machine code, and where it is from; None where no library here made it."""
        made = self._made.get(_digest(image))
        if made is None:
            return None
        return Linked(zlib.decompress(made.packed) if made.packed else b"", made.problem), made.origin

    # --- NVRTC ----------------------------------------------------------------------------------------

    def _created(self, call: Completed) -> None:
        """``nvrtcCreateProgram (prog, src, name, …)``."""
        self._names[call.output(0)] = call.content(2).rstrip(b"\0").decode("utf-8", "replace")

    def _compiled(self, call: Completed) -> None:
        """``nvrtcCompileProgram (prog, …)``."""
        cubin = call.content(ring.PARAMETER_MADE, _NVRTC_CUBIN)
        ptx = call.content(ring.PARAMETER_MADE, _NVRTC_PTX)
        name = self._names.get(call.words[0]) or "a program without a name"
        self._note(cubin, ptx, "NVRTC told no PTX of it", f"what NVRTC compiled {name} to")

    # --- nvJitLink ------------------------------------------------------------------------------------

    def _began(self, call: Completed) -> None:
        self._links[call.output(0)] = _Link()

    def _added_data(self, call: Completed) -> None:
        """``nvJitLinkAddData (handle, inputType, data, size, name)``."""
        self._add(call, call.content(2))

    def _added_file(self, call: Completed) -> None:
        """``nvJitLinkAddFile (handle, inputType, fileName)``."""
        try:
            with open(call.content(2).rstrip(b"\0").decode("utf-8", "surrogateescape"), "rb") as file:
                self._add(call, file.read())
        except OSError:
            self._add(call, b"")  # gone already: not known

    def _add(self, call: Completed, data: bytes) -> None:
        link = self._links.setdefault(call.words[0], _Link())
        kind = call.words[1] & 0xFFFFFFFF
        if kind == _ANY:
            kind = _CUBIN if data.startswith(_ELF_MAGIC) else _PTX if b".version" in data[:4096] else _FATBIN
        ptx: bytes | None = None
        if kind == _PTX:
            ptx = data.rstrip(b"\0")
        elif kind == _FATBIN:
            ptx = self._ptx_of(data)
        elif kind == _CUBIN and (made := self.find(data)) is not None:
            ptx = made[0].ptx
        if ptx:
            link.ptx.append(ptx)
        else:
            link.others.append({_LTOIR: "LTO-IR", _CUBIN: "machine code"}.get(kind, "a library or object"))

    def _linked(self, call: Completed) -> None:
        """``nvJitLinkComplete (handle)``."""
        link = self._links.get(call.words[0], _Link())
        cubin = call.content(ring.PARAMETER_MADE, _LINKED_CUBIN)
        ptx, problem = call.content(ring.PARAMETER_MADE, _LINKED_PTX), ""
        if not ptx and len(link.ptx) == 1 and not link.others:
            ptx = link.ptx[0]
        elif not ptx:
            inputs = [f"{len(link.ptx)} PTX texts"] if link.ptx else []
            problem = f"nvJitLink made it from {', '.join(inputs + link.others) or 'what is not known'}"
            problem += "; one PTX text alone can be translated"
        self._note(cubin, ptx, problem, "what nvJitLink was given")

    def _note(self, cubin: bytes, ptx: bytes, problem: str, origin: str) -> None:
        if not cubin:
            return
        text = ptx.rstrip(b"\0")
        if len(self._made) >= _MOST_MADE:
            del self._made[next(iter(self._made))]
        packed = zlib.compress(text, 1) if text else b""
        self._made[_digest(cubin)] = _Made(packed, "" if text else problem, origin)


def _digest(image: bytes) -> bytes:
    """Of what an ELF file holds: programs load it with and without the padding behind it."""
    return blake2b(image[: _elf_length(image)], digest_size=16).digest()


def _elf_length(image: bytes) -> int:
    """Up to the end of the last thing in it; all of it where its headers are not whole."""
    if not image.startswith(_ELF_MAGIC) or len(image) < 64:
        return len(image)
    programs, sections, program, program_count, section, section_count = _ELF_HEADER.unpack_from(image)
    end = max(programs + program * program_count, sections + section * section_count)
    for number in range(section_count if section >= 64 and end <= len(image) else 0):
        kind, offset, size = _SECTION.unpack_from(image, sections + section * number)
        end = max(end, 0 if kind == _NOBITS else offset + size)
    return end if 64 <= end <= len(image) else len(image)
