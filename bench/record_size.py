"""What a long recording takes: bytes a call on disk, memory of the process that writes it, and how fast the
trace opens.

    python -m bench.record_size [--calls 1000000]

Launches come from rings made up in memory and go through the same drain and writer as those of a program. The
writer's memory is the largest anonymous resident set of its process; opening, counting and listing the first
page are timed in a fresh process, imports included and the file in the system's cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, "tests/trace")
from ring_producer import Producer, launch_loop
calls = int(sys.argv[2])
producer = Producer.create(Path(sys.argv[1]), ring_bytes=4096 + 400 * (calls + 100))
producer.clock = 40 * 86_400 * 10**9  # a machine that was started 40 days ago: times of 8 bytes
producer.set_word("THREAD", 1234567)
launch_loop(producer, calls - 2, stream=int(sys.argv[3]))
"""
_DRAIN = """
import sys, time
from pathlib import Path
from zluda.tracefile import TraceWriter
from zluda.tracefile.drain import Drain
largest, moving = 0, True
with TraceWriter.create(Path(sys.argv[2]), {}) as writer:
    drain = Drain(Path(sys.argv[1]), writer)
    while moving:
        moving = drain.step()
        fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
        largest = max(largest, int(fields["RssAnon"].split()[0]))
    drain.finish()
    drain.close()
fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(largest / 1024, int(fields["VmHWM"].split()[0]) / 1024)
"""
_OPEN = """
import itertools, sys
from zluda.tracefile import open_trace
with open_trace(sys.argv[1]) as trace:
    counts = trace.counts()
    page = list(itertools.islice(trace.iter_calls(), 50))
print(counts.calls, len(page))
"""


def python(program: str, *arguments: str | Path | int) -> list[float]:
    """The numbers that a program prints, run in a process of its own."""
    line = [sys.executable, "-c", program, *map(str, arguments)]
    root = Path(__file__).parent.parent
    done = subprocess.run(line, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description="what a long recording takes")
    parser.add_argument("--calls", type=int, default=1_000_000)
    options = parser.parse_args()
    for name, stream in (("the default stream", 0), ("a stream of its own", 0x55D0_1234_5678)):
        print(f"launches on {name}")
        measure(options.calls, stream)


def measure(calls: int, stream: int) -> None:
    """Print what a recording of so many launches takes."""
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.bin"
        rings = Path(f"{directory}/rings")
        python(_MAKE, rings, calls, stream)
        own, resident = python(_DRAIN, rings, trace)
        size = trace.stat().st_size
        python(_OPEN, trace)  # the file and the code are in the system's cache
        start = time.perf_counter()
        counted, listed = python(_OPEN, trace)
        seconds = time.perf_counter() - start
    print(f"  {counted:,.0f} calls: {size / counted:.1f} bytes a call on disk (aim: at most 120)")
    print(f"  the process that writes them: {own:.0f} MiB of its own, {resident:.0f} MiB with its rings")
    print(f"  opened, counted, first {listed:.0f} listed: {seconds:.2f} s, Python's start included (aim: 1)")


if __name__ == "__main__":
    main()
