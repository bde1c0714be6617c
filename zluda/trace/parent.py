"""The application's parent: a process that starts it, holds it, and reports how it ended.

Frida, which lives in the session's process, waits for processes that it traces; what it takes from
``waitpid`` the session cannot have. So the application is the child of a process in which Frida is not.
Started by :class:`zluda.trace.application.Application` with its own process id, a file descriptor, and the
command line.
On the descriptor it writes JSON lines: ``{"pid", "gate"}`` once the application is held, or
``{"error"}``; then ``{"status"}`` when it has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

from zluda.errors import Error
from zluda.trace.hold import HeldProcess

_PR_SET_PDEATHSIG = 1
_FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def main() -> None:
    """``parent.py SESSION_PID DESCRIPTOR COMMAND…``."""
    session, descriptor, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(descriptor, False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != session:  # it was killed before that took effect
        return
    for number in _FROM_THE_TERMINAL:
        # A handler, not SIG_IGN: the application would inherit that. What the user ignores stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)

    def tell(**message: Any) -> None:
        os.write(descriptor, json.dumps(message).encode() + b"\n")

    try:
        application = HeldProcess(command)
    except Error as error:
        tell(error=str(error))
        return
    tell(pid=application.pid, gate=application.gate)
    tell(status=application.wait())
