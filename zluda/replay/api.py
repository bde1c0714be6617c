"""`zluda.replay`: the whole replay of one trace."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from zluda.errors import UnsupportedError

if TYPE_CHECKING:
    from zluda.diff.results import ReplayResult
    from zluda.diff.types.override import Override
    from zluda.driver import Driver
    from zluda.replay.noise import NoiseLearner
    from zluda.replay.player import Player
    from zluda.tracefile import Call, Launch, Selection, Trace

Progress = Callable[[int, int], None]
"""Called with (calls done, calls in all)."""

MODES = ("stream", "isolated")

_REPORT_EVERY = 256  # calls


def replay(
    path: str | os.PathLike[str],
    device: str = "auto",
    *,
    mode: str = "stream",
    numerics: str | None = None,
    contract: str = "auto",
    output: str | os.PathLike[str] | None = None,
    select: str | Iterable[str] = (),
    time_limit: float | None = None,
    schedule: int = 0,
    check: str = "none",
    dtype: str | Iterable[str] = (),
    jobs: int = 1,
    profile: bool = False,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay the trace at ``path`` on ``device`` and compare every launch and device-to-host copy.

    ``mode="stream"`` runs the calls in their recorded order, each launch on the memory that the launches
    before it left; ``mode="isolated"`` runs each launch (each graph, whose nodes' memory is not on record)
    from its recorded inputs, so that it differs in its own right or not at all, with ``jobs`` runners at
    once. ``output`` writes the replayed memory as a trace. ``select`` (``17``, ``0-100/2``,
    ``kernel:regex``, ``@file``) limits which launches and copies run; the rest keep the record's result.
    ``contract`` (``auto``, ``on``, ``off``) says which products and sums are rounded once, see
    ``zluda.open_device``. ``time_limit`` is the number of seconds after which a launch counts as a hang,
    compiling its kernel apart. ``schedule`` other than 0 varies the order of blocks and warps on the CPU
    and on an emulated AMD GPU, reproducibly. ``check="memory"`` tests on ``cpu`` and emulated GPUs that
    every access lies in a live allocation; a launch that makes another is a ``crash``. ``dtype``
    (``KERNEL:PARAMETER=TYPE``, several of them) says what buffers hold, over what is found out. ``profile``
    times launches where they run, for :mod:`zluda.isolate.profile`. Raises
    TraceError for a file that cannot be read, DeviceError for a device that is not there, UnsupportedError
    for an option that the mode or the device does not have.
    """
    _check_mode(mode, jobs, output)
    from zluda import config
    from zluda.device import names
    from zluda.replay.ahead import compile_ahead
    from zluda.tracefile import Selection, open_trace
    from zluda.tracefile.stripping import Part, require

    started = time.perf_counter()
    config.load()
    full = names.resolve(device)
    names.check_options(full, numerics=numerics, check=check, contract=contract, schedule=schedule)
    selection = Selection.parse(select)
    overrides = _overrides(dtype)
    with open_trace(os.fspath(path)) as trace, ExitStack() as stack:
        if overrides:
            from zluda.diff.types.launches import check_overrides

            check_overrides(trace, overrides)
        if output is not None:
            require(trace, Part.CONTENTS, "written as it was replayed")
        if mode == "isolated":
            require(trace, Part.CONTENTS, "replayed launch by launch from recorded inputs")
        if contract == "auto" and check == "none":  # as precompiled kernels are
            stack.enter_context(compile_ahead(trace.path, full, numerics))

        def run(one: Trace, chosen: Selection, told: Progress | None) -> ReplayResult:
            return replay_trace(
                one,
                full,
                mode=mode,
                numerics=numerics,
                contract=contract,
                output=output,
                selection=chosen,
                time_limit=time_limit,
                schedule=schedule,
                check=check,
                overrides=overrides,
                profile=profile,
                progress=told,
                started=started,
            )

        if jobs == 1:
            return run(trace, selection, progress)
        from zluda.replay.isolated import replay_in_shares

        return replay_in_shares(trace, selection, jobs, run, progress)


def _check_mode(mode: str, jobs: int, output: object) -> None:
    """Raise UnsupportedError for what a mode does not have."""
    if mode not in MODES:
        raise UnsupportedError(f"mode {mode!r}", f"replay: expected {' or '.join(MODES)}")
    if jobs < 1:
        raise UnsupportedError(f"jobs={jobs}", "replay: expected 1 or more")
    if mode == "isolated" and output is not None:
        raise UnsupportedError(
            "output", "replay in mode isolated, in which no launch leaves its memory to others"
        )
    if mode == "stream" and jobs > 1:
        raise UnsupportedError(
            f"jobs={jobs}",
            "replay in mode stream: a launch runs on what those before it left; see mode isolated",
        )


