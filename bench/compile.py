"""Compiling, against ptxas on the same PTX; and how long a kernel's first launch takes.

The PTX is that of the corpus traces, and a module of a hundred kernels made of it. Fresh processes, started
by turns: ``zluda compile --target gfx1030 --emit hsaco`` without the kernel cache, ``ptxas -arch=sm_90a``.
Wall time is what a user waits; processor time (of all processes, user and system) is hardly changed by what
else the machine does. *Beyond start*: what one process of each takes more for a module than for an empty one.
*The floor*: a Python process that does nothing but import LLVM's bindings and the command line's library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zluda.ptx import parse_module
from zluda.tracefile import open_trace

ROOT = Path(__file__).resolve().parents[1]
RUNS = 5
MANY = 100  # kernels in the large module
TARGET = "gfx1030"
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
TYPICAL = 200  # PTX instructions

LAUNCH = """
import json, sys, time
import numpy, zluda
text, name = open(sys.argv[1]).read(), sys.argv[2]
device = zluda.open_device("cpu")
kernel = device.load_module(text).kernel(name)
room = device.array(numpy.zeros(1 << 16, numpy.uint8))
args = [room if p.size == 8 else bytes(p.size) for p in kernel.parameters]
times = []
for _ in range(2):
    began = time.perf_counter()
    kernel.launch(grid=1, block=64, args=args)
    times.append(time.perf_counter() - began)
print(json.dumps(times))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds: by the clock, and of processors."""

    wall: float
    processor: float


def measure(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """A fresh process from start to exit; raises CalledProcessError unless its status is 0."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(environment), cwd=ROOT
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def corpus_modules() -> dict[str, str]:
    """The PTX of each corpus program."""
    found = {}
    for path in sorted(ROOT.glob("corpus/*/trace.bin")):
        with open_trace(path) as trace:
            for module in trace.module_list:
                text = trace.ptx(module)
                if text is not None:
                    found[path.parent.name] = text.decode().rstrip("\0")
    return found


def many(modules: Sequence[str], count: int) -> str:
    """One module of ``count`` kernels or a few more: those of ``modules`` over and over, renamed."""
    parts, kernels = [HEADER], 0
    while kernels < count:
        text = modules[len(parts) % len(modules)]
        module = parse_module(text)
        body = text[re.search(r"\.address_size\s+64", text).end() :]  # type: ignore[union-attr]
        for name in {*module.function_names, *module.variables}:
            body = re.sub(rf"\b{re.escape(name)}(?=\b|_param)", f"{name}_{len(parts)}", body)
        parts.append(body)
        kernels += len(module.kernel_names)
    return "\n".join(parts)


def commands(path: Path, place: Path) -> dict[str, list[str]]:
    """What is compared: both write machine code of all kernels."""
    output = str(place / "out")
    (place / "out").mkdir(exist_ok=True)
    zluda = [sys.executable, "-m", "zluda", "compile", str(path), "--target", TARGET, "--emit", "hsaco"]
    return {
        "zluda": [*zluda, "-o", output],
        "ptxas": ["ptxas", "-arch=sm_90a", str(path), "-o", str(place / "out.cubin")],
    }


def floor(environment: Mapping[str, str]) -> Cost:
    """The least of several processes that import what ``zluda compile`` cannot do without."""
    command = [sys.executable, "-c", "import click, llvmlite.binding"]
    costs = [measure(command, environment) for _ in range(RUNS + 1)]
    return Cost(min(c.wall for c in costs), min(c.processor for c in costs))


def translates(name: str, text: str, place: Path, environment: Mapping[str, str]) -> bool:
    """Whether all kernels of a module can be compiled; what cannot be compared is said."""
    path = place / "module.ptx"
    path.write_text(text)
    try:
        measure(commands(path, place)["zluda"], environment)
    except subprocess.CalledProcessError:
        print(f"{name}: left out, {TARGET} does not have all of it")
        return False
    return True


def compare(path: Path, place: Path, environment: Mapping[str, str]) -> dict[str, Cost]:
    """Medians of both, by turns; the first round only warms up."""
    costs: dict[str, list[Cost]] = {"zluda": [], "ptxas": []}
    for round_number in range(RUNS + 1):
        for name, command in commands(path, place).items():
            cost = measure(command, environment)
            if round_number:
                costs[name].append(cost)
    return {
        name: Cost(statistics.median(c.wall for c in found), statistics.median(c.processor for c in found))
        for name, found in costs.items()
    }


