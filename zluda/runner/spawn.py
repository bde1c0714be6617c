"""Starting the runner process.

One thread of this process, kept for its lifetime, starts all runners. The kernel kills a runner when *the
thread* that started it ends (``PR_SET_PDEATHSIG``), so a runner must not be started from a thread that may
end before it; and address randomisation is a property of the starting thread (``personality``), which
this one turns off for its children without changing it for anybody else.
"""

from __future__ import annotations

import ctypes
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from zluda.errors import DeviceError

ADDR_NO_RANDOMIZE = 0x0040000
_QUERY = 0xFFFFFFFF

_requests: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
_requests = queue.SimpleQueue()
_started = threading.Lock()


def personality(flags: int, *, on: bool) -> bool:
    """Turn flags of this thread's execution domain on or off; whether the kernel did."""
    libc = ctypes.CDLL(None)
    libc.personality.argtypes = [ctypes.c_ulong]
    now = libc.personality(_QUERY)
    if now < 0:
        return False
    return bool(libc.personality(now | flags if on else now & ~flags) >= 0)


def spawn(arguments: Sequence[str], *, descriptors: Sequence[int], output: int) -> subprocess.Popen[bytes]:
    """Execute ``python -m zluda.runner arguments…`` with ``descriptors`` open, its output in ``output``.

    Raises DeviceError where the process cannot be started.
    """
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            # -P: whatever lies in the current directory is not to be imported.
            [sys.executable, "-P", "-m", "zluda.runner", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=descriptors,
            env=environment,
        )

    _ensure_thread()
    future: Future[subprocess.Popen[bytes]] = Future()
    _requests.put((start, future))
    try:
        return future.result()
    except OSError as error:
        raise DeviceError("runner", f"cannot execute {sys.executable}: {error}") from error


def _ensure_thread() -> None:
    # The lock is taken once and for all by whoever starts the thread; a forked child starts its own.
    if _started.acquire(blocking=False):
        threading.Thread(target=_serve, name="zluda-runner-starter", daemon=True).start()


def _serve() -> None:
    personality(ADDR_NO_RANDOMIZE, on=True)
    while True:
        start, future = _requests.get()
        try:
            future.set_result(start())
        except BaseException as error:
            future.set_exception(error)


def _after_fork() -> None:
    global _requests, _started
    _requests, _started = queue.SimpleQueue(), threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
