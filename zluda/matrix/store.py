"""Results of nights in a database: SQLite in a file, or whatever SQLAlchemy knows."""

from __future__ import annotations

import datetime
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, func, insert, inspect, select, update
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from zluda.errors import Error
from zluda.matrix import schema
from zluda.matrix.schema import VERSION, cell, kernel, metadata, outcome, program, run, sample, slot, trace
from zluda.records import dataclass

if TYPE_CHECKING:
    import pandas
    from sqlalchemy import Connection, Engine, Select


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """What became of one kernel's launches."""

    name: str
    verdict: str
    launches: int
    held: int
    kind: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One kernel's launches in one measured replay, together."""

    kernel: str
    code: str
    seconds: float | None
    instructions: int | None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a cell came to; the fields are the columns of ``outcome`` (``schema.py``).

    ``trace`` is the trace's digest, None where there was none to read.
    """

    program: str
    device: str
    numerics: str
    trace: str | None = None
    environment: str = ""
    compiler: str = ""
    runtime: str = ""
    code: str = ""
    found: str
    verdict: str | None = None
    reason: str = ""
    attempts: int = 1
    failures: int = 0
    seconds: float | None = None
    peak_bytes: int | None = None
    launches: int = 0
    held: int = 0
    untold: int = 0
    product: str = ""
    emulated: bool = False
    detail: Mapping[str, Any] | None = None
    page: str = ""
    tags: Mapping[str, Any] | None = None  # the trace's, where this cell was asked for them
    kernels: Sequence[KernelRow] = ()
    samples: Sequence[Sample] = ()
    id: int | None = None
    """Of an outcome that is in the store already: then nothing but ``found`` and ``reason`` need be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """A cell of tonight: its outcome, and its state after expectations were asked."""

    outcome: Outcome
    state: str
    expected: str = ""


@dataclass(slots=True)
class RunFacts:
    """A row of ``run``, to be made."""

    commit: str = ""
    subject: str = ""
    dirty: bool = False
    version: str = ""
    host: str = ""
    corpus: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def now() -> str:
    """This moment, as stores have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def store_url(text: str) -> str:
    """``results.db`` is ``sqlite:///results.db``; what has a scheme is as it is."""
    return text if "://" in text else f"sqlite:///{text}"


