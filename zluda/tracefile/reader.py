"""Reading a trace: calls, launches, modules, memory at any call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zluda.tracefile.records import (
    Allocation,
    Call,
    Counts,
    Function,
    Gap,
    Image,
    Launch,
    LoadedModule,
    Page,
    Payload,
    Signature,
)

if TYPE_CHECKING:
    import pandas


def open_trace(path: str | Path) -> Trace:
    """Open a trace for reading. Rings that a killed recorder left beside it are merged into it first.

    Raises :class:`TraceError` where it is missing, foreign, newer, truncated or damaged, naming the place.
    """
    raise NotImplementedError


class Trace:
    """An open trace; a context manager. Every method raises :class:`TraceError` on damaged contents."""

    path: Path
    meta: dict[str, Any]

    def iter_calls(self, start: int = 0, stop: int | None = None) -> Iterator[Call]:
        """Calls with ``start <= sequence < stop`` in order."""
        raise NotImplementedError

    def call(self, sequence: int) -> Call:
        raise NotImplementedError

    def payloads(self, call: int) -> list[Payload]:
        """Variable-size data of a call by parameter and direction, adjoining pieces joined."""
        raise NotImplementedError

    def payload(self, call: int, parameter: str) -> bytes | None:
        """The data of one named parameter from its start, None where it was not captured."""
        raise NotImplementedError

    def iter_launches(self, start: int = 0, stop: int | None = None) -> Iterator[Launch]:
        raise NotImplementedError

    def launch(self, call: int) -> Launch:
        """The launch that call ``call`` made."""
        raise NotImplementedError

    @property
    def signatures(self) -> dict[int, Signature]:
        raise NotImplementedError

    @property
    def module_list(self) -> list[LoadedModule]:
        raise NotImplementedError

    @property
    def functions(self) -> list[Function]:
        raise NotImplementedError

    @property
    def allocations(self) -> list[Allocation]:
        """All generations, by id."""
        raise NotImplementedError

    @property
    def gaps(self) -> list[Gap]:
        raise NotImplementedError

    def counts(self) -> Counts:
        raise NotImplementedError

    def image(self, image: Image) -> bytes:
        """The bytes of a module's image."""
        raise NotImplementedError

    def ptx(self, module: LoadedModule) -> bytes | None:
        """The PTX text of a module, None where it has none."""
        raise NotImplementedError

    def pages(self, call: int) -> list[Page]:
        """What ``call`` changed, in the order written."""
        raise NotImplementedError

    def page_data(self, page: Page) -> bytes:
        raise NotImplementedError

    def live_allocations(self, call: int) -> list[Allocation]:
        """Allocations alive after ``call``, by base address."""
        raise NotImplementedError

    def read_allocation(
        self, allocation: int, call: int, offset: int, size: int
    ) -> tuple[bytes, bytes | None]:
        """As :meth:`read_memory`, by allocation and offset."""
        raise NotImplementedError

    def read_memory(self, call: int, address: int, size: int) -> tuple[bytes, bytes | None]:
        """Memory at ``address`` after ``call`` and which bytes of it are known.

        The second is None when all are known, else a byte a byte: 1 known, 0 not (the first holds 0 there).
        ``call`` -1 is the state before the first call.
        """
        raise NotImplementedError

    def memory_at(self, call: int) -> MemoryAt:
        raise NotImplementedError

    def calls(self, start: int = 0, stop: int | None = None, limit: int | None = None) -> pandas.DataFrame:
        raise NotImplementedError

    def launches(self, start: int = 0, stop: int | None = None, limit: int | None = None) -> pandas.DataFrame:
        raise NotImplementedError

    def modules(self) -> pandas.DataFrame:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MemoryAt:
    """Memory after one call."""

    def __init__(self, trace: Trace, call: int) -> None:
        self.trace, self.call = trace, call

    def read(self, address: int, size: int) -> bytes:
        """Bytes at ``address``; raises :class:`TraceError` where some of them are not known."""
        raise NotImplementedError
