#!/usr/bin/env python3
"""Collect PTX from public wheels and translate all of it; says what is refused and why. Not part of CI.

Triton, CuPy, numba-cuda, Dr.Jit, Warp and OpenMM are installed from PyPI into virtual environments of their
own, below ``build/public-ptx``; programs in ``scripts/public_ptx`` have them write PTX, which needs no GPU.
(Dr.Jit and OpenMM make theirs at run time, over a ``libcuda.so.1`` that says yes to everything.) Then
each kernel is translated for each target; ``--emit obj`` makes machine code of it as well.

    python scripts/public_ptx.py [triton warp …] [--target cpu --target gfx1030] [--write docs/public-ptx.md]

``--results FILE`` writes the page from what was found before, where the work was spread over processes: a
line of JSON with ``versions`` (package to version) and ``date``, then one for each module, with ``file``
(``…/PACKAGE/NAME.ptx``), ``kernels`` and ``failed`` (target to pairs of kernel and reason). ``--keep FILE``
puts there what was found for the packages that were asked for, and leaves the others' lines.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zluda.compiler.emit import Request, emit_kernels
from zluda.errors import Error
from zluda.ptx import parse_module

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "scripts" / "public_ptx"
WORK = ROOT / "build" / "public-ptx"


@dataclass(frozen=True, slots=True)
class Package:
    """What pip installs; whether PTX is made at run time, for the stand-in driver to keep."""

    requirements: tuple[str, ...]
    runs: bool = False


PACKAGES = {
    "triton": Package(("triton", "numpy")),
    "cupy": Package(("cupy-cuda12x", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12")),
    "numba": Package(("numba-cuda[cu12]",)),
    "drjit": Package(("drjit",), runs=True),
    "warp": Package(("warp-lang",)),
    "openmm": Package(("OpenMM", "OpenMM-CUDA-12"), runs=True),
}


@dataclass(slots=True)
class Tally:
    """A package's kernels: how many there are, and on each target those that were not compiled, by reason."""

    version: str
    modules: int = 0
    kernels: int = 0
    failed: dict[str, collections.Counter[str]] = field(default_factory=dict)
    incomplete: str = ""  # why not all of its PTX was collected
    lines: list[dict[str, Any]] = field(default_factory=list)  # of a file of results, one a module


def environment(name: str) -> Path:
    """The Python of a package's virtual environment, made where there is none."""
    place = WORK / name / "venv"
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES[name].requirements], check=True)
    return python


