"""Playing and judging one launch."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zluda.diff.grid import layout_named
from zluda.diff.results import CountsAs, LaunchResult, Verdict
from zluda.diff.types.regions import EVERYTHING_UNKNOWN, BufferTypes
from zluda.driver import RESULT_NAMES
from zluda.errors import Error, UnsupportedError
from zluda.replay.envelope import Envelopes
from zluda.replay.handlers import launches
from zluda.replay.handles import Unavailable
from zluda.replay.intervals import IntervalSet
from zluda.replay.judge import Compared, compare_memory, judge_launch
from zluda.replay.memory import LiveAllocation, Ranges
from zluda.replay.noise import NoiseJudge
from zluda.replay.playback import Record, why
from zluda.replay.recovery import Recovery, death
from zluda.replay.redacted import SEALED, RedactedMemory
from zluda.runner import RunnerDied
from zluda.tracefile import Call, Launch, LeftOut, Selection
from zluda.tracefile.reachability import NESTED_LIMIT

if TYPE_CHECKING:
    from zluda.diff.types.launches import LaunchTypes
    from zluda.diff.types.override import Override

STREAM_FAILED = re.compile(r"the stream failed, its memory was not looked at: CUresult (\d+)")
"""What the recorder notes of a launch after which its stream had failed (``trace/agent/capture.c``)."""

MAX_DEATHS = 3
"""How often one kernel may bring the runner down before its other launches are left out."""


class LaunchPlayer:
    """Plays launches; each gives its result and what it changed."""

    def __init__(
        self,
        record: Record,
        recovery: Recovery,
        selection: Selection,
        envelopes: Envelopes,
        noise: NoiseJudge,
        overrides: Sequence[Override] = (),
        *,
        isolated: bool = False,
    ) -> None:
        """``overrides`` are what the user said of buffers' types. ``isolated``: what differs is the record's
        again for those after it.
        """
        self._isolated = isolated
        self._record, self._recovery, self._selection = record, recovery, selection
        self._envelopes, self._noise = envelopes, noise
        self._excused: tuple[int, Ranges] | None = None  # the call just judged so, and what it changed
        self._overrides = overrides
        self._types: LaunchTypes | None = None
        self._last: dict[int, Launch] = {}  # allocation → the last launch that reached it
        self._deaths: Counter[str] = Counter()  # kernel → times it brought the runner down
        self.gaps = {gap.call: gap.text for gap in record.trace.gaps if gap.call is not None}

    def play(self, call: Call, launch: Launch) -> tuple[LaunchResult, Ranges]:
        """Run a launch and judge it, or say why not; the worst, where it is run more than once."""
        worst, changed = self._play(call, launch)
        result = worst
        while result.seconds is not None and self._noise.repeats(launch, self.reach(launch)):
            self.settle()
            self._recovery.state.memory.restore(launch.call - 1, self.reach(launch))
            result, changed = self._play(call, launch)
            worst = max(worst, result, key=lambda one: one.verdict.severity)
        return worst, changed

    def _play(self, call: Call, launch: Launch) -> tuple[LaunchResult, Ranges]:
        state = self._recovery.state
        reach = self.reach(launch)
        if launch.captured:
            state.memory.believe(reach, launch.call - 1)
        blocked = self.why_left_out(launch, reach)
        if blocked is not None:
            return self._without(launch, reach, blocked)
        since = {one.id: one.differing_since for one in reach if one.differing_since is not None}
        state.memory.snapshot(reach)
        started = time.perf_counter()
        try:
            state.make_current(call.thread)
            launches.issue(state, call, launch)
            seconds = time.perf_counter() - started
            replayed = state.memory.changed(reach)  # on a GPU the first read may be what shows a failure
        except Error as error:
            return self._broke_off(launch, reach, error, min(since.values(), default=None))
        for one in reach:
            one.reached = True
        recorded = state.memory.record_pages(launch.call)
        if launch.captured:
            return self.judge(call, launch, reach, recorded, replayed, since, seconds)
        if not recorded:
            return self._unrecorded(launch, replayed, seconds)
        listed, besides = self._listed(recorded, replayed)
        result, changed = self.judge(call, launch, reach, recorded, listed, since, seconds)
        return result, {
            key: IntervalSet([*changed.get(key, ()), *besides.get(key, ())]) for key in changed | besides
        }

    def _listed(self, recorded: Ranges, replayed: Ranges) -> tuple[Ranges, Ranges]:
        """Of a launch whose record may lack some of what it changed: what the replay changed of that which is
        there, and what besides, which nobody can judge.
        """
        memory = self._recovery.state.memory
        listed, besides = {}, {}
        for key, spans in replayed.items():
            listed[key], besides[key] = IntervalSet(spans), IntervalSet(spans)
            for start, stop in recorded.get(key, ()):
                besides[key].remove(start, stop)
            for start, stop in besides[key]:
                listed[key].remove(start, stop)
                memory.wrote_unrecorded(memory.live[key], start, stop)
        return listed, besides

    def pass_over(self, launch: Launch) -> LaunchResult:
        """A launch whose memory was left off the record on purpose is not replayed: nobody could judge it,
        and those that were selected begin with what the record found before them.
        """
        self._recovery.state.memory.doubt()
        why_not = passed_over(launch)
        assert why_not is not None
        return result_of(launch, why_not.verdict, why_not.reason)

    def settle(self) -> None:
        """After a launch was judged and written: one that differs and holds, and in isolated mode any that
        differs, leaves the record's memory.

        So what follows is judged on NVIDIA's inputs, and what is within, or noise, does not add up.
        """
        if self._excused is not None:
            (call, changed), self._excused = self._excused, None
            memory = self._recovery.state.memory
            for key, spans in changed.items():
                one = memory.live[key]
                parted = [part for span in spans for part in one.differing.within(*span)]
                known = IntervalSet(part for span in parted for part in one.known.within(*span))
                memory.adopt_pages({key: known}, call, unknown_only=False)
                for span in parted:  # bytes that the record does not know do not part from it
                    one.differing.remove(*span)
                if not one.differing:
                    one.differing_since = None

    def leave_out(self, launch: Launch, why_not: Unavailable) -> tuple[LaunchResult, Ranges]:
        """A launch that is not to be run: the record's memory after it takes its place."""
        return self._without(launch, self.reach(launch), why_not)

    def type_of(self, one: LiveAllocation) -> BufferTypes:
        """What an allocation holds, by the last launch that reached it."""
        launch = self._last.get(one.id)
        if one.array is not None:
            return _texels(one.array.shape.element)
        return EVERYTHING_UNKNOWN if launch is None else self._type(one, launch)

    def reach(self, launch: Launch) -> list[LiveAllocation]:
        """What a launch reaches; noted as the last one that does."""
        reach = self._recovery.state.memory.reach(launch.parameters, launch.module)
        for one in reach:
            self._last[one.id] = launch
        return reach

    def why_left_out(self, launch: Launch, reach: Iterable[LiveAllocation]) -> Unavailable | None:
        """Why a launch cannot or need not run; None for one that can."""
        if not self._selection.contains(launch.call, launch.kernel):
            return LEFT_OUT
        if self._deaths[launch.kernel] >= MAX_DEATHS:
            return TOO_DEADLY
        absent = self._recovery.state.memory.why_absent(launch.parameters)
        memory = self._recovery.state.memory
        sealed = memory.sealed(reach) if isinstance(memory, RedactedMemory) else None
        return absent or next((one.taint for one in reach if one.taint is not None), None) or sealed

    # --- a launch that ran ------------------------------------------------------------------------------

    def judge(
        self,
        call: Call,
        launch: Launch,
        reach: list[LiveAllocation],
        recorded: Ranges,
        replayed: Ranges,
        since: dict[int, int],
        seconds: float,
        *,
        envelope: bool = True,
        earlier: Sequence[Launch] = (),
    ) -> tuple[LaunchResult, Ranges]:
        """The verdict of a launch that ran, by what record and replay have changed after ``launch.call``.

        ``envelope``: the record's memory before that call is what the launch read, so it can be repeated.
        ``earlier`` are the kernels before it in its graph.
        """
        memory = self._recovery.state.memory
        if isinstance(memory, RedactedMemory):
            return self._judge_by_digest(memory, launch, recorded, replayed, seconds)
        compared = compare_memory(
            memory,
            launch.call,
            recorded,
            replayed,
            lambda one: self._type(one, launch),
            lambda one: _name(one, launch),
        )
        if compared.differs and since:
            outputs = self._outputs(launch)
            since = {key: call for key, call in since.items() if key not in outputs}
        verdict, reason = judge_launch(compared, reach, min(since.values(), default=None))
        unmade = (self._unmade_argument(launch) or self._stored_handle(reach)) if compared.differs else None
        if unmade is not None:
            return self._without(launch, reach, unmade, rewrite=True)
        changed = {
            key: IntervalSet([*recorded.get(key, ()), *replayed.get(key, ())])
            for key in {**recorded, **replayed}
        }
        if verdict is Verdict.DIFFERS:
            verdict, reason = self._explained(call, launch, compared, reason, earlier, envelope=envelope)
            if verdict.counts_as is CountsAs.HOLDS or self._noise.learning or self._isolated:
                self._excused = (launch.call, changed)
        memory.adopt_pages(recorded, launch.call, unknown_only=True)
        return result_of(launch, verdict, reason, compared=compared, seconds=seconds), changed

    def inheriting(
        self, result: LaunchResult, launch: Launch, reach: Iterable[LiveAllocation], parted: Mapping[int, int]
    ) -> LaunchResult:
        """The result of a graph's kernel that differs, where what it reads differs since an earlier one.

        ``parted``: allocation → the kernel of this graph since which it differs.
        """
        candidates = {one.id: parted[one.id] for one in reach if one.id in parted}
        outputs = self._outputs(launch) if candidates else set()
        since = [call for key, call in candidates.items() if key not in outputs]
        if not since:
            return result
        reason = f"its inputs already differed after call {min(since)}"
        return replace(result, verdict=Verdict.INHERITED, reason=reason)

    def _judge_by_digest(
        self, memory: RedactedMemory, launch: Launch, recorded: Ranges, replayed: Ranges, seconds: float
    ) -> tuple[LaunchResult, Ranges]:
        verdict, reason = memory.judge(launch.call, recorded, replayed)
        native = self._recovery.state.driver.numerics == "native"
        if verdict is Verdict.DIFFERS and native and self._envelopes.approximates(launch):
            verdict, reason = Verdict.GAP, f"redacted: it computes approximately, and differs in {reason}"
        return result_of(launch, verdict, reason, seconds=seconds), recorded

    def _explained(
        self,
        call: Call,
        launch: Launch,
        compared: Compared,
        reason: str,
        earlier: Sequence[Launch],
        *,
        envelope: bool,
    ) -> tuple[Verdict, str]:
        """The verdict on a launch that differs: NVIDIA's own noise and approximate instructions excuse it."""
        memory = self._recovery.state.memory
        noise = self._noise.explain(call.sequence, launch, compared.buffers, memory, earlier)
        if noise is not None and noise.within:
            return Verdict.NOISE, noise.reason
        reason = reason if noise is None else noise.reason
        if self._recovery.state.driver.numerics != "native":
            return Verdict.DIFFERS, reason
        if not envelope and self._envelopes.approximates(launch):
            return Verdict.GAP, _NO_ENVELOPE
        explained = self._envelopes.explain(call, launch, compared.buffers, memory)
        return Verdict.WITHIN if explained.within else Verdict.DIFFERS, explained.reason or reason

    def _unrecorded(self, launch: Launch, replayed: Ranges, seconds: float) -> tuple[LaunchResult, Ranges]:
        """The record has no memory after this launch: what it wrote here is all there is."""
        memory = self._recovery.state.memory
        for key, spans in replayed.items():
            for start, stop in spans:
                memory.wrote_unrecorded(memory.live[key], start, stop)
        verdict, reason = Verdict.NOT_COMPARED, "the record holds no memory after this launch"
        if launch.call in self.gaps:
            verdict, reason = Verdict.GAP, self.gaps[launch.call]
        return result_of(launch, verdict, reason, seconds=seconds), replayed

    def _unmade_argument(self, launch: Launch) -> Unavailable | None:
        """That a parameter is the handle of an object (a texture's, say) that this replay has not made.

        Such a handle may be a small number, so it is told from one only where the launch went wrong.
        """
        for index, (offset, size) in enumerate(launch.layout or ()):
            for at in range(offset, offset + size - 7, 8):
                value = int.from_bytes(launch.parameters[at : at + 8], "little")
                maker = self._recovery.state.handles.maker_of(value)
                if maker is not None:
                    made = f"parameter {index} is {value:#x}, made by {maker}, which is not replayed"
                    return Unavailable(Verdict.GAP, made)
                for kind in ("texture", "surface"):
                    object = self._recovery.state.handles.get(kind, value)
                    if isinstance(object, Unavailable):
                        return Unavailable(object.verdict, f"{kind} {value:#x}: {object.reason}")
        return None

    def _stored_handle(self, reach: Iterable[LiveAllocation]) -> Unavailable | None:
        """That memory holds the handle of an object which is another here; as :meth:`_unmade_argument`, only
        told where the launch went wrong.
        """
        memory = self._recovery.state.memory
        elsewhere = memory.arrays.elsewhere()
        for one in reach if elsewhere else ():
            if one.array is None and one.size < NESTED_LIMIT:
                words = memoryview(memory.read(one, 0, one.size // 8 * 8)).cast("B").cast("Q")
                for handle in sorted(elsewhere.keys() & set(words)):
                    here = f"it is {elsewhere[handle]:#x} here"
                    return Unavailable(Verdict.GAP, f"memory holds texture or surface {handle:#x}; {here}")
        return None

    def _type(self, one: LiveAllocation, launch: Launch) -> BufferTypes:
        """Only asked where something differs, so a replay that agrees never parses PTX on this side."""
        if one.array is not None:
            return _texels(one.array.shape.element)
        memory = self._recovery.state.memory
        variables = memory.variables(launch.module)
        types = self._launch_types().of(launch, memory.find_place, variables)
        return types.get(one.id, EVERYTHING_UNKNOWN)

    def _outputs(self, launch: Launch) -> set[int]:
        """Allocations that a launch writes and does not read: no inputs, whatever they held before."""
        memory = self._recovery.state.memory
        return self._launch_types().outputs(launch, memory.find_place, memory.variables(launch.module))

    def _launch_types(self) -> LaunchTypes:
        from zluda.diff.types.launches import LaunchTypes

        if self._types is None:
            self._types = LaunchTypes(self._record.trace, self._overrides)
        return self._types

    # --- a launch without a result of its own -----------------------------------------------------------

    def _broke_off(
        self, launch: Launch, reach: list[LiveAllocation], error: Error, differing_since: int | None
    ) -> tuple[LaunchResult, Ranges]:
        """A launch that failed here. One that had begun may have written anything within its reach."""
        failure = death(error) if isinstance(error, RunnerDied) else why(error)
        died = failure.verdict in (Verdict.CRASH, Verdict.HANG)
        began = died or (isinstance(error, UnsupportedError) and error.began)
        if died and differing_since is not None:
            reason = f"{failure.reason}; its inputs already differed after call {differing_since}"
            failure = Unavailable(failure.verdict, reason)
        if died:
            unmade = self._unmade_argument(launch) or self._stored_handle(reach)
            failure = self._failed_there_too(launch) or unmade or failure
            self._deaths[launch.kernel] += 1
        if began:
            if isinstance(error, RunnerDied) or not self._recovery.state.driver.recover():
                self._recovery.rebuild(launch.call)
                reach = self.reach(launch)
            for one in reach:
                self._recovery.state.memory.touched(one, 0, one.size)
        return self._without(launch, reach, failure, rewrite=began)

    def _failed_there_too(self, launch: Launch) -> Unavailable | None:
        """That the recorded launch failed as well: to fail is what it should do."""
        failed = STREAM_FAILED.fullmatch(self.gaps.get(launch.call, ""))
        if failed is None:
            return None
        result = int(failed[1])
        return Unavailable(
            Verdict.NOT_COMPARED, f"it failed on NVIDIA too: {RESULT_NAMES.get(result, result)}"
        )

    def _without(
        self, launch: Launch, reach: list[LiveAllocation], failure: Unavailable, *, rewrite: bool = False
    ) -> tuple[LaunchResult, Ranges]:
        """The record's memory takes the place of a launch's result; where there is none, what it reaches is
        tainted. ``rewrite``: set all that it reaches, not only what it changed.
        """
        state = self._recovery.state
        recorded = state.memory.record_pages(launch.call)
        reason = failure.reason
        if failure.verdict is Verdict.NO_PTX:
            reason += self._library_around(launch)
        if launch.captured or recorded:
            state.memory.adopt_pages(recorded, launch.call, unknown_only=False)
            for one in reach if self._isolated else ():  # whoever runs it, copies of it are judged alike
                one.reached = True
            state.memory.restore(launch.call, [one for one in reach if rewrite or one.taint is not None])
            if failure not in (LEFT_OUT, SEALED):
                reason += FROM_RECORD
        else:
            missing = f"it needs what call {launch.call} ({launch.kernel}) computed"
            state.taint((one.id for one in reach), Unavailable(Verdict.GAP, missing))
        return result_of(launch, failure.verdict, reason), recorded

    def _library_around(self, launch: Launch) -> str:
        """The library call that launched: a library of the host or of ROCm could do its work."""
        trace = self._record.trace
        around = trace.libraries.outermost(trace.call(launch.call))
        return "" if around is None else f", inside {around.function}"


_NO_ENVELOPE = (
    "it differs, and computes approximately; inside a graph its inputs are not on record, "
    "so no envelope can be drawn"
)

_PASSED_OVER = {LeftOut.UNSELECTED: Verdict.NOT_REPLAYED, LeftOut.OVER_BUDGET: Verdict.NOT_COMPARED}


def passed_over(launch: Launch) -> Unavailable | None:
    """Why a launch is not replayed that was recorded without its memory on purpose; None for others."""
    left_out = launch.left_out
    return None if left_out is None else Unavailable(_PASSED_OVER[left_out], left_out.reason)


LEFT_OUT = Unavailable(Verdict.NOT_REPLAYED, "left out by the selection")
TOO_DEADLY = Unavailable(
    Verdict.NOT_REPLAYED, f"not run again: this kernel brought the runner down {MAX_DEATHS} times"
)
FROM_RECORD = "; the record's memory is used after it"
"""What the reason of a launch ends with whose result was not computed here."""


def not_compared(launch: Launch, reason: str) -> LaunchResult:
    """The result of a launch that NVIDIA itself has no result of."""
    return result_of(launch, Verdict.NOT_COMPARED, reason)


def result_of(
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


def _texels(element: str) -> BufferTypes:
    """Of a CUDA array, whose format says what its channels are."""
    return BufferTypes.uniform(layout_named(element)) if element else EVERYTHING_UNKNOWN
