"""Compiling and running kernels on the CPU device: those of the conformance tests."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import zluda

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "conformance"))

import judge
from isa_forms import all_forms
from isa_forms.kernels import ENTRY, THREADS, groups

EVERY = 10  # one kernel in so many


def main() -> None:
    """Print the time of the first launch (which compiles) and of the next ones."""
    forms = all_forms()
    known = judge.excused("cpu", forms)
    chosen = groups(form for form in forms if form.name not in known)[::EVERY]
    compiling, running, instructions = [], [], 0
    with zluda.open_device("cpu") as device:
        for group in chosen:
            arrays = [device.array(words) for words in judge.operand_words(group.sources)]
            output = device.empty((group.offsets[-1],), "uint8")
            arguments = [*arrays, *[0] * (3 - len(arrays)), output]
            kernel = device.load_module(group.ptx()).kernel(ENTRY)
            times = []
            for _ in range(4):
                start = time.perf_counter()
                kernel.launch(grid=(group.grid, 1, 1), block=(THREADS, 1, 1), args=arguments)
                device.synchronize()
                times.append(time.perf_counter() - start)
            running.append(min(times[1:]))
            compiling.append(times[0] - running[-1])
            instructions += group.ptx().count(";\n")
            for array in (*arrays, output):
                array.free()
    compiled = statistics.median(compiling)
    print(f"{len(chosen)} kernels, {instructions} PTX statements")
    each = sum(compiling) / instructions
    print(f"compile: {compiled * 1e3:.0f} ms a kernel (median), {each * 1e3:.2f} ms a statement")
    print(f"launch of 4,096 to 65,536 threads: {statistics.median(running) * 1e3:.2f} ms (median)")


if __name__ == "__main__":
    main()
