"""Operations on single words of memory that a stream carries out: values written, values waited for, batches
of both.

A replay plays calls in the order in which they were made. So a value that is waited for is there already, or
the program
makes it later (another stream's kernel, the host), and the wait cannot be played: what comes after it on its
stream is a gap.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from zluda.replay.handlers.memory import pieces, wrote
from zluda.replay.handlers.table import Phase, gap, handles
from zluda.replay.playback import Playback
from zluda.tracefile import Call

# cuda.h, CUstreamBatchMemOpType and CUstreamBatchMemOpParams
_WAIT_32, _WRITE_32, _FLUSH, _WAIT_64, _WRITE_64, _BARRIER = range(1, 7)
_OPERATION = struct.Struct("<I4xQQI20x")  # operation, address, value, flags

_COMPARED = 3  # of CUstreamWaitValue_flags: the rest says what else is to be visible


class _Operation(NamedTuple):
    kind: int
    address: int
    value: int
    flags: int


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# CUstreamWaitValue_flags: (what is there, what is waited for, bits)
_HOLDS: tuple[Callable[[int, int, int], bool], ...] = (
    lambda there, value, bits: _signed((there - value) % (1 << bits), bits) >= 0,  # GEQ, cyclic
    lambda there, value, bits: there == value,  # EQ
    lambda there, value, bits: bool(there & value),  # AND
    lambda there, value, bits: bool(~(there | value) % (1 << bits)),  # NOR
)


def _write(state: Playback, call: Call, address: int, value: int, size: int) -> None:
    stream, words = state.stream(call, "stream"), value.to_bytes(8, "little")
    for one, offset, length in pieces(state, address, size):
        for at in range(0, length, 4):
            word = int.from_bytes(words[at : at + 4], "little")
            state.driver.cuMemsetD32Async(one.base + offset + at, word, 1, stream)
        wrote(state, call, one, offset, length)


def _wait(state: Playback, call: Call, address: int, value: int, flags: int, size: int) -> None:
    data = b"".join(
        state.driver.cuMemcpyDtoH(one.base + offset, length)
        for one, offset, length in pieces(state, address, size)
    )
    mask = (1 << 8 * size) - 1
    if not _HOLDS[flags & _COMPARED](int.from_bytes(data, "little"), value & mask, 8 * size):
        later = "that comes later, and a replay keeps to the order"
        raise gap(f"{call.function} waits for a value at {address:#x} {later}")


@handles("cuStreamWriteValue32", "cuStreamWriteValue64", phase=Phase.WRITE)
def write_value(state: Playback, call: Call) -> None:
    size = 8 if "64" in call.function else 4
    value = call.arguments["value"] & ((1 << 8 * size) - 1)
    _write(state, call, call.arguments["addr"], value, size)


@handles("cuStreamWaitValue32", "cuStreamWaitValue64", phase=Phase.SYNC, spoils=("stream", "stream"))
def wait_value(state: Playback, call: Call) -> None:
    size = 8 if "64" in call.function else 4
    _wait(state, call, call.arguments["addr"], call.arguments["value"], call.arguments["flags"], size)


@handles("cuStreamBatchMemOp", phase=Phase.WRITE, spoils=("stream", "stream"))
def batch(state: Playback, call: Call) -> None:
    """All that are known, in their order; barriers and flushes say when others see it, and here all see it
    at once.
    """
    data = state.record.trace.payload(call.sequence, "paramArray") or b""
    if len(data) < call.arguments["count"] * _OPERATION.size:
        raise gap(f"{call.function}: its operations were not captured")
    operations = [_Operation(*one) for one in _OPERATION.iter_unpack(data[: len(data) // 48 * 48])]
    for one in operations[: call.arguments["count"]]:
        if one.kind in (_WRITE_32, _WRITE_64):
            size = 8 if one.kind == _WRITE_64 else 4
            _write(state, call, one.address, one.value & ((1 << 8 * size) - 1), size)
        elif one.kind in (_WAIT_32, _WAIT_64):
            _wait(state, call, one.address, one.value, one.flags, 8 if one.kind == _WAIT_64 else 4)
        elif one.kind not in (_FLUSH, _BARRIER):
            raise gap(f"{call.function}: operation {one.kind} is not known")
