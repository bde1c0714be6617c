"""What a trace holds of somebody's data, read from the file that is about to be sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zluda.errors import Error
from zluda.ptx import parse_module
from zluda.records import dataclass
from zluda.tracefile import Allocation, Direction, Trace, open_trace
from zluda.tracefile.stripping import STRIPPED, Part

_READABLE = re.compile(rb"[\x20-\x7e]{16,}")  # sixteen letters in a row: numbers hardly ever look like that
_MOST_READ = 64 << 20  # bytes of one buffer that are looked through
_STEP = 1 << 20
_MOST_TEXTS, _SHOWN = 200, 60
_MACHINE = ("command", "working_directory", "host", "libcuda", "environment", "system")


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation: its ``size`` in bytes, how many of them are on ``record``, how many of those are not
    zero, and the first letters of text in it (empty for none).
    """

    name: str
    address: int
    size: int
    record: int
    nonzero: int
    text: str

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "name": self.name,
            "address": f"{self.address:#x}",
            "size": self.size,
            "bytes_on_record": self.record,
            "bytes_not_zero": self.nonzero,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Preview:
    """All that names or holds somebody's: ``machine`` is what the recorder noted of the machine, ``texts``
    what calls were given, ``sources`` the files that the PTX was made from, ``modules`` where code came from.
    """

    file_bytes: int
    stripped: tuple[str, ...]
    kernels: tuple[tuple[str, int], ...]
    buffers: tuple[Buffer, ...]
    machine: dict[str, str]
    texts: tuple[str, ...]
    sources: tuple[str, ...]
    modules: tuple[str, ...]

    @property
    def redacted(self) -> bool:
        """Whether there are digests in place of contents."""
        return Part.CONTENTS.value in self.stripped

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "file_bytes": self.file_bytes,
            "stripped": list(self.stripped),
            "kernels": {name: launches for name, launches in self.kernels},
            "buffers": [one.as_dict() for one in self.buffers],
            "machine": self.machine,
            "texts": list(self.texts),
            "sources": list(self.sources),
            "modules": list(self.modules),
        }


def preview(path: Path) -> Preview:
    """Read a trace through; raises TraceError where it cannot be."""
    with open_trace(path) as trace:
        stripped = tuple(trace.meta.get(STRIPPED, ()))
        redacted = Part.CONTENTS.value in stripped
        return Preview(
            path.stat().st_size,
            stripped,
            tuple((name, launches) for name, _, launches, _ in trace.kernels()),
            tuple(_buffer(trace, one, redacted=redacted) for one in trace.allocations),
            {key: _text(trace.meta[key]) for key in _MACHINE if trace.meta.get(key)},
            () if redacted else tuple(dict.fromkeys(_texts(trace))),
            tuple(dict.fromkeys(_sources(trace))),
            tuple(dict.fromkeys(one.origin for one in trace.module_list if one.origin)),
        )


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={one}" for name, one in value.items())
    return str(value)


def _buffer(trace: Trace, one: Allocation, *, redacted: bool) -> Buffer:
    """Contents are looked at as they were last."""
    record = nonzero = 0
    text = ""
    for content in () if redacted else _contents(trace, one):
        record += len(content)
        nonzero += len(content) - content.count(0)
        found = None if text else _READABLE.search(content)
        text = found.group().decode("ascii")[:_SHOWN] if found else text
    return Buffer(one.name or one.kind.value, one.base, one.size, record, nonzero, text)


def _contents(trace: Trace, one: Allocation) -> Iterator[bytes]:
    last = max(trace.calls_with_pages, default=-1)
    for start in range(0, min(one.size, _MOST_READ), _STEP):
        size = min(_STEP, one.size - start)
        data, mask = trace.read_allocation(one.id, last, start, size)
        present = bytes(data) if mask is None else bytes(_kept(data, mask))
        if present:
            yield present


def _kept(data: bytes, mask: bytes) -> bytes:
    """The bytes that are on record."""
    import numpy as np

    kept: bytes = np.frombuffer(data, np.uint8)[np.frombuffer(mask, np.uint8) != 0].tobytes()
    return kept


def _texts(trace: Trace) -> Iterator[str]:
    """What calls were given as text: names of kernels and variables, of files, options of compilers."""
    count = 0
    of_text = {
        number
        for number, signature in trace.signatures.items()
        if any("char" in one.type and "unsigned char" not in one.type for one in signature.parameters)
    }
    if not of_text:
        return
    names = {trace.signatures[number].function: trace.signatures[number] for number in of_text}
    for call in trace.iter_calls():
        signature = names.get(call.function)
        if signature is None:
            continue
        for payload in trace.payloads(call.sequence):
            of = signature.parameters[payload.parameter]
            if payload.direction is Direction.IN and "char" in of.type and payload.data:
                yield payload.data.rstrip(b"\0").decode("utf-8", "replace")
                count += 1
                if count >= _MOST_TEXTS:
                    return


def _sources(trace: Trace) -> Iterator[str]:
    """Files that PTX was compiled from, where it says so (``-lineinfo``)."""
    for module in trace.module_list:
        text = trace.ptx(module)
        if text is None:
            continue
        try:
            yield from parse_module(text).files.values()
        except Error:
            continue  # what is no PTX names no files that we could tell
