"""Playing the launch of a graph: its nodes one after the other, judged when the graph has ended.

The record has no memory between nodes, only what the whole graph changed, with the call at its end. So
kernels run as the record orders them, and at the end each is held against the record by those pages that it
changed last; one whose pages later kernels changed too is ``not-compared``. Where one kernel cannot run, none
of the graph's is judged, and the record's memory takes the place of what the graph computed. A graph of which
no kernel is known, and that cannot be played, has a verdict of its own, with its launch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from zluda.diff.results import LaunchResult, Verdict
from zluda.errors import Error, UnsupportedError
from zluda.replay.handlers import launches
from zluda.replay.handles import Unavailable
from zluda.replay.intervals import IntervalSet
from zluda.replay.launching import LEFT_OUT, LaunchPlayer, passed_over, result_of
from zluda.replay.memory import LiveAllocation, Ranges
from zluda.replay.playback import why
from zluda.replay.recovery import Recovery, death
from zluda.runner import RunnerDied
from zluda.tracefile import Call, Launch, Selection, Trace
from zluda.tracefile.graphs import LAUNCH

NODES_UNKNOWN = Unavailable(Verdict.GAP, "the nodes of its graph are not on record")

_NOT_RUN = "its condition did not hold"
_OVERWRITTEN = "what it wrote, later nodes of its graph wrote too; memory is on record after the graph only"
_UNCHANGED = "it changed nothing that is left after its graph"
_UNCAPTURED = "the record holds no memory after its graph"


@dataclass(slots=True)
class _Kernel:
    """A kernel node that was played."""

    call: Call
    launch: Launch
    reach: list[LiveAllocation]
    changed: Ranges = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    seconds: float | None = None  # None: it did not run
    failure: Unavailable | None = None
    after_input: bool = False  # an earlier node of the graph may have written what it reads
    idle: bool = False  # it is in a conditional node's body, which never ran


class GraphPlayer:
    """Plays the graph whose launch was played last; there is one at a time, as a graph's calls follow each
    other.
    """

    def __init__(
        self, trace: Trace, recovery: Recovery, selection: Selection, launches: LaunchPlayer
    ) -> None:
        self._trace, self._recovery, self._selection, self._launches = trace, recovery, selection, launches
        self._unknown = {gap.call: gap.text for gap in trace.gaps if gap.kind == "graph"}
        self._kernels: list[_Kernel] = []
        self._failure: Unavailable | None = None
        self._end: int | None = None
        self._written = False  # by a node that is no kernel
        self.passed_over: Unavailable | None = (
            None  # why none of it is replayed: it was not selected for the record
        )
        self._passed: list[Launch] = []

    def begin(self, call: Call) -> bool:
        """A graph is launched; False where the record does not have its nodes."""
        self._end = self._trace.graphs.end(call.sequence)
        self._kernels, self._written = [], False
        unknown = self._unknown.get(call.sequence)
        self._failure = None if unknown is None else Unavailable(Verdict.GAP, f"its graph: {unknown}")
        kernels = list(self._trace.iter_launches(call.sequence + 1, (self._end or call.sequence) + 1))
        self.passed_over, self._passed = next((passed_over(one) for one in kernels if one.left_out), None), []
        if self._end is not None and self._trace.call(self._end).result == 0:  # its memory was looked at
            memory = self._recovery.state.memory
            for one in kernels:
                memory.believe(self._launches.reach(one), call.sequence - 1)
        chosen = [self._selection.contains(one.call, one.kernel) for one in kernels]
        if chosen and not any(chosen):
            self._failure = LEFT_OUT
        return self._end is not None

    def is_end(self, call: Call) -> bool:
        """Whether ``call`` is the end of the graph."""
        return call.sequence == self._end

    def pass_over(self, launch: Launch | None) -> None:
        """A node of a graph that was not selected for the record."""
        if launch is not None:
            self._passed.append(launch)

    @property
    def plays(self) -> bool:
        """Whether the graph is replayed, and nothing in it has failed."""
        return self._failure is None and self.passed_over is None

    def stay_idle(self, call: Call, launch: Launch) -> None:
        """A kernel node in a conditional node's body that never ran."""
        self._kernels.append(_Kernel(call, launch, self._launches.reach(launch), idle=True))

    def wrote(self) -> None:
        """A node that is no kernel has written memory."""
        self._written = True

    def fail(self, failure: Unavailable) -> None:
        """A node could not be played, and so the graph could not."""
        self._failure = self._failure or failure

    def play(self, call: Call, launch: Launch) -> None:
        """Run a kernel node."""
        state = self._recovery.state
        reach = self._launches.reach(launch)
        node = _Kernel(call, launch, reach, after_input=self._written or bool(self._kernels))
        self._kernels.append(node)
        failure = self._failure or self._why_blocked(launch, reach)
        if failure is not None:
            self._not_run(node, failure)
            return
        node.since = {one.id: one.differing_since for one in reach if one.differing_since is not None}
        state.memory.snapshot(reach)
        started = time.perf_counter()
        try:
            state.make_current(call.thread)
            launches.issue(state, call, launch)
            node.seconds = time.perf_counter() - started
            node.changed = state.memory.changed(reach)
        except Error as error:
            self._broke_off(node, error)
            return
        for one in reach:
            one.reached = True

    def _why_blocked(self, launch: Launch, reach: list[LiveAllocation]) -> Unavailable | None:
        failure = self._launches.why_left_out(launch, reach)
        return None if failure is LEFT_OUT else failure  # others of the graph need what it writes

    def _not_run(self, node: _Kernel, failure: Unavailable) -> None:
        node.failure = failure if self._failure is None else None
        self.fail(failure)
        reason = f"it needs what call {node.launch.call} ({node.launch.kernel}) computed"
        self._recovery.state.taint((one.id for one in node.reach), Unavailable(Verdict.GAP, reason))

    def _broke_off(self, node: _Kernel, error: Error) -> None:
        """A kernel that failed here. One that had begun may have written anything within its reach."""
        failure = death(error) if isinstance(error, RunnerDied) else why(error)
        died = failure.verdict in (Verdict.CRASH, Verdict.HANG)
        if died and (isinstance(error, RunnerDied) or not self._recovery.state.driver.recover()):
            self._recovery.rebuild(node.launch.call)
            for kernel in self._kernels:
                kernel.reach = self._launches.reach(kernel.launch)
        if died or (isinstance(error, UnsupportedError) and error.began):
            for one in node.reach:
                self._recovery.state.memory.touched(one, 0, one.size)
        node.seconds = None
        self._not_run(node, failure)

    # --- the end ------------------------------------------------------------------------------------------

    def end(self, call: Call) -> tuple[list[LaunchResult], Ranges]:
        """The graph has ended: the results of its kernels, and what it changed."""
        if self.passed_over is not None:
            results = [self._launches.pass_over(launch) for launch in self._passed]
            self.passed_over, self._passed, self._end = None, [], None
            return results, {}
        kernels, failure = self._kernels, self._failure
        self._kernels, self._failure, self._end = [], None, None
        live = self._recovery.state.memory.live
        for node in kernels:  # what the graph took and gave back is gone
            node.reach = [one for one in node.reach if one.id in live]
            node.changed = {key: spans for key, spans in node.changed.items() if key in live}
        recorded = self._recovery.state.memory.record_pages(call.sequence)
        if failure is not None:
            return self._without(call, kernels, failure, recorded), recorded
        if call.result != 0:
            return self._unrecorded(call, kernels)
        return self._judged(call, kernels, recorded)

    def _judged(
        self, end: Call, kernels: list[_Kernel], recorded: Ranges
    ) -> tuple[list[LaunchResult], Ranges]:
        own = _last_changes(kernels)
        theirs = _shares(kernels, own, recorded)
        results, changed = [], {**recorded}
        parted: dict[int, int] = {}  # allocation → the kernel of this graph since which it differs
        rows = _by_launch(kernels, own, theirs)
        for index, (node, mine, pages) in enumerate(rows):
            launch = node.launch._replace(call=end.sequence)
            if not mine and not pages:
                reason = _NOT_RUN if node.idle else _OVERWRITTEN if node.changed else _UNCHANGED
                result = result_of(launch, Verdict.NOT_COMPARED, reason, seconds=node.seconds)
            else:
                result, spans = self._launches.judge(
                    *(node.call, launch, node.reach, pages, mine, node.since, node.seconds or 0.0),
                    envelope=not node.after_input,
                    earlier=[one.launch for one, _, _ in rows[:index]],
                )
                if result.verdict is Verdict.DIFFERS:  # and is no noise, which goes on inside a graph
                    result = self._launches.inheriting(result, launch, node.reach, parted)
                if result.verdict in (Verdict.DIFFERS, Verdict.INHERITED):
                    differing = (buffer.allocation for buffer in result.buffers if buffer.differing)
                    number = node.launch.call
                    parted = {**{key: number for key in differing if key is not None}, **parted}
                self._launches.settle()
                changed = _joined(changed, spans)
            if not self._selection.contains(node.launch.call, node.launch.kernel):
                result = result_of(launch, LEFT_OUT.verdict, LEFT_OUT.reason)
            results.append(replace(result, call=node.launch.call))
        self._recovery.state.memory.adopt_pages(recorded, end.sequence, unknown_only=True)
        return results, changed

    def _unrecorded(self, end: Call, kernels: list[_Kernel]) -> tuple[list[LaunchResult], Ranges]:
        memory = self._recovery.state.memory
        changed: Ranges = {}
        for node in kernels:
            for key, spans in node.changed.items():
                for start, stop in spans:
                    memory.wrote_unrecorded(memory.live[key], start, stop)
            changed = _joined(changed, node.changed)
        gap = self._launches.gaps.get(end.parent or 0)
        verdict, reason = (Verdict.NOT_COMPARED, _UNCAPTURED) if gap is None else (Verdict.GAP, gap)
        rows = [one for one, _, _ in _by_launch(kernels)]
        return [result_of(one.launch, verdict, reason, seconds=one.seconds) for one in rows], changed

    def _without(
        self, end: Call, kernels: list[_Kernel], failure: Unavailable, recorded: Ranges
    ) -> list[LaunchResult]:
        """The record's memory takes the place of what the graph computed; without any, that is in doubt."""
        state = self._recovery.state
        reach = {one.id: one for node in kernels for one in node.reach if one.id in state.memory.live}
        if end.result == 0:
            state.memory.adopt_pages(recorded, end.sequence, unknown_only=False)
            state.memory.restore(end.sequence, reach.values())
        else:
            state.taint(
                reach, Unavailable(Verdict.GAP, f"it needs what the graph of call {end.parent} computed")
            )
        others = failure
        if failure is not LEFT_OUT and any(one.failure is not None for one in kernels):
            broken = next(one.launch for one in kernels if one.failure is not None)
            others = Unavailable(
                Verdict.GAP, f"in its graph, {broken.kernel} (call {broken.call}) could not run"
            )
        if not kernels:  # or nobody would learn that what comes after rests on the record
            return [self.unplayed(end.parent or 0, failure)]
        return [_failed(node.launch, node.failure or others) for node, _, _ in _by_launch(kernels)]

    def unplayed(self, launch: int, failure: Unavailable) -> LaunchResult:
        """The result of a graph's launch, by its call, of which no kernel is known."""
        if not self._selection.contains(launch):
            failure = LEFT_OUT
        return LaunchResult(launch, "launch", LAUNCH, failure.verdict, failure.reason)


