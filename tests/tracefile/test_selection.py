"""The selection grammar: numbers, ranges, steps, kernels by regex, files."""

from __future__ import annotations

from pathlib import Path

import pytest

import zluda
from zluda.tracefile import Selection


def chosen(text: str | list[str]) -> list[int]:
    selection = Selection.parse(text)
    return [call for call in range(200) if selection.contains(call)]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("17", [17]),
        ("3-5", [3, 4, 5]),
        ("0-10/5", [0, 5, 10]),
        ("1-8/3", [1, 4, 7]),
        ("1,4-5", [1, 4, 5]),
        (["2", "9"], [2, 9]),
    ],
)
def test_calls(text: str | list[str], calls: list[int]) -> None:
    assert chosen(text) == calls


def test_nothing_given_selects_everything() -> None:
    assert not Selection.parse([])
    assert Selection.parse([]).contains(5, "k")


def test_an_empty_selection_does_not_select_everything(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing yet\n")
    for text in ("", " , ", f"@{empty}"):
        with pytest.raises(zluda.Error, match="nothing in it; expected 17"):
            Selection.parse(text)


def test_kernels_match_anywhere_unless_anchored() -> None:
    assert Selection.parse("kernel:add").contains(0, "vector_add_f32")
    assert not Selection.parse("kernel:^add").contains(0, "vector_add_f32")
    assert not Selection.parse("kernel:add").contains(0)


def test_a_regex_may_hold_commas() -> None:
    selection = Selection.parse("7,kernel:^a{1,2}$")
    assert selection.contains(7, "zzz")
    assert selection.contains(9, "aa")
    assert not selection.contains(9, "aaa")


def test_files_hold_a_selection_a_line(tmp_path: Path) -> None:
    (tmp_path / "some").write_text("# chosen by hand\n3\n\n5-6,8\nkernel:x\n")
    assert chosen(f"@{tmp_path / 'some'}") == [3, 5, 6, 8]
    assert Selection.parse(f"@{tmp_path / 'some'}").contains(99, "axb")


def test_a_files_name_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "kernel:a, b").write_text("4")
    assert chosen(f"9, @{tmp_path / 'kernel:a, b'}") == [4, 9]


def test_bounds() -> None:
    assert Selection.parse("5-9,30").bounds == (5, 31)
    assert Selection.parse("5,kernel:x").bounds == (0, None)
    assert Selection.parse([]).bounds == (0, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", r"'x': expected 17, 0-100, 0-100/2, kernel:regex or @file"),
        ("5-3", "not empty"),
        ("0-9/0", "at least 1"),
        ("-1", "expected 17"),
        ("kernel:(", "not a regular expression"),
        ("@/nonexistent/file", "No such file"),
    ],
)
def test_what_is_no_selection_is_named(text: str, message: str) -> None:
    with pytest.raises(zluda.Error, match=message):
        Selection.parse(text)


def test_a_file_that_includes_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").write_text(f"@{tmp_path / 'loop'}\n")
    with pytest.raises(zluda.Error, match="includes itself"):
        Selection.parse(f"@{tmp_path / 'loop'}")
