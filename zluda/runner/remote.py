"""The driver on the near side: every call goes to the runner and comes back as its value or its error."""

from __future__ import annotations

import os
import select
import signal as signals
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from zluda.driver import ENTRIES, ParameterSlot
from zluda.driver.base import Bytes
from zluda.driver.descriptors import Copy, MemoryType
from zluda.runner.cache import NearCache
from zluda.runner.channel import Channel, ChannelError
from zluda.runner.errors import RunnerDied
from zluda.runner.messages import INDEX, decode_error

# Queries whose answer never changes: asked once.
_CONSTANT = frozenset(
    (
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGetName",
        "cuDeviceGetUuid",
        "cuDeviceTotalMem",
        "cuDeviceGetAttribute",
    )
)
# What brings code in, which may mean that it is compiled: no kernel runs meanwhile, none can hang.
_CODE = frozenset(
    (
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLibraryLoadData",
        "cuLibraryGetKernel",
        "cuLibraryGetModule",
        "cuKernelGetFunction",
        "cuKernelGetAttribute",
        "cuFuncGetAttribute",
        "cuFuncLoad",
        "parameter_layout",
        "prepare_launch",
    )
)
CHUNK = 1 << 24  # bytes of one copy between host and device; larger ones are cut


class Link:
    """The process and the channel to it; one command at a time.

    A command takes at most ``time_limit`` seconds, one that brings code in ``code_limit``.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: Channel,
        *,
        bell: int,
        far_bell: int,
        output: int,
        time_limit: float,
        code_limit: float,
        cache: NearCache | None = None,
    ) -> None:
        self._cache = cache
        self.process, self._channel = process, channel
        self.time_limit, self._code_limit = time_limit, code_limit
        self._bell, self._far_bell, self._output = bell, far_bell, output
        self._pidfd = os.pidfd_open(process.pid)
        self._poll = select.poll()
        self._poll.register(bell, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._lock = threading.Lock()
        self._sequence = 0
        self.died: RunnerDied | None = None
        self._closed = False

    def request(self, command: str, positional: tuple[Any, ...], named: dict[str, Any], kernel: str) -> Any:
        """Have the runner do a command; its value, its error raised, or RunnerDied."""
        with self._lock:
            self._check_alive(command)
            self._sequence += 1
            self._channel.send(self._sequence, (INDEX[command], positional, named))
            with suppress(BrokenPipeError):  # it has ended: waiting for the reply tells how
                os.write(self._far_bell, b"\0")
            return self.reply(self._sequence, command, kernel)

    def reply(self, sequence: int, command: str = "", kernel: str = "") -> Any:
        """Wait for the reply to command ``sequence``."""
        limit = self._code_limit if command in _CODE else self.time_limit
        deadline = time.monotonic() + limit
        while True:
            self._wait(deadline, limit, command, kernel)
            try:
                received = self._channel.receive()
                if received is not None and not self._answered(received, sequence):
                    return self._value(received, sequence)
            except ChannelError as error:
                self.kill()
                self._die(RunnerDied("crash", command=command, kernel=kernel, detail=str(error)))

    def _wait(self, deadline: float, limit: float, command: str, kernel: str) -> None:
        """Wait for the doorbell or the process's end; RunnerDied for the latter and after the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            self.kill()
            self._die(RunnerDied("hang", command=command, kernel=kernel, seconds=limit))
        ready = dict(self._poll.poll(min(left, 3600) * 1000))
        if ready.get(self._bell, 0) & select.POLLIN:
            os.read(self._bell, 1)
        elif ready:
            status = self._ended()
            self._die(
                RunnerDied(
                    "crash",
                    command=command,
                    kernel=kernel,
                    signal=-status if status < 0 else None,
                    exit_status=status if status >= 0 else None,
                    detail=self._last_words(),
                )
            )

    def _ended(self) -> int:
        """The status of a process that ends; of one that only closed its doorbell, once it is killed."""
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.wait()

    def _answered(self, received: tuple[int, Any], sequence: int) -> bool:
        """Whether this was no reply but a question to the kernel cache; it is answered then."""
        asked, message = received
        if asked != sequence or not isinstance(message, tuple) or len(message) != 2 or message[0] is not None:
            return False
        answer = self._cache.answer(message[1]) if self._cache is not None else None
        self._channel.send(sequence, answer, keep=True)  # the command's own bulk data is still in use
        with suppress(BrokenPipeError):
            os.write(self._far_bell, b"\0")
        return True

    @staticmethod
    def _value(received: tuple[int, Any], sequence: int) -> Any:
        answered, reply = received
        if answered != sequence or not isinstance(reply, tuple) or len(reply) != 2:
            raise ChannelError(f"a reply to command {answered} where {sequence} was asked")
        succeeded, value = reply
        if succeeded is not True:
            raise decode_error(value)
        return _copied(value)

    def _check_alive(self, command: str) -> None:
        if self.died is not None:
            raise self.died
        if self._closed:
            raise RunnerDied("crash", command=command, exit_status=0, detail="it was closed")

    def _die(self, error: RunnerDied) -> NoReturn:
        self.died = error
        raise error

    def _last_words(self) -> str:
        """The last line that the process wrote, such as LLVM's when it gives up."""
        text = os.pread(self._output, 1 << 16, 0).rstrip(b"\0").decode(errors="replace").strip()
        return "".join(c for c in text.splitlines()[-1] if c.isprintable())[:500] if text else ""

    def kill(self) -> None:
        """End the process, whatever it does, and reap it."""
        if self.process.poll() is None:
            signals.pidfd_send_signal(self._pidfd, signals.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """End the process and give back what this side holds; twice is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.kill()
            self._channel.close()
            for fd in (self._pidfd, self._bell, self._far_bell, self._output):
                os.close(fd)


def _copied(value: Any) -> Any:
    """A value that outlives the bulk area."""
    return bytes(value) if isinstance(value, memoryview) else value


class RemoteDriver:
    """:class:`zluda.driver.Driver` over a link.

    One method for each of ``driver.ENTRIES``; those written out here do something on this side.
    """

    def __init__(self, link: Link, ready: dict[str, Any]) -> None:
        self._link = link
        self._kernels: dict[int, str] = {}  # function or kernel handle → name, to name the one that kills
        self._prepared: set[tuple[int, tuple[int, ...]]] = set()  # function and block of a launch
        self._prepares: bool = ready["prepares"]
        self._constants: dict[tuple[Any, ...], Any] = {}
        self.name: str = ready["name"]
        self.emulated: bool = ready["emulated"]
        self.numerics: str = ready["numerics"]
        self.places_globals: bool = ready["places_globals"]
        self.product: str = ready["product"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _GENERIC:
            raise AttributeError(f"the CUDA driver of a runner has no entry {name!r}")
        entry = partial(self._constant if name in _CONSTANT else self._generic, name)
        setattr(self, name, entry)  # found directly from now on
        return entry

    def _generic(self, command: str, *positional: Any, **named: Any) -> Any:
        return self._link.request(command, positional, named, "")

    def _constant(self, command: str, *positional: Any) -> Any:
        key = (command, *positional)
        if key not in self._constants:
            self._constants[key] = self._generic(command, *positional)
        return self._constants[key]

    # --- kernels: their names are kept ------------------------------------------------------------------

    def cuModuleGetFunction(self, module: int, name: str) -> int:
        return self._named("cuModuleGetFunction", module, name)

    def cuLibraryGetKernel(self, library: int, name: str) -> int:
        return self._named("cuLibraryGetKernel", library, name)

    def cuKernelGetFunction(self, kernel: int) -> int:
        function: int = self._generic("cuKernelGetFunction", kernel)
        self._kernels[function] = self._kernels.get(kernel, "")
        return function

    def cuLaunchKernel(self, function: int, grid: Any, block: Any, *rest: Any, **named: Any) -> None:
        kernel = self._kernels.get(function, "")
        prepared = function, tuple(block)
        if self._prepares and prepared not in self._prepared:  # apart: compiling is not the kernel's time
            self._link.request("prepare_launch", (function, grid, block, *rest), named, kernel)
            self._prepared.add(prepared)
        self._link.request("cuLaunchKernel", (function, grid, block, *rest), named, kernel)

    def parameter_layout(self, function: int) -> tuple[ParameterSlot, ...]:
        kernel = self._kernels.get(function, "")
        return tuple(
            ParameterSlot(*slot) for slot in self._link.request("parameter_layout", (function,), {}, kernel)
        )

    def _named(self, command: str, holder: int, name: str) -> int:
        handle: int = self._generic(command, holder, name)
        self._kernels[handle] = name
        return handle

    # --- copies: cut to what a bulk area should hold ----------------------------------------------------

    def cuMemcpyHtoD(self, destination: int, data: Bytes) -> None:
        self._write("cuMemcpyHtoD", destination, data)

    def cuMemcpyHtoDAsync(self, destination: int, data: Bytes, stream: int) -> None:
        self._write("cuMemcpyHtoDAsync", destination, data, stream)

    def cuMemcpyDtoH(self, source: int, size: int) -> bytes:
        return self._read("cuMemcpyDtoH", source, size)

    def cuMemcpyDtoHAsync(self, source: int, size: int, stream: int) -> bytes:
        return self._read("cuMemcpyDtoHAsync", source, size, stream)

    def read_array(self, array: int, offset: int, size: int) -> bytes:
        pieces = [
            self._generic("read_array", array, offset + at, min(CHUNK, size - at))
            for at in range(0, max(size, 1), CHUNK)
        ]
        return b"".join(pieces)

    def write_array(self, array: int, offset: int, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        for at in range(0, max(len(view), 1), CHUNK):
            self._generic("write_array", array, offset + at, view[at : at + CHUNK])

    def cuMemcpy2D(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._copy_box("cuMemcpy2D", copy, data)

    def cuMemcpy2DUnaligned(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._copy_box("cuMemcpy2DUnaligned", copy, data)

    def cuMemcpy2DAsync(self, copy: Copy, stream: int, data: Bytes = b"") -> bytes:
        return self._copy_box("cuMemcpy2DAsync", copy, data, stream)

    def cuMemcpy3D(self, copy: Copy, data: Bytes = b"") -> bytes:
        return self._copy_box("cuMemcpy3D", copy, data)

    def cuMemcpy3DAsync(self, copy: Copy, stream: int, data: Bytes = b"") -> bytes:
        return self._copy_box("cuMemcpy3DAsync", copy, data, stream)

    def _copy_box(self, command: str, copy: Copy, data: Bytes, *stream: int) -> bytes:
        """Cut only where the host takes part: between device memory nothing goes through the channel."""
        view = memoryview(data).cast("B")
        through = MemoryType.HOST in (copy.source.type, copy.destination.type)
        delivered = [
            self._generic(command, part, *stream, view[at : at + part.size] if len(view) else b"")
            for part, at in copy.parts(CHUNK if through else max(copy.size, 1))
        ]
        return b"".join(delivered)

    def _write(self, command: str, destination: int, data: Bytes, *rest: int) -> None:
        view = memoryview(data).cast("B")
        for at in range(0, max(len(view), 1), CHUNK):
            self._generic(command, destination + at, view[at : at + CHUNK], *rest)

    def _read(self, command: str, source: int, size: int, *rest: int) -> bytes:
        pieces = [
            self._generic(command, source + at, min(CHUNK, size - at), *rest)
            for at in range(0, max(size, 1), CHUNK)
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """End the runner."""
        self._link.close()


_GENERIC = frozenset(ENTRIES) - frozenset(vars(RemoteDriver))
