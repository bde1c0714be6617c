"""AMD code from PTX against AMD code from OpenCL C: ``python -m bench.amd_code [target …]``.

Twelve kernels are written in both CUDA C++ and OpenCL C (``bench/kernels/``): the same algorithms, the same
results. The one goes through nvcc (its PTX is kept beside it) and zluda, the other through Debian's clang for
the same target; both run on the emulator, which counts the instructions that waves execute. Printed for each:
executed instructions and registers, as zluda / clang, and the geometric means of the ratios. zluda's numerics
are ``native``: both sides use AMD's own instructions for what CUDA calls approximate, and IEEE's elsewhere.

``--record`` writes clang's figures to ``bench/kernels/native.json``, which stands in where clang is missing
and which tests hold zluda's against.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zluda.compiler import compile_kernel
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.report import report
from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.ptx import parse_module

KERNELS = Path(__file__).resolve().parent / "kernels"
NATIVE = KERNELS / "native.json"
TARGETS = ("gfx1030", "gfx1100", "gfx90a")
CLANG = "clang-19"
FLAGS = ["-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-O3", "-nogpulib"]
FLAGS += ["-ffp-contract=off", "-cl-fp32-correctly-rounded-divide-sqrt"]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Case:
    """A launch: grid, block, arguments (arrays are copied in), and which argument holds what is compared.

    ``exact`` False: approximate units are used, which round differently by compiler.
    """

    grid: Dim3
    block: Dim3
    arguments: tuple[Any, ...]
    result: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a code object did: wave instructions executed, its registers, and what it computed."""

    instructions: int
    vgprs: int
    sgprs: int
    result: np.ndarray | None = None

    @property
    def figures(self) -> tuple[int, int, int]:
        """Of :data:`MEASURES`."""
        return self.instructions, self.vgprs, self.sgprs


def cases() -> dict[str, Case]:
    """The launches, small enough for seconds on the emulator."""
    r = np.random.default_rng(1)
    f, i = np.float32, np.int32

    def floats(*shape: int) -> np.ndarray:
        return r.uniform(0.5, 2, shape).astype(f)

    rows = 512
    starts = np.concatenate([[0], r.integers(1, 12, rows).cumsum()]).astype(i)
    entries = int(starts[-1])
    block = (256, 1, 1)

    def line(n: int) -> Dim3:
        return (n, 1, 1)

    return {
        "saxpy": Case(line(8), block, (floats(2048), floats(2048), f(1.5), i(2000)), 1),
        "black_scholes": Case(
            line(4),
            block,
            (
                *(floats(1024) for _ in range(3)),
                *(np.zeros(1024, f) for _ in range(2)),
                f(0.02),
                f(0.3),
                i(1000),
            ),
            3,
            exact=False,
        ),
        "reduction": Case(line(4), block, (floats(8192), np.zeros(4, f), i(8192)), 1),
        "matmul": Case(
            (3, 3, 1), (16, 16, 1), (floats(48, 48), floats(48, 48), np.zeros((48, 48), f), i(48)), 2
        ),
        "histogram": Case(
            line(4),
            block,
            (r.integers(0, 1 << 32, 4096, dtype=np.uint32), np.zeros(256, np.uint32), i(4000)),
            1,
        ),
        "bitonic_sort": Case(line(2), block, (r.integers(0, 1 << 32, 1024, dtype=np.uint32),), 0),
        "n_body": Case(line(2), block, (floats(512, 4), np.zeros((512, 4), f), i(512)), 1, exact=False),
        "stencil": Case((2, 8, 1), (32, 8, 1), (floats(64, 64), np.zeros((64, 64), f), i(64), i(64)), 1),
        "scan": Case(
            line(2), block, (r.integers(0, 99, 1024, dtype=i), np.zeros(1024, i), np.zeros(2, i)), 1
        ),
        "softmax": Case(line(2), block, (floats(2, 1000), np.zeros((2, 1000), f), i(1000)), 1, exact=False),
        "transpose": Case((3, 2, 1), (32, 8, 1), (floats(64, 96), np.zeros((96, 64), f), i(96), i(64)), 1),
        "spmv": Case(
            line(2),
            block,
            (
                starts,
                r.integers(0, rows, entries, dtype=i),
                floats(entries),
                floats(rows),
                np.zeros(rows, f),
                i(rows),
            ),
            4,
        ),
    }


