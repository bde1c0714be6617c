"""The playback under way, and making it anew when the runner died.

A new runner has nothing. So the calls that make and end objects are issued again up to the call that is being
judged, and memory is set to what the record has after it; what the record cannot tell is tainted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager

from zluda.diff.results import Verdict
from zluda.driver import RESULT_NAMES
from zluda.errors import Error
from zluda.replay.address_plan import AddressPlan
from zluda.replay.handlers import Handler, Phase, created, handler_of
from zluda.replay.handles import Unavailable, Unplayable
from zluda.replay.names import changes_state, entry_name
from zluda.replay.playback import Playback, Record, why
from zluda.replay.redacted import is_redacted
from zluda.replay.session import Session
from zluda.runner import RunnerDied
from zluda.tracefile import Call, Trace
from zluda.tracefile.graphs import LAUNCH as GRAPH_LAUNCH

_LOST = Unavailable(Verdict.GAP, "its inputs were lost with a runner that died")


class Recovery:
    """Holds the current :attr:`state`; :meth:`rebuild` replaces it."""

    def __init__(self, record: Record, session: Session, plan: AddressPlan) -> None:
        self._record, self._session, self._plan = record, session, plan
        self._fatal: dict[int, Unavailable] = {}  # calls that brought the runner down: not issued again
        self.state = self._start()

    def _start(self) -> Playback:
        return Playback(self._record, self._session.driver, self._session, self._plan)

    def issue(self, call: Call, handler: Handler) -> Unavailable | None:
        """Issue a call that is not judged; if it fails, the reason, which holds for what it makes too."""
        try:
            failure = self._try(self.state, call, handler)
        except RunnerDied as died:
            failure = self._fatal[call.sequence] = death(died)
            self.rebuild(call.sequence - 1)
        if failure is not None:
            _spoil(self.state, call, handler, failure)
        return failure

    def _try(self, state: Playback, call: Call, handler: Handler) -> Unavailable | None:
        if call.sequence in self._fatal:
            return self._fatal[call.sequence]
        try:
            with decoding(call):
                state.make_current(call.thread)
                handler.run(state, call)
        except RunnerDied:
            raise
        except Error as error:
            return why(error)
        return None

    def rebuild(self, upto: int) -> None:
        """A new runner in the state that the record has after call ``upto``."""
        old = self.state
        while True:
            self._session.restart()
            self.state = self._start()
            try:
                for call in self._record.trace.iter_calls(0, upto + 1):
                    self._issue_again(call)
            except RunnerDied:  # its call is on the list now, and the list is finite
                continue
            break
        self.state.unplayed, self.state.exchanged = old.unplayed, old.exchanged
        self._restore_memory(old, upto)

    def follow(self, first: int, upto: int) -> None:
        """Issue those calls of ``first`` to ``upto``, which is not included, that make and end objects.

        Memory stays as it is. Raises RunnerDied.
        """
        for call in self._record.trace.iter_calls(first, upto):
            self._issue_again(call)

    def skip_to(self, upto: int) -> int:
        """Come to the state before call ``upto`` with the record's memory, running no launch; or to that
        before an earlier call, whose effect is not on record. Returns the call that is next.

        Only on a playback that has not begun.
        """
        trace = self._record.trace
        if trace.meta.get("selection") or is_redacted(trace):
            return 0
        unknown = {one.call for one in trace.iter_launches(0, upto) if not one.captured}
        following = 0
        try:
            for call in trace.iter_calls(0, upto):
                if not self._is_on_record(call, unknown):
                    break
                self._issue_again(call)
                self._know(call)
                following = call.sequence + 1
        except RunnerDied:  # on the list of what kills by now
            self._session.restart()
            self.state = self._start()
            return 0
        self.state.memory.restore(following - 1)
        return following

    def _is_on_record(self, call: Call, unknown: Container[int]) -> bool:
        """Whether the record has all that a call changes; ``unknown`` are launches of which it has not."""
        trace = self._record.trace
        if why_skipped(call, trace) is not None or trace.graphs.is_node(call):
            return True  # of a graph, memory is on record at its end
        base = entry_name(call.function).base
        if base == GRAPH_LAUNCH:
            end = trace.graphs.end(call.sequence)
            return end is not None and trace.call(end).result == 0
        handler = handler_of(self.state, call, base)
        if handler is None:
            return not changes_state(call.function)
        if handler.phase is Phase.WRITE:
            return call.sequence in trace.calls_with_pages
        return handler.phase is not Phase.LAUNCH or call.sequence not in unknown

    def _know(self, call: Call) -> None:
        """The record's contents after ``call`` are known from now on."""
        trace, live = self._record.trace, self.state.memory.live
        if call.sequence not in trace.calls_with_pages:
            return
        for page in (*trace.pages(call.sequence), *trace.found_pages(call.sequence)):
            one = live.get(page.allocation)
            if one is not None:
                one.known.add(page.offset, min(page.offset + page.length, one.size))
                one.reached = True

    def _issue_again(self, call: Call) -> None:
        """A call on the way to the call being judged: only objects are made, memory comes from the record."""
        state = self.state
        skipped = why_skipped(call, self._record.trace)
        handler = handler_of(state, call, entry_name(call.function).base)
        failure: Unavailable | None = None
        if skipped is not None:
            failure = Unavailable(Verdict.GAP, f"{call.function}: {skipped}")
        elif handler is None:
            failure = doubt(state, call)
        elif handler.phase is Phase.SETUP:
            try:
                failure = self._try(state, call, handler)
            except RunnerDied as died:
                self._fatal[call.sequence] = death(died)
                raise
            if failure is not None:
                _spoil(state, call, handler, failure)
        state.settle_allocations(call, failure)
        state.bury_allocations(call)

    def _restore_memory(self, old: Playback, upto: int) -> None:
        memory = self.state.memory
        for key, one in memory.live.items():
            before = old.memory.live.get(key)
            if before is None:
                continue
            one.known, one.reached = before.known, before.reached
            memory.restore(upto, [one])
            one.taint = _LOST if before.unrecorded or before.doubted else before.taint


