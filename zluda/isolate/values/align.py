"""Going along what two devices computed, event by event, to where they part although all that went in agrees.

A register is in one of three states: it *agrees*; it *differs*, for which a reason has been noted, or
lawfully (the clock); or it is *shifted*: an address of something that each device places where it likes, the
distance being that of the place. An event whose value differs:

1. inherits that from a register, or from memory that this warp wrote, that differs;
2. is shifted, as one of its inputs is;
3. read another lane's register: it is at fault unless that differs;
4. read memory: whoever wrote that is to be asked (:attr:`Findings.loads`);
5. is within the bound of an approximate instruction (:attr:`Findings.excused`);
6. or else is at fault (:attr:`Findings.faults`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import Enum

from zluda.isolate.values.decode import both_nan, excused, type_of
from zluda.isolate.values.difference import Kind
from zluda.isolate.values.log import Lane
from zluda.isolate.values.sites import LINEAR, Look, Reads, Site, address_of, extent_of, space_of
from zluda.ptx.module import Function, Register
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

_MASK = (1 << 64) - 1


class State(Enum):
    """Of a register, between two devices."""

    AGREES = "agrees"
    DIFFERS = "differs"
    SHIFTED = "shifted"


@dataclass(frozen=True, slots=True)
class Held:
    """What a register holds on both devices."""

    a: int
    b: int
    state: State = State.AGREES


@dataclass(frozen=True, slots=True)
class Found:
    """An event of note. ``index`` is its number in its thread; ``inputs`` what its registers held.

    ``address`` is where a load or store goes on each device.
    """

    index: int
    lane: int
    site: Site
    occurrence: int
    kind: Kind
    a: int
    b: int
    inputs: tuple[tuple[str, Held], ...] = ()
    address: tuple[int, int] | None = None
    within: str = ""


@dataclass(slots=True)
class Findings:
    """What was found, in no order."""

    faults: list[Found] = field(default_factory=list)
    loads: list[Found] = field(default_factory=list)
    excused: list[Found] = field(default_factory=list)
    diverged: bool = False  # a thread's ways parted: behind that nothing can be aligned


class Alignment:
    """Two devices' logs of one warp, taken in window by window."""

    def __init__(self, sites: dict[int, Site], entry: Function) -> None:
        self._sites, self._entry = sites, entry
        self._arguments = {parameter.name for parameter in entry.parameters}
        self._threads = [_Thread(lane, self) for lane in range(32)]
        self._across: dict[tuple[int, int], bool] = {}  # (site, occurrence): a lane's inputs differ
        self._pending: list[Found] = []  # differing results of instructions across lanes
        self.findings = Findings()
        self.parted: set[tuple[str, int]] = set()  # (space, byte) of memory that this warp wrote otherwise

    def take(self, a: Sequence[Lane], b: Sequence[Lane]) -> None:
        """The next window of both."""
        for thread, one, other in zip(self._threads, a, b, strict=True):
            thread.take(one, other)

    def first_fault(self) -> Found | None:
        """The earliest event at fault so far, by its number in its thread."""
        own = [one for one in self._pending if not self._across.get((one.site.number, one.occurrence))]
        return min([*self.findings.faults, *own], key=lambda one: one.index, default=None)

    def note_across(self, site: Site, occurrence: int, differs: bool) -> None:
        key = (site.number, occurrence)
        self._across[key] = self._across.get(key, False) or differs

    def add_across(self, found: Found) -> None:
        self._pending.append(found)

    def site(self, number: int) -> Site:
        return self._sites[number]

    def is_argument(self, site: Site) -> bool:
        """Whether a parameter is the kernel's own, which no code has written."""
        at = address_of(site.instruction)
        return site.function == self._entry.name and at is not None and at.variable in self._arguments


