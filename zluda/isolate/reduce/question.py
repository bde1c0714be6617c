"""Whether a candidate still goes wrong, and in the way that is looked for."""

from __future__ import annotations

import time
from collections.abc import Callable

from zluda.diff.results import Verdict
from zluda.errors import Error
from zluda.isolate.alone import Outcome, Stage
from zluda.isolate.reduce.case import Case
from zluda.isolate.values.align import Alignment
from zluda.isolate.values.difference import Difference, Kind
from zluda.isolate.values.log import Probe
from zluda.isolate.values.search import difference_between
from zluda.ptx.printer import print_instruction
from zluda.records import dataclass

Differs = Callable[[Outcome, Outcome], bool]
"""Whether what two devices made of a launch counts as different; neither failed."""

Progress = Callable[[str, Case], None]
"""Called with what is being tried and the smallest case so far."""


def any_byte(a: Outcome, b: Outcome) -> bool:
    """Whether a byte of memory differs."""
    return any(contents != b.memory.get(key) for key, contents in a.memory.items())


@dataclass(frozen=True, slots=True)
class Way:
    """In which way a launch goes wrong: the ``verdict`` of the second device, or a difference between both.

    ``instruction`` is the text of the one at fault, where it is known.
    """

    verdict: Verdict
    instruction: str = ""


class Question:
    """Asks two stages, until ``seconds`` are over: from then on the answer is no."""

    def __init__(self, right: Stage, wrong: Stage, seconds: float, differs: Differs = any_byte) -> None:
        self.right, self.wrong, self._differs = right, wrong, differs
        self._end = time.monotonic() + seconds
        self._thread: tuple[int, int] | None = None
        self.asked = 0
        self.way = Way(Verdict.DIFFERS)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._end

    def begin(self, case: Case) -> Difference | None:
        """Learn in which way the launch goes wrong; the instruction where it is told.

        Raises Error where the right device does not get to its end, or both agree.
        """
        outcome = self.right.run(case.text, case.setting)
        if outcome.failure is not None:
            raise Error(f"on {self.right.name} the launch does not end well: {outcome.failure.reason}")
        other = self.wrong.run(case.text, case.setting)
        if other.failure is not None:
            self.way = Way(other.failure.verdict)
            return None
        if not self._differs(outcome, other):
            raise Error(f"{self.right.name} and {self.wrong.name} agree on the launch by itself")
        found = self.locate(case)
        told = found is not None and found.kind is Kind.VALUE
        self.way = Way(Verdict.DIFFERS, found.text if found is not None and told else "")
        return found

    def locate(self, case: Case) -> Difference | None:
        """The instruction at fault; None where it is not told. Later questions look at its thread."""
        try:
            found = difference_between(self.right, self.wrong, case.part, setting=case.setting)
        except Error:  # what cannot be looked into can be made smaller all the same
            return None
        if found is not None:
            self._thread = (_linear(found.block, case.grid), _linear(found.thread, case.block))
        return found

    def holds(self, case: Case) -> bool:
        """Whether the case goes wrong in the same way."""
        if self.over:
            return False
        self.asked += 1
        outcome = self.right.run(case.text, case.setting)
        if outcome.failure is not None or not self._changes(case, outcome):
            return False
        other = self.wrong.run(case.text, case.setting)
        if self.way.verdict is not Verdict.DIFFERS:
            return other.failure is not None and other.failure.verdict is self.way.verdict
        if other.failure is not None or not self._differs(outcome, other):
            return False
        return not self.way.instruction or self._same_instruction(case)

    def _changes(self, case: Case, outcome: Outcome) -> bool:
        """Whether the launch changes memory where it is right: a replay compares nothing else."""
        before = self.right.before
        return any(data != case.memory.get(key, before[key]) for key, data in outcome.memory.items())

    def _same_instruction(self, case: Case) -> bool:
        """Whether the same instruction is at fault: in the thread where it was last, or anywhere."""
        if self.way.instruction not in case.text:
            return False
        if self._thread is not None and self._at_fault(case, *self._thread) == self.way.instruction:
            return True
        found = self.locate(case)
        return found is not None and (found.text, found.kind) == (self.way.instruction, Kind.VALUE)

    def _at_fault(self, case: Case, block: int, thread: int) -> str:
        probes = [Probe(stage, case.part, case.setting) for stage in (self.right, self.wrong)]
        entry = next(f for f in case.part.functions if f.name == case.part.kernel)
        alignment = Alignment(probes[0].sites, entry)
        try:
            a, b = (probe.values(block, thread // 32 * 32)[0] for probe in probes)
        except Error:
            return ""
        alignment.take(a, b)
        fault = alignment.first_fault()
        same = fault is not None and fault.kind is Kind.VALUE
        return print_instruction(fault.site.instruction) if fault is not None and same else ""


def _linear(index: tuple[int, int, int], shape: tuple[int, int, int]) -> int:
    return index[0] + shape[0] * (index[1] + shape[1] * index[2])
