"""The index of machine code in compilers' caches."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest import mock

from zluda.trace.cubin_index import CubinIndex

SECOND = 1_000_000_000


class Clock:
    """A time that the test sets."""

    start = 2_000_000_000 * SECOND

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> int:
        return self.start + int(self.seconds * SECOND)


def put(root: Path, name: str, content: bytes, clock: Clock) -> Path:
    """A kernel's directory, made at the clock's time."""
    path = root / name / "kernel.cubin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    for place in (path.parent, root):
        os.utime(place, ns=(clock(), clock()))
    return path


def test_a_file_is_found_by_its_bytes_in_whichever_cache(tmp_path: Path) -> None:
    clock = Clock()
    index = CubinIndex([tmp_path / "none", tmp_path / "a", tmp_path / "b"], now_ns=clock)
    assert list(index.find(b"first")) == []
    first = put(tmp_path / "a", "x", b"first", clock)
    put(tmp_path / "a", "y", b"other", clock)
    deep = put(tmp_path / "b" / "triton" / "0", "z", b"first", clock)
    assert set(index.find(b"first")) == {first, deep}
    assert list(index.find(b"third")) == []


def test_settled_directories_are_not_listed_again_for_modules_that_are_in_none(tmp_path: Path) -> None:
    clock = Clock()
    for number in range(50):
        put(tmp_path, f"{number}", b"%d" % number, clock)
    index = CubinIndex([tmp_path], now_ns=clock)
    clock.seconds = 60
    assert list(index.find(b"absent")) == []
    with (
        mock.patch("os.scandir", side_effect=AssertionError("listed")),
        mock.patch("os.stat", side_effect=os.stat) as asked,
    ):
        assert list(index.find(b"absent")) == []
        assert next(index.find(b"17")) == tmp_path / "17" / "kernel.cubin"
    assert asked.call_count == 1  # the root: what is known needs no look


def test_what_comes_later_is_found(tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, "old", b"old", clock)
    index = CubinIndex([tmp_path], now_ns=clock)
    assert list(index.find(b"new")) == []
    (tmp_path / "empty").mkdir()  # its file comes a moment after it
    os.utime(tmp_path, ns=(clock() + 1, clock() + 1))
    os.utime(tmp_path / "empty", ns=(clock(), clock()))
    assert list(index.find(b"new")) == []
    (tmp_path / "empty" / "kernel.cubin").write_bytes(b"new")
    os.utime(tmp_path / "empty", ns=(clock(), clock()))  # within the same tick of the file system
    clock.seconds = 1
    assert list(index.find(b"new")) == [tmp_path / "empty" / "kernel.cubin"]


def test_an_old_directory_that_changes_is_found_within_seconds(tmp_path: Path) -> None:
    clock = Clock()
    path = put(tmp_path, "k", b"one", clock)
    index = CubinIndex([tmp_path], now_ns=clock)
    clock.seconds = 60
    assert list(index.find(b"one")) == [path]
    assert list(index.find(b"two")) == []
    path.unlink()
    put(tmp_path, "k", b"two", clock)
    clock.seconds = 71
    assert list(index.find(b"two")) == [path]
    assert list(index.find(b"one")) == []


def test_a_cache_that_is_cleared_is_empty(tmp_path: Path) -> None:
    clock = Clock()
    root = tmp_path / "cache"
    path = put(root, "k", b"one", clock)
    index = CubinIndex([root], now_ns=clock)
    assert list(index.find(b"one")) == [path]
    shutil.rmtree(root)
    assert list(index.find(b"two")) == []
    path = put(root, "k", b"two", clock)
    assert list(index.find(b"two")) == [path]
