"""Warps under masks, and AMD's waves, against threads on their own, on random control-flow graphs."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_kernels import WORDS, random_kernel
from thread_interpreter import Exited, Thread

from zluda.compiler.analysis.cfg import build_graph
from zluda.compiler.analysis.rounds import several_entries
from zluda.device.amd import AmdDevice
from zluda.device.cpu import CpuDevice
from zluda.ptx import parse_module

BASE = 1 << 40


def expected(text: str, threads: int, uniform: int) -> np.ndarray:
    module = parse_module(text)
    function = module.function("k")
    memory = {BASE + 4 * i: 0 for i in range(threads * WORDS)}
    for t in range(threads):
        specials = {"%tid.x": t, "%laneid": t % 32}
        with contextlib.suppress(Exited):
            Thread(module, function, specials, {"k_out": BASE, "k_uniform": uniform}, memory).run()
    return np.array([memory[BASE + 4 * i] for i in range(threads * WORDS)], np.uint32).reshape(threads, WORDS)


def on_device(device: CpuDevice | AmdDevice, text: str, threads: int, uniform: int) -> np.ndarray:
    kernel = device.load(parse_module(text)).kernel("k")
    size = 4 * threads * WORDS
    out = device.allocate(size)
    device.fill(out, b"\0", size)
    device.launch(kernel, (1, 1, 1), (threads, 1, 1), struct.pack("<QI", out, uniform))
    result = np.frombuffer(device.read(out, size), np.uint32).reshape(threads, WORDS)
    device.free(out)
    return result


def check(seed: int, threads: int, uniform: int) -> None:
    device = CpuDevice(threads=1)
    text = random_kernel(seed)
    np.testing.assert_array_equal(
        on_device(device, text, threads, uniform), expected(text, threads, uniform), text
    )
    device.close()


ANY = (st.integers(0, 1 << 30), st.sampled_from([32, 64, 50]), st.integers(0, 40))


@given(*ANY)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_graphs(seed: int, threads: int, uniform: int) -> None:
    check(seed, threads, uniform)


@pytest.mark.nightly
@given(*ANY)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_random_graphs(seed: int, threads: int, uniform: int) -> None:
    check(seed, threads, uniform)


TARGETS = ("gfx1030", "gfx1100", "gfx90a")


def check_on_amd(name: str, seeds: Iterable[int]) -> None:
    device = AmdDevice(name, threads=1)
    for seed in seeds:
        text = random_kernel(seed)
        threads, uniform = (32, 64, 50)[seed % 3], seed % 41
        found = on_device(device, text, threads, uniform)
        np.testing.assert_array_equal(found, expected(text, threads, uniform), f"seed {seed}\n{text}")
    device.close()


@pytest.mark.parametrize("name", TARGETS)
def test_loops_with_several_entries_on_amd(name: str) -> None:
    """LLVM alone gives these graphs wrong masks."""
    device = AmdDevice(name, threads=1)
    for seed, uniform in ((9, 9), (52, 11)):
        text = random_kernel(seed)
        assert several_entries(build_graph(parse_module(text).function("k")))
        np.testing.assert_array_equal(on_device(device, text, 64, uniform), expected(text, 64, uniform), text)
    device.close()


@pytest.mark.nightly
@pytest.mark.parametrize("name", TARGETS)
def test_random_graphs_on_amd(name: str) -> None:
    check_on_amd(name, range(100, 130))
