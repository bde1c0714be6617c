"""The recorder process: drains one recorded process's rings into its trace.

Started by the session as ``drain_process TRACE CONTROL_FD``. The control page's lock comes with the file
descriptor. Commands come as JSON lines on standard input: ``{"meta": {…}}``, ``{"gap": [kind, text,
count]}``, ``{"hooked": [addresses]}``, ``{"stays": true}`` (the agent outlives the session), ``{"finish":
true}``. End of input without ``finish`` means that the session died: what was recorded until then is drained.
An application that goes on is told so (``FLAG_LEFT``). The last line on standard output is a JSON object:
counts, what could not be done in the application, and the last open call.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from zluda.errors import Error
from zluda.trace.images import image_reader
from zluda.tracefile import TraceWriter
from zluda.tracefile.agent_counts import note_counts
from zluda.tracefile.drain import TAILS_KEY, Drain, read_options
from zluda.tracefile.ring import (
    FAILURE,
    FLAG_FAILED,
    FLAG_LEFT,
    FLAG_OVER_BUDGET,
    FLAG_STOPPED,
    Control,
    give_rings_back,
    remove_rings,
    rings_directory,
)

_IDLE_SECONDS = 0.002
_BUSY_RECORDS = 2000
_LEAVING_SECONDS = 0.05


class _Commands:
    """JSON lines from the session, read without waiting."""

    def __init__(self) -> None:
        self._rest = b""
        self.ended = False

    def read(self, seconds: float) -> list[dict[str, Any]]:
        """What has come within ``seconds``."""
        if self.ended:
            time.sleep(seconds)
            return []
        if not select.select([0], [], [], seconds)[0]:
            return []
        data = os.read(0, 1 << 20)
        if not data:
            self.ended = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line]


class Recorder:
    """One recorded process: its drain, its writer, its control page."""

    def __init__(self, trace: Path, control: Control) -> None:
        self.trace, self.control = trace, control
        self.directory = rings_directory(trace)
        self.writer = TraceWriter.create(trace, {})
        # This process has the application's environment.
        reader = image_reader({}, read_options(self.directory).get("assembled"))
        self.drain = Drain(self.directory, self.writer, read_module=reader)
        self.writer.commit()

    def run(self) -> dict[str, Any]:
        """Until the session says that the application has ended; what was recorded."""
        commands, finished, idle = _Commands(), False, _IDLE_SECONDS
        while not finished:
            self.control["HEARTBEAT_NS"] = time.monotonic_ns()
            self._keep_to_budget()
            moved = self.drain.step()
            # Many small passes cost more than few large ones, and a launch-bound application fills a ring
            # in a second.
            idle = 0.02 if moved > _BUSY_RECORDS else min(0.02, idle * 1.5) if not moved else _IDLE_SECONDS
            for command in commands.read(idle):
                finished |= self._obey(command)
            finished |= commands.ended
        return self._finish(orderly=not commands.ended)

    def _keep_to_budget(self) -> None:
        """Tell the agent when the trace has the size it may have: memory is not recorded from then on."""
        budget = self.drain.options.get("budget", 0)
        if budget and not self.control["FLAGS"] & FLAG_OVER_BUDGET and self.writer.size() > budget:
            self.control["FLAGS"] |= FLAG_OVER_BUDGET
            call = self.control["SEQUENCE"]
            text = f"the trace had reached {budget:,} bytes: no memory is recorded from about call {call} on"
            self.writer.add_gap(None, "budget", text)
            self.writer.set_meta({"budget_call": call})

    def _obey(self, command: dict[str, Any]) -> bool:
        if "meta" in command:
            self.writer.set_meta(command["meta"])
        if "gap" in command:
            kind, text, count = command["gap"]
            self.writer.add_gap(None, kind, text, count)
        if "hooked" in command:
            self.drain.effects.hooked = frozenset(command["hooked"])
        if "stays" in command:
            self.control["STAYS"] = 1
        return bool(command.get("finish"))

    def _finish(self, *, orderly: bool) -> dict[str, Any]:
        control = self.control
        goes_on = _alive(control["APP_PID"])
        if goes_on:
            control["FLAGS"] |= FLAG_LEFT
            time.sleep(_LEAVING_SECONDS)  # what threads are writing at this moment
        self.drain.finish()
        if not orderly:
            self.writer.add_gap(None, "recorder", "the session ended before the application")
        note_counts(control, self.writer)
        self.writer.set_meta({TAILS_KEY: {}, "end_time": time.time()})
        summary = self._summary()
        self.drain.close()
        self.writer.close()
        if goes_on:
            give_rings_back(self.directory)
        remove_rings(self.directory)
        return summary

    def _summary(self) -> dict[str, Any]:
        last = max(self.drain.open, default=None)
        return {
            "calls": self.drain.calls,
            "launches": self.drain.launches,
            "stall_ns": self.control["STALL_NS"],
            "over_budget": bool(self.control["FLAGS"] & FLAG_OVER_BUDGET),
            "childrens_calls": self.control["CHILDRENS_CALLS"],
            "lost_threads": self.control["LOST_THREADS"],
            "problems": self.drain.problems,
            "open_call": None if last is None else [last, self.drain.open[last].signature.row["name"]],
        }


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def main() -> None:
    # The terminal's interrupt and hang-up are for the application; the recorder ends after it.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    trace, descriptor = Path(sys.argv[1]), int(sys.argv[2])
    control = Control(rings_directory(trace), descriptor=descriptor)
    try:
        summary = Recorder(trace, control).run()
    except Error as error:
        # Nobody drains any more: the application must not wait. What is committed, and what the rings hold,
        # is merged when the trace is next opened.
        control["FLAGS"] |= FLAG_STOPPED | FLAG_FAILED
        with contextlib.suppress(OSError):  # where the disk is full, it may not fit either
            (rings_directory(trace) / FAILURE).write_text(str(error))
        _tell({"error": str(error)})
        sys.exit(2)
    _tell(summary)


def _tell(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the session was killed; the trace is complete without it
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")