def _overrides(dtype: str | Iterable[str]) -> Sequence[Override]:
    """What ``--dtype`` says; where it says nothing, nothing is imported."""
    given = [dtype] if isinstance(dtype, str) else list(dtype)
    if not given:
        return ()
    from zluda.diff.types.override import parse_overrides

    return parse_overrides(given)


def replay_trace(
    trace: Trace,
    device: str,
    *,
    mode: str = "stream",
    numerics: str | None = None,
    contract: str = "auto",
    output: str | os.PathLike[str] | None = None,
    selection: Selection | None = None,
    time_limit: float | None = None,
    schedule: int = 0,
    check: str = "none",
    overrides: Sequence[Override] = (),
    profile: bool = False,
    progress: Progress | None = None,
    started: float | None = None,
    learner: NoiseLearner | None = None,
    began: Callable[[Driver], None] | None = None,
    arrived: Callable[[Player, int], None] | None = None,
    calls: range | None = None,
) -> ReplayResult:
    """:func:`replay` of an open trace on a device by its full name.

    ``learner`` gathers what varies, see :class:`zluda.replay.noise.NoiseLearner`; ``began`` is given the
    driver before the first call; ``started`` is when it began to take time (``time.perf_counter``).
    ``calls``: only what is among these is replayed, from the record's memory before them; ``arrived`` is
    given the player with that memory in place, and the call that it comes to first.
    """
    from zluda.device import names
    from zluda.replay.address_plan import plan_addresses
    from zluda.replay.session import Session
    from zluda.runner.cache import file_scope

    plan = plan_addresses(trace.allocations, place_globals=names.kind(device) != "cuda")
    with ExitStack() as stack:
        session = stack.enter_context(
            Session(
                device,
                plan,
                numerics=numerics,
                contract=contract,
                time_limit=time_limit,
                cache_scope=file_scope(trace.path),
                schedule=schedule,
                check=check,
                profile=profile,
            )
        )
        # Imported while the runner starts.
        from zluda.diff.results import ReplayResult
        from zluda.replay.output import ReplayWriter
        from zluda.replay.player import Player
        from zluda.tracefile import Selection
        from zluda.tracefile.replacing import replacing

        started = time.perf_counter() if started is None else started
        total = trace.counts().calls
        driver = session.driver
        about = {"device": driver.name, "numerics": driver.numerics, "emulated": driver.emulated}
        writer = None
        if output is not None:
            part = stack.enter_context(replacing(Path(output), source=trace.path))
            writer = stack.enter_context(ReplayWriter(part, trace, about))
        chosen = Selection.parse(()) if selection is None else selection
        player = Player(
            trace,
            session,
            plan,
            selection=chosen,
            output=writer,
            learner=learner,
            overrides=overrides,
            isolated=mode == "isolated",
        )
        stack.callback(player.close)
        if began is not None:
            began(driver)
        results = []
        first, stop = (0, None) if calls is None else (player.skip_to(calls.start), calls.stop)
        if arrived is not None:
            arrived(player, first)
        for call, launch in _with_launches(trace, first, stop):
            results += player.play(call, launch)
            if progress is not None and (launch is not None or call.sequence % _REPORT_EVERY == 0):
                progress(call.sequence + 1, total)
        if progress is not None:
            progress(total, total)
        meta = {"launch_times": session.runner.take_profile()} if profile else {}
        results.sort(key=attrgetter("call"))  # those of a graph come with its end
        if calls is not None:
            results = [one for one in results if one.call in calls]
        return ReplayResult(
            trace=str(trace.path),
            device=driver.name,
            emulated=driver.emulated,
            numerics=driver.numerics,
            results=results,
            seconds=time.perf_counter() - started,
            product=driver.product,
            relocated=player.relocated,
            contract=contract,
            mode=mode,
            classes_from=str(trace.path) if learner is None else "",
            meta={
                **trace.meta,
                "not_replayed": dict(player.unplayed),
                "wrong_writes": dict(player.wrong_writes),
                **meta,
            },
        )


def _with_launches(trace: Trace, first: int, stop: int | None) -> Iterator[tuple[Call, Launch | None]]:
    """Calls in order, each with the launch it made."""
    launches = trace.iter_launches(first, stop)
    launch = next(launches, None)
    for call in trace.iter_calls(first, stop):
        if launch is not None and launch.call == call.sequence:
            yield call, launch
            launch = next(launches, None)
        else:
            yield call, None
