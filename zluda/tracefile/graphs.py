"""Launches of CUDA graphs on record: calls with the graph's nodes inside them.

The call that launched a graph is followed by one call for each node, inside it, as the driver entry that
does the same on a stream; the last of them is a ``cuStreamQuery``, the graph's end: 0 where the recorder
waited for the graph and looked at the memory that it reaches. Memory cannot be read between nodes, so what a
graph changed is on record after its end.

A conditional node (in a trace that requires ``conditional nodes``) is a call of ``zluda_conditional``, which
no driver has: the handle of its condition, ``CUgraphConditionalNodeType``, and how many graphs it has. A
call of ``zluda_body`` stands before the nodes of each of these, ``zluda_conditional_end`` after the last. How
often a body ran is not on record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zluda.tracefile.reader import Trace
    from zluda.tracefile.records import Call

LAUNCH, END = "cuGraphLaunch", "cuStreamQuery"
"""How the names of a graph's launch and of the call at its end begin."""

CONDITIONAL, CONDITIONAL_BODY, CONDITIONAL_END = "zluda_conditional", "zluda_body", "zluda_conditional_end"
"""What stands around the graphs of a conditional node."""


class GraphLaunches:
    """Which calls of a trace stand for nodes of graphs."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._ends: dict[int, int | None] = {}  # call → the end of the graph that it launched

    def end(self, launch: int) -> int | None:
        """The call at the end of the graph that ``launch`` launched; None where its nodes are not known."""
        if launch not in self._ends:
            self._ends[launch] = self._find_end(launch)
        return self._ends[launch]

    def is_node(self, call: Call) -> bool:
        """Whether a call stands for a node, or for the end, of a graph: it was not made by the program."""
        if call.parent is None or call.parent >= call.sequence:
            return False
        end = self.end(call.parent)
        return end is not None and call.sequence <= end

    def _find_end(self, launch: int) -> int | None:
        calls = self._trace.iter_calls(launch)
        first = next(calls, None)
        if first is None or first.sequence != launch or not first.function.startswith(LAUNCH):
            return None
        end = None
        for call in calls:
            if call.parent != launch:
                break
            end = call.sequence
            if call.function.startswith(END):
                break
        return end
