"""Run every form on an NVIDIA GPU and write ``golden.npz``. Needs numpy and libcuda.so.1, nothing else.

    python3 tests/conformance/record_golden.py -o F [--full DIRECTORY] [--family NAME] [--forms REGEX]

The driver compiles the very PTX that the tests run. Each kernel runs twice; a form whose results differ
between the two runs is reported and left out. ``--full`` also writes the first 2048 results of every form,
one file a family, for whoever has to find out why a form differs. Families recorded apart are joined by
``golden_file.py``.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import golden_file
import numpy as np
from isa_forms import all_forms
from isa_forms.form import Form
from isa_forms.inputs import Words, operands
from isa_forms.kernels import ENTRY, THREADS, Group, groups, result_bytes

FULL_RESULTS = 2048
FULL_FILES = {"floating": "floating", "convert": "convert", "compare": "compare"}  # other families: "others"
_u64 = ctypes.c_uint64


class Gpu:
    """The few driver calls needed, through ctypes."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        self._device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(self._device), 0)
        self._context = ctypes.c_void_p()
        self.open()

    def check(self, name: str, *args: Any) -> None:
        """Call; raises RuntimeError naming the call and CUresult."""
        result = getattr(self._lib, name)(*args)
        if result != 0:
            raise RuntimeError(f"{name} returned {result}")

    def open(self) -> None:
        """A fresh context (also after a launch that broke the old one)."""
        if self._context:
            self._lib.cuCtxDestroy_v2(self._context)
        self._context = ctypes.c_void_p()
        self.check("cuCtxCreate_v2", ctypes.byref(self._context), 0, self._device)

    def describe(self) -> dict[str, str]:
        """GPU name and driver's CUDA version."""
        name, version = ctypes.create_string_buffer(128), ctypes.c_int()
        self.check("cuDeviceGetName", name, 128, self._device)
        self.check("cuDriverGetVersion", ctypes.byref(version))
        path = Path("/proc/driver/nvidia/version")
        text = path.read_text() if path.exists() else ""
        driver = re.search(r"(\d+\.\d+\.\d+)", text)
        return {
            "gpu": name.value.decode(),
            "driver": driver[1] if driver else "unknown",
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }

    def run(self, ptx: str, inputs: list[Words], output_bytes: int, grid: int) -> bytes:
        """JIT, launch once over zeroed output, return the output."""
        log = ctypes.create_string_buffer(1 << 16)
        keys = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, …_SIZE_BYTES
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(len(log)))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self.check("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode() + b"\0", 2, keys, values)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {log.value.decode(errors='replace').strip()}") from None
        self.check("cuModuleGetFunction", ctypes.byref(function), module, ENTRY.encode())
        buffers = [self._upload(words) for words in inputs]
        buffers += [_u64(0)] * (3 - len(buffers))
        output = _u64()
        self.check("cuMemAlloc_v2", ctypes.byref(output), ctypes.c_size_t(output_bytes))
        self.check("cuMemsetD8_v2", output, ctypes.c_ubyte(0), ctypes.c_size_t(output_bytes))
        arguments = [*buffers, output]
        pointers = (ctypes.c_void_p * 4)(*(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments))
        self.check("cuLaunchKernel", function, grid, 1, 1, THREADS, 1, 1, 0, None, pointers, None)
        self.check("cuCtxSynchronize")
        data = (ctypes.c_ubyte * output_bytes)()
        self.check("cuMemcpyDtoH_v2", data, output, ctypes.c_size_t(output_bytes))
        for buffer in (*(b for b in buffers if b.value), output):
            self.check("cuMemFree_v2", buffer)
        self.check("cuModuleUnload", module)
        return bytes(data)

    def _upload(self, words: Words) -> ctypes.c_uint64:
        data = np.ascontiguousarray(words, dtype=np.uint64)
        address = _u64()
        self.check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(data.nbytes))
        self.check(
            "cuMemcpyHtoD_v2", address, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)
        )
        return address


def record_group(run: Callable[[], bytes], group: Group) -> tuple[dict[str, tuple[int, bytes]], list[str]]:
    """Results by form, and the forms whose two runs differ."""
    first, second = run(), run()
    results, unstable = {}, []
    offsets = group.offsets
    for form, start, end in zip(group.forms, offsets, offsets[1:], strict=False):
        if first[start:end] == second[start:end]:
            results[form.name] = (result_bytes(form), first[start:end])
        else:
            unstable.append(form.name)
    return results, unstable


def record(
    forms: Iterable[Form],
) -> tuple[dict[str, tuple[int, bytes]], dict[str, str], dict[str, str], list[str]]:
    """Everything: results, operand digests by sources, the GPU's description, complaints."""
    gpu = Gpu()
    results: dict[str, tuple[int, bytes]] = {}
    digests: dict[str, str] = {}
    complaints: list[str] = []
    words: dict[tuple[str, ...], list[Words]] = {}
    for group in groups(forms):
        inputs = words.setdefault(group.sources, operands(group.sources))
        digests[" ".join(group.sources)] = golden_file.operand_digest(inputs)
        try:
            made, unstable = record_group(
                lambda group=group, inputs=inputs: gpu.run(
                    group.ptx(), inputs, group.offsets[-1], group.grid
                ),
                group,
            )
        except RuntimeError as error:
            complaints.append(f"{group.name}: {error}")
            gpu.open()
            continue
        results.update(made)
        complaints += [f"{name}: results differ between two runs" for name in unstable]
    return results, digests, gpu.describe(), complaints


def save_full(directory: Path, forms: Iterable[Form], results: dict[str, tuple[int, bytes]]) -> None:
    """The first 2048 results of every form, a compressed file a family, arrays named as the forms."""
    directory.mkdir(parents=True, exist_ok=True)
    files: dict[str, dict[str, bytes]] = {}
    for form in forms:
        if form.name in results:
            width, data = results[form.name]
            part = files.setdefault(FULL_FILES.get(form.family, "others"), {})
            part[form.name] = data[: FULL_RESULTS * width]
    for name, part in files.items():
        np.savez_compressed(
            directory / f"full-{name}.npz",
            names=np.frombuffer("\n".join(part).encode(), dtype=np.uint8),
            sizes=np.array([len(data) for data in part.values()]),
            data=np.frombuffer(b"".join(part.values()), dtype=np.uint8),
        )


def main() -> int:
    """Command line; 1 when a kernel failed or a form was unstable (the rest is written all the same)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=golden_file.PATH)
    parser.add_argument("--full", type=Path, metavar="DIRECTORY")
    parser.add_argument("--forms", default="", metavar="REGEX")
    parser.add_argument("--family", action="append", metavar="NAME", help="these only; may be repeated")
    options = parser.parse_args()
    start = time.monotonic()
    forms = [form for form in all_forms(awaiting=True) if re.search(options.forms, form.name)]
    if options.family:
        forms = [form for form in forms if form.family in options.family]
    results, digests, meta, complaints = record(forms)
    kept = golden_file.save(options.output, results, digests, meta)
    if options.full:
        save_full(options.full, forms, results)
    print("\n".join(complaints))
    size = options.output.stat().st_size
    print(f"{meta}: {len(results)} of {len(forms)} forms, {kept} results kept of each, {size} bytes, "
          f"{len(complaints)} complaints, {time.monotonic() - start:.0f} s")  # fmt: skip
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
