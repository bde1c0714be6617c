"""The producer's side of a ring in Python, so that the consumer can be tested (and timed) without an
application.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from zluda.trace import spec
from zluda.tracefile import ring
from zluda.tracefile.drain import FUNCTIONS_FILE


@dataclass
class Producer:
    """Writes records as the agent does; time is a counter of its own that every record moves on."""

    directory: Path
    control: ring.Control
    path: Path
    map: mmap.mmap
    thread: int
    head: int = 0
    clock: int = 1000

    @classmethod
    def create(cls, directory: Path, *, ring_bytes: int = 1 << 20) -> Producer:
        """A rings directory with its control page and one ring."""
        directory.mkdir()
        (directory / FUNCTIONS_FILE).write_text(json.dumps(spec.functions()))
        control = ring.Control.create(directory, ring_bytes)
        control["RECORDER_PID"] = os.getpid()
        return cls.add_ring(directory, control, 0, ring_bytes)

    @classmethod
    def add_ring(cls, directory: Path, control: ring.Control, number: int, ring_bytes: int) -> Producer:
        path = directory / f"ring-{number}"
        capacity = ring_bytes // ring.SLOT_BYTES
        size = ring.RING_HEADER_BYTES + capacity * ring.SLOT_BYTES
        with open(path, "x+b") as file:
            file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
        producer = cls(directory, control, path, mapped, 100 + number)
        for name, value in (("CAPACITY", capacity), ("THREAD", producer.thread), ("MAGIC", ring.RING_MAGIC)):
            producer.set_word(name, value)
        return producer

    def set_word(self, name: str, value: int) -> None:
        struct.pack_into("<Q", self.map, ring.RING[name], value)

    def word(self, name: str) -> int:
        return int(struct.unpack_from("<Q", self.map, ring.RING[name])[0])

    @property
    def capacity(self) -> int:
        return self.word("CAPACITY")

    def has_room(self, length: int) -> bool:
        return self._wanted(length)[0] <= self.capacity - (self.head - self.word("TAIL"))

    def _wanted(self, length: int) -> tuple[int, int, int]:
        slots = -(-(ring.RECORD_HEADER_BYTES + length) // ring.SLOT_BYTES)
        rest = self.capacity - self.head % self.capacity
        return (slots if slots <= rest else rest + slots), slots, rest

    def record(
        self, kind: int, sequence: int, body: bytes = b"", *, function: int = 0, extra: int = 0, time: int = 0
    ) -> None:
        """One record, published."""
        self.clock = time or self.clock + 1
        _, slots, rest = self._wanted(len(body))
        if slots > rest:
            self._publish(ring.PAD, 0, rest, b"", 0, 0)
        self._publish(kind, sequence, slots, body, function, extra)

    def _publish(self, kind: int, sequence: int, slots: int, body: bytes, function: int, extra: int) -> None:
        start = ring.RING_HEADER_BYTES + self.head % self.capacity * ring.SLOT_BYTES
        commit = (self.head + 1) & 0xFFFFFFFF
        header = ring.RECORD_HEADER.pack(
            commit, kind, slots, sequence, self.clock, function, len(body), extra
        )
        self.map[start : start + len(header) + len(body)] = header + body
        self.head += slots
        self.set_word("HEAD", self.head)

    # --- whole calls ------------------------------------------------------------------------------------

    def next_number(self) -> int:
        number = self.control["SEQUENCE"]
        self.control["SEQUENCE"] = number + 1
        return number

    def enter(self, name: str, words: list[int], tail: bytes = b"", *, parent: int | None = None) -> int:
        """Returns the call's number."""
        number = self.next_number()
        extra = 0 if parent is None else parent + 1
        body = struct.pack(f"<{len(words)}Q", *words) + tail
        self.record(ring.ENTER, number, body, function=FUNCTIONS[name], extra=extra)
        return number

    def leave(self, number: int, outputs: bytes = b"", *, result: int = 0, flags: int = 0) -> None:
        self.record(ring.LEAVE, number, struct.pack("<Q", result) + outputs, function=flags)

    def data(
        self,
        number: int,
        parameter: int,
        direction: str,
        content: bytes,
        *,
        total: int | None = None,
        offset: int = 0,
    ) -> None:
        size = len(content) if total is None else total
        function = parameter | ring.DIRECTIONS[direction] << 8
        self.record(ring.DATA, number, struct.pack("<QQ", size, offset) + content, function=function)

    def call(self, name: str, words: list[int], outputs: bytes = b"", *, result: int = 0) -> int:
        number = self.enter(name, words)
        self.leave(number, outputs, result=result)
        return number

    def text_call(self, name: str, words: list[int], parameter: int, text: str, outputs: bytes = b"") -> int:
        """A call one of whose parameters is a string."""
        number = self.enter(name, words)
        self.data(number, parameter, "in", text.encode())
        self.leave(number, outputs)
        return number


FUNCTIONS = {row["name"]: index for index, row in enumerate(spec.functions())}


def pack64(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}Q", *words)


def load_kernel(
    producer: Producer, name: str = "kernel", *, module: int = 0x10, function: int = 0x20
) -> None:
    """The calls after which ``function`` is a kernel of a module."""
    number = producer.enter("cuModuleLoadData", [0x1000, 0x2000])
    producer.data(
        number, 1, "in", b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel() { ret; }\n"
    )
    producer.leave(number, pack64(module))
    producer.text_call("cuModuleGetFunction", [0x1000, module, 0x3000], 2, name, pack64(function))


def launch(
    producer: Producer, parameters: bytes, *, function: int = 0x20, grid: int = 1, stream: int = 0
) -> int:
    """A launch that returns at once."""
    number = producer.enter(
        "cuLaunchKernel", [function, grid, 1, 1, 32, 1, 1, 0, stream, 0x4000, 0], parameters
    )
    producer.leave(number)
    return number


def launch_loop(producer: Producer, count: int, *, stream: int = 0) -> None:
    """``count`` launches of one kernel, as a launch-bound application makes them."""
    load_kernel(producer)
    for index in range(count):
        launch(producer, struct.pack("<QI", 0x7F0000000000, index), stream=stream)
