"""The IR builder: constants by their bits, scalars beside vectors, and text that LLVM accepts."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

import lane_harness
import llvmlite.binding as llvm
import numpy as np
import pytest

from zluda.compiler.ir import Builder, Module, Value, constant, mangle, type_bits

I32 = Value("i32", 1, "%x")
WIDE = Value("i32", 16, "%v")


def builder() -> Builder:
    return Builder(Module())


def execute(
    emit: Callable[[Builder, Value], Value], inputs: np.ndarray, out: np.ndarray, lanes: int
) -> np.ndarray:
    """Run ``emit(builder, loaded vector)`` once over ``lanes`` lanes."""
    module = Module()
    b = Builder(module)
    b.label("entry")
    element = {4: "i32", 8: "i64"}[inputs.itemsize]
    result = emit(b, b.load(element, Value("ptr", 1, "%in"), lanes))
    b.store(result, Value("ptr", 1, "%out"))
    b.ret()
    module.define("f", "void @f(ptr %in, ptr %out)", b)
    (address,) = lane_harness.load(module, "f")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)(inputs.ctypes.data, out.ctypes.data)
    return out


@pytest.mark.parametrize(
    "element,bits,text",
    [
        ("i32", 5, "5"),
        ("i32", 0xFFFFFFFF, "-1"),
        ("i1", 1, "true"),
        ("i64", 1 << 63, "-9223372036854775808"),
        ("float", 0x3F800000, "0x3FF0000000000000"),
        ("double", 0x3FF0 << 48, "0x3FF0000000000000"),
        ("ptr", 0, "null"),
    ],
)
def test_constant_text(element: str, bits: int, text: str) -> None:
    assert constant(element, bits).ref == text


@pytest.mark.parametrize(
    "bits", [0, 1, 0x80000000, 0x007FFFFF, 0x3DCCCCCD, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0xFFC12345]
)
def test_float_constants_keep_their_bits(bits: int) -> None:
    out = np.zeros(16, dtype=np.uint32)
    got = execute(lambda b, x: b.bitcast(b.splat(b.const("float", bits), 16), "i32"), out.copy(), out, 16)
    assert set(got.tolist()) == {bits}


def test_float_numbers_are_rounded_and_integers_are_bits() -> None:
    assert constant("float", 0.1).bits == struct.unpack("<I", struct.pack("<f", 0.1))[0]
    assert constant("half", 1.0).bits == 0x3C00
    assert constant("float", 1).bits == 1


def test_a_scalar_beside_a_vector_is_splat() -> None:
    b = builder()
    assert b.add(WIDE, I32).lanes == 16
    assert b.add(I32, 3).lanes == 1
    assert b.splat(b.const("i32", 3), 16).ref == "splat (i32 3)"
    assert b.splat(WIDE, 16) is WIDE


def test_identities_and_constants_write_nothing() -> None:
    b = builder()
    two, three = b.const("i32", 2), b.const("i32", 3)
    assert b.add(WIDE, 0) is WIDE and b.mul(WIDE, 1) is WIDE and b.shl(WIDE, 0) is WIDE
    assert b.mul(two, three).bits == 6 and b.sub(two, three).bits == 0xFFFFFFFF
    assert b.icmp("ult", two, three).bits == 1
    assert b.select(b.const("i1", 0), WIDE, I32).lanes == 16
    assert b.sext(b.const("i8", 0x80), "i32").bits == 0xFFFFFF80
    assert b.resize(b.const("i64", 0x1FFFFFFFF), "i32").bits == 0xFFFFFFFF
    written = [
        line for line in b.lines if not line.split("= ")[1].startswith(("insertelement", "shufflevector"))
    ]
    assert written == []


def test_every_lane_helper_gives_text_that_llvm_verifies() -> None:
    module = Module()
    b = Builder(module)
    b.label("entry")
    slot = b.alloca("i32", 16)
    table = module.table("numbers", "i32", [3, 1, 4])
    index = b.and_(b.load("i32", slot, 16, align=64), 1)
    value = b.gather("i32", b.gep(table, index, "i32"), align=4, mask=b.icmp("ne", index, 0))
    value = b.shuffle(value, None, [15 - i for i in range(16)])
    value = b.insert(value, b.extract(value, 3), b.const("i32", 2))
    value = b.or_(value, b.pack([b.extract(value, i) for i in range(16)]))
    value = b.intrinsic("fshl", value, value, 5)
    value = b.mul_high(value, b.intrinsic("ctlz", value, False), signed=True)
    value = b.convert_saturating("fptosi.sat", b.cast("sitofp", value, "float"), "i32")
    b.cond_branch(b.any(b.icmp("eq", value, 7)), "some", "none")
    b.label("some")
    b.branch("none")
    b.label("none")
    merged = b.phi("i32", 16, [(value, "entry"), (index, "some")])
    b.switch(b.extract(merged, 0), "out", [(1, "dead"), (2, "out")])
    b.label("dead")
    b.unreachable()
    b.label("out")
    b.store(merged, slot, align=64)
    b.ret(b.zext(b.all(b.icmp("ne", merged, 0)), "i32"))
    module.define("f", "i32 @f()", b)
    llvm.parse_assembly(module.text()).verify()


def test_functions_and_tables_are_written_once() -> None:
    module = Module()
    for _ in range(2):
        module.function("twice", [("i32", 4)], lambda b, a: b.add(a[0], a[0]))
        module.table("t", "i32", [1])
    b = Builder(module)
    b.label("entry")
    argument = b.splat(b.const("i32", 4), 4)
    b.ret(b.extract(b.call("twice", [argument], "i32", 4), 0))
    module.define("f", "i32 @f()", b)
    text = module.text()
    assert text.count("define internal <4 x i32> @twice") == 1 and "declare" not in text
    llvm.parse_assembly(text).verify()


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_mul_high_of_64_bits(lanes: int, signed: bool) -> None:
    random = np.random.default_rng(1)
    x = random.integers(0, (1 << 64) - 1, 16, dtype=np.uint64)
    factor = 0xFEDCBA9876543210
    got = execute(
        lambda b, v: b.mul_high(v, b.const("i64", factor), signed=signed), x, np.zeros_like(x), lanes
    )

    def number(bits: int) -> int:
        return bits - (1 << 64) if signed and bits >> 63 else bits

    expected = [(number(int(v)) * number(factor) >> 64) & ((1 << 64) - 1) for v in x]
    assert got.tolist()[:lanes] == expected[:lanes]


def test_names_and_widths() -> None:
    assert mangle("float", 16) == "v16f32" and mangle("ptr") == "p0" and mangle("i1", 4) == "v4i1"
    assert type_bits("ptr") == 64 and type_bits("half") == 16 and type_bits("i1") == 1
    assert WIDE.typed == "<16 x i32> %v" and I32.typed == "i32 %x"
