"""The search for the layer: which runs are made, of what, until the table has an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from zluda.device import names
from zluda.diff.blame import ABSENT, Blame, Evidence, Layer, Sure
from zluda.diff.proof import Proof
from zluda.diff.results import CountsAs, LaunchResult, Verdict
from zluda.errors import Error, TraceError
from zluda.isolate.layers.probes import Prober, Run, Seen
from zluda.isolate.layers.table import Row, decide
from zluda.records import dataclass
from zluda.tracefile import Trace
from zluda.tracefile.stripping import Part, require

if TYPE_CHECKING:
    from zluda.isolate.values import Difference

EMULATED = "gfx1030"
"""The AMD GPU that is emulated where the device names none."""

OTHERS = ("gfx1030", "gfx1100", "gfx90a")

_SCHEDULING = "independent thread scheduling"
_REFUSED = {
    "the compiler wrote LLVM IR that is not valid": "translation refused",
    "the emulator wrote LLVM IR that is not valid": "emulation refused",
}
"""What reasons say of code that LLVM refuses → the fact of the table."""


@dataclass(slots=True)
class Answer:
    """What is at fault for one launch or copy; the ``difference`` inside it, where it was looked for and
    found, or else ``no_difference``: why not. ``result`` is what it was on the device.
    """

    blame: Blame
    result: LaunchResult | None = None
    difference: Difference | None = None
    no_difference: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The device on which launches went wrong, and all the ways in which they are run."""

    device: str
    numerics: str
    emulated: str  # the AMD target that is emulated

    @property
    def kind(self) -> str:
        return names.kind(self.device)

    def run(self, probe: str) -> Run:
        """The run of a probe of the table."""
        exact = Run(self.device, "nvidia")
        return {
            "device": Run(self.device, self.numerics),
            "exact": exact,
            "cuda": Run("cuda:0", "nvidia"),
            "nvptx": Run("nvptx:0", names.chosen_numerics("nvptx:0", None)),
            "hip": Run("hip:0", "nvidia"),
            "cpu": Run("cpu", "nvidia"),
            "cpu native": Run("cpu", "native"),
            "interpreter": Run("interpreter", "nvidia"),
            "emulator": Run(self.emulated, "nvidia"),
            "plain": replace(exact, level="0"),
        }[probe]


@dataclass(frozen=True, slots=True)
class _Step:
    """A run that is made where all facts of one of ``when`` were seen and no answer is certain yet."""

    probe: str
    when: tuple[frozenset[str], ...]


def _step(probe: str, *when: str) -> _Step:
    return _Step(probe, tuple(frozenset(w.strip() for w in words.split(",")) for words in when))


_AMD_ALONE = "cpu holds, emulator fails"
_CPU_ALONE = "on cpu, cpu fails, emulator holds"

STEPS = (
    _step("device", ""),
    _step("writes", "device holds, stream fails"),
    _step("varies", "device fails"),
    _step("cuda", "device fails"),
    _step("exact", "device fails"),
    _step("cpu", "exact fails"),
    _step("memory", "exact fails, cpu fails", "exact fails, on hip"),
    _step("objects", "exact fails, cpu fails", "exact fails, on hip"),
    _step("record", "exact fails, cpu fails"),
    _step("interpreter", "exact fails, cpu fails"),
    _step("cpu native", "exact holds, on emulator", "exact holds, on hip"),
    _step("emulator", "exact fails"),
    _step("nvptx", "exact fails"),
    _step("hip", _AMD_ALONE),
    _step("rows", f"{_AMD_ALONE}, on emulator"),
    _step("plain", _AMD_ALONE, _CPU_ALONE),
    _step("seam", _AMD_ALONE, _CPU_ALONE),
    _step("others", _AMD_ALONE),
)
"""In this order. ``writes``, ``varies``, ``memory``, ``objects``, ``record``, ``rows``, ``seam`` and
``others`` are no single runs."""


