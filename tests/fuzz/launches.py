"""Runs a program on devices and says where they part."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from programs import Program
from statements import OWN
from writing import OFFSETS, REGISTERS, STRIDE, SUMS

from zluda.device.amd import AmdDevice
from zluda.device.cpu import CpuDevice
from zluda.device.interpreter import InterpreterDevice
from zluda.device.ptxas import sources
from zluda.device.services import Services
from zluda.ptx import parse_module

DEVICES = ("cpu", "gfx1030", "gfx90a")
_EDGES = {
    4: [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x7FC00000, 0x00000001, 0xFF7FFFFF],
    8: [0, 1, 1 << 63, (1 << 64) - 1, 0x3FF0000000000000, 0x7FF0000000000000, 0x7FF8000000000000, 0x000FFFFF],
    2: [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x3C00, 0x7C00, 0x0001, 0x3F80, 0x7F80],
}


def open_device(name: str) -> Any:
    """A device that computes NVIDIA's bits."""
    if name == "cpu":
        return CpuDevice(threads=1)
    if name == "interpreter":  # the third opinion, where the others share what is wrong
        return InterpreterDevice(sources("auto"), seconds=60)
    return AmdDevice(name, threads=1, numerics="nvidia", timeout_s=60)


@dataclass(frozen=True)
class Inputs:
    """What a launch is given: registers of all threads, their memory, sums, a word for the whole grid."""

    registers: bytes
    own: bytes
    sums: bytes
    uniform: int
    parameter: bytes


def inputs_of(program: Program) -> Inputs:
    """A seed's inputs: random bits, and now and then values of which something is special."""
    rng = np.random.default_rng(program.seed)
    threads = program.threads * program.blocks
    words = rng.integers(0, 256, (threads, STRIDE), np.uint8)
    for (_, of, size), at in zip(REGISTERS, OFFSETS, strict=False):
        edges = _EDGES.get(size)
        chosen = rng.random(threads) < 0.4
        if edges is not None:
            values = np.array(edges, f"<u{size}")[rng.integers(0, len(edges), threads)]
            words[chosen, at : at + size] = values.view(np.uint8).reshape(threads, size)[chosen]
        if of.kind == "f" and of.bits == 32:  # numbers that are near each other
            near = rng.normal(0, 8, threads).astype("<f4").view(np.uint8).reshape(threads, 4)
            some = rng.random(threads) < 0.5
            words[some, at : at + 4] = near[some]
    own = rng.integers(0, 256, threads * OWN, np.uint8).tobytes()
    sums = bytes(2 * SUMS * program.blocks)
    uniform = int(rng.integers(0, 8))
    return Inputs(words.tobytes(), own, sums, uniform, rng.integers(0, 256, OWN, np.uint8).tobytes())


def launch(device: Any, text: str, program: Program, inputs: Inputs) -> dict[str, bytes]:
    """Run the kernel; what it left in each buffer."""
    module, services = parse_module(text), Services(device)
    code = device.load(module)
    services.attach(code, module)
    services.ready()
    kernel = code.kernel("k")
    contents = {
        "in": inputs.registers,
        "out": bytes(len(inputs.registers)),
        "own": inputs.own,
        "sums": inputs.sums,
    }
    at = {name: device.allocate(len(data)) for name, data in contents.items()}
    try:
        for name, data in contents.items():
            device.write(at[name], data)
        parameters = struct.pack("<QQQQI28x", *at.values(), inputs.uniform) + inputs.parameter
        device.launch(kernel, (program.blocks, 1, 1), (program.threads, 1, 1), parameters)
        device.synchronize()
        return {name: bytes(device.read(at[name], len(data))) for name, data in contents.items()}
    finally:
        for address in at.values():
            device.free(address)


@dataclass(frozen=True)
class Difference:
    """Where two devices part; ``place`` names the register or buffer."""

    device: str
    place: str
    detail: str


def compare(name: str, expected: dict[str, bytes], found: dict[str, bytes]) -> Difference | None:
    """The first difference of two launches' buffers."""
    for buffer, data in expected.items():
        ours = found[buffer]
        if data == ours:
            continue
        at = next(i for i, (a, b) in enumerate(zip(data, ours, strict=True)) if a != b)
        if buffer != "out":
            word = at // 8 * 8
            detail = f"byte {at}: {data[word : word + 8].hex()} on the first, {ours[word : word + 8].hex()}"
            return Difference(name, buffer, detail)
        thread, within = divmod(at, STRIDE)
        index = max(i for i, offset in enumerate(OFFSETS[:-1]) if offset <= within)
        register, _, size = REGISTERS[index]
        start = thread * STRIDE + OFFSETS[index]
        values = [int.from_bytes(x[start : start + size], "little") for x in (data, ours)]
        return Difference(name, register, f"thread {thread}: {values[0]:#x} on the first, {values[1]:#x}")
    return None
