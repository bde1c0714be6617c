"""What capturing memory costs a program that computes: n-body with all pairs, with and without the recorder.

On an NVIDIA host, with the program of ``record_nbody.cu`` built:

    python -m bench.record_capture PROGRAM [--bodies 65536] [--steps 60] [--json]

The ratio is of a step's time as the program itself measures it, to the unrecorded run beside it. Of ``full``,
which looks before and after each launch, the share that was moved is that of what copies of whole allocations
would have been. (Two of the three buffers change in every step, so it cannot be less than a third here.)
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import recorder
from zluda.tracefile import open_trace

CAPTURES = ("calls", "outputs", "full")


def step_ms(command: list[str]) -> float:
    """Milliseconds a step, as the program says."""
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"([\d.]+) ms a step", printed)
    if found is None:
        raise SystemExit(f"{command[0]} printed no time of a step: {printed!r}")
    return float(found[1])


def measure(program: list[str]) -> list[dict[str, Any]]:
    """A row for each way of capturing."""
    plain = step_ms(program)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for capture in CAPTURES:
            trace = Path(directory) / f"{capture}.bin"
            recorded = step_ms([*recorder.command(trace, "--capture", capture), *program])
            with open_trace(trace) as opened:
                looked, moved = opened.meta["bytes_looked_at"], opened.meta["bytes_moved"]
            rows.append(
                {
                    "capture": capture,
                    "plain_ms": plain,
                    "recorded_ms": recorded,
                    "ratio": recorded / plain,
                    "bytes_looked_at": looked,
                    "bytes_moved": moved,
                    "file_bytes": trace.stat().st_size,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="what capturing memory costs")
    parser.add_argument("program", help="record_nbody.cu, built")
    parser.add_argument("--bodies", type=int, default=65536)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure([str(Path(options.program).resolve()), str(options.bodies), str(options.steps)])
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        share = row["bytes_moved"] / row["bytes_looked_at"] if row["bytes_looked_at"] else 0
        print(
            f"--capture {row['capture']}: {row['recorded_ms']:.3f} ms a step, {row['ratio']:.2f} times the"
            f" unrecorded {row['plain_ms']:.3f}; moved {share:.0%} of {row['bytes_looked_at'] >> 20} MiB"
        )


if __name__ == "__main__":
    main()