class Store:
    """A database of nights. ``url`` is SQLAlchemy's, or a file's path; ``create`` makes what is not there.

    Raises :class:`Error` for what cannot be opened or is not a store of this version.
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        try:
            self._engine: Engine = create_engine(store_url(url), poolclass=NullPool)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise Error(f"--store: {error}") from None
        self.name = self._engine.url.render_as_string(hide_password=True)
        """What it is called where it is spoken of: its URL without a password."""
        if self._engine.dialect.name == "sqlite":
            self._check_file(create=create)
            event.listen(self._engine, "connect", _set_up_sqlite)
        self.connection: Connection = _guarded(self.name, self._engine.connect)
        _guarded(self.name, lambda: self._open(create=create))
        self._slots: dict[tuple[str, str, str], int] = {}
        self._programs: dict[str, int] = {}

    def _check_file(self, *, create: bool) -> None:
        name = self._engine.url.database
        if not create and name and name != ":memory:" and not Path(name).exists():
            raise Error(f"--store {name}: no such file")

    def _open(self, *, create: bool) -> None:
        tables = set(inspect(self.connection).get_table_names())
        if schema.about.name not in tables:
            if tables or not create:
                raise Error(f"--store {self.name}: is no store of zluda matrix")
            metadata.create_all(self.connection)
            self.connection.execute(insert(schema.about).values(version=VERSION))
        found = self.connection.execute(select(schema.about.c.version)).scalar_one()
        self.connection.commit()
        if found != VERSION:
            raise Error(f"--store {self.name}: is of version {found}, this zluda writes {VERSION}")

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back."""
        self.connection.close()
        self._engine.dispose()

    # Writing

    def begin_run(self, facts: RunFacts, *, started: str | None = None) -> int:
        """A new run's number."""
        row = insert(run).values(
            started=started or now(),
            commit=facts.commit,
            subject=facts.subject,
            dirty=facts.dirty,
            version=facts.version,
            host=facts.host,
            corpus=facts.corpus,
            options=json.dumps(dict(facts.options)),
        )
        number = self.connection.execute(row).inserted_primary_key
        self.connection.commit()
        assert number is not None
        return int(number[0])

    def finish_run(self, number: int, *, finished: str | None = None) -> None:
        """Note that all cells of a run are there."""
        self.connection.execute(update(run).where(run.c.id == number).values(finished=finished or now()))
        self.connection.commit()

    def add_trace(self, digest: str, size: int, tags: Mapping[str, Any]) -> None:
        """Keep what is known of a trace; tags of before stay where there are none now."""
        where = trace.c.digest == digest
        if self.connection.execute(select(trace.c.id).where(where)).first() is None:
            self.connection.execute(insert(trace).values(digest=digest, bytes=size, tags=json.dumps(tags)))
        elif tags:
            self.connection.execute(update(trace).where(where).values(tags=json.dumps(tags)))
        self.connection.commit()

    def tags(self, digest: str) -> dict[str, Any]:
        """The tags of a trace, empty where they are not known."""
        text = self.connection.execute(select(trace.c.tags).where(trace.c.digest == digest)).scalar()
        self.connection.commit()
        return dict(json.loads(text or "{}"))

    def add_program(self, name: str, about: str, package: str, path: str) -> int:
        """A program's number; what is said about it is as last told."""
        if name not in self._programs:
            known = self.connection.execute(select(program.c.id).where(program.c.name == name)).scalar()
            values = {"about": about, "package": package, "path": path}
            if known is None:
                row = insert(program).values(name=name, **values)
                made = self.connection.execute(row).inserted_primary_key
                assert made is not None
                known = made[0]
            else:
                self.connection.execute(update(program).where(program.c.id == known).values(**values))
            self._programs[name] = int(known)
        return self._programs[name]

    def slot(self, name: str, device: str, numerics: str) -> int:
        """The number of a place in the matrix, which is made where it is not there."""
        key = (name, device, numerics)
        if key not in self._slots:
            number = self._programs.get(name) or self.add_program(name, "", "", "")
            values = {"program": number, "device": device, "numerics": numerics}
            wanted = [slot.c[column] == value for column, value in values.items()]
            known = self.connection.execute(select(slot.c.id).where(*wanted)).scalar()
            if known is None:
                made = self.connection.execute(insert(slot).values(**values)).inserted_primary_key
                assert made is not None
                known = made[0]
            self._slots[key] = int(known)
        return self._slots[key]

    def add(self, number: int, results: Iterable[CellResult]) -> None:
        """Keep cells of run ``number``, all of them or none."""
        try:
            self._add(number, list(results))
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            self._slots.clear()
            self._programs.clear()
            raise

    def _add(self, number: int, results: list[CellResult]) -> None:
        traces: dict[str, int] = {}
        cells, kernels, samples, host = [], [], [], None
        for result in results:
            found = result.outcome
            place = self.slot(found.program, found.device, found.numerics)
            taken_over, identity = found.id is not None, found.id
            if identity is None:
                if found.trace is not None and found.trace not in traces:
                    wanted = select(trace.c.id).where(trace.c.digest == found.trace)
                    traces[found.trace] = self.connection.execute(wanted).scalar_one()
                row = self.connection.execute(
                    insert(outcome).values(_outcome_row(found, number, place, traces))
                )
                assert row.inserted_primary_key is not None
                identity = int(row.inserted_primary_key[0])
            kernels += [
                {
                    "outcome": identity,
                    "name": one.name,
                    "verdict": one.verdict,
                    "launches": one.launches,
                    "held": one.held,
                    "class": one.kind,
                    "code": one.code,
                }
                for one in found.kernels
            ]
            if found.samples:
                host = (
                    host or self.connection.execute(select(run.c.host).where(run.c.id == number)).scalar_one()
                )
            samples += [
                {
                    "outcome": identity,
                    "run": number,
                    "kernel": one.kernel,
                    "code": one.code,
                    "host": host,
                    "seconds": one.seconds,
                    "instructions": one.instructions,
                }
                for one in found.samples
            ]
            cells.append(
                {
                    "slot": place,
                    "run": number,
                    "outcome": identity,
                    "state": result.state,
                    "expected": result.expected,
                    "taken_over": taken_over,
                }
            )
        for table, rows in ((kernel, kernels), (sample, samples), (cell, cells)):
            if rows:
                self.connection.execute(insert(table), rows)

    # Reading

    def runs(self, *, finished: bool = False) -> list[dict[str, Any]]:
        """All runs, the oldest first; with ``finished``, those that ended."""
        query = select(run).order_by(run.c.id)
        if finished:
            query = query.where(run.c.finished.is_not(None))
        found = [dict(row) for row in self.connection.execute(query).mappings()]
        self.connection.commit()
        return found

    def run_number(self, text: str) -> int:
        """Which run a person means: a number, ``last``, ``last-1`` …, a commit's beginning (its newest run).

        Raises :class:`Error` where there is none.
        """
        runs = self.runs(finished=True)
        if text == "last" or text.startswith("last-"):
            back = text[len("last-") :] or "0"
            if back.isdecimal() and int(back) < len(runs):
                return int(runs[-1 - int(back)]["id"])
        else:
            numbers = [one["id"] for one in runs if str(one["id"]) == text]
            numbers += [one["id"] for one in runs if len(text) >= 4 and one["commit"].startswith(text)]
            if numbers:
                return int(numbers[0] if str(numbers[0]) == text else numbers[-1])
        raise Error(
            f"{self.name}: no finished run {text!r}: expected last, last-N, a commit, or a number"
            + (f" up to {runs[-1]['id']}" if runs else "; there is none yet")
        )

    def known(
        self, name: str, device: str, numerics: str, digest: str, environment: str, runtime: str
    ) -> list[dict[str, Any]]:
        """Outcomes of this cell that are so in any night: id, compiler, code, found, reason; newest first."""
        query = (
            select(
                *(outcome.c[column] for column in ("id", "compiler", "code", "found", "verdict", "reason")),
                *(outcome.c[column] for column in ("attempts", "failures")),
            )
            .join(trace, outcome.c.trace == trace.c.id)
            .where(
                outcome.c.slot == self.slot(name, device, numerics),
                trace.c.digest == digest,
                outcome.c.environment == environment,
                outcome.c.runtime == runtime,
                outcome.c.found.in_(STEADY),
            )
            .order_by(outcome.c.id.desc())
        )
        found = [dict(row) for row in self.connection.execute(query).mappings()]
        self.connection.commit()
        return found

    def cells_done(self, number: int) -> set[tuple[str, str, str]]:
        """(program, device, numerics) of the cells that a run has."""
        query = (
            select(program.c.name, slot.c.device, slot.c.numerics)
            .join(slot, slot.c.program == program.c.id)
            .join(cell, cell.c.slot == slot.c.id)
            .where(cell.c.run == number)
        )
        found = {(row[0], row[1], row[2]) for row in self.connection.execute(query)}
        self.connection.commit()
        return found

    def frame(self, query: Select[Any]) -> pandas.DataFrame:
        """The rows of a query."""
        import pandas

        result = self.connection.execute(query)
        found = pandas.DataFrame(result.all(), columns=list(result.keys()))
        self.connection.commit()
        return found

    def cells(self, number: int) -> pandas.DataFrame:
        """The cells of a run, one a row: where it is, its state, and what its outcome says of it."""
        columns = [
            column for column in outcome.c if column.name not in ("detail", "page", "slot", "trace", "id")
        ]
        return self.frame(
            select(
                slot.c.id.label("slot"),
                program.c.name.label("program"),
                program.c.package,
                program.c.about,
                program.c.path,
                slot.c.device,
                slot.c.numerics,
                cell.c.state,
                cell.c.expected,
                cell.c.taken_over,
                outcome.c.id.label("outcome"),
                trace.c.digest.label("trace"),
                *columns,
                func.length(outcome.c.page).label("page_bytes"),
            )
            .join(slot, cell.c.slot == slot.c.id)
            .join(program, slot.c.program == program.c.id)
            .join(outcome, cell.c.outcome == outcome.c.id)
            .outerjoin(trace, outcome.c.trace == trace.c.id)
            .where(cell.c.run == number)
            .order_by(program.c.name, slot.c.device, slot.c.numerics)
        )

    def page(self, identity: int) -> str:
        """The page of an outcome's replay, "" where none was kept."""
        data = self.connection.execute(select(outcome.c.page).where(outcome.c.id == identity)).scalar()
        self.connection.commit()
        return zlib.decompress(data).decode() if data else ""

    def detail(self, identity: int) -> dict[str, Any]:
        """What ``zluda replay --json`` printed for an outcome; empty where there was no replay."""
        data = self.connection.execute(select(outcome.c.detail).where(outcome.c.id == identity)).scalar()
        self.connection.commit()
        return dict(json.loads(zlib.decompress(data))) if data else {}


