"""One cell, in a process of its own: ``python -m zluda.matrix.cell`` with a :class:`Task` as JSON on standard
input.

The answer is a JSON object in the file that the task names. A process that leaves none has failed, not the
program: an exception is nowhere caught but where it says something of the program or the device.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zluda.errors import DeviceError, Error, TraceError, UnsupportedError
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.diff.results import LaunchResult, ReplayResult
    from zluda.matrix.identity import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the process is to do. ``known`` maps digests of code to the outcomes that they are known to have;
    ``samples`` is how often a replay is measured after it; ``answer`` and ``page`` are files to be written
    (``page`` "": none).
    """

    trace: str
    device: str
    numerics: str
    answer: str
    page: str = ""
    with_tags: bool = False
    code: bool = True
    known: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0

    def to_json(self) -> str:
        """As it goes to the process."""
        return json.dumps(asdict(self))


def run(task: Task) -> dict[str, Any]:
    """Do it: ``taken_over`` (an outcome's number), ``not_run`` (why), or ``replay`` and what goes with it."""
    found: dict[str, Any] = {}
    try:
        return found | _run(task, found)
    except (DeviceError, UnsupportedError, TraceError) as error:
        return {**found, "not_run": str(error)}


def _run(task: Task, found: dict[str, Any]) -> dict[str, Any]:
    import zluda
    from zluda.matrix.identity import Code, code_of
    from zluda.report.html import write_page

    if task.with_tags:
        found["tags"] = _tags(task.trace)
    try:
        code = code_of(Path(task.trace), task.device, task.numerics) if task.code else Code("", {})
    except TraceError:
        raise
    except Error as error:  # there is no cache, or this device's code cannot be told: nothing is taken over
        code, found["code_unknown"] = Code("", {}), str(error)
    found["code"] = code.digest
    if code.digest in task.known:
        return {"taken_over": task.known[code.digest]}
    result = zluda.replay(task.trace, device=task.device, numerics=task.numerics)
    found |= {
        "replay": result.to_json(),
        "reason": _reason(result),
        "kernels": _kernels(result, code),
        **_counts(result.results),
    }
    if task.page:
        write_page([result], task.page)
    samples: list[dict[str, Any]] = []
    for _ in range(task.samples if result.verdict.counts_as.value == "holds" else 0):
        measured = zluda.replay(task.trace, device=task.device, numerics=task.numerics, profile=True)
        samples += _samples(measured, code)
    return {"samples": samples}


def _tags(path: str) -> dict[str, Any]:
    from zluda.corpus import tags_of
    from zluda.tracefile import open_trace

    with open_trace(path) as trace:
        return tags_of(trace).as_dict()


def _reason(result: ReplayResult) -> str:
    """Why it is not as recorded: of the first launch or copy with the worst verdict, its kernel and why."""
    worst = result.verdict
    first = next((one for one in result.results if one.verdict is worst), None)
    if first is None:
        return "the trace has no launch and no copy"
    if worst.counts_as.value == "holds":
        return ""
    divergence = result.first_divergence
    if divergence is not None and divergence.result is first:
        return str(divergence)
    return f"#{first.call} {first.kernel}: {first.reason or worst.meaning}"


def _counts(results: Sequence[LaunchResult]) -> dict[str, int]:
    launches = [one.verdict.counts_as.value for one in results if one.kind == "launch"]
    return {
        "launches": len(launches),
        "held": launches.count("holds"),
        "untold": launches.count("cannot tell"),
    }


def _kernels(result: ReplayResult, code: Code) -> list[dict[str, Any]]:
    from zluda.diff.results import worst

    by_name: dict[str, list[LaunchResult]] = {}
    for one in result.results:
        if one.kind == "launch":
            by_name.setdefault(one.kernel, []).append(one)
    rows = []
    for name, launches in by_name.items():
        known = result.classes.get(name)
        rows.append(
            {
                "name": name,
                "verdict": worst(one.verdict for one in launches).value,
                "launches": len(launches),
                "held": _counts(launches)["held"],
                "kind": "" if known is None else known.kind.value,
                "code": code.kernels.get(name, ""),
            }
        )
    return rows


def _samples(result: ReplayResult, code: Code) -> Iterable[dict[str, Any]]:
    for times in result.meta["launch_times"]:
        yield {
            "kernel": times.kernel,
            "code": code.kernels.get(times.kernel, ""),
            "seconds": None if result.emulated else times.seconds,  # of the emulator, which is not AMD's
            "instructions": times.instructions or None,
        }


def main() -> None:
    """Do what standard input says."""
    task = Task(**json.load(sys.stdin))
    answer = run(task)
    Path(task.answer).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main()
