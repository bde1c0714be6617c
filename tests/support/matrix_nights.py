"""Nights whose cells come to what a test says, without processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zluda.matrix.cell import Task
from zluda.matrix.expectations import read_expectations
from zluda.matrix.night import Place, Plan, places, run_night
from zluda.matrix.programs import find_programs
from zluda.matrix.store import CellResult, KernelRow, Outcome, RunFacts, Sample, Store
from zluda.matrix.watching import Ended, Limits

PLAN = Plan(limits=Limits(seconds=60, bytes=1 << 32))
ENDED = Ended(status=0, limit="", said="", seconds=1.0, peak_bytes=1 << 20)
FAILS = ("differs", "inherited", "crash", "hang")
HOLDS = ("identical", "within", "noise")


def answer(verdict: str, *, code: str = "c0", reason: str = "") -> dict[str, Any]:
    """What a cell's process leaves, of one launch."""
    return {
        "code": code,
        "reason": reason,
        "replay": {"verdict": verdict, "seconds": 0.5, "product": "", "emulated": False},
        "kernels": [
            {"name": "k", "verdict": verdict, "launches": 1, "held": 1, "kind": "ieee-exact", "code": code}
        ],
        "launches": 1,
        "held": int(verdict in HOLDS),
        "untold": int(verdict not in HOLDS + FAILS),
        "samples": [],
    }


class Script:
    """Stands in for the process: ``answers`` maps (program, device) to what its attempts come to, in turn;
    the last one stays. An answer is a verdict, an object, or how the process ends.
    """

    def __init__(self, answers: Mapping[tuple[str, str], Sequence[str | dict[str, Any] | Ended]]) -> None:
        self._answers = {key: list(several) for key, several in answers.items()}
        self.ran: list[tuple[str, str]] = []

    def __call__(self, task: Task, limits: Limits) -> Ended:
        key = (Path(task.trace).stem, task.device)
        self.ran.append(key)
        several = self._answers[key]
        told = several.pop(0) if len(several) > 1 else several[0]
        if isinstance(told, Ended):
            return told
        told = answer(told) if isinstance(told, str) else told
        if told.get("code") in task.known:
            told = {"taken_over": task.known[told["code"]]}
        Path(task.answer).write_text(json.dumps(told))
        return ENDED


def corpus_of(directory: Path, *names: str) -> Path:
    """A directory of traces that nobody opens."""
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / f"{name}.bin").write_text(name)
    return directory


def night(
    store: Store,
    corpus: Path,
    run: Callable[[Task, Limits], Ended],
    *,
    devices: Sequence[str] = ("cpu",),
    plan: Plan = PLAN,
    number: int | None = None,
) -> list[tuple[Place, CellResult]]:
    """A run of all programs; its cells as they came."""
    if number is None:
        number = store.begin_run(RunFacts(commit="a" * 40, host="host"))
    known = read_expectations(corpus / "expectations", devices)
    return list(run_night(store, number, places(find_programs(corpus), devices, ()), plan, known, run=run))


def states(cells: Sequence[tuple[Place, CellResult]]) -> dict[tuple[str, str], str]:
    """(program, device) → state."""
    return {(place.program.name, place.device): str(result.state) for place, result in cells}


def stored_night(
    store: Store,
    cells: Mapping[tuple[str, str], str],
    *,
    code: str = "c0",
    seconds: Sequence[float] = (),
    instructions: Sequence[int] = (),
    host: str = "host",
    started: str | None = None,
    commit: str = "a" * 40,
    reason: str = "",
) -> int:
    """A finished run that comes to ``cells`` ((program, device) → found), straight into the store.

    Each has one kernel ``k`` with these measurements.
    """
    number = store.begin_run(RunFacts(commit=commit, host=host, subject="Change something"), started=started)
    samples = [Sample(kernel="k", code=code, seconds=one, instructions=None) for one in seconds]
    samples += [Sample(kernel="k", code=code, seconds=None, instructions=one) for one in instructions]
    for (name, _), _ in cells.items():
        store.add_trace(
            _digest(name), 100, {"ptx": {"shuffle": 3, "atomics": 1}, "driver": {}, "libraries": {}}
        )
    store.add(
        number,
        [
            CellResult(
                outcome=Outcome(
                    program=name,
                    device=device,
                    numerics="nvidia",
                    trace=_digest(name),
                    found=found,
                    verdict=found if found in HOLDS + FAILS else None,
                    reason=reason or ("" if found in HOLDS else f"#3 k: {found}"),
                    code=code,
                    launches=1,
                    held=int(found in HOLDS),
                    failures=int(found in FAILS),
                    kernels=[KernelRow(name="k", verdict=found, launches=1, held=1, code=code)],
                    samples=samples,
                ),
                state=found,
            )
            for (name, device), found in cells.items()
        ],
    )
    store.finish_run(number, finished=started)
    return number


def _digest(name: str) -> str:
    return name.encode().hex().ljust(32, "0")[:32]
