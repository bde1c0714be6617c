"""The table of handlers: driver entry → what it does and how it is issued again."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TypeVar

from zluda.diff.results import Verdict
from zluda.records import dataclass
from zluda.replay.handles import Unavailable, Unplayable
from zluda.replay.playback import Playback
from zluda.tracefile import Call


class Phase(Enum):
    """What a call does: when it is replayed, and what is looked at afterwards."""

    SETUP = auto()  # makes or ends objects: also replayed to rebuild a runner that died
    WRITE = auto()  # changes device memory with what the record holds
    SYNC = auto()  # orders or waits
    COPY = auto()  # delivers device memory to the host: judged (``copies.deliver``)
    LAUNCH = auto()  # judged (``launches.issue``)


Run = Callable[[Playback, Call], object]
SomeRun = TypeVar("SomeRun", bound=Run)
Named = tuple[str, str]
"""(kind of handle, name of the parameter that holds it)"""


@dataclass(frozen=True, slots=True)
class Handler:
    """``run`` issues the call.

    When it fails, the handle that it ``creates`` (an out parameter) or ``spoils`` (a parameter) is
    unavailable from then on.
    """

    phase: Phase
    run: Run
    creates: Named | None = None
    spoils: Named | None = None


HANDLERS: dict[str, Handler] = {}


def handles(
    *entries: str, phase: Phase = Phase.SETUP, creates: Named | None = None, spoils: Named | None = None
) -> Callable[[SomeRun], SomeRun]:
    """Put a function into the table under the entries it handles."""

    def register(run: SomeRun) -> SomeRun:
        for entry in entries:
            HANDLERS[entry] = Handler(phase, run, creates, spoils)
        return run

    return register


def gap(reason: str) -> Unplayable:
    """The error of a call that cannot be issued here."""
    return Unplayable(Unavailable(Verdict.GAP, reason))


def created(call: Call, parameter: str) -> int | None:
    """The handle that a call put where ``parameter`` points; None where it was not captured."""
    value = call.pointees.get(parameter)
    return value if isinstance(value, int) else None


def bind(state: Playback, call: Call, named: Named, live: int) -> int:
    """The object that a call made is ``live`` here; returns its recorded handle."""
    kind, parameter = named
    recorded = created(call, parameter)
    if recorded is None:
        raise gap(f"{call.function}: the {kind} it made was not captured")
    state.handles.bind(kind, recorded, live)
    return recorded


def device(call: Call) -> int:
    """Recorded devices are ordinals; a replay has one device."""
    ordinal = call.arguments["dev"]
    if ordinal:
        raise gap(f"{call.function}: device {ordinal}; one device is replayed")
    return 0


def signed(word: int) -> int:
    """A C ``int`` from its recorded word."""
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word
