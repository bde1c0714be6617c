"""What programs whose arrays go through NumPy share: repeatable data, and the file of results."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy


def values(*shape: int, seed: int, dtype: type = numpy.float32) -> numpy.ndarray:
    """Normal values: the same on every host."""
    return numpy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def finish(name: str, results: list[tuple[numpy.ndarray, numpy.ndarray, float]]) -> None:
    """Hold each result to what NumPy gives, within a tolerance; write them; exit with 1 if one is wrong."""
    wrong = 0
    data = b""
    for number, (got, expected, tolerance) in enumerate(results):
        got = numpy.asarray(got)
        data += got.tobytes()
        error = float(numpy.abs(got.astype(numpy.float64) - numpy.asarray(expected, numpy.float64)).max())
        if not error <= tolerance:
            wrong += 1
            print(f"{name}: result {number} is off by {error}, allowed {tolerance}", file=sys.stderr)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(data)
    print(f"{name}: {'WRONG' if wrong else 'right'}")
    sys.exit(1 if wrong else 0)
