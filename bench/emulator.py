"""How fast the AMD emulator runs: ``python -m bench.emulator [--prototype DIR] [TARGET …]``, on one thread.

For kernels of tests/device/amd/data: lane operations a second (executed wave instructions × lanes), and the
time to lift and compile each kernel. Beside them stand those of the prototype that this emulator replaced:
run by turns with it in one process where its directory is given (or named by ``EMULATOR_PROTOTYPE``), which
alone makes ratios mean something on a machine that has other work; as they were recorded, else. Times are of
the processor, the best of several runs.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from zluda.compiler import cache
from zluda.compiler.amd.disassembler import library_for
from zluda.compiler.amd.targets import target as amd_target
from zluda.device.amd.emulator.device import EmulatedDevice

DATA = Path(__file__).resolve().parents[1] / "tests" / "device" / "amd" / "data"
_COMPILED, _RUNS = 3, 15  # times, of which the quickest counts
_BLOCK = 256
# The prototype's billions of lane operations a second and milliseconds to translate and compile: the best of
# nine runs in turn with this emulator's, same kernels and arguments, one core of a Xeon with AVX-512.
PROTOTYPE = {
    "gfx1030": {
        "k_vadd": (10.2, 60),
        "k_reduce": (19.9, 83),
        "k_matmul": (7.2, 131),
        "k_shfl": (30.3, 105),
        "k_f64": (3.6, 226),
        "k_i64": (10.1, 358),
        "k_math": (1.6, 96),
        "k_atomics": (2.2, 108),
        "k_private": (12.9, 1697),
    },
    "gfx90a": {
        "k_vadd": (11.2, 78),
        "k_reduce": (19.6, 155),
        "k_matmul": (5.3, 271),
        "k_shfl": (45.2, 135),
        "k_f64": (3.5, 692),
        "k_i64": (7.5, 647),
        "k_math": (1.5, 161),
        "k_atomics": (2.0, 142),
        "k_private": (9.6, 2706),
    },
}


def _workloads() -> dict[str, tuple[int, list[Any]]]:
    """Name → (blocks of 256 threads, arguments)."""
    choose = np.random.default_rng(0)
    n, m, side = 1 << 22, 1 << 18, 256
    floats = choose.uniform(-1, 1, n).astype("f4")
    small = choose.integers(0, 100000, m).astype("i4")
    matrix = floats[: side * side].copy()
    return {
        "k_vadd": (n // 256, [floats, floats.copy(), np.zeros(n, "f4"), np.int32(n)]),
        "k_reduce": (n // 256, [floats, np.zeros(n // 256, "f4"), np.int32(n)]),
        "k_matmul": ((side // 16) ** 2, [matrix, matrix.copy(), np.zeros(side * side, "f4"), np.int32(side)]),
        "k_shfl": (m // 256, [small, np.zeros(m, "i4"), np.int32(m)]),
        "k_f64": (m // 256, [choose.uniform(-100, 100, m), np.zeros(m), np.int32(m)]),
        "k_i64": (
            m // 256,
            [
                choose.integers(-(2**62), 2**62, m),
                choose.integers(-(2**40), 2**40, m),
                np.zeros(m, "i8"),
                np.int32(m),
            ],
        ),
        "k_math": (m // 256, [floats[:m].copy(), np.zeros(m, "f4"), np.int32(m)]),
        "k_atomics": (
            m // 256,
            [np.zeros(8, "i4"), np.zeros(16, "u4"), np.zeros(1, "u8"), small, np.int32(m)],
        ),
        "k_private": (m // 1024, [small[: m // 4].copy(), np.zeros(m // 4, "i4"), np.int32(m // 4)]),
    }


def _pack(arguments: list[Any]) -> bytes:
    data = bytearray()
    for argument in arguments:
        address = np.uint64(argument.ctypes.data) if isinstance(argument, np.ndarray) else argument
        piece = address.tobytes()
        data += b"\0" * (-len(data) % len(piece)) + piece
    return bytes(data)


@dataclass
class Side:
    """One of the two emulators: how it compiles a kernel, and launches what it compiled last."""

    compile: Callable[[str], None]
    launch: Callable[[int, bytes], None]
    compiled: float = float("inf")
    ran: float = float("inf")


def _processor_time(do: Callable[[], object]) -> float:
    start = time.process_time()
    do()
    return time.process_time() - start


def _ours(device: EmulatedDevice, image: bytes) -> Side:
    kernel: Any = None

    def compile_kernel(name: str) -> None:
        nonlocal kernel
        kernel = device.load_code_object(image).kernel(name)
        kernel.host(count=False)

    def launch(blocks: int, parameters: bytes) -> None:
        device.launch(kernel, (blocks, 1, 1), (_BLOCK, 1, 1), parameters)

    return Side(compile_kernel, launch)


def _prototype(directory: str, target: str, image: bytes) -> Side:
    """Its modules are ``codeobj``, ``gcnjit`` and ``tests``; LLVM's library is named by ``GCN_LLVM``."""
    os.environ["GCN_LLVM"] = library_for(amd_target(target))[1]
    sys.path.insert(0, directory)
    try:
        codeobj, gcnjit, helpers = map(importlib.import_module, ("codeobj", "gcnjit", "tests"))
    finally:
        sys.path.remove(directory)
    code = codeobj.CodeObject(image)
    program: Any = None

    def compile_kernel(name: str) -> None:
        nonlocal program
        program = gcnjit.Prog(code, name, target, amd_target(target).wave_size, count=False)

    def launch(blocks: int, parameters: bytes) -> None:
        packed = parameters + b"\0" * (-len(parameters) % 8) + helpers.implicit(blocks, _BLOCK)
        memory = ctypes.create_string_buffer(packed, len(packed) + 64)
        arguments = ctypes.addressof(memory)
        grid, block = (blocks, 1, 1), (_BLOCK, 1, 1)
        packet = ctypes.create_string_buffer(code.dispatch_packet(program.k, grid, block, arguments))
        program.launch(grid, block, arguments, ctypes.addressof(packet))

    return Side(compile_kernel, launch)


