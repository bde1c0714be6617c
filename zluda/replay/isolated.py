"""An isolated replay by several runners at once: each launch from its recorded inputs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from zluda.diff.results import LaunchResult, ReplayResult, Verdict
from zluda.errors import Error
from zluda.replay.launching import FROM_RECORD, LEFT_OUT, MAX_DEATHS, TOO_DEADLY
from zluda.replay.shares import Plan, Share, plan_shares
from zluda.tracefile import open_trace

if TYPE_CHECKING:
    from zluda.replay.api import Progress
    from zluda.tracefile import Selection, Trace

RunShare = Callable[["Trace", "Selection", "Progress"], ReplayResult]
"""Replays what of a trace is selected."""


class _Stopped(Error):
    """Another runner has failed, or the user has had enough."""


class _Together:
    """Progress of all runners in one; each is stopped where it next tells of its own."""

    def __init__(self, runners: int, progress: Progress | None) -> None:
        self._done, self._progress, self._lock = [0] * runners, progress, threading.Lock()
        self.stopped = False

    def of(self, runner: int) -> Progress:
        def tell(done: int, total: int) -> None:
            if self.stopped:
                raise _Stopped("stopped")
            with self._lock:
                self._done[runner] = done
                if self._progress is not None:
                    self._progress(sum(self._done) // len(self._done), total)

        return tell


def replay_in_shares(
    trace: Trace, selection: Selection, jobs: int, run: RunShare, progress: Progress | None
) -> ReplayResult:
    """Replay with ``jobs`` runners, each driven by a thread; the result is what one runner would give.
    There are no more runners than launches.

    What ``run`` raises in one of them is raised once the others have stopped.
    """
    jobs = max(min(jobs, trace.counts().launches), 1)
    plan = plan_shares(trace, selection, jobs)
    shares = [Share(plan, runner) for runner in range(jobs)]
    together = _Together(jobs, progress)

    def work(runner: int) -> ReplayResult:
        with open_trace(trace.path) as own:
            return run(own, selection.share(shares[runner]), together.of(runner))

    with ThreadPoolExecutor(jobs, thread_name_prefix="zluda-isolated") as pool:
        working = [pool.submit(work, runner) for runner in range(jobs)]
        try:
            done, _ = wait(working, return_when=FIRST_EXCEPTION)
            failed = next((one.exception() for one in done if one.exception() is not None), None)
        finally:
            together.stopped = True  # those that have ended do not mind
        if failed is not None:
            raise failed
    return _merged([one.result() for one in working], shares, plan)


def _merged(parts: Sequence[ReplayResult], shares: Sequence[Share], plan: Plan) -> ReplayResult:
    results = [
        one for part, share in zip(parts, shares, strict=True) for one in part.results if share.owns(one.call)
    ]
    results.sort(key=lambda one: one.call)
    moved = {str(row): row for part in parts for row in part.relocated}
    return replace(parts[0], results=_without_the_deadly(results, plan), relocated=list(moved.values()))


def _without_the_deadly(results: Sequence[LaunchResult], plan: Plan) -> list[LaunchResult]:
    """Launches that one runner would not have run any more, as their kernel had brought it down too often."""
    deaths: Counter[str] = Counter()
    kept = []
    for one in results:
        ran = one.reason != LEFT_OUT.reason and one.kind == "launch"
        if ran and deaths[one.kernel] >= MAX_DEATHS:
            reason = TOO_DEADLY.reason + ("" if one.call in plan.shared else FROM_RECORD)
            one = replace(
                one, verdict=TOO_DEADLY.verdict, reason=reason, buffers=(), seconds=None, written_share=None
            )
        deaths[one.kernel] += one.verdict in (Verdict.CRASH, Verdict.HANG)
        kept.append(one)
    return kept
