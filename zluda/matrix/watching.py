"""A process under limits of time and memory, with all that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from zluda.records import dataclass

_LOOK_EVERY = 0.1  # seconds, at first
_LOOK_AT_MOST = 0.5
_LAST_LINES = 4000  # characters of what it said


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one cell: seconds, and bytes of memory over all of its processes."""

    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended: its status (negative: a signal), ``limit`` says which one stopped it ("" none).

    ``said`` is the end of its standard error.
    """

    status: int
    limit: str
    said: str
    seconds: float
    peak_bytes: int


def run_watched(
    command: Sequence[str],
    *,
    given: str,
    limits: Limits,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> Ended:
    """Run a command with ``given`` on its standard input; beyond a limit, end it and its descendants.

    So it is ended when ``stop`` is set; the limit is then told as "interrupted".
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
        told.write(given.encode())
        told.seek(0)
        process = subprocess.Popen(
            command,
            stdin=told,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
            env=None if environment is None else dict(environment),
        )
        try:
            limit, peak = _watch(process, limits, began, stop)
        finally:
            _end(process)
        said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_LINES))
        words = said.read().decode(errors="replace")
    return Ended(
        status=process.returncode,
        limit=limit,
        said=words,
        seconds=time.monotonic() - began,
        peak_bytes=peak,
    )


def _watch(
    process: subprocess.Popen[bytes], limits: Limits, began: float, stop: threading.Event | None
) -> tuple[str, int]:
    """(which limit was passed, the most memory that was seen)"""
    peak, pause = 0, _LOOK_EVERY
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause)
            return "", peak
        if stop is not None and stop.is_set():
            return "interrupted", peak
        pause = min(_LOOK_AT_MOST, pause * 1.2)
        peak = max(peak, _memory(process.pid))
        if peak > limits.bytes:
            return f"more than {limits.bytes >> 20} MiB of memory", peak
        if time.monotonic() - began > limits.seconds:
            return f"no end after {limits.seconds:g} s", peak


def _memory(pid: int) -> int:
    """Bytes of a process and its descendants, what they share counted once."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for one in (top, *top.children(recursive=True)):
            # A runner is confined and may not be looked into: then what is resident, shared or not.
            with suppress(psutil.NoSuchProcess):
                try:
                    total += one.memory_full_info().pss
                except psutil.AccessDenied:
                    total += one.memory_info().rss
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    descendants = []
    with suppress(psutil.NoSuchProcess):
        descendants = psutil.Process(process.pid).children(recursive=True)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for one in descendants:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
