"""Making a launch small, and proving what is left."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from zluda.device import names
from zluda.diff.results import Verdict
from zluda.errors import Error
from zluda.isolate.alone import Stage, part_of
from zluda.isolate.reduce.by_itself import by_itself
from zluda.isolate.reduce.case import Case
from zluda.isolate.reduce.launch import fewer_blocks, fewer_bytes, fewer_threads
from zluda.isolate.reduce.program import less_ptx
from zluda.isolate.reduce.question import Differs, Progress, Question, any_byte
from zluda.isolate.reduce.repro import check_folder, write_repro
from zluda.isolate.values.difference import Difference
from zluda.ptx import parse_module
from zluda.records import dataclass
from zluda.tracefile import Dim3, Trace, open_trace

SECONDS = 120.0
"""How long a reduction looks for something smaller."""

_CANDIDATE_SECONDS = 20.0
"""How long a candidate may run on a device: one cut out of a loop may go round for ever."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of a launch. ``instructions`` and ``threads`` are now and before; ``kept_bytes`` are those
    of memory before the launch that are not zero. ``asked`` is how many candidates were run. ``difference``
    is the instruction at fault in the reduced PTX, where it is told; ``verdict`` what the wrong device does.
    ``finished``: nothing smaller was found in time, rather than the time being over.
    """

    folder: str
    text: str
    grid: Dim3
    block: Dim3
    instructions: tuple[int, int]
    threads: tuple[int, int]
    kept_bytes: tuple[int, int]
    asked: int
    finished: bool
    verdict: Verdict
    difference: Difference | None


def reduce_launch(
    trace: Trace | str | os.PathLike[str],
    launch: int,
    right: str,
    wrong: str,
    folder: str | os.PathLike[str],
    *,
    numerics_right: str | None = None,
    numerics_wrong: str | None = None,
    contract: str = "auto",
    seconds: float = SECONDS,
    seed: int = 0,
    differs: Differs = any_byte,
    progress: Progress | None = None,
) -> Reduced:
    """Make the launch of call ``launch`` small for as long as ``wrong`` parts from ``right`` in the same way,
    and write what is left to ``folder``: a trace, its PTX and a test.

    ``differs`` decides whether what two runs left counts as different. The same ``seed`` tries the same
    candidates in the same order; which is the last depends on ``seconds``. ``progress`` is told what is
    tried. Raises TraceError for a launch that cannot be run alone or has no PTX, Error where the right device
    fails, both agree or ``folder`` holds something else, UnsupportedError for a launch whose trace cannot be
    written (CUDA arrays).
    """
    check_folder(folder)
    tell = progress or (lambda _what, _case: None)
    with ExitStack() as stack:
        if not isinstance(trace, Trace):
            trace = stack.enter_context(open_trace(os.fspath(trace)))
        opened = trace

        def stage(device: str, numerics: str | None) -> Stage:
            kind = names.kind(names.resolve(device))
            check = "memory" if "memory" in names.CHECKS[kind] else "none"  # a stray access is a failure
            return stack.enter_context(
                Stage(
                    opened,
                    launch,
                    device,
                    numerics=numerics,
                    contract=contract,
                    check=check,
                    time_limit=_CANDIDATE_SECONDS,
                )
            )

        stages = (stage(right, numerics_right), stage(wrong, numerics_wrong))
        return _reduce(stages, Path(folder), contract, seconds, seed, differs, tell)


def _reduce(
    stages: tuple[Stage, Stage],
    folder: Path,
    contract: str,
    seconds: float,
    seed: int,
    differs: Differs,
    tell: Progress,
) -> Reduced:
    right, wrong = stages
    launch = right.launch
    part = part_of(parse_module(right.text), launch.kernel)
    first = case = Case(part, part.text(), launch.grid, launch.block)
    question = Question(right, wrong, seconds, differs)
    tell("the launch as it is", case)
    found = question.begin(case)
    alone = by_itself(case, found, right)
    if alone is not None and question.holds(alone):
        case = alone
    for step in _STEPS:
        case = step(case, question, tell)
    case = less_ptx(case, question, tell, seed)
    for step in _STEPS:
        case = step(case, question, tell)
    finished = not question.over
    tell("the repro", case)
    after = right.run(case.text, case.setting)
    if after.failure is not None:
        raise Error(f"the reduced launch does not end well on {right.name}: {after.failure.reason}")
    difference = question.locate(case) if question.way.verdict is Verdict.DIFFERS else None
    write_repro(folder, case, right, after.memory, wrong.name, wrong.numerics, contract, difference)
    return Reduced(
        str(folder),
        case.text,
        case.grid,
        case.block,
        (case.instructions, first.instructions),
        (case.threads, first.threads),
        (_kept(case, right), _kept(first, right)),
        question.asked,
        finished,
        question.way.verdict,
        difference,
    )


_STEPS: tuple[Callable[[Case, Question, Progress], Case], ...] = (fewer_blocks, fewer_threads, fewer_bytes)


def _kept(case: Case, stage: Stage) -> int:
    contents = (case.memory.get(key, data) for key, data in stage.before.items())
    return sum(len(data) - data.count(0) for data in contents)
