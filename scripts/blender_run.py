#!/usr/bin/env python3
"""Run kernels of Blender's Cycles on made-up buffers, on the CPU and an emulated AMD GPU, and compare.

The PTX is that of ``scripts/blender_ptx.py``. An entry is launched once, as one block, with numbers drawn
from a seed in whatever its parameters and ``kernel_params`` point to; afterwards all of that memory must be
the same on both devices, bit for bit. Accesses are tested: one outside of it ends the launch, by name.
Nothing says that the numbers make sense to Cycles. Entries of more than 2,000 instructions get memory full of
zeros, so that a shader's program is over where it begins.

    python scripts/blender_run.py --json build/blender_run.json
    python scripts/blender_run.py --kernel prefix_sum --kernel film_convert_combined
"""

from __future__ import annotations

import argparse
import json
import signal
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zluda.compiler.apart import Outcome as Answer
from zluda.compiler.apart import each_apart
from zluda.compiler.unit import kernel_unit
from zluda.device.amd import AmdDevice
from zluda.device.cpu import CpuDevice
from zluda.errors import Error
from zluda.ptx import Module, parse_module
from zluda.ptx.module import Address, Symbol

PREFIX, CONSTANTS = "kernel_gpu_", "kernel_params"
BUFFER, SCENE = 1 << 18, 1 << 22  # bytes behind a parameter, and behind each pointer of kernel_params
SMALL = 2000  # instructions
SHARED = 16 << 10  # bytes of dynamic shared memory
LONGEST = 900.0  # seconds of processor time, compiling and running
LARGEST = 5000  # of entries that are run when none is named

# What integers of parameters are, in order: pixels or states first, then widths, offsets, strides.
INTEGERS = (300, 20, 3, 20, 2, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)