class Search:
    """Finds the layer for launches of one trace that went wrong on one device."""

    def __init__(self, prober: Prober, asked: Asked, *, inside: bool = True) -> None:
        """``inside``: look for the first instruction that differs, where the layer depends on it."""
        self._prober, self._asked, self._inside = prober, asked, inside
        self._trace = prober.trace
        self._facts: dict[int, set[str]] = {}
        self._evidence: dict[int, list[Evidence]] = {}
        self._answers: dict[int, Answer] = {}
        self._seams: dict[str, tuple[str, Difference | None, str]] = {}  # of a kernel

    def answers(self, suspects: Sequence[LaunchResult], *, in_stream: bool) -> list[Answer]:
        """One for each suspect. ``in_stream``: they are results of a whole replay in mode stream."""
        kernels = {one.call: one.kernel for one in suspects}
        for one in suspects:
            self._begin(one, in_stream=in_stream)
        for step in STEPS:
            calls = [call for call in kernels if self._wants(call, step)]
            if calls:
                _STEPS.get(step.probe, Search._run)(self, step.probe, calls, kernels)
        return [self._answer(one) for one in suspects]

    def _begin(self, suspect: LaunchResult, *, in_stream: bool) -> None:
        facts = self._facts[suspect.call] = {"", f"on {_ON.get(self._asked.kind, self._asked.kind)}"}
        self._evidence[suspect.call] = []
        self._answers[suspect.call] = Answer(
            Blame(suspect.call, suspect.kernel, Layer.UNKNOWN, Sure.LIKELY, "")
        )
        if suspect.kind == "copy":
            facts.add("is a copy")
        if in_stream and suspect.verdict is Verdict.INHERITED:
            facts.add("stream inherits")
        elif in_stream and suspect.verdict.counts_as is CountsAs.FAILS:
            facts.add("stream fails")
        facts |= self._proof(suspect.call)

    def _proof(self, call: int) -> set[str]:
        proof = Proof.of(self._trace.meta, str(self._trace.path))
        if proof is None or not proof.done:
            return set()
        row = next((one for one in self._trace.unproved if one.call == call), None)
        if row is None or row.verdict == Verdict.NOISE.value:
            return {"record proved"}
        verdict = next((v for v in Verdict if v.value == row.verdict), None)
        return {"record unproved"} if verdict is not None and verdict.counts_as is CountsAs.FAILS else set()

    def _wants(self, call: int, step: _Step) -> bool:
        facts = self._facts[call]
        row = decide(facts)
        settled = row.sure is Sure.CERTAIN and row.layer is not Layer.UNKNOWN
        return not settled and any(when <= facts for when in step.when)

    # --- steps ------------------------------------------------------------------------------------------

    def _run(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        seen = self._prober.see(self._asked.run(probe), calls)
        for call in calls:
            self._note(probe, call, seen)
            self._facts[call].add(f"{probe} {seen.outcome(call)}")
            if probe == "cuda" and seen.outcome(call) == "holds":
                self._facts[call].add("record proved")
            if probe == "device":
                self._facts[call] |= _of_device(seen.results.get(call))
            if self._alike(call, "emulator"):
                self._facts[call].add("alike")
            if self._alike(call, "interpreter"):
                self._facts[call].add("interpreter alike")

    def _alike(self, call: int, other_probe: str) -> bool:
        """Whether the CPU and another device were seen to leave the same wrong bytes."""
        one, other = (
            self._prober.see(self._asked.run(probe), ()).results.get(call) for probe in ("cpu", other_probe)
        )
        return one is not None and other is not None and _signature(one) == _signature(other)

    def _note(self, probe: str, call: int, seen: Seen) -> None:
        run = seen.run
        told = ABSENT if seen.absent else seen.outcome(call), seen.told(call)
        self._evidence[call].append(Evidence(probe, run.device, run.how, *told, numerics=run.numerics))

    def _writes(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        wrong = self._prober.wrong_write(self._asked.run("device"), min(calls))
        for call in calls if wrong else ():
            self._facts[call].add("writes part")
            self._evidence[call].append(
                Evidence("writes", self._asked.device, "calls before it", "fails", wrong)
            )

    def _varies(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        for call in calls:
            causes = "" if "is a copy" in self._facts[call] else self._prober.varying(call)
            if causes:
                self._facts[call].add("varies")
                self._evidence[call].append(Evidence("varies", "", "by its instructions", "varies", causes))

    def _memory(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        for call in calls if self._asked.kind != "cuda" else ():
            lost = self._prober.lost_memory(self._asked.run("exact"), call)
            if lost:
                self._facts[call].add("memory parts")
                how = "the record's memory before it, put in place and read back"
                self._evidence[call].append(Evidence("memory", self._asked.device, how, "fails", lost))

    def _objects(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        for call in calls:
            unlike = "" if "is a copy" in self._facts[call] else self._prober.unlike_asked(call)
            if unlike:
                self._facts[call].add("objects part")
                how = "its module and textures, as they are made"
                self._evidence[call].append(Evidence("objects", "", how, "fails", unlike))

    def _rows(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        """Of each kernel once: launches of one kernel have the same code."""
        opinions: dict[str, tuple[str, str]] = {}
        for call in calls:
            kernel = kernels[call]
            if kernel not in opinions:
                self._prober.tell("the emulator's instructions against AMD's pseudo-code")
                opinions[kernel] = self._opinion(call)
            outcome, seen = opinions[kernel]
            self._facts[call].add(f"rows {outcome}")
            how = "its AMD instructions, against AMD's pseudo-code"
            self._evidence[call].append(Evidence("rows", self._asked.emulated, how, outcome, seen))

    def _opinion(self, call: int) -> tuple[str, str]:
        try:
            count, wrong = self._prober.emulated_otherwise(self._asked.emulated, call)
        except Error as error:
            return "untold", str(error)
        if wrong:
            return "fail", wrong
        return ("hold", f"{count} as it says") if count else ("untold", "it says nothing of them")

    def _record(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        for call in calls:
            copy = self._prober.contradicted(call)
            if copy:
                self._facts[call].add("record contradicts")
                seen = f"{copy} delivered other bytes than the record has after #{call}"
                self._evidence[call].append(Evidence("record", "", "against itself", "fails", seen))

    def _others(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        runs = [Run(target, "nvidia") for target in OTHERS if target != self._asked.emulated]
        for seen in [self._prober.see(run, calls) for run in runs]:
            for call in calls:
                self._note(seen.run.device, call, seen)
        for call in calls:
            outcomes = {self._prober.see(run, ()).outcome(call) for run in runs} - {"untold"}
            word = {frozenset(["holds"]): "hold", frozenset(["fails"]): "fail"}.get(
                frozenset(outcomes), "part"
            )
            self._facts[call].add(f"others {word if outcomes else 'untold'}")

    def _seam(self, probe: str, calls: list[int], kernels: dict[int, str]) -> None:
        """Of each kernel once: launches of one kernel go wrong at one instruction, as a rule."""
        for call in calls if self._inside else ():
            kernel = kernels[call]
            if kernel not in self._seams:
                self._seams[kernel] = self._first_difference(call)
            fact, difference, why_not = self._seams[kernel]
            self._facts[call].add(fact)
            self._answers[call].difference, self._answers[call].no_difference = difference, why_not
            if difference is not None:
                self._evidence[call].append(
                    Evidence(
                        "instruction",
                        difference.device_b,
                        f"against {difference.device_a}",
                        fact,
                        str(difference),
                    )
                )

    def _first_difference(self, call: int) -> tuple[str, Difference | None, str]:
        right, wrong = self._asked.run("cpu"), self._asked.run("emulator")
        if self._asked.kind == "cpu":
            right, wrong = wrong, right
        self._prober.tell(f"{right.device} against {wrong.device}, instruction by instruction")
        return first_difference(self._trace, call, right, wrong)

    # --- the answer -------------------------------------------------------------------------------------

    def _answer(self, suspect: LaunchResult) -> Answer:
        facts, answer = self._facts[suspect.call], self._answers[suspect.call]
        row = decide(facts)
        answer.result = self._prober.see(self._asked.run("device"), ()).results.get(suspect.call)
        answer.blame = replace(
            answer.blame,
            layer=row.layer,
            sure=row.sure,
            reason=self._reason(row, suspect, answer.result),
            needs=row.needs,
            evidence=tuple(self._evidence[suspect.call]),
        )
        return answer

    def _reason(self, row: Row, suspect: LaunchResult, alone: LaunchResult | None) -> str:
        """With what the device itself said, where that is the answer."""
        own = alone.reason if alone is not None else ""
        if row.layer is Layer.INPUTS:
            return f"{row.reason}; {suspect.reason}" if suspect.reason else row.reason
        if self._facts[suspect.call] & {"unsupported", "device untold"}:
            own = own or self._prober.see(self._asked.run("device"), ()).absent
            return f"{row.reason}: {own}" if own else row.reason
        for fact, probe in _TOLD_BY.items():
            if fact in row.when:
                own = next(one.seen for one in self._evidence[suspect.call] if one.probe == probe)
                return f"{row.reason}: {own}"
        return row.reason


_ON = {"gfx": "emulator"}

_TOLD_BY = {
    "writes part": "writes",
    "memory parts": "memory",
    "objects part": "objects",
    "rows fail": "rows",
}
"""Facts of which a row's reason tells what was seen → the evidence that has it."""

_STEPS: dict[str, Callable[[Search, str, list[int], dict[int, str]], None]] = {
    "writes": Search._writes,
    "varies": Search._varies,
    "memory": Search._memory,
    "objects": Search._objects,
    "record": Search._record,
    "rows": Search._rows,
    "others": Search._others,
    "seam": Search._seam,
}


def _of_device(result: LaunchResult | None) -> set[str]:
    """Facts beside the outcome of the device's own run."""
    if result is None:
        return set()
    facts = set()
    if result.verdict in (Verdict.CRASH, Verdict.HANG):
        facts.add("dies")
    if _SCHEDULING in result.reason:
        facts.add("needs scheduling")
    if result.verdict is Verdict.UNSUPPORTED:
        facts.add("unsupported")
    facts |= {fact for text, fact in _REFUSED.items() if text in result.reason}
    return facts


def not_run(results: Iterable[LaunchResult]) -> LaunchResult | None:
    """The first launch that could not be run for what translates it: of a layer, though it was not judged."""
    return next(
        (
            one
            for one in results
            if one.kind == "launch"
            and (one.verdict is Verdict.UNSUPPORTED or any(text in one.reason for text in _REFUSED))
        ),
        None,
    )


def _signature(result: LaunchResult) -> tuple[object, ...]:
    """What two wrong results have in common when they are the same bytes."""
    parts = [
        (b.allocation, b.differing, tuple((e.address, e.replayed_bits) for e in b.first))
        for b in result.buffers
        if b.differing
    ]
    return (result.verdict, *parts)


def first_difference(trace: Trace, call: int, right: Run, wrong: Run) -> tuple[str, Difference | None, str]:
    """(the fact of the table, the first instruction that differs, else why there is none)"""
    from zluda.isolate.values import first_difference as search

    try:
        found = search(
            trace,
            call,
            right.device,
            wrong.device,
            numerics_a=right.numerics,
            numerics_b=wrong.numerics,
        )
    except Error as error:
        return "seam untold", None, str(error)
    if found is None:
        return "seam untold", None, "both devices leave the same memory when instructions are watched"
    return seam_of(found), found, ""


def seam_of(found: Difference) -> str:
    """Whether what differs is lowered by what all targets share, or by the target's own operations."""
    from zluda.compiler.lower import families
    from zluda.compiler.lower.lanewise import LANEWISE
    from zluda.isolate.values import Kind

    if found.kind is Kind.STORE:
        return "own seam"
    if found.kind is not Kind.VALUE:
        return "seam untold"
    opcode = _opcode(found.text)
    shared = opcode in LANEWISE and families.find(opcode) is None
    return "shared seam" if shared else "own seam"


def _opcode(text: str) -> str:
    """``add`` of ``@%p1 add.rn.f32 %f1, …``"""
    words = text.split()
    return next((word for word in words if not word.startswith("@")), "").partition(".")[0].rstrip(";")


def isolate(
    trace: Trace,
    device: str,
    suspects: Sequence[LaunchResult],
    *,
    numerics: str | None = None,
    in_stream: bool = True,
    inside: bool = True,
    contract: str = "auto",
    time_limit: float | None = None,
    known: Sequence[LaunchResult] = (),
    report: Callable[[str], None] | None = None,
) -> list[Answer]:
    """Which layer is at fault for each suspect, which went wrong on ``device`` (a full name).

    ``in_stream``: the suspects are results of a replay in mode stream, else only their calls count.
    ``inside``: look for the first instruction that differs where the layer depends on it. ``known``
    are results of a replay in mode isolated on the device, which are not asked for again. ``report`` is told
    what is run.
    Raises TraceError where the trace cannot be replayed from its recorded inputs.
    """
    require(trace, Part.CONTENTS, "replayed launch by launch from recorded inputs")
    prober = Prober(trace, contract=contract, time_limit=time_limit, report=report)
    asked = Asked(device, names.chosen_numerics(device, numerics), _emulated(device))
    prober.know(asked.run("device"), known)
    return Search(prober, asked, inside=inside).answers(suspects, in_stream=in_stream)


def blame(trace: Trace, device: str, suspects: Sequence[LaunchResult], **options: object) -> dict[int, Blame]:
    """The same in bulk, by call, without looking inside launches."""
    found = isolate(trace, device, suspects, inside=False, **options)  # type: ignore[arg-type]
    return {one.blame.call: one.blame for one in found}


def _emulated(device: str) -> str:
    """The AMD target to emulate beside a device."""
    kind = names.kind(device)
    if kind == "gfx":
        return device
    if kind == "hip":
        with suppress(Error, OSError):
            from zluda.device.amd.hip.probe import probe

            found = next((gpu.target for gpu in probe().gpus if gpu.name == device), "")
            if found:
                return names.resolve(found.partition(":")[0])
    return EMULATED


def suspect_of(trace: Trace, call: int) -> LaunchResult:
    """A launch or copy that the user names, as a suspect of which nothing is known yet.

    Raises TraceError for a call that is neither.
    """
    launch = next(trace.iter_launches(call, call + 1), None)
    if launch is not None:
        shape = launch.grid, launch.block
        return LaunchResult(call, "launch", launch.kernel, Verdict.NOT_REPLAYED, "", *shape)
    function = trace.call(call).function
    end = trace.graphs.end(call)
    if end is not None:
        inside = ", ".join(str(one.call) for one in trace.iter_launches(call + 1, end + 1))
        reason = f"{function} launches a graph, whose kernels are calls {inside or 'without number'}"
        raise TraceError(reason, file=str(trace.path), call=call)
    if all(one.sequence != call for one in trace.iter_copies()):
        reason = f"{function} neither launches a kernel nor copies to the host; see zluda dump --launches"
        raise TraceError(reason, file=str(trace.path), call=call)
    return LaunchResult(call, "copy", function, Verdict.NOT_REPLAYED)
