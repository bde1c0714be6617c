"""What recording a few launches of each kernel costs a long run: 1,000 training steps in PyTorch, with
``zluda trace --sample 3`` and without.

On an NVIDIA host with PyTorch:

    python -m bench.record_sample [--steps 1000] [--runs 2] [--json] [-- OPTION…]

What comes after ``--`` is given to ``zluda trace`` in place of ``--sample 3``. Both ratios are to the
unrecorded run beside it: of the time of the steps as the program itself measures it, and of the whole
program, start and import of PyTorch included.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from zluda.tracefile import open_trace

PROGRAM = Path(__file__).with_name("record_sample_torch.py")


def timed(command: list[str]) -> tuple[str, float, float]:
    """What it printed, the seconds of its steps, the seconds of all of it."""
    start = time.perf_counter()
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    whole = time.perf_counter() - start
    found = re.search(r"([\d.]+) s for", ran.stderr)
    if found is None:
        raise SystemExit(f"the program printed no time: {ran.stderr[-500:]!r}")
    return ran.stdout, float(found[1]), whole


def measure(steps: int, runs: int, options: list[str]) -> dict[str, Any]:
    """The best of ``runs`` runs of either kind, taken in turn."""
    program = [sys.executable, str(PROGRAM), str(steps)]
    plain: list[list[float]] = []
    recorded: list[list[float]] = []
    printed = set()
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.bin"
        recorder = [sys.executable, "-m", "zluda", "trace", "-o", str(trace), "--no-verify"]
        recorder += [*options, "--"]
        for _ in range(runs):
            for times, line in ((plain, program), (recorded, recorder + program)):
                text, *seconds = timed(line)
                times.append(seconds)
                printed.add(text)
        with open_trace(trace) as opened:
            counts, meta = opened.counts(), opened.meta
            looked_at = sum(1 for launch in opened.iter_launches() if launch.captured)
        size = trace.stat().st_size
    best = [[min(column) for column in zip(*times, strict=True)] for times in (plain, recorded)]
    return {
        "options": options,
        "steps": steps,
        "plain_seconds": best[0],
        "recorded_seconds": best[1],
        "ratio_of_steps": best[1][0] / best[0][0],
        "ratio_of_whole": best[1][1] / best[0][1],
        "prints_the_same": len(printed) == 1,
        "launches": counts.launches,
        "launches_with_memory": looked_at,
        "bytes_moved": meta["bytes_moved"],
        "stall_seconds": meta["stall_ns"] / 1e9,
        "file_bytes": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="what recording a few launches of each kernel costs")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("options", nargs="*", default=[])
    given = parser.parse_args()
    row = measure(given.steps, given.runs, given.options or ["--sample", "3"])
    if given.json:
        print(json.dumps(row))
        return
    print(
        f"zluda trace {' '.join(row['options'])}, {row['steps']} steps: {row['ratio_of_steps']:.2f} times the"
        f" unrecorded steps ({row['recorded_seconds'][0]:.2f} s to {row['plain_seconds'][0]:.2f} s),"
        f" {row['ratio_of_whole']:.2f} times the whole program"
        f" ({row['recorded_seconds'][1]:.2f} s to {row['plain_seconds'][1]:.2f} s); memory of"
        f" {row['launches_with_memory']:,} of {row['launches']:,} launches,"
        f" {row['bytes_moved'] >> 20} MiB moved, {row['file_bytes'] >> 20} MiB in the file,"
        f" waited {row['stall_seconds']:.2f} s for the recorder;"
        f" prints {'the same' if row['prints_the_same'] else 'OTHERWISE'}"
    )


if __name__ == "__main__":
    main()
