"""Running an instrumented launch, and reading back what it logged."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from zluda.errors import LaunchError
from zluda.isolate.alone import Outcome, Part, Setting, Stage
from zluda.isolate.values.instrument import (
    ASK,
    EVENT_BYTES,
    HEAD_BYTES,
    HEADS_BYTES,
    LANES,
    LOG_BYTES,
    WINDOW,
    WRITE_BYTES,
    WRITES,
    WRITES_BYTES,
    WRITES_HEAD_BYTES,
    Ask,
    Watch,
    log_values,
    log_writes,
)
from zluda.isolate.values.sites import Site, Store, store_sites, value_sites
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Lane:
    """What one thread did: ``events`` are (site, bits) from its event ``first`` on, ``total`` how many there
    were in all, ``digest`` one of those up to the window's end.
    """

    first: int
    events: tuple[tuple[int, int], ...]
    total: int
    digest: int


@dataclass(frozen=True, slots=True)
class Write:
    """One element written to a watched range: by which store, block and thread (linear numbers), what."""

    store: int
    block: int
    thread: int
    bits: int


class Probe:
    """One launch on one device, looked into. Each kind of look compiles its text when first asked for."""

    def __init__(self, stage: Stage, part: Part, setting: Setting | None = None) -> None:
        self.stage, self.part, self._setting = stage, part, setting or Setting()
        self.sites: dict[int, Site] = {one.number: one for one in value_sites(part.functions)}
        self.stores: dict[int, Store] = {one.number: one for one in store_sites(part.functions)}
        self._texts: dict[str, str] = {}

    def plain(self) -> Outcome:
        """The launch as it is. Raises LaunchError where it ends in a failure."""
        return self._run(self.part.text(), {})

    def values(self, block: int, thread: int, first: int = 0) -> tuple[list[Lane], Outcome]:
        """What the 32 threads from ``thread`` on of ``block`` computed, their events from ``first`` on."""
        log = self._cleared("values", LOG_BYTES, HEADS_BYTES)
        if "values" not in self._texts:
            self._texts["values"] = log_values(self.part, self.sites.values())
        outcome = self._run(self._texts["values"], {ASK: Ask(log, block, thread, first).to_bytes()})
        return list(_lanes(self.stage.read(log, LOG_BYTES), first)), outcome

    def writes(self, start: int, stop: int, *, shared: bool = False, block: int = 0) -> list[Write]:
        """Who wrote to the bytes from ``start`` to ``stop``, in the order in which it happened on this
        device.

        They are global addresses, or ``shared`` ones of a block. No more are known than the first 16,384.
        """
        log = self._cleared("writes", WRITES_BYTES, WRITES_HEAD_BYTES)
        if "writes" not in self._texts:
            self._texts["writes"] = log_writes(self.part, self.stores.values())
        self._run(
            self._texts["writes"], {ASK: Watch(log, start, stop, shared=shared, block=block).to_bytes()}
        )
        count = min(int.from_bytes(self.stage.read(log, 4), "little"), WRITES)
        data = self.stage.read(log + WRITES_HEAD_BYTES, count * WRITE_BYTES)
        return [Write(*row) for row in struct.iter_unpack("<4Q", data)]

    def _cleared(self, name: str, size: int, head: int) -> int:
        address = self.stage.scratch(name, size)
        self.stage.write(address, bytes(head))
        return address

    def _run(self, text: str, asks: dict[str, bytes]) -> Outcome:
        setting = self._setting
        outcome = self.stage.run(text, Setting(setting.grid, setting.block, setting.memory, asks))
        if outcome.failure is not None:
            reason = f"on {self.stage.name}: {outcome.failure.reason}"
            raise LaunchError(reason, kernel=self.part.kernel)
        return outcome


def _lanes(data: bytes, first: int) -> Iterator[Lane]:
    for lane in range(LANES):
        total, digest = struct.unpack_from("<QQ", data, lane * HEAD_BYTES)
        count = max(min(total - first, WINDOW), 0)
        start = HEADS_BYTES + lane * WINDOW * EVENT_BYTES
        rows = struct.iter_unpack("<QQ", data[start : start + count * EVENT_BYTES])
        yield Lane(first, tuple((site, bits) for site, bits in rows), total, digest)
