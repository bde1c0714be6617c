"""The kernel cache of confined runners: served through the channel, and never believed outside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zluda.compiler import cache, compile_kernel
from zluda.compiler.cache.key import compiler_version
from zluda.compiler.cache.store import COMPILED, CONFINED, Store
from zluda.ptx import parse_module
from zluda.runner import start
from zluda.runner.cache import NearCache, file_scope
from zluda.runner.channel import ChannelError

LIMIT = 1 << 20
KEY = "5" * 64
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 77;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("ZLUDA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ZLUDA_CACHE_POLICY", "normal")
    return Store(tmp_path / "kernels", 512 << 20)


def launch(device: str, scope: str) -> None:
    with start(device, cache_scope=scope) as runner:
        driver = runner.driver
        driver.cuInit()
        driver.cuCtxCreate(0, 0)
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), "k")
        buffer = driver.cuMemAlloc(4)
        driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, 0, buffer.to_bytes(8, "little"))
        assert driver.cuMemcpyDtoH(buffer, 4) == (77).to_bytes(4, "little")


def kept(store: Store, suffix: str) -> dict[str, int]:
    return {e.key: e.used for e in store.entries() if e.suffix == suffix}


@pytest.mark.parametrize("device", ["cpu", "gfx1030"])
def test_a_runner_s_kernels_come_back_to_its_scope_alone(store: Store, device: str) -> None:
    launch(device, "one")
    first = kept(store, CONFINED)
    assert first
    launch(device, "one")
    again = kept(store, CONFINED)
    assert again.keys() == first.keys()
    assert all(again[k] > first[k] for k in first)  # they were used
    launch(device, "two")
    assert len(kept(store, CONFINED)) == 2 * len(first)


def test_without_a_scope_nothing_is_kept(store: Store) -> None:
    launch("cpu", "")
    assert not kept(store, CONFINED)


def test_what_this_user_compiled_is_read(store: Store) -> None:
    compiler_version.cache_clear()  # the runner's sources are those of now
    with cache.using(store):
        compile_kernel(parse_module(PTX), "k", "cpu", block=(32, 1, 1))
    before = kept(store, COMPILED)
    launch("cpu", "one")
    assert not kept(store, CONFINED)
    after = kept(store, COMPILED)
    assert any(after[k] > before[k] for k in before)


def test_what_a_runner_says_reaches_no_key_of_others(store: Store) -> None:
    near = NearCache(store, "scope")
    assert near.answer(("put", KEY, b"poison", "label\n\x1b[2J")) is None
    assert store.get(KEY) is None and store.get(KEY, CONFINED) is None
    assert near.answer(("get", KEY)) == b"poison"
    assert NearCache(store, "another").answer(("get", KEY)) is None
    store.put(KEY, b"good")
    assert near.answer(("get", KEY)) == b"good"  # the user's own come first


def test_a_runner_fills_a_quarter_of_the_store_at_most(tmp_path: Path) -> None:
    store = Store(tmp_path / "small", LIMIT)
    near = NearCache(store, "scope")
    for number in range(32):
        near.answer(("put", f"{number:064x}", bytes(LIMIT // 16), ""))
    assert sum(1 for _ in store.entries()) == 4


@pytest.mark.parametrize(
    "question",
    [
        None,
        (),
        ("get",),
        ("get", "../../etc/passwd"),
        ("get", KEY + "\n"),
        ("get", 5),
        ("put", KEY),
        ("put", "x", b"", ""),
        ("put", KEY, "text", ""),
        ("put", KEY, b"", None),
        ("clear", KEY),
    ],
)
def test_other_questions_are_refused(store: Store, question: object) -> None:
    with pytest.raises(ChannelError):
        NearCache(store, "scope").answer(question)


def test_a_file_s_scope_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(b"one")
    before = file_scope(path)
    assert file_scope(path) == before
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    other = tmp_path / "other"
    other.write_bytes(b"two")
    os.utime(other, ns=times)
    other.replace(path)
    assert file_scope(path) != before
