"""The application that is recorded, seen from the session: its start, its end, its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from zluda.errors import Error
from zluda.trace.hold import release
from zluda.trace.own_process import command_line


class Application:
    """A program that waits at its entry point until :meth:`release`. Its parent is a process of its own, see
    :mod:`zluda.trace.parent`.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """Start ``command``, with ``variables`` added to its environment.

        Raises :class:`zluda.Error` in one line where that cannot be done.
        """
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        try:
            # No descriptor is closed: the program is to find what it would find when it is not recorded.
            line = command_line("zluda.trace.parent", str(os.getpid()), str(writing), *command)
            self._parent = subprocess.Popen(line, close_fds=False, env={**os.environ, **(variables or {})})
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._told = open(reading, "rb")  # noqa: SIM115 - closed in `_end`
        held = self._next()
        if held is None or "error" in held:
            self._end()
            raise Error(held["error"] if held else f"{command[0]}: could not be started")
        self.pid: int = held["pid"]
        self._gate: int = held["gate"]

    def _next(self) -> dict[str, Any] | None:
        line = self._told.readline()
        return dict(json.loads(line)) if line else None

    def _end(self) -> None:
        self._told.close()
        self._parent.wait()

    def release(self) -> None:
        """Let the application run."""
        release(self.pid, self._gate)

    def wait(self) -> int:
        """Its exit status, 128 + N where signal N ended it. Raises Error where nobody knows it any more."""
        told = self._next()
        self._end()
        if told is None:
            raise Error("the process that started the application was killed; how that ended is not known")
        return int(told["status"])

    def kill(self) -> None:
        """End it, because it cannot be recorded."""
        os.kill(self.pid, signal.SIGKILL)
        self._next()
        self._end()
