"""Run random kernels for contraction on a device, and keep what they compute.

    python scripts/record_contraction.py cuda:0 0 4000 -o results.npz --processes 16

The kernels are those of ``tests/compiler/contract/contraction_kernels.py``. Kept are the results of each,
by its seed: ``scripts/judge_contraction.py --results`` compares the CPU device's with them.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "compiler" / "contract"))

import contraction_kernels as kernels

MODULE = 25
"""Kernels a module."""


def compute(device: str, seeds: range, contract: str = "auto") -> dict[int, numpy.ndarray]:
    """Seed to the kernel's OUTPUTS × THREADS results."""
    import zluda

    found: dict[int, numpy.ndarray] = {}
    options = {} if device.startswith("cuda") else {"contract": contract}
    with zluda.open_device(device, **options) as opened:
        module = opened.load_module(kernels.HEAD + "".join(kernels.kernel(seed) for seed in seeds))
        for seed in seeds:
            given = opened.array(kernels.inputs(seed))
            out = opened.empty((kernels.THREADS, kernels.OUTPUTS), kernels.numpy_type(seed))
            arguments = [given, out, numpy.uint32(kernels.ROUNDS), *kernels.parameters(seed)]
            module.kernel(f"k{seed}").launch(grid=1, block=kernels.THREADS, args=arguments)
            opened.synchronize()
            found[seed] = out.numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("device")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--contract", default="auto", choices=("auto", "on", "off"))
    arguments = parser.parse_args()
    parts = [
        range(first, min(first + MODULE, arguments.last))
        for first in range(arguments.first, arguments.last, MODULE)
    ]
    results: dict[str, numpy.ndarray] = {}
    with ProcessPoolExecutor(arguments.processes) as pool:
        count = len(parts)
        devices, modes = [arguments.device] * count, [arguments.contract] * count
        for found in pool.map(compute, devices, parts, modes):
            results |= {str(seed): values for seed, values in found.items()}
    numpy.savez_compressed(arguments.output, **results)
    print(f"{len(results)} kernels")


if __name__ == "__main__":
    main()
