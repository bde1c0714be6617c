"""One handler for each driver entry that is replayed, in one table, a module a subject.

A handler decodes a recorded call, turns its handles and addresses into live ones, and issues it. It raises
``Unplayable`` where it cannot, and lets the driver's errors through; the player decides what they mean.
To add an entry, write a function with ``@handles("cuXyz")`` in the module of its subject.
"""

from collections.abc import Callable

from zluda.replay.handlers import (
    arrays,
    boxes,
    code,
    contexts,
    graphs,
    launches,
    memory,
    memory_operations,
    streams,
)
from zluda.replay.handlers.memory import Source
from zluda.replay.handlers.table import HANDLERS, Handler, Phase, created
from zluda.replay.playback import Playback
from zluda.tracefile import Call

__all__ = [
    "HANDLERS",
    "UNIFIED_COPIES",
    "Handler",
    "Phase",
    "Source",
    "arrays",
    "boxes",
    "code",
    "contexts",
    "created",
    "delivered_to",
    "graphs",
    "handler_of",
    "launches",
    "memory",
    "memory_operations",
    "sources_of",
    "streams",
]

_RESOLVERS: dict[str, Callable[[Playback, Call], Handler]] = {
    **dict.fromkeys(("cuMemcpy", "cuMemcpyAsync"), memory.unified_copy),
    **dict.fromkeys(boxes.BOX_COPIES, boxes.box_copy),
}
"""Entries that are one thing or another by their arguments."""

UNIFIED_COPIES = frozenset(_RESOLVERS)

_SOURCES = {
    **dict.fromkeys(boxes.BOX_COPIES, boxes.box_source),
    **dict.fromkeys(("cuMemcpyAtoH", "cuMemcpyAtoHAsync"), boxes.array_source),
}


def handler_of(state: Playback, call: Call, base: str) -> Handler | None:
    """The handler of a call of entry ``base``; None where it has none."""
    if base in _RESOLVERS:
        return _RESOLVERS[base](state, call)
    return HANDLERS.get(base)


def sources_of(state: Playback, call: Call, base: str) -> list[Source]:
    """What a copy to the host, of entry ``base``, reads, one allocation after the other."""
    source_of = _SOURCES.get(base)
    return memory.sources_of(state, call) if source_of is None else [source_of(state, call)]


def delivered_to(call: Call) -> str:
    """The parameter whose payload is what NVIDIA delivered."""
    return next(name for name in ("dstHost", "pCopy", "dst") if name in call.arguments)
