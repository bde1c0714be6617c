"""Draining: records out of the rings, rows into the trace.

One pass (:meth:`Drain.step`) reads the clock, then every ring's head, and takes what is stamped before that
moment; sorts it by time over all rings; turns it into rows; commits them together with the new tails; and
only then gives the slots back. So a record is in the trace or in its ring, never in neither, and after a
kill the noted tails say which is which.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import time
from dataclasses import field
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from zluda.records import dataclass
from zluda.tracefile import ring
from zluda.tracefile.arguments import squeeze
from zluda.tracefile.completed_call import Completed, Data
from zluda.tracefile.effects import Effects, ImageReader
from zluda.tracefile.fast_launches import HANDLE_CALLS, FastLaunches
from zluda.tracefile.gpu_times import Moment
from zluda.tracefile.graphs import CONDITIONAL
from zluda.tracefile.recorded_memory import ENDS
from zluda.tracefile.records import Direction, Parameter
from zluda.tracefile.ring_reader import Batch, Record, Ring, open_rings
from zluda.tracefile.schema import CONDITIONAL_NODES, SQUEEZED
from zluda.tracefile.writer import CallRow, FinishRow, TraceWriter

TAILS_KEY = "ring_tails"
"""The `meta` entry that holds, while recording, two slots of each ring: up to the first it has been given
back, up to the second it has been read. In between lie the records of a call that is still under way.
"""
FUNCTIONS_FILE = "functions.json"
META_FILE = "meta.json"
"""What the trace's `meta` begins with, for a recorder that is killed before it has made the trace."""
OPTIONS_FILE = "options.json"
"""``budget``: the bytes after which contents are not recorded; ``redact``: digests in their place;
``assembled``: the directory of what children of the program made of which PTX.
"""
SPILL_BYTES = 64 << 20
"""Data of one open call beyond this waits in a temporary file."""
FOREVER = (1 << 63) - 1
FIRST_PASS_SLOTS, PASS_SLOTS = 1 << 10, 1 << 16
"""The most slots one pass takes from a ring, at first and later: 8 MiB are some 20,000 launches.

Passes grow while nothing but known launches comes: one that gives out kernel handles goes the long way whole.
"""

_DATA_HEADER = struct.Struct("<QQ")
_DEVICE = struct.Struct("<QQQ")
_NEEDED_AGAIN = (ring.ENTER, ring.DATA, ring.ARRAY, ring.RANGE, ring.CAPTURED)
"""Of a call that an earlier drain left open: what it keeps in memory until the call returns."""
_PAGES = (ring.PAGE, ring.LATE_PAGE)
_TIME = struct.Struct("<QqQ")
_CLOCK = struct.Struct("<qQ")


@dataclass(slots=True)
class _Signature:
    """How one function's records are put together."""

    row: dict[str, Any]
    id: int
    words: int  # bytes of argument words
    pieces: list[tuple[int, bool, bool]]  # (size, before, after) of each parameter
    inputs: int  # bytes of `in` pieces in ENTER
    plain: bool  # no pieces and nothing that follows from the call
    life: str  # the special kind, of calls that begin and end allocations
    size: int  # bytes of words and pieces
    unkept: int  # where the word is that is an address of no use to a trace, kernelParams; 0: there is none

    def kept(self, arguments: bytes) -> bytes:
        """What the trace has of a call's arguments."""
        if self.unkept:
            arguments = arguments[: self.unkept] + bytes(8) + arguments[self.unkept + 8 :]
        return squeeze(arguments.ljust(self.size, b"\0"))


@dataclass(slots=True)
class _Open:
    """A call that has been entered."""

    signature: _Signature
    thread: int
    parent: int | None
    start_ns: int
    body: bytes
    data: list[Data] = field(default_factory=list)
    data_bytes: int = 0
    spill: IO[bytes] | None = None
    written: bool = False  # its row stands in the trace, open

    def add_data(self, function: int, body: bytes) -> None:
        """A DATA record; what is large waits for the call's end in a file, not in memory."""
        _, offset = _DATA_HEADER.unpack_from(body)
        content: bytes | tuple[IO[bytes], int, int] = body[ring.DATA_HEADER_BYTES :]
        self.data_bytes += len(body)
        if self.data_bytes > SPILL_BYTES:
            self.spill = self.spill or tempfile.TemporaryFile()  # noqa: SIM115 - closed with its last reader
            content = (self.spill, self.spill.seek(0, os.SEEK_END), len(content))
            self.spill.write(body[ring.DATA_HEADER_BYTES :])
        self.data.append(Data(function & 0xFF, function >> 8 & 0xFF, function >> 16, offset, content))