class _Thread:
    """One thread on both devices."""

    def __init__(self, lane: int, warp: Alignment) -> None:
        self._lane, self._warp = lane, warp
        self._held: dict[tuple[str, str], Held] = {}
        self._times: Counter[int] = Counter()
        self._branch: Found | None = None  # the last one met
        self._parameters = False  # whether a call was handed something that differs
        self._over = False

    def take(self, a: Lane, b: Lane) -> None:
        for index in range(min(len(a.events), len(b.events))):
            if self._over:
                return
            self._event(a.first + index, a.events[index], b.events[index])
        if not self._over and len(a.events) != len(b.events):
            longer = a if len(a.events) > len(b.events) else b
            at = min(len(a.events), len(b.events))
            self._part(a.first + at, self._warp.site(longer.events[at][0]))

    def _event(self, index: int, a: tuple[int, int], b: tuple[int, int]) -> None:
        site = self._warp.site(a[0])
        if a[0] != b[0]:
            self._part(index, site, self._warp.site(b[0]))
            return
        occurrence = self._times[site.number]
        self._times[site.number] += 1
        inputs = tuple(self._inputs(site))
        address = self._address(site)
        found = Found(index, self._lane, site, occurrence, Kind.VALUE, a[1], b[1], inputs, address)
        differs = any(held.state is State.DIFFERS for _, held in inputs)
        if site.look is Look.STORE:
            self._store(site, a[1], differs)
            return
        if site.look is Look.GUARD:
            self._branch = found
            return
        if site.reads is Reads.LANES:
            self._warp.note_across(site, occurrence, differs)
        self._held[site.function, site.name] = Held(a[1], b[1], self._state(found, differs))

    def _inputs(self, site: Site) -> Iterator[tuple[str, Held]]:
        for name in site.inputs:
            held = self._held.get((site.function, name))
            if held is not None:
                yield name, held

    def _address(self, site: Site) -> tuple[int, int] | None:
        at = address_of(site.instruction)
        if at is None or not isinstance(at.base, Register):
            return None
        held = self._held.get((site.function, at.base.name))
        return None if held is None else ((held.a + at.offset) & _MASK, (held.b + at.offset) & _MASK)

    def _store(self, site: Site, base: int, differs: bool) -> None:
        if not differs:
            return
        space = space_of(site.instruction)
        if space == "param":
            self._parameters = True
            return
        at = address_of(site.instruction)
        start = (base + (at.offset if at is not None else 0)) & _MASK
        kind = f"local {self._lane}" if space == "local" else space or "global"
        self._warp.parted |= {(kind, byte) for byte in range(start, start + extent_of(site.instruction))}

    def _state(self, found: Found, differs: bool) -> State:
        site, findings = found.site, self._warp.findings
        kind = type_of(site)
        if found.a == found.b or both_nan(found.a, found.b, kind):
            return State.AGREES
        # Two NaN agree, whatever their bits: what copies or takes apart those bits is not at fault.
        payload = any(held.a != held.b and held.state is State.AGREES for _, held in found.inputs)
        if differs or payload or site.reads is Reads.SURROUNDINGS or self._inherits(found):
            return State.DIFFERS
        shifts = [(h.b - h.a) & _MASK for _, h in found.inputs if h.state is State.SHIFTED]
        if site.reads is Reads.PLACE:
            return State.SHIFTED
        if shifts and site.reads is Reads.NOTHING:
            mask = (1 << kind.bits) - 1
            distance = (found.b - found.a) & mask
            lawful = {one & mask for one in shifts} | {-one & mask for one in shifts}
            if site.instruction.opcode not in LINEAR or distance in lawful:
                return State.SHIFTED if kind is not ScalarType.PRED else State.DIFFERS
        if site.reads is Reads.LANES:
            self._warp.add_across(found)
        elif site.reads is Reads.MEMORY:
            findings.loads.append(found)
        else:
            within = excused(site, found.a, found.b)
            if within:
                findings.excused.append(_as(found, Kind.APPROXIMATE, within))
            else:
                findings.faults.append(found)
        return State.DIFFERS

    def _inherits(self, found: Found) -> bool:
        """Whether a load reads what this warp wrote otherwise."""
        site = found.site
        space = space_of(site.instruction)
        if site.instruction.opcode == "ld" and space == "param":
            return self._parameters and not self._warp.is_argument(site)
        if site.reads is not Reads.MEMORY or found.address is None or not self._warp.parted:
            return False
        kind = f"local {self._lane}" if space == "local" else space or "global"
        start = found.address[0]
        touched = range(start, start + extent_of(site.instruction))
        return any((kind, byte) in self._warp.parted for byte in touched)

    def _part(self, index: int, *sites: Site) -> None:
        """The ways part: what decided that is at fault, if it agrees."""
        self._over = self._warp.findings.diverged = True
        guards = [(s.function, s.instruction.guard.register.name) for s in sites if s.instruction.guard]
        if any(key in self._held and self._held[key].state is State.DIFFERS for key in guards):
            return
        branch = self._branch
        if branch is None:
            first = sites[0]
            self._warp.findings.faults.append(
                Found(index, self._lane, first, self._times[first.number], Kind.CONTROL, 1, 0)
            )
        elif all(held.state is not State.DIFFERS for _, held in branch.inputs):
            self._warp.findings.faults.append(_as(branch, Kind.CONTROL, ""))


def _as(found: Found, kind: Kind, within: str) -> Found:
    place = (found.index, found.lane, found.site, found.occurrence, kind)
    return Found(*place, found.a, found.b, found.inputs, found.address, within)
