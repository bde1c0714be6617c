"""The dispatch table: what it promises its callers, and how it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from lane_harness import instructions, run_many

from zluda.compiler.ir import Builder, Module, Value
from zluda.compiler.lower.families import LANEWISE
from zluda.compiler.lower.lanewise import canonical_nan, reads_carry, writes_carry

X = Value("i32", 4, "%x")


def lower(body: str, result: str, sources: str, values: list[Value]) -> Value | tuple[Value, ...]:
    (inst,) = instructions(body, result, sources.split())
    return LANEWISE[inst.opcode](Builder(Module()), inst, values)


@pytest.mark.parametrize(
    "body,kinds,type",
    [
        ("add.u32 {d}, {a}, {a};", "u32 u32", "i32"),
        ("add.f32 {d}, {a}, {a};", "f32 f32", "float"),
        ("mul.wide.s32 {d}, {a}, {a};", "s64 s32", "i64"),
        ("popc.b64 {d}, {a};", "u32 b64", "i32"),
        ("cvt.u8.u32 {d}, {a};", "b32 u32", "i8"),
        ("cvt.rn.f64.s32 {d}, {a};", "f64 s32", "double"),
        ("cvt.rn.bf16.f32 {d}, {a};", "bf16 f32", "i16"),
        ("cvt.rn.f16.f32 {d}, {a};", "f16 f32", "half"),
        ("ex2.approx.ftz.f32 {d}, {a};", "f32 f32", "float"),
    ],
)
def test_result_types(body: str, kinds: str, type: str) -> None:
    result, source = kinds.split()
    width = {"b64": "i64"}.get(source, "i32")
    value = lower(
        body, result, source, [Value(width, 4, "%x")] * 2 if "{a}, {a}" in body else [Value(width, 4, "%x")]
    )
    assert isinstance(value, Value) and (value.type, value.lanes) == (type, 4)


def test_carry_is_an_extra_operand_and_an_extra_result() -> None:
    (first,) = instructions("add.cc.u32 {d}, {a}, {a};", "u32", ["u32"])
    (middle,) = instructions("addc.cc.u32 {d}, {a}, {a};", "u32", ["u32"])
    (last,) = instructions("addc.u32 {d}, {a}, {a};", "u32", ["u32"])
    assert [(reads_carry(i), writes_carry(i)) for i in (first, middle, last)] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    carry = Value("i1", 4, "%c")
    result = LANEWISE["addc"](Builder(Module()), middle, [X, X, carry])
    assert not isinstance(result, Value) and [v.type for v in result] == ["i32", "i1"]


def test_canonical_nan_leaves_numbers_and_doubles_alone() -> None:
    b = Builder(Module())
    assert canonical_nan(b, X) is X
    assert canonical_nan(b, Value("float", 4, "%f")).type == "i32"
    before = len(b.lines)
    assert canonical_nan(b, Value("double", 4, "%f")).type == "i64"
    assert len(b.lines) == before + 1  # the bitcast


def test_invalid_operations_give_nvidias_nan() -> None:
    infinity = np.array([0x7F800000], dtype=np.uint64)
    forms = [("sub.f32 {d}, {a}, {a};", "f32", "f32"), ("mul.rm.f32 {d}, {a}, 0f00000000;", "f32", "f32")]
    assert [int(r[0]) for r in run_many(forms, [infinity])] == [0x7FFFFFFF, 0x7FFFFFFF]
    double = np.array([0x7FF0 << 48], dtype=np.uint64)
    forms = [(f"sub.{mode}.f64 {{d}}, {{a}}, {{a}};", "f64", "f64") for mode in ("rn", "rm", "rz")]
    assert {int(r[0]) for r in run_many(forms, [double])} == {0xFFF8 << 48}
