"""What a runner costs: ``python -m bench.runner``.

Start to ready, the round trip of a command that does nothing, a launch of one small block, copies both ways,
and a read of device memory through the shared file.
"""

from __future__ import annotations

import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable

from zluda.runner import Runner, start

PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry one(.param .u64 p)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
COPY = 64 << 20


def microseconds(action: Callable[[], object], count: int) -> tuple[float, float]:
    """Median and 99th percentile of one call."""
    times = []
    for _ in range(count):
        began = time.perf_counter_ns()
        action()
        times.append((time.perf_counter_ns() - began) / 1e3)
    times.sort()
    return statistics.median(times), times[int(0.99 * len(times))]


def gigabytes_a_second(action: Callable[[], object], size: int) -> float:
    """Best of five, in 10⁹ bytes a second; the first touch of the memory is not counted."""
    action()
    best = min(microseconds(action, 1)[0] for _ in range(5))
    return size / best / 1e3


def measure(runner: Runner) -> list[str]:
    """Lines of results."""
    driver = runner.driver
    driver.cuInit()
    driver.cuCtxCreate(0, driver.cuDeviceGet(0))
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), "one")
    small, large = driver.cuMemAlloc(512), driver.cuMemAlloc(COPY)
    packed, data = struct.pack("<Q", small), os.urandom(1 << 20) * (COPY >> 20)

    def launch() -> None:
        driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, 0, packed)

    launch()  # compiles
    rows = [
        ("round trip", microseconds(driver.cuCtxGetCurrent, 3000)),
        ("launch of one warp", microseconds(launch, 2000)),
        (
            "read of 64 bytes through the shared file",
            microseconds(lambda: runner.memory.read(small, 64), 3000),
        ),
    ]
    lines = [f"{name:42} {median:8.1f} µs   99 % {worst:8.1f} µs" for name, (median, worst) in rows]
    copies = [
        ("copy to the device", lambda: driver.cuMemcpyHtoD(large, data)),
        ("copy to the host", lambda: driver.cuMemcpyDtoH(large, COPY)),
        ("read through the shared file", lambda: runner.memory.read(large, COPY)),
    ]
    return lines + [f"{name:42} {gigabytes_a_second(action, COPY):8.1f} GB/s" for name, action in copies]


def pipe_round_trip() -> float:
    """Median microseconds of a byte through a pipe to another Python process and back, to compare with."""
    echo = "import os\nwhile b := os.read(0, 1): os.write(1, b)"
    with subprocess.Popen(
        [sys.executable, "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        near_in, near_out = process.stdin.fileno(), process.stdout.fileno()

        def ping() -> None:
            os.write(near_in, b"x")
            os.read(near_out, 1)

        ping()  # the process has started
        median, _ = microseconds(ping, 3000)
        process.stdin.close()
    return median


def main() -> None:
    """Print one line a figure."""
    starts = []
    for _ in range(5):
        began = time.perf_counter()
        with start():
            starts.append(time.perf_counter() - began)
    print(f"{'start to ready':42} {1e3 * statistics.median(starts):8.0f} ms")
    print(f"{'(a byte through pipes and back':42} {pipe_round_trip():8.1f} µs)")
    with start() as runner:
        print("\n".join(measure(runner)))


if __name__ == "__main__":
    main()
