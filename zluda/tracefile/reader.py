"""Reading a trace: calls, launches, modules, memory at any call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from zluda.errors import TraceError
from zluda.tracefile import gpu_times, memory, rows, schema
from zluda.tracefile.arguments import ArgumentLayout
from zluda.tracefile.blobs import MAX_BLOB_BYTES, BlobReader
from zluda.tracefile.gpu_times import ClockFit, GpuTime
from zluda.tracefile.graphs import GraphLaunches
from zluda.tracefile.libraries import LibraryCalls
from zluda.tracefile.records import (
    PAGE_BYTES,
    PAYLOAD_BYTES,
    SIGNATURES,
    Allocation,
    Call,
    Counts,
    Fidelity,
    Function,
    Gap,
    Image,
    Launch,
    LeftOut,
    LoadedModule,
    ModuleKind,
    Noise,
    Page,
    Payload,
    Shape,
    Signature,
    Unproved,
)

if TYPE_CHECKING:
    import pandas

Row = TypeVar("Row")


def open_trace(path: str | Path) -> Trace:
    """Open a trace for reading. Rings that a killed recorder left beside it are merged into it first.

    Raises :class:`TraceError` where it is missing, foreign, newer, truncated or damaged, naming the place.
    """
    path = Path(path)
    if path.name and path.with_name(path.name + ".rings").exists():
        from zluda.tracefile.recovery import merge_rings

        try:
            merge_rings(path)
        except TraceError as error:
            raise TraceError(
                f"what a killed recorder left in {path.name}.rings cannot be merged ({error});"
                " copy both to where they can be written, or move that directory away to open the rest",
                file=str(path),
            ) from error
    return Trace(path)


class Trace:
    """An open trace; a context manager. Every method raises :class:`TraceError` on damaged contents.

    A call that a method is given and that is not in the trace is a TraceError too. ``meta`` is what was
    recorded, where and by what.
    """

    def __init__(self, path: Path) -> None:
        """Use :func:`open_trace`."""
        self.path = path
        self._connection = schema.open_readonly(path)
        self._blobs = BlobReader(self._connection, str(path))
        try:
            self.meta: dict[str, Any] = dict(
                self._read(rows.meta, "SELECT key, value FROM meta ORDER BY key")
            )
        except BaseException:
            self._connection.close()
            raise

    # Calls

    def iter_calls(self, start: int = 0, stop: int | None = None) -> Iterator[Call]:
        """Calls with ``start <= sequence < stop`` in order."""
        where, values = _between("sequence", start, stop)
        return self._read(self._to_call, f"SELECT * FROM call WHERE {where} ORDER BY sequence", values)

    def ends_of_calls(self, numbers: range) -> list[int]:
        """The first and the last call on record of these numbers, which go up; none where there is none."""
        sql = (
            "SELECT min(sequence), max(sequence) FROM call"
            " WHERE sequence >= ? AND sequence < ? AND (sequence - ?) % ? = 0"
        )
        values = (numbers.start, numbers.stop, numbers.start, numbers.step)
        ((first, last),) = self._read(lambda row: (row[0], row[1]), sql, values)
        return [] if first is None else [int(first), int(last)]

    def call(self, sequence: int) -> Call:
        found = next(self.iter_calls(sequence, sequence + 1), None)
        if found is None:
            raise TraceError("no such call", file=str(self.path), call=sequence)
        return found

    @cached_property
    def libraries(self) -> LibraryCalls:
        """Which calls are of libraries above the driver, and which were made inside them."""
        return LibraryCalls(self)

    @cached_property
    def graphs(self) -> GraphLaunches:
        """Which calls stand for nodes of graphs."""
        return GraphLaunches(self)

    def open_calls(self) -> dict[int, bytes]:
        """The raw arguments of calls that never returned, by number."""
        return dict(self._read(rows.open_call, "SELECT sequence, arguments FROM call WHERE end_ns IS NULL"))

    def payloads(self, call: int) -> list[Payload]:
        """Variable-size data of a call by parameter and direction, adjoining pieces joined."""
        found: list[Payload] = []
        sql = (
            "SELECT parameter, direction, offset, length, blob FROM payload"
            " WHERE call = ? ORDER BY parameter, direction, offset"
        )
        pieces = self._read(rows.payload_piece, sql, (call,), call=call)
        for (parameter, direction), group in groupby(pieces, key=lambda piece: piece[:2]):
            for offset, data in _runs(
                (offset, self._blob(blob, length, PAYLOAD_BYTES, call))
                for _, _, offset, length, blob in group
            ):
                found.append(Payload(call, parameter, direction, offset, data))
        return found

    def payload(self, call: int, parameter: str) -> bytes | None:
        """The data of one named parameter from its start, None where it was not captured."""
        signature = self._signature_of(call)
        for payload in self.payloads(call):
            name = (
                signature.parameters[payload.parameter].name
                if payload.parameter < len(signature.parameters)
                else ""
            )
            if name == parameter and payload.offset == 0:
                return payload.data
        return None

    def iter_copies(self) -> Iterator[Call]:
        """Calls of the cuMemcpy family whose data to the host was captured, in order."""
        sql = (
            "SELECT * FROM call WHERE sequence IN (SELECT call FROM payload WHERE direction = 'out')"
            " AND signature IN (SELECT id FROM signature WHERE function GLOB 'cuMemcpy*') ORDER BY sequence"
        )
        return self._read(self._to_call, sql)

    def iter_calls_of(self, function: str) -> Iterator[Call]:
        """Calls of one function, in order."""
        sql = (
            "SELECT * FROM call WHERE signature IN (SELECT id FROM signature WHERE function = ?)"
            " ORDER BY sequence"
        )
        return self._read(self._to_call, sql, (function,))

    @cached_property
    def signatures(self) -> dict[int, Signature]:
        found = self._read(rows.signature, "SELECT id, function, parameters FROM signature ORDER BY id")
        return {signature.id: signature for signature in found}

    def calls_made(self, inside: Sequence[int] = ()) -> dict[int, int]:
        """How many calls of each signature succeeded that the program made itself, or from inside calls of
        the signatures ``inside`` (libraries').
        """
        outer = ",".join(str(int(number)) for number in inside)
        sql = (
            "SELECT signature, count(*) FROM call WHERE result = 0 AND (parent IS NULL OR parent IN"
            f" (SELECT sequence FROM call WHERE signature IN ({outer}))) GROUP BY signature"
        )
        return dict(self._read(lambda row: (int(row[0]), int(row[1])), sql))

    # Launches, modules, functions

    def iter_launches(self, start: int = 0, stop: int | None = None) -> Iterator[Launch]:
        """Launches whose call is in ``start <= call < stop``, in call order."""
        where, values = _between("launch.call", start, stop)
        sql = rows.SELECT_LAUNCH.format(times=self._times)
        return self._read(self._to_launch, f"{sql} WHERE {where} ORDER BY launch.call", values)

    def left_out(self) -> dict[LeftOut, int]:
        """How many launches were left off the record with their memory on purpose, by why."""
        sql = "SELECT captured, count(*) FROM launch WHERE captured > 1 GROUP BY captured ORDER BY captured"
        return dict(self._read(lambda row: (LeftOut(row[0]), int(row[1])), sql, ()))

    def launch(self, call: int) -> Launch:
        """The launch that call ``call`` made."""
        found = next(self.iter_launches(call, call + 1), None)
        if found is None:
            raise TraceError("this call launched nothing", file=str(self.path), call=call)
        return found

    def kernels(self) -> list[tuple[str, int | None, int, int | None]]:
        """(name, module, launches, sum of the known GPU times in ns) of each launched kernel, in launch
        order.
        """
        return list(self._read(rows.kernel, rows.SELECT_KERNELS.format(times=self._times)))

    def launches_below(self, signatures: Sequence[int]) -> Iterator[tuple[int, int, int | None]]:
        """(signature, launches, their GPU time in ns) for the outermost calls of these signatures around
        launches.
        """
        wanted = ",".join(str(int(number)) for number in signatures)
        sql = rows.SELECT_LAUNCHES_BELOW.format(signatures=wanted, times=self._times)
        return self._read(rows.launches_below, sql)

    def gpu_times(self) -> Iterator[GpuTime]:
        """When the GPU carried out launches and launches of graphs, in call order; none of a recording that
        was not timed.
        """
        clocks = self.gpu_clocks
        sql = f"SELECT call, clock, start_ns, duration_ns FROM {self._times} ORDER BY call"
        return self._read(lambda row: rows.gpu_time(row, clocks), sql)

    def gpu_total(self) -> tuple[int, int]:
        """How many launches and launches of graphs were timed, and the sum of their GPU times in ns."""
        sql = f"SELECT count(*), coalesce(sum(duration_ns), 0) FROM {self._times}"
        return next(self._read(lambda row: (int(row[0]), int(row[1])), sql))

    @cached_property
    def gpu_clocks(self) -> dict[int, ClockFit]:
        """Each GPU clock that :meth:`gpu_times` has, seen from the host's."""
        if self._times != "gpu_time":
            return {}
        sql = "SELECT clock, gpu_ns, host_ns, error_ns FROM gpu_clock ORDER BY id"
        return gpu_times.fits(self._read(rows.moment, sql))

    def fidelities(self) -> dict[str, int]:
        """What the GPU ran, seen from the PTX on record (:class:`Fidelity`) → launches."""
        sql = (
            "SELECT fidelity, count(*) FROM launch JOIN shape ON launch.shape = shape.id"
            " GROUP BY fidelity ORDER BY fidelity"
        )
        return dict(self._read(lambda row: (Fidelity(row[0]).value, int(row[1])), sql))

    def fidelities_of_modules(self) -> dict[int, Fidelity]:
        """What the GPU ran of each module that was launched from (:class:`Fidelity`), by the module's id."""
        sql = (
            "SELECT DISTINCT module, fidelity FROM shape JOIN function ON shape.function = function.id"
            " WHERE module IS NOT NULL"
        )
        return dict(self._read(lambda row: (int(row[0]), Fidelity(row[1])), sql))

    @cached_property
    def module_list(self) -> list[LoadedModule]:
        """Modules and libraries in load order."""
        sql = "SELECT module, kind, architecture, origin, size, blob FROM image ORDER BY module, ordinal"
        images: dict[int, list[Image]] = {}
        for module, image in self._read(rows.image, sql):
            images.setdefault(module, []).append(image)
        sql = "SELECT id, kind, origin, handle, load_call, unload_call FROM module ORDER BY id"
        return list(self._read(lambda row: rows.module(row, tuple(images.get(row[0], ()))), sql))

    @cached_property
    def functions(self) -> list[Function]:
        """Kernel handles in the order in which they first appeared."""
        return list(
            self._read(
                rows.function, "SELECT id, handle, first_call, module, name, layout FROM function ORDER BY id"
            )
        )

    def image(self, image: Image) -> bytes:
        """The bytes of a module's image."""
        return self._blob(image.blob, image.size, MAX_BLOB_BYTES)

    def ptx(self, module: LoadedModule) -> bytes | None:
        """The PTX text of a module, None where it has none."""
        return None if module.ptx_image is None else self.image(module.ptx_image)

    # Memory

    def kernel_signatures(self, module: LoadedModule) -> dict[str, list[str]]:
        """Kernel → its parameters' types, where a framework named them (:data:`SIGNATURES`); empty for what
        cannot be read as that.
        """
        image = next((one for one in module.images if one.architecture == SIGNATURES), None)
        if image is None or image.kind is not ModuleKind.OTHER:
            return {}
        try:
            found = json.loads(self.image(image))
        except ValueError:
            return {}
        named = found.items() if isinstance(found, dict) else ()
        return {str(name): [str(one) for one in types] for name, types in named if isinstance(types, list)}

    @cached_property
    def allocations(self) -> list[Allocation]:
        """All generations, by id."""
        sql = "SELECT id, base, size, kind, name, module, born, died FROM allocation ORDER BY id"
        return list(self._read(rows.allocation, sql))

    def live_allocations(self, call: int) -> list[Allocation]:
        """Allocations alive after ``call``, by base address."""
        return self._live.after(call)

    @cached_property
    def calls_with_pages(self) -> frozenset[int]:
        """The calls that :meth:`pages` or :meth:`found_pages` has something of: most calls change no
        memory.
        """
        return frozenset(self._read(lambda row: int(row[0]), "SELECT DISTINCT call FROM page"))

    def pages(self, call: int) -> list[Page]:
        """What ``call`` changed, in the order written."""
        sql = f"{_SELECT_PAGE} WHERE call = ? AND NOT {self._is_found} ORDER BY id"
        return list(self._read(rows.page, sql, (call,), call=call))

    def found_pages(self, call: int) -> list[Page]:
        """What was found after ``call`` and before the next, and no call had made: what the host wrote
        without one, and memory that had not been looked at.
        """
        sql = f"{_SELECT_PAGE} WHERE call = ? AND {self._is_found} ORDER BY id"
        return list(self._read(rows.page, sql, (call,), call=call))

    @cached_property
    def allocations_with_pages(self) -> frozenset[int]:
        """The ids of the allocations of which the record has any contents."""
        return frozenset(self._read(lambda row: int(row[0]), "SELECT DISTINCT allocation FROM page"))

    def page_data(self, page: Page) -> bytes:
        return self._blob(page.blob, page.length, PAGE_BYTES, page.call)

    def digest_of(self, page: Page) -> bytes:
        """The digest of a row's contents, which the trace has even where it has not them."""
        with schema.sqlite_errors(self.path, page.call):
            return self._blobs.digest(page.blob, page.length)

    def payload_digests(self, call: int, parameter: str) -> list[tuple[int, int, bytes]]:
        """(offset, length, digest) of the pieces that a named parameter's data is stored in."""
        names = [one.name for one in self._signature_of(call).parameters]
        sql = (
            "SELECT parameter, direction, offset, length, blob FROM payload"
            " WHERE call = ? AND parameter = ? ORDER BY offset"
        )
        pieces = self._read(rows.payload_piece, sql, (call, names.index(parameter)), call=call)
        with schema.sqlite_errors(self.path, call):
            return [(at, length, self._blobs.digest(blob, length)) for _, _, at, length, blob in pieces]

    def read_allocation(
        self, allocation: int, call: int, offset: int, size: int, *, as_left: bool = False
    ) -> tuple[bytes, bytes | None]:
        """As :meth:`read_memory`, by the allocation's id and an offset in it. ``as_left``: as the call left
        it, without what was found between it and the next.
        """
        return memory.gather(
            offset,
            size,
            lambda number: self.page_history(allocation, number, call, as_left=as_left),
            self.page_data,
        )

    def page_history(
        self, allocation: int, number: int, call: int, *, as_left: bool = False
    ) -> Iterator[Page]:
        """The rows of one 64 KiB page of an allocation up to ``call``, the newest first; see
        :meth:`read_allocation`.
        """
        without = f"AND NOT (call = {int(call)} AND {self._is_found}) " if as_left else ""
        sql = (
            f"{_SELECT_PAGE} WHERE allocation = ? AND offset / {PAGE_BYTES} = ? AND call <= ? {without}"
            "ORDER BY call DESC, id DESC"
        )
        return self._read(rows.page, sql, (allocation, number, call), call=call)

    def pages_on_record(self, allocation: int, call: int) -> list[int]:
        """The numbers of the 64 KiB pages of an allocation of which anything is known after ``call``."""
        sql = f"SELECT DISTINCT offset / {PAGE_BYTES} FROM page WHERE allocation = ? AND call <= ? ORDER BY 1"
        return list(self._read(lambda row: int(row[0]), sql, (allocation, call), call=call))

    def read_memory(self, call: int, address: int, size: int) -> tuple[bytes, bytes | None]:
        """Memory at ``address`` after ``call`` and which bytes of it are known.

        The second is None when all are known, else a byte a byte: 1 known, 0 not (the first holds 0 there).
        ``call`` -1 is the state before the first call. What no allocation covers is not known.
        """
        parts = memory.covering(self.live_allocations(call), address, size)
        return memory.join(
            [
                (bytes(length), bytes(length))
                if holder is None
                else self.read_allocation(holder.id, call, start - holder.base, length)
                for start, length, holder in parts
            ]
        )

    def memory_at(self, call: int) -> MemoryAt:
        """Memory as it was after ``call``; -1 is before the first."""
        if call != -1:
            self.call(call)
        return MemoryAt(self, call)

    # What was proved

    @cached_property
    def unproved(self) -> list[Unproved]:
        """The launches and copies that the recording GPU, running the trace again, did not leave as recorded
        each time, in call order.
        """
        if not self._has("proof"):
            return []
        return list(self._read(rows.proof, "SELECT call, verdict, reason FROM proof ORDER BY call"))

    @cached_property
    def noise(self) -> list[Noise]:
        """What NVIDIA itself varied, by call and allocation."""
        if not self._has("noise"):
            return []
        return list(self._read(rows.noise, "SELECT * FROM noise ORDER BY call, allocation"))

    def noise_mask(self, noise: Noise) -> bytes:
        """Which elements vary: a bit an element."""
        return self._blob(noise.mask, -(-noise.elements // 8), MAX_BLOB_BYTES, noise.call)

    # The whole

    @cached_property
    def gaps(self) -> list[Gap]:
        """What was not captured, in the order written."""
        return list(self._read(rows.gap, "SELECT call, kind, text, count FROM gap ORDER BY id"))

    def counts(self) -> Counts:
        return next(self._read(rows.counts, rows.SELECT_COUNTS))

    def calls(self, start: int = 0, stop: int | None = None, limit: int | None = None) -> pandas.DataFrame:
        """Calls as a frame indexed by ``call``; at most ``limit`` rows.

        Columns: thread, parent, function, arguments (dict), pointees (dict), start_ns, end_ns, result.
        """
        from zluda.tracefile import frames

        return frames.calls(self, start, stop, limit)

    def launches(self, start: int = 0, stop: int | None = None, limit: int | None = None) -> pandas.DataFrame:
        """Launches as a frame indexed by ``call``; at most ``limit`` rows.

        Columns: those of :class:`zluda.tracefile.records.Launch`.
        """
        from zluda.tracefile import frames

        return frames.launches(self, start, stop, limit)

    def modules(self) -> pandas.DataFrame:
        """Modules as a frame indexed by ``module``.

        Columns: kind, origin, handle, load_call, unload_call, images, bytes, has_ptx, kernels.
        """
        from zluda.tracefile import frames

        return frames.modules(self)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # How rows become values

    @cached_property
    def _live(self) -> memory.LiveAllocations:
        return memory.LiveAllocations(self.allocations)

    @cached_property
    def _is_found(self) -> str:
        """The condition on a `page` row that no call made it; a constant where the trace cannot tell."""
        return "id IN (SELECT page FROM found_page)" if self._has("found_page") else "0"

    def _has(self, table: str) -> bool:
        with schema.sqlite_errors(self.path):
            return schema.has_table(self._connection, table)

    @cached_property
    def _times(self) -> str:
        """The table of GPU times; an empty one for a trace of before there was one."""
        with schema.sqlite_errors(self.path):
            known = schema.has_table(self._connection, "gpu_time")
        return "gpu_time" if known else rows.NO_TIMES

    @cached_property
    def _layouts(self) -> dict[int, ArgumentLayout]:
        squeezed = schema.SQUEEZED in self.meta.get("requires", ())
        return {
            key: ArgumentLayout(one.parameters, squeezed=squeezed) for key, one in self.signatures.items()
        }

    @cached_property
    def _shapes(self) -> dict[int, Shape]:
        return dict(self._read(rows.shape, "SELECT * FROM shape"))

    @cached_property
    def _function_of(self) -> dict[int, Function]:
        return {function.id: function for function in self.functions}

    def _signature_of(self, call: int) -> Signature:
        for (signature,) in self._read(
            tuple, "SELECT signature FROM call WHERE sequence = ?", (call,), call=call
        ):
            return self.signatures[signature]
        raise TraceError("no such call", file=str(self.path), call=call)

    def _to_call(self, row: Sequence[Any]) -> Call:
        return rows.call(row, self.signatures[row[3]], self._layouts[row[3]])

    def _to_launch(self, row: Sequence[Any]) -> Launch:
        shape = self._shapes[row[1]]
        return rows.launch(row, shape, self._function_of[shape.function])

    def _blob(self, blob: int, length: int, limit: int, call: int | None = None) -> bytes:
        with schema.sqlite_errors(self.path, call):
            return self._blobs.get(blob, length, limit=limit, call=call)

    def _read(
        self,
        convert: Callable[[Any], Row],
        sql: str,
        values: Sequence[Any] = (),
        *,
        call: int | None = None,
    ) -> Iterator[Row]:
        """Rows, converted; what SQLite refuses and what cannot be converted is a damaged trace."""
        with schema.sqlite_errors(self.path, call):
            for row in self._connection.execute(sql, [_in_reach(value) for value in values]):
                try:
                    value = convert(row)
                except (TypeError, ValueError, LookupError, RecursionError) as error:
                    raise TraceError(
                        f"damaged: a row that cannot be read ({error!r})", file=str(self.path), call=call
                    ) from error
                yield value


def _in_reach(value: Any) -> Any:
    """A value to compare with, as SQLite can take it: a number beyond 64 bits is beyond all that are on
    record, and so is the nearest one that fits.
    """
    return max(-_MOST, min(value, _MOST)) if isinstance(value, int) else value


class MemoryAt:
    """Memory after one call."""

    def __init__(self, trace: Trace, call: int) -> None:
        self.trace, self.call = trace, call

    def read(self, address: int, size: int) -> bytes:
        """Bytes at ``address``; raises :class:`TraceError` where some of them are not known."""
        data, known = self.trace.read_memory(self.call, address, size)
        if known is not None:
            first = address + known.index(0)
            raise TraceError(
                f"the contents of {first:#x} are not known", file=str(self.trace.path), call=self.call
            )
        return data

    def allocation(self, address: int) -> Allocation | None:
        """The live allocation that ``address`` lies in."""
        pieces = memory.covering(self.trace.live_allocations(self.call), address, 1)
        return next(holder for _, _, holder in pieces)


_MOST = (1 << 63) - 1
"""The largest number in SQLite."""

_SELECT_PAGE = "SELECT call, allocation, offset, length, blob FROM page"


def _between(column: str, start: int, stop: int | None) -> tuple[str, tuple[int, ...]]:
    if stop is None:
        return f"{column} >= ?", (start,)
    return f"{column} >= ? AND {column} < ?", (start, stop)


def _runs(pieces: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Join (offset, data) pieces that adjoin."""
    run: list[bytes] = []
    start = end = 0
    for offset, data in pieces:
        if run and offset != end:
            yield start, b"".join(run)
            run = []
        if not run:
            start = offset
        run.append(data)
        end = offset + len(data)
    if run:
        yield start, b"".join(run)
