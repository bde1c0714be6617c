"""AMD code from PTX against AMD code from OpenCL C: ``python -m bench.amd_code [target …]``.

Twelve kernels are written in both CUDA C++ and OpenCL C (``bench/kernels/``): the same algorithms, the same
results. The one goes through nvcc (its PTX is kept beside it) and zluda, the other through Debian's clang for
the same target; both run on the emulator, which counts the instructions that waves execute. Printed for each:
executed instructions and registers, as zluda / clang, and the geometric means of the ratios.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zluda.compiler import compile_kernel
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.report import Report, report
from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.ptx import parse_module

KERNELS = Path(__file__).resolve().parent / "kernels"
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
    """What a code object did: wave instructions executed, its registers, and the result's bytes."""

    instructions: int
    report: Report
    result: np.ndarray


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
    return Outcome(device.instructions, report(image, name), np.frombuffer(data, like.dtype))


def compare(target: str, names: list[str] | None = None) -> Iterator[tuple[str, Outcome, Outcome]]:
    """(kernel, zluda's, clang's). Raises AssertionError where their results differ."""
    device = EmulatedDevice(target, threads=1)
    ours, native = from_ptx(target), from_opencl(target)
    for name, case in cases().items():
        if names and name not in names:
            continue
        a, b = (execute(device, make(name), name, case) for make in (ours, native))
        if case.exact:
            assert a.result.tobytes() == b.result.tobytes(), f"{name}: results differ"
        else:
            np.testing.assert_allclose(a.result, b.result, rtol=1e-3, atol=1e-5, err_msg=name)
        assert a.result.any(), f"{name}: nothing was computed"
        yield name, a, b
    device.close()


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


MEASURES: dict[str, Callable[[Outcome], int]] = {
    "instructions": lambda o: o.instructions,
    "VGPRs": lambda o: o.report.vgprs,
    "SGPRs": lambda o: o.report.sgprs,
}


def main() -> None:
    """Print one line a kernel and the geometric means."""
    if shutil.which(CLANG) is None:
        print(f"not measured: {CLANG} is not installed")
        return
    for target in sys.argv[1:] or TARGETS:
        print(f"{target:15} {'instructions':>24} {'VGPRs':>14} {'SGPRs':>14}    (zluda / clang)")
        ratios: dict[str, list[float]] = {measure: [] for measure in MEASURES}
        for name, ours, native in compare(target):
            cells = []
            for measure, of in MEASURES.items():
                ratios[measure].append(of(ours) / max(of(native), 1))
                cells.append(f"{of(ours):7} /{of(native):6} {ratios[measure][-1]:5.2f}")
            print(f"  {name:13} " + " ".join(cells))
        print(
            "  geometric mean "
            + ", ".join(f"{measure} {geometric_mean(values):.3f}" for measure, values in ratios.items())
        )


if __name__ == "__main__":
    main()