def _failed(launch: Launch, failure: Unavailable) -> LaunchResult:
    return result_of(launch, failure.verdict, failure.reason)


def _by_launch(
    kernels: list[_Kernel], own: list[Ranges] | None = None, shares: list[Ranges] | None = None
) -> list[tuple[_Kernel, Ranges, Ranges]]:
    """Each kernel once, with its parts of ``own`` and ``shares``: in the body of a conditional node it may
    have run several times.
    """
    rows: dict[int, tuple[_Kernel, Ranges, Ranges]] = {}
    nothing: list[Ranges] = [{} for _ in kernels]
    for node, mine, share in zip(kernels, own or nothing, shares or nothing, strict=True):
        number = node.launch.call
        if number in rows:
            before, mine_before, share_before = rows[number]
            seconds = None if node.seconds is None else (before.seconds or 0.0) + node.seconds
            changed, failure = _joined(before.changed, node.changed), before.failure or node.failure
            node = _Kernel(
                *(node.call, node.launch, node.reach, changed, before.since, seconds, failure),
                after_input=True,
            )
            mine, share = _joined(mine_before, mine), _joined(share_before, share)
        rows[number] = (node, mine, share)
    return [rows[number] for number in sorted(rows)]


def _last_changes(kernels: list[_Kernel]) -> list[Ranges]:
    """Of each kernel, what it changed and no later one did."""
    own: list[Ranges] = []
    later: Ranges = {}
    for node in reversed(kernels):
        own.append(
            {key: left for key, spans in node.changed.items() if (left := _minus(spans, later.get(key)))}
        )
        later = _joined(later, node.changed)
    return own[::-1]


