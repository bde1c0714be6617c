"""The player: a trace's calls issued again in their order, each launch and copy judged (stream mode).

What happens to one call:

1. It failed on NVIDIA, never returned, or was made inside another call: it is not issued. A launch or copy
   then has a verdict that says so.
2. Its context is made current and its handler issues it. A call without a handler that may have changed
   what launches compute is counted, and taints the memory it can have written; a launch that reaches tainted
   memory is a ``gap``.
3. A launch: the memory it reaches is digested, it runs, and the union of what record and replay changed is
   compared. Differences stay in memory, as they would in a live run, and launches that read them are
   ``inherited``.
4. A launch that could not run, or broke off: the record's memory after it is put in its place, so that those
   after it are judged. Where the record has none, what it reaches is tainted.
5. The runner died: a new one is started, calls that make objects are replayed up to here, and memory is set
   to the record's. So one crash costs one verdict.
6. Contents that the record learnt without a call's doing (captured before a launch first reached them) are
   written into the replay: they are inputs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from zluda.diff.element_type import BYTES, LaunchTypes
from zluda.diff.results import LaunchResult, Verdict
from zluda.driver import RESULT_NAMES
from zluda.errors import Error
from zluda.replay.address_plan import AddressPlan
from zluda.replay.handlers import Handler, Phase, created, handler_of, launches, memory
from zluda.replay.handles import Unavailable
from zluda.replay.intervals import IntervalSet
from zluda.replay.judge import Compared, compare_memory, judge_copy, judge_launch
from zluda.replay.memory import LiveAllocation
from zluda.replay.names import changes_state, entry_name
from zluda.replay.output import ReplayWriter
from zluda.replay.playback import Playback, Record, why
from zluda.replay.session import Session
from zluda.runner import RunnerDied
from zluda.tracefile import Call, Launch, Selection, Trace

MAX_DEATHS = 3
"""How often one kernel may bring the runner down before its other launches are left out."""

# Calls without a handler whose effect may reach any memory, not just what their arguments point to.
_REACHES_ANYTHING = ("cuGraphLaunch", "cuLaunch", "cuStreamBatchMemOp", "cuMemcpy3DBatch", "cuMemcpyBatch")

Ranges = dict[int, IntervalSet]


class Player:
    """Plays one trace; :meth:`play` gives the results in call order."""

    def __init__(
        self,
        trace: Trace,
        session: Session,
        plan: AddressPlan,
        *,
        selection: Selection,
        output: ReplayWriter | None = None,
    ) -> None:
        self._trace, self._session, self._plan = trace, session, plan
        self._selection, self._output = selection, output
        self._record = Record(trace)
        self._types = LaunchTypes(trace)
        self._state = self._new_state()
        self._last_launch: dict[int, Launch] = {}  # allocation → the last launch that reached it
        self._deaths: Counter[str] = Counter()  # kernel → times it brought the runner down
        self._fatal: dict[int, Unavailable] = {}  # calls that brought the runner down: not issued again
        self._gaps = {gap.call: gap.text for gap in trace.gaps if gap.call is not None}
        self._results: list[LaunchResult] = []

    @property
    def unplayed(self) -> Counter[str]:
        """Driver functions whose calls had an effect and no handler, with how many calls."""
        return self._state.unplayed

    def _new_state(self) -> Playback:
        return Playback(self._record, self._session.driver, self._session, self._plan)

    def play(self, call: Call, launch: Launch | None) -> list[LaunchResult]:
        """Play one call, which made ``launch`` if it launched; returns its verdict where it has one."""
        self._results = []
        changed = self._play(call, launch)
        if self._output is not None:
            self._output.write_call(call, launch, self._state.memory, changed, self._results)
        return self._results

    def _play(self, call: Call, launch: Launch | None) -> Ranges:
        state = self._state
        skipped = self._why_skipped(call)
        if skipped is not None:
            if launch is not None:
                self._add(self._launch_result(launch, Verdict.NOT_COMPARED, skipped))
            return {}
        handler = handler_of(state, call, entry_name(call.function).base)
        if handler is None or (launch is not None and handler.phase is not Phase.LAUNCH):
            return self._play_without_handler(call, launch)
        if handler.phase is Phase.LAUNCH:
            return self._play_launch(call, launch)
        if handler.phase is Phase.COPY:
            self._add(self._judge_copy(call))
            return self._settle(call, None, restored=False)
        failure = self._issue(call, handler)
        return self._settle(call, failure, restored=failure is not None and handler.phase is Phase.WRITE)

    @staticmethod
    def _why_skipped(call: Call) -> str | None:
        if call.parent is not None:
            return f"it was made inside call {call.parent}"
        if call.result is None:
            return "the record ends inside this call"
        if call.result != 0:
            return f"it failed on NVIDIA: {RESULT_NAMES.get(call.result, call.result)}"
        return None

    def _add(self, result: LaunchResult) -> None:
        self._results.append(result)

    # --- calls that are not judged --------------------------------------------------------------------

    def _issue(self, call: Call, handler: Handler) -> Unavailable | None:
        """Issue a call; what depends on it is unavailable for the returned reason if it fails."""
        state = self._state
        try:
            if call.sequence in self._fatal:
                failure: Unavailable | None = self._fatal[call.sequence]
            else:
                state.make_current(call.thread)
                handler.run(state, call)
                return None
        except RunnerDied as died:
            failure = self._fatal[call.sequence] = _death(died)
            self._rebuild(call.sequence - 1)
            state = self._state
        except Error as error:
            failure = why(error)
        assert failure is not None
        self._spoil(state, call, handler, failure)
        return failure

    @staticmethod
    def _spoil(state: Playback, call: Call, handler: Handler, failure: Unavailable) -> None:
        if handler.creates is not None:
            kind, parameter = handler.creates
            recorded = created(call, parameter)
            if recorded is not None:
                state.handles.bind(kind, recorded, failure)
        if handler.spoils is not None:
            kind, parameter = handler.spoils
            state.handles.bind(kind, call.arguments[parameter], failure)

    def _settle(self, call: Call, failure: Unavailable | None, *, restored: bool) -> Ranges:
        """After a call that is no launch: its allocations, and what the record has of memory after it.

        ``restored``: the call's own effect is to be taken from the record, since it was not issued.
        """
        state = self._state
        state.settle_allocations(call, failure)
        ranges = state.memory.record_pages(call.sequence)
        if restored and failure is not None and not ranges:
            self._taint_arguments(call, failure)
        state.memory.adopt_pages(ranges, call.sequence, unknown_only=not restored)
        state.bury_allocations(call)
        return {key: spans for key, spans in ranges.items() if key in state.memory.live}

    def _play_without_handler(self, call: Call, launch: Launch | None) -> Ranges:
        """A call that is not replayed: harmless, or counted with everything it may have changed in doubt."""
        if launch is None and not changes_state(call.function):
            return self._settle(call, None, restored=False)
        state = self._state
        failure = Unavailable(Verdict.GAP, f"{call.function} is not replayed")
        state.unplayed[call.function] += 1
        state.handles.note_unplayed(call)
        if launch is not None:
            reach = state.memory.reach(launch.parameters, launch.module)
            return self._leave_out(call, launch, reach, failure)
        return self._settle(call, failure, restored=True)

    def _taint_arguments(self, call: Call, failure: Unavailable) -> None:
        """Doubt the allocations that a call's arguments point into; or all, if it can reach anything."""
        state = self._state
        if call.function.startswith(_REACHES_ANYTHING):
            state.taint(state.memory.live, failure)
            return
        words = [*call.arguments.values(), *(v for v in call.pointees.values() if isinstance(v, int))]
        data = b"".join(word.to_bytes(8, "little") for word in words)
        data += b"".join(v for v in call.pointees.values() if isinstance(v, bytes))
        state.taint(state.memory.pointed_to(data), failure)

    # --- copies to the host ---------------------------------------------------------------------------

    def _judge_copy(self, call: Call) -> LaunchResult:
        def unjudged(reason: Unavailable) -> LaunchResult:
            return LaunchResult(call.sequence, "copy", call.function, reason.verdict, reason.reason)

        if not self._selection.contains(call.sequence):
            return unjudged(Unavailable(Verdict.NOT_REPLAYED, "left out by the selection"))
        state = self._state
        try:
            state.make_current(call.thread)
            one, offset, _ = memory.source_of(state, call)
            if one.taint is not None:
                return unjudged(one.taint)
            data = memory.deliver(state, call)
        except RunnerDied as died:
            self._fatal[call.sequence] = _death(died)
            self._rebuild(call.sequence)
            return unjudged(self._fatal[call.sequence])
        except Error as error:
            return unjudged(why(error))
        recorded = self._trace.payload(call.sequence, memory.delivered_to(call))
        if self._output is not None:
            self._output.delivered(call, memory.delivered_to(call), data)
        if recorded is not None:
            recorded = state.memory.translate_words(recorded)
        return judge_copy(call, one, offset, recorded, data, self._type_of)

    # --- launches -------------------------------------------------------------------------------------

    def _play_launch(self, call: Call, launch: Launch | None) -> Ranges:
        if launch is None:
            return self._settle(
                call,
                Unavailable(Verdict.GAP, f"call {call.sequence}: its launch was not captured"),
                restored=True,
            )
        state = self._state
        reach = state.memory.reach(launch.parameters, launch.module)
        for one in reach:
            self._last_launch[one.id] = launch
        blocked = self._why_left_out(launch, reach)
        if blocked is not None:
            return self._leave_out(call, launch, reach, blocked)
        differing_before = min(
            (one.differing_since for one in reach if one.differing_since is not None), default=None
        )
        state.memory.snapshot(reach)
        started = time.perf_counter()
        try:
            state.make_current(call.thread)
            launches.issue(state, call, launch)
        except Error as error:
            return self._broke_off(call, launch, reach, error)
        seconds = time.perf_counter() - started
        replayed = state.memory.changed(reach)
        for one in reach:
            one.reached = True
        return self._judge_launch(call, launch, reach, replayed, differing_before, seconds)

    def _why_left_out(self, launch: Launch, reach: Iterable[LiveAllocation]) -> Unavailable | None:
        if not self._selection.contains(launch.call, launch.kernel):
            return Unavailable(Verdict.NOT_REPLAYED, "left out by the selection")
        if self._deaths[launch.kernel] >= MAX_DEATHS:
            reason = f"not run again: this kernel brought the runner down {MAX_DEATHS} times"
            return Unavailable(Verdict.NOT_REPLAYED, reason)
        absent = self._state.memory.why_absent(launch.parameters)
        if absent is not None:
            return absent
        return next((one.taint for one in reach if one.taint is not None), None)

    def _judge_launch(
        self,
        call: Call,
        launch: Launch,
        reach: list[LiveAllocation],
        replayed: Ranges,
        differing_before: int | None,
        seconds: float,
    ) -> Ranges:
        state = self._state
        recorded = state.memory.record_pages(call.sequence)
        if not launch.captured and not recorded:
            for key, spans in replayed.items():
                for start, stop in spans:
                    state.memory.wrote_unrecorded(state.memory.live[key], start, stop)
            self._add(self._launch_result(launch, *self._why_uncaptured(launch), seconds=seconds))
            return replayed

        def name_of(one: LiveAllocation) -> str:
            return _name(one, launch)

        compared = compare_memory(
            state.memory, call.sequence, recorded, replayed, lambda one: self._type(one, launch), name_of
        )
        verdict, reason = judge_launch(compared, reach, differing_before)
        self._add(self._launch_result(launch, verdict, reason, compared=compared, seconds=seconds))
        state.memory.adopt_pages(recorded, call.sequence, unknown_only=True)
        return {key: _union(recorded.get(key), replayed.get(key)) for key in {**recorded, **replayed}}

    def _why_uncaptured(self, launch: Launch) -> tuple[Verdict, str]:
        if launch.call in self._gaps:
            return Verdict.GAP, self._gaps[launch.call]
        return Verdict.NOT_COMPARED, "the record holds no memory after this launch"

    def _broke_off(self, call: Call, launch: Launch, reach: list[LiveAllocation], error: Error) -> Ranges:
        """A launch that failed here: what it left behind is replaced, and where needed the runner."""
        died = isinstance(error, RunnerDied)
        failure = _death(error) if isinstance(error, RunnerDied) else why(error)
        wrote = failure.verdict in (Verdict.CRASH, Verdict.HANG)
        if wrote:
            self._deaths[launch.kernel] += 1
            if died or not self._state.driver.recover():
                self._rebuild(call.sequence)
                reach = self._state.memory.reach(launch.parameters, launch.module)
            for one in reach:
                self._state.memory.touched(one, 0, one.size)
        return self._leave_out(call, launch, reach, failure, rewrite=wrote)

    def _leave_out(
        self,
        call: Call,
        launch: Launch,
        reach: list[LiveAllocation],
        failure: Unavailable,
        *,
        rewrite: bool = False,
    ) -> Ranges:
        """A launch that has no result of its own: the record's memory after it takes its place.

        ``rewrite``: it may have written before it broke off, so all that it reaches is set, not only what
        changed.
        """
        state = self._state
        recorded = state.memory.record_pages(call.sequence)
        reason = failure.reason
        if launch.captured or recorded:
            state.memory.adopt_pages(recorded, call.sequence, unknown_only=False)
            doubtful = [one for one in reach if rewrite or one.taint is not None]
            state.memory.restore(call.sequence, doubtful)
            if failure.verdict is not Verdict.NOT_REPLAYED:
                reason = f"{reason}; the record's memory is used after it"
        else:
            taint = Unavailable(Verdict.GAP, f"it needs what call {call.sequence} ({launch.kernel}) computed")
            state.taint((one.id for one in reach), taint)
        self._add(self._launch_result(launch, failure.verdict, reason))
        return recorded

    def _launch_result(
        self,
        launch: Launch,
        verdict: Verdict,
        reason: str,
        *,
        compared: Compared | None = None,
        seconds: float | None = None,
    ) -> LaunchResult:
        return LaunchResult(
            launch.call,
            "launch",
            launch.kernel,
            verdict,
            reason,
            launch.grid,
            launch.block,
            buffers=tuple(compared.buffers) if compared is not None else (),
            seconds=seconds,
            recorded_seconds=None if launch.gpu_time_ns is None else launch.gpu_time_ns / 1e9,
            written_share=compared.written_share if compared is not None else None,
            fidelity=launch.fidelity,
        )

    def _type_of(self, one: LiveAllocation) -> str:
        """Element type of an allocation, by the last launch that reached it."""
        launch = self._last_launch.get(one.id)
        return BYTES if launch is None else self._type(one, launch)

    def _type(self, one: LiveAllocation, launch: Launch) -> str:
        def find(address: int) -> int | None:
            found = self._state.memory.find(address)
            return None if found is None else found.id

        types = self._types.of(launch, find, self._state.memory.variables(launch.module))
        return types.get(one.id, BYTES)

    # --- a runner that died ---------------------------------------------------------------------------

    def _rebuild(self, upto: int) -> None:
        """A new runner in the state the record has after call ``upto``."""
        old = self._state
        while True:
            self._session.restart()
            self._state = self._new_state()
            try:
                self._replay_setup(upto)
            except _DiedAgain:
                continue
            break
        state = self._state
        state.unplayed = old.unplayed
        for key, one in state.memory.live.items():
            before = old.memory.live.get(key)
            if before is not None:
                one.known, one.reached, one.taint = before.known, before.reached, before.taint
                if before.unrecorded:
                    one.taint = Unavailable(Verdict.GAP, "its inputs were lost with a runner that died")
            taint = one.taint
            state.memory.restore(upto, [one])
            one.taint = taint

    def _replay_setup(self, upto: int) -> None:
        """Issue the calls up to ``upto`` that make and end objects."""
        state = self._state
        for call in self._trace.iter_calls(0, upto + 1):
            if self._why_skipped(call) is not None:
                continue
            handler = handler_of(state, call, entry_name(call.function).base)
            failure: Unavailable | None = self._fatal.get(call.sequence)
            if handler is None:
                if changes_state(call.function):
                    state.handles.note_unplayed(call)
                    failure = Unavailable(Verdict.GAP, f"{call.function} is not replayed")
            elif handler.phase is Phase.SETUP:
                failure = self._issue_again(state, call, handler, failure)
            state.settle_allocations(call, failure)
            state.bury_allocations(call)

    def _issue_again(
        self, state: Playback, call: Call, handler: Handler, failure: Unavailable | None
    ) -> Unavailable | None:
        if failure is None:
            try:
                state.make_current(call.thread)
                handler.run(state, call)
                return None
            except RunnerDied as died:
                self._fatal[call.sequence] = _death(died)
                raise _DiedAgain from died
            except Error as error:
                failure = why(error)
        self._spoil(state, call, handler, failure)
        return failure


class _DiedAgain(Exception):
    """The runner died while it was being rebuilt; the call that did it is not issued again."""


def _death(died: RunnerDied) -> Unavailable:
    return Unavailable(Verdict.HANG if died.reason == "hang" else Verdict.CRASH, str(died))


def _name(one: LiveAllocation, launch: Launch) -> str:
    """A variable's name, or the first parameter that points into the allocation."""
    if one.record.name:
        return one.record.name
    for index, (offset, size) in enumerate(launch.layout or ()):
        for at in range(offset, offset + size - 7, 8):
            address = int.from_bytes(launch.parameters[at : at + 8], "little")
            if one.record.base <= address < one.record.end:
                return f"parameter {index}"
    return ""


def _union(first: IntervalSet | None, second: IntervalSet | None) -> IntervalSet:
    return IntervalSet([*(first or ()), *(second or ())])
