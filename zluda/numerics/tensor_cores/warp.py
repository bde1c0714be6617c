"""A whole instruction of one warp, from registers to registers: what lowered code is held to.

Registers are unsigned arrays, (…, 32 lanes, registers), of 32 bits or, for f64, 64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zluda.numerics.tensor_cores import double, reference
from zluda.numerics.tensor_cores.fragments import Fragment, metadata_place
from zluda.numerics.tensor_cores.operations import Form, packed_bits

Bits = NDArray[Any]
_UNSIGNED = {4: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def element_width(type_name: str) -> int:
    """Bits of an element; b1 elements are words."""
    return 64 if type_name == "f64" else packed_bits(type_name)


def unpack(registers: Bits, fragment: Fragment, type_name: str, shape: tuple[int, int]) -> Bits:
    """The matrix, (…, lines, k), that a fragment's registers hold."""
    width = element_width(type_name)
    per_register = max(registers.dtype.itemsize * 8 // width, 1)
    matrix = np.zeros((*registers.shape[:-2], *shape), _UNSIGNED[width])
    for lane, places in enumerate(fragment):
        for i, (line, k) in enumerate(places):
            word = registers[..., lane, i // per_register]
            shift = word.dtype.type(width * (i % per_register))
            matrix[..., line, k] = (word >> shift) & word.dtype.type((1 << width) - 1)
    return matrix


def pack(matrix: Bits, fragment: Fragment, type_name: str) -> Bits:
    """The registers of a fragment of a matrix, (…, 32, registers)."""
    width = element_width(type_name)
    word: Any = np.uint64 if width == 64 else np.uint32
    per_register = max(32 // width, 1)
    count = -(-len(fragment[0]) // per_register)
    registers = np.zeros((*matrix.shape[:-2], 32, count), word)
    for lane, places in enumerate(fragment):
        for i, (line, k) in enumerate(places):
            value = matrix[..., line, k].astype(word) & word((1 << width) - 1)
            registers[..., lane, i // per_register] |= value << word(width * (i % per_register))
    return registers


def extent(fragment: Fragment) -> tuple[int, int]:
    """Lines and k of the matrix that a fragment covers."""
    return tuple(1 + max(place[i] for places in fragment for place in places) for i in (0, 1))  # type: ignore[return-value]


def unpack_metadata(registers: Bits, form: Form, selector: int) -> Bits:
    """The 4 bits of each chunk, (…, 16 rows, chunks), of the metadata register, (…, 32 lanes)."""
    op = form.operation
    chunks = op.k // (2 if op.a == "tf32" else 4 * op.together)
    kind = str(packed_bits(op.a))
    found = np.zeros((*registers.shape[:-1], 16, chunks), np.uint8)
    for row in range(16):
        for chunk in range(chunks):
            lane, bit = metadata_place(kind, op.k, row // 8, chunk, selector)
            found[..., row, chunk] = (registers[..., 4 * (row % 8) + lane] >> np.uint32(bit)) & np.uint32(15)
    return found


def unpack_scales(registers: Bits, lines: int, chunks: int, *, byte: int = 0, thread: int = 0) -> Bits:
    """The scales of 16 rows of A or 8 columns of B, (…, lines, chunks), that registers hold, (…, 32 lanes).

    ``byte`` and ``thread`` select them (PTX ISA 9.7.14.3). Row ``g + 8`` is the second lane's of its pair.
    """
    found = np.zeros((*registers.shape[:-1], lines, chunks), np.uint8)
    for line in range(lines):
        lane = 4 * (line % 8) + (2 * thread + line // 8 if lines == 16 else thread)
        for chunk in range(chunks):
            found[..., line, chunk] = (registers[..., lane] >> np.uint32(8 * (byte + chunk))) & 0xFF
    return found


def mma(
    form: Form,
    a: Bits,
    b: Bits,
    c: Bits,
    *,
    mode: str = "rn",
    metadata: Bits | None = None,
    selector: int = 0,
    scales: reference.Scales | None = None,
) -> Bits:
    """D's registers from those of A, B and C; of a sparse form also from the metadata registers."""
    op = form.operation
    matrix_a = unpack(a, form.fragment_a, op.a, extent(form.fragment_a))
    matrix_b = unpack(b, form.fragment_b, op.b, extent(form.fragment_b))
    matrix_c = unpack(c, form.fragment_c, op.c, extent(form.fragment_c))
    if op.rule == "fma":
        d = double.dot(matrix_a, matrix_b, matrix_c, mode)
    elif metadata is not None:
        chosen = unpack_metadata(metadata, form, selector)
        d = reference.sparse_dot(op, matrix_a, matrix_b, matrix_c, chosen, scales)
    else:
        d = reference.dot(op, matrix_a, matrix_b, matrix_c, scales)
    return pack(d, form.fragment_d, op.d)
