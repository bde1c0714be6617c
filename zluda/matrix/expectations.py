"""What is known to fail, in one plain text file a device, that people and `zluda matrix expect` write.

A line is ``WHAT PATTERN # REASON``::

    # gfx1030: what is expected not to hold
    unsupported          cupy_.*/native    # calls of cuBLAS (until 2027-03-01)
    differs,crash        nbody/.*          # rsqrt is one ULP off, issue 12
    flaky                histogram/native  # floats are added in any order
    skip                 vision/.*         # takes an hour

``WHAT`` are verdicts, ``flaky``, or ``skip``; ``PATTERN`` is a regular expression for all of
``program/numerics``; the first line that fits counts. After its date a line counts no more, and is told of.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from zluda.diff.results import CountsAs
from zluda.errors import Error
from zluda.matrix.states import STATES, Night
from zluda.records import dataclass

SKIP = "skip"
DIRECTORY = "expectations"
DAYS = 90
"""How long a line that is written holds."""

_LINE = re.compile(r"(?P<what>\S+)\s+(?P<pattern>\S+)\s+#\s*(?P<comment>\S.*)")
_UNTIL = re.compile(r"\s*\(until (?P<date>\d{4}-\d\d-\d\d)\)\s*$")
_MAY = {name for name, state in STATES.items() if state.counts_as in (CountsAs.FAILS, CountsAs.CANNOT_TELL)}
_MAY = _MAY - {Night.NOT_RUN, Night.INFRASTRUCTURE} | {SKIP}


@dataclass(frozen=True, slots=True)
class Expectation:
    """One line: what is expected of the cells that ``pattern`` fits, why, and through which day."""

    what: frozenset[str]
    pattern: re.Pattern[str]
    reason: str
    until: datetime.date | None
    place: str  # file:line
    text: str

    def fits(self, program: str, numerics: str) -> bool:
        """Whether the line speaks of this cell."""
        return self.pattern.fullmatch(f"{program}/{numerics}") is not None

    def holds_on(self, day: datetime.date) -> bool:
        """Whether it has not expired."""
        return self.until is None or day <= self.until


@dataclass(frozen=True, slots=True)
class Judged:
    """A cell's state; where a line decided it, the line's reason and where it stands."""

    state: str
    reason: str = ""
    place: str = ""


class Expectations:
    """Those of all devices, on one day."""

    def __init__(self, lines: Mapping[str, Sequence[Expectation]], today: datetime.date) -> None:
        self._lines, self._today = lines, today

    def of(self, program: str, device: str, numerics: str) -> Expectation | None:
        """The first line that fits and has not expired."""
        found = (line for line in self._lines.get(device, ()) if line.fits(program, numerics))
        return next((line for line in found if line.holds_on(self._today)), None)

    def judge(self, program: str, device: str, numerics: str, found: str) -> Judged:
        """The state of a cell that came to ``found``: a verdict, or a state of :class:`Night`."""
        line = self.of(program, device, numerics)
        if line is None or found == Night.INFRASTRUCTURE:
            return Judged(found)
        if found == Night.NOT_RUN and SKIP in line.what:
            return Judged(found, line.reason, line.place)
        if found in line.what:
            return Judged(Night.EXPECTED_FAIL, line.reason, line.place)
        if STATES[found].counts_as is CountsAs.HOLDS and "flaky" not in line.what:
            return Judged(Night.UNEXPECTED_PASS, line.reason, line.place)
        return Judged(found)

    def expired(self) -> list[Expectation]:
        """Lines that count no more."""
        return [line for lines in self._lines.values() for line in lines if not line.holds_on(self._today)]

    def unused(self, cells: Iterable[tuple[str, str, str]]) -> list[Expectation]:
        """Lines that fit none of these cells (program, device, numerics)."""
        seen = list(cells)
        return [
            line
            for device, lines in self._lines.items()
            for line in lines
            if not any(line.fits(program, numerics) for program, of, numerics in seen if of == device)
        ]


def file_of(directory: Path, device: str) -> Path:
    """Where a device's lines stand: ``cuda:0`` in ``cuda-0.txt``."""
    return directory / f"{device.replace(':', '-')}.txt"


def read_expectations(
    directory: Path, devices: Iterable[str], *, today: datetime.date | None = None
) -> Expectations:
    """The lines of these devices; a device without a file has none. Raises :class:`Error` with the place."""
    lines = {device: parse(file_of(directory, device)) for device in devices}
    return Expectations(lines, today or datetime.datetime.now(datetime.UTC).date())


def parse(file: Path) -> list[Expectation]:
    """The lines of one file; none where it is not there."""
    if not file.exists():
        return []
    found = []
    for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
        if text.strip() and not text.lstrip().startswith("#"):
            found.append(_line(text.strip(), f"{file}:{number}"))
    return found


def _line(text: str, place: str) -> Expectation:
    match = _LINE.fullmatch(text)
    if match is None:
        raise Error(f"{place}: {text!r}: expected WHAT PATTERN # REASON (until YYYY-MM-DD)")
    what = frozenset(match["what"].split(","))
    if unknown := sorted(what - _MAY):
        raise Error(f"{place}: {unknown[0]!r}: expected some of {', '.join(sorted(_MAY))}")
    comment, until = match["comment"].strip(), None
    try:
        if (dated := _UNTIL.search(comment)) is not None:
            until = datetime.date.fromisoformat(dated["date"])
            comment = comment[: dated.start()]
        pattern = re.compile(match["pattern"])
    except (ValueError, re.error) as error:
        raise Error(f"{place}: {error}") from None
    return Expectation(what, pattern, comment, until, place, text)


def regenerated(
    kept: Sequence[Expectation],
    cells: Iterable[tuple[str, str, str, str]],
    *,
    device: str,
    today: datetime.date,
    days: int = DAYS,
) -> str:
    """A device's file anew, from a run's cells: (program, numerics, what it came to, reason).

    A line of before stays as it is while it has not expired and says what some cell came to; so do lines
    that fit no cell of the run, which did not ask about them, and ``skip``. Each other cell that does not
    hold gets a line of its own.
    """
    until = today + datetime.timedelta(days=days)
    rows = sorted(cells)
    lines = [line for line in kept if line.holds_on(today) and _still_true(line, rows)]
    text = [f"# {device}: what is expected not to hold. WHAT PROGRAM/NUMERICS # REASON (until DATE)"]
    text += [line.text for line in lines]
    for program, numerics, found, reason in rows:
        if found not in _MAY or any(
            line.fits(program, numerics) and (found in line.what or SKIP in line.what) for line in lines
        ):
            continue
        why = " ".join(reason.split()) or STATES[found].meaning
        text.append(f"{found:<12} {re.escape(f'{program}/{numerics}')}  # {why} (until {until.isoformat()})")
    return "\n".join(text) + "\n"


def _still_true(line: Expectation, rows: Sequence[tuple[str, str, str, str]]) -> bool:
    asked = [found for program, numerics, found, _ in rows if line.fits(program, numerics)]
    return not asked or SKIP in line.what or any(found in line.what for found in asked)