def from_ptx(target: str) -> Callable[[str], bytes]:
    """Kernel → its code object, made by zluda."""
    module = parse_module((KERNELS / "twelve.ptx").read_text(), file="twelve.ptx")
    return lambda name: link(compile_kernel(module, name, target, numerics="native").code)


def from_opencl(target: str) -> Callable[[str], bytes]:
    """The code object that clang makes, whichever kernel is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "twelve.o"
        source = KERNELS / "twelve.cl"
        subprocess.run([CLANG, *FLAGS, f"-mcpu={target}", "-c", source, "-o", made], check=True)
        data = link(made.read_bytes())
    return lambda name: data


def execute(device: EmulatedDevice, image: bytes, name: str, case: Case) -> Outcome:
    """Run a code object's kernel and count."""
    code = device.load_code_object(image)
    kernel, packed, places = code.kernel(name), bytearray(), []
    for argument in case.arguments:
        if isinstance(argument, np.ndarray):
            places.append(device.allocate(argument.nbytes))
            device.write(places[-1], argument.tobytes())
            argument = np.uint64(places[-1])
        else:
            places.append(0)
        packed += b"\0" * (-len(packed) % argument.nbytes) + argument.tobytes()
    device.launch(kernel, case.grid, case.block, bytes(packed), count=True)
    like = case.arguments[case.result]
    data = device.read(places[case.result], like.nbytes)
    for place in filter(None, places):
        device.free(place)
    code.unload()
    needs = report(image, name)
    return Outcome(device.instructions, needs.vgprs, needs.sgprs, np.frombuffer(data, like.dtype))


def recorded(target: str) -> dict[str, Outcome]:
    """Clang's outcomes without their results, as they were recorded."""
    kept = json.loads(NATIVE.read_text())[target]
    return {name: Outcome(*figures) for name, figures in kept.items()}


def compare(target: str) -> Iterator[tuple[str, Outcome, Outcome]]:
    """(kernel, zluda's, clang's) for each. Raises AssertionError where their results differ."""
    device = EmulatedDevice(target, threads=1)
    ours = from_ptx(target)
    native = from_opencl(target) if shutil.which(CLANG) else None
    for name, case in cases().items():
        found = execute(device, ours(name), name, case)
        other = execute(device, native(name), name, case) if native else recorded(target)[name]
        _agree(name, case, found, other)
        yield name, found, other
    device.close()


def _agree(name: str, case: Case, ours: Outcome, native: Outcome) -> None:
    assert ours.result is not None and ours.result.any(), f"{name}: nothing was computed"
    if native.result is None:
        return
    if case.exact:
        assert ours.result.tobytes() == native.result.tobytes(), f"{name}: results differ"
    else:
        np.testing.assert_allclose(ours.result, native.result, rtol=1e-3, atol=1e-5, err_msg=name)


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def ratios(outcomes: list[tuple[str, Outcome, Outcome]]) -> dict[str, float]:
    """Geometric means over kernels of zluda's figures to clang's."""
    columns = [[x / max(y, 1) for x, y in zip(a.figures, b.figures, strict=True)] for _, a, b in outcomes]
    means = map(geometric_mean, map(list, zip(*columns, strict=True)))
    return dict(zip(MEASURES, means, strict=True))


MEASURES = ("instructions", "VGPRs", "SGPRs")


def main() -> None:
    """Print one line a kernel and the geometric means."""
    parser = argparse.ArgumentParser(prog="python -m bench.amd_code", description="AMD code against clang's.")
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    parser.add_argument("--record", action="store_true", help="keep clang's figures")
    options = parser.parse_args()
    if shutil.which(CLANG) is None:
        print(f"{CLANG} is not installed: its figures are those recorded")
    kept = {}
    for target in options.targets:
        print(f"{target:15} {'instructions':>21} {'VGPRs':>22} {'SGPRs':>22}    (zluda / clang)")
        outcomes = list(compare(target))
        for name, ours, native in outcomes:
            cells = [
                f"{x:7} /{y:6} {x / max(y, 1):5.2f}"
                for x, y in zip(ours.figures, native.figures, strict=True)
            ]
            print(f"  {name:13} " + "  ".join(cells))
        means = ", ".join(f"{measure} {mean:.3f}" for measure, mean in ratios(outcomes).items())
        print(f"  geometric mean {means}")
        kept[target] = {name: native.figures for name, _, native in outcomes}
    if options.record:
        rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(figures)}" for name, figures in kept.items())
        NATIVE.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main()
