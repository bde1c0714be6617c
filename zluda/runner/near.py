"""The near side of a runner: start it, speak to it, read its memory, and end it."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, cast

from zluda import config
from zluda.compiler.cache import open_store
from zluda.device.names import ENVELOPE, check_options, kind, resolve
from zluda.driver import Driver
from zluda.errors import DeviceError
from zluda.runner import channel as channels
from zluda.runner.cache import NearCache
from zluda.runner.channel import Channel
from zluda.runner.errors import RunnerDied
from zluda.runner.memory import DeviceMemory
from zluda.runner.profiled import KernelTimes, read_profile
from zluda.runner.remote import Link, RemoteDriver
from zluda.runner.spawn import spawn

GRANULE = 2 << 20
_OUTPUT_BYTES = 1 << 16
_START_SECONDS = 120.0
_GIB = 1 << 30

# Kind of device → where the runner finds its driver (module:function), whether its memory is the shared file,
# and how it is confined (``confine.py``). NVIDIA's driver opens device files and speaks to its kernel module
# at any time, and the code it runs is NVIDIA's: it is not.
FACTORIES: dict[str, tuple[str, bool, str]] = {
    "cpu": ("zluda.runner.devices:translated_driver", True, "host"),
    "gfx": ("zluda.runner.devices:translated_driver", True, "host"),
    "interpreter": ("zluda.runner.devices:translated_driver", True, "host"),
    "hip": ("zluda.runner.devices:hip_driver", False, "gpu"),
    "cuda": ("zluda.driver.native:from_setup", False, ""),
    "nvptx": ("zluda.runner.devices:nvptx_driver", False, ""),
}

# (bytes of private memory, seconds a command, seconds a command that brings code in) by `untrusted`.
_LIMITS = {False: (16 * _GIB, 600.0, 600.0), True: (4 * _GIB, 60.0, 60.0)}


class Runner:
    """A running runner process. Close it, or use it as a context manager.

    ``driver`` is its driver, ``memory`` its device memory seen from here, ``device`` the device's name and
    ``confinement`` what binds the process (empty over a GPU's own driver).
    """

    def __init__(self, link: Link, ready: dict[str, Any], memory_fd: int) -> None:
        self._link = link
        self.device: str = ready["name"]
        self.confinement: tuple[str, ...] = tuple(ready["confinement"])
        self.driver = cast(Driver, RemoteDriver(link, ready))
        self.memory = DeviceMemory(memory_fd, ready["ranges"], self.driver.cuMemcpyDtoH)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._link.process.pid

    @property
    def died(self) -> RunnerDied | None:
        """How it died, where it did."""
        return self._link.died

    def perturb(self, share: float, pattern: int, seed: int) -> None:
        """Over a device of numerics ``"envelope"``: see :meth:`zluda.device.cpu.CpuDevice.perturb`."""
        self._link.request("perturb", (share, pattern, seed), {}, "")

    def take_profile(self) -> list[KernelTimes]:
        """Of a runner with ``profile``: the times of all launches, by kernel."""
        return read_profile(self._link.request("take_profile", (), {}, ""))

    def close(self) -> None:
        """End the process and free what it shared; closing twice is harmless."""
        self._link.close()
        self.memory.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start(
    device: str = "cpu",
    *,
    reservations: Sequence[tuple[int, int]] = (),
    numerics: str | None = None,
    contract: str = "auto",
    untrusted: bool = False,
    memory_limit: int | None = None,
    time_limit: float | None = None,
    cache_scope: str = "",
    schedule: int = 0,
    check: str = "none",
    profile: bool = False,
) -> Runner:
    """Start a runner over ``device`` (``"cpu"``, ``"gfx1030"``, ``"cuda:N"``).

    ``reservations`` are (address, size) ranges in which ``cuMemAlloc(address=…)`` will be asked for memory.
    ``memory_limit`` bounds the process's private memory in bytes (device memory is apart), ``time_limit`` one
    command's wall time in seconds, what it compiles apart; ``schedule`` is the seed of the order
    of blocks and warps, ``check`` which accesses are tested as they are made, ``profile`` that launches are
    timed, and counted on an emulated GPU; ``untrusted`` makes the
    defaults of both smaller. ``cache_scope`` says whose a confined runner's compiled kernels are
    (``cache.py``); empty: they are not kept. Raises DeviceError where the device is not there or an address
    cannot be had, RunnerDied where the process ends before it is ready.
    """
    if sys.platform != "linux":
        raise DeviceError("runner", f"needs Linux, not {sys.platform}")
    device = resolve(device)
    wanted = None if (device, numerics) == ("cpu", ENVELOPE) else numerics
    check_options(device, numerics=wanted, check=check, contract=contract, schedule=schedule)
    factory, shared_memory, confined = FACTORIES[kind(device)]
    store = open_store() if confined and config.load().cache_policy != "off" else None
    limit = _positive("time_limit", time_limit, _LIMITS[untrusted][1])
    setup = {
        "device": device,
        "factory": factory,
        "confined": confined,
        "shared_memory": shared_memory,
        "numerics": numerics,
        "contract": contract,
        "schedule": schedule,
        "check": check,
        "profile": profile,
        "time_limit": limit,
        "cache": store is not None,
        "reservations": merged(reservations),
        "memory_limit": _positive("memory_limit", memory_limit, _LIMITS[untrusted][0]),
    }
    with ExitStack() as undo:
        channel_fd = channels.create(json.dumps(setup).encode())
        undo.callback(os.close, channel_fd)
        memory = _descriptor(undo, os.memfd_create("zluda-device", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        far_reads, far_bell = _pipe(undo)
        bell, far_writes = _pipe(undo)
        output = _descriptor(undo, _output_file())
        channel = Channel(channel_fd, near=True)
        undo.callback(channel.close)
        descriptors = (channel_fd, memory, far_reads, far_writes)
        words = [str(number) for number in (*descriptors, os.getpid(), 0)]
        link = Link(
            spawn(words, descriptors=descriptors, output=output),
            channel,
            bell=bell,
            far_bell=far_bell,
            output=output,
            time_limit=_START_SECONDS,
            code_limit=max(limit, _LIMITS[untrusted][2]),
            cache=NearCache(store, cache_scope) if store is not None else None,
        )
        undo.pop_all()  # from here on the link and the memory own them
        for fd in (channel_fd, far_reads, far_writes):  # the runner has its own
            os.close(fd)
    try:
        ready = link.reply(0)
        link.time_limit = limit
        # Whatever runs there now must not be able to make a read here fail.
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return Runner(link, ready, memory)
    except BaseException:
        link.close()
        os.close(memory)
        raise


def merged(reservations: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of ranges, rounded outwards to 2 MiB: sorted, disjoint (address, size)."""
    union: list[tuple[int, int]] = []
    for address, size in sorted(reservations):
        if address < 0 or size <= 0:
            raise DeviceError("runner", f"cannot reserve {size} bytes at {address:#x}")
        first, last = address // GRANULE * GRANULE, -(-(address + size) // GRANULE) * GRANULE
        if union and first <= union[-1][0] + union[-1][1]:
            start, length = union.pop()
            first, last = start, max(last, start + length)
        union.append((first, last - first))
    return union


def _positive(name: str, value: Any, default: Any) -> Any:
    if value is None:
        return default
    if not value > 0:
        raise DeviceError("runner", f"{name} is {value}; expected more than 0")
    return value


def _descriptor(undo: ExitStack, fd: int) -> int:
    undo.callback(os.close, fd)
    return fd


def _pipe(undo: ExitStack) -> tuple[int, int]:
    reads, writes = os.pipe()
    return _descriptor(undo, reads), _descriptor(undo, writes)


def _output_file() -> int:
    """Where the process's standard output and error go: a file that cannot grow without bounds."""
    fd = os.memfd_create("zluda-runner-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, _OUTPUT_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd
