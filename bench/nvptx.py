"""The translator's own cost: twelve kernels on an NVIDIA GPU, as nvcc wrote them and as zluda does.

``python -m bench.nvptx``, on a machine with an NVIDIA GPU. Both sides are PTX for the same driver: the one
is ``bench/kernels/twelve.ptx``, the other what zluda lowers it to and LLVM's NVPTX back end writes. Sizes are
such that a kernel runs for 200 µs or more. The two are launched in turn on the same buffers, in changing
order, and timed by events; a ratio is native time over translated time, from medians, and its interval the
middle 95 % of bootstrap samples over the rounds. Results must agree bit for bit.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zluda.device.cuda import CudaDevice
from zluda.device.cuda.launching import launch
from zluda.device.cuda.nvptx import NvptxDevice
from zluda.ptx import parse_module

KERNELS = Path(__file__).resolve().parent / "kernels"
ROUNDS, WARM_UP, SAMPLES = 40, 3, 2000
COMPARED = 4 << 20  # bytes of the result
_BLOCK = 1 << 22  # words that are made on the host and repeated in device memory
_REGISTERS = 4  # CUfunction_attribute
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Words:
    """An array of ``count`` 32-bit words in device memory: ``values`` over and over, zeros where None."""

    count: int
    values: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A launch; ``result`` is the argument whose contents are compared."""

    grid: Dim3
    block: Dim3
    arguments: tuple[Any, ...]
    result: int