def _shares(kernels: list[_Kernel], own: list[Ranges], recorded: Ranges) -> list[Ranges]:
    """The record's changes, with the kernel that changed it last here, or else the last that reaches it."""
    shares: list[Ranges] = [{} for _ in kernels]
    for key, pages in recorded.items():
        left = pages
        for share, mine in zip(shares, own, strict=True):
            inside = _common(pages, mine.get(key, ()))
            if inside:
                share[key] = inside
                left = _minus(left, inside)
        reaching = [i for i, node in enumerate(kernels) if any(one.id == key for one in node.reach)]
        if left and reaching:
            shares[reaching[-1]] = _joined(shares[reaching[-1]], {key: left})
    return shares


def _common(spans: IntervalSet, others: Iterable[tuple[int, int]]) -> IntervalSet:
    return IntervalSet(part for start, stop in others for part in spans.within(start, stop))


def _minus(spans: IntervalSet, others: Iterable[tuple[int, int]] | None) -> IntervalSet:
    left = IntervalSet(spans)
    for start, stop in others or ():
        left.remove(start, stop)
    return left


def _joined(some: Ranges, others: Ranges) -> Ranges:
    return {
        key: IntervalSet([*some.get(key, ()), *others.get(key, ())])
        for key in dict.fromkeys([*some, *others])
    }
