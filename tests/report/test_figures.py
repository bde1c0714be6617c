"""Figures of the page: what they draw, and what they say to who does not see them."""

from __future__ import annotations

import struct
from xml.etree import ElementTree

import numpy as np
import pytest
from test_report import copy, differs, launch, replay

from zluda.diff.kinds import element_type
from zluda.diff.metrics import EDGES, metrics_of
from zluda.diff.results import LaunchResult, Verdict
from zluda.diff.values import compare
from zluda.report.commands import of_kernel, of_launch, of_result
from zluda.report.figures import Figure, heat_map, histogram, lanes


def drawn(svg: str, css: str = "") -> list[ElementTree.Element]:
    """The rectangles of a class."""
    return [
        one
        for one in ElementTree.fromstring(svg).iter("rect")
        if not css or css in one.get("class", "").split()
    ]


def label(svg: str) -> str:
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    return root.get("aria-label", "")


def matrix(rows: slice, columns: slice, shape: tuple[int, int] = (16, 64), *, pitch: bool = True) -> Figure:
    left = np.zeros(shape, "<f4")
    right = left.copy()
    right[rows, columns] = 1
    found = heat_map(
        compare(left.tobytes(), right.tobytes(), "f32", rows=(0, 4 * shape[1]) if pitch else None)
    )
    assert found is not None
    return found


def test_a_lane_has_a_mark_for_each_run_of_launches() -> None:
    results = [launch(1), launch(2), differs(3), launch(4, Verdict.UNSUPPORTED), copy(5)]
    found, left_out = lanes(results)
    assert ([one.kernel for one in found], left_out) == (["scale", "cuMemcpyDtoH_v2"], 0)
    scale = found[0]
    assert label(scale.svg) == scale.told == "scale: 1 of 4 fails, the first #3"
    marks = [(one.get("class"), one.get("x"), one.get("width")) for one in drawn(scale.svg)]
    assert marks == [("holds", "0", "2"), ("fails", "2", "1"), ("unclear", "3", "1")]
    heights = {one.get("class"): float(one.get("height", 0)) for one in drawn(scale.svg)}
    assert heights["fails"] > heights["unclear"] > heights["holds"]  # not by colour alone


def test_one_that_fails_among_thousands_is_seen() -> None:
    results = [differs(call) if call == 5000 else launch(call) for call in range(10_000)]
    (lane,), _ = lanes(results)
    (mark,) = drawn(lane.svg, "fails")
    assert (mark.get("x"), mark.get("width")) == ("120", "1")  # of 240
    assert len(lane.svg) < 1000


def test_lanes_of_what_fails_come_first_and_the_rest_is_counted() -> None:
    results = [LaunchResult(n, "launch", f"k{n}", Verdict.IDENTICAL) for n in range(40)]
    results[39] = LaunchResult(39, "launch", "k39", Verdict.CRASH, "why")
    found, left_out = lanes(results)
    assert (found[0].kernel, len(found), left_out) == ("k39", 16, 24)


@pytest.mark.parametrize("pitch", [True, False])
def test_every_cell_of_a_heat_map_is_where_elements_differ(pitch: bool) -> None:
    found = matrix(slice(4, 8), slice(16, 32), pitch=pitch)
    cells = drawn(found.svg, "shade4")
    if pitch:
        assert found.told == "Rows 4–7, columns 16–31 of 64; a square is 2 elements"
        places = {(int(one.get("y", "")), int(one.get("x", ""))) for one in cells}
        assert places == {(row, column) for row in range(4, 8) for column in range(8, 16)}
    else:
        assert found.told == "Elements 272–479; a square is 2 elements"
        assert len(cells) == 4 * 8
    assert ElementTree.fromstring(found.svg).get("viewBox") == f"0 0 32 {16}"