def version(python: Path, requirement: str) -> str:
    """The installed version of a distribution."""
    code = f"import importlib.metadata as m; print(m.version({requirement.split('[')[0]!r}))"
    return subprocess.run(
        [str(python), "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def driver() -> Path:
    """The directory of the stand-in ``libcuda.so.1``, built with ``cc``."""
    place = WORK / "driver"
    place.mkdir(parents=True, exist_ok=True)
    text = (PROGRAMS / "driver.c").read_text()
    defined = set(re.findall(r"\b(cu[A-Z]\w+) ?\(", text)) | set(
        re.findall(r"(?:ALSO|MAKES) \((cu\w+)", text)
    )
    every = json.loads((ROOT / "zluda" / "driver" / "driver_api.json").read_text())["functions"]
    rest = "\n".join(f"API {name} (void) {{ return 0; }}" for name in every if name not in defined)
    source = place / "driver.c"
    source.write_text(f"{text}\n{rest}\n")
    command = ["cc", "-shared", "-fPIC", "-w", "-O1", "-o", str(place / "libcuda.so.1"), str(source)]
    subprocess.run(command, check=True)
    return place


def collect(name: str) -> Path:
    """The directory with a package's PTX, made where there is none."""
    out = WORK / name / "ptx"
    if out.exists():
        return out
    python = environment(name)
    out.mkdir()
    settings = dict(os.environ)
    if PACKAGES[name].runs:
        place = driver()
        settings |= {"PTX_OUT": str(out), "LD_LIBRARY_PATH": str(place)}
        settings["DRJIT_LIBCUDA_PATH"] = str(place / "libcuda.so.1")
    subprocess.run([str(python), str(PROGRAMS / f"from_{name}.py"), str(out)], env=settings, check=True)
    return out


def reason(said: str) -> str:
    """A failure's reason without its place."""
    return re.sub(r"\s*\(?(?:in )?(?:kernel|function) .*$", "", said).strip(" :,(")


def compile_all(name: str, targets: list[str], kind: str, most: int) -> Tally:
    """Translate a package's kernels, equal files once; ``most`` files at most (0: all).

    ``kind`` is as for ``zluda compile --emit``.
    """
    out = collect(name)
    tally = Tally(version(environment(name), PACKAGES[name].requirements[0]))
    tally.failed = {target: collections.Counter() for target in targets}
    texts = {path.read_bytes(): path for path in sorted(out.glob("**/*.ptx"))}
    for text, path in list(texts.items())[: most or None]:
        tally.modules += 1
        line: dict[str, Any] = {"file": f"{name}/{path.name}", "kernels": 0, "failed": {}}
        tally.lines.append(line)
        try:
            module = parse_module(text, file=path.name)
        except Error as error:
            for target in targets:
                tally.failed[target][reason(str(error))] += 1
                line["failed"][target] = [["", str(error)]]
            continue
        line["kernels"] = len(module.kernel_names)
        tally.kernels += line["kernels"]
        for target in targets:
            for found in emit_kernels(module, module.kernel_names, Request(target=target, kind=kind)):
                if found.failure is not None:
                    tally.failed[target][reason(found.failure.reason)] += 1
                    line["failed"].setdefault(target, []).append([found.kernel, found.failure.reason])
                    print(f"{path.name}: {target}: {found.kernel}: {found.failure.reason}", file=sys.stderr)
    return tally


def read_results(path: Path, targets: list[str]) -> tuple[dict[str, Tally], str]:
    """The tallies that a file of results holds, in the order of the packages, and its date."""
    about, *modules = map(json.loads, path.read_text().splitlines())
    tallies = {name: Tally(about["versions"][name]) for name in PACKAGES if name in about["versions"]}
    for tally in tallies.values():
        tally.failed = {target: collections.Counter() for target in targets}
    for module in modules:
        tally = tallies[Path(module["file"]).parent.name]
        tally.modules += 1
        tally.kernels += module["kernels"]
        for target in targets:
            tally.failed[target].update(reason(said) for _, said in module["failed"].get(target, ()))
    for name, why in about.get("incomplete", {}).items():
        tallies[name].incomplete = why
    return tallies, about["date"]


def keep_results(path: Path, tallies: dict[str, Tally], date: str) -> None:
    """Exchange some packages' lines in a file of results, which is made where there is none."""
    about: dict[str, Any] = {"versions": {}, "incomplete": {}}
    lines: list[dict[str, Any]] = []
    if path.exists():
        about, *lines = map(json.loads, path.read_text().splitlines())
    about["versions"] |= {name: tally.version for name, tally in tallies.items()}
    about["date"] = date
    about["incomplete"] = {n: why for n, why in about.get("incomplete", {}).items() if n not in tallies}
    lines = [line for line in lines if Path(line["file"]).parent.name not in tallies]
    lines += [line for tally in tallies.values() for line in tally.lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (about, *lines)))


def page(tallies: dict[str, Tally], targets: list[str], date: str) -> str:
    """``docs/public-ptx.md``."""
    rows = [*tallies.items(), ("all", _sum(tallies.values(), targets))]
    columns = " | ".join(f"translated for {t}" for t in targets)
    lines = [
        "# PTX of public packages",
        "",
        "`python scripts/public_ptx.py` installs the packages from PyPI, has them make PTX without a GPU,",
        f"and translates every kernel of what they made to LLVM IR. Of {date}; this page is made from the",
        "results kept then (`--results scripts/public_ptx/results.jsonl --write docs/public-ptx.md`).",
        "That a kernel is translated says that nothing in it is refused, not that its results were looked",
        "at: for that, see [conformance](conformance.md).",
        "",
        f"| package | version | modules | kernels | {columns} |",
        f"|---|---|---|---|{'---|' * len(targets)}",
    ]
    for name, tally in rows:
        counts = " | ".join(str(tally.kernels - tally.failed[t].total()) for t in targets)
        lines.append(f"| {name} | {tally.version} | {tally.modules} | {tally.kernels} | {counts} |")
    partial = [f"* {name}: {tally.incomplete}" for name, tally in tallies.items() if tally.incomplete]
    if partial:
        lines += ["", "Not all that these packages can make is here:", "", *partial]
    refused = [
        f"| {name} | {target} | {what} | {count} |"
        for name, tally in tallies.items()
        for target in targets
        for what, count in tally.failed[target].most_common()
    ]
    if refused:
        lines += [
            "",
            "| package | target | not translated: the reason | kernels |",
            "|---|---|---|---|",
            *refused,
        ]
    return "\n".join(lines) + "\n"


def _sum(tallies: Iterable[Tally], targets: list[str]) -> Tally:
    total = Tally("", failed={target: collections.Counter() for target in targets})
    for tally in tallies:
        total.modules += tally.modules
        total.kernels += tally.kernels
        for target in targets:
            total.failed[target] += tally.failed[target]
    return total


def main() -> int:
    """Collect, translate, tell."""
    parser = argparse.ArgumentParser(description="Translate the PTX of public packages.")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(PACKAGES))
    parser.add_argument("--target", action="append", help="cpu, gfx1030 (both, unless given)")
    parser.add_argument("--emit", choices=["llvm", "obj"], default="llvm", help="obj: to machine code")
    parser.add_argument("--most", type=int, default=0, help="so many modules of each package at most")
    parser.add_argument("--results", type=Path, help="write the page from these, and translate nothing")
    parser.add_argument("--keep", type=Path, help="put what is found into this file of results")
    parser.add_argument("--write", type=Path, help="write the page there")
    arguments = parser.parse_args()
    targets = arguments.target or ["cpu", "gfx1030"]
    if arguments.results:
        tallies, date = read_results(arguments.results, targets)
    else:
        chosen = arguments.packages or PACKAGES
        tallies = {name: compile_all(name, targets, arguments.emit, arguments.most) for name in chosen}
        date = datetime.date.today().isoformat()
        if arguments.keep:
            keep_results(arguments.keep, tallies, date)
    text = page(tallies, targets, date)
    if arguments.write:
        arguments.write.write_text(text)
    print(text)
    return int(any(counts for tally in tallies.values() for counts in tally.failed.values()))


if __name__ == "__main__":
    sys.exit(main())
