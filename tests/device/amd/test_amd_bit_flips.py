"""One wrong bit of machine code does not pass: it is refused, faults, hangs, or changes the result."""

from __future__ import annotations

import random

import amd_opencl_cases as cases
import numpy as np
import pytest
import zstandard
from test_amd_kernels import DATA

from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.disassembler import Disassembler, Line
from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.errors import Error

FLIPS = 60
# Bits that say nothing about results: hints, waits, cache policy, what scheduling needs.
_NO_RESULT = ("s_waitcnt", "s_nop", "s_clause", "s_delay_alu", "s_inst_prefetch", "buffer_gl", "s_barrier")


def _outcome(data: bytes, target: str, name: str) -> bytes | str:
    """The output buffer's bytes, or the error's name."""
    device = EmulatedDevice(target, check="memory", timeout_s=2, threads=1)
    try:
        _, case = cases.CASES[name]
        arguments, _ = case(np.random.default_rng(1), device.target.wave_size)
        buffers = {}
        for i, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                buffers[i] = (device.allocate(argument.nbytes), argument.nbytes)
                device.write(buffers[i][0], argument.tobytes())
        packed = cases.pack(
            [np.uint64(buffers[i][0]) if i in buffers else a for i, a in enumerate(arguments)]
        )
        kernel = device.load_code_object(data).kernel(name)
        device.launch(kernel, (cases.BLOCKS, 1, 1), (cases.BLOCK, 1, 1), packed)
        return b"".join(device.read(address, size) for address, size in buffers.values())
    except Error as error:
        return type(error).__name__
    finally:
        device.close()


def _lines(data: bytes, name: str) -> list[Line]:
    code = CodeObject(data)
    kernel, size = code.kernel(name), code.symbols[name].size
    lines = Disassembler(code.target).lines(code.image, kernel.address, kernel.address + size)
    return [line for line in lines if not line.text.startswith(_NO_RESULT)]


def _flipped(data: bytes, line: Line, bit: int) -> bytes:
    """The code object with one bit of an instruction turned over; code lies a page behind its file offset."""
    code = CodeObject(data)
    offset = next(
        s[2] + line.offset - s[3] for s in code._segments if s[0] == 1 and s[3] <= line.offset < s[3] + s[5]
    )
    changed = bytearray(data)
    changed[offset + bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "name"), [("gfx1030", "k_int"), ("gfx90a", "k_reduce")])
def test_one_bit_flipped_is_noticed(target: str, name: str) -> None:
    data = zstandard.decompress((DATA / f"general.{target}.co.zst").read_bytes())
    right = _outcome(data, target, name)
    assert isinstance(right, bytes)
    choose, lines, same = random.Random(5), _lines(data, name), []
    for _ in range(FLIPS // 2):
        line = choose.choice(lines)
        bit = choose.randrange(8 * line.size)
        if _outcome(_flipped(data, line, bit), target, name) == right:
            same.append((line.text, bit))
    # What is left are bits that the manual calls unused, or that this input does not tell apart.
    assert len(same) <= FLIPS // 2 // 3, same
