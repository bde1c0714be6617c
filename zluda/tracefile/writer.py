"""Writing a trace. One writer a file; bulk methods take tuples, so that a recorder keeps up with launches."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from zluda.errors import TraceError
from zluda.tracefile import schema
from zluda.tracefile.blobs import BlobStore
from zluda.tracefile.records import (
    PAGE_BYTES,
    AllocationKind,
    Direction,
    Fidelity,
    ModuleKind,
    Parameter,
)

CallRow = tuple[int, int, int | None, int, int, int | None, int | None, bytes]
"""sequence, thread, parent, signature id, start_ns, end_ns, result, arguments (see ``arguments.py``)"""

FinishRow = tuple[int, int, int, bytes]
"""sequence, end_ns, result, arguments"""

LaunchRow = tuple[
    int, int, int, int, int, int, int, int, int, int, int, int, int, bytes, bytes, int | None, str, int
]
"""call, function id, grid x y z, block x y z, cluster x y z, shared_bytes, stream, attributes, parameters,
gpu_time_ns, fidelity, captured: the columns of `launch` in order"""

PAYLOAD_BYTES = 1 << 20


class TraceWriter:
    """Writes one trace file, in WAL mode while it is open and one closed file after :meth:`close`.

    Nothing is visible to readers before :meth:`commit`. Every method raises :class:`TraceError` naming the file
    when the disk or the data refuses.
    """

    def __init__(self, path: str | Path, connection: sqlite3.Connection) -> None:
        """Use :meth:`create` or :meth:`reopen`."""
        self.path = Path(path)
        self._connection = connection
        self._blobs = BlobStore(connection)
        self._signatures: dict[tuple[str, tuple[Parameter, ...]], int] = {}

    @classmethod
    def create(cls, path: str | Path, meta: Mapping[str, Any] | None = None) -> TraceWriter:
        """Start a new file, replacing one that is there. ``meta`` values are anything JSON can hold."""
        raise NotImplementedError

    @classmethod
    def reopen(cls, path: str | Path) -> TraceWriter:
        """Go on writing a file that another writer left, for recovery."""
        raise NotImplementedError

    def set_meta(self, meta: Mapping[str, Any]) -> None:
        """Add or replace entries of `meta`."""
        raise NotImplementedError

    def signature(self, function: str, parameters: Sequence[Parameter]) -> int:
        """The id of a function's signature, written when first asked for."""
        raise NotImplementedError

    def add_calls(self, rows: Iterable[CallRow]) -> None:
        """Insert calls, finished or (``end_ns`` and ``result`` None) still open."""
        raise NotImplementedError

    def finish_calls(self, rows: Iterable[FinishRow]) -> None:
        """Close calls that were inserted open; ``arguments`` replaces the earlier bytes."""
        raise NotImplementedError

    def add_payload(
        self, call: int, parameter: int, direction: Direction, data: bytes, *, offset: int = 0
    ) -> None:
        """Variable-size data of a call's parameter; long data can come in several pieces by ``offset``."""
        raise NotImplementedError

    def add_module(
        self,
        call: int,
        kind: ModuleKind,
        handle: int,
        *,
        origin: str = "",
        image: bytes = b"",
        architecture: str = "",
    ) -> int:
        """A module or library loaded by ``call``; returns its id. ``image`` is what was handed over, if read."""
        raise NotImplementedError

    def add_image(
        self, module: int, kind: ModuleKind, data: bytes, *, architecture: str = "", origin: str = ""
    ) -> None:
        """An image found inside a module: the PTX to replay (the first of kind ptx is it), a cubin."""
        raise NotImplementedError

    def unload_module(self, module: int, call: int) -> None:
        raise NotImplementedError

    def add_function(
        self,
        call: int,
        handle: int,
        name: str,
        *,
        module: int | None,
        layout: Sequence[tuple[int, int]] | None = None,
    ) -> int:
        """A kernel handle first seen at ``call``; returns its id, which launches refer to."""
        raise NotImplementedError

    def set_layout(self, function: int, layout: Sequence[tuple[int, int]]) -> None:
        """The (offset, size) of each parameter, when it becomes known later than the handle."""
        raise NotImplementedError

    def add_launch(
        self,
        call: int,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        *,
        cluster: tuple[int, int, int] = (1, 1, 1),
        shared_bytes: int = 0,
        stream: int = 0,
        attributes: bytes = b"",
        gpu_time_ns: int | None = None,
        fidelity: Fidelity = Fidelity.UNKNOWN,
        captured: bool = False,
    ) -> None:
        """One launch; see :meth:`add_launches` for many."""
        raise NotImplementedError

    def add_launches(self, rows: Iterable[LaunchRow]) -> None:
        raise NotImplementedError

    def set_captured(self, calls: Iterable[int]) -> None:
        """Mark launches whose reachable memory was looked at after they ran."""
        raise NotImplementedError

    def set_gpu_times(self, rows: Iterable[tuple[int, int]]) -> None:
        """(call, nanoseconds) of launches whose GPU time becomes known later."""
        raise NotImplementedError

    def add_allocation(
        self,
        call: int,
        base: int,
        size: int,
        kind: AllocationKind = AllocationKind.DEVICE,
        *,
        name: str = "",
        module: int | None = None,
    ) -> int:
        """Memory made by ``call``; returns its id. A module's variable has its ``name`` and ``module``."""
        raise NotImplementedError

    def close_allocation(self, allocation: int, call: int) -> None:
        """``call`` freed it."""
        raise NotImplementedError

    def add_page(self, call: int, allocation: int, offset: int, data: bytes) -> None:
        """The contents at ``offset`` of an allocation after ``call``; any length, split here at 64 KiB pages."""
        raise NotImplementedError

    def add_gap(self, call: int | None, kind: str, text: str, count: int = 1) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        """Make everything written so far survive the death of this process."""
        raise NotImplementedError

    def close(self) -> None:
        """Commit and fold the WAL into one file. Closing twice is harmless."""
        raise NotImplementedError

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
