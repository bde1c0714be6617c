#!/usr/bin/env python3
"""Compile the kernels of Blender's Cycles for the CPU and an AMD GPU: up to 20,000 instructions each.

The PTX is that of PyPI's ``bpy`` 5.3.0 (``kernel_compute_75.ptx``, 78 entries); the wheel (408 MB) is
fetched, not installed. Each kernel is compiled by a process of its own, ``zluda compile --kernel``, which
gets 60 s of processor time (its wall time on a machine that does nothing else) and 4 GiB of address space.
What fails is listed with its reason; the exit status is 1 if any did.

    python scripts/blender_ptx.py --jobs 8 --json build/blender.json
    python scripts/blender_ptx.py --read build/blender.json --docs docs/blender.md
    python scripts/blender_ptx.py --ptx kernel_compute_75.ptx --kernel kernel_gpu_integrator_reset
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

WHEEL, PYTHON = "bpy==5.3.0", "3.13"
MEMBER = "*/cycles/lib/kernel_compute_75.ptx.zst"
SECONDS, BYTES = 60, 4 << 30
PATIENCE = 1200  # seconds of wall time, on a machine that does much else


@dataclass(frozen=True, slots=True)
class Result:
    """One kernel for one target: seconds by the clock and of processors, peak resident MB, bytes of code."""

    kernel: str
    target: str
    ok: bool
    wall: float
    processor: float
    megabytes: float
    bytes: int
    reason: str = ""


def blender_ptx() -> Path:
    """The PTX file, unpacked beside the wheel."""
    import zstandard
    from wheels import WHEELS, fetch, members

    path = WHEELS / "kernel_compute_75.ptx"
    if not path.exists():
        [(_, packed)] = members(fetch(WHEEL, python=PYTHON), [MEMBER])
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            path.write_bytes(reader.read())
    return path


def compile_one(path: Path, kernel: str, target: str, seconds: int = SECONDS) -> Result:
    """Compile a kernel in a process of its own, within the limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))

    with tempfile.TemporaryDirectory() as place:
        output, errors = Path(place, "code.o"), Path(place, "errors")
        command = [sys.executable, "-m", "zluda", "compile", str(path), "--kernel", kernel]
        command += ["--target", target, "--emit", "obj", "-j", "1", "-o", str(output)]
        environment = {**os.environ, "ZLUDA_CACHE_POLICY": "off"}
        began = time.perf_counter()
        with open(errors, "wb") as said:
            process = subprocess.Popen(
                command, stderr=said, env=environment, preexec_fn=limit, start_new_session=True
            )
            late = _wait(process.pid, began + PATIENCE)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        words = errors.read_text(errors="replace").strip().splitlines()
        reason = f"took longer than {PATIENCE} s" if late else words[-1] if words else ""
        ok = process.returncode == 0 and not late
        return Result(
            kernel=kernel,
            target=target,
            ok=ok,
            wall=round(wall, 2),
            processor=round(usage.ru_utime + usage.ru_stime, 2),
            megabytes=round(usage.ru_maxrss / 1024, 1),
            bytes=output.stat().st_size if ok else 0,
            reason="" if ok else reason or f"status {process.returncode}",
        )


def _wait(pid: int, until: float) -> bool:
    """Until a process has ended (and is still to be reaped) or time is up; then its session is killed."""
    while time.perf_counter() < until:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return False
        time.sleep(0.02)
    os.killpg(pid, 9)
    return True


def longest_first(text: str, kernels: list[str]) -> list[str]:
    """Kernels by the length of their text and that of all that they call."""
    parts = re.split(r"^(?=\.(?:visible \.|weak \.)?(?:entry|func)\b)", text, flags=re.MULTILINE)
    bodies: dict[str, str] = {}
    for part in parts[1:]:
        head, brace, body = part.partition("{")
        named = re.search(r"([\w$]+)\s*\(", re.sub(r"^\S*(?: \S*)?\s+\(.*?\)", "", head, flags=re.DOTALL))
        if brace and named:
            bodies[named[1]] = body.partition("\n}")[0]
    calls = {n: set(re.findall(r"[\w$]{3,}", b)) & bodies.keys() for n, b in bodies.items()}

    def size(kernel: str) -> int:
        reached, stack = set[str](), [kernel]
        while stack:
            name = stack.pop()
            if name not in reached:
                reached.add(name)
                stack += calls.get(name, ())
        return sum(len(bodies.get(n, "")) for n in reached)

    return sorted(kernels, key=size, reverse=True)


