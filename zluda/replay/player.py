"""The player: a trace's calls issued again in their order, each launch and copy judged.

What happens to one call:

1. It failed on NVIDIA, never returned, or was made inside another call: it is not issued. A launch or copy
   then has a verdict that says so.
2. Its context is made current and its handler issues it. A call without a handler that may have changed
   what launches compute is counted, and taints the memory it can have written; a launch that reaches tainted
   memory is a ``gap``.
3. A launch (``launching``): the memory it reaches is digested, it runs, and the union of what record and
   replay changed is compared. In stream mode differences stay in memory, as they would in a live run, and
   launches that read them are ``inherited``. In isolated mode the record's memory takes their place, so that
   each launch runs from its recorded inputs.
4. A launch that could not run, or broke off: the record's memory after it is put in its place, so that those
   after it are judged. Where the record has none, what it reaches is tainted.
5. The runner died (``recovery``): a new one is started, calls that make objects are replayed up to here, and
   memory is set to the record's. So one crash costs one verdict.
6. A graph (``graphs``) is launched: its nodes follow as calls, are issued, and judged when it has ended.
7. A launch that was not selected for the record (``zluda trace --kernel`` and the like) is passed over, and
   all memory doubted; before the next one that was, the record has what it reaches.
8. Contents that the record found without a call's doing (what the host wrote into memory that it shares with
   the GPU; what was there before a launch first reached it) are written into the replay: they are inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zluda.diff.results import LaunchResult, Verdict
from zluda.errors import Error
from zluda.replay.address_plan import AddressPlan
from zluda.replay.conditions import ConditionPlayer
from zluda.replay.envelope import Envelopes
from zluda.replay.graphs import NODES_UNKNOWN, GraphPlayer
from zluda.replay.handlers import Handler, Phase, Source, delivered_to, handler_of, sources_of
from zluda.replay.handles import Unavailable
from zluda.replay.judge import judge_copy
from zluda.replay.kernel_facts import KernelFacts
from zluda.replay.launching import LEFT_OUT, LaunchPlayer, not_compared
from zluda.replay.memory import Ranges
from zluda.replay.names import entry_name
from zluda.replay.noise import NoiseFloor, NoiseLearner
from zluda.replay.output import ReplayWriter
from zluda.replay.playback import Record, why
from zluda.replay.recovery import Recovery, death, decoding, doubt, why_skipped
from zluda.replay.redacted import RedactedMemory
from zluda.replay.session import Session
from zluda.runner import RunnerDied
from zluda.tracefile import Call, Launch, Selection, Trace
from zluda.tracefile.graphs import CONDITIONAL
from zluda.tracefile.graphs import LAUNCH as GRAPH_LAUNCH

if TYPE_CHECKING:
    from zluda.diff.types.override import Override

# Calls without a handler whose effect may reach any memory, not just what their arguments point to.
_REACHES_ANYTHING = ("cuGraphLaunch", "cuLaunch", "cuStreamBatchMemOp", "cuMemcpy3DBatch", "cuMemcpyBatch")


# What nodes of a graph do that is left out with the graph; what they make and free is not.
_NODE_WORK = (Phase.WRITE, Phase.COPY)


NOT_DELIVERED = Unavailable(Verdict.NOT_COMPARED, "the bytes it delivered were not captured")


class Player:
    """Plays one trace, call by call."""

    def __init__(
        self,
        trace: Trace,
        session: Session,
        plan: AddressPlan,
        *,
        selection: Selection,
        output: ReplayWriter | None = None,
        learner: NoiseLearner | None = None,
        overrides: Sequence[Override] = (),
        isolated: bool = False,
    ) -> None:
        """``learner`` gathers what varies; without one it is held against what the trace says of that.
        ``overrides`` are what the user said of buffers' types. ``isolated``: each launch, or graph, begins
        with the record's memory.
        """
        self._trace, self._selection, self._output = trace, selection, output
        self._isolated = isolated
        self.wrong_writes: dict[int, str] = {}  # calls that left other bytes than on record → their functions
        record, facts = Record(trace), KernelFacts(trace)
        self._recovery = Recovery(record, session, plan)
        self._envelopes = Envelopes(record, facts, contract=session.contract, time_limit=session.time_limit)
        noise = learner or NoiseFloor(trace, facts)
        self._launches = LaunchPlayer(
            record, self._recovery, selection, self._envelopes, noise, overrides, isolated=isolated
        )
        self._graphs = GraphPlayer(trace, self._recovery, selection, self._launches)
        self._conditions = ConditionPlayer(trace, self._recovery, self._graphs, session.time_limit)

    @property
    def unplayed(self) -> Counter[str]:
        """Driver functions whose calls had an effect and no handler, with how many calls."""
        return self._recovery.state.unplayed

    @property
    def relocated(self) -> list[dict[str, str | int]]:
        """The allocations that are elsewhere than in the record, in order of their birth, and the texture and
        surface handles that are others.

        Words that point into them were exchanged, in launches' parameters and in memory; handles in
        parameters only.
        """
        state = self._recovery.state
        moved = state.memory.relocated
        handles: list[dict[str, str | int]] = [
            {"kind": "handle", "name": "", "size": 8, "recorded": f"{handle:#x}", "replayed": f"{live:#x}"}
            for handle, live in sorted(state.exchanged.items())
        ]
        return handles + [
            {
                "kind": allocation.kind.value,
                "name": allocation.name or "",
                "size": allocation.size,
                "recorded": f"{allocation.base:#x}",
                "replayed": f"{base:#x}",
            }
            for _, (allocation, base) in sorted(moved.items())
        ]

    def skip_to(self, call: int) -> int:
        """Go on at ``call``, with the record's memory before it; or at an earlier call, which is returned."""
        return self._recovery.skip_to(call)

    def unlike_record(self, call: int) -> str:
        """The first allocation, in words, that reads otherwise than the record has it after ``call``; empty
        where none does. For memory that has just been taken from the record (:meth:`skip_to`).
        """
        memory = self._recovery.state.memory
        for one in memory.live.values():
            for start, stop in one.known:
                recorded = memory.recorded(one, call, start, stop - start)
                replayed = bytes(memory.read(one, start, stop - start))
                if recorded != replayed:
                    at = next(i for i, (x, y) in enumerate(zip(recorded, replayed, strict=True)) if x != y)
                    values = f"{replayed[at : at + 4].hex()}, not {recorded[at : at + 4].hex()}"
                    return f"allocation {one.record.base:#x}+{start + at:#x} reads {values}"
        return ""

    def play(self, call: Call, launch: Launch | None) -> list[LaunchResult]:
        """Play one call, which made ``launch`` if it launched; returns its verdict where it has one.

        The verdicts of a graph's kernels come with the call at its end.
        """
        node = self._trace.graphs.is_node(call)
        if node and self._graphs.is_end(call):
            results, changed = self._end_of_graph(call)
        elif node and self._conditions.is_played(call):
            results, changed = [], {}
        else:
            result, changed = self._play(call, launch, node=node)
            results = [] if result is None else [result]
        if self._output is not None:
            memory, result = self._recovery.state.memory, results[0] if results and not node else None
            self._output.write_call(call, launch, memory, changed, result, node=node)
            if node and launch is None:
                self._output.write_unplayed(results)
        self._launches.settle()
        memory = self._recovery.state.memory
        found = memory.adopt_found(call.sequence)
        if self._output is not None:
            self._output.write_found(call.sequence, memory, found)
        return results

    def close(self) -> None:
        """End what was started to judge launches."""
        self._envelopes.close()

    def _end_of_graph(self, call: Call) -> tuple[list[LaunchResult], Ranges]:
        results, changed = self._graphs.end(call)
        printed = self._printed() if results else ""
        if printed:
            results[-1] = replace(results[-1], printed=printed)
        return results, changed

    def _play(self, call: Call, launch: Launch | None, *, node: bool) -> tuple[LaunchResult | None, Ranges]:
        state = self._recovery.state
        skipped = why_skipped(call, self._trace)
        if skipped is not None:
            state.settle_allocations(call, Unavailable(Verdict.GAP, f"{call.function}: {skipped}"))
            state.bury_allocations(call)
            return None if launch is None else not_compared(launch, skipped), {}
        base = entry_name(call.function).base
        handler = handler_of(state, call, base)
        if base == GRAPH_LAUNCH and not self._graphs.begin(call):
            return self._graphs.unplayed(call.sequence, NODES_UNKNOWN), self._without_handler(call, None)[1]
        if base == GRAPH_LAUNCH:
            self._conditions.begin(call)
        if node and call.function == CONDITIONAL:
            self._conditions.play(call, lambda one, launched: self._play(one, launched, node=True))
            return None, {}
        phase = None if handler is None else handler.phase
        if node and self._graphs.passed_over is not None and (launch is not None or phase in _NODE_WORK):
            self._graphs.pass_over(launch)
            return None, self._settle(call, None)
        if launch is not None and launch.left_out is not None:
            return self._launches.pass_over(launch), self._settle(call, None)
        if launch is not None and phase is Phase.LAUNCH and node:
            self._graphs.play(call, launch)
            self._conditions.take(launch)
            return None, {}
        if launch is not None and phase is Phase.LAUNCH:
            result, changed = self._launches.play(call, launch)
            return replace(result, printed=self._printed()), changed
        if handler is not None and phase is Phase.COPY:
            return self._copy(call, handler, node=node), self._settle(call, None)
        if launch is not None or handler is None or phase is Phase.LAUNCH:
            return self._without_handler(call, launch)
        failure = self._recovery.issue(call, handler)
        if node and phase is Phase.WRITE:
            self._graphs.wrote()
        if node and failure is not None:
            self._graphs.fail(failure)
        return None, self._settle(call, failure, wrote=phase is Phase.WRITE)

    def _printed(self) -> str:
        """What the kernel that was just played printed."""
        state = self._recovery.state
        if not state.prints:
            return ""
        text, lost = state.driver.take_output()
        return text + (f"[{lost}]\n" if lost else "")

    def _without_handler(self, call: Call, launch: Launch | None) -> tuple[LaunchResult | None, Ranges]:
        """A call that is not replayed: harmless, or counted, with what it may have changed in doubt."""
        state = self._recovery.state
        failure = doubt(state, call)
        if failure is None:
            return None, self._settle(call, None)
        state.unplayed[call.function] += 1
        if launch is not None:
            return self._launches.leave_out(launch, failure)
        return None, self._settle(call, failure, wrote=True)

    def _settle(self, call: Call, failure: Unavailable | None, *, wrote: bool = False) -> Ranges:
        """After a call that is no launch: its allocations, and what the record has of memory after it.

        Where the call ``wrote`` and failed here, its effect is taken from the record, or else is in doubt. In
        isolated mode it is taken from the record in any case.
        """
        state = self._recovery.state
        state.settle_allocations(call, failure)
        ranges = state.memory.record_pages(call.sequence)
        from_record = wrote and (failure is not None or self._isolated)
        if wrote and self._isolated and failure is None and self._parts_from(call, ranges):
            self.wrong_writes[call.sequence] = call.function
        if wrote and failure is not None and not ranges:
            self._taint_arguments(call, failure)
        state.memory.adopt_pages(ranges, call.sequence, unknown_only=not from_record)
        state.bury_allocations(call)
        return {key: spans for key, spans in ranges.items() if key in state.memory.live}

    def _parts_from(self, call: Call, ranges: Ranges) -> bool:
        """Whether a call that wrote memory left other bytes there than the record has.

        Of arrays whole pages are on record, with what nobody ever wrote.
        """
        memory = self._recovery.state.memory
        for key, spans in () if isinstance(memory, RedactedMemory) else ranges.items():
            one = memory.live[key]
            for start, stop in (
                spans if one.array is None else [p for s in spans for p in one.known.within(*s)]
            ):
                recorded = memory.recorded(one, call.sequence, start, stop - start, as_left=True)
                if recorded != bytes(memory.read(one, start, stop - start)):
                    return True
        return False

    def _taint_arguments(self, call: Call, failure: Unavailable) -> None:
        """Doubt the allocations that a call's arguments point into; or all, if it can reach anything."""
        state = self._recovery.state
        if call.function.startswith(_REACHES_ANYTHING):
            state.taint(state.memory.live, failure)
            return
        values = [*call.arguments.values(), *call.pointees.values()]
        data = b"".join(v.to_bytes(8, "little") for v in values if isinstance(v, int))
        data += b"".join(v[: len(v) // 8 * 8] for v in values if isinstance(v, bytes))
        state.taint(state.memory.pointed_to(data), failure)

    def _copy(self, call: Call, handler: Handler, *, node: bool) -> LaunchResult:
        """Play and judge a copy to the host."""
        state = self._recovery.state
        try:
            if not self._selection.contains(call.sequence):
                return _unjudged(call, LEFT_OUT)
            with decoding(call):
                state.make_current(call.thread)
                sources = sources_of(state, call, entry_name(call.function).base)
                taint = next((source.one.taint for source in sources if source.one.taint is not None), None)
                if taint is not None:
                    return self._unread_copy(call) or _unjudged(call, taint)
                data = handler.run(state, call)
                assert isinstance(data, bytes)
        except RunnerDied as died:
            self._recovery.rebuild(call.sequence)
            if node:
                self._graphs.fail(death(died))
            return _unjudged(call, death(died))
        except Error as error:
            return _unjudged(call, why(error))
        parameter = delivered_to(call)
        if self._output is not None:
            self._output.delivered(parameter, data)
        if isinstance(state.memory, RedactedMemory):
            return state.memory.judge_copy(call, parameter, sources, data)
        recorded = self._trace.payload(call.sequence, parameter)
        if recorded is not None and sources[0].one.array is None:
            recorded = state.memory.translate_words(recorded)
        return self._judge_copy(call, sources, recorded, data)

    def _unread_copy(self, call: Call) -> LaunchResult | None:
        """The result of a copy that was recorded without what it delivered, where launches were selected."""
        selected = self._trace.meta.get("selection") and not self._trace.payload_digests(
            call.sequence, delivered_to(call)
        )
        return _unjudged(call, NOT_DELIVERED) if selected else None

    def _judge_copy(
        self, call: Call, sources: list[Source], recorded: bytes | None, data: bytes
    ) -> LaunchResult:
        """One result of what several allocations delivered."""
        results, at = [], 0
        for one, spans in sources:
            end = at + sum(stop - start for start, stop in spans)
            part = None if recorded is None else recorded[at:end]
            results.append(judge_copy(call, one, spans, part, data[at:end], self._launches.type_of))
            at = end
        compared = [one for one in results if one.verdict is not Verdict.NOT_COMPARED] or results
        found = max(compared, key=lambda one: one.verdict.severity)
        return replace(found, buffers=tuple(buffer for one in results for buffer in one.buffers))


def _unjudged(call: Call, reason: Unavailable) -> LaunchResult:
    return LaunchResult(call.sequence, "copy", call.function, reason.verdict, reason.reason)