def test_shades_are_named_and_grow_with_the_count() -> None:
    left = np.zeros((64, 512), "<f4")
    right = left.copy()
    right[0, :16] = 1  # a square of 16 columns and 2 rows
    right[2:4, 16:32] = 1
    right[32, 500] = 1
    found = heat_map(compare(left.tobytes(), right.tobytes(), "f32", rows=(0, 2048)))
    assert found is not None
    assert [name for name, _ in found.legend] == [f"shade{n}" for n in range(1, 5)]
    assert found.legend[0][1].startswith("1") and found.legend[-1][1].endswith("–32")
    assert {one.get("class", "").split()[-1] for one in drawn(found.svg, "fails")} == {"shade1", "shade4"}


def test_a_small_fault_in_a_large_buffer_is_drawn_large() -> None:
    size = 1 << 20
    right = bytearray(size)
    right[size // 2 : size // 2 + 64] = b"\1" * 64
    found = heat_map(compare(bytes(size), bytes(right), "u32"))
    assert found is not None and len(drawn(found.svg, "fails")) == 1
    whole = compare(bytes(4096), bytes(right[size // 2 : size // 2 + 4096]), "u32", offset=1 << 30)
    assert "Elements 268,435,456–268,435,471" in getattr(heat_map(whole), "told", "")


def test_nothing_that_differs_is_no_figure() -> None:
    same = compare(bytes(8), bytes(8), "f32")
    assert heat_map(same) is None
    bits = np.zeros(4, "<u4")
    assert histogram(metrics_of(bits, bits, element_type("f32"))) is None


def test_a_histogram_has_a_bar_a_step() -> None:
    kind = element_type("f32")
    left = np.full(7, struct.unpack("<I", struct.pack("<f", 1.5))[0], "<u4")
    right = left + np.array([1, 1, 1, 1, 2, 2, 8], "<u4")
    metrics = metrics_of(left, right, kind)
    found = histogram(metrics)
    assert found is not None
    assert label(found.svg) == "Differing elements by ULP: ≤ 1: 4, ≤ 2: 2, ≤ 8: 1"
    bars = drawn(found.svg, "fails")
    assert [one[0].text for one in bars] == ["1 ULP: 4", "2 ULP: 2", "4 ULP: 0", "8 ULP: 1"]
    heights = [float(one.get("height", "")) for one in bars]
    assert heights[0] > heights[1] > heights[3] > heights[2] == 0


def test_a_histogram_of_all_steps_fits_a_phone() -> None:
    metrics = metrics_of(np.zeros(1, "<u4"), np.ones(1, "<u4"), element_type("u32"))
    full = type(metrics)("u32", 0, 35, 35, tuple(range(1, len(EDGES) + 1)))
    found = histogram(full)
    assert found is not None
    assert float(ElementTree.fromstring(found.svg).get("viewBox", "").split()[2]) < 370


def test_commands_are_quoted_as_a_shell_takes_them() -> None:
    result = replay(differs(7), trace="my runs/it's.bin", numerics="native", contract="off", mode="isolated")
    assert of_result(result) == (
        "zluda replay 'my runs/it'\"'\"'s.bin' --device cpu --numerics native --contract off --mode isolated"
    )
    hostile = LaunchResult(3, "launch", "k,$(rm -rf ~)", Verdict.DIFFERS)
    ((_, command),) = of_kernel(result, hostile.kernel)
    assert command.endswith(r"--select 'kernel:^k\x2c\$\(rm\ \-rf\ \~\)$'")
    assert [text.split()[1] for _, text in of_launch(replay(), differs(7))] == ["replay", "replay", "extract"]
    assert of_launch(replay(), copy(9))[0][1] == "zluda dump corpus/scale/trace.bin --select 9"


def test_commands_of_two_traces_replay_nothing() -> None:
    result = replay(differs(7), trace="a.bin", device="gfx1030 (b c.bin)", other="b c.bin")
    assert of_result(result) == "zluda diff a.bin 'b c.bin'"
    assert of_kernel(result, "scale") == []
    texts = [text for _, text in of_launch(result, differs(7))]
    assert texts == ["zluda dump a.bin --select 7", "zluda dump 'b c.bin' --select 7"]
