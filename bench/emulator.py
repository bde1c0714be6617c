"""How fast the AMD emulator runs: ``python bench/emulator.py [target]``, on one thread.

Prints, for kernels of tests/device/amd/data, lane operations a second (executed wave instructions × lanes)
beside those of the prototype that this emulator replaces, and the time to lift and compile each kernel;
processor time, so that other work on the machine does not count. ``bench_emulator()`` returns them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from zluda.device.amd.emulator.device import EmulatedCode, EmulatedDevice

DATA = Path(__file__).resolve().parents[1] / "tests" / "device" / "amd" / "data"
# The prototype's billions of lane operations a second on gfx1030, measured on one core of a Xeon (AVX-512).
PROTOTYPE = {
    "k_vadd": 9.1,
    "k_reduce": 17.0,
    "k_matmul": 4.3,
    "k_shfl": 26.3,
    "k_f64": 2.4,
    "k_i64": 7.3,
    "k_math": 1.0,
    "k_atomics": 1.5,
    "k_private": 7.4,
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
    device = EmulatedDevice(target, threads=1)
    image = zstandard.decompress((DATA / f"general.{target}.co.zst").read_bytes())
    code: EmulatedCode = device.load_code_object(image)
    results = {}
    for name, (blocks, arguments) in _workloads().items():
        kernel, parameters = code.kernel(name), _pack(arguments)
        start = time.process_time()
        kernel.host(count=False)
        compiled = time.process_time() - start
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
    target = sys.argv[1] if len(sys.argv) > 1 else "gfx1030"
    print(f"{target}: G lane operations/s (prototype's on gfx1030), run, compile")
    for name, result in bench_emulator(target).items():
        print(
            f"{name:10} {result['lane_operations']:6.1f} ({PROTOTYPE[name]:5.1f}) "
            f"{result['run_ms']:8.1f} ms {result['compile_ms']:8.0f} ms"
        )


if __name__ == "__main__":
    main()
