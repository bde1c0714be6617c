"""Kernels of ``data/features.cu`` on the CPU and on emulated AMD GPUs against what they mean."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from zluda.device.amd import AmdDevice
from zluda.device.cpu import CpuDevice
from zluda.errors import LaunchError, UnsupportedError
from zluda.ptx import parse_module

DATA = Path(__file__).parent / "data"


class Bench:
    """A device with ``features.ptx`` loaded; arrays in, arrays out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.device = CpuDevice(threads=2) if name == "cpu" else AmdDevice(name, threads=2)
        path = DATA / "features.ptx"
        self.code = self.device.load(parse_module(path.read_text(), file=path.name))

    def put(self, array: np.ndarray) -> int:
        address = self.device.allocate(max(array.nbytes, 1))
        self.device.write(address, array.tobytes())
        return address

    def run(
        self, name: str, grid: object, block: object, *arguments: object, shared: int = 0
    ) -> list[np.ndarray]:
        """Launch; arrays are copied in, and their contents afterwards are returned."""
        kernel = self.code.kernel(name)
        arrays = [(a, self.put(a)) for a in arguments if isinstance(a, np.ndarray)]
        addresses = iter([address for _, address in arrays])
        packed = bytearray()
        for slot, argument in zip(kernel.parameters, arguments, strict=True):
            packed = packed.ljust(slot.offset, b"\0")
            packed += (
                struct.pack("<Q", next(addresses))
                if isinstance(argument, np.ndarray)
                else struct.pack("<i", argument)
            )
        self.device.launch(kernel, _three(grid), _three(block), bytes(packed), shared_bytes=shared)
        results = [np.frombuffer(self.device.read(p, a.nbytes), a.dtype).reshape(a.shape) for a, p in arrays]
        for _, address in arrays:
            self.device.free(address)
        return results


def _three(size: object) -> tuple[int, int, int]:
    return (size, 1, 1) if isinstance(size, int) else size  # type: ignore[return-value]


