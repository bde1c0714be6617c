"""The modules in a file, and of each the one image that a device would be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

from zluda.compiler.precompile.sources import chosen_entry
from zluda.errors import PtxError
from zluda.ptx.containers import KIND_ELF, Container, FatbinEntry, fatbin_entries
from zluda.ptx.elf import Buffer, cubin_kernels
from zluda.ptx.search import Piece, Progress, pieces
from zluda.records import dataclass
from zluda.tracefile import LoadedModule, ModuleKind, Trace

_TARGET = b".target"


@dataclass(frozen=True, slots=True)
class Image:
    """One module: where it is, what it was built for, and its PTX, which is read when it is asked for.

    ``digest`` tells PTX apart (None: there is none); ``size`` is that of the PTX as it is stored.
    ``launched``: the kernels that matter (None: all). ``machine_code`` has those without
    PTX, by name; ``problem`` says what is wrong with the container.
    """

    name: str
    offset: int
    architectures: tuple[str, ...]
    ptx: str = ""
    text: Callable[[], bytes] | None = None
    digest: bytes | None = None
    size: int = 0
    launched: frozenset[str] | None = None
    machine_code: frozenset[str] = frozenset()
    problem: str = ""


def images(data: Buffer, name: str, progress: Progress | None = None) -> Iterator[Image]:
    """All modules in a file's bytes, in its order; a damaged container is one with a problem."""
    try:
        found = list(pieces(data, progress))
    except PtxError as error:
        yield Image(name, 0, (), problem=str(error))
        return
    for number, piece in enumerate(found):
        label = f"{name}[{number}]" if len(found) > 1 else name
        if piece.kind is Container.FATBIN:
            yield _of_fatbin(data, piece, label)
        elif piece.kind is Container.CUBIN:
            yield _of_cubin(data, piece, label)
        else:
            yield _of_text(data, piece, label)


def _of_text(data: Buffer, piece: Piece, name: str) -> Image:
    content = bytes(data[piece.start : piece.stop])
    return Image(
        name,
        piece.start,
        (),
        _target(content),
        lambda: content,
        _digest(content),
        len(content),
    )


def _target(text: bytes) -> str:
    """``compute_90a`` of ``.target sm_90a``."""
    at = text.find(_TARGET)
    word = text[at + len(_TARGET) :].split(maxsplit=1)[0].rstrip(b",") if at >= 0 else b""
    return word.decode("ascii", "replace").replace("sm_", "compute_") if word else ""


def _of_cubin(data: Buffer, piece: Piece, name: str) -> Image:
    try:
        kernels = frozenset(cubin_kernels(data[piece.start : piece.stop]))
    except PtxError as error:
        return Image(name, piece.start, (), problem=str(error))
    return Image(name, piece.start, (), machine_code=kernels)


def _of_fatbin(data: Buffer, piece: Piece, name: str) -> Image:
    try:
        entries = list(fatbin_entries(data, piece.start))
        chosen = chosen_entry(entries)
        architectures = tuple(dict.fromkeys(entry.architecture for entry in entries))
        if chosen is None:
            return Image(name, piece.start, architectures, machine_code=_machine_code(entries))
        stored = chosen.stored
    except PtxError as error:
        return Image(name, piece.start, (), problem=str(error))
    return Image(
        name, piece.start, architectures, chosen.architecture, chosen.payload, _digest(stored), len(stored)
    )


def _machine_code(entries: Sequence[FatbinEntry]) -> frozenset[str]:
    """The kernels of the smallest machine code: other architectures' have the same."""
    native = min((one for one in entries if one.kind == KIND_ELF), key=lambda one: one.size, default=None)
    return frozenset() if native is None else frozenset(cubin_kernels(native.payload()))


def _digest(stored: bytes) -> bytes:
    return blake2b(stored, digest_size=16).digest()


def images_of_trace(trace: Trace, name: str) -> Iterator[Image]:
    """The modules of a trace; kernels that were launched count."""
    launched: dict[int | None, set[str]] = {}
    for kernel, number, _, _ in trace.kernels():
        launched.setdefault(number, set()).add(kernel)
    for module in trace.module_list:
        kernels = frozenset(launched.get(module.id, ()))
        yield _of_module(trace, module, f"{name}#{module.id}", kernels)


def _of_module(trace: Trace, module: LoadedModule, name: str, kernels: frozenset[str]) -> Image:
    architectures = tuple(
        dict.fromkeys(
            one.architecture for one in module.images if one.architecture and one.kind is not ModuleKind.OTHER
        )
    )
    text = trace.ptx(module)
    if text is None:
        return Image(name, 0, architectures, launched=kernels, machine_code=kernels)
    return Image(name, 0, architectures, _target(text), lambda: text, _digest(text), len(text), kernels)
