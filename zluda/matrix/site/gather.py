"""All that a site tells, out of the store."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import func, or_, select

from zluda.diff.results import CountsAs
from zluda.errors import Error
from zluda.matrix.changes import Comparison, compare
from zluda.matrix.schema import cell, kernel, outcome, run, sample, slot, trace
from zluda.matrix.speed import SpeedChange, speed_changes
from zluda.matrix.states import STATES, Night
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.matrix.store import Store

RUNS_BACK = 5
"""How many earlier runs of other corpora or devices are passed over in search of the one before."""


class Column(NamedTuple):
    """A device in one kind of numerics."""

    device: str
    numerics: str

    @property
    def key(self) -> str:
        """For anchors."""
        return f"{self.device.replace(':', '-')}-{self.numerics}"


class Step(NamedTuple):
    """From run ``run`` on, a cell was in ``state``."""

    run: int
    state: str


class Point(NamedTuple):
    """A kernel's median in a run in which it was measured; ``what`` is seconds or instructions."""

    run: int
    what: str
    value: float
    code: str


@dataclass(slots=True)
class Kernel:
    """A kernel in one cell."""

    name: str
    verdict: str
    launches: int
    held: int
    kind: str
    code: str
    series: list[Point] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Cell:
    """A cell of the night. ``since`` is the run since which it is in this state, ``suspects`` are features of
    its trace that no program has which holds on this device.
    """

    column: Column
    state: str
    found: str
    verdict: str | None
    reason: str
    expected: str
    taken_over: bool
    outcome: int
    code: str
    attempts: int
    failures: int
    seconds: float | None
    peak_bytes: int | None
    launches: int
    held: int
    untold: int
    product: str
    emulated: bool
    has_page: bool
    reproduce: str
    history: list[Step] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    suspects: list[str] = field(default_factory=list)

    @property
    def since(self) -> int | None:
        return self.history[-1].run if self.history else None


@dataclass(slots=True, kw_only=True)
class Row:
    """A program of the night."""

    name: str
    about: str
    package: str
    path: str
    tags: Mapping[str, Mapping[str, int]]
    cells: dict[Column, Cell] = field(default_factory=dict)


class Share(NamedTuple):
    """Of programs that use a feature on a device: how many hold, fail, cannot be told; their launches."""

    holds: int
    fails: int
    untold: int
    launches: int

    @property
    def counts_as(self) -> CountsAs:
        """What is known of the feature on the device: it is proven by one program that holds."""
        if self.holds:
            return CountsAs.HOLDS
        return CountsAs.FAILS if self.fails else CountsAs.CANNOT_TELL if self.untold else CountsAs.NEUTRAL


@dataclass(slots=True, kw_only=True)
class Sheet:
    """A night, and the nights before it."""

    run: Mapping[str, Any]
    runs: Sequence[Mapping[str, Any]]
    columns: list[Column]
    rows: list[Row]
    changes: Comparison | None  # None: there is no run before
    speeds: list[SpeedChange]
    features: dict[str, dict[Column, Share]]
    trend: list[tuple[int, dict[Column, Counter[str]]]]
    last_good: int | None
    """The newest run before this one in which nothing failed."""

    @property
    def counts(self) -> Counter[str]:
        """Cells by state."""
        return Counter(one.state for row in self.rows for one in row.cells.values())

    def to_look_at(self) -> list[tuple[Row, Cell]]:
        """Cells that fail, cannot be told, or pass against expectation, in this order."""
        order = (CountsAs.FAILS, CountsAs.CANNOT_TELL)
        found = [
            (order.index(STATES[one.state].strict), row.name, one.column, row, one)
            for row in self.rows
            for one in row.cells.values()
            if STATES[one.state].strict in order and not (one.state == Night.NOT_RUN and one.expected)
        ]
        return [(row, one) for *_, row, one in sorted(found, key=lambda entry: entry[:3])]


