"""Hold the contraction pass to ptxas: do a kernel and what the pass makes of it give the same machine code?

For each kernel of each PTX file: the module is assembled as it is, and again with every function rewritten by
:func:`zluda.compiler.contract.rewrite.rewrite`, in which nothing is left for ptxas to decide. The kernels
agree if their floating-point instructions, by opcode and modifiers, are as many. With ``--random N``, N fresh
kernels are made up instead: straight code, branches and loops over a few variables.

    python scripts/judge_contraction.py --random 300 --seed 1
    python scripts/judge_contraction.py corpus/*/*.ptx --arch sm_90 --verbose

Needs ptxas and nvdisasm (``pip install nvidia-cuda-nvdisasm``; or ``--nvdisasm PATH``).
"""

from __future__ import annotations

import argparse
import collections
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zluda.compiler.contract.kinds import may_change
from zluda.compiler.contract.rewrite import rewrite
from zluda.errors import PtxError
from zluda.ptx import Module, parse_module
from zluda.ptx.printer import print_function, print_module

Counts = collections.Counter[str]
_FLOATING = re.compile(r"\b(FFMA|FMUL|FADD|DFMA|DMUL|DADD|HFMA2|HMUL2|HADD2|MUFU)([.\w]*)")
_FUNCTION = re.compile(r"^\s*(?:\.text\.|\.section\s+\.text\.)([\w$]+)")


def machine_code(ptx: str, arch: str, nvdisasm: str) -> dict[str, Counts]:
    """Function to the number of each floating-point instruction; else CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "a.ptx"), Path(folder, "a.cubin")
        source.write_text(ptx)
        ptxas = ["ptxas", f"-arch={arch}", str(source), "-o", str(cubin)]
        subprocess.run(ptxas, check=True, capture_output=True, text=True)
        listing = subprocess.run(
            [nvdisasm, "-c", str(cubin)], check=True, capture_output=True, text=True
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
    module = parse_module(text, file=name)
    target = re.search(r"sm_\d+a?", " ".join(module.target))
    chosen = target[0] if target and target[0].endswith("a") else arch
    before = machine_code(print_module(module), chosen, nvdisasm)
    after = machine_code(rewritten(module), chosen, nvdisasm)
    for kernel in module.kernel_names:
        if may_change(module.function(kernel)):
            yield kernel, before.get(kernel, Counts()), after.get(kernel, Counts())


# --- made-up kernels ---------------------------------------------------------------------------------


class _Kernel:
    """A random kernel on f32 variables: arithmetic, branches, loops."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.labels = self.temporaries = 0
        kind = self.random.choice(("load", "load", "param"))
        self.variables = [f"%v{i}" for i in range(6)]
        for i, variable in enumerate(self.variables):
            space = (
                f"ld.param.f32 {variable}, [p{i}]"
                if kind == "param"
                else f"ld.global.f32 {variable}, [%in+{4 * i}]"
            )
            self.lines.append(f"{space};")
        self.values = list(self.variables)
        self.block(self.random.randint(1, 4), 0)
        for i, value in enumerate(self.variables + self.random.sample(self.values, 3)):
            self.lines.append(f"st.global.f32 [%out+{4 * i}], {value};")

    def block(self, statements: int, depth: int) -> None:
        for _ in range(statements):
            kind = self.random.random()
            if depth < 2 and kind < 0.2:
                self.branch(depth)
            elif depth < 2 and kind < 0.35:
                self.loop(depth)
            else:
                self.arithmetic(depth)

    def new(self) -> str:
        self.temporaries += 1
        return f"%t{self.temporaries}"

    def arithmetic(self, depth: int) -> None:
        pick = self.random
        for _ in range(pick.randint(2, 7)):
            opcode = pick.choice(("mul", "mul", "mul", "add", "add", "sub", "neg", "fma.rn", "mul.rn"))
            assign = pick.random() < 0.3
            target = pick.choice(self.variables) if assign else self.new()
            count = {"neg": 1, "fma.rn": 3}.get(opcode, 2)
            sources = [pick.choice(self.values) for _ in range(count)]
            if opcode in ("mul", "add") and pick.random() < 0.15:
                sources[1] = pick.choice(
                    ("0f40490FDB", "0f40000000", "0f3F000000", "0fBF800000", "0f3DCCCCCD")
                )
            self.lines.append(f"{opcode}.f32 {target}, {', '.join(sources)};")
            if not assign and (depth == 0 or pick.random() < 0.5):
                self.values.append(target)

    def branch(self, depth: int) -> None:
        self.labels += 1
        label, kept = self.labels, list(self.values)
        x, y = self.random.sample(self.variables, 2)
        self.lines.append(f"setp.lt.f32 %p, {x}, {y};\n@%p bra ELSE{label};")
        self.block(self.random.randint(1, 2), depth + 1)
        self.lines.append(f"bra END{label};\nELSE{label}:")
        self.values = list(kept)
        self.block(self.random.randint(1, 2), depth + 1)
        self.lines.append(f"END{label}:")
        self.values = kept

    def loop(self, depth: int) -> None:
        self.labels += 1
        label, kept = self.labels, list(self.values)
        trips = self.random.choice(("%n", "%n", str(self.random.randint(2, 9))))
        self.lines.append(f"mov.u32 %i{depth}, 0;\nLOOP{label}:")
        self.block(self.random.randint(1, 2), depth + 1)
        self.lines.append(
            f"add.u32 %i{depth}, %i{depth}, 1;\nsetp.lt.u32 %q, %i{depth}, {trips};\n@%q bra LOOP{label};"
        )
        self.values = kept

    def text(self) -> str:
        parameters = ", ".join(
            [".param .u64 a", ".param .u64 b", ".param .u32 c", *(f".param .f32 p{i}" for i in range(6))]
        )
        temporaries = f".reg .f32 %t<{self.temporaries + 1}>;\n" if self.temporaries else ""
        body = "\n".join(self.lines)
        return (
            f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k({parameters})\n{{\n"
            f".reg .f32 %v<6>;\n{temporaries}.reg .u32 %n, %i<3>;\n.reg .u64 %in, %out;\n.reg .pred %p, %q;\n"
            f"ld.param.u64 %in, [a];\nld.param.u64 %out, [b];\nld.param.u32 %n, [c];\n{body}\nret;\n}}\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm") or "nvdisasm")
    parser.add_argument("--verbose", action="store_true", help="name the kernels that differ, and how")
    arguments = parser.parse_args()
    sources = [(str(path), path.read_text(errors="replace")) for path in arguments.files]
    sources += [
        (f"seed {s}", _Kernel(s).text()) for s in range(arguments.seed, arguments.seed + arguments.random)
    ]
    agreed = total = skipped = 0
    for name, text in sources:
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
