"""A driver for runners under test: real memory, and entries that misbehave when told to.

The entries' own meaning is not used: ``cuFuncGetName(n)`` does the n-th of :data:`ACTS` and says what came
of it, ``cuCtxGetCurrent`` answers at once, ``cuDriverGetVersion`` counts how often it was asked.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from zluda.device.cpu.memory import Memory
from zluda.driver import CudaError
from zluda.errors import DeviceError, LaunchError, PtxError, UnsupportedError


def _store_to(address: int) -> str:
    ctypes.memset(address, 1, 1)
    return "stored"


def _start_thread() -> str:
    done: list[str] = []
    thread = threading.Thread(target=lambda: done.append("ran"))
    thread.start()
    thread.join()
    return done[0]


def _allocate_private() -> str:
    return str(len(bytearray(1 << 30)))


ACTS: dict[str, Callable[[], object]] = {
    "open": lambda: os.open("/etc/passwd", os.O_RDONLY),
    "create": lambda: os.open("/tmp/zluda-probe", os.O_CREAT | os.O_WRONLY),
    "list": lambda: os.listdir("/"),
    "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "unix socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
    "fork": os.fork,
    "exec": lambda: os.execv("/bin/true", ["/bin/true"]),
    "popen": lambda: subprocess.run(["/bin/true"], check=True),
    "kill parent": lambda: os.kill(os.getppid(), signal.SIGTERM),
    "thread": _start_thread,
    "anonymous memory": lambda: len(bytearray(1 << 20)),
    "private gigabyte": _allocate_private,
    "store to 8": lambda: _store_to(8),
    "abort": os.abort,
    "exit": lambda: os._exit(3),
    "sleep": lambda: time.sleep(3600),
    "spin": lambda: all(iter(lambda: True, False)),
    "write": lambda: os.write(2, b"LLVM ERROR: no such luck\n"),
    "write much": lambda: [os.write(2, bytes(4096)) for _ in range(100)],
    "write and abort": lambda: (os.write(2, b"LLVM ERROR: no such luck\n"), os.abort()),
    "close its doorbell": lambda: (os.close(int(sys.argv[4])), time.sleep(3600)),
    "internal": lambda: {}["missing"],
    "cuda error": lambda: _raise(
        CudaError(700, "cuX", "far away", launch=LaunchError("bad", kernel="k", block=(1, 2, 3), address=8))
    ),
    "unsupported": lambda: _raise(UnsupportedError("wgmma", "kernel k, a.ptx:3")),
    "ptx error": lambda: _raise(PtxError("what", file="a.ptx", line=3, column=4, text="x", expected="y")),
    "device error": lambda: _raise(DeviceError("cpu", "gone", remedy="buy another")),
}
SLOW_TO_COMPILE = "slow to compile"
ACTS[SLOW_TO_COMPILE] = str
NAMES = list(ACTS)


def _raise(error: Exception) -> None:
    raise error


class ProbeDriver:
    """See the module's text."""

    name, emulated, numerics, places_globals, product = "probe", False, "nvidia", True, ""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._asked = 0
        self._compiled = False

    def cuFuncGetName(self, act: int) -> str:
        return repr(ACTS[NAMES[act]]())

    def cuCtxGetCurrent(self) -> int:
        return 4711

    def cuDriverGetVersion(self) -> int:
        self._asked += 1
        return self._asked

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int:
        return attribute

    def cuModuleGetFunction(self, module: int, name: str) -> int:
        return NAMES.index(name)

    def prepare_launch(self, function: int, *arguments: object, **named: object) -> None:
        if NAMES[function] == SLOW_TO_COMPILE and not self._compiled:
            time.sleep(1)
            self._compiled = True

    def cuLaunchKernel(self, function: int, *arguments: object, **named: object) -> None:
        self.prepare_launch(function)
        ACTS[NAMES[function]]()

    def cuModuleLoadData(self, image: bytes | memoryview, **named: object) -> int:
        return len(image)

    def cuMemAlloc(self, size: int, *, address: int | None = None) -> int:
        try:
            return self._memory.allocate(size, address)
        except (OSError, DeviceError) as error:
            raise CudaError(2, "cuMemAlloc", str(error)) from error

    def cuMemcpyHtoD(self, destination: int, data: bytes | memoryview) -> None:
        self._memory.write(destination, data)

    def cuMemcpyDtoH(self, source: int, size: int) -> bytes:
        return self._memory.read(source, size)


def driver(setup: Mapping[str, Any], memory: Memory) -> ProbeDriver:
    """What the runner under test serves."""
    return ProbeDriver(memory)
