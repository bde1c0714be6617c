"""From a launch whose result differs back to the instruction that is at fault.

1. Run the launch on both devices: the first byte in which what they leave in memory differs.
2. Who wrote that last, on each: a block, a thread, a store (``Probe.writes``).
3. What that thread's warp computed on both (``Probe.values``), gone along side by side (``align``):
   an instruction at fault is the answer; a load that differs leads to whoever wrote what was loaded, back to
   2; nothing at all leaves the store itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from zluda.compiler.analysis.operands import uses
from zluda.errors import UnsupportedError
from zluda.isolate.alone import Part, Setting, Stage, part_of
from zluda.isolate.values.align import Alignment, Findings, Found, State
from zluda.isolate.values.decode import shown, shown_type, type_of
from zluda.isolate.values.difference import Difference, Input, Kind
from zluda.isolate.values.instrument import LANES, WINDOW
from zluda.isolate.values.log import Lane, Probe, Write
from zluda.isolate.values.sites import address_of, space_of
from zluda.ptx import parse_module
from zluda.ptx.module import Instruction, Register
from zluda.ptx.printer import print_instruction
from zluda.ptx.types import ScalarType
from zluda.records import dataclass
from zluda.tracefile import Dim3, Trace, open_trace

MOST_STORES = 16
"""How many stores are followed back."""
MOST_WINDOWS = 256
"""How many windows of a warp's events are gone along, from the first that differs on."""


@dataclass(frozen=True, slots=True)
class Place:
    """A byte of memory on both devices: global addresses, or ``shared`` ones of a block (a linear number)."""

    a: int
    b: int
    shared: bool = False
    block: int = 0

    def __str__(self) -> str:
        return f"shared address {self.a:#x} of block {self.block}" if self.shared else f"address {self.a:#x}"


def first_difference(
    trace: Trace | str | os.PathLike[str],
    launch: int,
    device_a: str,
    device_b: str,
    *,
    numerics_a: str | None = None,
    numerics_b: str | None = None,
    contract: str = "auto",
    at: tuple[int, int] | None = None,
    thread: tuple[int, int] | None = None,
    setting: Setting | None = None,
    time_limit: float = 60.0,
) -> Difference | None:
    """The first instruction of call ``launch`` at which the devices part though its inputs agree.

    None where both leave the same memory. ``at`` is an (allocation, offset) to begin at, in place of the
    first byte that differs; ``thread`` a (block, thread), both linear numbers, whose warp is gone along at
    once. ``setting`` changes the launch. Raises TraceError for a launch that cannot be run alone or has no
    PTX, LaunchError where one device does not get to its end, UnsupportedError where the search cannot go on,
    saying why.
    """
    with ExitStack() as stack:
        if not isinstance(trace, Trace):
            trace = stack.enter_context(open_trace(os.fspath(trace)))
        stages = [
            stack.enter_context(
                Stage(trace, launch, name, numerics=numerics, contract=contract, time_limit=time_limit)
            )
            for name, numerics in ((device_a, numerics_a), (device_b, numerics_b))
        ]
        module = parse_module(stages[0].text)
        part = part_of(module, trace.launch(launch).kernel)
        return difference_between(stages[0], stages[1], part, setting=setting, at=at, thread=thread)


def difference_between(
    a: Stage,
    b: Stage,
    part: Part,
    *,
    setting: Setting | None = None,
    at: tuple[int, int] | None = None,
    thread: tuple[int, int] | None = None,
) -> Difference | None:
    """As :func:`first_difference`, on stages that are there, of a part of the launch's module."""
    return _Search(a, b, part, setting or Setting()).run(at, thread)