BEGIN, END = "<!-- kernels: made by scripts/blender_ptx.py -->\n", "<!-- end of kernels -->"


def table(results: list[Result]) -> str:
    """All kernels, a row each: for every target processor seconds, peak MB and KB of code."""
    targets = list(dict.fromkeys(r.target for r in results))
    found = {(r.kernel, r.target): r for r in results}
    kernels = sorted({r.kernel for r in results}, key=lambda k: -max(found[k, t].processor for t in targets))
    lines = ["| kernel | " + " | ".join(f"{t}: s | MB | KB of code" for t in targets) + " |"]
    lines.append("|---" * (1 + 3 * len(targets)) + "|")
    for kernel in kernels:
        cells = []
        for result in (found[kernel, t] for t in targets):
            took, size = f"{result.processor:.1f}", f"{result.bytes / 1024:,.0f}"
            cells += [took, f"{result.megabytes:,.0f}", size if result.ok else result.reason]
        lines.append(f"| `{kernel.removeprefix('kernel_gpu_')}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write_docs(page: Path, results: list[Result]) -> None:
    """The table into a page, between its marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page} has no marks for the table")
    page.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


def summary(results: list[Result], target: str) -> str:
    """One line: how many, the slowest, the largest."""
    mine = [r for r in results if r.target == target]
    done = [r for r in mine if r.ok]
    line = f"{target}: {len(done)} of {len(mine)} kernels"
    if done:
        slow, large = max(done, key=lambda r: r.wall), max(done, key=lambda r: r.megabytes)
        line += f"; slowest {slow.wall} s ({slow.kernel}), largest {large.megabytes} MB ({large.kernel}), "
        line += f"{sum(r.processor for r in done):.0f} s of processors in all"
    return line


def main() -> int:
    """Compile all, print a row each and the summaries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ptx", type=Path, help="the PTX file; else it is fetched")
    parser.add_argument("--target", action="append", help="cpu, gfx1030 (both, unless given)")
    parser.add_argument("--kernel", action="append", help="these only")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of processor time for each")
    parser.add_argument("--json", type=Path, help="write all results there")
    parser.add_argument("--read", type=Path, help="compile nothing: results written by --json")
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    arguments = parser.parse_args()
    if arguments.read:
        results = [Result(**r) for r in json.loads(arguments.read.read_text())]
        targets = list(dict.fromkeys(r.target for r in results))
    else:
        targets = arguments.target or ["cpu", "gfx1030"]
        results = compile_all(arguments, targets)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1))
    if arguments.docs:
        write_docs(arguments.docs, results)
    print("\n".join(summary(results, target) for target in targets))
    return int(any(not r.ok for r in results))


def compile_all(arguments: argparse.Namespace, targets: list[str]) -> list[Result]:
    """Compile every kernel for every target, long ones first, and print a row each."""
    path = arguments.ptx or blender_ptx()
    names = re.findall(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", text := path.read_text(), re.MULTILINE)
    wanted = [name for name in names if not arguments.kernel or name in arguments.kernel]
    kernels = longest_first(text, wanted)
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        tasks = [(kernel, target) for kernel in kernels for target in targets]
        for result in pool.map(lambda task: compile_one(path, task[0], task[1], arguments.seconds), tasks):
            results.append(result)
            row = f"{result.wall:7.2f} s {result.processor:7.2f} s {result.megabytes:7.0f} MB"
            print(f"{result.target:8} {row} {result.bytes:9}  {result.kernel}  {result.reason}", flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
