"""What a cell of the matrix can come to: the verdicts of a replay, and what a night adds to them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from zluda.diff.results import CountsAs, Verdict
from zluda.records import dataclass


class Night(StrEnum):
    """States that no single replay has."""

    NOT_RUN = "not-run"
    FLAKY = "flaky"
    EXPECTED_FAIL = "expected-fail"
    UNEXPECTED_PASS = "unexpected-pass"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class State:
    """``name`` is what stores and pages have; ``strict`` what it counts as in a strict run."""

    name: str
    meaning: str
    counts_as: CountsAs
    strict: CountsAs
    mark: str


_MARKS = {CountsAs.HOLDS: "✓", CountsAs.FAILS: "✗", CountsAs.CANNOT_TELL: "?", CountsAs.NEUTRAL: "·"}


def _of_verdict(verdict: Verdict) -> State:
    counts = verdict.counts_as
    return State(str(verdict.value), verdict.meaning, counts, counts, _MARKS[counts])


_TOLD = CountsAs.CANNOT_TELL
STATES: dict[str, State] = {
    **{str(verdict.value): _of_verdict(verdict) for verdict in Verdict},
    Night.NOT_RUN: State("not-run", "there was no replay; the reason says why", _TOLD, _TOLD, "–"),
    Night.FLAKY: State(
        "flaky", "some of several runs hold and some do not", CountsAs.FAILS, CountsAs.FAILS, "~"
    ),
    Night.EXPECTED_FAIL: State(
        "expected-fail", "as the device's expectations say", CountsAs.NEUTRAL, CountsAs.NEUTRAL, "✗"
    ),
    Night.UNEXPECTED_PASS: State(
        "unexpected-pass", "holds, and was expected not to", CountsAs.HOLDS, CountsAs.FAILS, "!"
    ),
    Night.INFRASTRUCTURE: State(
        "infrastructure", "the machine or this tool failed, not the program", _TOLD, _TOLD, "⚠"
    ),
}
"""By name: the verdicts of ``zluda replay`` and those of :class:`Night`."""

ACCEPTABLE = ("no-ptx", "unsupported", "gap", "not-run")
"""What ``--allow`` may name."""


def exit_status(states: Iterable[str], *, strict: bool, allow: Iterable[str] = ()) -> int:
    """0: something holds and nothing else was found; 1: something fails; 2: something cannot be told.

    ``strict``: an unexpected pass fails, so that expectations are kept true.
    """
    accepted = set(allow)
    found = [STATES[name] for name in states if name not in accepted]
    kinds = {state.strict if strict else state.counts_as for state in found}
    if CountsAs.FAILS in kinds:
        return 1
    held = CountsAs.HOLDS in kinds or any(state.name == Night.EXPECTED_FAIL for state in found)
    return 0 if held and CountsAs.CANNOT_TELL not in kinds else 2


def quality(verdict: str | None) -> int:
    """Of two verdicts, the larger is the better: fails 0, cannot be told 1, holds 2. None: there is none."""
    if verdict is None:
        return 1
    return {CountsAs.FAILS: 0, CountsAs.HOLDS: 2}.get(STATES[verdict].counts_as, 1)
