"""How fast the AMD emulator runs: ``python -m bench.emulator [TARGET …]``, on one thread.

Prints, for kernels of tests/device/amd/data, lane operations a second (executed wave instructions × lanes)
and the time to lift and compile each kernel, beside those of the prototype that this emulator replaces;
processor time, so that other work on the machine does not count. ``bench_emulator()`` returns them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from zluda.compiler import cache
from zluda.device.amd.emulator.device import EmulatedCode, EmulatedDevice

DATA = Path(__file__).resolve().parents[1] / "tests" / "device" / "amd" / "data"
_COMPILED = 3  # times, of which the quickest counts, as of the prototype's nine
# The prototype's billions of lane operations a second and milliseconds to translate and compile: the best of
# nine runs in turn with this emulator's, same kernels and arguments, one core of a Xeon with AVX-512.
PROTOTYPE = {
    "gfx1030": {
        "k_vadd": (10.2, 60),
        "k_reduce": (19.9, 83),
        "k_matmul": (7.2, 131),
        "k_shfl": (30.3, 105),
        "k_f64": (3.6, 226),
        "k_i64": (10.1, 358),
        "k_math": (1.6, 96),
        "k_atomics": (2.2, 108),
        "k_private": (12.9, 1697),
    },
    "gfx90a": {
        "k_vadd": (11.2, 78),
        "k_reduce": (19.6, 155),
        "k_matmul": (5.3, 271),
        "k_shfl": (45.2, 135),
        "k_f64": (3.5, 692),
        "k_i64": (7.5, 647),
        "k_math": (1.5, 161),
        "k_atomics": (2.0, 142),
        "k_private": (9.6, 2706),
    },
}


def _workloads() -> dict[str, tuple[int, list[Any]]]:
    """Name → (blocks of 256 threads, arguments)."""
    choose = np.random.default_rng(0)
    n, m, side = 1 << 22, 1 << 18, 256
    floats = choose.uniform(-1, 1, n).astype("f4")
    small = choose.integers(0, 100000, m).astype("i4")
    matrix = floats[: side * side].copy()
    return {
        "k_vadd": (n // 256, [floats, floats.copy(), np.zeros(n, "f4"), np.int32(n)]),
        "k_reduce": (n // 256, [floats, np.zeros(n // 256, "f4"), np.int32(n)]),
        "k_matmul": ((side // 16) ** 2, [matrix, matrix.copy(), np.zeros(side * side, "f4"), np.int32(side)]),
        "k_shfl": (m // 256, [small, np.zeros(m, "i4"), np.int32(m)]),
        "k_f64": (m // 256, [choose.uniform(-100, 100, m), np.zeros(m), np.int32(m)]),
        "k_i64": (
            m // 256,
            [
                choose.integers(-(2**62), 2**62, m),
                choose.integers(-(2**40), 2**40, m),
                np.zeros(m, "i8"),
                np.int32(m),
            ],
        ),
        "k_math": (m // 256, [floats[:m].copy(), np.zeros(m, "f4"), np.int32(m)]),
        "k_atomics": (
            m // 256,
            [np.zeros(8, "i4"), np.zeros(16, "u4"), np.zeros(1, "u8"), small, np.int32(m)],
        ),
        "k_private": (m // 1024, [small[: m // 4].copy(), np.zeros(m // 4, "i4"), np.int32(m // 4)]),
    }


def _pack(arguments: list[Any]) -> bytes:
    data = bytearray()
    for argument in arguments:
        address = np.uint64(argument.ctypes.data) if isinstance(argument, np.ndarray) else argument
        piece = address.tobytes()
        data += b"\0" * (-len(data) % len(piece)) + piece
    return bytes(data)


def bench_emulator(target: str = "gfx1030", *, repeats: int = 5) -> dict[str, dict[str, float]]:
    """Kernel → ``lane_operations`` a second in billions, ``compile_ms``, ``run_ms``."""
    with cache.using(None):  # what is found there is not compiled
        return _bench(target, repeats)


def _bench(target: str, repeats: int) -> dict[str, dict[str, float]]:
    device = EmulatedDevice(target, threads=1)
    image = zstandard.decompress((DATA / f"general.{target}.co.zst").read_bytes())
    results = {}
    for name, (blocks, arguments) in _workloads().items():
        parameters, compiled = _pack(arguments), float("inf")
        for _ in range(_COMPILED):
            code: EmulatedCode = device.load_code_object(image)
            kernel = code.kernel(name)
            start = time.process_time()
            kernel.host(count=False)
            compiled = min(compiled, time.process_time() - start)
        device.launch(kernel, (blocks, 1, 1), (256, 1, 1), parameters, count=True)
        operations = device.instructions * kernel.wave_size
        best = float("inf")
        for _ in range(repeats):
            start = time.process_time()
            device.launch(kernel, (blocks, 1, 1), (256, 1, 1), parameters)
            best = min(best, time.process_time() - start)
        results[name] = {
            "lane_operations": operations / best / 1e9,
            "compile_ms": compiled * 1e3,
            "run_ms": best * 1e3,
        }
    device.close()
    return results


def main() -> None:
    print("G lane operations/s (and the prototype's), compile (and the prototype's)")
    for target in sys.argv[1:] or PROTOTYPE:
        for name, result in bench_emulator(target).items():
            rate, compile_ms = PROTOTYPE[target][name]
            mine, compiled = result["lane_operations"], result["compile_ms"]
            print(
                f"{target:8} {name:10} {mine:6.1f} ({rate:5.1f}) = {mine / rate:4.2f} x   "
                f"{compiled:6.0f} ms ({compile_ms:5.0f}) = {compiled / compile_ms:4.2f} x"
            )


if __name__ == "__main__":
    main()