def cases() -> dict[str, Case]:
    """The launches of bench/amd_code.py, at sizes for a large GPU."""
    random = np.random.default_rng(1)
    floats = random.uniform(0.5, 2, _BLOCK).astype(np.float32)
    words = random.integers(0, 1 << 32, _BLOCK, dtype=np.uint32)
    small = random.integers(0, 99, _BLOCK, dtype=np.int32)
    f, i = np.float32, np.int32
    line: Callable[[int], Dim3] = lambda n: (n, 1, 1)  # noqa: E731
    block = (256, 1, 1)
    large, rows, side = 1 << 27, 1 << 23, 1 << 14
    lengths = random.integers(1, 12, rows)
    starts = np.concatenate([[0], lengths.cumsum()]).astype(i)
    entries = int(starts[-1])
    places = random.integers(0, rows, _BLOCK, dtype=i)

    def given(n: int) -> Words:
        return Words(n, floats)

    half = large // 2
    return {
        "saxpy": Case(line(large // 256), block, (given(large), given(large), f(1.5), i(large)), 1),
        "black_scholes": Case(
            line(half // 256),
            block,
            (*(given(half) for _ in range(3)), Words(half), Words(half), f(0.02), f(0.3), i(half)),
            3,
        ),
        "reduction": Case(line(2112), block, (given(2 * large), Words(2112), i(2 * large)), 1),
        "matmul": Case(
            (128, 128, 1), (16, 16, 1), (given(1 << 22), given(1 << 22), Words(1 << 22), i(2048)), 2
        ),
        "histogram": Case(line(1056), block, (Words(half, words), Words(256), i(half)), 1),
        "bitonic_sort": Case(line(1 << 17), block, (Words(1 << 26, words),), 0),
        "n_body": Case(line(256), block, (given(4 << 16), Words(4 << 16), i(1 << 16)), 1),
        "stencil": Case(
            (side // 32, side // 8, 1), (32, 8, 1), (given(side**2), Words(side**2), i(side), i(side)), 1
        ),
        "scan": Case(line(1 << 17), block, (Words(half, small), Words(half), Words(1 << 17)), 1),
        "softmax": Case(line(1 << 15), block, (given(1 << 26), Words(1 << 26), i(2048)), 1),
        "transpose": Case(
            (side // 32, side // 32, 1), (32, 8, 1), (given(side**2), Words(side**2), i(side), i(side)), 1
        ),
        "spmv": Case(
            line(rows // 256),
            block,
            (
                Words(rows + 1, starts),
                Words(entries, places),
                given(entries),
                given(rows),
                Words(rows),
                i(rows),
            ),
            4,
        ),
    }


class Side:
    """One way to the GPU's code: kernels' handles by name."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.code = device.load(parse_module((KERNELS / "twelve.ptx").read_text(), file="twelve.ptx"))

    def handle(self, name: str) -> int:
        kernel: Any = self.code.kernel(name)
        return int(kernel.load().handle if isinstance(self.device, NvptxDevice) else kernel.handle)

    def registers(self, handle: int) -> int:
        return self.device.library.get("cuFuncGetAttribute", ctypes.c_int, _REGISTERS, handle)


class Bench:
    """A case's buffers on the GPU, and its launches."""

    def __init__(self, device: CudaDevice, case: Case) -> None:
        self.device, self.case, self.library = device, case, device.library
        self.places: list[int] = [
            device.allocate(4 * a.count) if isinstance(a, Words) else 0 for a in case.arguments
        ]
        self.parameters = self._packed()
        self.events = [self.library.get("cuEventCreate", ctypes.c_void_p, 0) for _ in range(2)]

    def _packed(self) -> bytes:
        packed = bytearray()
        for place, argument in zip(self.places, self.case.arguments, strict=True):
            value = np.uint64(place) if isinstance(argument, Words) else argument
            packed += b"\0" * (-len(packed) % value.nbytes) + value.tobytes()
        return bytes(packed)

    def fill(self) -> None:
        """The buffers as they are before the first launch."""
        for place, words in zip(self.places, self.case.arguments, strict=True):
            if not isinstance(words, Words):
                continue
            if words.values is None:
                self.device.fill(place, bytes(4), words.count)
                continue
            done = min(words.values.nbytes, 4 * words.count)
            self.device.write(place, words.values.tobytes()[:done])
            while done < 4 * words.count:
                more = min(done, 4 * words.count - done)
                self.device.copy(place + done, place, more)
                done += more

    def run(self, handle: int) -> float:
        """One launch; its time in microseconds."""
        case, (start, end) = self.case, self.events
        self.library.call("cuEventRecord", start, None)
        launch(self.library, handle, case.grid, case.block, 0, 0, self.parameters)
        self.library.call("cuEventRecord", end, None)
        self.library.call("cuEventSynchronize", end)
        elapsed = ctypes.c_float()
        self.library.call("cuEventElapsedTime", ctypes.byref(elapsed), start, end)
        return 1000 * elapsed.value

    def result(self, handle: int) -> bytes:
        """The result of a first launch."""
        self.fill()
        self.run(handle)
        words = self.case.arguments[self.case.result]
        return self.device.read(self.places[self.case.result], min(4 * words.count, COMPARED))

    def close(self) -> None:
        for place in filter(None, self.places):
            self.device.free(place)
        for event in self.events:
            self.library.call("cuEventDestroy", event)


def measure(bench: Bench, handles: tuple[int, int], rounds: int) -> np.ndarray:
    """Times of native and translated code, a row a round."""
    for handle in handles * WARM_UP:
        bench.run(handle)
    times = np.empty((rounds, 2))
    for n in range(rounds):
        for side in (0, 1) if n % 2 else (1, 0):
            times[n, side] = bench.run(handles[side])
    return times


def ratio(times: np.ndarray) -> float:
    """Native time over translated time."""
    native, translated = np.median(times, axis=0)
    return float(native / translated)


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def samples(times: np.ndarray, random: np.random.Generator) -> list[float]:
    """The ratio over bootstrap samples of the rounds."""
    chosen = random.integers(0, len(times), (SAMPLES, len(times)))
    medians = np.median(times[chosen], axis=1)
    return [float(r) for r in medians[:, 0] / medians[:, 1]]


def interval(values: list[float]) -> str:
    low, high = np.percentile(values, [2.5, 97.5])
    return f"{low:.3f} to {high:.3f}"


def main() -> int:
    """Print the table; status 1 where results differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.nvptx")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    native, translated = Side(CudaDevice()), Side(NvptxDevice())
    random = np.random.default_rng(2)
    found: dict[str, tuple[float, list[float]]] = {}
    differing: list[str] = []
    print(f"{'kernel':<16}{'native, µs':>12}{'zluda, µs':>12}{'ratio':>9}  {'95 %':<18}registers")
    for name, case in cases().items():
        handles = native.handle(name), translated.handle(name)
        bench = Bench(native.device, case)
        if bench.result(handles[0]) != bench.result(handles[1]):
            differing.append(name)
        times = measure(bench, handles, options.rounds)
        bench.close()
        one = ratio(times), samples(times, random)
        found[name] = one
        of = [side.registers(handle) for side, handle in zip((native, translated), handles, strict=True)]
        first, second = np.median(times, axis=0)
        print(
            f"{name:<16}{first:>12.1f}{second:>12.1f}{one[0]:>9.3f}  {interval(one[1]):<18}{of[0]} / {of[1]}",
            flush=True,
        )
    means = [geometric_mean(list(each)) for each in zip(*(drawn for _, drawn in found.values()), strict=True)]
    mean = geometric_mean([one for one, _ in found.values()])
    print(f"geometric mean {mean:.3f}, {interval(means)}; least {min(one for one, _ in found.values()):.3f}")
    print(f"results differ: {', '.join(differing)}" if differing else "all results are the same, bit for bit")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
