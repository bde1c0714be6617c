"""Conditional nodes of graphs: a replay finds out by itself how often their bodies run.

The record has the nodes of each body once, between calls that stand for the conditional node. What a kernel
sets by ``cudaGraphSetConditional`` is in a table of its module (``compiler/services/conditional.cu``), which
is taken after each kernel of a graph; the condition decides as the CUDA C++ Programming Guide says
("Conditional Graph Nodes"). NVIDIA's own driver lets conditions be set inside a graph only, and a replay runs
a graph's nodes one by one: there such a graph is a gap.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from zluda.compiler.services import CONDITION_PLACES, CONDITIONS
from zluda.diff.results import Verdict
from zluda.driver import CudaError
from zluda.errors import Error, TraceError
from zluda.replay.graphs import GraphPlayer
from zluda.replay.handles import Unavailable
from zluda.replay.playback import Playback, why
from zluda.replay.recovery import Recovery
from zluda.tracefile import Call, Launch, Trace
from zluda.tracefile.graphs import CONDITIONAL, CONDITIONAL_BODY, CONDITIONAL_END
from zluda.tracefile.schema import CONDITIONAL_NODES

IF, WHILE, SWITCH = range(3)
"""``CUgraphConditionalNodeType``."""

LOOP_SECONDS = 60.0
"""A loop that goes on for longer has no end here, where a replay has no limit of its own."""

_PLACE = struct.Struct("<QI4x")
_TABLE_BYTES = CONDITION_PLACES * _PLACE.size
_MOST_DEPTH = 32  # CUDA's own limit is lower
_NATIVE = Unavailable(
    Verdict.GAP, "its conditions can be set inside a graph only, and its nodes are replayed one by one"
)

Step = Callable[[Call, Launch | None], object]
"""Plays one node that is no conditional one."""


@dataclass
class _Conditional:
    """A conditional node and the nodes of its bodies."""

    call: Call
    bodies: list[list[_Conditional | Call]] = field(default_factory=list)

    @property
    def handle(self) -> int:
        return _handle(self.call)

    @property
    def kind(self) -> int:
        return self.call.arguments.get("type", IF) & 0xFFFFFFFF

    def nodes(self) -> Iterator[Call]:
        for one in (one for body in self.bodies for one in body):
            if isinstance(one, Call):
                yield one
            else:
                yield from one.nodes()

    def chosen(self, value: int) -> list[_Conditional | Call] | None:
        """The body that runs when the condition has this value; None where none does."""
        first = 0 if value else len(self.bodies)
        index = {IF: 0 if value else 1, SWITCH: value}.get(self.kind, first)  # an `if` may have an `else`
        return self.bodies[index] if index < len(self.bodies) else None


class ConditionPlayer:
    """Plays the conditional nodes of the graph that is being played."""

    def __init__(self, trace: Trace, recovery: Recovery, graphs: GraphPlayer, limit: float | None) -> None:
        """``limit``: seconds that a loop may take."""
        self._trace, self._recovery, self._graphs = trace, recovery, graphs
        self._limit = LOOP_SECONDS if limit is None else limit
        self._any = CONDITIONAL_NODES in trace.meta.get("requires", ())
        self._values: dict[int, int] = {}
        self._tables: dict[int, int | None] = {}  # module → its table
        self._played_to = -1
        self._ran: set[int] = set()

    def begin(self, launch: Call) -> None:
        """A graph is launched: its conditions have the values that they were made with."""
        end = self._trace.graphs.end(launch.sequence) if self._any else None
        if end is None:
            return
        state, conditional = self._recovery.state, False
        for call in self._trace.iter_calls(launch.sequence + 1, end):
            if call.function != CONDITIONAL:
                continue
            conditional, handle = True, _handle(call)
            if handle not in state.conditions:
                reason = f"the call that made its condition {handle:#x} is not on record"
                self._graphs.fail(Unavailable(Verdict.GAP, reason))
            elif (value := state.conditions[handle]) is not None:
                self._values[handle] = value
        if conditional and state.native:
            self._graphs.fail(_NATIVE)

    def is_played(self, call: Call) -> bool:
        """Whether ``call``, a node, was played with the conditional node that it is part of."""
        return call.sequence <= self._played_to

    def play(self, call: Call, step: Step) -> None:
        """Play a conditional node, whose call ``call`` is, and all that is inside it."""
        end = self._trace.graphs.end(call.parent if call.parent is not None else -1)
        calls = self._trace.iter_calls(call.sequence + 1, end)
        whole, self._played_to = _parsed(call, calls)
        self._ran = set()
        if self._graphs.plays:
            self._run(whole, step)
        for node in whole.nodes():
            if node.sequence not in self._ran:
                self._leave_out(node, step)

    def take(self, launch: Launch) -> None:
        """A kernel of a graph has run: take the conditions that it set."""
        state = self._recovery.state
        if not self._any or state.native or not self._graphs.plays:
            return
        try:
            table = self._table(state, launch)
            if table is None:
                return
            state.driver.cuCtxSetCurrent(state.context)
            content = state.driver.cuMemcpyDtoH(table, _TABLE_BYTES)
            if any(content):
                state.driver.cuMemsetD8(table, 0, _TABLE_BYTES)
        except Error as error:
            self._graphs.fail(why(error))
            return
        self._values |= {handle: value for handle, value in _PLACE.iter_unpack(content) if handle}

    def _table(self, state: Playback, launch: Launch) -> int | None:
        """Where the table of a kernel's module is; None where it sets no conditions."""
        number = state.record.functions[launch.function].module
        module = state.modules.get(number) if number is not None else None
        if not isinstance(module, tuple):
            return None
        kind, live = module
        ask = state.driver.cuLibraryGetGlobal if kind == "library" else state.driver.cuModuleGetGlobal
        try:
            return ask(live, CONDITIONS)[0]
        except CudaError as error:
            if error.name != "CUDA_ERROR_NOT_FOUND":
                raise
            return None

    def _run(self, node: _Conditional, step: Step) -> None:
        rounds, started = 0, time.monotonic()
        while self._graphs.plays and not (rounds and node.kind != WHILE):
            body = node.chosen(self._values.get(node.handle, 0))
            if body is None:
                return
            if rounds and time.monotonic() - started > self._limit:
                reason = f"the loop of its conditional node has no end: {rounds} rounds in {self._limit:g} s"
                self._graphs.fail(Unavailable(Verdict.HANG, reason))
                return
            for one in body:
                if isinstance(one, _Conditional):
                    self._run(one, step)
                else:
                    self._ran.add(one.sequence)
                    step(one, self._launch(one))
            rounds += 1

    def _leave_out(self, node: Call, step: Step) -> None:
        """A node that never ran."""
        launch = self._launch(node)
        if not self._graphs.plays:
            step(node, launch)  # which says why
        elif launch is not None:
            self._graphs.stay_idle(node, launch)

    def _launch(self, call: Call) -> Launch | None:
        return next(self._trace.iter_launches(call.sequence, call.sequence + 1), None)


def _handle(call: Call) -> int:
    return call.arguments.get("handle", 0)


def _parsed(call: Call, calls: Iterator[Call], depth: int = 0) -> tuple[_Conditional, int]:
    """The node that begins with ``call``, of which ``calls`` are what follows; and the call at its end."""
    node, last = _Conditional(call), call.sequence
    for one in calls:
        last = one.sequence
        if one.function == CONDITIONAL_END:
            break
        if one.function == CONDITIONAL_BODY:
            node.bodies.append([])
        elif not node.bodies or depth == _MOST_DEPTH:
            raise TraceError("damaged: a conditional node without bodies, or in too many others", call=last)
        elif one.function == CONDITIONAL:
            inner, last = _parsed(one, calls, depth + 1)
            node.bodies[-1].append(inner)
        else:
            node.bodies[-1].append(one)
    return node, last
