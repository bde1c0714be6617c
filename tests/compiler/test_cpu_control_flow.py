"""Warps under masks against threads on their own, on random control-flow graphs."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_kernels import WORDS, random_kernel
from thread_interpreter import Exited, Thread

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


def on_cpu(device: CpuDevice, text: str, threads: int, uniform: int) -> np.ndarray:
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
        on_cpu(device, text, threads, uniform), expected(text, threads, uniform), text
    )
    device.close()


ANY = (st.integers(0, 1 << 30), st.sampled_from([32, 64, 50]), st.integers(0, 40))


@given(*ANY)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_graphs(seed: int, threads: int, uniform: int) -> None:
    check(seed, threads, uniform)


@pytest.mark.slow
@given(*ANY)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_random_graphs(seed: int, threads: int, uniform: int) -> None:
    check(seed, threads, uniform)
