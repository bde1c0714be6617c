"""Whatever a kernel wrote there and here: `identical` exactly where memory is."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels import LAYOUT, MODULE, parameters
from python_device import PythonDevice, PythonSession
from trace_builder import TraceBuilder

import zluda
from zluda.device.base import Dim3
from zluda.diff.results import Verdict

SIZE = 3 * 65536 + 100  # pages, and a rest
CONTENTS = bytes(range(256)) * (SIZE // 256 + 1)
EDGES = st.sampled_from([0, 1, 65535, 65536, 131072, SIZE - 9]) | st.integers(0, SIZE - 9)
WRITES = st.dictionaries(EDGES, st.binary(min_size=1, max_size=9), max_size=4)


def after(writes: Mapping[int, bytes]) -> bytes:
    memory = bytearray(CONTENTS[:SIZE])
    for offset, data in writes.items():
        memory[offset : offset + len(data)] = data
    return bytes(memory)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recorded=WRITES, replayed=WRITES, share=st.booleans())
def test_identical_exactly_where_memory_is(
    monkeypatch: pytest.MonkeyPatch, recorded: dict[int, bytes], replayed: dict[int, bytes], share: bool
) -> None:
    if share:
        replayed = {**recorded, **dict(list(replayed.items())[:1])}

    def kernel(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        (base,) = struct.unpack_from("<Q", packed)
        for offset, data in replayed.items():
            device.write(base + offset, data)

    def session(device: str, plan: object, **options: object) -> PythonSession:
        return PythonSession({"add": kernel})

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.bin"
        with TraceBuilder(path) as record:
            record.start()
            function = record.function(record.module(MODULE), "add", LAYOUT)
            x = record.allocate(SIZE)
            record.copy_in(x, CONTENTS[:SIZE])
            writes = {x + offset: data for offset, data in recorded.items()}
            record.launch(function, parameters(x, 0, 0), writes)
            record.copy_out(x, SIZE)
        monkeypatch.setattr("zluda.replay.session.Session", session)
        launch, copy = zluda.replay(path, device="cpu").results
    left, right = after(recorded), after(replayed)
    if left == right == CONTENTS[:SIZE] and not recorded:
        assert launch.verdict is Verdict.NOT_COMPARED
    else:
        assert (launch.verdict is Verdict.IDENTICAL) == (left == right)
    assert (copy.verdict is Verdict.IDENTICAL) == (left == right)
    if left != right:
        first = next(offset for offset in range(SIZE) if left[offset] != right[offset])
        assert launch.verdict is Verdict.DIFFERS
        assert launch.first_difference is not None
        assert launch.first_difference[1].index == first // 4
        assert copy.verdict is Verdict.INHERITED
