"""The runner process: take the wanted addresses, set up the driver, confine, and serve commands.

The order matters. Addresses are mapped before anything large is imported, since libraries and heaps land
where device memory may have to be. The compiler is warmed up and every module imported before the
confinement, since afterwards no file can be opened. Only then is the near side told that the runner is ready,
and only then does anything from a trace reach this process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
from typing import Any

from zluda.errors import DeviceError, Error
from zluda.records import dataclass
from zluda.runner import confine
from zluda.runner.channel import Channel
from zluda.runner.far_cache import FarCache
from zluda.runner.spawn import ADDR_NO_RANDOMIZE, personality

ATTEMPTS = 8  # executions until the wanted addresses are free
READY = 0  # the sequence number of the first reply


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line: what the near side passed, and how often this was executed before."""

    channel: int
    memory: int
    bell: int
    near_bell: int
    parent: int
    attempt: int

    @classmethod
    def parse(cls, words: list[str]) -> Arguments:
        return cls(*(int(word) for word in words))

    def words(self) -> list[str]:
        names = (self.channel, self.memory, self.bell, self.near_bell, self.parent, self.attempt)
        return [str(number) for number in names]


def main(words: list[str]) -> int:
    """Run until the near side ends this process or closes the channel; returns the exit status."""
    arguments = Arguments.parse(words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the near side's to act on
    confine.die_with_parent(arguments.parent)
    channel = Channel(arguments.channel, near=False)
    setup = json.loads(channel.setup())
    kernels = FarCache(channel, arguments.bell, arguments.near_bell)
    gc.disable()
    try:
        driver, ready = _set_up(arguments, setup, kernels)
    except Error as error:
        from zluda.runner.messages import encode_error

        _reply(channel, arguments, READY, (False, encode_error(error)))
        return 1
    gc.freeze()  # modules and tables stay
    gc.enable()
    _reply(channel, arguments, READY, (True, ready))
    _serve(channel, arguments, driver, kernels)
    return 0


def _set_up(arguments: Arguments, setup: dict[str, Any], kernels: FarCache) -> tuple[Any, dict[str, Any]]:
    ready: dict[str, Any] = {"ranges": [], "confinement": []}
    memory = _map_memory(arguments, setup) if setup["shared_memory"] else None
    for needed in ("msgpack", "zluda.runner.messages"):  # no module can be imported once confined
        importlib.import_module(needed)
    module, _, factory = setup["factory"].partition(":")
    driver = getattr(importlib.import_module(module), factory)(setup, memory)
    if setup["profile"]:
        driver = importlib.import_module("zluda.runner.profiled").ProfiledDriver(driver)
    if memory is not None:
        ready["ranges"] = [(r.start, r.size, r.file_offset) for r in memory.ranges]
    if setup["confined"]:
        cache = importlib.import_module("zluda.compiler.cache")
        cache.use(kernels if setup["cache"] else None)
        cache.prepare()
        confine.limit(setup["memory_limit"])
        confine.forbid(gpu=setup["confined"] == "gpu")
        ready["confinement"] = ["memory", "system calls"]
    for name in ("name", "emulated", "numerics", "places_globals", "product"):
        ready[name] = getattr(driver, name)
    ready["prepares"] = hasattr(driver, "prepare_launch")
    return driver, ready


def _map_memory(arguments: Arguments, setup: dict[str, Any]) -> Any:
    from zluda.device.cpu.memory import Memory

    reservations = [(start, size) for start, size in setup["reservations"]]
    try:
        return Memory(reservations, fd=arguments.memory, capacity=setup["memory_limit"])
    except DeviceError:
        if arguments.attempt >= ATTEMPTS:
            raise
        _execute_again(arguments)


def _execute_again(arguments: Arguments) -> None:
    """Try another layout: without randomisation it is always the same, so turn that on."""
    personality(ADDR_NO_RANDOMIZE, on=False)
    os.ftruncate(arguments.memory, 0)
    words = arguments.words()
    words[-1] = str(arguments.attempt + 1)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "zluda.runner", *words])


def _serve(channel: Channel, arguments: Arguments, driver: Any, kernels: FarCache) -> None:
    from zluda.runner.messages import COMMANDS, encode_error

    while True:
        if not os.read(arguments.bell, 1):
            return
        received = channel.receive()
        if received is None:
            continue
        sequence, (index, positional, named) = received
        kernels.sequence = sequence
        try:
            reply: tuple[bool, Any] = (True, getattr(driver, COMMANDS[index])(*positional, **named))
        except Error as error:
            reply = (False, encode_error(error))
        except Exception as error:  # a fault of ours: the near side must still get its answer
            text = f"internal error in {COMMANDS[index]}: {type(error).__name__}: {error}"
            reply = (False, encode_error(Error(text)))
        _reply(channel, arguments, sequence, reply)
        if COMMANDS[index] == "close":
            return


def _reply(channel: Channel, arguments: Arguments, sequence: int, reply: tuple[bool, Any]) -> None:
    channel.send(sequence, reply)
    os.write(arguments.near_bell, b"\0")
