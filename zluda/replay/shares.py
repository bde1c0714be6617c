"""Which of several runners runs which launches of an isolated replay.

Every runner goes through all calls, and takes the record's memory in place of what launches of others
computed. A kernel's launches stay together, so that few runners compile it; a kernel with more than its part
of all launches is divided. What is planned depends on the trace and the number of runners alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from zluda.records import dataclass
from zluda.tracefile import Call, Launch, Selection, Trace


@dataclass(slots=True)
class Plan:
    """``owner``: call → the runner that runs and judges it; calls that are not in it are the first one's.
    ``shared`` are run by all: the record does not know what they wrote, and others may need it.
    """

    owner: dict[int, int] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)


class Share:
    """The calls of one runner."""

    def __init__(self, plan: Plan, runner: int) -> None:
        self._plan, self._runner = plan, runner

    def __contains__(self, call: object) -> bool:
        """Whether it runs a call."""
        return call in self._plan.shared or self.owns(call)

    def owns(self, call: object) -> bool:
        """Whether its result of a call is the one that counts."""
        return self._plan.owner.get(call, 0) == self._runner  # type: ignore[call-overload, no-any-return]


@dataclass(slots=True)
class _Unit:
    """What is run as a whole: a launch, or all kernels of a graph's launch."""

    kernel: str
    calls: list[int]
    shared: bool


def plan_shares(trace: Trace, selection: Selection, runners: int) -> Plan:
    """Divide the launches that ``selection`` contains among so many runners."""
    plan, groups = Plan(), dict[str, list[_Unit]]()
    for unit in _units(trace, selection):
        groups.setdefault(unit.kernel, []).append(unit)
        if unit.shared:
            plan.shared.update(unit.calls)
    total = sum(len(units) for units in groups.values())
    most = max(-(-total // runners), 1)
    pieces = [units[at : at + most] for units in groups.values() for at in range(0, len(units), most)]
    loads = [0] * runners
    for piece in sorted(pieces, key=len, reverse=True):  # stable: the record's order among equals
        runner = loads.index(min(loads))
        loads[runner] += len(piece)
        plan.owner.update((call, runner) for unit in piece for call in unit.calls)
    return plan


def _units(trace: Trace, selection: Selection) -> Iterator[_Unit]:
    graph: _Unit | None = None
    end = -1
    for launch in trace.iter_launches():
        if graph is not None and launch.call <= end:
            graph.calls.append(launch.call)
            continue
        if graph is not None:
            yield graph
            graph = None
        call = trace.call(launch.call)
        if trace.graphs.is_node(call):
            found = trace.graphs.end(call.parent if call.parent is not None else -1)
            end = call.sequence if found is None else found
            graph = _Unit(launch.kernel, [launch.call], shared=trace.call(end).result != 0)
        elif selection.contains(launch.call, launch.kernel):
            yield _Unit(launch.kernel, [launch.call], shared=_is_shared(call, launch))
    if graph is not None:
        yield graph


def _is_shared(call: Call, launch: Launch) -> bool:
    return not launch.captured and launch.left_out is None and call.result == 0
