"""What one check found."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Any

from zluda.records import dataclass


class State(StrEnum):
    """``OK``; ``ABSENT``: not there, which is no fault; ``WARNING``: works, with a reservation; ``FAULT``."""

    OK = "ok"
    ABSENT = "absent"
    WARNING = "warning"
    FAULT = "fault"


_MARKS = {State.OK: "✓", State.ABSENT: "–", State.WARNING: "!", State.FAULT: "✗"}


@dataclass(frozen=True, slots=True)
class Check:
    """``name`` is the subject, ``found`` what is there, ``fix`` what to do where that is not enough.

    ``needed_for`` are the uses that a fault, or an absence, rules out (keys of ``report.USES``).
    """

    name: str
    state: State
    found: str
    fix: str = ""
    needed_for: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether what it is needed for can be."""
        return self.state in (State.OK, State.WARNING)

    def lines(self) -> list[str]:
        """For a person: a line, and the fix below it."""
        lines = [f"{_MARKS[self.state]} {self.name}: {self.found}"]
        return [*lines, f"    fix: {self.fix}"] if self.fix else lines

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "state": self.state.value}
