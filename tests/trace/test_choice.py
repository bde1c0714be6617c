"""What can be said of which launches are recorded: grammar, packing, and the library that NVTX is given."""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zluda.errors import Error
from zluda.trace import nvtx_stub, spec
from zluda.trace.choice import (
    CHOICE_BYTES,
    MARK_CLOSES,
    MARK_OPENS,
    MAX_RANGES,
    Choice,
    Marker,
    javascript_pattern,
    parse_launches,
    parse_size,
)
from zluda.trace.session import Options

FOREVER = (1 << 64) - 1
NUMBERS = st.integers(0, 10**12)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS | st.none(), st.integers(1, 1000)), min_size=1, max_size=MAX_RANGES)
)
def test_every_list_of_launches_is_read_as_it_is_written(wanted: list[tuple[int, int | None, int]]) -> None:
    texts, ranges = [], []
    for first, more, step in wanted:
        last = FOREVER if more is None else first + more
        texts.append(f"{first}-{'' if more is None else last}" + (f"/{step}" if step > 1 else ""))
        ranges.append((first, last, step))
    assert parse_launches(", ".join(texts)) == tuple(ranges)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("7", [(7, 7, 1)]),
        ("100-", [(100, FOREVER, 1)]),
        ("0-99/10,3", [(0, 99, 10), (3, 3, 1)]),
        ("5-/2", [(5, FOREVER, 2)]),
    ],
)
def test_forms_of_launch_numbers(text: str, ranges: list[tuple[int, int, int]]) -> None:
    assert parse_launches(text) == tuple(ranges)


@pytest.mark.parametrize(
    "text", ["", "x", "5-3", "1-2/0", "-3", "1,,2", "7/2", "0x10", "1" * 30, ",".join("1" * 65)]
)
def test_what_is_no_launch_number_is_named(text: str) -> None:
    with pytest.raises(Error, match=re.escape(f"launches {text!r}")):
        parse_launches(text)


@given(st.text())
def test_any_text_is_launches_or_an_error(text: str) -> None:
    try:
        ranges = parse_launches(text)
    except Error:
        return
    assert all(first <= last and step > 0 for first, last, step in ranges)


@given(
    st.sampled_from(["cuLaunchKernel", "cuProfilerStart", "nvtx"]),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="#\0"), min_size=1, max_size=50),
    st.integers(0, 10**6),
)
def test_a_marker_is_read_as_it_is_printed(kind: str, name: str, occurrence: int) -> None:
    marker = Marker("nvtx", name, occurrence) if kind == "nvtx" else Marker("call", kind, occurrence)
    assert Marker.parse(str(marker)) == marker


@pytest.mark.parametrize("text", ["", "nvtx:", "malloc", "cuInit#0", "cuInit#x", "cu", "nvtx:" + "a" * 248])
def test_what_is_no_marker_is_named(text: str) -> None:
    with pytest.raises(Error, match="marker"):
        Marker.parse(text)


def test_a_marker_that_opens_has_an_end() -> None:
    assert str(Choice.parse(start_on="cuProfilerStart#2").closes) == "cuProfilerStop#2"
    assert str(Choice.parse(start_on="nvtx:a b#3").closes) == "nvtx:a b#3"
    assert not Choice.parse(start_on="cuInit").closes.kind
    assert str(Choice.parse(start_on="cuInit", stop_on="cuCtxSynchronize").closes) == "cuCtxSynchronize"


def test_a_marker_means_every_form_of_a_function() -> None:
    choice = Choice.parse(start_on="cuMemcpyHtoD", stop_on="cuMemAlloc_v2")
    marks = {row["name"]: choice.marks(row) for row in spec.functions()}
    opening = {name for name, mark in marks.items() if mark & MARK_OPENS}
    assert {"cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"} <= opening
    assert {name for name, mark in marks.items() if mark & MARK_CLOSES} == {"cuMemAlloc_v2"}
    packed = spec.pack(spec.functions(), choice)
    index = [row["name"] for row in spec.functions()].index("cuMemAlloc_v2")
    assert packed[index * spec.FUNCTION_BYTES + 7] == MARK_CLOSES


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        ("500 MB", 5 * 10**8),
        ("1.5GiB", 3 << 29),
        ("10k", 10**4),
        ("4096", 4096),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "0", "2XB", "1e9", "2GB!", "9" * 30])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(Error, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("pattern", "ours"),
    [
        ("gemm", ("gemm", "")),
        (r"(?i)\Agemm_(?P<n>\d+)\Z", (r"(?<![\s\S])gemm_(?<n>\d+)(?![\s\S])", "i")),
        (r"a\\Ab", (r"a\\Ab", "")),
        ("(?<!x)y", ("(?<!x)y", "")),
        ("(?s)(?m)(?i)e", ("e", "ims")),
        ("a{,3}[]b][^]b][a(?>b++]", (r"a{0,3}[\]b][^\]b][a(?>b++]", "")),
        (r"\++\(?b", (r"\++\(?b", "")),
    ],
)
def test_a_pattern_as_javascript_has_it(pattern: str, ours: tuple[str, str]) -> None:
    assert javascript_pattern(pattern) == ours


