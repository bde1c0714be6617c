"""Tensor-core instructions on the CPU device, on one core: ``python -m bench.tensor_cores``.

Nanoseconds an element of D, bit-exact, beside those of the reference over numpy arrays and of numpy's product
of as many f32 (f64) matrices of the same shape, which rounds otherwise; 64 at once.
"""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zluda.device.cpu import CpuDevice
from zluda.numerics.tensor_cores import double, operations, reference
from zluda.numerics.tensor_cores.operations import Form
from zluda.ptx import parse_module

ROUNDS, WARPS, REPEATS = 2000, 4, 5
BATCH = 64  # products of numpy's at once
FORMS = (
    ("m16n8k16", "f16", "f16", "f32"),
    ("m16n8k16", "bf16", "bf16", "f32"),
    ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "tf32", "tf32", "f32"),
    ("m16n8k32", "e4m3", "e4m3", "f32"),
    ("m16n8k32", "s8", "s8", "s32"),
    ("m8n8k4", "f64", "f64", "f64"),
)
TRITON = Path(__file__).resolve().parents[1] / "tests/compiler/data/triton_matmul_sm90a_f16.ptx"
Bits = NDArray[Any]


def kernel(opcode: str, form: Form) -> str:
    """``k(a, b, c, d)``: :data:`ROUNDS` times the instruction, each from the one before."""
    lines = [".version 9.0\n.target sm_90a\n.address_size 64"]
    lines += [".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)\n{"]
    lines += [".reg .b64 %p;\n.reg .b32 %t, %n;\n.reg .pred %again;\nmov.u32 %t, %tid.x;"]
    counts = {x: (form.registers(x), form.wide(x)) for x in "abc"}
    for x, (count, bits) in counts.items():
        lines += [f".reg .b{bits} %{x}<{count}>;\nld.param.u64 %p, [p{x}];"]
        lines += [f"mad.wide.u32 %p, %t, {count * bits // 8}, %p;"]
        lines += [f"ld.global.b{bits} %{x}{i}, [%p+{i * bits // 8}];" for i in range(count)]
    a, b, c = ("{" + ", ".join(f"%{x}{i}" for i in range(n)) + "}" for x, (n, _) in counts.items())
    lines += ["mov.u32 %n, 0;\nagain:", f"{opcode} {c}, {a}, {b}, {c};", "add.u32 %n, %n, 1;"]
    lines += [f"setp.lt.u32 %again, %n, {ROUNDS};\n@%again bra again;\nld.param.u64 %p, [pd];"]
    count, bits = counts["c"]
    lines += [f"mad.wide.u32 %p, %t, {count * bits // 8}, %p;"]
    lines += [f"st.global.b{bits} [%p+{i * bits // 8}], %c{i};" for i in range(count)]
    return "\n".join([*lines, "ret;\n}\n"])


def numbers(type_name: str, shape: tuple[int, ...], random: np.random.Generator) -> Bits:
    """Bits of ordinary numbers of a type."""
    values = random.uniform(-1, 1, shape)
    match type_name:
        case "f16":
            return values.astype(np.float16).view(np.uint16)
        case "bf16":
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        case "f32" | "tf32":
            return values.astype(np.float32).view(np.uint32)
        case "f64":
            return values.view(np.uint64)
        case "e4m3":
            return random.integers(0, 256, shape, np.uint8) & np.uint8(0xBF)
        case "s32":
            return random.integers(0, 1 << 32, shape, np.uint32)
        case _:
            return random.integers(0, 256, shape, np.uint8)


def on_device(form: Form, opcode: str) -> float:
    """Nanoseconds an element."""
    device, random = CpuDevice(threads=1), np.random.default_rng(0)
    code = device.load(parse_module(kernel(opcode, form), file="bench"))
    addresses = []
    for x in "abcc":
        many = 32 * form.registers(x) * form.wide(x) // 8
        data = numbers(getattr(form.operation, x), (many,), random).tobytes()[:many]
        addresses.append(device.allocate(many))
        device.write(addresses[-1], data)
    arguments, function = struct.pack("<4Q", *addresses), code.kernel("k")

    def launch() -> None:
        device.launch(function, (WARPS, 1, 1), (32, 1, 1), arguments, shared_bytes=0)

    launch()  # compiles
    best = _best(launch)
    device.close()
    op = form.operation
    return best / (op.m * op.n * ROUNDS * WARPS) * 1e9


def by_reference(form: Form) -> float:
    """Nanoseconds an element of the reference."""
    op, random = form.operation, np.random.default_rng(0)
    a = numbers(op.a, (BATCH, op.m, op.k), random)
    b = numbers(op.b, (BATCH, op.n, op.k), random)
    c = numbers(op.c, (BATCH, op.m, op.n), random)
    dot = double.dot if op.rule == "fma" else functools.partial(reference.dot, op)
    return _best(lambda: dot(a, b, c)) / (BATCH * op.m * op.n) * 1e9


def by_processor(form: Form) -> float:
    """Nanoseconds an element of numpy's product of f32 (f64) matrices of the same shapes."""
    op, random = form.operation, np.random.default_rng(0)
    kind = np.float64 if op.a == "f64" else np.float32
    a, b = (np.asarray(random.uniform(-1, 1, (BATCH, lines, op.k)), kind) for lines in (op.m, op.n))
    return _best(lambda: np.matmul(a, b.swapaxes(1, 2))) / (BATCH * op.m * op.n) * 1e9


def _best(action: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return min(times)


def by_triton() -> str:
    """A whole product by Triton's ``wgmma`` kernel, loads, stores and barriers included."""
    device, random, n = CpuDevice(threads=1), np.random.default_rng(0), 512
    code = device.load(parse_module(TRITON.read_text(), file=TRITON.name))
    addresses = [device.allocate(4 * n * n) for _ in "abc"]
    for address in addresses[:2]:
        device.write(address, random.uniform(-1, 1, n * n).astype(np.float16).tobytes())
    arguments = struct.pack("<3Q6i2Q", *addresses, *[n] * 6, 0, 0)
    function = code.kernel("matmul")
    seconds = []
    for blocks in (1, n // 64):  # the first launch compiles
        grid = (blocks, blocks, 1)
        launch = functools.partial(device.launch, function, grid, (128, 1, 1), arguments, shared_bytes=49152)
        seconds.append(_best(launch))
    device.close()
    a, b = (random.uniform(-1, 1, (n, n)).astype(np.float32) for _ in "ab")
    peer = _best(lambda: np.matmul(a, b))
    return (
        f"{n}^3 f16 by Triton's wgmma kernel: {seconds[-1] * 1e3:.0f} ms of one core, "
        f"{seconds[-1] / (n**3 / 16) * 1e9:.1f} ns an element and step; numpy's f32: {peer * 1e3:.1f} ms"
    )


def main() -> None:
    """Print one line a form."""
    print(f"{'':36} device  reference  numpy's product  (ns an element of D)")
    for shape, a, b, c in FORMS:
        form = operations.mma(shape, a, b, c, c)
        assert form is not None
        opcode = f"mma.sync.aligned.{shape}.row.col.{c}.{a}.{b}.{c}"
        device = on_device(form, opcode)
        peers = by_reference(form), by_processor(form)
        print(
            f"{opcode.removeprefix('mma.sync.aligned.'):36} {device:6.2f} "
            f"{peers[0]:10.1f} {peers[1]:16.2f}   {peers[0] / device:.0f}x as fast as the reference"
        )

    print(by_triton())


if __name__ == "__main__":
    main()
