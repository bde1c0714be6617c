"""Verdicts and results: the one table of what a launch's verdict means, and the types that carry them.

Replay and ``zluda diff`` fill these, ``report`` prints them, the command line takes its exit status from
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from zluda.diff.blame import Blame
from zluda.diff.metrics import Metrics
from zluda.diff.spots import Spots
from zluda.diff.types.layout import UNKNOWN, Layout
from zluda.errors import Error
from zluda.records import dataclass
from zluda.tracefile.records import Dim3, Fidelity

if TYPE_CHECKING:
    import pandas

    from zluda.diff.kernel_class import StaticClass


class CountsAs(Enum):
    """What a verdict does to the verdict of the whole."""

    HOLDS = "holds"
    FAILS = "fails"
    CANNOT_TELL = "cannot tell"
    NEUTRAL = "neutral"


class Verdict(Enum):
    """The verdict of one launch or copy; the member's value is its name in text and JSON."""

    meaning: str
    counts_as: CountsAs

    def __new__(cls, name: str, meaning: str, counts_as: CountsAs) -> Verdict:
        member = object.__new__(cls)
        member._value_ = name
        member.meaning = meaning
        member.counts_as = counts_as
        return member

    IDENTICAL = "identical", "all compared bytes are equal", CountsAs.HOLDS
    WITHIN = "within", "inside the envelope of the approximate instructions used", CountsAs.HOLDS
    NOISE = "noise", "inside what NVIDIA itself shows between replays", CountsAs.HOLDS
    DIFFERS = "differs", "outside every bound", CountsAs.FAILS
    INHERITED = "inherited", "differs, but its inputs already differed", CountsAs.FAILS
    CRASH = "crash", "the process that ran the kernel died", CountsAs.FAILS
    HANG = "hang", "the kernel made no progress", CountsAs.FAILS
    UNSUPPORTED = "unsupported", "an instruction or call is not translated", CountsAs.CANNOT_TELL
    NO_PTX = "no-ptx", "the module holds machine code only", CountsAs.CANNOT_TELL
    NOT_COMPARED = "not-compared", "the record holds nothing to compare with", CountsAs.NEUTRAL
    GAP = "gap", "not captured, or not possible on this device", CountsAs.CANNOT_TELL
    NOT_REPLAYED = "not-replayed", "left out by the selection", CountsAs.NEUTRAL

    def __str__(self) -> str:
        return str(self.value)

    @property
    def key(self) -> str:
        """The name as a JSON key: underscores for dashes."""
        return str(self.value).replace("-", "_")

    @property
    def severity(self) -> int:
        """Larger is worse."""
        return _SEVERITY[self]


# Worst first. It follows the exit status, so that a verdict and the status never tell different stories:
# what fails is worse than what cannot be told, and what is neutral never hides what was compared.
_WORST_FIRST = (
    Verdict.CRASH,
    Verdict.HANG,
    Verdict.DIFFERS,
    Verdict.INHERITED,
    Verdict.UNSUPPORTED,
    Verdict.NO_PTX,
    Verdict.GAP,
    Verdict.NOISE,
    Verdict.WITHIN,
    Verdict.IDENTICAL,
    Verdict.NOT_COMPARED,
    Verdict.NOT_REPLAYED,
)
_SEVERITY = {verdict: len(_WORST_FIRST) - rank for rank, verdict in enumerate(_WORST_FIRST)}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; ``not-compared`` where there are none."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.NOT_COMPARED)


def exit_status(counts: Mapping[Verdict, int], allow: Iterable[Verdict] = ()) -> int:
    """0: something was compared, all of it holds, nothing fails or cannot be told; 1: something fails; 2:
    else.

    Verdicts in ``allow`` that cannot be told are accepted; nothing else can be.
    """
    seen = {verdict for verdict, count in counts.items() if count}
    kinds = {verdict.counts_as for verdict in seen if not (verdict in set(allow) and _may_allow(verdict))}
    if CountsAs.FAILS in kinds:
        return 1
    if CountsAs.CANNOT_TELL in kinds or CountsAs.HOLDS not in kinds:
        return 2
    return 0


def parse_allow(text: str) -> frozenset[Verdict]:
    """``--allow no-ptx,unsupported,gap``; raises :class:`Error` naming a word that may not be allowed."""
    may = {str(verdict.value): verdict for verdict in Verdict if _may_allow(verdict)}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in may:
            raise Error(f"--allow {word}: expected some of {', '.join(may)}")
    return frozenset(may[word] for word in words)


def _may_allow(verdict: Verdict) -> bool:
    return verdict.counts_as is CountsAs.CANNOT_TELL


def general(reason: str) -> str:
    """A reason without what is one launch's own: an envelope's elements and figures stand after its names."""
    return reason.partition(": ")[0] if "side the envelope of " in reason else reason


