"""Run every benchmark and print, or write to a page, what each says.

    python -m bench [--write docs/benchmarks.md] [NAME …]

A benchmark is a module of this package with a ``main()`` that prints one line a figure. Those that need an
NVIDIA GPU are not run here: what they printed on one is kept in ``bench/recorded/`` and copied to the page.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# name → what it measures
BENCHMARKS = {
    "startup": "Start-up",
    "parse": "Parsing PTX",
    "compile": "Compiling, against ptxas; a kernel's first launch",
    "conformance": "Compiling and running kernels on the CPU device",
    "numerics": "Native numerics against exact models on the CPU; what envelopes cost",
    "tensor_cores": "Tensor-core instructions on the CPU device",
    "runner": "The runner's channel",
    "comparing": "Comparing buffers that differ",
    "emulator": "The AMD emulator, beside the prototype that it replaced",
    "amd_code": "AMD code from PTX against clang's from OpenCL C",
    "record_overhead": "Recording: the drain",
    "record_size": "Recording: size, memory, opening",
}


def machine() -> str:
    """Processor, cores, kernel and Python, in one line."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.release()}"
    return f"{model}, {cores} cores, {system}, Python {platform.python_version()}"


def run(name: str) -> str:
    """What one benchmark prints; a failing one is reported in its place and makes the exit status 1."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}"], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return f"FAILED with status {done.returncode}\n{done.stdout}{done.stderr}".rstrip()
    return done.stdout.rstrip()


def page(outputs: dict[str, str]) -> str:
    """The Markdown page."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = ["# Benchmarks", "", "Written by `make bench`; figures of one section come from one run.", ""]
    lines += [f"Machine: {machine()}; {date}.", ""]
    for name, output in outputs.items():
        lines += [f"## {BENCHMARKS[name]}", "", f"`python -m bench.{name}`", "", "```", output, "```", ""]
    for path in sorted((HERE / "recorded").glob("*.txt")):
        title, _, text = path.read_text().partition("\n")
        lines += [f"## {title}", "", "```", text.strip(), "```", ""]
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run the benchmarks.")
    parser.add_argument(
        "names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME", help=", ".join(BENCHMARKS)
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write a Markdown page")
    options = parser.parse_args()
    outputs: dict[str, str] = {}
    for name in options.names or BENCHMARKS:
        outputs[name] = run(name)
        print(f"{BENCHMARKS[name]}\n{outputs[name]}\n", flush=True)
    if options.write:
        options.write.write_text(page(outputs))
    return 1 if any(text.startswith("FAILED") for text in outputs.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
