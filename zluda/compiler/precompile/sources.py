"""The PTX modules in traces, executables, libraries, fatbins, PTX files and directories of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from zluda.errors import Error, PtxError
from zluda.ptx.containers import (
    Container,
    PtxImage,
    best_ptx,
    fatbins_in_elf,
    identify,
    ptx_from,
)
from zluda.ptx.parse import decode
from zluda.ptx.source import blank_comments
from zluda.records import dataclass
from zluda.tracefile import Trace, open_trace

COMPUTE_CAPABILITY = 90
"""What the translating devices say they are (``device/cpu/attributes.py``): it decides between images."""

_SQLITE = b"SQLite format 3\0"
_HEAD = 1 << 16  # bytes that tell what a file is: PTX may begin with a long comment
_DIM3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A module: its ``name`` for people, its text, and the block shapes each launched kernel was given.

    ``launched`` None: not known. ``problem`` says why there is no text.
    """

    name: str
    text: str = ""
    launched: Mapping[str, tuple[_DIM3, ...]] | None = field(default=None)
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
        if not named and not _promising(head):
            return
        found = list(_modules(path.read_bytes()))
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
        yield Source(f"{path}[{number}]" if len(found) > 1 else str(path), image.text)
    if not found and _holds_device_code(head, path):
        yield Source(str(path), problem="machine code only: there is no PTX")
    elif not found and named:
        yield Source(str(path), problem="holds no PTX")


def _promising(head: bytes) -> bool:
    """Whether a file of a directory is to be looked into: sources of CUDA C++ can hold PTX's words, too."""
    kind = identify(head)
    if kind is Container.PTX:
        return blank_comments(decode(head)).lstrip().startswith(".version")
    return kind in (Container.FATBIN, Container.CUBIN, Container.ELF)


def _holds_device_code(head: bytes, path: Path) -> bool:
    """Whether a file without PTX is CUDA's all the same: a fatbin, a cubin, or an executable with one."""
    kind = identify(head)
    if kind is Container.ELF:
        return any(True for _ in fatbins_in_elf(path.read_bytes()))
    return kind in (Container.FATBIN, Container.CUBIN)


def _modules(data: bytes) -> Iterator[PtxImage]:
    """The image a device would choose of each module in ``data``."""
    parts = list(fatbins_in_elf(data)) if identify(data) is Container.ELF else [data]
    for part in parts:
        best = best_ptx(part, COMPUTE_CAPABILITY) or min(ptx_from(part), key=lambda i: i.arch, default=None)
        if best is not None:
            yield best


def _trace(trace: Trace, path: Path) -> Iterator[Source]:
    launched: dict[int | None, dict[str, dict[_DIM3, None]]] = {}
    for launch in trace.iter_launches():
        launched.setdefault(launch.module, {}).setdefault(launch.kernel, {})[launch.block] = None
    for module in trace.module_list:
        kernels = {name: tuple(blocks) for name, blocks in launched.get(module.id, {}).items()}
        text = trace.ptx(module)
        name = f"{path}#{module.id}"
        if text is not None:
            yield Source(name, text.decode(errors="replace"), kernels)
        elif kernels:
            yield Source(name, launched=kernels, problem="machine code only: there is no PTX")