@dataclass(frozen=True, slots=True)
class Task:
    kernel: str
    device: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One entry: what stopped it on either device, else whether they agree and how many bytes it changed."""

    kernel: str
    instructions: int
    agrees: bool
    changed: int
    reasons: tuple[str, ...]


def drawn(kernel: str, number: int, size: int, *, empty: bool) -> bytes:
    """A buffer's content: floats of pictures, or integers that serve as counts and indices."""
    if empty:
        return bytes(size)
    random = np.random.default_rng([zlib.crc32(kernel.encode()), number])
    if any(word in kernel for word in ("film", "filter", "convergence", "cryptomatte")):
        return random.uniform(0.125, 4.0, size // 4).astype(np.float32).tobytes()
    return random.integers(0, 9, size // 4).astype(np.uint32).tobytes()


def filled(module: Module, kernel: str, variable: str, size: int, scene: int) -> bytes:
    """A structure by what the kernel loads of it: words of 64 bits point to the scene, numbers are small."""
    content = bytearray(size)
    unit = kernel_unit(module, kernel, (32, 1, 1), "off")
    for function in (unit.kernel, *unit.functions.values()):
        for instruction in function.instructions:
            match instruction.operands:
                case [*_, Address(base=Symbol(name=name), offset=offset)] if (
                    name == variable and instruction.opcode == "ld"
                ):
                    step = instruction.type.bits // 8
                    for at in range(offset, offset + step * instruction.vector, step):
                        content[at : at + step] = _word(instruction.type.kind, step, at, scene)
    return bytes(content)


def _word(kind: str, size: int, offset: int, scene: int) -> bytes:
    if size == 8:
        return scene.to_bytes(8, "little")
    return struct.pack("<f", 0.5) if kind == "f" else (offset // 4 % 16 + 1).to_bytes(size, "little")


def run(module: Module, task: Task) -> bytes:
    """Launch an entry: its instructions, the digest of all memory afterwards, bytes that were changed."""
    signal.setitimer(signal.ITIMER_PROF, LONGEST)  # a kernel that does not end ends its process
    options: dict[str, Any] = {"check": "memory", "threads": 1, "numerics": "nvidia"}
    device = CpuDevice(**options) if task.device == "cpu" else AmdDevice(task.device, **options)
    code = device.load(module)
    kernel = code.kernel(task.kernel)
    count = kernel_unit(module, task.kernel, (32, 1, 1), "off").instructions
    empty = count > SMALL
    places: list[tuple[int, bytes]] = []

    def made(size: int) -> int:
        content = drawn(task.kernel, len(places), size, empty=empty)
        place = device.allocate(size)
        device.write(place, content)
        places.append((place, content))
        return place

    numbers = iter(INTEGERS)
    parameters = bytearray(kernel.parameter_bytes)
    for slot in kernel.parameters:
        if slot.size > 8:
            value = filled(module, task.kernel, slot.name, slot.size, 0)
        else:
            number = made(BUFFER) if slot.size == 8 else next(numbers)
            value = number.to_bytes(slot.size, "little")
        parameters[slot.offset : slot.offset + slot.size] = value
    place, size = code.global_variable(CONSTANTS)
    device.write(place, filled(module, task.kernel, CONSTANTS, size, made(SCENE)))
    threads = module.function(task.kernel).directives.get("maxntid", (256,))[0]
    device.launch(kernel, (1, 1, 1), (threads, 1, 1), bytes(parameters), shared_bytes=SHARED)
    digest = changed = 0
    for place, before in places:
        after = device.read(place, len(before))
        digest = zlib.crc32(after, digest)
        changed += int(np.count_nonzero(np.frombuffer(after, np.uint8) != np.frombuffer(before, np.uint8)))
    return json.dumps([count, digest, changed]).encode()


def outcomes(module: Module, names: list[str], device: str, jobs: int) -> Iterator[Outcome]:
    """Each entry on the CPU and on ``device``, in processes of their own."""
    targets = ("cpu", device)
    tasks = [Task(name, target) for name in names for target in targets]
    found: dict[Task, Answer] = {}
    for task, answer in each_apart(tasks, lambda task: run(module, task), jobs=jobs):
        found[task] = answer
        both = [found.get(Task(task.kernel, target)) for target in targets]
        if both[0] is not None and both[1] is not None:
            yield compared(task.kernel, both[0], both[1])


def compared(kernel: str, one: Answer, other: Answer) -> Outcome:
    """What became of an entry."""
    reasons = tuple("" if a.failure is None else a.failure.reason for a in (one, other))
    if any(reasons):
        return Outcome(kernel, 0, False, 0, reasons)
    (count, here, changed), (_, there, _) = (json.loads(answer.value) for answer in (one, other))
    return Outcome(kernel, count, here == there, changed, reasons)


def chosen(module: Module, named: list[str], largest: int) -> list[str]:
    if named:
        return [name if name.startswith(PREFIX) else PREFIX + name for name in named]
    sizes = {name: kernel_unit(module, name, (32, 1, 1), "off").instructions for name in module.kernel_names}
    return sorted((n for n in sizes if sizes[n] <= largest), key=lambda n: sizes[n])


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--ptx", type=Path, help="instead of what blender_ptx.py fetches")
    arguments.add_argument("--kernel", action="append", default=[], metavar="NAME")
    arguments.add_argument("--largest", type=int, default=LARGEST, metavar="INSTRUCTIONS")
    arguments.add_argument("--device", default="gfx1030")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    path = given.ptx
    if path is None:
        from blender_ptx import blender_ptx

        path = blender_ptx()
    module = parse_module(path.read_bytes(), file=path.name)
    results = []
    for one in outcomes(module, chosen(module, given.kernel, given.largest), given.device, given.jobs):
        results.append(one)
        said = "; ".join(filter(None, one.reasons)) or ("agrees" if one.agrees else "DIFFERS")
        print(
            f"{one.kernel.removeprefix(PREFIX)}: {one.instructions} instructions, {one.changed} bytes: {said}"
        )
    ran = [one for one in results if not any(one.reasons) and one.changed]
    print(f"{len(ran)} of {len(results)} executed and wrote, {sum(one.agrees for one in ran)} of them agree")
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in results], indent=1))
    return 0 if all(one.agrees for one in ran) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as error:
        sys.exit(str(error))