def read_options(directory: Path) -> dict[str, Any]:
    """What is in :data:`OPTIONS_FILE`, which need not be there."""
    try:
        return dict(json.loads((directory / OPTIONS_FILE).read_text()))
    except FileNotFoundError:
        return {}


class Drain:
    """Moves records from the rings in ``directory`` to ``writer``."""

    def __init__(
        self,
        directory: Path,
        writer: TraceWriter,
        *,
        read_module: ImageReader | None = None,
        tails: dict[str, tuple[int, int]] | None = None,
    ) -> None:
        """``tails`` is what an earlier drain noted (:data:`TAILS_KEY`), for recovery."""
        self.directory, self.writer = directory, writer
        self.effects = Effects(writer, read_module, self._answer)
        self.options = read_options(directory)
        writer.redacts = bool(self.options.get("redact"))
        writer.set_meta({"requires": [SQUEEZED]})
        self.functions: list[dict[str, Any]] = json.loads((directory / FUNCTIONS_FILE).read_text())
        self.devices: list[dict[str, Any]] = []
        self.libraries: list[dict[str, Any]] = []
        self.problems: list[str] = []
        """What could not be done in the program, for who started the recording."""
        self.driver_version = 0
        self.calls = 0
        self.launches = 0
        self._tails = tails or {}
        self._rings: dict[Path, Ring] = {}
        self._signatures: list[_Signature | None] = [None] * len(self.functions)
        self._signature_ids: dict[int, int] = {}  # index of a function → its signature
        self._fast = FastLaunches(self.functions)
        self._pass_slots = FIRST_PASS_SLOTS
        self.open: dict[int, _Open] = {}
        self._page_data: dict[int, bytes] = {}  # of the PAGE records at hand, by their bodies' identity
        self._rows: list[CallRow] = []
        self._captured: list[int] = []  # launches that are known to have been looked at
        self._finished: list[FinishRow] = []
        self._orphans: dict[int, bytes] = {}
        self._left_open: frozenset[int] = frozenset()

    def take_over(self, left_open: dict[int, bytes]) -> None:
        """The calls, with their arguments, that an earlier drain left open in the trace, for recovery."""
        self._orphans, self._left_open = dict(left_open), frozenset(left_open)

    def step(self, horizon_ns: int | None = None) -> int:
        """One pass; returns how many records it moved. Raises TraceError for a ring that is damaged."""
        horizon = time.monotonic_ns() if horizon_ns is None else horizon_ns
        for found in open_rings(self.directory, self._rings):
            kept_from, found.read_before = self._tails.get(found.path.name, (0, 0))
            found.tail = max(found.tail, kept_from)
        for one in self._rings.values():
            one.warm()
        found_batches = (one.batch(self._pass_slots) for one in self._rings.values())
        batches = [batch for batch in found_batches if batch is not None]
        for batch in batches:
            if batch.last_ns is not None:
                # What is left behind may be the cause of later records in other rings.
                horizon = min(horizon, batch.last_ns)
        for batch in batches:
            batch.cut(horizon)
        moved = sum(len(batch.starts) for batch in batches)
        if moved:
            self._process(batches)
            self._write_rows()
            self._commit()
        for path in [p for p, one in self._rings.items() if one.closed and one.tail == one.head]:
            self._rings.pop(path).close()
            ring.remove_ring(path)
        return moved

    def finish(self) -> None:
        """Take everything that is left, and write what is only known at the end."""
        while self.step(FOREVER):
            pass
        for sequence, call in self.open.items():
            self.effects.launch_left_open(self._completed(call, sequence, 0, b""))
        self._write_rows()
        self._commit()

    def close(self) -> None:
        for one in self._rings.values():
            one.close()
        self._rings.clear()

    # --- records to calls ---------------------------------------------------------------------------

    def _process(self, batches: list[Batch]) -> None:
        rest: list[Record] = []
        known = not any(map(self._fast.changes_handles, batches)) and not self._handles_open()
        plain = known and not any(batch.again for batch in batches)
        self._pass_slots = min(2 * self._pass_slots, PASS_SLOTS) if plain else FIRST_PASS_SLOTS
        for batch in batches:
            if plain:
                rows, left = self._fast.take(batch, self.effects.shapes, self._signature_ids)
                self._rows += rows.calls
                self.effects.launches += rows.launches
                rest += batch.records(left)
            else:
                rest += filter(self._is_needed, batch.records()) if batch.again else batch.records()
        if len(batches) > 1:
            rest.sort(key=itemgetter(0))  # stable: one ring's records keep their order
        self._records(rest)

    def _is_needed(self, record: Record) -> bool:
        """Whether a record that is read a second time is not in the trace yet."""
        return record.kind in _NEEDED_AGAIN and record.sequence in self._left_open

    def _handles_open(self) -> bool:
        """Whether a call that gives out or takes back kernel handles has been entered and not left."""
        return any(call.signature.row.get("special") in HANDLE_CALLS for call in self.open.values())

    def _records(self, records: list[Record]) -> None:
        self._page_data = {id(one.body): one.body[8:] for one in records if one.kind in _PAGES}
        self.writer.prepare(list(self._page_data.values()))
        opened, rare, orphans = self.open, self._rare, self._orphans
        for time_ns, kind, sequence, function, extra, thread, body in records:
            if kind == ring.ENTER:
                signature = self._signatures[function] or self._signature(function)
                opened[sequence] = _Open(signature, thread, extra - 1 if extra else None, time_ns, body)
                if signature.life:
                    first, second = (int.from_bytes(body[at : at + 8], "little") for at in (0, 8))
                    self.effects.memory.entered(sequence, signature.life, first, second)
                if orphans and orphans.pop(sequence, None) is not None:
                    opened[sequence].written = True
            elif kind == ring.LEAVE:
                call = opened.pop(sequence, None)
                if call is not None:
                    self._complete(call, sequence, time_ns, function, body)
                elif sequence in orphans:
                    result = int.from_bytes(body[:4], "little")
                    self._finished.append((sequence, time_ns, result, orphans.pop(sequence)))
            else:
                rare(kind, sequence, function, extra, body)

    def _complete(self, call: _Open, sequence: int, end_ns: int, flags: int, body: bytes) -> None:
        signature = call.signature
        result = int.from_bytes(body[:4], "little")
        if signature.plain:
            arguments = call.body[: signature.words]
        else:
            completed = self._completed(call, sequence, flags, body)
            arguments = completed.arguments
            self.effects.completed(completed)
        arguments = signature.kept(arguments)
        if call.written:
            self._finished.append((sequence, end_ns, result, arguments))
        else:
            self._rows.append(
                (sequence, call.thread, call.parent, signature.id, call.start_ns, end_ns, result, arguments)
            )

    def _completed(self, call: _Open, sequence: int, flags: int, body: bytes) -> Completed:
        """A call with the body of its LEAVE; none where it never returned."""
        signature = call.signature
        arguments, pointees = _assemble(signature, call.body, body)
        return Completed(
            sequence=sequence,
            row=signature.row,
            words=struct.unpack_from(f"<{signature.words // 8}Q", call.body),
            arguments=arguments,
            pointees=pointees,
            packed=call.body[signature.words + signature.inputs :],
            result=int.from_bytes(body[:4], "little"),
            flags=flags,
            data=call.data,
        )

    def _rare(self, kind: int, sequence: int, function: int, extra: int, body: bytes) -> None:
        if kind == ring.DATA:
            call = self.open.get(sequence)
            if call is not None:
                call.add_data(function, body)
        elif kind in _PAGES:
            data = self._page_data.pop(id(body), None) or body[8:]
            offset = int.from_bytes(body[:8], "little")
            self.effects.memory.page_changed(sequence, function, extra, offset, data)
        elif kind == ring.FUNCTION:
            self.effects.function_described(sequence, extra, body)
        elif kind == ring.GLOBAL:
            self.effects.global_placed(extra, body)
        elif kind == ring.ARRAY:
            self.effects.memory.array_placed(extra, body)
        elif kind == ring.RANGE:
            self.effects.memory.range_opened(extra, body)
        elif kind == ring.TIME:
            rows = _TIME.iter_unpack(body)
            self.writer.add_gpu_times((call, function, start, took) for call, start, took in rows)
        elif kind == ring.CLOCK:
            gpu_ns, error_ns = _CLOCK.unpack(body)
            self.writer.add_moment(Moment(function, gpu_ns, extra, error_ns))
        elif kind == ring.GAP:
            gap, _, text = body.partition(b"\0")
            self.writer.add_gap(sequence, gap.decode(), text.decode("utf-8", "replace"))
        elif kind == ring.DEVICE:
            self._device(function, body)
        elif kind == ring.CAPTURED:
            self._captured.append(sequence)
        elif kind == ring.NOTE:
            self._note(json.loads(body))
        elif kind == ring.DRIVER:
            self.driver_version = extra
            self.writer.set_meta({"driver_version": extra})

    def _device(self, ordinal: int, body: bytes) -> None:
        memory, major, minor = _DEVICE.unpack_from(body)
        name = body[_DEVICE.size :].decode("utf-8", "replace")
        if ordinal == 0:
            self.effects.compute_capability = 10 * major + minor
            self.writer.set_meta({"gpu": name, "compute_capability": [major, minor]})
        self.devices.append({"name": name, "memory": memory, "compute_capability": [major, minor]})
        self.writer.set_meta({"devices": self.devices})

    def _note(self, told: dict[str, Any]) -> None:
        if "library" in told:
            self.libraries.append(told["library"])
            self.writer.set_meta({"libraries": self.libraries})
        else:
            kind, text = told["gap"]
            self.writer.add_gap(None, kind, text)
            self.problems.append(f"{kind}: {text}")

    # --- signatures -----------------------------------------------------------------------------------

    def _signature(self, index: int) -> _Signature:
        row = self.functions[index]
        parameters = [
            Parameter(p["name"], p["type"], Direction(p["direction"]), p["pointee"])
            for p in row["parameters"]
        ]
        pieces = [
            (
                p.pointee_size,
                p.direction in (Direction.IN, Direction.INOUT),
                p.direction in (Direction.OUT, Direction.INOUT),
            )
            for p in parameters
        ]
        has_pieces = any(size for size, _, _ in pieces)
        if row["name"] == CONDITIONAL:
            self.writer.set_meta({"requires": [CONDITIONAL_NODES, SQUEEZED]})
        variable = any(p.get("rule") for p in row["parameters"])
        gap = row["effect"] == "effect" and not row["replay"]
        signature = _Signature(
            row=row,
            id=self.writer.signature(row["name"], parameters),
            words=8 * len(parameters),
            pieces=pieces,
            inputs=sum(size for size, before, _ in pieces if before),
            plain=not (has_pieces or variable or gap or row.get("special") or row.get("made")),
            life=row["special"] if row.get("special") in ENDS else "",
            size=8 * len(parameters) + sum(size * (before + after) for size, before, after in pieces),
            unkept=next((8 * i for i, p in enumerate(parameters) if p.name == "kernelParams"), 0),
        )
        self._signatures[index] = signature
        self._signature_ids[index] = signature.id
        return signature

    # --- writing ---------------------------------------------------------------------------------------

    def _write_rows(self) -> None:
        for sequence, call in self.open.items():
            if call.written:
                continue
            call.written = True
            signature = call.signature
            arguments = call.body[: signature.words]
            if not signature.plain:
                arguments, _ = _assemble(signature, call.body, b"")
            arguments = signature.kept(arguments)
            self._rows.append(
                (sequence, call.thread, call.parent, signature.id, call.start_ns, None, None, arguments)
            )
        self.calls += len(self._rows)
        self.writer.add_calls(self._rows)
        self.writer.finish_calls(self._finished)
        self.launches += len(self.effects.launches)
        self.writer.add_launches(self.effects.launches)
        self._rows, self._finished, self.effects.launches = [], [], []
        self.writer.set_captured(call for call in self._captured if call not in self.open)
        self._captured = [call for call in self._captured if call in self.open]

    def _commit(self) -> None:
        self.effects.write_counts()
        tails = {path: one.kept_from(self.open) for path, one in self._rings.items()}
        self.writer.set_meta(
            {TAILS_KEY: {path.name: (tail, self._rings[path].tail) for path, tail in tails.items()}}
        )
        self.writer.commit()
        for path, one in self._rings.items():
            one.release(tails[path])

    def _answer(self, call: int, names: str) -> None:
        """Tell the agent which variables of a module it should ask the addresses of."""
        path = self.directory / f"globals-{call}"
        partial = path.with_suffix(".part")
        partial.write_text(names)
        os.replace(partial, path)


def _assemble(signature: _Signature, entered: bytes, left: bytes) -> tuple[bytes, list[bytes | None]]:
    """The `arguments` blob of a call, and what each parameter points to, from the bodies of its two
    records.
    """
    parts = [entered[: signature.words]]
    pointees: list[bytes | None] = []
    before_at, after_at = signature.words, 8
    has_after = len(left) > 8
    for size, before, after in signature.pieces:
        piece: bytes | None = None
        if size and before:
            piece = entered[before_at : before_at + size]
            parts.append(piece)
            before_at += size
        if size and after:
            late = left[after_at : after_at + size] if has_after else bytes(size)
            parts.append(late)
            piece = late if has_after else piece
            after_at += size
        pointees.append(piece)
    return b"".join(parts), pointees
