"""Results in words: the verdict as a sentence, numbers as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from zluda.diff.blame import Blame, Layer, Sure
from zluda.diff.metrics import KINDS, Metrics
from zluda.diff.results import (
    BufferComparison,
    CountsAs,
    Element,
    FirstDivergence,
    LaunchResult,
    ReplayResult,
    Verdict,
)
from zluda.diff.types.layout import BYTES, POINTER, Confidence
from zluda.records import dataclass
from zluda.report.names import readable

# How many digits tell two numbers of a type apart.
_DIGITS = {"f16": 5, "bf16": 4, "f32": 9, "tf32": 9, "f64": 17}

_RAN = {
    "same-ptx": "the GPU ran what was compiled from it",
    "sibling": "the GPU ran machine code of the same source",
    "unknown": "what the GPU ran is not known",
}

# What fails, as verbs: (verdicts, one does, several do).
_FAILURES = (
    ((Verdict.DIFFERS, Verdict.INHERITED), "differs", "differ"),
    ((Verdict.CRASH,), "crashes", "crash"),
    ((Verdict.HANG,), "hangs", "hang"),
)


def headline(result: ReplayResult) -> str:
    """The verdict of a whole replay as one sentence without a full stop."""
    if _failing(result):
        return _fails(result)
    told = [found for found in result.results if found.verdict.counts_as is CountsAs.HOLDS]
    unclear = [found for found in result.results if found.verdict.counts_as is CountsAs.CANNOT_TELL]
    if not told and not unclear:
        return f"nothing was compared on {where(result)}" + _neutral(result)
    if not told:
        sentence = f"{things(unclear)} could not be judged on {where(result)}: {_by_verdict(unclear)}"
        return sentence + _neutral(result)
    sentence = f"{_holds(told, all_of=not unclear)} on {where(result)}"
    if unclear:
        sentence += f"; {things(unclear)} could not be judged: {_by_verdict(unclear)}"
    return sentence + _neutral(result)


def _failing(result: ReplayResult) -> list[LaunchResult]:
    return [found for found in result.results if found.verdict.counts_as is CountsAs.FAILS]


def _fails(result: ReplayResult) -> str:
    counts = result.counts
    verbs: list[str] = []
    for verdicts, one, several in _FAILURES:
        count = sum(counts[verdict] for verdict in verdicts)
        if count:
            of = "" if verbs else f" of {_together(result.results)}"
            verbs.append(f"{count:,}{of} {one if count == 1 else several}")
    divergence = result.first_divergence
    assert divergence is not None
    text = f"{' and '.join(verbs)} on {where(result)}; {first(divergence)}"
    guilty = result.blame.get(divergence.result.call)
    return f"{text}; {at_fault_layer(guilty)}" if guilty is not None else text


def _together(results: Sequence[LaunchResult]) -> str:
    """``4,210 launches``, ``12 launches and copies``"""
    if len({found.kind for found in results}) == 1:
        return things(results)
    return f"{len(results):,} launches and copies"


_ARTICLES = {Layer.RECORD: "the ", Layer.RUNTIME: "the ", Layer.HARDWARE: "a "}


def at_fault_layer(blame: Blame) -> str:
    """``code generation is at fault``, or that it cannot be told."""
    if blame.layer.named:
        layer = f"{_ARTICLES.get(blame.layer, '')}{blame.layer}"
        return f"{layer} is {'likely ' if blame.sure is Sure.LIKELY else ''}at fault"
    return "which layer is at fault cannot be told" if blame.layer is Layer.UNKNOWN else str(blame)


def _holds(told: list[LaunchResult], *, all_of: bool) -> str:
    names = {found.verdict for found in told}
    everything = f"all {things(told)}" if all_of and len(told) > 1 else things(told)
    if len(names) == 1:
        return f"{everything} {names.pop().value}"
    return f"{everything} hold ({_by_verdict(told)})"


def _neutral(result: ReplayResult) -> str:
    rest = [found for found in result.results if found.verdict.counts_as is CountsAs.NEUTRAL]
    return f"; {_by_verdict(rest)}" if rest else ""


def _by_verdict(results: Iterable[LaunchResult]) -> str:
    """``3 unsupported, 1 no-ptx``"""
    seen = [found.verdict for found in results]
    return ", ".join(f"{seen.count(verdict)} {verdict.value}" for verdict in Verdict if verdict in seen)


def first(divergence: FirstDivergence) -> str:
    """Where record and replay first part."""
    result = divergence.result
    text = f"the first is #{result.call} {readable(result.kernel)}"
    if divergence.buffer is not None and divergence.element is not None:
        return f"{text}, {difference(divergence.buffer, divergence.element)}"
    return text + (f": {result.reason}" if result.reason else "")


def difference(buffer: BufferComparison, element: Element) -> str:
    """``element 17 of out: recorded 1.5, replayed 1.25 (4 ULP)``"""
    pair = Pair.of(buffer, element)
    where = f"element {element.index} {element.place}".rstrip()
    unsure = f" ({typed(buffer)})" if buffer.layout.confidence < Confidence.CERTAIN else ""
    text = f"{where} of {buffer.label}{unsure}: recorded {pair.recorded}, replayed {pair.replayed}"
    return text + (f" ({pair.ulp} ULP)" if pair.ulp else "")


def typed(buffer: BufferComparison) -> str:
    """``f32``; ``f16, likely`` where that is not certain; ``bytes`` where nothing is known."""
    sure = buffer.layout.confidence
    if sure is Confidence.CERTAIN or buffer.element_type == BYTES:
        return buffer.element_type
    return f"{buffer.element_type}, {'a guess' if sure is Confidence.GUESS else sure}"


def held_to(result: ReplayResult, kernel: str) -> str:
    """``ieee-exact, 0 ULP: …``: a kernel's class and its bound; empty where there is no PTX to tell."""
    found = result.classes.get(kernel)
    return "" if found is None else f"{found.kind.value}, {result.bound(kernel)}"


