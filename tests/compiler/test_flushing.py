"""``.ftz``: what is known to be flushed already is not flushed again, and everything else is."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import numpy as np
import pytest

from zluda.compiler.analysis.cfg import build_graph
from zluda.compiler.analysis.flushed import flushed_registers
from zluda.compiler.analysis.liveness import liveness
from zluda.compiler.ir import Builder, Module, Value
from zluda.compiler.lower.rounding import flush
from zluda.device.cpu import CpuDevice
from zluda.ptx import parse_module

HEADER = ".version 8.7\n.target sm_90\n.address_size 64\n"
REGISTERS = 6
Floats = np.ndarray


def flushed_names(body: str, function: str = ".visible .entry k(.param .u64 p)") -> set[str]:
    text = f"{HEADER}{function} {{ .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .pred %p<3>; {body} ret; }}"
    module = parse_module(text)
    graph = build_graph(module.function(module.function_names[0]))
    return flushed_registers(graph, liveness(graph).live_in[0])


def test_results_of_ftz_and_what_is_chosen_among_them_are_flushed() -> None:
    body = """mul.ftz.f32 %f1, 0f3F800000, 0f3F800000; cvt.rn.f32.s32 %f2, %r1; mov.f32 %f3, %f1;
    setp.gt.f32 %p1, %f1, %f2; selp.f32 %f4, %f3, 0f40000000, %p1; min.ftz.f32 %f5, %f4, %f1;"""
    assert flushed_names(body) == {"%f1", "%f2", "%f3", "%f4", "%f5"}


@pytest.mark.parametrize(
    "definition",
    [
        "ld.param.f32 %f1, [p];",
        "mul.f32 %f1, %f2, %f2;",
        "mov.f32 %f1, 0f00000001;",
        "mov.f32 %f1, %f2;",
        "add.ftz.f32 %f1, %f2, %f2; add.f32 %f1, %f2, %f2;",
        "mov.b32 %f1, %r1;",
        "lg2.approx.ftz.f32 %f1, %f2;",
        "@%p1 mul.ftz.f32 %f1, %f1, %f2;",
    ],
)
def test_what_may_be_subnormal_is_flushed_again(definition: str) -> None:
    assert "%f1" not in flushed_names(definition)


def test_a_parameter_in_a_register_may_be_anything() -> None:
    function = ".func f(.reg .f32 %a)"
    assert "%a" not in flushed_names("mul.ftz.f32 %a, %a, %a;", function)


def test_flushing_twice_is_flushing_once() -> None:
    b = Builder(Module())
    once = flush(b, Value("float", 16, "%x"))
    written = len(b.lines)
    assert flush(b, once) == once and flush(b, b.fneg(once)).ref == b.fneg(once).ref
    assert len(b.lines) == written + 1  # the negation


def test_equal_operations_are_written_once_in_a_block() -> None:
    b = Builder(Module())
    x = Value("i32", 1, "%x")
    first = b.add(x, 7)
    assert b.add(x, 7) == first and len(b.lines) == 1
    b.label("next")  # what dominates it is not known here
    assert b.add(x, 7) != first
    loads = [b.load("i32", Value("ptr", 1, "%p")) for _ in range(2)]
    assert loads[0] != loads[1]


# --- random programs, against numpy ------------------------------------------------------------------


def _flush(x: Floats) -> Floats:
    return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x)


def _rounded(exact: Floats, *, ftz: bool) -> Floats:
    """An f64 to f32; ``.ftz`` flushes what is small with its exponent unbounded."""
    tiny = np.abs((exact * 2.0**64).astype(np.float32)) < np.float32(2.0**-62)
    result = exact.astype(np.float32)
    return np.where(tiny, np.copysign(np.float32(0), exact), result).astype(np.float32) if ftz else result


def _operation(op: Callable[[Floats, Floats], Floats], a: Floats, b: Floats, *, ftz: bool) -> Floats:
    a, b = (_flush(a), _flush(b)) if ftz else (a, b)
    return _rounded(op(a.astype(np.float64), b.astype(np.float64)), ftz=ftz)


def program(seed: int, values: list[Floats]) -> str:
    """Lines of PTX on ``%f0`` … ``%f5``, done on ``values`` as well: products near 2^-126, mostly."""
    chosen = random.Random(seed)
    lines = []
    for _ in range(40):
        d, a, b = (chosen.randrange(REGISTERS) for _ in range(3))
        ftz = chosen.random() < 0.7
        suffix = ".ftz.f32" if ftz else ".f32"
        match chosen.choice(["mul", "mul", "add", "mov", "neg", "min", "selp"]):
            case "mul":
                lines.append(f"mul.rn{suffix} %f{d}, %f{a}, %f{b};")
                values[d] = _operation(np.multiply, values[a], values[b], ftz=ftz)
            case "add":
                lines.append(f"add.rn{suffix} %f{d}, %f{a}, %f{b};")
                values[d] = _operation(np.add, values[a], values[b], ftz=ftz)
            case "neg":
                lines.append(f"neg{suffix} %f{d}, %f{a};")
                values[d] = -(_flush(values[a]) if ftz else values[a])
            case "min":
                x, y = (_flush(v) if ftz else v for v in (values[a], values[b]))
                lines.append(f"min{suffix} %f{d}, %f{a}, %f{b};")
                values[d] = np.where((x < y) | ((x == y) & np.signbit(x)), x, y)
            case "selp":
                lines.append(f"selp.f32 %f{d}, %f{a}, %f{b}, %p1;")
                values[d] = np.where(np.arange(32) % 3 == 0, values[a], values[b])
            case _:
                lines.append(f"mov.f32 %f{d}, %f{a};")
                values[d] = values[a]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(8))
def test_mixed_programs_flush_where_ptx_says(seed: int) -> None:
    random_numbers = np.random.default_rng(seed)
    exponents = random_numbers.integers(-70, 4, (REGISTERS, 32))
    start = (random_numbers.uniform(-2, 2, (REGISTERS, 32)) * 2.0**exponents).astype(np.float32)
    start[:, :4] = np.array([2.0**-126, 2.0**-127, -(2.0**-149), 0], np.float32)
    values = list(start)
    body = program(seed, values)
    at = [f"[%rd1+{128 * i}]" for i in range(REGISTERS)]
    loads = " ".join(f"ld.global.f32 %f{i}, {a};" for i, a in enumerate(at))
    stores = " ".join(f"st.global.f32 {a}, %f{i};" for i, a in enumerate(at))
    text = f"""{HEADER}.visible .entry k(.param .u64 p) {{ .reg .f32 %f<{REGISTERS}>; .reg .b64 %rd<3>;
    .reg .b32 %r<3>; .reg .pred %p<2>; ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2; rem.u32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0;
    {loads}\n{body}\n{stores} ret; }}"""
    device = CpuDevice(threads=1)
    out = device.allocate(start.nbytes)
    device.write(out, start.tobytes())
    kernel = device.load(parse_module(text)).kernel("k")
    device.launch(kernel, (1, 1, 1), (32, 1, 1), struct.pack("<Q", out))
    found = np.frombuffer(device.read(out, start.nbytes), np.uint32).reshape(start.shape)
    device.close()
    assert found.tolist() == np.array(values, np.float32).view(np.uint32).tolist()
