"""A trace proves itself: replayed on the GPU that recorded it, every launch comes to what is on record.

What does not, each time, is put into the trace: the launches with their verdicts, and what NVIDIA itself
varies of them (``noise``), so that a replay elsewhere can tell noise from fault.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from zluda.diff.proof import META, First, Proof
from zluda.diff.results import CountsAs, LaunchResult, Verdict
from zluda.driver import Driver
from zluda.errors import DeviceError, Error
from zluda.records import dataclass
from zluda.replay.api import replay_trace
from zluda.replay.noise import AGAIN, NoiseLearner
from zluda.replay.redacted import is_redacted
from zluda.tracefile import Noise, Trace, TraceWriter, Unproved, open_trace

RUNS = 2
LIMIT_SECONDS = 300.0
"""How long all runs of one trace may take by themselves."""

_NAMED_KERNELS = 8

_Rows = tuple[list[Unproved], list[tuple[Noise, bytes]]]


class _TimeUp(Error):
    """The limit was reached."""


@dataclass(slots=True)
class _Judged:
    """The worst that a launch or copy had, over all runs."""

    kind: str
    kernel: str
    verdict: Verdict
    reason: str

    def add(self, result: LaunchResult) -> None:
        if result.verdict.severity > self.verdict.severity:
            self.verdict, self.reason = result.verdict, _reason(result)


@dataclass(slots=True)
class _Runs:
    """What some runs of a trace gave."""

    device: str = ""
    driver_version: int = 0
    judged: dict[int, _Judged] = field(default_factory=dict)

    def begin(self, driver: Driver, recorded_on: str | None) -> None:
        """Note what runs the trace. Raises DeviceError where that is another GPU than the recording one."""
        self.device = driver.cuDeviceGetName(driver.cuDeviceGet(0))
        self.driver_version = driver.cuDriverGetVersion()
        if recorded_on is not None and self.device != recorded_on:
            raise DeviceError(driver.name, f"is an {self.device}; the trace is of an {recorded_on}")

    def add(self, results: list[LaunchResult]) -> None:
        for one in results:
            known = self.judged.get(one.call)
            if known is None:
                self.judged[one.call] = _Judged(one.kind, one.kernel, one.verdict, _reason(one))
            else:
                known.add(one)

    def add_earlier(self, unproved: list[Unproved]) -> None:
        """Count what the trace says of earlier runs."""
        for one in unproved:
            known = self.judged.get(one.call)
            verdict = _VERDICTS.get(one.verdict)
            if known is not None and verdict is not None and verdict.severity > known.verdict.severity:
                known.verdict, known.reason = verdict, one.reason

    def unproved(self) -> list[Unproved]:
        return [
            Unproved(call, one.verdict.value, one.reason)
            for call, one in sorted(self.judged.items())
            if one.verdict is not Verdict.IDENTICAL and one.verdict.counts_as is not CountsAs.NEUTRAL
        ]

    def proof(self, runs: int, seconds: float) -> Proof:
        """Counts, the kernels that vary, and the first that is not proved."""
        noisy = dict.fromkeys(one.kernel for one in self.judged.values() if one.verdict is Verdict.NOISE)
        return Proof(
            done=True,
            device=self.device,
            driver_version=self.driver_version,
            runs=runs,
            seconds=round(seconds, 3),
            launches=self._counts("launch"),
            copies=self._counts("copy"),
            noisy=tuple(noisy)[:_NAMED_KERNELS],
            first=self._first(CountsAs.FAILS) or self._first(CountsAs.CANNOT_TELL),
        )

    def _first(self, counting_as: CountsAs) -> First | None:
        found = (item for item in sorted(self.judged.items()) if item[1].verdict.counts_as is counting_as)
        for call, one in found:
            return First(call, one.kernel, one.verdict.value, one.reason)
        return None

    def _counts(self, kind: str) -> dict[str, int]:
        counted = Counter(one.verdict for one in self.judged.values() if one.kind == kind)
        return {str(verdict.value): counted[verdict] for verdict in Verdict if counted[verdict]}


_VERDICTS = {str(verdict.value): verdict for verdict in Verdict}


def prove(
    path: str | os.PathLike[str],
    device: str = "cuda:0",
    *,
    runs: int = RUNS,
    again: int = AGAIN,
    keep: bool = False,
    limit: float | None = LIMIT_SECONDS,
    progress: Callable[[int, int], None] | None = None,
) -> Proof:
    """Replay the trace ``runs`` times on ``device``, put into it what came of that, and return it.

    ``again``: each time, each launch that may vary is run so often once more from its recorded inputs.
    ``keep``: what the trace says of earlier runs counts too. ``limit``: seconds that all runs may take, after
    which none of them counts. Where nothing can be proved (no such GPU, nothing to compare with) the proof
    says so (``done`` false, and the ``reason``) and raises nothing; a trace that cannot be read or written is
    a TraceError.
    """
    path = Path(path)
    rows: _Rows | None = None
    with open_trace(path) as trace:
        earlier = Proof.of(trace.meta, str(path))
        try:
            # Of digests alone it cannot be learnt how far a launch varies.
            learner = None if is_redacted(trace) else NoiseLearner(trace, keep=keep, again=again)
            kept = earlier if keep else None
            proof, rows = _run(trace, device, learner, kept, runs=runs, limit=limit, progress=progress)
        except KeyboardInterrupt:
            proof = Proof(False, "it was interrupted")
        except Error as error:
            proof = Proof(False, str(error))
    if rows is None and earlier is not None and earlier.done:
        return proof  # what is there stays
    with TraceWriter.reopen(path) as writer:
        if rows is not None:
            writer.set_proof(*rows)
        writer.set_meta({META: proof.to_json()})
    return proof


def _run(
    trace: Trace,
    device: str,
    learner: NoiseLearner | None,
    earlier: Proof | None,
    *,
    runs: int,
    limit: float | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[Proof, _Rows | None]:
    """The proof, and the rows for the trace; none where it was not made. ``earlier`` counts too."""
    nothing = _why_nothing(trace)
    if nothing:
        return Proof(False, nothing), None
    started = time.monotonic()
    told = _Runs()
    for run in range(runs):
        result = replay_trace(
            trace,
            device,
            learner=learner,
            began=lambda driver: told.begin(driver, trace.meta.get("gpu")),
            progress=_limited(progress, run, runs, started, limit),
        )
        told.add(result.results)
    if earlier is not None and earlier.done:
        told.add_earlier(trace.unproved)
        runs += earlier.runs
    proof = told.proof(runs, time.monotonic() - started)
    return proof, (told.unproved(), [] if learner is None else learner.noise(runs))


def _why_nothing(trace: Trace) -> str:
    if not trace.counts().launches:
        return "it has no launches"
    if trace.meta.get("capture") == "calls":
        return "--capture calls records no memory to compare with"
    return ""


def _limited(
    progress: Callable[[int, int], None] | None, run: int, runs: int, started: float, limit: float | None
) -> Callable[[int, int], None]:
    """Progress over all runs; raises when the time is up."""

    def tell(done: int, total: int) -> None:
        if limit is not None and time.monotonic() - started > limit:
            share = (run * total + done) / max(runs * total, 1)
            raise _TimeUp(f"its time of {limit:g} s was up after {share:.0%}")
        if progress is not None:
            progress(run * total + done, runs * total)

    return tell


def _reason(result: LaunchResult) -> str:
    """A result's reason, with the first element where one differs."""
    found = result.first_difference
    if found is None:
        return result.reason
    buffer, element = found
    place = f"element {element.index} of {buffer.label}"
    text = f"{place}: recorded {element.recorded}, replayed {element.replayed}"
    return f"{result.reason}; {text}" if result.reason else text
