"""One wrong bit of machine code does not pass: it is refused, faults, hangs, or changes the result."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import amd_opencl_cases as cases
import numpy as np
import pytest
import zstandard
from test_amd_kernels import DATA

import zluda
from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.disassembler import Disassembler, Line
from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.diff.results import Verdict
from zluda.errors import Error
from zluda.tracefile import open_trace

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
    """The code object with one bit of an instruction turned over."""
    changed = bytearray(data)
    changed[CodeObject(data).file_offset(line.offset) + bit // 8] ^= 1 << bit % 8
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


# --- the corpus: a flip in a replay -------------------------------------------------------------------

CORPUS = Path(__file__).parents[3] / "corpus"
# Each replay of these is seconds, and making sampling ready half a minute; what their machine code has beside
# the other programs', test_amd_instructions.py holds.
LONG = {"async_copy", "half_precision", "tensor_cores", "textures"}
FLIPPER = Path(__file__).parent / "flips"
TIME_LIMIT = 30.0  # seconds, for compiling as well, on a busy machine
_TARGETS = ("gfx1030", "gfx90a", "gfx1100")
_EACH, _PARTS = 3, 5  # flips of one kernel on one target, which share the replay that they are held against
_NOTICED = (Verdict.DIFFERS, Verdict.CRASH, Verdict.HANG, Verdict.UNSUPPORTED)


def _corpus_flips() -> Iterator[tuple[str, Path, str, list[int]]]:
    """(target, trace, kernel, numbers of the bits), seeded, kernels of the corpus in turn."""
    choose = random.Random(60)
    kernels = []
    for path in sorted(CORPUS.glob("*/trace.bin")):
        if path.parent.name in LONG:
            continue
        with open_trace(
            path
        ) as trace:  # a kernel that changes no memory shows nothing, nor does one not chosen
            kernels += sorted(
                {
                    (path, launch.kernel)
                    for launch in trace.iter_launches()
                    if launch.left_out is None and trace.pages(launch.call)
                }
            )
    for n in range(FLIPS // _EACH):
        path, kernel = kernels[n % len(kernels)]
        yield _TARGETS[n % len(_TARGETS)], path, kernel, [choose.randrange(1 << 30) for _ in range(_EACH)]


def _memory(path: Path, calls: set[int]) -> dict[tuple[int, int, int], bytes]:
    """(call, allocation, offset) → bytes that a launch changed, by the trace's own word."""
    with open_trace(path) as trace:
        return {
            (call, page.allocation, page.offset): trace.page_data(page)
            for call in sorted(calls)
            for page in trace.pages(call)
        }


def _launches_of(path: Path, kernel: str) -> set[int]:
    with open_trace(path) as trace:
        return {launch.call for launch in trace.iter_launches() if launch.kernel == kernel}


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_flipped_bit_of_the_corpus_goes_unnoticed(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``identical`` only where the memory that the replay writes down is the same, byte for byte."""
    monkeypatch.setenv("PYTHONPATH", str(FLIPPER))
    found: Counter[str] = Counter()
    for target, path, kernel, numbers in list(_corpus_flips())[part::_PARTS]:
        options = {
            "device": target,
            "select": f"kernel:^{kernel}$",
            "time_limit": TIME_LIMIT,
            "numerics": "nvidia",
        }
        right = tmp_path / f"{target}.{kernel}"
        monkeypatch.delenv("FLIPPED_BIT", raising=False)
        assert zluda.replay(path, output=right, **options).verdict is Verdict.IDENTICAL
        calls = _launches_of(path, kernel)
        expected = _memory(right, calls)
        for number in numbers:
            output = tmp_path / f"{kernel}.{number}"
            monkeypatch.setenv("FLIPPED_BIT", f"{kernel},{number}")
            start = time.monotonic()
            result = zluda.replay(path, output=output, **options)
            assert time.monotonic() - start < (TIME_LIMIT + 30) * len(calls)
            case = f"{target} {path.parent.name} {kernel} bit {number}: {result.verdict.value}"
            same = _memory(output, calls) == expected
            assert result.verdict in _NOTICED or (result.verdict is Verdict.IDENTICAL and same), case
            found[result.verdict.value] += 1
            print(case)
    print(dict(found))
    assert sum(found.values()) == FLIPS // _PARTS
    assert found.total() - found["identical"] >= 2, found  # those of one kernel are alike: mostly more
