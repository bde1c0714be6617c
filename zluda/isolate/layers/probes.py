"""Running suspect launches from their recorded inputs, on one device in one way after the other."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from zluda.device import names
from zluda.diff.results import CountsAs, LaunchResult, Verdict
from zluda.errors import Error
from zluda.records import dataclass
from zluda.replay.api import replay_trace
from zluda.replay.kernel_facts import KernelFacts
from zluda.tracefile import Selection, Trace

_LEVEL = "ZLUDA_OPTIMIZATION_LEVEL"
_COPIES = 4  # after a suspect, which show whether the record agrees with itself
_COPIES_WITHIN = 2_000  # calls
_INTERPRETING = 60.0  # seconds a launch, after which the interpreter says nothing of it

Report = Callable[[str], None]
"""Told what is being run now."""


@dataclass(frozen=True, slots=True)
class Run:
    """A way to run launches; ``level`` as ``ZLUDA_OPTIMIZATION_LEVEL`` has it."""

    device: str
    numerics: str
    level: str = ""

    @property
    def how(self) -> str:
        """What is special of it, in words."""
        emulated = ["emulated"] if names.kind(self.device) == "gfx" else []
        exact = names.kind(self.device) not in ("cuda", "nvptx")
        told = [f"{self.numerics} numerics"] if exact else []
        return ", ".join([*emulated, *told, *(["hardly optimised"] if self.level else [])])


@dataclass(slots=True)
class Seen:
    """What a run gave: results by call; none, and ``absent``, where the device is not at hand."""

    run: Run
    results: Mapping[int, LaunchResult] = field(default_factory=dict)
    absent: str = ""

    def outcome(self, call: int) -> str:
        """``holds``, ``fails``, or ``untold``."""
        result = self.results.get(call)
        return "untold" if result is None else _OUTCOMES.get(result.verdict.counts_as, "untold")

    def told(self, call: int) -> str:
        """The verdict, and what differs or why."""
        result = self.results.get(call)
        if result is None:
            return self.absent or "not run"
        found = result.first_difference
        if found is None:
            return f"{result.verdict.value}{f': {result.reason}' if result.reason else ''}"
        buffer, element = found
        place = f"element {element.label} of {buffer.label}"
        values = f"recorded {element.recorded}, replayed {element.replayed}"
        return f"{result.verdict.value}: {buffer.differing:,} differ, {place}: {values}"


_OUTCOMES = {CountsAs.HOLDS: "holds", CountsAs.FAILS: "fails"}


class Prober:
    """Runs launches of one trace; what was run once is not run again."""

    def __init__(
        self,
        trace: Trace,
        *,
        contract: str = "auto",
        time_limit: float | None = None,
        report: Report | None = None,
    ) -> None:
        self.trace, self._contract, self._time_limit = trace, contract, time_limit
        self.tell: Report = report or (lambda text: None)
        self._seen: dict[Run, Seen] = {}
        self._facts = KernelFacts(trace)

    def see(self, run: Run, calls: Sequence[int]) -> Seen:
        """The results of these calls, each from its recorded inputs."""
        seen = self._seen.setdefault(run, Seen(run))
        wanted = [call for call in calls if call not in seen.results]
        seen.absent = seen.absent or (_why_absent(run.device) if wanted else "")
        if wanted and not seen.absent:
            self.tell(f"{run.device} ({run.how})" if run.how else run.device)
            try:
                seen.results = {**seen.results, **self._replay(run, wanted)}
            except Error as error:
                seen.absent = str(error)
        return seen

    def know(self, run: Run, results: Iterable[LaunchResult]) -> None:
        """Results of a run that was made already."""
        seen = self._seen.setdefault(run, Seen(run))
        seen.results = {**seen.results, **{one.call: one for one in results}}

    def _replay(self, run: Run, calls: Sequence[int]) -> dict[int, LaunchResult]:
        device = names.resolve(run.device)
        names.check_options(device, numerics=run.numerics, check="none", contract=self._contract_of(device))
        selection = Selection(within=frozenset(calls))
        with _level(run.level):
            result = replay_trace(
                self.trace,
                device,
                mode="isolated",
                numerics=run.numerics,
                contract=self._contract_of(device),
                selection=selection,
                time_limit=self._time_limit or (_INTERPRETING if device == "interpreter" else None),
                calls=self._around(calls),
            )
        wanted = set(calls)
        return {one.call: one for one in result.results if one.call in wanted}

    def _contract_of(self, device: str) -> str:
        """NVIDIA's own driver rounds as it does."""
        return "auto" if names.kind(device) == "cuda" else self._contract

    def _around(self, calls: Sequence[int]) -> range:
        """From the first to the last of them; of graphs, whole ones."""
        first, last = self.trace.call(min(calls)), self.trace.call(max(calls))
        start, stop = first.sequence, last.sequence + 1
        if self.trace.graphs.is_node(first):
            start = min(start, first.parent if first.parent is not None else start)
        if self.trace.graphs.is_node(last) and last.parent is not None:
            stop = self._end(last.sequence) + 1
        return range(start, stop)

    def varying(self, call: int) -> str:
        """The instructions that make a launch's results depend on the order of threads; empty without."""
        causes = self._facts.varying(self.trace.launch(call))
        return ", ".join(sorted(causes)) if causes else ""

    # --- the record against itself ------------------------------------------------------------------------

    def contradicted(self, call: int) -> str:
        """The copy that says against the record's memory after ``call``, empty where none does.

        Copies are replayed from the record's memory: one that does not deliver what it delivered then says
        that memory was not what the record has.
        """
        copies = []
        for one in self.trace.iter_copies():
            if call < one.sequence < call + _COPIES_WITHIN and one.result == 0:
                copies.append(one.sequence)
            if len(copies) == _COPIES:
                break
        if not copies:
            return ""
        result = replay_trace(
            self.trace,
            "cpu",
            mode="isolated",
            selection=Selection(within=frozenset(copies)),
            calls=range(call, copies[-1] + 1),
        )
        for found in result.results:
            parted = [b.allocation for b in found.buffers if b.differing]
            fails = found.kind == "copy" and found.verdict is Verdict.DIFFERS
            if fails and any(self._left_by(call, one, found.call) for one in parted):
                return f"#{found.call} {found.kernel}"
        return ""

    def wrong_write(self, run: Run, call: int) -> str:
        """The first call before ``call`` that leaves other bytes on a device than on record, and is no
        launch; empty without. No launch is run.
        """
        try:
            result = replay_trace(
                self.trace,
                names.resolve(run.device),
                mode="isolated",
                numerics=run.numerics,
                selection=Selection(within=frozenset()),
                calls=range(call),
            )
        except Error:
            return ""  # nothing is known of them then
        found = result.meta["wrong_writes"]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return f"#{min(found)} {found[min(found)]}{more}" if found else ""

    def lost_memory(self, run: Run, call: int) -> str:
        """What of the record's memory before ``call`` reads otherwise once it was put into the device's, in
        words; empty where all is as it was put. Nothing is run.
        """
        found = []
        try:
            replay_trace(
                self.trace,
                names.resolve(run.device),
                mode="isolated",
                numerics=run.numerics,
                calls=range(call, call),
                arrived=lambda player, first: found.append(player.unlike_record(first - 1)),
            )
        except Error:
            return ""  # nothing is known of it then
        return found[0]

    def unlike_asked(self, call: int) -> str:
        """The first object of a launch that the driver does not make as it was asked to; empty without."""
        from zluda.isolate.layers.objects import unlike_asked

        try:
            return unlike_asked(self.trace, self.trace.launch(call))
        except Error:
            return ""  # a refusal, which the launch's own result tells

    # --- the emulator against AMD's pseudo-code -------------------------------------------------------------

    def emulated_otherwise(self, target: str, call: int) -> tuple[int, str]:
        """How many of the AMD instructions of a launch's kernel could be held against AMD's pseudo-code, and
        what the emulator does otherwise; empty where nothing.

        Raises Error where the kernel's code or the pseudo-code is not at hand.
        """
        from zluda.compiler.amd.lines import amd_lines
        from zluda.isolate.opinion import opinion
        from zluda.isolate.opinion.instructions import plain_name

        launch = self.trace.launch(call)
        module = self._facts.module(launch)
        if module is None:
            raise Error(f"{launch.kernel}: no PTX on record")
        lines = amd_lines(module, launch.kernel, target, numerics="nvidia", contract=self._contract)
        found = opinion(target, {plain_name(one) for some in lines.values() for one in some})
        more = f", and {len(found.wrong) - 1} more" if len(found.wrong) > 1 else ""
        return len(found.told), f"{found.wrong[0]}{more}" if found.wrong else ""

    def _left_by(self, call: int, allocation: int | None, copy: int) -> bool:
        """Whether nothing between ``call`` and ``copy`` changed an allocation on record, and ``call`` did."""
        with_pages = self.trace.calls_with_pages
        changed = [
            one
            for one in range(self._end(call), copy)
            if one in with_pages and any(page.allocation == allocation for page in self.trace.pages(one))
        ]
        return changed == [self._end(call)]

    def _end(self, call: int) -> int:
        """Where memory after a launch is on record: of a graph's node, at the graph's end."""
        one = self.trace.call(call)
        if not self.trace.graphs.is_node(one) or one.parent is None:
            return call
        end = self.trace.graphs.end(one.parent)
        return call if end is None else end


def _why_absent(device: str) -> str:
    """Why a GPU cannot be there, told without starting anything; empty where it may be."""
    kind = names.kind(device)
    if kind in ("cuda", "nvptx"):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            return str(error)
    if kind == "hip":
        from zluda.device.amd.hip.probe import gpu_answers

        return "" if gpu_answers() else "no AMD GPU answers"
    return ""


@contextmanager
def _level(level: str) -> Iterator[None]:
    """Within: runners are started with this optimisation level."""
    if not level:
        yield
        return
    before = os.environ.get(_LEVEL)
    os.environ[_LEVEL] = level
    try:
        yield
    finally:
        if before is None:
            del os.environ[_LEVEL]
        else:
            os.environ[_LEVEL] = before
