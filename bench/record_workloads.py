"""What recording costs whole programs, side by side with the unrecorded run.

On an NVIDIA host with PyTorch and Triton, and the program of ``record_nbody.cu`` built:

    python -m bench.record_workloads [--nbody PROGRAM] [--only NAME …] [--json]

The ratio is of a step's time as the program itself measures it. Where memory is captured, it is said what was
moved of what copies of all reachable memory would have been, and what the time went to: waiting for the GPU,
finding and taking what changed, and, of that, handing it over.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import recorder
from zluda.records import dataclass
from zluda.tracefile import open_trace

WORKLOADS = Path(__file__).resolve().parent / "workloads"


@dataclass(frozen=True)
class Workload:
    """``command`` begins with a script of ``workloads/``, or ``nbody``; ``wanted`` is a ratio."""

    name: str
    command: tuple[str, ...]
    options: tuple[str, ...]
    wanted: float


ALL = (
    Workload("training", ("torch_step.py", "60"), ("--capture", "calls", "--timing", "off"), 1.05),
    Workload("training, timed", ("torch_step.py", "60"), ("--capture", "calls"), 1.05),
    *(
        Workload(
            f"triton {length} x {width}", ("triton_block.py", "20", length, width), ("--capture", "full"), 3
        )
        for length, width in (("256", "512"), ("2048", "2048"))
    ),
    Workload("sample", ("torch_run.py", "1000"), ("--sample", "3"), 1.15),
    *(
        Workload(f"nbody {bodies}", ("nbody", str(bodies), "60"), ("--capture", "full"), 3)
        for bodies in (16384, 65536, 131072)
    ),
)


def step_ms(command: list[str]) -> tuple[float, str]:
    """Milliseconds a step, as the program says, and all that it printed but that."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    found = re.search(r"([\d.]+) ms a step", done.stdout)
    if done.returncode or found is None:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return float(found[1]), done.stdout.replace(found[0], "")


def measure(workload: Workload, nbody: Path | None) -> dict[str, Any]:
    """The unrecorded run, the recorded one, and what the trace says of it."""
    first, *arguments = workload.command
    program = [str(nbody)] if first == "nbody" else [sys.executable, str(WORKLOADS / first)]
    plain, printed = step_ms([*program, *arguments])
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace.bin"
        line = recorder.command(trace, *workload.options)
        recorded, told = step_ms([*line, *program, *arguments])
        if told != printed:
            raise SystemExit(f"{workload.name}: recorded, it printed {told!r}, else {printed!r}")
        with open_trace(trace) as opened:
            meta, launches, gaps = opened.meta, opened.counts().launches, len(opened.gaps)
        size = trace.stat().st_size
    return {
        "name": workload.name,
        "options": " ".join(workload.options),
        "plain_ms": plain,
        "recorded_ms": recorded,
        "ratio": recorded / plain,
        "wanted": workload.wanted,
        "launches": launches,
        "gaps": gaps,
        "file_bytes": size,
        **{name: meta.get(name, 0) for name in ("bytes_looked_at", "bytes_moved", "stall_ns")},
        **{name: meta.get(name, 0) for name in ("wait_ns", "look_ns", "write_ns")},
    }


def lines(row: dict[str, Any]) -> str:
    """A row, readable."""
    text = (
        f"{row['name']} ({row['options']}): {row['recorded_ms']:.3f} ms a step, {row['ratio']:.2f} times the"
        f" unrecorded {row['plain_ms']:.3f}, wanted <= {row['wanted']}; {row['launches']} launches"
    )
    if not row["bytes_looked_at"]:
        return text
    share = row["bytes_moved"] / row["bytes_looked_at"]
    parts = {"waiting": row["wait_ns"], "searching": row["look_ns"], "of it handing over": row["write_ns"]}
    parts["for room"] = row["stall_ns"]
    spent = ", ".join(f"{name} {ns / 1e9:.3f} s" for name, ns in parts.items())
    return f"{text}\n  moved {share:.1%} of {row['bytes_looked_at'] >> 20} MiB; {spent}"


def main() -> None:
    parser = argparse.ArgumentParser(description="what recording costs whole programs")
    parser.add_argument("--nbody", type=Path, help="record_nbody.cu, built")
    parser.add_argument("--only", nargs="*", help="names of workloads, or how they begin")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for workload in ALL:
        if workload.command[0] == "nbody" and options.nbody is None:
            continue
        if options.only and not workload.name.startswith(tuple(options.only)):
            continue
        row = measure(workload, options.nbody)
        print(json.dumps(row) if options.json else lines(row), flush=True)


if __name__ == "__main__":
    main()