class _Search:
    def __init__(self, a: Stage, b: Stage, part: Part, setting: Setting) -> None:
        self._part = part
        self._probes = (Probe(a, part, setting), Probe(b, part, setting))
        launch = a.launch
        self._grid, self._block = setting.grid or launch.grid, setting.block or launch.block
        self._path: list[str] = []
        self._warps: set[tuple[int, int]] = set()
        self._looked_at: tuple[Mapping[int, bytes], ...] = ()  # memory after the last runs with a log

    def run(self, at: tuple[int, int] | None, thread: tuple[int, int] | None) -> Difference | None:
        a, b = self._probes
        before, after = a.plain(), b.plain()
        places = [at] if at is not None else differing_places(before.memory, after.memory)
        if thread is not None and places:
            found = self._along(*thread)
            return self._answer(thread[0], thread[1] // LANES * LANES, found) if found else None
        best: Difference | None = None
        for place in places:
            self._path, self._warps = [], set()
            difference = self._follow(self._place(*place), place)
            if difference.kind is not Kind.APPROXIMATE:
                return difference
            best = best or difference
        return best

    def _place(self, allocation: int, offset: int) -> Place:
        record = next(one for one in self._probes[0].stage.reached if one.id == allocation)
        self._path.append(f"{record.name or f'allocation at {record.base:#x}'}+{offset:#x} differs")
        a, b = (probe.stage.address(allocation) + offset for probe in self._probes)
        return Place(a, b)

    def _follow(self, place: Place, output: tuple[int, int]) -> Difference:
        """From a byte that differs back over stores."""
        load: tuple[int, int, Found] | None = None
        for _ in range(MOST_STORES):
            writes = tuple(
                probe.writes(start, start + 1, shared=place.shared, block=place.block)
                for probe, start in zip(self._probes, (place.a, place.b), strict=True)
            )
            write = _differing_write(*writes)
            if write is None:
                return self._unwritten(place, load)
            store = self._probes[0].stores[write.store].instruction
            line = f"line {store.location.line} ({print_instruction(store)}) wrote {place}"
            block, thread = self._index(write.block, self._grid), self._index(write.thread, self._block)
            self._path.append(f"{line}, block {block}, thread {thread}")
            first = write.thread // LANES * LANES
            if (write.block, first) in self._warps:
                return self._ordered(load, write, writes)
            self._warps.add((write.block, first))
            found = self._along(write.block, first)
            if found is None:
                return self._stored(write, writes, load, output)
            space = space_of(found.site.instruction)
            follows = found.kind is Kind.VALUE and found in self._findings.loads
            if not follows or space not in ("", "global", "shared") or found.address is None:
                return self._answer(write.block, first, found)
            load = (write.block, first, found)
            place = Place(*found.address, shared=space == "shared", block=write.block)
        raise UnsupportedError(f"following more than {MOST_STORES} stores", self._part.kernel)

    # --- one warp -----------------------------------------------------------------------------------

    def _along(self, block: int, thread: int) -> Found | None:
        """The event at fault in a warp; else the first load that differs; else what is only approximate."""
        first = thread // LANES * LANES
        entry = next(f for f in self._part.functions if f.name == self._part.kernel)
        alignment = Alignment(self._probes[0].sites, entry)
        self._findings = alignment.findings
        start = 0
        for step in range(MOST_WINDOWS):
            a, b = self._values(block, first, start)
            if step == 0 and _longest(a, b) > WINDOW and _same(a, b):
                start = self._first_window(block, first, a, b)
                a, b = self._values(block, first, start)
            alignment.take(a, b)
            fault = alignment.first_fault()
            if fault is not None:
                return fault
            start += WINDOW
            if start >= _longest(a, b) or alignment.findings.diverged:
                return _earliest(alignment.findings)
        found = _earliest(alignment.findings)
        if found is None:
            what = f"a warp with more than {MOST_WINDOWS * WINDOW} events after the first difference"
            raise UnsupportedError(what, self._part.kernel)
        return found

    def _values(self, block: int, first: int, start: int) -> list[list[Lane]]:
        logs = [probe.values(block, first, start) for probe in self._probes]
        self._looked_at = tuple(outcome.memory for _, outcome in logs)
        return [lanes for lanes, _ in logs]

    def _first_window(self, block: int, first: int, a: Sequence[Lane], b: Sequence[Lane]) -> int:
        """The start of the first window at whose end the digests differ, by halving."""
        low, high = (
            0,
            -(-_longest(a, b) // WINDOW),
        )  # equal at the end of window low, differing at the end of high
        while high - low > 1:
            middle = (low + high) // 2
            a, b = self._values(block, first, middle * WINDOW)
            low, high = (middle, high) if _same(a, b) else (low, middle)
        return high * WINDOW

    # --- answers --------------------------------------------------------------------------------------

    def _answer(self, block: int, first: int, found: Found) -> Difference:
        site = found.site
        kind = type_of(site)
        inputs = tuple(
            Input(name, str(shape), shown(held.a, shape), held.a)
            for name, held in found.inputs
            if held.state is not State.DIFFERS and not (name == site.name and found.kind is Kind.CONTROL)
            for shape in (_input_type(site.instruction, name),)
        )
        values = (shown(found.a, kind), shown(found.b, kind))
        if found.kind is Kind.CONTROL:
            values = ("goes one way", "goes another")
        return self._difference(
            found.kind,
            site.function,
            site.instruction,
            site.name,
            kind,
            (block, first + found.lane),
            found.occurrence,
            inputs,
            values,
            (found.a, found.b),
            found.within,
        )

    def _unwritten(self, place: Place, load: tuple[int, int, Found] | None) -> Difference:
        """Nobody wrote a byte that differs: the load of it is at fault, if there is one."""
        if load is not None:
            self._path.append(f"no store of this launch wrote {place} before")
            return self._answer(*load)
        what = (
            "what wrote the memory that differs is no st, red or atom (or was made by more than 16384 writes)"
        )
        raise UnsupportedError(what, f"{self._part.kernel}, {place}")

    def _ordered(
        self, load: tuple[int, int, Found] | None, write: Write, writes: tuple[list[Write], ...]
    ) -> Difference:
        """A warp is met again: what it loads depends on when others write."""
        if load is None:
            return self._stored(write, writes, None, None)
        block, first, found = load
        place = (found.index, found.lane, found.site, found.occurrence, Kind.ORDER)
        return self._answer(block, first, Found(*place, found.a, found.b, found.inputs, found.address))

    def _stored(
        self,
        write: Write,
        writes: tuple[list[Write], ...],
        load: tuple[int, int, Found] | None,
        output: tuple[int, int] | None,
    ) -> Difference:
        """All that the writing warp computed agrees: the store, or the order of stores, is at fault.

        Unless the difference went away where values are logged: compilers then make other code.
        """
        if output is not None and len({memory[output[0]][output[1]] for memory in self._looked_at}) == 1:
            what = "looking into it: where values are logged, both devices leave the same memory"
            raise UnsupportedError(what, self._part.kernel)
        if load is not None and [_who(one) for one in writes[0]] != [_who(one) for one in writes[1]]:
            return self._ordered(load, write, writes)
        store = self._probes[0].stores[write.store]
        value = store.value
        kind = ScalarType.B64
        if isinstance(value, Register):
            kind = shown_type(value.type, store.instruction)
        others = [one.bits for one in writes[1] if _who(one) == _who(write)]
        bits = (write.bits, others[-1] if others else 0)
        return self._difference(
            Kind.STORE,
            store.function,
            store.instruction,
            value.name if isinstance(value, Register) else "",
            kind,
            (write.block, write.thread),
            [_who(one) for one in writes[0]].count(_who(write)) - 1,
            (),
            (shown(bits[0], kind), shown(bits[1], kind)),
            bits,
            "",
        )

    def _difference(
        self,
        kind: Kind,
        function: str,
        instruction: Instruction,
        register: str,
        type: ScalarType,
        thread: tuple[int, int],
        occurrence: int,
        inputs: tuple[Input, ...],
        values: tuple[str, str],
        bits: tuple[int, int],
        within: str,
    ) -> Difference:
        return Difference(
            kind=kind,
            ptx_line=instruction.location.line,
            text=print_instruction(instruction),
            source=source_of(self._part, function, instruction),
            function=function,
            register=register,
            type=str(type),
            block=self._index(thread[0], self._grid),
            thread=self._index(thread[1], self._block),
            occurrence=occurrence,
            inputs=inputs,
            device_a=self._probes[0].stage.name,
            device_b=self._probes[1].stage.name,
            value_a=values[0],
            value_b=values[1],
            bits_a=bits[0],
            bits_b=bits[1],
            within=within,
            path=tuple(self._path),
        )

    @staticmethod
    def _index(linear: int, shape: Dim3) -> Dim3:
        return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])