PYTHONS = ["a++", "a{2}+", "(?>a)", "(?i:a)", r"\a", r"[\a]", r"\N{DIGIT ONE}", "[[:alpha:]]"]


@pytest.mark.parametrize("pattern", ["(", "(?x)a", "(?P<a>b)(?P=a)", "a(?#b)", "(a)?(?(1)b|c)", *PYTHONS])
def test_patterns_that_cannot_be_used_are_named(pattern: str) -> None:
    with pytest.raises(Error, match="kernel"):
        Choice.parse(kernel=pattern)


def test_a_choice_is_packed_as_the_agent_reads_it() -> None:
    choice = Choice.parse(kernel="a", launches="1-5,9", sample=3, start_on="nvtx:step#2", budget="1MB")
    packed = choice.pack()
    assert len(packed) == CHOICE_BYTES
    assert struct.unpack_from("<6I", packed) == (1, 0, 3, 1, 2, 0)
    assert packed[24:32] + packed[32:37] == struct.pack("<II", 2, 2) + b"step\0"
    assert struct.unpack_from("<6Q", packed, 24 + 2 * 256) == (1, 5, 1, 9, 9, 1)
    assert (choice.budget, choice.given["launches"], choice.needs_nvtx) == (10**6, "1-5,9", True)
    assert not Choice.parse(budget="1MB").selective and not Choice().selective
    assert struct.unpack_from("<6I", Choice().pack()) == (0, 1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("capture", "given", "said"),
    [
        ("calls", {"sample": 3}, "--capture calls"),
        ("outputs", {"start_on": "cuNoSuchCall"}, "no such function"),
    ],
)
def test_options_that_mean_nothing_are_refused(capture: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Error, match=said):
        Options(capture, 1 << 20, 1.0, choice=Choice.parse(**given))


def test_functions_that_only_ask_are_left_alone_where_launches_are_chosen() -> None:
    rows = {row["name"]: row for row in spec.functions()}
    choice = Choice.parse(sample=3, stop_on="cuCtxGetDevice")
    assert choice.skips(rows["cuCtxGetCurrent"]) and not choice.skips(rows["cuCtxGetDevice"])
    assert not any(
        choice.skips(rows[name]) for name in ("cuLaunchKernel", "cuMemAlloc_v2", "cuGetProcAddress_v2")
    )
    assert not any(Choice().skips(row) or Choice.parse(budget="1MB").skips(row) for row in rows.values())


def test_a_sample_is_of_one_launch_at_least() -> None:
    with pytest.raises(Error, match="sample 0"):
        Choice.parse(sample=0)


def test_the_library_of_nvtx_jumps_where_its_variable_says(tmp_path: Path) -> None:
    path = tmp_path / nvtx_stub.FILE_NAME
    path.write_bytes(nvtx_stub.stub())
    library = ctypes.CDLL(str(path))
    assert library.InitializeInjectionNvtx2(None) == 0
    called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda table: 1 if table == 0x1234 else 2)
    ctypes.c_uint64.in_dll(library, "zluda_nvtx").value = ctypes.cast(called, ctypes.c_void_p).value or 0
    assert library.InitializeInjectionNvtx2(ctypes.c_void_p(0x1234)) == 1


def test_a_tool_of_the_users_keeps_nvtx() -> None:
    with nvtx_stub.placed({nvtx_stub.VARIABLE: "/opt/tool.so"}) as path:
        assert path is None
    with nvtx_stub.placed({}) as path:
        assert path is not None and path.read_bytes() == nvtx_stub.stub()
    assert not path.exists()
