"""Cutting a trace: a range of calls with the state before it (``trim``), one launch alone (``extract``).

The state before a range is two things. Objects (contexts, modules, streams, events, live memory) are made
again by the calls that made them, which are kept: those that a replay issues to rebuild a runner that died.
Memory is kept as contents, put into the trace at the call before the range, where the player adopts them.
Launches, copies and waits before the range go, and so does what was freed before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zluda.errors import TraceError
from zluda.replay.handlers import HANDLERS, UNIFIED_COPIES, Phase
from zluda.replay.names import changes_state, entry_name
from zluda.replay.recovery import why_skipped
from zluda.replay.redacted import is_redacted
from zluda.tracefile import Allocation, AllocationKind, Call, Launch, Selection, Trace
from zluda.tracefile.reachability import LiveSpans, reachable
from zluda.tracefile.subset import Cut, Progress, write_subset

# Memory that belongs to nothing else: where it is gone before the range, its making and end can go too.
_PLAIN = (AllocationKind.DEVICE, AllocationKind.POOL, AllocationKind.HOST)

_EVERY_CALL = range(1 << 62)
_WORD = (1 << 64) - 1

# Calls whose objects may make a launch reach memory that its parameters do not point to.
_INDIRECT = ("cuTexRef", "cuTexObject", "cuSurfObject", "cuSurfRef", "cuArray", "cuMipmapped")


def trim(source: Trace, target: Path, selection: Selection, *, progress: Progress | None = None) -> Cut:
    """Write the calls from the first to the last selected one, with the state before them, to ``target``.

    Calls in between are kept whether selected or not: later ones depend on them. Raises :class:`TraceError`
    where nothing is selected.
    """
    first, last = _whole_graphs(source, *_ends(source, selection))
    cut = _cut(source, first, last)
    write_subset(source, target, cut, {"cut_from": _origin(source, cut)}, progress=progress)
    return cut


def extract(source: Trace, target: Path, launch: int, *, progress: Progress | None = None) -> Cut:
    """Write one launch with its kernel's module and the memory that it reaches to ``target``.

    ``launch`` is the number of the launching call. Raises :class:`TraceError` where that is none, or one
    whose memory was left off the record.
    """
    one = source.launch(launch)
    if one.left_out is not None:
        raise TraceError(
            f"its memory is not on record: {one.left_out.reason}", file=str(source.path), call=launch
        )
    if source.graphs.is_node(source.call(launch)):
        parent = source.call(launch).parent
        raise TraceError(
            f"a node of the graph that call {parent} launched, between whose nodes memory is not on record; "
            f"`zluda trim --select {parent}` cuts out the graph",
            file=str(source.path),
            call=launch,
        )
    cut = _narrow(source, _cut(source, launch, launch))
    write_subset(source, target, cut, {"cut_from": _origin(source, cut)}, progress=progress)
    return cut


def excerpt(source: Trace, target: Path, first: int, last: int, *, progress: Progress | None = None) -> Cut:
    """Write the calls from ``first`` to ``last`` with only the modules and the memory that they reach.

    As ``trim`` does, but for what they do not; where they launch a graph, or there are textures or surfaces,
    all live memory is kept. Raises :class:`TraceError` where there is no such call.
    """
    cut = _narrow(source, _cut(source, *_whole_graphs(source, first, last)))
    write_subset(source, target, cut, {"cut_from": _origin(source, cut)}, progress=progress)
    return cut


def _origin(source: Trace, cut: Cut) -> dict[str, object]:
    return {"trace": source.path.name, "calls": f"{cut.first}-{cut.last}"}


def _ends(source: Trace, selection: Selection) -> tuple[int, int]:
    """The first and last call of ``source`` that is selected."""
    chosen: list[int] = []
    if selection.kernels:
        kernels = replace(selection, ranges=())
        chosen += [one.call for one in source.iter_launches() if kernels.contains(one.call, one.kernel)]
    for numbers in selection.ranges if selection else (_EVERY_CALL,):
        chosen += source.ends_of_calls(numbers)
    if not chosen:
        raise TraceError("no call of this trace is selected", file=str(source.path))
    return min(chosen), max(chosen)


def _whole_graphs(source: Trace, first: int, last: int) -> tuple[int, int]:
    """The range, wider where it begins or ends inside the launch of a graph."""
    parent = source.call(first).parent
    if parent is not None and source.graphs.is_node(source.call(first)):
        first = parent
    launch = source.call(last)
    owner = launch.parent if launch.parent is not None and source.graphs.is_node(launch) else last
    return first, source.graphs.end(owner) or last


def _cut(source: Trace, first: int, last: int) -> Cut:
    """What of the calls before ``first`` has to be kept."""
    needed = _Needed(source, first, last)
    while first > 0:
        calls = frozenset(call.sequence for call in source.iter_calls(0, first) if needed.keeps(call))
        before = source.call(first - 1)
        if before.sequence not in calls or why_skipped(before, source) is None:
            break
        # Memory is put at the call before the range, which the player must not pass over.
        first -= 1
        needed = _Needed(source, first, last)
    else:
        calls = frozenset()
    return Cut(first, last, calls, needed.modules, needed.allocations, state=first > 0)


class _Needed:
    """Which modules, allocations and earlier calls the calls from ``first`` to ``last`` need."""

    def __init__(self, source: Trace, first: int, last: int) -> None:
        self._source = source
        gone = [m for m in source.module_list if m.unload_call is not None and m.unload_call < first]
        self.modules = frozenset(m.id for m in source.module_list if m.load_call <= last and m not in gone)
        kept: list[Allocation] = []
        dropped: list[Allocation] = []
        for one in source.allocations:
            if one.born <= last:
                (kept if _outlives(one, first, self.modules) else dropped).append(one)
        self.allocations = frozenset(one.id for one in kept)
        self._births = {one.born for one in kept}
        ends = {one.died for one in dropped if one.died is not None} if dropped else set()
        self._dropped = ({one.born for one in dropped if one.kind in _PLAIN} | ends) - self._births
        self._dropped -= {one.died for one in kept}
        self._unloaded = {
            number for module in gone for number in (module.load_call, module.unload_call)
        } - self._births
        self._stale = [(m.handle, m.load_call, m.unload_call or 0) for m in gone]

    def keeps(self, call: Call) -> bool:
        """Whether an earlier call is needed to make what the range finds."""
        if call.sequence in self._births:
            return True
        if call.sequence in self._dropped or call.sequence in self._unloaded:
            return False
        return (
            why_skipped(call, self._source) is None
            and _makes_objects(call)
            and not self._asks_the_unloaded(call)
        )

    def _asks_the_unloaded(self, call: Call) -> bool:
        handle = call.arguments.get("hmod", call.arguments.get("library"))
        return any(handle == one and start < call.sequence < end for one, start, end in self._stale)


def _outlives(one: Allocation, first: int, modules: frozenset[int]) -> bool:
    """Whether an allocation is there at ``first`` or later. Arrays and the like are kept: objects refer to
    them."""
    if one.module is not None and one.module not in modules:
        return False
    return one.died is None or one.died >= first or one.kind not in (*_PLAIN, AllocationKind.GLOBAL)


def _makes_objects(call: Call) -> bool:
    """Whether a call before a range is issued again: what it changed in memory is kept as contents."""
    base = entry_name(call.function).base
    if base in UNIFIED_COPIES:
        return False
    handler = HANDLERS.get(base)
    if handler is None:  # what such a call made is unavailable, in the part as in the whole
        return changes_state(call.function) and not base.startswith(("cuLaunch", "cuMemcpy", "cuMemset"))
    return handler.phase is Phase.SETUP


def _narrow(source: Trace, cut: Cut) -> Cut:
    """Of a cut, what its calls and the launches among them can reach."""
    launches = list(source.iter_launches(cut.first, cut.last + 1))
    calls = list(source.iter_calls(cut.first, cut.last + 1))
    asked = {call.arguments.get("hmod", call.arguments.get("library")) for call in calls}
    modules = frozenset(
        m.id for m in source.module_list if m.handle in asked and m.id in cut.modules
    ) | frozenset(one.module for one in launches if one.module is not None)
    graphs = any(source.graphs.is_node(source.call(one.call)) for one in launches)
    if graphs or _has_indirect(source, cut.last) or is_redacted(source):  # what points further is hidden
        reached = set(cut.allocations)
    else:
        reached = set[int]().union(*(_reached(source, one) for one in launches)) & cut.allocations
    reached |= _used(source, cut, calls) & cut.allocations
    reached -= {a.id for a in source.allocations if a.module is not None and a.module not in modules}
    other = {m.load_call: m.handle for m in source.module_list if m.id not in modules}
    needed = {a.born for a in source.allocations if a.id in reached}
    unneeded = {a.born for a in source.allocations if a.id not in reached and a.kind in _PLAIN} - needed
    kept = frozenset(
        call.sequence
        for call in source.iter_calls(0, cut.first)
        if call.sequence in cut.calls
        and call.sequence not in unneeded
        and (call.sequence not in other or call.sequence in needed)
        and not _asks(call, set(other.values()))
    )
    state = cut.first > 0
    return replace(cut, calls=kept, modules=modules, allocations=frozenset(reached), state=state)


def _used(source: Trace, cut: Cut, calls: Sequence[Call]) -> set[int]:
    """Ids of the allocations that calls make, end or change, or that an argument of theirs points into: a
    copy's, say.
    """
    numbers = range(cut.first, cut.last + 1)
    found = {page.allocation for number in numbers for page in source.pages(number)}
    found |= {a.id for a in source.allocations if a.born in numbers or a.died in numbers}
    alive = [a for a in source.allocations if a.born <= cut.last and (a.died or cut.first) >= cut.first]
    spans = LiveSpans()
    for one in alive:
        spans.add(one.id, one.base, one.size)
    for call in calls:
        words = [value for value in call.arguments.values() if value >> 16]  # no counts, no small handles
        found |= set(spans.pointed_to(b"".join((word & _WORD).to_bytes(8, "little") for word in words)))
        for content in call.pointees.values():
            if isinstance(content, bytes):
                found |= set(spans.pointed_to(content))
    return found


def _has_indirect(source: Trace, before: int) -> bool:
    """Whether a call before this one may make launches reach what they do not point to."""
    if not any(_is_indirect(one.function) for one in source.signatures.values()):
        return False
    return any(_is_indirect(call.function) for call in source.iter_calls(0, before))


def _is_indirect(function: str) -> bool:
    return entry_name(function).base.startswith(_INDIRECT)


def _asks(call: Call, handles: set[int]) -> bool:
    """Whether a call looks something up in one of these modules."""
    return call.arguments.get("hmod", call.arguments.get("library", -1)) in handles


def _reached(source: Trace, launch: Launch) -> set[int]:
    """Ids of the allocations that a launch reaches, with the memory before it."""
    before = launch.call - 1
    live = source.live_allocations(before)
    spans = LiveSpans()
    for one in live:
        spans.add(one.id, one.base, one.size)
    globals_ = [one.id for one in live if one.module is not None and one.module == launch.module]

    def contents(key: int) -> bytes:
        return source.read_allocation(key, before, 0, spans.range_of(key)[1])[0]

    return set(reachable(launch.parameters, spans, contents, globals_))
