"""Recording a program that is running: ``zluda trace --attach PID``."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from zluda.errors import Error
from zluda.trace.choice import Choice
from zluda.trace.session import PROGRESS_SECONDS, Options, Outcome, Session, check_place, import_frida
from zluda.tracefile.recovery import merge_rings
from zluda.tracefile.ring import FLAG_LEFT, Control, rings_directory

_POLL_SECONDS = 0.1
_DYING_SECONDS, _LEAVING_SECONDS = 2.0, 60.0
"""How long a recorder may take to notice that its session was killed; and to write the rest after that."""


def attach(
    pid: int,
    output: str | Path = "trace.bin",
    *,
    capture: str = "outputs",
    ring_bytes: int | None = None,
    progress_seconds: float = PROGRESS_SECONDS,
    follow_children: bool = True,
    choice: Choice | None = None,
    timing: str = "events",
    queries: bool = False,
    note: Callable[[str], None] | None = None,
) -> Outcome:
    """Record process ``pid`` from now on until it ends, or until we get SIGINT or SIGTERM; then it goes on.

    What the program made before is on record as far as the driver tells: memory when a call first names it,
    not modules. The outcome's status is 0. Raises :class:`zluda.Error` where there is no such process, where
    it is being recorded already, or where the agent cannot get in.
    """
    if choice is not None and choice.needs_nvtx:
        raise Error("NVTX ranges can be markers only in a program that is started here")
    frida = import_frida()
    output = Path(output)
    check_place(output)
    command = _command_of(pid)
    _check_unrecorded(pid)
    options = Options(
        capture, ring_bytes, progress_seconds, follow_children, choice or Choice(), timing, queries
    )
    session = Session(frida, command, output, options, note or (lambda text: None), {})
    stop, started = threading.Event(), time.monotonic()
    old = {number: signal.signal(number, _setter(stop)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        session.attach(pid, late=True)
        if note is not None:
            note(f"process {pid}: recording; interrupt to stop")
        while not stop.wait(_POLL_SECONDS) and _is_running(pid):
            pass
        session.leave()
    finally:
        outcome = session.finish()
        for number, handler in old.items():
            signal.signal(number, handler)
    outcome.seconds = time.monotonic() - started
    return outcome


def _setter(stop: threading.Event) -> Callable[[int, FrameType | None], None]:
    return lambda number, frame: stop.set()


def _command_of(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        raise Error(f"process {pid}: there is none") from None
    return [part.decode("utf-8", "surrogateescape") for part in text.split(b"\0")[:-1]]


def _check_unrecorded(pid: int) -> None:
    """Two recorders would each record the other's calls. One that was killed finishes its trace, or we do."""
    start = time.monotonic()
    while trace := _recorded_to(pid):
        waited = time.monotonic() - start
        if not merge_rings(trace) and waited > (_LEAVING_SECONDS if _is_leaving(trace) else _DYING_SECONDS):
            raise Error(f"process {pid}: is being recorded already, to {trace}")
        time.sleep(_POLL_SECONDS)


def _recorded_to(pid: int) -> Path | None:
    """The trace whose rings the process has in its memory, if those are there still."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    except OSError as error:
        raise Error(f"process {pid}: {os.strerror(error.errno or 0)}") from None
    for line in maps.splitlines():
        trace, found, _ = line.partition(".rings/control")
        if found and not line.endswith("(deleted)"):
            return Path(trace.split(maxsplit=5)[-1])
    return None


def _is_leaving(trace: Path) -> bool:
    try:
        control = Control(rings_directory(trace))
    except (FileNotFoundError, Error):
        return True  # it has left
    try:
        return bool(control["FLAGS"] & FLAG_LEFT)
    finally:
        control.close()


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
