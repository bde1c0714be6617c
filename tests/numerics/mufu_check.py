"""Hold the vector IR of NVIDIA's approximate units to an H200's own outputs, over all 2^32 inputs.

    PYTHONPATH=tests/support python tests/numerics/mufu_check.py [function ...]     or: make check-mufu

``data/mufu_hashes.npz`` has one hash for every 2^20 consecutive inputs (2^16 for the 16-bit functions): the
sum of fmix32(output + input * 0x9E3779B9) modulo 2^32, measured on an H200 (sm_90, driver 580.159.04).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lane_harness
import numpy as np

from zluda.compiler.ir import Builder, Module, Value
from zluda.compiler.lower import rounding, units
from zluda.compiler.lower.lanewise import canonical_nan

HASHES = Path(__file__).parent / "data" / "mufu_hashes.npz"
GOLDEN_RATIO = 0x9E3779B9
LANES = 16


def _half(unit: str, mode: str) -> Callable[[Builder, Value], Value]:
    """A 16-bit function: the f32 unit on the widened input, its result truncated."""

    def emit(b: Builder, x: Value) -> Value:
        if mode == "bf16":
            return b.zext(
                rounding.to_bfloat(b, units.call_unit(b, unit, b.bitcast(b.shl(x, 16), "float")), "rz"), "i32"
            )
        widened = b.cast("fpext", b.bitcast(b.trunc(x, "i16"), "half"), "float")
        return b.zext(
            canonical_nan(b, rounding.truncate_to_half(b, units.call_unit(b, unit, widened))), "i32"
        )

    return emit


def _high_word(name: str) -> Callable[[Builder, Value], Value]:
    def emit(b: Builder, x: Value) -> Value:
        bits = units.call_unit_f64(b, name, b.shl(b.zext(x, "i64"), 32))
        return b.trunc(b.lshr(bits, 32), "i32")

    return emit


def _single(name: str) -> Callable[[Builder, Value], Value]:
    return lambda b, x: canonical_nan(b, units.call_unit(b, name, b.bitcast(x, "float")))


FUNCTIONS: dict[str, Callable[[Builder, Value], Value]] = {
    **{name: _single(name) for name in units.UNITS},
    **{name: _high_word(name) for name in ("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64")},
    "ex2.approx.f16": _half("ex2.approx.ftz.f32", "f16"),
    "tanh.approx.f16": _half("tanh.approx.f32", "f16"),
    "ex2.approx.ftz.bf16": _half("ex2.approx.ftz.f32", "bf16"),
    "tanh.approx.bf16": _half("tanh.approx.f32", "bf16"),
}


def _mix(b: Builder, h: Value) -> Value:
    """MurmurHash3's 32-bit finaliser."""
    h = b.mul(b.xor(h, b.lshr(h, 16)), 0x85EBCA6B)
    h = b.mul(b.xor(h, b.lshr(h, 13)), 0xC2B2AE35)
    return b.xor(h, b.lshr(h, 16))


def _emit_block_hash(module: Module, symbol: str, name: str) -> None:
    """``i32 symbol(i32 first, i64 count)``: the hash of ``count`` consecutive inputs."""
    b = Builder(module)
    b.label("entry")
    base = b.splat(Value("i32", 1, "%first"), LANES)
    first = b.add(base, b.vector("i32", list(range(LANES))))
    b.branch("loop")
    b.label("loop")
    kind = f"<{LANES} x i32>"
    b.emit("%i = phi i64 [ 0, %entry ], [ %next, %loop ]")
    b.emit(f"%x = phi {kind} [ {first.ref}, %entry ], [ %x.next, %loop ]")
    b.emit(f"%sum = phi {kind} [ zeroinitializer, %entry ], [ %sum.next, %loop ]")
    x = Value("i32", LANES, "%x")
    mixed = _mix(b, b.add(FUNCTIONS[name](b, x), b.mul(x, GOLDEN_RATIO)))
    b.emit(f"%sum.next = add {kind} %sum, {mixed.ref}")
    b.emit(f"%x.next = add {kind} %x, splat (i32 {LANES})")
    b.emit(f"%next = add i64 %i, {LANES}")
    b.emit("%more = icmp ult i64 %next, %count")
    b.cond_branch(Value("i1", 1, "%more"), "loop", "done")
    b.label("done")
    b.ret(b.call(f"llvm.vector.reduce.add.v{LANES}i32", [Value("i32", LANES, "%sum.next")], "i32"))
    attributes = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'
    module.define(symbol, f"i32 @{symbol}(i32 %first, i64 %count) {attributes}", b)


def compile_hashes(names: Iterable[str]) -> dict[str, Callable[[int, int], int]]:
    """For each function ``hash(first, count)``, in native code."""
    module = Module()
    symbols = {name: f"hash.{name}" for name in names}
    for name, symbol in symbols.items():
        _emit_block_hash(module, symbol, name)
    addresses = lane_harness.load(module, *symbols.values())
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int64)
    return {name: prototype(address) for name, address in zip(symbols, addresses, strict=True)}


def block_size(name: str, blocks: int) -> int:
    """Inputs a block: the 16-bit functions have a single one."""
    return 1 << (16 if blocks == 1 else 20)


def wrong_blocks(
    name: str, block_hash: Callable[[int, int], int], step: int = 1, first: int = 0
) -> list[int]:
    """First inputs of the blocks that differ from the H200's, of every ``step``-th block."""
    golden = np.load(HASHES)[name]
    size = block_size(name, len(golden))
    blocks = range(first % len(golden), len(golden), step)
    with ThreadPoolExecutor(2) as pool:
        hashes = list(pool.map(lambda k: block_hash(k * size, size), blocks))
    return [k * size for k, h in zip(blocks, hashes, strict=True) if h != int(golden[k])]


def main() -> int:
    """Check the named functions, or all, whole."""
    names = sys.argv[1:] or list(FUNCTIONS)
    bad = 0
    for name, block_hash in compile_hashes(names).items():
        start = time.perf_counter()
        wrong = wrong_blocks(name, block_hash)
        bad += len(wrong)
        where = f": first at {wrong[0]:#010x}" if wrong else ""
        print(f"{name:22} {len(wrong)} blocks differ{where}  {time.perf_counter() - start:.1f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
