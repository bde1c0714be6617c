"""PTX of one tensor-core instruction, and its registers to and from a device.

Every kernel is ``k(a, b, c, d, m)``: addresses of registers, laid out (warp or warpgroup, thread, register).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zluda.numerics.tensor_cores import operations
from zluda.numerics.tensor_cores.operations import Form

Bits = NDArray[Any]
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
PARAMETERS = ", ".join(f".param .u64 p{letter}" for letter in "abcdm")


def form_of(ptx: str) -> Form:
    """The form of an ``mma`` or ``wmma.mma`` by its dotted opcode. Fails for one that there is not."""
    words = ptx.split(".")
    shape = next(w for w in words if w[0] == "m" and w[1:2].isdigit())
    types = [w for w in words if w in _TYPES]
    popcount = next((w for w in ("xor", "and") if w in words), "")
    saturate = "satfinite" in words
    layouts = tuple(w for w in words if w in ("row", "col"))
    if words[0] == "wmma":
        d, a, b, c = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
        found = operations.wmma(shape, a, b, c, d, saturate=saturate, popcount=popcount)
    else:
        d, a, b, c = types
        found = operations.mma(
            shape,
            a,
            b,
            c,
            d,
            layouts=layouts,
            saturate=saturate,
            popcount=popcount,
            sparse=words[1].startswith("sp"),
        )
    assert found is not None, ptx
    return found


_TYPES = ["f16", "bf16", "tf32", "e4m3", "e5m2", "f32", "f64", "s8", "u8", "s4", "u4", "b1", "s32"]


def vector(letter: str, count: int) -> str:
    """``{%a0, %a1}``."""
    return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"


def transfer(kind: str, letter: str, count: int, bits: int, *, thread: str = "%t") -> list[str]:
    """Load (``ld``) or store (``st``) a thread's registers of an operand, from or to its parameter."""
    size = bits // 8
    lines = [f"ld.param.u64 %p, [p{letter}];", f"mad.wide.u32 %p, {thread}, {count * size}, %p;"]
    for i in range(count):
        place, register = f"[%p+{i * size}]", f"%{letter}{i}"
        first, second = (register, place) if kind == "ld" else (place, register)
        lines.append(f"{kind}.global.b{bits} {first}, {second};")
    return lines


def kernel(body: Sequence[str], registers: Sequence[tuple[str, int, int]], *, shared: int = 0) -> str:
    """A module with a kernel ``k`` whose thread number in the grid is ``%t``; ``registers`` are (letter,
    count, bits)."""
    declared = [f".reg .b{bits} %{letter}<{count}>;" for letter, count, bits in registers]
    lines = [HEADER]
    lines += [".extern .shared .align 1024 .b8 tile[];" if shared else ""]
    lines += [f".visible .entry k({PARAMETERS})", "{"]
    lines += [".reg .b64 %p, %q, %da, %db;", ".reg .b32 %t, %x, %y, %s;", ".reg .pred %keep;", *declared]
    lines += ["mov.u32 %x, %ctaid.x;", "mov.u32 %y, %ntid.x;", "mov.u32 %t, %tid.x;"]
    lines += ["mad.lo.u32 %t, %x, %y, %t;", *body, "ret;", "}"]
    return "\n".join(lines) + "\n"


def mma_ptx(opcode: str, form: Form, *, selector: int = 0) -> str:
    """One ``mma`` or ``wmma.mma``; of a sparse form with metadata from ``m``."""
    counts = {letter: form.registers(letter) for letter in "abcd"}
    wide = {letter: form.wide(letter) for letter in "abcd"}
    body = [line for letter in "abc" for line in transfer("ld", letter, counts[letter], wide[letter])]
    extra = ""
    if form.operation.sparse:
        body += transfer("ld", "m", 1, 32)
        extra = f", %m0, {selector}"
    operands = ", ".join(vector(letter, counts[letter]) for letter in "dabc")
    body += [f"{opcode} {operands}{extra};", *transfer("st", "d", counts["d"], wide["d"])]
    return kernel(body, [(x, counts[x], wide[x]) for x in "abcd"] + [("m", 1, 32)])


def launch(
    device: Any, ptx: str, inputs: dict[str, Bits], result: Bits, *, block: int = 32, shared: int = 0
) -> Bits:
    """Run ``k`` over the inputs' first dimension; what it left in ``d``, which ``result`` is like."""
    arrays = {name: device.array(bits) for name, bits in inputs.items()}
    nothing = device.array(np.zeros(1, np.uint32))
    d = device.array(np.full_like(result, 0xA5))
    arguments = [d if name == "d" else arrays.get(name, nothing) for name in "abcdm"]
    module = device.load_module(ptx)
    module.kernel("k").launch(grid=len(result), block=block, args=arguments, shared_bytes=shared)
    found: Bits = d.numpy()
    for array in [*arrays.values(), nothing, d]:
        array.free()
    return found