def gather(store: Store, number: int) -> Sheet:
    """What there is to tell of run ``number``."""
    runs = [one for one in store.runs(finished=True) if one["id"] <= number]
    if not runs or runs[-1]["id"] != number:
        raise Error(f"{store.name}: run {number} is not finished")
    rows = _rows(store, number)
    columns = sorted({column for row in rows for column in row.cells}, key=_order)
    _add_kernels(store, number, rows)
    _add_history(store, number, rows)
    _add_series(store, number, rows)
    features = _features(rows, columns)
    trend = _trend(store, number)
    before = _before(store, runs)
    return Sheet(
        run=runs[-1],
        runs=runs,
        columns=columns,
        rows=rows,
        changes=None if before is None else compare(store, before, number),
        speeds=[] if before is None else speed_changes(store, before, number),
        features=features,
        trend=trend,
        last_good=_last_good(trend, number),
    )


def _order(column: Column) -> tuple[int, str, str]:
    kinds = ("cpu", "interpreter", "cuda", "nvptx", "gfx", "hip")
    kind = next((rank for rank, name in enumerate(kinds) if column.device.startswith(name)), len(kinds))
    return kind, column.device, column.numerics


_PLAIN = (
    *("state", "found", "verdict", "reason", "expected", "outcome", "code", "attempts", "failures"),
    *("seconds", "launches", "held", "untold", "product"),
)


def _rows(store: Store, number: int) -> list[Row]:
    found: dict[str, Row] = {}
    tags = {
        digest: json.loads(text)
        for digest, text in store.connection.execute(select(trace.c.digest, trace.c.tags))
    }
    cells = store.cells(number).astype(object)
    for told in cells.where(cells.notna(), None).to_dict("records"):
        record = {str(key): value for key, value in told.items()}
        name = record["program"]
        if name not in found:
            found[name] = Row(
                name=name, about=record["about"], package=record["package"], path=record["path"], tags={}
            )
        row = found[name]
        row.tags = row.tags or tags.get(record["trace"], {})
        column = Column(record["device"], record["numerics"])
        row.cells[column] = Cell(
            column=column,
            **{key: record[key] for key in _PLAIN},
            taken_over=bool(record["taken_over"]),
            emulated=bool(record["emulated"]),
            peak_bytes=None if record["peak_bytes"] is None else int(record["peak_bytes"]),
            has_page=bool(record["page_bytes"]),
            reproduce=_reproduce(record),
        )
    return list(found.values())


def _reproduce(record: Mapping[str, Any]) -> str:
    """One line that shows the cell's failure again; "" where nothing is to be shown."""
    if STATES[record["found"]].counts_as is CountsAs.HOLDS or record["trace"] is None:
        return ""
    command = [
        "zluda",
        "replay",
        record["path"],
        "--device",
        record["device"],
        "--numerics",
        record["numerics"],
    ]
    reason = str(record["reason"])
    # "#17 kernel: differs …": a launch that differs is explained; what cannot be told is told by the replay.
    call = reason[1:].split(" ", 1)[0] if reason.startswith("#") else ""
    if record["found"] in ("differs", "inherited") and call.isdecimal():
        command += ["--explain", call]
    return shlex.join(command)


def _add_kernels(store: Store, number: int, rows: list[Row]) -> None:
    by_outcome = {one.outcome: one for row in rows for one in row.cells.values()}
    query = (
        select(kernel)
        .join(cell, cell.c.outcome == kernel.c.outcome)
        .where(cell.c.run == number)
        .order_by(kernel.c.name)
    )
    for record in store.connection.execute(query).mappings():
        by_outcome[record["outcome"]].kernels.append(
            Kernel(
                record["name"],
                record["verdict"],
                record["launches"],
                record["held"],
                record["class"],
                record["code"],
            )
        )


def _slots(store: Store, number: int, rows: list[Row]) -> dict[int, Cell]:
    by_outcome = {one.outcome: one for row in rows for one in row.cells.values()}
    query = select(cell.c.slot, cell.c.outcome).where(cell.c.run == number)
    return {place: by_outcome[identity] for place, identity in store.connection.execute(query)}


def _add_history(store: Store, number: int, rows: list[Row]) -> None:
    """Of each cell, the runs in which its state changed: the database finds them, so that few rows come."""
    before = func.lag(cell.c.state).over(partition_by=cell.c.slot, order_by=cell.c.run)
    each = (
        select(cell.c.slot, cell.c.run, cell.c.state, before.label("before"))
        .join(run, cell.c.run == run.c.id)
        .where(cell.c.run <= number, run.c.finished.is_not(None))
        .subquery()
    )
    changed = or_(each.c.before.is_(None), each.c.before != each.c.state)
    query = select(each.c.slot, each.c.run, each.c.state).where(changed).order_by(each.c.slot, each.c.run)
    by_slot = _slots(store, number, rows)
    for place, when, state in store.connection.execute(query):
        if place in by_slot:
            by_slot[place].history.append(Step(when, state))