@dataclass(frozen=True, slots=True)
class Element:
    """One element that differs. ``index`` counts elements from the start of its allocation; ``address`` is
    in bytes.

    ``recorded`` and ``replayed`` are the values as Python numbers, the ``…_bits`` their bit patterns.
    ``ulp`` is their distance in units in the last place of the recorded value, None where that has no
    meaning (NaN, infinity). ``place`` are its coordinates, ``(7, 1)``, where a shape or a pitch is known, the
    slowest first; of a CUDA array as CUDA has them. ``type`` is its own, where elements are of several.
    """

    index: int
    address: int
    recorded: int | float
    replayed: int | float
    recorded_bits: int
    replayed_bits: int
    ulp: float | None
    place: str = ""
    type: str = ""

    @property
    def label(self) -> str:
        """``1,047``, of an array ``47 (7, 1)``"""
        return f"{self.index:,} {self.place}".rstrip()


@dataclass(frozen=True, slots=True)
class BufferComparison:
    """A range of one allocation, recorded against replayed.

    ``base`` is the allocation's address; the range compared is ``[base + offset, base + offset + size)``,
    of which ``bytes_compared`` were known on both sides. ``element_type`` is ``layout`` in words. ``first``
    are the first differing elements; ``max_ulp``, ``max_absolute`` and ``max_relative`` run over the
    differing elements that have a distance. ``classes`` counts the differing elements by kind
    (``metrics.CLASSES``).
    ``metrics`` says more of each field of the layout; empty where nothing differs. ``spots`` says where in
    the allocation elements differ.
    """

    allocation: int | None
    name: str  # of the variable or parameter, else empty
    base: int
    offset: int
    size: int
    element_type: str
    bytes_compared: int
    elements: int
    differing: int
    first: tuple[Element, ...] = ()
    max_ulp: float | None = None
    max_absolute: float | None = None
    max_relative: float | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    metrics: tuple[Metrics, ...] = ()
    layout: Layout = UNKNOWN
    spots: Spots | None = None

    @property
    def identical(self) -> bool:
        return self.differing == 0

    @property
    def label(self) -> str:
        """What a person calls the buffer: its name, else its address."""
        return self.name or f"{self.base:#x}"


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The verdict of one launch, or of one copy to the host (``kind`` "copy", ``kernel`` the driver
    function's name).

    ``seconds`` is the replay's time, ``recorded_seconds`` the recorded GPU time where known.
    ``written_share`` is the share of the bytes written that was compared, from 0 to 1. ``printed`` is what
    the replayed kernel printed (``printf``), which is not compared: no trace holds what NVIDIA's printed.
    """

    call: int
    kind: Literal["launch", "copy"]
    kernel: str
    verdict: Verdict
    reason: str = ""
    grid: Dim3 | None = None
    block: Dim3 | None = None
    buffers: tuple[BufferComparison, ...] = ()
    seconds: float | None = None
    recorded_seconds: float | None = None
    written_share: float | None = None
    fidelity: Fidelity = Fidelity.UNKNOWN
    printed: str = ""

    @property
    def first_difference(self) -> tuple[BufferComparison, Element] | None:
        return next(((buffer, buffer.first[0]) for buffer in self.buffers if buffer.first), None)


@dataclass(frozen=True, slots=True)
class FirstDivergence:
    """Where record and replay first part: the launch or copy, and its first differing element where there
    is one.
    """

    result: LaunchResult
    buffer: BufferComparison | None
    element: Element | None

    def __str__(self) -> str:
        text = f"#{self.result.call} {self.result.kernel}: {self.result.verdict}"
        if self.buffer is None or self.element is None:
            return f"{text}, {self.result.reason}" if self.result.reason else text
        element = self.element
        return (
            f"{text}, element {element.index} of {self.buffer.label}:"
            f" recorded {element.recorded}, replayed {element.replayed}"
        )

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "call": self.result.call,
            "kind": self.result.kind,
            "kernel": self.result.kernel,
            "verdict": self.result.verdict.value,
            "reason": self.result.reason,
        }
        if self.buffer is not None and self.element is not None:
            found |= {
                "buffer": self.buffer.label,
                "element_type": self.buffer.element_type,
                "index": self.element.index,
                "address": f"{self.element.address:#x}",
                "recorded": json_number(self.element.recorded),
                "replayed": json_number(self.element.replayed),
                "recorded_bits": f"{self.element.recorded_bits:#x}",
                "replayed_bits": f"{self.element.replayed_bits:#x}",
                "ulp": self.element.ulp,
            }
        return found


MOST_CALLS = 100
"""Of a kernel at fault, how many calls JSON names."""


@dataclass
class ReplayResult:
    """A whole replay, or a comparison of two traces (``device`` is then the other trace's path).

    ``results`` are in call order; :attr:`launches` is the same as a pandas frame.
    """

    trace: str
    device: str
    emulated: bool
    numerics: str
    results: list[LaunchResult]
    seconds: float
    meta: Mapping[str, Any] = field(default_factory=dict)
    product: str = ""  # what the device's maker calls it
    relocated: list[dict[str, str | int]] = field(default_factory=list)  # what memory was elsewhere
    contract: str = "auto"
    mode: str = "stream"
    blame: Mapping[int, Blame] = field(default_factory=dict)  # of what fails, by call, where it was asked for
    classes_from: str = ""  # the trace whose PTX tells the kernels' classes
    other: str = ""  # the other trace's path, where two traces were compared and nothing was replayed

    @property
    def verdict(self) -> Verdict:
        return worst(result.verdict for result in self.results)

    @property
    def counts(self) -> Counter[Verdict]:
        return Counter(result.verdict for result in self.results)

    @property
    def reasons(self) -> dict[str, int]:
        """How often each reason was given, the most frequent first; and calls that had an effect and were not
        replayed (``meta["not_replayed"]``: function → calls), whether or not a launch depended on them.
        """
        given = Counter(general(result.reason) for result in self.results if result.reason)
        for function, calls in self.meta.get("not_replayed", {}).items():
            given[f"calls of {function}, which is not replayed"] += calls
        return dict(given.most_common())

    @property
    def first_divergence(self) -> FirstDivergence | None:
        """The first launch or copy that fails, in call order."""
        for result in self.results:
            if result.verdict.counts_as is CountsAs.FAILS:
                buffer, element = result.first_difference or (None, None)
                return FirstDivergence(result, buffer, element)
        return None

    @property
    def at_fault(self) -> dict[str, list[int]]:
        """Kernel, or function of a copy → the calls that fail in their own right: not by what they were given
        by others. In mode ``isolated`` those are all, in mode ``stream`` there may be more that what came
        before them hides. Kernels in the order of their first.
        """
        found: dict[str, list[int]] = {}
        for one in self.results:
            if one.verdict.counts_as is CountsAs.FAILS and one.verdict is not Verdict.INHERITED:
                found.setdefault(one.kernel, []).append(one.call)
        return found

    @property
    def fidelity(self) -> dict[str, int]:
        """What the recorded GPU ran, seen from the PTX that is replayed (:class:`Fidelity`) → launches."""
        return dict(Counter(one.fidelity.value for one in self.results if one.kind == "launch"))

    @cached_property
    def classes(self) -> Mapping[str, StaticClass]:
        """Kernel → its static class. Kernels are parsed when this is first asked for, not by a replay that
        agrees; what has no PTX, or whose trace is not there any more, has none.
        """
        if not self.classes_from:
            return {}
        from zluda.diff.kernel_class import classes_of

        return classes_of(self.classes_from)

    def bound(self, kernel: str) -> str:
        """What launches of a kernel are held to, in words; empty where there is no PTX to tell."""
        found = self.classes.get(kernel)
        if found is None:
            return ""
        from zluda.diff.kernel_class import bound

        return bound(found, numerics=self.numerics, contract=self.contract)

    def exit_status(self, allow: Iterable[Verdict] = ()) -> int:
        return exit_status(self.counts, allow)

    @cached_property
    def launches(self) -> pandas.DataFrame:
        """One row a launch or copy: call, kind, kernel, grid, block, verdict, reason, seconds, differing,
        max_ulp…
        """
        from zluda.diff.frames import launch_frame

        return launch_frame(self.results)

    def to_json(self) -> dict[str, Any]:
        """The object that ``zluda replay --json`` prints."""
        kinds = Counter(result.kind for result in self.results)
        counts = self.counts
        divergence = self.first_divergence
        return {
            "trace": self.trace,
            "device": self.device,
            "emulated": self.emulated,
            "numerics": self.numerics,
            "mode": self.mode,
            "verdict": self.verdict.value,
            "launches": kinds["launch"],
            "copies": kinds["copy"],
            **{verdict.key: counts[verdict] for verdict in Verdict},
            "reasons": self.reasons,
            "first_divergence": divergence.to_json() if divergence else None,
            "at_fault": [
                {"kernel": kernel, "launches": len(calls), "calls": calls[:MOST_CALLS]}
                for kernel, calls in self.at_fault.items()
            ],
            "blame": [one.to_json(evidence=False) for _, one in sorted(self.blame.items())],
            "seconds": round(self.seconds, 6),
            "product": self.product,
            "relocated": self.relocated,
            "fidelity": self.fidelity,
            "printed": {str(one.call): one.printed for one in self.results if one.printed},
            **self._details(),
            **({"profile": self.meta["profile"]} if "profile" in self.meta else {}),
        }

    def _details(self) -> dict[str, Any]:
        """Each kernel's class, bound and verdicts; and the launches and copies that are not identical."""
        from zluda.diff.as_json import differences, kernels

        shown, left_out = differences(self)
        return {"kernels": kernels(self), "differences": shown, "differences_left_out": left_out}


def json_number(value: int | float) -> int | float | str:
    """JSON has no NaN or infinity: those are given as text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
