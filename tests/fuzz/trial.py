"""One program on all devices, in a process of its own: a crash or a hang is an outcome like any other."""

from __future__ import annotations

import math
import os
import pickle
import resource
import select
import signal
import time
import traceback
from dataclasses import dataclass

from launches import compare, inputs_of, launch, open_device
from programs import Program
from writing import ptx

from zluda.errors import Error


@dataclass(frozen=True)
class Fault:
    """What went wrong: ``kind`` is "differs", "crash", "hang" or the name of an error's class."""

    device: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.device} {self.kind}: {self.detail}"

    def like(self, other: Fault | None) -> bool:
        """Whether another is the same fault, as far as one can tell from outside."""
        return other is not None and (self.device, self.kind) == (other.device, other.kind)


def outcome(program: Program, devices: tuple[str, ...]) -> Fault | None:
    """Run on each device and compare with the first; None where all agree."""
    text, inputs = ptx(program), inputs_of(program)
    first = None
    for name in devices:
        try:
            device = open_device(name)
            try:
                found = launch(device, text, program, inputs)
            finally:
                device.close()
        except Error as error:
            return Fault(name, type(error).__name__, str(error))
        if first is None:
            first = found
        different = compare(name, first, found)
        if different is not None:
            return Fault(name, "differs", f"{different.place}, {different.detail}")
    return None


def apart(program: Program, devices: tuple[str, ...], seconds: float = 120) -> Fault | None:
    """As :func:`outcome`, in a child process, which may take so many seconds of processor time.

    By the clock it gets ten times as many: the machine may be busy, and who waits for nothing uses none.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 5))
        try:
            found = _caught(program, devices)
            with os.fdopen(writing, "wb") as file:
                file.write(pickle.dumps(found))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        deadline = time.monotonic() + 10 * seconds
        data = b""
        while time.monotonic() < deadline:
            ready, _, _ = select.select([file], [], [], deadline - time.monotonic())
            if not ready:
                break
            piece = os.read(file.fileno(), 1 << 16)
            if not piece:
                _, status = os.waitpid(child, 0)
                return _ended(status, data, devices, seconds)
            data += piece
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Fault(",".join(devices), "hang", f"no end within {10 * seconds:g} s by the clock")


def _caught(program: Program, devices: tuple[str, ...]) -> Fault | None:
    try:
        return outcome(program, devices)
    except Exception as error:  # a compiler that fails is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Fault(",".join(devices), type(error).__name__, f"{error} ({place.filename}:{place.lineno})")


def _ended(status: int, data: bytes, devices: tuple[str, ...], seconds: float) -> Fault | None:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return Fault(",".join(devices), "hang", f"no end within {seconds:g} s of processor time")
    if os.WIFSIGNALED(status):
        return Fault(",".join(devices), "crash", signal.Signals(os.WTERMSIG(status)).name)
    found: Fault | None = pickle.loads(data)
    return found