def _measure(sides: list[Side], name: str, blocks: int, parameters: bytes) -> None:
    """The best of each side, taking turns."""
    for side in sides:
        side.compiled = side.ran = float("inf")
    for _ in range(_COMPILED):
        for side in sides:
            side.compiled = min(side.compiled, _processor_time(lambda side=side: side.compile(name)))  # type: ignore[misc]
    for _ in range(_RUNS):
        for side in sides:
            took = _processor_time(lambda side=side: side.launch(blocks, parameters))  # type: ignore[misc]
            side.ran = min(side.ran, took)


def _lane_operations(device: EmulatedDevice, image: bytes, name: str, blocks: int, parameters: bytes) -> int:
    kernel = device.load_code_object(image).kernel(name)
    device.launch(kernel, (blocks, 1, 1), (_BLOCK, 1, 1), parameters, count=True)
    return int(device.instructions * kernel.wave_size)


def print_target(target: str, directory: str | None) -> None:
    """A line a kernel."""
    image = zstandard.decompress((DATA / f"general.{target}.co.zst").read_bytes())
    device = EmulatedDevice(target, threads=1)
    ours = _ours(device, image)
    sides = [ours, _prototype(directory, target, image)] if directory else [ours]
    for name, (blocks, arguments) in _workloads().items():
        parameters = _pack(arguments)
        operations = _lane_operations(device, image, name, blocks, parameters)
        _measure(sides, name, blocks, parameters)
        rate, compiled = operations / ours.ran / 1e9, ours.compiled * 1e3
        if directory:
            its_rate, its_compiled = operations / sides[1].ran / 1e9, sides[1].compiled * 1e3
        else:
            its_rate, its_compiled = PROTOTYPE[target][name]
        print(
            f"{target:8} {name:10} {rate:6.1f} ({its_rate:5.1f}) = {rate / its_rate:5.2f} x   "
            f"{compiled:6.0f} ms ({its_compiled:5.0f}) = {compiled / its_compiled:4.2f} x",
            flush=True,
        )
    device.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--prototype", metavar="DIRECTORY", default=os.environ.get("EMULATOR_PROTOTYPE"))
    parser.add_argument("targets", nargs="*", default=list(PROTOTYPE), metavar="TARGET")
    chosen = parser.parse_args()
    how = (
        "run by turns with this one"
        if chosen.prototype
        else "as recorded at another time: no ratio to rely on"
    )
    print(f"G lane operations/s (and the prototype's), compile (and the prototype's); {how}")
    with cache.using(None):  # what is found there is not compiled
        for target in chosen.targets:
            print_target(target, chosen.prototype)


if __name__ == "__main__":
    main()
