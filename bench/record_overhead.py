"""What recording costs: a launch-bound loop with and without ``zluda trace --capture calls``, and with each
launch timed (``--timing events``) and not.

On an NVIDIA host, with the program of ``record_overhead.cu`` built:

    python -m bench.record_overhead PROGRAM [--seconds 30] [--json]

The loop is sized so that it takes ``--seconds`` unrecorded; the ratio is of the loop's own time, ring stalls
included. Without a GPU, ``--drain`` measures the drain alone: launches a second, one core, from rings made
up in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import recorder


def run(command: list[str]) -> float:
    """The seconds that the program printed."""
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def overhead(program: str, seconds: float, timings: tuple[str, ...]) -> dict[str, Any]:
    """Ratio of recorded to unrecorded time of the same number of launches, untimed and timed."""
    trial = 200_000
    count = int(trial * seconds / run([program, str(trial)]))
    plain = run([program, str(count)])
    result: dict[str, Any] = {"launches": count, "plain_seconds": plain, "plain_us": plain / count * 1e6}
    for timing in timings:
        found = recorded(program, count, timing)
        found |= {"ratio": found["seconds"] / plain, "us": found["seconds"] / count * 1e6}
        result |= {f"timing_{timing}_{name}": value for name, value in found.items()}
    return result


def recorded(program: str, count: int, timing: str) -> dict[str, Any]:
    """One recorded run."""
    from zluda.tracefile import open_trace

    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.bin"
        line = [*recorder.command(trace, "--capture", "calls", "--timing", timing), program]
        start = time.monotonic()
        seconds = run([*line, str(count)])
        whole = time.monotonic() - start
        with open_trace(trace) as opened:
            launches = opened.counts().launches
            stall = opened.meta["stall_ns"] / 1e9
            timed, gpu_ns = opened.gpu_total()
            clock = max((fit.error_ns for fit in opened.gpu_clocks.values()), default=None)
        size = trace.stat().st_size
    if launches != count + 1:
        raise SystemExit(f"{launches} launches on record, {count + 1} made")
    if timing == "events" and timed < 0.99 * count:
        raise SystemExit(f"{timed} launches timed, {count + 1} made")
    return {
        "seconds": seconds,
        "stall_seconds": stall,
        "until_closed_seconds": whole,
        "bytes_per_launch": size / count,
        "gpu_us_per_launch": gpu_ns / timed / 1e3 if timed else None,
        "clock_error_us": None if clock is None else clock / 1e3,
    }


def drain(launches: int) -> dict[str, Any]:
    """Launches a second that one core moves from a ring into a trace."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "trace"))
    from ring_producer import Producer, launch_loop

    from zluda.tracefile import TraceWriter
    from zluda.tracefile.drain import Drain

    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.bin"
        producer = Producer.create(Path(f"{trace}.rings"), ring_bytes=4096 + 400 * (launches + 100))
        launch_loop(producer, launches)
        with TraceWriter.create(trace, {}) as writer:
            moving = Drain(producer.directory, writer)
            start, cpu = time.perf_counter(), time.process_time()
            moving.finish()
            taken, used = time.perf_counter() - start, time.process_time() - cpu
            moved = moving.launches
            moving.close()
    return {"launches": moved, "launches_per_second": moved / taken, "per_cpu_second": moved / used}


def main() -> None:
    parser = argparse.ArgumentParser(description="what recording costs")
    parser.add_argument("program", nargs="?")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--timing", choices=["off", "events"], help="only this one")
    parser.add_argument("--launches", type=int, default=300_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {"cores": os.cpu_count()}
    timings = (options.timing,) if options.timing else ("off", "events")
    result |= (
        overhead(options.program, options.seconds, timings) if options.program else drain(options.launches)
    )
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:24} {value:.3f}" if isinstance(value, float) else f"{name:24} {value}")


if __name__ == "__main__":
    main()
