"""A run: programs × devices × numerics, each cell in a process, verdicts taken over where nothing changed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zluda.device import names
from zluda.errors import Error
from zluda.matrix.cell import Task
from zluda.matrix.expectations import SKIP, Expectations
from zluda.matrix.identity import environment, runtime_version
from zluda.matrix.programs import Program
from zluda.matrix.states import STATES, Night
from zluda.matrix.store import CellResult, KernelRow, Outcome, RunFacts, Sample, Store
from zluda.matrix.watching import Ended, Limits, run_watched
from zluda.records import dataclass

Progress = Callable[[int, int], None]
"""Called with (cells done, cells in all)."""

Run = Callable[[Task, Limits], Ended]

SOURCE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell is."""

    program: Program
    device: str
    numerics: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.program.name, self.device, self.numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a night goes. ``retries`` is how often an unexpected failure is run again; ``samples`` how many
    measured replays a cell has beside the one that is judged; ``fresh``: nothing is taken over.
    """

    limits: Limits
    jobs: int = 1
    retries: int = 2
    samples: int = 1
    fresh: bool = False
    pages: bool = True


def places(programs: Iterable[Program], devices: Sequence[str], numerics: Sequence[str]) -> list[Place]:
    """All cells: of each device in the numerics that it has, by default in its own.

    Raises :class:`Error` where a device has none of them.
    """
    kinds: list[tuple[str, str]] = []
    for device in devices:
        has = names.NUMERICS[names.kind(device)]
        chosen = [one for one in dict.fromkeys(numerics) if one in has] if numerics else [has[0]]
        if not chosen:
            raise Error(f"device {device} has no numerics {', '.join(numerics)}: it has {', '.join(has)}")
        kinds += [(device, one) for one in chosen]
    return [Place(program, device, one) for program in programs for device, one in kinds]


def facts(corpus: Path, options: Mapping[str, Any]) -> RunFacts:
    """What is on record of this run: zluda's commit, the host, what was asked."""
    commit = _git("rev-parse", "HEAD")
    return RunFacts(
        commit=commit,
        subject=_git("log", "-1", "--format=%s"),
        dirty=bool(commit and _git("status", "--porcelain", "--untracked-files=no", "--", "zluda")),
        version=version("zluda"),
        host=platform.node(),
        corpus=str(corpus),
        options=options,
    )