def _add_series(store: Store, number: int, rows: list[Row]) -> None:
    """Of each kernel that was measured, its medians run by run."""
    query = (
        select(
            outcome.c.slot,
            sample.c.kernel,
            sample.c.run,
            sample.c.code,
            sample.c.seconds,
            sample.c.instructions,
        )
        .join(outcome, sample.c.outcome == outcome.c.id)
        .where(sample.c.run <= number)
    )
    frame = store.frame(query)
    if frame.empty:
        return
    measured = ["seconds", "instructions"]
    frame[measured] = frame[measured].astype(float)  # None is NaN
    medians = frame.groupby(["slot", "kernel", "run", "code"], sort=True)[measured].median()
    kernels = {
        (place, one.name): one
        for place, found in _slots(store, number, rows).items()
        for one in found.kernels
    }
    for key, seconds, instructions in medians.itertuples(name=None):
        place, name, when, code = key
        if (place, name) in kernels:
            exact = instructions == instructions  # not NaN: an emulator counted
            what, value = ("instructions", instructions) if exact else ("seconds", seconds)
            kernels[place, name].series.append(Point(int(when), what, float(value), code))


def _features(rows: list[Row], columns: list[Column]) -> dict[str, dict[Column, Share]]:
    names = dict.fromkeys(name for row in rows for name in row.tags.get("ptx", {}))
    found: dict[str, dict[Column, Share]] = {}
    for name in sorted(names):
        users = [row for row in rows if name in row.tags.get("ptx", {})]
        found[name] = {column: _share(users, column, name) for column in columns}
    for row in rows:
        for column, one in row.cells.items():
            if STATES[one.found].counts_as in (CountsAs.FAILS, CountsAs.CANNOT_TELL):
                used = row.tags.get("ptx", {})
                one.suspects = [name for name in used if not found[name][column].holds]
    return found


def _share(users: list[Row], column: Column, name: str) -> Share:
    cells = [(row, row.cells[column]) for row in users if column in row.cells]
    kinds = Counter(STATES[one.found].counts_as for _, one in cells)
    launches = sum(
        row.tags["ptx"][name] for row, one in cells if STATES[one.found].counts_as is CountsAs.HOLDS
    )
    return Share(kinds[CountsAs.HOLDS], kinds[CountsAs.FAILS], kinds[CountsAs.CANNOT_TELL], launches)


def _trend(store: Store, number: int) -> list[tuple[int, dict[Column, Counter[str]]]]:
    query = (
        select(cell.c.run, slot.c.device, slot.c.numerics, cell.c.state, func.count())
        .join(slot, cell.c.slot == slot.c.id)
        .join(run, cell.c.run == run.c.id)
        .where(cell.c.run <= number, run.c.finished.is_not(None))
        .group_by(cell.c.run, slot.c.device, slot.c.numerics, cell.c.state)
        .order_by(cell.c.run)
    )
    found: dict[int, dict[Column, Counter[str]]] = {}
    for when, device, numerics, state, count in store.connection.execute(query):
        found.setdefault(when, {}).setdefault(Column(device, numerics), Counter())[state] = count
    return list(found.items())


def _last_good(trend: list[tuple[int, dict[Column, Counter[str]]]], number: int) -> int | None:
    for when, columns in reversed(trend):
        states = {state for counts in columns.values() for state in counts}
        if when < number and not any(STATES[state].counts_as is CountsAs.FAILS for state in states):
            return when
    return None


def _before(store: Store, runs: list[dict[str, Any]]) -> int | None:
    """The run before, of the same programs and devices if one of the last few is."""
    asked = _asked(runs[-1])
    for one in reversed(runs[-1 - RUNS_BACK : -1]):
        if _asked(one) == asked:
            return int(one["id"])
    return int(runs[-2]["id"]) if len(runs) > 1 else None


def _asked(one: Mapping[str, Any]) -> tuple[str, str]:
    options = json.loads(one["options"])
    return str(one["corpus"]), json.dumps([options.get(key) for key in ("devices", "numerics", "programs")])
