"""One handler for each driver entry that is replayed, in one table, a module a subject.

A handler decodes a recorded call, turns its handles and addresses into live ones, and issues it. It raises
``Unplayable`` where it cannot, and lets the driver's errors through; the player decides what they mean.
To add an entry, write a function with ``@handles("cuXyz")`` in the module of its subject.
"""

from zluda.replay.handlers import code, contexts, launches, memory, streams
from zluda.replay.handlers.table import HANDLERS, Handler, Phase, created
from zluda.replay.playback import Playback
from zluda.tracefile import Call

__all__ = [
    "HANDLERS",
    "UNIFIED_COPIES",
    "Handler",
    "Phase",
    "code",
    "contexts",
    "created",
    "handler_of",
    "launches",
    "memory",
    "streams",
]

UNIFIED_COPIES = frozenset(("cuMemcpy", "cuMemcpyAsync"))


def handler_of(state: Playback, call: Call, base: str) -> Handler | None:
    """The handler of a call of entry ``base``; None where it has none."""
    if base in UNIFIED_COPIES:
        return memory.unified_copy(state, call)
    return HANDLERS.get(base)
