"""Kernels' names in tables and pages: readable where they are C++'s, whatever they are."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zluda.diff import LaunchResult, ReplayResult, Verdict
from zluda.report.html import render
from zluda.report.names import briefly, readable
from zluda.report.terminal import print_result

MANGLED, READABLE = "_Z5scaleIfEvPT_i", "void scale<float>(float*, int)"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def replay(kernel: str) -> ReplayResult:
    found = LaunchResult(3, "launch", kernel, Verdict.DIFFERS, "why", grid=(1, 1, 1), block=(32, 1, 1))
    return ReplayResult("t.bin", "cpu", False, "nvidia", [found], seconds=0.5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (MANGLED, READABLE),
        ("_ZN2at6native4copyEPfS1_", "at::native::copy(float*, float*)"),
        ("_ZZ4mainENKUlPfE_clES_", "main::'lambda'(float*)::operator()(float*) const"),
        ("saxpy", "saxpy"),
        ("_Zebra", "_Zebra"),
        ("_Z", "_Z"),
        ("", ""),
        ("cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2"),
    ],
)
def test_a_name_is_demangled_or_left(name: str, expected: str) -> None:
    assert readable(name) == expected


def doubling(times: int) -> str:
    """A function of a template of a template …, each of which has two of the one before."""
    name, reference = "_Z1f1aIiiE", 1
    for _ in range(times):
        number = reference - 1
        digits = ""
        while number or not digits:
            number, digit = divmod(number, 36)
            digits = _DIGITS[digit] + digits
        name += f"1bIS{digits}_S{digits}_E"
        reference += 2
    return name


def test_the_doubling_name_doubles() -> None:
    assert len(readable(doubling(3))) > len(readable(doubling(2))) > len(doubling(2))


@pytest.mark.parametrize(
    "name",
    [
        doubling(100),
        "_Z1f" + "P" * 1_000_000 + "i",
        "_Z1f" + "1aI" * 2000 + "i" + "E" * 2000,
        "_Z" + "9" * 100_000 + "a",
        "_Z" + "N" * 8000,
        "_Z1f" + "F" * 4000 + "i" + "E" * 4000,
        "_Z1fI" + "J" * 3000 + "i" + "E" * 3000 + "Ev",
        "_Z1fi\0x",
        "_Z3\udc80\udc81ai",
    ],
    ids=lambda name: name[:12].encode("ascii", "replace").decode(),
)
def test_a_hostile_name_is_left_as_it_is_and_soon(name: str) -> None:
    began = time.process_time()
    assert readable(name) == name
    assert time.process_time() - began < 1


@given(st.lists(st.sampled_from([*"_ZNIJEFPKSTLXDUv0123456789", "S_", "T_", "Dp", "Ul", "1a"])).map("".join))
def test_no_name_fails(rest: str) -> None:
    assert len(readable("_Z" + rest)) <= max(1 << 12, len(rest) + 2)


def test_a_terminal_shows_the_readable_name() -> None:
    out = io.StringIO()
    print_result(replay(MANGLED), out)
    assert READABLE in out.getvalue() and MANGLED not in out.getvalue()


def test_a_page_shows_it_and_has_the_mangled_one_at_hand() -> None:
    page = render([replay(MANGLED)])
    shown = "void scale&lt;float&gt;(float*, int)"
    assert (
        page.count(f'<code title="{MANGLED}">{shown}</code>') == 4
    )  # in both tables, above the kernel and above its launch
    assert "<code>saxpy</code>" in render([replay("saxpy")])


def test_json_keeps_the_name_of_the_module() -> None:
    assert MANGLED in str(replay(MANGLED).to_json()) and READABLE not in str(replay(MANGLED).to_json())


def test_a_table_has_names_without_types_of_parameters() -> None:
    names = [
        MANGLED,
        "_ZN2at6native4copyEPfS1_",
        "_ZZ4mainENKUlPfE_clES_",
        "_Z9warp_scanPKiPiPji",
        "cuMemcpyDtoH_v2",
        "",
    ]
    assert list(briefly(names).values()) == [
        "scale<float>",
        "at::native::copy",
        "main::'lambda'(float*)::operator()",
        "warp_scan",
        "cuMemcpyDtoH_v2",
        "",
    ]


def test_names_that_would_be_one_stay_whole() -> None:
    overloads = ["_Z4copyPf", "_Z4copyPi"]
    assert list(briefly(overloads).values()) == ["copy(float*)", "copy(int*)"]
    long = [f"{'k' * 100}{n}" for n in range(2)]
    assert list(briefly(long).values()) == long
    assert [len(one) for one in briefly(long[:1]).values()] == [48]


@given(st.text(alphabet="ab<>() :,*&'"))
def test_any_name_has_a_brief_one(name: str) -> None:
    (found,) = briefly([name]).values()
    assert bool(found) == bool(name)