@pytest.fixture(scope="module", params=["cpu", "gfx1030", "gfx1100", "gfx90a"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.param)
    yield bench
    bench.device.close()


@pytest.fixture(scope="module")
def cpu() -> Iterator[Bench]:
    """For what the CPU alone reports by thread, or executes lane by lane (docs/amd.md: what AMD GPUs do)."""
    bench = Bench("cpu")
    yield bench
    bench.device.close()


RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize(("n", "block"), [(1000, 128), (77, 96), (500, 50)])
def test_loop_with_breaks_and_a_tail(bench: Bench, n: int, block: int) -> None:
    values = RANDOM.integers(0, 5000, n, dtype=np.uint32)
    out = bench.run("collatz", -(-n // block), block, values, np.full(n, 9999, np.uint32), n)[1]

    def steps(x: int) -> int:
        count = 0
        while x > 1:
            x = 3 * x + 1 if x % 2 else x // 2
            count += 1
            if count == 100:
                break
        return count

    assert out.tolist() == [steps(int(v)) for v in values]


def test_nested_loops_with_continue_break_and_return(bench: Bench) -> None:
    values = RANDOM.integers(0, 1000, 256, dtype=np.int32)
    out = bench.run("nested", 2, 128, values, np.zeros(256, np.int32))[1]

    def expected(v: int) -> int:
        total = 0
        for a in range(v % 7):
            if a == v % 5:
                continue
            for b in range(10):
                if b * a > v % 23:
                    break
                total += a * 100 + b
                if total > 5000:
                    return -total
            total ^= a
        return total

    assert out.tolist() == [expected(int(v)) for v in values]


def test_switch(bench: Bench) -> None:
    values = RANDOM.integers(-2, 10, 256, dtype=np.int32)
    out = bench.run("choose", 2, 128, values, np.zeros(256, np.int32))[1]
    cases = {
        0: lambda i: i * 3,
        1: lambda i: i - 100,
        4: lambda i: i << 3,
        5: lambda i: -i,
        6: lambda i: i * i,
    }
    cases |= {2: lambda i: i + 7, 3: lambda i: i + 7, 7: lambda i: i // 3}
    assert out.tolist() == [cases.get(int(v), lambda i: 12345)(i) for i, v in enumerate(values)]


def test_barrier_in_a_loop(bench: Bench) -> None:
    values = RANDOM.integers(0, 100, 512, dtype=np.int32)
    out = bench.run("prefix", 2, 256, values, np.zeros(512, np.int32))[1]
    assert np.array_equal(out.reshape(2, 256), values.reshape(2, 256).cumsum(axis=1))


def test_warps_reach_a_barrier_by_different_paths(bench: Bench) -> None:
    (out,) = bench.run("paths", 1, 256, np.zeros(256, np.int32))
    seen = [w * 10 if w % 2 else w * 100 for w in range(8)]
    assert out.tolist() == [seen[(t // 32 + 1) % 8] for t in range(256)]


@pytest.mark.parametrize("threads", [32, 96, 100])
def test_barrier_reductions(bench: Bench, threads: int) -> None:
    for values in (
        np.ones(threads, np.int32),
        np.zeros(threads, np.int32),
        RANDOM.integers(0, 2, threads, dtype=np.int32),
    ):
        out = bench.run("tally", 1, threads, values, np.zeros(threads, np.int32))[1]
        expected = int(values.sum()) * 4 + 2 * bool(values.all()) + bool(values.any())
        assert out.tolist() == [expected] * threads


def test_named_barriers_with_thread_counts(bench: Bench) -> None:
    (out,) = bench.run("pipeline", 1, 128, np.zeros(256, np.int32))
    assert out.reshape(4, 64).tolist() == [[r * 11 + 1] * 64 for r in range(4)]


def test_named_barriers_need_one_warp_a_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_WAVE64_SLOW_MODE", "0")
    bench = Bench("gfx90a")
    with pytest.raises(UnsupportedError, match=r"barrier for some of a block's threads.*features\.ptx:\d+"):
        bench.code.kernel("pipeline").load()
    bench.device.close()


def test_a_warp_waits_for_another_through_memory(bench: Bench) -> None:
    (out,) = bench.run("spin", 1, 64, np.zeros(32, np.int32))
    assert out.tolist() == [77] * 32


def test_recursion(bench: Bench) -> None:
    (out,) = bench.run("recursion", 1, 64, np.zeros(64, np.int32))
    numbers = [0, 1]
    while len(numbers) < 13:
        numbers.append(numbers[-1] + numbers[-2])
    assert out.tolist() == [numbers[t % 13] for t in range(64)]


def test_structures_in_parameters(bench: Bench) -> None:
    (out,) = bench.run("structures", 1, 64, np.zeros(64))
    expected = [1.5 * t + 2.5 + t + 30 - t + (40 ^ t) if t % 3 else 74.0 for t in range(64)]
    assert out.tolist() == expected


def test_calls_through_a_table_of_functions(bench: Bench) -> None:
    (out,) = bench.run("indirect", 1, 64, np.zeros(64, np.int32))
    assert out.tolist() == [(2 * t, t * t, -t)[t % 3] for t in range(64)]


def test_virtual_methods(bench: Bench) -> None:
    (out,) = bench.run("methods", 1, 64, np.zeros(64, np.int32))
    assert out.tolist() == [t if t & 1 else t * t for t in range(64)]


def test_lanes_that_exit_do_not_come_back(bench: Bench) -> None:
    (out,) = bench.run("exits", 1, 96, np.zeros(96, np.int32))
    assert out.tolist() == [1 if t % 4 == 1 else 2 if t % 8 == 2 else 3 for t in range(96)]


def test_local_arrays(bench: Bench) -> None:
    values = RANDOM.integers(0, 100, 64, dtype=np.int32)
    out = bench.run("local_array", 1, 64, values, np.zeros(64, np.int32))[1]
    expected = []
    for t, v in enumerate(values.tolist()):
        stack = [k * t for k in range(16)]
        stack[v & 15] += 1000
        expected.append(sum(stack[(k + v) & 15] * (k + 1) for k in range(16)))
    assert out.tolist() == expected


def test_generic_pointers_into_every_space(bench: Bench) -> None:
    values = RANDOM.integers(0, 1000, 32, dtype=np.int32)
    out = bench.run("generic_pointers", 1, 32, values, np.zeros(32, np.int32))[1]
    expected = []
    for t, v in enumerate(values.tolist()):
        local = [t, 2, 3, 4]
        value, space = (
            (v, 1),
            ((31 - t) * 7, 2),
            (local[v & 3], 4),
            ([5, 4, 3, 2, 1, 0, 0, 0][t % 8], 8),
            (321, 1),
        )[t % 5]
        expected.append(value * 16 + space)
    assert out.tolist() == expected


@pytest.mark.parametrize("blocks", [40, 700])
def test_atomics_under_contention(bench: Bench, blocks: int) -> None:
    """A small grid on the calling thread, a large one on two."""
    threads = 96
    n = blocks * threads
    counters = np.zeros(16, np.uint32)
    results = bench.run(
        "contention",
        blocks,
        threads,
        counters,
        np.zeros(2, np.float32),
        np.zeros(1),
        np.zeros(1, np.uint64),
        np.zeros(n, np.int32),
    )
    counters, sums, total, most, order = results
    i = np.arange(n, dtype=np.uint64)
    assert counters[:3].tolist() == [int(i[k::3].sum()) % (1 << 32) for k in range(3)]
    assert counters[4] == n % 1001
    assert counters[5] == (-n) % 1001
    assert counters[6] == np.bitwise_xor.reduce((i * 2654435761).astype(np.uint32))
    assert counters[7:8].view(np.int32)[0] == -500
    assert counters[8] == (i * 7 % 1013).max()
    assert sums.tolist() == [n / 2, n / 2]
    assert total[0] == n / 2
    assert most[0] == (n - 1) << 33
    assert sorted(order.tolist()) == list(range(n))


def test_warp_operations(bench: Bench) -> None:
    v = RANDOM.integers(0, 256, 32, dtype=np.uint32)
    out = bench.run("warp_operations", 1, 32, v, np.zeros((32, 16), np.uint32))[1]
    w = v.tolist()
    full = (1 << 32) - 1
    for t in range(32):
        up = t % 7 + 1
        expected = [
            w[t * 5 % 32],
            w[t - up] if t % 8 >= up else w[t],
            w[t + 3] if t + 3 < 32 else w[t],
            w[t ^ (w[t] & 31)],
            sum((x & 1) << i for i, x in enumerate(w)),
            int(all(x < 200 for x in w[:8]) and t < 8),
            1,
            sum((x % 5 == w[t] % 5) << i for i, x in enumerate(w)),
            0,  # all ones and one
            sum(w),
            (min(w) - 100) & full,
            int(np.bitwise_xor.reduce(v)),
            sum(1 << i for i in range(32) if i % 3) if t % 3 else 0,
            max(w[:13]) if t < 13 else 0,
            w[t // 16 * 16 + 5],
            w[t + 2] if t % 4 < 2 else w[t],
        ]
        assert out[t].tolist() == expected, t


def test_element_widths_and_vectors(bench: Bench) -> None:
    n = 256
    data = (
        RANDOM.integers(-128, 128, n, dtype=np.int8),
        RANDOM.integers(0, 65536, n, dtype=np.uint16),
        RANDOM.integers(-32768, 32768, (n, 2), dtype=np.int16),
        RANDOM.integers(-99, 99, (n, 4)).astype(np.float32),
        RANDOM.integers(-99, 99, (n, 2)).astype(np.float64),
    )
    results = bench.run(
        "widths",
        2,
        128,
        *data,
        np.zeros(n, np.int64),
        np.zeros((n, 4), np.float32),
        np.zeros(2 * n, np.uint8),
    )
    b, h, s, q, d = (a.astype(np.int64) for a in data)
    swapped = d[np.arange(n) ^ 1, 0]
    expected = b + 3 * h + 5 * s[:, 0] - s[:, 1] + swapped + q[:, 0] + q[:, 3] + b[::-1]
    assert np.array_equal(results[5], expected)
    assert np.array_equal(results[6], data[3][:, ::-1])
    assert np.array_equal(results[7][::2], np.arange(n).astype(np.uint8))
    assert np.array_equal(results[7][1::2], (b >> 1).astype(np.uint8))


@pytest.mark.parametrize(
    "block", [(64, 1, 1), (16, 4, 1), (8, 8, 2), (7, 5, 3), (32, 2, 2), (1, 33, 1), (4, 2, 8), (48, 2, 1)]
)
def test_indices(bench: Bench, block: tuple[int, int, int]) -> None:
    grid = (3, 2, 2)
    threads = block[0] * block[1] * block[2]
    (out,) = bench.run("indices", grid, block, np.zeros((12, threads, 8), np.uint32))
    t = np.arange(threads)
    assert np.array_equal(out[..., 0], np.tile(t % block[0], (12, 1)))
    assert np.array_equal(out[..., 1], np.tile(t // block[0] % block[1], (12, 1)))
    assert np.array_equal(out[..., 2], np.tile(t // (block[0] * block[1]), (12, 1)))
    n = np.arange(12)
    assert np.array_equal(out[:, 0, 3:6], np.stack([n % 3, n // 3 % 2, n // 6], axis=1))
    assert np.array_equal(out[0, :, 6], t % 32 + 100 * (t // 32))
    assert np.array_equal(out[0, :, 7], (1 << (t % 32)) - 1)


def test_dynamic_shared_memory(bench: Bench) -> None:
    n = 500
    (out,) = bench.run("dynamic_shared", 1, 64, np.zeros(n, np.int32), n, shared=4 * n)
    k = np.arange(n)
    assert np.array_equal(out, (n - 1 - k) ** 2 + 1000 * (k % 3))


def test_trap_names_kernel_block_and_thread(bench: Bench) -> None:
    """AMD's wave stops as a whole: there is no thread to name."""
    thread = r", thread \(37, 0, 0\)" if bench.name == "cpu" else ""
    with pytest.raises(LaunchError, match=rf"kernel stops, block \(0, 0, 0\){thread}.*trap"):
        bench.run("stops", 1, 64, np.zeros(4, np.int32), 1)


def test_misaligned_access_names_the_address(cpu: Bench) -> None:
    with pytest.raises(
        LaunchError, match=r"block \(1, 0, 0\), thread \(5, 0, 0\), address 0x[0-9a-f]*2: misaligned"
    ):
        cpu.run("stops", 2, 64, np.zeros(4, np.int32), 2)


def test_barriers_that_never_complete(cpu: Bench) -> None:
    with pytest.raises(LaunchError, match="barriers that can never complete"):
        cpu.run("stops", 1, 64, np.zeros(4, np.int32), 3)


def test_the_device_still_works_after_a_fault(bench: Bench) -> None:
    test_barrier_in_a_loop(bench)


def test_locks_between_lanes_of_a_warp(cpu: Bench) -> None:
    blocks, threads = 3, 64
    n = blocks * threads
    arrays = (np.zeros(2, np.int32), np.zeros(2, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32))
    lock, counter, order, out = cpu.run("locks", blocks, threads, *arrays)
    assert lock.tolist() == [0, 0]
    assert counter.tolist() == [n, 3 * n]
    assert sorted(order.tolist()) == list(range(n))
    warps = order.reshape(-1, 32)
    below = np.concatenate([warps[:, 1:], warps[:, -1:]], axis=1)
    assert np.array_equal(out.reshape(-1, 32), below + 32)


def test_lanes_of_a_warp_that_wait_for_each_other(cpu: Bench) -> None:
    turn, out = cpu.run("token", 1, 96, np.zeros(1, np.int32), np.zeros(96, np.int32))
    assert turn[0] == 96
    assert out.tolist() == [2 * t for t in range(96)]