def differing_places(a: Mapping[int, bytes], b: Mapping[int, bytes]) -> list[tuple[int, int]]:
    """(allocation, offset) of bytes that differ: the first, in the order in which memory is reached, and the
    word of 32 bits whose patterns are farthest apart, which approximate instructions explain the least.
    """
    import numpy

    first: tuple[int, int] | None = None
    farthest, distance = first, -1
    for key, contents in a.items():
        other = b.get(key, contents)
        if contents == other:
            continue
        bytes_apart = numpy.frombuffer(contents, "u1") != numpy.frombuffer(other, "u1")
        first = first or (key, int(bytes_apart.argmax()))
        words = len(contents) // 4
        x, y = (numpy.frombuffer(data, "<u4", words).astype("i8") for data in (contents, other))
        apart = numpy.abs(x - y)
        at = int(apart.argmax()) if words else 0
        if words and int(apart[at]) > distance:
            changed = next(i for i in range(4) if contents[4 * at + i] != other[4 * at + i])
            farthest, distance = (key, 4 * at + changed), int(apart[at])
    return list(dict.fromkeys(place for place in (first, farthest) if place is not None))


def source_of(part: Part, function: str, instruction: Instruction) -> str:
    """``file:line`` by the ``.loc`` before an instruction; empty where there is none."""
    lines = next(f for f in part.functions if f.name == function).debug_lines
    before = [line for line in lines if line.ordinal <= instruction.ordinal]
    if not before or not before[-1].line:
        return ""
    return f"{part.module.files.get(before[-1].file, '?')}:{before[-1].line}"