STEADY = (
    "identical",
    "within",
    "noise",
    "differs",
    "inherited",
    "unsupported",
    "no-ptx",
    "gap",
    "not-compared",
)
"""What may be taken over from an earlier night: what comes out the same each time. Crashes and hangs are
looked for again, since they may be the machine's."""


def _outcome_row(found: Outcome, number: int, place: int, traces: Mapping[str, int]) -> dict[str, Any]:
    detail = None if found.detail is None else zlib.compress(json.dumps(found.detail).encode())
    return {
        "slot": place,
        "trace": None if found.trace is None else traces[found.trace],
        "made_in": number,
        "environment": found.environment,
        "compiler": found.compiler,
        "runtime": found.runtime,
        "code": found.code,
        "found": found.found,
        "verdict": found.verdict,
        "reason": found.reason,
        "attempts": found.attempts,
        "failures": found.failures,
        "seconds": found.seconds,
        "peak_bytes": found.peak_bytes,
        "launches": found.launches,
        "held": found.held,
        "untold": found.untold,
        "product": found.product,
        "emulated": found.emulated,
        "detail": detail,
        "page": zlib.compress(found.page.encode()) if found.page else None,
    }


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # Readers do not wait for the night that writes; a crash of the machine may lose the last cells, no more.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}")


def _guarded(name: str, work: Any) -> Any:
    try:
        return work()
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise Error(f"--store {name}: {reason}") from None
