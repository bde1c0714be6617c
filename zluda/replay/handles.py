"""Recorded handles and addresses to those of this replay.

A handle *value* may be used again after its object is gone, so binding a value again starts a new generation
and the old one is forgotten. An object that this replay could not make is bound to the :class:`Unavailable`
that says why; whatever needs it inherits that verdict.
"""

from __future__ import annotations

from zluda.diff.results import Verdict
from zluda.errors import Error
from zluda.records import dataclass
from zluda.tracefile import Call


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why an object of the record has no live counterpart."""

    verdict: Verdict
    reason: str


class Unplayable(Error):
    """A recorded call that cannot be issued here; carries the verdict for launches that depend on it."""

    def __init__(self, why: Unavailable) -> None:
        self.why = why
        super().__init__(why.reason)


# Handle values with a meaning of their own: the default streams (cuda.h CU_STREAM_LEGACY,
# CU_STREAM_PER_THREAD).
_STREAM_CONSTANTS = (0, 1, 2)


class HandleMap:
    """One map for each kind of object: ``context module library function stream event``.

    Kernels and functions are one kind, since ``cuLaunchKernel`` takes either.
    """

    def __init__(self) -> None:
        self._live: dict[tuple[str, int], int | Unavailable] = {}
        self._unplayed: dict[int, str] = {}  # value that an unplayed call gave out → its function
        for stream in _STREAM_CONSTANTS:
            self._live["stream", stream] = stream

    def bind(self, kind: str, recorded: int, live: int | Unavailable) -> None:
        """``recorded`` now names the object ``live``."""
        self._live[kind, recorded] = live

    def release(self, kind: str, recorded: int) -> None:
        """``recorded`` names nothing any more."""
        if not (kind == "stream" and recorded in _STREAM_CONSTANTS):
            self._live.pop((kind, recorded), None)

    def live(self, kind: str, recorded: int) -> int:
        """The live handle; raises :class:`Unplayable` where there is none."""
        found = self._live.get((kind, recorded))
        if found is None:
            maker = self._unplayed.get(recorded)
            made = f"was made by {maker}, which is not replayed" if maker else "is not on record"
            raise Unplayable(Unavailable(Verdict.GAP, f"{kind} {recorded:#x} {made}"))
        if isinstance(found, Unavailable):
            raise Unplayable(found)
        return found

    def note_unplayed(self, call: Call) -> None:
        """Remember which call gave out handles that nothing here stands for."""
        for value in call.pointees.values():
            if isinstance(value, int) and value:
                self._unplayed[value] = call.function

    def maker_of(self, value: int) -> str | None:
        """The function, not replayed, whose call gave out this value."""
        return self._unplayed.get(value)

    def known(self, kind: str, recorded: int) -> bool:
        """Whether any recorded call, replayed or not, gave out this handle."""
        return (kind, recorded) in self._live or recorded in self._unplayed

    def get(self, kind: str, recorded: int) -> int | Unavailable | None:
        """As :meth:`live`, without raising."""
        return self._live.get((kind, recorded))
