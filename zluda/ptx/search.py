"""Where device code lies in a file of any size and kind: fatbins in their sections and anywhere else, and
PTX as text among other data.

The file is mapped, looked at in steps, and what was looked at is given back, so that a library of a gigabyte
takes no more memory than its largest module.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from zluda.errors import PtxError
from zluda.ptx.containers import (
    FATBIN_MAGIC,
    KIND_ELF,
    KIND_LTO,
    KIND_PTX,
    Container,
    fatbin_entries,
    fatbin_sections,
    fatbin_size,
    fatbin_spans,
    identify,
)
from zluda.ptx.elf import Buffer
from zluda.records import dataclass

_STEP = 1 << 26  # bytes that are looked through before they are given back
_MAGIC = struct.pack(
    "<IHH", FATBIN_MAGIC, 1, 16
)  # version 1, a header of 16 bytes: all that CUDA 5 to 13 wrote
_VERSION = re.compile(rb"\.version[ \t]+\d+\.\d+\s[^\0]{0,512}?\.target[ \t]+\w+")
_KINDS = (KIND_PTX, KIND_ELF, KIND_LTO)
_PROLOGUE = 1 << 12  # bytes of comments before ``.version``
_LONGEST = 1 << 28  # of PTX as text

Progress = Callable[[int, int], None]
"""Called with (bytes looked at, bytes in all)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A fatbin, a cubin or a PTX text, and the bytes of the file that it is: [start, stop)."""

    kind: Container
    start: int
    stop: int


@contextmanager
def mapped(file: IO[bytes]) -> Iterator[Buffer]:
    """An open file's bytes, mapped; an empty one's are ``b""``."""
    if not file.seek(0, 2):
        yield b""
        return
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def give_back(data: Buffer, start: int, stop: int) -> None:
    """Have a mapping's pages dropped from memory; they are read again should they be looked at again."""
    if isinstance(data, mmap.mmap):
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, first, stop - first)


def pieces(data: Buffer, progress: Progress | None = None) -> Iterator[Piece]:
    """All device code in a file, in the order of the file: once each, whatever holds it.

    Raises :class:`PtxError` where a section of fatbins, or an ELF file's section table, is damaged. What
    merely looks like device code elsewhere, and is none, is passed over.
    """
    kind = identify(data)
    if kind in (Container.PTX, Container.CUBIN):
        yield Piece(kind, 0, len(data))
        return
    if kind is Container.FATBIN:
        yield Piece(kind, 0, fatbin_size(data))
        return
    sections = fatbin_sections(data) if kind is Container.ELF else []
    at = 0
    for start, stop in [*sorted(sections), (len(data), len(data))]:
        yield from _anywhere(data, at, start, progress)
        for first, last in fatbin_spans(data, start, stop):
            yield Piece(Container.FATBIN, first, last)
            _looked(data, first, last, progress)
        at = max(at, stop)


def _anywhere(data: Buffer, start: int, stop: int, progress: Progress | None) -> Iterator[Piece]:
    """Device code in what is nobody's section: of programs that carry it as data."""
    at = start
    while at < stop:
        end = min(at + _STEP, stop)
        found = [*_fatbins(data, at, end, stop), *_texts(data, at, end, stop)]
        free = at  # a fatbin's own PTX, where it is not compressed, is no piece of its own
        for piece in sorted(found, key=lambda one: one.start):
            if piece.start >= free:
                yield piece
                free = piece.stop
        reached = max(end, free)
        _looked(data, at, reached, progress)
        at = reached


def _looked(data: Buffer, start: int, stop: int, progress: Progress | None) -> None:
    give_back(data, start, stop)
    if progress is not None:
        progress(stop, len(data))


def _fatbins(data: Buffer, start: int, end: int, stop: int) -> Iterator[Piece]:
    """Fatbins that begin in [start, end) and lie in [start, stop)."""
    at = data.find(_MAGIC, start, min(end + len(_MAGIC) - 1, stop))
    while at >= 0:
        size = fatbin_size(data, at)
        if at + size <= stop and _is_fatbin(data, at):
            yield Piece(Container.FATBIN, at, at + size)
            at += size
        else:
            at += len(_MAGIC)
        at = data.find(_MAGIC, at, min(end + len(_MAGIC) - 1, stop)) if at < end else -1


def _is_fatbin(data: Buffer, at: int) -> bool:
    try:
        first = next(fatbin_entries(data, at), None)
    except PtxError:
        return False
    return first is not None and first.kind in _KINDS


def _texts(data: Buffer, start: int, end: int, stop: int) -> Iterator[Piece]:
    """PTX texts whose ``.version`` stands in [start, end), each up to its zero byte."""
    at = data.find(b".version", start, min(end + 7, stop))
    while at >= 0:
        match = _VERSION.match(data, at, stop)
        last = at + 8
        if match is not None:
            zero = data.find(b"\0", match.end(), min(match.end() + _LONGEST, stop))
            last = zero if zero >= 0 else stop
            if data.find(b".entry", match.end(), last) >= 0 or data.find(b".func", match.end(), last) >= 0:
                yield Piece(Container.PTX, _beginning(data, at, start), last)
        at = data.find(b".version", last, min(end + 7, stop)) if last < end else -1


def _beginning(data: Buffer, at: int, start: int) -> int:
    """Where the comments begin that stand before ``.version``."""
    low = max(start, at - _PROLOGUE)
    before = bytes(data[low:at])
    text = before[before.rfind(b"\0") + 1 :]
    comment = text.find(b"//")
    return at - len(text) + comment if comment >= 0 and text.isascii() else at
