"""Straight-line programs on the CPU against numpy: a fault that all devices share shows here."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from launches import inputs_of, launch, open_device
from programs import Program
from statements import POOLS, Statement
from writing import OFFSETS, REGISTERS, STRIDE, ptx

from zluda.ptx.types import ScalarType

Words = np.ndarray[Any, np.dtype[np.uint64]]
LOW = np.uint64(0xFFFFFFFF)
NAN = np.uint32(0x7FFFFFFF)


def signed(x: Words) -> np.ndarray[Any, np.dtype[np.int64]]:
    return x.astype(np.uint32).view(np.int32).astype(np.int64)


def bits(x: np.ndarray[Any, Any]) -> Words:
    return x.astype(np.int64).view(np.uint64) & LOW


def shifted(x: Words, by: Words, way: Callable[[Words, Words], Words]) -> Words:
    return np.where(by < 32, way(x, np.minimum(by, 31)), 0).astype(np.uint64) & LOW


def floats(operation: Callable[..., Any]) -> Callable[..., Words]:
    """An IEEE operation on f32 bits, with NVIDIA's NaN."""

    def apply(*operands: Words) -> Words:
        with np.errstate(all="ignore"):
            result = operation(*(x.astype(np.uint32).view(np.float32) for x in operands))
        assert result.dtype == np.float32
        return np.where(np.isnan(result), NAN, result.view(np.uint32)).astype(np.uint64)

    return apply


def count(x: Words) -> Words:
    return np.array([int(v).bit_count() for v in x], np.uint64)


def reverse(x: Words) -> Words:
    return np.array([int(f"{int(v):032b}"[::-1], 2) for v in x], np.uint64)


def leading(x: Words) -> Words:
    return np.array([32 - int(v).bit_length() for v in x], np.uint64)


MEANING: dict[str, tuple[str, Callable[..., Words]]] = {
    "add.u32": ("rrr", lambda a, b: (a + b) & LOW),
    "sub.s32": ("rrr", lambda a, b: (a - b) & LOW),
    "mul.lo.u32": ("rrr", lambda a, b: (a * b) & LOW),
    "mul.hi.u32": ("rrr", lambda a, b: a * b >> np.uint64(32)),
    "mul.hi.s32": ("rrr", lambda a, b: bits(signed(a) * signed(b) >> 32)),
    "mad.lo.s32": ("rrrr", lambda a, b, c: (a * b + c) & LOW),
    "min.s32": ("rrr", lambda a, b: bits(np.minimum(signed(a), signed(b)))),
    "max.u32": ("rrr", np.maximum),
    "abs.s32": ("rr", lambda a: bits(np.abs(signed(a)))),
    "neg.s32": ("rr", lambda a: bits(-signed(a))),
    "sad.u32": ("rrrr", lambda a, b, c: (np.maximum(a, b) - np.minimum(a, b) + c) & LOW),
    "and.b32": ("rrr", np.bitwise_and),
    "or.b32": ("rrr", np.bitwise_or),
    "xor.b32": ("rrr", np.bitwise_xor),
    "not.b32": ("rr", lambda a: a ^ LOW),
    "cnot.b32": ("rr", lambda a: (a == 0).astype(np.uint64)),
    "shl.b32": ("rrr", lambda a, b: shifted(a, b, np.left_shift)),
    "shr.u32": ("rrr", lambda a, b: shifted(a, b, np.right_shift)),
    "shr.s32": ("rrr", lambda a, b: bits(signed(a) >> np.minimum(b, 31).astype(np.int64))),
    "popc.b32": ("rr", count),
    "brev.b32": ("rr", reverse),
    "clz.b32": ("rr", leading),
    "add.rn.f32": ("fff", floats(np.add)),
    "sub.rn.f32": ("fff", floats(np.subtract)),
    "mul.rn.f32": ("fff", floats(np.multiply)),
    "div.rn.f32": ("fff", floats(np.divide)),
    "sqrt.rn.f32": ("ff", floats(np.sqrt)),
    "mov.b32": ("rf", lambda a: a),
}


@pytest.mark.parametrize("seed", range(4))
def test_the_cpu_computes_what_numpy_does(seed: int) -> None:
    rng = random.Random(seed)
    counts = {"r": POOLS[ScalarType.B32][1], "f": POOLS[ScalarType.F32][1]}
    steps = []
    for _ in range(120):
        name = rng.choice(list(MEANING))
        steps.append((name, [f"%{kind}{rng.randrange(counts[kind])}" for kind in MEANING[name][0]]))
    program = Program(tuple(Statement(f"{name} {', '.join(names)};") for name, names in steps), seed=seed)
    inputs = inputs_of(program)
    device = open_device("cpu")
    found = launch(device, ptx(program), program, inputs)["out"]
    device.close()

    places = {name: at for (name, _, size), at in zip(REGISTERS, OFFSETS, strict=False) if size == 4}

    def column(data: bytes, at: int) -> Words:
        rows = np.frombuffer(data, np.uint8).reshape(-1, STRIDE)[:, at : at + 4]
        return np.ascontiguousarray(rows).view(np.uint32)[:, 0].astype(np.uint64)

    values = {name: column(inputs.registers, at) for name, at in places.items()}
    for name, (to, *sources) in steps:
        values[to] = MEANING[name][1](*(values[s] for s in sources))
    for name in {n for _, names in steps for n in names}:
        np.testing.assert_array_equal(column(found, places[name]), values[name], f"{name} of seed {seed}")
