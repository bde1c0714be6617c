"""What an H200 computed for every tensor-core form: ``tests/conformance/tensor_cores.npz``.

Of each form some tiles of A, B, C and D as bits, B by columns; ``index`` (JSON) says what they are. The tiles
are drawn from twenty distributions: all encodings, narrow and wide exponents, cancellation, subnormals,
specials, ties, values around the ends of every range. Recorded on driver 580.159.04 from ptxas 13.0.88.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zluda.numerics.tensor_cores.operations import Operation

PATH = Path(__file__).resolve().parents[1] / "conformance" / "tensor_cores.npz"
Bits = NDArray[Any]


@dataclass(frozen=True)
class Vector:
    """One form: its PTX opcode, its operation, and tiles (tile, line, k) of the operands and of D.

    ``negated`` names operands with ``imm-scale`` -1, ``scale_d`` is 0 where C is not to count, ``repeated``
    how many of the instruction follow each other, ``metadata`` a sparse A's chunks.
    """

    name: str
    ptx: str
    operation: Operation
    mode: str
    selector: int
    negated: str
    scale_d: int
    repeated: int
    a: Bits
    b: Bits
    c: Bits
    d: Bits
    metadata: Bits | None

    @property
    def opcode(self) -> str:
        """``mma``, ``wmma`` or ``wgmma``."""
        return self.ptx.partition(".")[0]


@functools.cache
def vectors() -> dict[str, Vector]:
    """All forms by name."""
    with np.load(PATH) as file:
        index = json.loads(str(file["index"]))
        arrays = {name: file[name] for name in file.files}
    return {name: _vector(name, entry, arrays) for name, entry in index.items()}


def _vector(name: str, entry: dict[str, Any], arrays: dict[str, Bits]) -> Vector:
    entry = dict(entry)
    operation = Operation(**entry.pop("operation"))
    a, b, c, d = (arrays[f"{name}/{letter}"] for letter in "ABCD")
    return Vector(
        name=name, operation=operation, a=a, b=b, c=c, d=d, metadata=arrays.get(f"{name}/meta"), **entry
    )