def spread(metrics: Metrics) -> str:
    """``≤ 1: 459, ≤ 2: 621, more: 3``: a histogram's steps."""
    steps = (
        (f"≤ {number(edge, 12)}" if edge < float("inf") else "more", count) for edge, count in metrics.steps
    )
    return ", ".join(f"{upto}: {count:,}" for upto, count in steps)


def shares(metrics: Metrics) -> str:
    """``nan 3 → 4, subnormal 12 → 0``: kinds of numbers of which one side has more than the other."""
    names = [name for name in KINDS if metrics.recorded.get(name, 0) != metrics.replayed.get(name, 0)]
    return ", ".join(
        f"{name} {metrics.recorded.get(name, 0):,} → {metrics.replayed.get(name, 0):,}" for name in names
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """One differing element as text: both values in as many digits as tell them apart, bits where those do
    not.
    """

    recorded: str
    replayed: str
    ulp: str

    @classmethod
    def of(cls, buffer: BufferComparison, element: Element) -> Pair:
        if element.type == POINTER:
            return cls(f"{element.recorded_bits:#x}", f"{element.replayed_bits:#x}", "")
        digits = _DIGITS.get(element.type or buffer.element_type)
        recorded, replayed = number(element.recorded, digits), number(element.replayed, digits)
        if recorded == replayed or "nan" in (recorded, replayed):
            recorded += f" ({element.recorded_bits:#x})"
            replayed += f" ({element.replayed_bits:#x})"
        return cls(recorded, replayed, "" if element.ulp is None else number(element.ulp, 4))


_NAMED_CALLS = 6


AT_FAULT = "at fault in its own right"


def at_fault(result: ReplayResult) -> list[str]:
    """Of an isolated replay, each kernel that fails in its own right, with its launches; else nothing."""
    if result.mode != "isolated":
        return []
    return [f"{readable(kernel)} ({_calls(calls)})" for kernel, calls in result.at_fault.items()]


def _calls(calls: Sequence[int]) -> str:
    """``#12, #17``; ``7 times: #12, #17, …``"""
    named = ", ".join(f"#{call}" for call in calls[:_NAMED_CALLS])
    return named if len(calls) <= _NAMED_CALLS else f"{len(calls):,} times: {named}, …"


def number(value: int | float, digits: int | None = None) -> str:
    """A number in at most ``digits`` significant digits (floats; integers are given whole)."""
    if isinstance(value, int) or digits is None:
        return str(value)
    return f"{value:.{digits}g}"


def things(results: Iterable[LaunchResult]) -> str:
    """``24 launches and 3 copies``"""
    kinds = [found.kind for found in results]
    parts = [(kinds.count("launch"), "launch", "launches"), (kinds.count("copy"), "copy", "copies")]
    named = [plural(count, one, several) for count, one, several in parts if count]
    return " and ".join(named) or "0 launches"


def plural(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def where(result: ReplayResult) -> str:
    """``cpu``, ``gfx1030 (emulated, native numerics)``, ``hip:0 (AMD Radeon RX 6800, gfx1030)``"""
    about = [result.product or ("emulated" if result.emulated else "")]
    about += ["native numerics" if result.numerics == "native" else ""]
    told = ", ".join(part for part in about if part)
    return f"{result.device} ({told})" if told else result.device


def relocated(result: ReplayResult) -> str:
    """What memory was elsewhere than in the record; empty where none was."""
    kinds = [one["kind"] for one in result.relocated]
    variables, handles = kinds.count("global"), kinds.count("handle")
    parts = [
        (len(kinds) - variables - handles, "allocation", "allocations"),
        (variables, "variable", "variables"),
    ]
    named = " and ".join(plural(count, one, several) for count, one, several in parts if count)
    told = [f"{named} relocated; words that point into them were exchanged"] if named else []
    if handles:
        told.append(f"{plural(handles, 'texture or surface handle')} exchanged in parameters")
    return "; ".join(told)


def ran(fidelity: Mapping[str, int]) -> list[str]:
    """What the recorded GPU ran, seen from the PTX on record: of each kind of fidelity, how many launches."""
    return [f"{_RAN.get(kind, kind)}: {count:,}" for kind, count in fidelity.items()]


def short_name(trace: str) -> str:
    """Short and telling: ``corpus/saxpy/trace.bin`` is ``saxpy``, any other file its own name."""
    path = Path(trace)
    return path.parent.name if path.name == "trace.bin" and path.parent.name else path.name


def listing(names: Sequence[str]) -> str:
    """``cpu``, ``cpu and gfx1030``, ``cpu, gfx1030 and gfx90a``"""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def seconds(value: float | None) -> str:
    """A duration with three significant digits, empty where it is not known."""
    if value is None:
        return ""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def size(count: int) -> str:
    """Bytes, in the largest binary unit that leaves a number of at least 1."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} {unit}" if unit == "bytes" else f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.3g} TiB"


def dimensions(value: tuple[int, int, int] | None) -> str:
    """``64×2`` of (64, 2, 1); empty where it is not known."""
    if value is None:
        return ""
    kept = list(value)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "×".join(str(part) for part in kept)