def _git(*arguments: str) -> str:
    """What git says of the sources; "" where they are in no repository."""
    with suppress(OSError):
        done = subprocess.run(
            ["git", "-C", str(SOURCE), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def run_night(
    store: Store,
    number: int,
    cells: Sequence[Place],
    plan: Plan,
    expectations: Expectations,
    *,
    progress: Progress | None = None,
    run: Run | None = None,
) -> Iterator[tuple[Place, CellResult]]:
    """Run the cells that run ``number`` does not have, and keep each as it comes; then it is finished.

    Gives each cell as it ends. What is interrupted can be called again with the same cells.
    """
    done = store.cells_done(number)
    waiting = [place for place in cells if place.key not in done]
    stop = threading.Event()  # so that an interruption does not wait for cells to end by themselves
    night = _Night(store, plan, expectations, run or partial(run_cell, stop=stop))
    for place in waiting:
        program = place.program
        store.add_program(program.name, program.about, program.package, str(program.trace))
    with ThreadPoolExecutor(plan.jobs) as pool:
        pending: dict[Future[Outcome], Place] = {}
        queue = iter(waiting)
        try:
            while True:
                for place in queue:
                    job = night.prepare(place)
                    pending[pool.submit(job)] = place
                    if len(pending) >= plan.jobs:
                        break
                if not pending:
                    break
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    place = pending.pop(future)
                    result = night.judged(place, future.result())
                    store.add(number, [result])
                    done.add(place.key)
                    if progress is not None:
                        progress(len(done), len(cells))
                    yield place, result
        finally:
            stop.set()
            for future in pending:
                future.cancel()
    store.finish_run(number)


class _Night:
    """Decides what is run of a cell. The store is asked by the caller's thread alone; jobs only run."""

    def __init__(self, store: Store, plan: Plan, expectations: Expectations, run: Run) -> None:
        self._store, self._plan, self._expectations, self._run = store, plan, expectations, run
        self._digests: dict[Path, str] = {}
        self._environments: dict[str, str] = {}
        self._tags_asked: set[str] = set()

    def prepare(self, place: Place) -> Callable[[], Outcome]:
        """What is to be done of a cell, to be called in any thread."""
        base = Outcome(
            program=place.program.name, device=place.device, numerics=place.numerics, found=Night.NOT_RUN
        )
        line = self._expectations.of(*place.key)
        if place.program.problem or (line is not None and SKIP in line.what):
            base.reason = place.program.problem or f"skipped: {line.reason if line else ''}"
            return lambda: base
        try:
            digest = self._digest(place.program)
        except OSError as error:
            base.reason = f"{place.program.trace}: {error.strerror or error}"
            return lambda: base
        base.trace, base.runtime = digest, runtime_version()
        base.environment = self._environment(place.device)
        base.compiler = _compiler()
        known = self._known(place, base)
        for one in known:
            if one["compiler"] == base.compiler and one["code"]:
                return lambda: _taken_over(base, one)
        with_tags = not self._store.tags(digest) and digest not in self._tags_asked
        self._tags_asked.add(digest)
        return lambda: self._work(place, base, known, with_tags=with_tags)

    def judged(self, place: Place, outcome: Outcome) -> CellResult:
        """The cell's state, as the device's expectations have it."""
        judged = self._expectations.judge(*place.key, outcome.found)
        if outcome.id is None and outcome.trace is not None:
            self._store.add_trace(outcome.trace, place.program.trace.stat().st_size, outcome.tags or {})
        return CellResult(outcome=outcome, state=judged.state, expected=judged.reason)

    def _digest(self, program: Program) -> str:
        if program.trace not in self._digests:
            self._digests[program.trace] = program.digest()
        return self._digests[program.trace]

    def _environment(self, device: str) -> str:
        """ "" where it cannot be told: then nothing is taken over."""
        if device not in self._environments:
            try:
                self._environments[device] = environment(device)
            except Error:
                self._environments[device] = ""
        return self._environments[device]

    def _known(self, place: Place, base: Outcome) -> list[dict[str, Any]]:
        if self._plan.fresh or not base.environment or base.trace is None:
            return []
        return self._store.known(*place.key, base.trace, base.environment, base.runtime)

    def _work(
        self, place: Place, base: Outcome, known: Sequence[Mapping[str, Any]], *, with_tags: bool
    ) -> Outcome:
        outcome = self._attempt(place, base, known, with_tags=with_tags)
        if not self._unexpected(place, outcome):
            return outcome
        found = [outcome.found]
        reasons = {outcome.found: outcome.reason}
        for _ in range(self._plan.retries):
            again = self._attempt(place, base, (), with_tags=False, samples=0)
            if again.found in (Night.INFRASTRUCTURE, Night.NOT_RUN):
                break
            found.append(again.found)
            reasons[again.found] = again.reason
        failing = [one for one in found if STATES[one].counts_as.value == "fails"]
        outcome.attempts, outcome.failures = len(found), len(failing)
        if len(failing) < len(found):
            outcome.found = Night.FLAKY
            outcome.reason = f"{len(failing)} of {len(found)} runs fail: {outcome.reason}"
        return outcome

    def _unexpected(self, place: Place, outcome: Outcome) -> bool:
        if outcome.id is not None or STATES[outcome.found].counts_as.value != "fails":
            return False
        line = self._expectations.of(*place.key)
        return line is None or outcome.found not in line.what

    def _attempt(
        self,
        place: Place,
        base: Outcome,
        known: Sequence[Mapping[str, Any]],
        *,
        with_tags: bool,
        samples: int | None = None,
    ) -> Outcome:
        """Run the cell once."""
        with tempfile.TemporaryDirectory(prefix="zluda-cell-") as scratch:
            answer, page = Path(scratch) / "answer.json", Path(scratch) / "page.html"
            task = Task(
                trace=str(place.program.trace),
                device=place.device,
                numerics=place.numerics,
                answer=str(answer),
                page=str(page) if self._plan.pages else "",
                with_tags=with_tags,
                code=names.kind(place.device) in ("cpu", "gfx", "hip", "cuda"),
                known={one["code"]: one["id"] for one in reversed(known) if one["code"]},
                samples=self._plan.samples if samples is None else samples,
            )
            ended = self._run(task, self._plan.limits)
            told = json.loads(answer.read_text("utf-8")) if ended.status == 0 and answer.exists() else None
            shown = page.read_text("utf-8") if page.exists() else ""
        return _outcome(base, ended, told, shown, known)


def run_cell(task: Task, limits: Limits, stop: threading.Event | None = None) -> Ended:
    """Run one cell in a process of this Python, with the very sources that run here."""
    paths = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    return run_watched(
        [sys.executable, "-P", "-m", "zluda.matrix.cell"],
        given=task.to_json(),
        limits=limits,
        environment={**os.environ, "PYTHONPATH": paths},
        stop=stop,
    )


def _compiler() -> str:
    from zluda.compiler.cache.key import compiler_version

    return compiler_version()


def _taken_over(base: Outcome, known: Mapping[str, Any]) -> Outcome:
    return _with(
        base,
        id=known["id"],
        found=known["found"],
        verdict=known["verdict"],
        reason=known["reason"],
        attempts=known["attempts"],
        failures=known["failures"],
    )


def _outcome(
    base: Outcome,
    ended: Ended,
    told: Mapping[str, Any] | None,
    page: str,
    known: Sequence[Mapping[str, Any]],
) -> Outcome:
    measured = {"peak_bytes": ended.peak_bytes, "tags": (told or {}).get("tags")}
    if ended.limit:
        return _with(base, found=Night.NOT_RUN, reason=f"stopped: {ended.limit}", **measured)
    if told is None:
        said = ended.said.strip().splitlines()
        how = f"ended by signal {-ended.status}" if ended.status < 0 else f"ended with status {ended.status}"
        last = f": {said[-1]}" if said else ""
        return _with(base, found=Night.INFRASTRUCTURE, reason=f"the cell's process {how}{last}", **measured)
    if "taken_over" in told:
        return _taken_over(base, next(one for one in known if one["id"] == told["taken_over"]))
    if "not_run" in told:
        return _with(base, found=Night.NOT_RUN, reason=told["not_run"], **measured)
    replay = told["replay"]
    fails = STATES[replay["verdict"]].counts_as.value == "fails"
    return _with(
        base,
        found=replay["verdict"],
        verdict=replay["verdict"],
        reason=told["reason"],
        failures=int(fails),
        code=told["code"],
        seconds=replay["seconds"],
        launches=told["launches"],
        held=told["held"],
        untold=told["untold"],
        product=replay["product"],
        emulated=replay["emulated"],
        detail=replay,
        page=page,
        kernels=[KernelRow(**row) for row in told["kernels"]],
        samples=[Sample(**row) for row in told["samples"]],
        **measured,
    )


def _with(base: Outcome, **fields: Any) -> Outcome:
    return replace(base, **fields)