def _input_type(instruction: Instruction, name: str) -> ScalarType:
    register = next(r for r in uses(instruction) if r.name == name)
    at = address_of(instruction)
    if at is not None and at.base == register:
        return ScalarType.B64 if register.type.bits == 64 else ScalarType.B32
    return shown_type(register.type, instruction)


def _who(write: Write) -> tuple[int, int, int]:
    return write.store, write.block, write.thread


def _differing_write(a: list[Write], b: list[Write]) -> Write | None:
    """The first write that is another on both devices, by thread and store; else the last one."""
    seen: dict[tuple[int, int, int], list[int]] = {}
    for write in b:
        seen.setdefault(_who(write), []).append(write.bits)
    for write in a:
        others = seen.get(_who(write), [])
        if not others or others.pop(0) != write.bits:
            return write
    left = [write for write in b if seen[_who(write)]]
    for among in (left, a, b):
        if among:
            return among[-1]
    return None


def _longest(a: Sequence[Lane], b: Sequence[Lane]) -> int:
    return max(lane.total for lane in (*a, *b))


def _same(a: Sequence[Lane], b: Sequence[Lane]) -> bool:
    """Whether the events up to a window's end agree, as far as they have to."""
    return all(
        one.digest == other.digest
        and min(one.total, one.first + WINDOW) == min(other.total, other.first + WINDOW)
        for one, other in zip(a, b, strict=True)
    )


def _earliest(findings: Findings) -> Found | None:
    for found in (findings.loads, findings.excused):
        if found:
            return min(found, key=lambda one: one.index)
    return None