def line(name: str, kernels: int, found: Mapping[str, Cost]) -> str:
    """One row of the table."""
    ours, theirs = found["zluda"], found["ptxas"]
    return (
        f"{name:24} {kernels:7} {ours.wall:8.3f} {theirs.wall:8.3f} {ours.wall / theirs.wall:7.1f}x "
        f"{ours.processor:8.3f} {theirs.processor:8.3f} {ours.processor / theirs.processor:7.1f}x"
    )


def print_compile(place: Path, environment: Mapping[str, str]) -> None:
    """The table against ptxas."""
    if shutil.which("ptxas") is None:
        print("skipped: no ptxas to compare with")
        return
    modules = {n: t for n, t in corpus_modules().items() if translates(n, t, place, environment)}
    ordinary = [text for text in modules.values() if "sm_90a" not in text]  # without tensor cores
    modules[f"{MANY} kernels of these"] = many(ordinary, MANY)
    empty = place / "empty.ptx"
    empty.write_text(HEADER + ".visible .entry empty() { ret; }\n")
    print(f"{'':24} {'':7} {'wall s':^26} {'processor s':^26}")
    columns = f"{'zluda':>8} {'ptxas':>8} {'ratio':>8}"
    print(f"{'module':24} {'kernels':>7} {columns} {columns}")
    start = compare(empty, place, environment)
    print(line("an empty kernel", 1, start))
    least = floor(environment)
    ratios, out_of_reach = [], []
    for name, text in modules.items():
        path = place / "module.ptx"
        path.write_text(text)
        found = compare(path, place, environment)
        ratios.append(found["zluda"].wall / found["ptxas"].wall)
        if 3 * found["ptxas"].wall < least.wall:
            out_of_reach.append(name)
        print(line(name, len(parse_module(text).kernel_names), found), flush=True)
    last = {tool: found[tool].wall - start[tool].wall for tool in found}
    print(f"geometric mean of the walls' ratios {statistics.geometric_mean(ratios):.1f}x, wanted <= 3x")
    print(f"the floor: {least.wall:.3f} s, {least.processor:.3f} s of a processor")
    print(f"three times ptxas's time is less than that for {', '.join(out_of_reach) or 'no module'}")
    beyond = last["zluda"] / last["ptxas"]
    both = f"{last['zluda']:.2f} s to {last['ptxas']:.2f} s"
    print(f"{MANY} kernels beyond start: {both}, {beyond:.1f}x, wanted <= 3x")


def typical_kernel() -> tuple[str, str, int]:
    """(module, kernel, instructions): of the corpus, the nearest to :data:`TYPICAL` instructions."""
    found = [
        (
            abs(len(module.function(name).instructions) - TYPICAL),
            text,
            name,
            len(module.function(name).instructions),
        )
        for text in corpus_modules().values()
        for module in [parse_module(text)]
        for name in module.kernel_names
    ]
    _, text, name, count = min(found)
    return text, name, count


def print_first_launch(place: Path, environment: Mapping[str, str]) -> None:
    """Compiled, and found in the cache by another process."""
    text, name, count = typical_kernel()
    path = place / "typical.ptx"
    path.write_text(text)
    times: dict[str, list[float]] = {"compiled": [], "from the cache": []}
    again = []
    for run in range(RUNS + 1):
        cache = {**environment, "ZLUDA_CACHE_DIR": str(place / f"cache{run}"), "ZLUDA_CACHE_POLICY": "normal"}
        for found in times.values():
            command = [sys.executable, "-c", LAUNCH, str(path), name]
            done = subprocess.run(command, env=cache, check=True, capture_output=True, text=True, cwd=ROOT)
            first, second = json.loads(done.stdout)
            if run:  # the first round only warms up
                found.append(first)
                again.append(second)
    for kind, wanted in (("compiled", 150), ("from the cache", 20)):
        median = 1e3 * statistics.median(times[kind])
        print(
            f"first launch of {count} PTX instructions on cpu, {kind}: {median:.1f} ms, wanted < {wanted} ms"
        )
    print(f"the next launch: {1e3 * statistics.median(again):.3f} ms")


def main() -> None:
    """Print the table and the latencies."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        environment = {
            **os.environ,
            "ZLUDA_CACHE_POLICY": "off",
            "PYTHONPYCACHEPREFIX": str(place / "bytecode"),  # as an installed package has it
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        print_compile(place, environment)
        print_first_launch(place, environment)


if __name__ == "__main__":
    main()
