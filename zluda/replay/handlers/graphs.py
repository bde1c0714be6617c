"""Building graphs, and callbacks: on record, and nothing to issue.

What a graph does is issued node by node when it is launched (``zluda.replay.graphs``). What is captured from
a stream is inside the call that began the capture, and calls inside others are not issued. What a callback
wrote is in the record of the calls that used it.
"""

from __future__ import annotations

from zluda.replay.handlers.table import Phase, created, gap, handles
from zluda.replay.playback import Playback
from zluda.tracefile import Call

_NODES = ("Kernel", "Memcpy", "Memset", "Host", "ChildGraph", "Empty", "EventRecord", "EventWait", "MemAlloc")
_SETTERS = ("Kernel", "Memcpy", "Memset", "Host")
_EVENTS = ("EventRecord", "EventWait")
_ASSIGN_DEFAULT = 1  # CU_GRAPH_COND_ASSIGN_DEFAULT


@handles(
    *("cuStreamBeginCapture", "cuStreamBeginCaptureToGraph", "cuStreamEndCapture"),
    "cuStreamUpdateCaptureDependencies",
    *("cuGraphCreate", "cuGraphDestroy", "cuGraphDestroyNode", "cuGraphClone"),
    *(f"cuGraphAdd{node}Node" for node in (*_NODES, "MemFree", "")),
    *("cuGraphAddDependencies", "cuGraphRemoveDependencies"),
    *(f"cuGraph{node}NodeSetParams" for node in (*_SETTERS, "")),
    *(f"cuGraph{node}NodeSetEvent" for node in _EVENTS),
    *("cuGraphKernelNodeSetAttribute", "cuGraphKernelNodeCopyAttributes"),
    *("cuGraphInstantiate", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams"),
    *("cuGraphUpload", "cuGraphExecDestroy", "cuGraphExecUpdate", "cuGraphNodeSetEnabled"),
    *(f"cuGraphExec{node}NodeSetParams" for node in (*_SETTERS, "ChildGraph", "")),
    *(f"cuGraphExec{node}NodeSetEvent" for node in _EVENTS),
    *("cuGraphRetainUserObject", "cuGraphReleaseUserObject"),
    *("cuUserObjectCreate", "cuUserObjectRetain", "cuUserObjectRelease", "cuDeviceGraphMemTrim"),
)
def on_record(state: Playback, call: Call) -> None:
    """Nothing to issue."""


@handles("cuGraphConditionalHandleCreate")
def create_condition(state: Playback, call: Call) -> None:
    """The handle stays what it is, since kernels have it among their parameters."""
    handle = created(call, "pHandle_out")
    if handle is None:
        raise gap(f"{call.function}: the handle it made was not captured")
    assigned = call.arguments["flags"] & _ASSIGN_DEFAULT
    state.conditions[handle] = call.arguments["defaultLaunchValue"] & 0xFFFFFFFF if assigned else None


@handles("cuGraphLaunch", "cuLaunchHostFunc", "cuStreamAddCallback", phase=Phase.SYNC)
def in_order(state: Playback, call: Call) -> None:
    """A graph's nodes follow as calls of their own; callbacks are the program's, which is not here."""
