"""Replays that differ: what buffers hold, part by part, and what is told of classes, bounds and metrics."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import numpy as np
import pytest
from kernels import LAYOUT, MODULE, add, added, parameters
from python_device import PythonDevice, PythonKernel
from replay_case import Case

from zluda.device.base import Dim3
from zluda.diff.kernel_class import KernelClass
from zluda.diff.results import BufferComparison, ReplayResult, Verdict
from zluda.errors import Error
from zluda.report.html import render
from zluda.report.terminal import plain_lines

COUNT = 20000  # floats: more than one page of 64 KiB
SIZE = 4 * COUNT


def ramp(count: int) -> bytes:
    return np.arange(1, count + 1, dtype="<f4").tobytes()


def wrong_at(*places: tuple[int, int]) -> PythonKernel:
    """The right kernel, which then adds one to a byte at each (number of a parameter, offset from it)."""

    def kernel(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        add(device, grid, block, packed)
        for number, offset in places:
            address = struct.unpack("<QQI", packed)[number] + offset
            device.write(address, bytes([device.read(address, 1)[0] + 1 & 0xFF]))

    return kernel


@pytest.fixture
def replayed(case: Case) -> Callable[..., ReplayResult]:
    """Replays one launch of ``add`` over a pool of which the second parameter is a later part."""

    def replay(kernel: PythonKernel, **options: object) -> ReplayResult:
        record = case.record
        function = record.function(record.module(MODULE), "add", LAYOUT)
        pool = record.allocate(2 * SIZE)
        record.copy_in(pool, ramp(2 * COUNT))
        result = added(record.read(pool, SIZE), record.read(pool + SIZE, SIZE))
        record.launch(
            function,
            parameters(pool, pool + SIZE, COUNT),
            {pool: result + record.read(pool + SIZE, SIZE)},
            grid=(-(-COUNT // 128), 1, 1),
            block=(128, 1, 1),
        )
        return case.replay({"add": kernel}, **options)

    return replay


def buffers(result: ReplayResult) -> list[BufferComparison]:
    assert [one.verdict for one in result.results] == [Verdict.DIFFERS]
    return [buffer for buffer in result.results[0].buffers if buffer.differing]


def test_parts_of_an_allocation_are_compared_by_their_own_types(
    replayed: Callable[..., ReplayResult],
) -> None:
    result = replayed(wrong_at((0, 44), (1, 800)), dtype=["add:1=u16"])
    first, second = buffers(result)
    assert (first.label, first.element_type, first.first[0].index) == ("parameter 0", "f32", 11)
    assert (second.label, second.element_type) == ("parameter 1", "u16")
    assert [(one.address - second.base, one.type) for one in second.first] == [(SIZE + 800, "u16")]
    assert sum(buffer.bytes_compared for buffer in result.results[0].buffers) == 2 * SIZE


def test_metrics_count_all_elements_not_those_of_pages_that_differ(
    replayed: Callable[..., ReplayResult],
) -> None:
    (buffer,) = buffers(replayed(wrong_at((0, 4 * 17))))
    (metrics,) = buffer.metrics
    assert (metrics.elements, metrics.differing, metrics.max_ulp) == (2 * COUNT, 1, 1.0)
    values = np.frombuffer(added(ramp(2 * COUNT)[:SIZE], ramp(2 * COUNT)[SIZE:]), "<f4").astype("f8")
    rest = np.frombuffer(ramp(2 * COUNT)[SIZE:], "<f4").astype("f8")
    wrong = np.spacing(np.float32(values[17]))
    assert metrics.nmse == pytest.approx(float(wrong) ** 2 / (np.sum(values**2) + np.sum(rest**2)), rel=1e-6)


@pytest.mark.parametrize("offset", [65532, 65536])
def test_fields_on_both_sides_of_a_page_are_of_one_structure(
    replayed: Callable[..., ReplayResult], offset: int
) -> None:
    """65,536 is 16 bytes into structure 2,730 of 24."""
    (buffer, *_) = buffers(replayed(wrong_at((0, offset)), dtype="add:0={f64, f32, f32, s64}"))
    (element,) = buffer.first
    assert (element.index, element.address - buffer.base) == (2730, offset)
    assert element.type == {65532: "f32", 65536: "s64"}[offset]
    assert [one.differing for one in buffer.metrics].count(1) == 1
    assert {one.elements for one in buffer.metrics} <= {SIZE // 24, SIZE // 24 + 1}


@pytest.mark.parametrize(
    ("dtype", "complaint"),
    [
        ("add:9=f32", "--dtype add:9=f32: add has 3 parameters"),
        ("add:nothing=f32", "--dtype add:nothing=f32: add has 3 parameters"),
        ("softmax:0=f32", "--dtype softmax:0=f32: no kernel that was launched is named so"),
    ],
)
def test_what_is_not_there_to_be_typed_is_named(
    replayed: Callable[..., ReplayResult], dtype: str, complaint: str
) -> None:
    with pytest.raises(Error, match=complaint):
        replayed(wrong_at((0, 0)), dtype=dtype)


def test_every_report_tells_class_bound_types_and_metrics(replayed: Callable[..., ReplayResult]) -> None:
    result = replayed(wrong_at((0, 44)))
    assert {name: found.kind for name, found in result.classes.items()} == {"add": KernelClass.IEEE_EXACT}
    told = "ieee-exact, 0 ULP: every operation is rounded as IEEE 754 says"
    assert any(told in line for line in plain_lines(result))
    page = render([result])
    assert told in page
    assert "39,999 equal bit for bit; by ULP: ≤ 1: 1" in page
    found = json.loads(json.dumps(result.to_json()))
    assert found["kernels"]["add"] == {
        "class": "ieee-exact",
        "causes": ["add.f32"],
        "bound": "0 ULP: every operation is rounded as IEEE 754 says",
        "verdicts": {"differs": 1},
    }
    (difference,) = found["differences"]
    (buffer,) = difference["buffers"]
    assert (difference["class"], buffer["element_type"], buffer["confidence"]) == (
        "ieee-exact",
        "f32",
        "certain",
    )
    (metrics,) = buffer["metrics"]
    assert metrics["histogram"] == [{"upto": 1.0, "elements": 1}]
    assert (metrics["elements"], metrics["equal"]) == (2 * COUNT, 2 * COUNT - 1)
    assert metrics["recorded"] == metrics["replayed"] == {"normal": 2 * COUNT}
    assert found["differences_left_out"] == 0
