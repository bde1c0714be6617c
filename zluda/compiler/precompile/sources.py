"""The PTX modules in traces, executables, libraries, fatbins, PTX files and directories of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from zluda.compiler.target import APART, Dim3, Together
from zluda.errors import Error, PtxError
from zluda.ptx.containers import KIND_PTX, Container, FatbinEntry, best_entry, fatbin_entries, identify
from zluda.ptx.elf import Buffer
from zluda.ptx.parse import decode
from zluda.ptx.search import mapped, pieces
from zluda.ptx.source import blank_comments
from zluda.records import dataclass
from zluda.tracefile import Launch, Trace, open_trace

COMPUTE_CAPABILITY = 90
"""What the translating devices say they are (``device/cpu/attributes.py``): it decides between images."""

_SQLITE = b"SQLite format 3\0"
_HEAD = 1 << 16  # bytes that tell what a file is: PTX may begin with a long comment
_ATTRIBUTE = struct.Struct("<I4x3I52x")  # CUlaunchAttribute (cuda.h): id, the beginning of its value
_CLUSTER_DIMENSION, _COOPERATIVE = 4, 2  # CUlaunchAttributeID


class Shape(NamedTuple):
    """What code is compiled for: a block's shape, and how blocks are launched where that is known."""

    block: Dim3
    together: Together = APART


@dataclass(frozen=True, slots=True)
class Source:
    """A module: its ``name`` for people, its text, and the shapes in which each kernel was launched.

    ``launched`` None: not known. ``problem`` says why there is no text.
    """

    name: str
    text: str = ""
    launched: Mapping[str, tuple[Shape, ...]] | None = field(default=None)
    problem: str = ""


def sources(path: Path) -> Iterator[Source]:
    """All modules in a file or below a directory.

    What cannot be read, and device code without PTX, is a source with a problem; a directory's other files
    are passed over.
    """
    if not path.is_dir():
        yield from _file(path, named=True)
        return
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        yield from _file(file, named=False)


def _file(path: Path, *, named: bool) -> Iterator[Source]:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head.startswith(_SQLITE):
            with open_trace(path) as trace:
                yield from _trace(trace, path)
            return
        if not named and not is_promising(head):
            return
        with path.open("rb") as file, mapped(file) as data:
            found = list(_modules(data))
            native = not found and _holds_device_code(data)
    except OSError as error:
        yield Source(str(path), problem=error.strerror or str(error))
        return
    except PtxError as error:
        yield Source(str(path), problem=str(error.in_file(str(path))))
        return
    except Error as error:
        yield Source(str(path), problem=str(error))
        return
    for number, image in enumerate(found):
        yield Source(f"{path}[{number}]" if len(found) > 1 else str(path), image)
    if native:
        yield Source(str(path), problem="machine code only: there is no PTX")
    elif not found and named:
        yield Source(str(path), problem="holds no PTX")


def is_promising(head: bytes) -> bool:
    """Whether a file of a directory is to be looked into: sources of CUDA C++ can hold PTX's words, too."""
    kind = identify(head)
    if kind is Container.PTX:
        return blank_comments(decode(head)).lstrip().startswith(".version")
    return kind in (Container.FATBIN, Container.CUBIN, Container.ELF)


def _holds_device_code(data: Buffer) -> bool:
    """Whether a file without PTX is CUDA's all the same: a fatbin, a cubin, or an executable with one."""
    return any(True for _ in pieces(data))


def _modules(data: Buffer) -> Iterator[str]:
    """The text that a device would choose of each module in ``data``."""
    for piece in pieces(data):
        if piece.kind is Container.PTX:
            yield decode(bytes(data[piece.start : piece.stop]))
        elif piece.kind is Container.FATBIN:
            chosen = chosen_entry(fatbin_entries(data, piece.start))
            if chosen is not None:
                yield decode(chosen.payload())


def chosen_entry(entries: Iterable[FatbinEntry]) -> FatbinEntry | None:
    """The PTX of a fatbin that translating devices take: as a driver would, else the oldest there is."""
    found = [entry for entry in entries if entry.kind == KIND_PTX]
    return best_entry(found, COMPUTE_CAPABILITY) or min(found, key=lambda one: one.arch, default=None)


def _trace(trace: Trace, path: Path) -> Iterator[Source]:
    launched: dict[int | None, dict[str, dict[Shape, None]]] = {}
    for launch in trace.iter_launches():
        shape = Shape(launch.block, _together(trace, launch))
        launched.setdefault(launch.module, {}).setdefault(launch.kernel, {})[shape] = None
    for module in trace.module_list:
        kernels = {name: tuple(shapes) for name, shapes in launched.get(module.id, {}).items()}
        text = trace.ptx(module)
        name = f"{path}#{module.id}"
        if text is not None:
            yield Source(name, text.decode(errors="replace"), kernels)
        elif kernels:
            yield Source(name, launched=kernels, problem="machine code only: there is no PTX")


def _together(trace: Trace, launch: Launch) -> Together:
    """What a launch says of blocks that run together: by attribute, or by the name of its entry."""
    cluster, cooperative = None, "Cooperative" in trace.call(launch.call).function
    for at in range(0, len(launch.attributes) - _ATTRIBUTE.size + 1, _ATTRIBUTE.size):
        attribute, x, y, z = _ATTRIBUTE.unpack_from(launch.attributes, at)
        if attribute == _CLUSTER_DIMENSION and (x, y, z) != (0, 0, 0):
            cluster = (x, y, z)
        elif attribute == _COOPERATIVE:
            cooperative = x != 0
    return Together(cluster, cooperative)
