"""The directory of entries: whole or not at all, bounded, nobody else's."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zluda import config
from zluda.compiler.cache import store as stores
from zluda.compiler.cache.store import CONFINED, Store, open_configured
from zluda.errors import Error

LIMIT = 1 << 20


def key(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", LIMIT)


def test_gives_back_what_was_put(store: Store) -> None:
    assert store.get(key(1)) is None
    store.put(key(1), b"code", label="cpu saxpy")
    store.put(key(2), b"")
    assert (store.get(key(1)), store.get(key(2))) == (b"code", b"")
    store.put(key(1), b"new")
    assert store.get(key(1)) == b"new"
    assert Store(store.path, LIMIT).get(key(1)) == b"new"  # another process
    assert store.clear() == (2, sum((stores._HEAD + 3, stores._HEAD)))
    assert store.get(key(1)) is None


def test_is_this_user_s_alone(store: Store) -> None:
    store.put(key(1), b"code")
    assert store.path.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o077 == 0 for file in store.path.iterdir())


@pytest.mark.parametrize("at", [0, 10, 40, 41, 50, -1])
@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_a_damaged_entry_counts_as_missing_and_goes(
    store: Store, at: int, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(key(1), b"code of some length", label="k")
    file = store.path / f"{key(1)}.code"
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data if how == "flipped" else data[:at])
    assert store.get(key(1)) is None
    assert "is damaged" in caplog.text
    assert not file.exists()


def test_an_entry_under_another_s_name_is_damaged(store: Store) -> None:
    store.put(key(1), b"code")
    (store.path / f"{key(1)}.code").rename(store.path / f"{key(2)}.code")
    assert store.get(key(2)) is None


def test_what_was_not_used_for_longest_goes_first(store: Store) -> None:
    piece = bytes(LIMIT // 10)
    for number in range(8):
        store.put(key(number), piece)
        os.utime(store.path / f"{key(number)}.code", (1000 + number, 1000 + number))
    assert store.get(key(0)) == piece  # used now
    for number in range(8, 12):
        store.put(key(number), piece)
    kept = {n for n in range(12) if store.get(key(n)) is not None}
    assert 0 in kept and 1 not in kept and {9, 10, 11} <= kept
    assert sum(e.size for e in store.entries()) <= LIMIT


def test_what_is_larger_than_all_is_not_kept(store: Store) -> None:
    store.put(key(1), bytes(LIMIT + 1))
    assert list(store.entries()) == []


def test_what_cannot_be_written_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stores.os, "rename", full)
        store.put(key(1), b"code", label="gfx1030 saxpy")
    assert "cannot keep gfx1030 saxpy: No space left on device" in caplog.text
    assert [f.name for f in store.path.iterdir()] == []  # nothing half-made stays
    store.put(key(1), b"code")
    assert store.get(key(1)) == b"code"


def test_what_killed_writers_left_goes_in_time(store: Store) -> None:
    for name, age in (("unfinished-1-aa", 7200), ("unfinished-2-bb", 5)):
        (store.path / name).write_bytes(b"x")
        os.utime(store.path / name, (time.time() - age,) * 2)
    store.evict()
    assert [f.name for f in store.path.glob("unfinished-*")] == ["unfinished-2-bb"]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_others_can_write_to_is_refused_by_name(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "cache"
    place.mkdir()
    place.chmod(mode)
    with pytest.raises(Error, match=rf"{place}: others can write to it"):
        Store(place, LIMIT)


def test_another_user_s_directory_and_entries_are_not_used(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    place = tmp_path / "theirs"
    place.mkdir()
    store.put(key(1), b"code")
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)  # everything here is another user's now
    with pytest.raises(Error, match=f"belongs to user {mine}, not to {mine + 1}"):
        Store(place, LIMIT)
    assert store.get(key(1)) is None


def test_a_link_is_not_followed(tmp_path: Path, store: Store) -> None:
    store.put(key(1), b"code")
    (tmp_path / "link").symlink_to(store.path)
    with pytest.raises(Error, match="not a directory of its own"):
        Store(tmp_path / "link", LIMIT)
    (store.path / f"{key(2)}.code").symlink_to(store.path / f"{key(1)}.code")
    assert store.get(key(2)) is None
    store.path.rename(tmp_path / "moved")
    store.path.mkdir(mode=0o777)
    assert store.get(key(1)) == b"code"  # the directory that was opened, whatever stands there now


def test_an_entry_others_can_write_to_is_left_alone(store: Store) -> None:
    store.put(key(1), b"code")
    (store.path / f"{key(1)}.code").chmod(0o666)
    assert store.get(key(1)) is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_file_is_left_alone(
    store: Store, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    make(store.path / f"{key(1)}.code")
    assert store.get(key(1)) is None
    assert "is not an entry of this user's" in caplog.text
    assert list(store.entries()) == []
    assert store.clear() == (0, 0)
    store.put(key(1), b"code")
    store.put(key(2), b"code")
    assert store.get(key(2)) == b"code"


def test_a_damaged_entry_that_cannot_be_removed_counts_as_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    (store.path / f"{key(1)}.code").write_bytes(b"cut off")
    (store.path / f"{key(1)}.code").chmod(0o600)
    monkeypatch.setattr(stores.os, "unlink", read_only)
    assert store.get(key(1)) is None


def test_entries_of_confined_runners_are_apart(store: Store) -> None:
    store.put(key(1), b"theirs", suffix=CONFINED)
    assert store.get(key(1)) is None
    assert store.get(key(1), CONFINED) == b"theirs"


def _hammer(path: Path, seed: int) -> None:
    store = Store(path, LIMIT)
    for step in range(150):
        number = (seed * 7 + step) % 40
        found = store.get(key(number))
        assert found is None or found == bytes([number]) * 40_000
        store.put(key(number), bytes([number]) * 40_000)


def test_many_processes_share_a_directory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_hammer, args=(tmp_path / "cache", n)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0] * 4
    store = Store(tmp_path / "cache", LIMIT)
    store.evict()
    assert 0 < sum(e.size for e in store.entries()) <= LIMIT
    assert not list(store.path.glob("unfinished-*"))


def test_the_environment_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_configured(config.Config(cache_dir=str(tmp_path))).path == tmp_path / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    found = open_configured(config.Config(cache_policy="aggressive"))
    assert (found.path, found.limit) == (tmp_path / "xdg" / "zluda" / "kernels", 4 << 30)


def test_a_place_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Error, match=r"ZLUDA_CACHE_DIR: .*file/kernels: Not a directory"):
        open_configured(config.Config(cache_dir=str(tmp_path / "file")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert open_configured(config.Config()) is None  # a home that is read-only keeps nobody from working
    assert "no kernel cache" in caplog.text


@pytest.mark.parametrize("newer", [True, False])
def test_a_user_without_a_home_works_without_a_cache(
    newer: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def place(*_: object, **__: object) -> Path:
        if newer:
            raise RuntimeError("could not determine the home directory")
        return Path("~/.cache/zluda")

    monkeypatch.setattr("platformdirs.user_cache_path", place)
    assert open_configured(config.Config()) is None
    assert "no home directory" in caplog.text


LAUNCH = """
import sys, numpy, zluda
device = zluda.open_device(sys.argv[1])
x = device.array(numpy.zeros(32, numpy.uint32))
device.load_module(sys.argv[2]).kernel("k").launch(grid=1, block=32, args=[x])
print(x.numpy().sum(), "zluda.compiler.lower.arithmetic" in sys.modules)
"""
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


@pytest.mark.parametrize("device", ["cpu", "gfx1030"])
def test_a_second_process_compiles_nothing(tmp_path: Path, device: str) -> None:
    def launch(policy: str) -> str:
        environment = {**os.environ, "ZLUDA_CACHE_DIR": str(tmp_path), "ZLUDA_CACHE_POLICY": policy}
        command = [sys.executable, "-c", LAUNCH, device, PTX]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert launch("off") == "496 True\n"
    assert not (tmp_path / "kernels").exists()
    assert launch("normal") == "496 True\n"
    names = {file.name for file in (tmp_path / "kernels").glob("*.code")}
    assert len(names) >= 2
    assert launch("normal") == "496 False\n"
    assert {file.name for file in (tmp_path / "kernels").glob("*.code")} == names
