"""Hold the contraction pass to ptxas: do a kernel and what the pass makes of it give the same machine code?

For each kernel of each PTX file: the module is assembled as it is, and again with every function rewritten by
:func:`zluda.compiler.contract.rewrite.rewrite`, in which nothing is left for ptxas to decide. The kernels
agree if their floating-point instructions, by opcode and modifiers, are as many. With ``--random N``, N
kernels of ``tests/compiler/contract/contraction_kernels.py`` are judged: straight code, branches and loops.
With ``--results FILE`` (``record_contraction.py`` wrote it) nothing is assembled: the CPU device's results of
those kernels are compared with the kept ones, bit for bit.

    python scripts/judge_contraction.py --random 300 --seed 1000
    python scripts/judge_contraction.py --results h200.npz --random 300
    python scripts/judge_contraction.py corpus/*/*.ptx --arch sm_90 --verbose

Needs ptxas and nvdisasm (``pip install nvidia-cuda-nvdisasm``; or ``--nvdisasm PATH``).
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy

from zluda.compiler.contract.kinds import may_change
from zluda.compiler.contract.rewrite import rewrite
from zluda.errors import PtxError
from zluda.ptx import Module, parse_module
from zluda.ptx.printer import print_function, print_module

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "compiler" / "contract"))

import contraction_kernels
import record_contraction

BATCH = 100
"""Random kernels a module: starting the disassembler takes longer than ten kernels."""
Counts = collections.Counter[str]
_FLOATING = re.compile(r"\b(FFMA|FMUL|FADD|DFMA|DMUL|DADD|HFMA2|HMUL2|HADD2|MUFU)([.\w]*)")
_FUNCTION = re.compile(r"^\s*(?:\.text\.|\.section\s+\.text\.)([\w$]+)")


def assembled(ptx: str, arch: str) -> bytes:
    """The machine code, as ptxas makes it; else CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "a.ptx"), Path(folder, "a.cubin")
        source.write_text(ptx)
        ptxas = ["ptxas", f"-arch={arch}", str(source), "-o", str(cubin)]
        subprocess.run(ptxas, check=True, capture_output=True, text=True)
        return cubin.read_bytes()


def counted(cubin: bytes, nvdisasm: str) -> dict[str, Counts]:
    """Function to the number of each floating-point instruction; else CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.cubin")
        path.write_bytes(cubin)
        listing = subprocess.run(
            [nvdisasm, "-c", str(path)], check=True, capture_output=True, text=True
        ).stdout
    found: dict[str, Counts] = {}
    name = ""
    for line in listing.splitlines():
        header = _FUNCTION.match(line)
        if header:
            name = header[1]
        for opcode, modifiers in _FLOATING.findall(line):
            if not (opcode == "HFMA2" and "RZ" in line and ".MMA" not in line and "-RZ, RZ" in line):
                found.setdefault(name, collections.Counter())[opcode + modifiers] += 1
    return found


def rewritten(module: Module) -> str:
    """The module's text with every function's contraction decided."""
    functions = {n: module.function(n) for n in module.function_names}
    text = print_module(module)
    for function in functions.values():
        if function.body is not None and may_change(function):
            text = text.replace(
                print_function(function), print_function(rewrite(function, keep_products=True))
            )
    return text


def judge(text: str, name: str, arch: str, nvdisasm: str) -> Iterator[tuple[str, Counts, Counts]]:
    """(kernel, ptxas's counts, the rewritten text's counts) of each kernel that the pass could change."""
    text = re.sub(r"\.version\s+9\.\d", ".version 9.0", text)  # what ptxas 13.0 knows
    module = parse_module(text, file=name)
    if "debug" in module.target:
        return  # neither ptxas nor the compiler contracts it
    target = re.search(r"sm_\d+a?", " ".join(module.target))
    chosen = target[0] if target and target[0].endswith("a") else arch
    kernels = [kernel for kernel in module.kernel_names if may_change(module.function(kernel))]
    if not kernels:
        return
    first, second = (assembled(t, chosen) for t in (print_module(module), rewritten(module)))
    same = first == second  # then the disassembler has nothing to tell
    before, after = ({}, {}) if same else (counted(code, nvdisasm) for code in (first, second))
    for kernel in kernels:
        yield kernel, before.get(kernel, Counts()), after.get(kernel, Counts())


def judge_results(path: Path, seeds: range) -> Iterator[tuple[int, bool]]:
    """(seed, whether the CPU device's results are the recorded bits)."""
    recorded = numpy.load(path)
    for first in range(seeds.start, seeds.stop, record_contraction.MODULE):
        part = range(first, min(first + record_contraction.MODULE, seeds.stop))
        for seed, found in record_contraction.compute("cpu", part).items():
            yield seed, found.tobytes() == recorded[str(seed)].tobytes()


def sources(files: list[Path], seeds: range) -> Iterator[tuple[str, str]]:
    """Name and text of each module to be judged."""
    for path in files:
        yield str(path), path.read_text(errors="replace")
    for first in range(seeds.start, seeds.stop, BATCH):
        part = range(first, min(first + BATCH, seeds.stop))
        yield f"seeds {first}", contraction_kernels.HEAD + "".join(map(contraction_kernels.kernel, part))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--results", type=Path, help="compare what the random kernels compute with this record"
    )
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm") or "nvdisasm")
    parser.add_argument("--verbose", action="store_true", help="name the kernels that differ, and how")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.random)
    agreed = total = skipped = 0
    if arguments.results:
        for seed, same in judge_results(arguments.results, seeds):
            total += 1
            agreed += same
            if not same and arguments.verbose:
                print(f"k{seed}: another result")
        print(f"{agreed} of {total} kernels agree")
        return 0 if agreed == total else 1
    for name, text in sources(arguments.files, seeds):
        try:
            found = list(judge(text, name, arguments.arch, arguments.nvdisasm))
        except (PtxError, subprocess.CalledProcessError) as error:
            skipped += 1
            print(
                f"{name}: skipped: {str(getattr(error, 'stderr', '') or error).strip()[:300]}",
                file=sys.stderr,
            )
            continue
        for kernel, before, after in found:
            total += 1
            agreed += before == after
            if before != after and arguments.verbose:
                print(f"{name} {kernel}: ptxas {dict(before - after)}, rewritten {dict(after - before)}")
    print(f"{agreed} of {total} kernels agree; {skipped} files skipped")
    return 0 if agreed == total else 1


if __name__ == "__main__":
    sys.exit(main())
