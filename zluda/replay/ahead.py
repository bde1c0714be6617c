"""Compiling a trace's kernels ahead of their launch: ``ZLUDA_CACHE_POLICY=aggressive``.

A process of low priority compiles what the trace launches into the user's cache while the replay runs; the
runner finds there what it is in time for. It never executes a kernel, so its entries are this user's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zluda import config
from zluda.device.names import kind

_KINDS = ("cpu", "gfx")
_NICE = 10


@contextmanager
def compile_ahead(path: str | os.PathLike[str], device: str, numerics: str | None) -> Iterator[None]:
    """Within: the kernels of the trace at ``path`` are compiled for ``device``, where the policy says so."""
    if config.load().cache_policy != "aggressive" or kind(device) not in _KINDS:
        yield
        return
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-P", "-m", "zluda", "precompile", os.path.abspath(path), "--target", device]
    process = subprocess.Popen(
        [*command, *(["--numerics", numerics] if numerics else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)},
        start_new_session=True,  # its own processes end with it
    )
    with suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