@contextmanager
def decoding(call: Call) -> Iterator[None]:
    """A call whose recorded signature lacks an argument (damaged, or of another CUDA) is unplayable."""
    try:
        yield
    except KeyError as missing:
        reason = f"{call.function}: its argument {missing} is not on record"
        raise Unplayable(Unavailable(Verdict.GAP, reason)) from missing


def why_skipped(call: Call, trace: Trace | None = None) -> str | None:
    """Why a call is not issued at all; None for one that is. Nodes of graphs are told by the ``trace``."""
    if call.parent is not None and not (trace is not None and _counts(call, trace)):
        return f"it was made inside call {call.parent}"
    if call.result is None:
        return "the record ends inside this call"
    if call.result != 0:
        return f"it failed on NVIDIA: {RESULT_NAMES.get(call.result, call.result)}"
    return None


def _counts(call: Call, trace: Trace) -> bool:
    """Whether a call inside another one is issued: the driver's own are not, those of libraries and of
    graphs are.
    """
    return trace.libraries.inside(call) is not None or trace.graphs.is_node(call)


def doubt(state: Playback, call: Call) -> Unavailable | None:
    """Note a call without a handler; why what it made or changed cannot be relied on, None if harmless."""
    if not changes_state(call.function):
        return None
    state.handles.note_unplayed(call)
    return Unavailable(Verdict.GAP, f"{call.function} is not replayed")


def death(died: RunnerDied) -> Unavailable:
    """The verdict on what a runner died of."""
    return Unavailable(Verdict.HANG if died.reason == "hang" else Verdict.CRASH, str(died))


def _spoil(state: Playback, call: Call, handler: Handler, failure: Unavailable) -> None:
    if handler.creates is not None:
        kind, parameter = handler.creates
        recorded = created(call, parameter)
        if recorded is not None:
            state.handles.bind(kind, recorded, failure)
    if handler.spoils is not None:
        kind, parameter = handler.spoils
        state.handles.bind(kind, call.arguments.get(parameter, 0), failure)
