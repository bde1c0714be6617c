"""``wgmma.mma_async.sp`` (PTX ISA 9.7.15.6): a block is one warpgroup, with A and B in shared memory.

Operands are made as those of :mod:`tensor`. A is 64 rows of 32 stored bytes, B 16 columns of 64, both in
plain K-major cores of 8 lines and 16 bytes.
"""

from __future__ import annotations

import re

from isa_forms.form import Form, expand
from isa_forms.tensor import _BITS, _folded, _made

FAMILY = "sparse_wgmma"
SOURCES = ("b64", "b64", "b64")
TARGET = "sm_90a"

_PATTERNS = """
wgmma.mma_async.sp.sync.aligned.m64n16k32.(f32|f16).f16.f16
wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.bf16.bf16
wgmma.mma_async.sp.sync.aligned.m64n16k16.f32.tf32.tf32
wgmma.mma_async.sp.sync.aligned.m64n16k64.(f32|f16).(e4m3|e5m2).(e4m3|e5m2)
wgmma.mma_async.sp.sync.aligned.m64n16k64[.satfinite].s32.(s8|u8).(s8|u8)
"""
_TILE = ".shared .align 1024 .b8 sparse_tile[4096];"
_B_AT = 2048
_NIBBLES = {"tf32": 0x4E4EE44E}  # of every chunk a valid pair, or the one of two
_ANY_PAIRS = 0x4E9DC84D
_LAYOUTS = {"a": (128, 256), "b": (128, 512)}  # bytes to the next core along K, to the next eight lines
_TRANSPOSED = (256, 128)  # of B: eight columns further, eight of K further


def _descriptor(letter: str, at: int, *, transposed: bool = False) -> list[str]:
    """Lines that make ``%d<letter>`` (PTX ISA 9.7.15.5.1.2)."""
    leading, stride = _TRANSPOSED if transposed else _LAYOUTS[letter]
    bits = leading // 16 << 16 | stride // 16 << 32
    return [
        f"add.u32 %at, %tile, {at};",
        "shr.u32 %at, %at, 4;",
        f"cvt.u64.u32 %d{letter}, %at;",
        f"or.b64 %d{letter}, %d{letter}, {bits:#x};",
    ]


def _form(
    op: str,
    selector: int = 0,
    *,
    in_registers: bool = False,
    signs: tuple[int, int] = (1, 1),
    transposed: bool = False,
) -> Form:
    d, a, b = (word for word in re.split(r"[.]", op) if word in _BITS)
    count = 4 if d == "f16" else 8
    lines = [".reg .b32 %low, %high, %meta, %at, %tile, %a<4>, %b<2>, %d<8>;", ".reg .b64 %da, %db;"]
    lines += [".reg .pred %keep;", "mov.u32 %tile, sparse_tile;", "mad.lo.u32 %at, %thread, 16, %tile;"]
    halves = [
        *_made("a", "a", 2, a),
        *(line.replace("%a1", "%a3").replace("%a0", "%a2") for line in _made("a", "b", 2, a)),
    ]
    lines += [*halves, "st.shared.v4.b32 [%at], {%a0, %a1, %a2, %a3};"]
    lines += [*_made("b", "c", 2, b), "mad.lo.u32 %at, %thread, 8, %tile;"]
    lines += [f"st.shared.v2.b32 [%at+{_B_AT}], {{%b0, %b1}};", *_made("d", "b", count, d)]
    lines += [f"mov.b32 %low, {_NIBBLES.get(a, _ANY_PAIRS):#x};", "shl.b32 %meta, %thread, 2;"]
    lines += ["shf.l.wrap.b32 %meta, %low, %low, %meta;", "setp.ne.u32 %keep, %tile, 0xffffffff;"]
    lines += [*_descriptor("a", 0), *_descriptor("b", _B_AT, transposed=transposed)]
    lines += ["fence.proxy.async;", "bar.sync 0;", "wgmma.fence.sync.aligned;"]
    accumulators = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
    rows = "{%a0, %a1, %a2, %a3}" if in_registers else "%da"
    constants = "" if a in ("s8", "u8") else "".join(f", {sign}" for sign in signs)
    if a in ("f16", "bf16"):
        constants += ("" if in_registers else ", 0") + f", {int(transposed)}"
    lines += [f"{op} {accumulators}, {rows}, %db, %meta, {selector:#x}, %keep{constants};"]
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;", "bar.sync 0;"]
    notes = [f"selector {selector}"] if selector else []
    notes += ["A in registers"] if in_registers else []
    notes += ["signs turned"] if signs != (1, 1) else []
    notes += ["B transposed"] if transposed else []
    name = " ".join([op, *notes])
    return Form(
        name,
        FAMILY,
        "b64",
        SOURCES,
        "\n".join([*lines, *_folded("d", count, wide=False)]),
        _TILE,
        target=TARGET,
    )


def forms() -> list[Form]:
    """Every type, each selector, A in registers, turned signs and a transposed B."""
    ops = [op for line in _PATTERNS.strip().splitlines() for op in expand(line)]
    made = [_form(op) for op in ops]
    made += [_form(op, in_registers=True) for op in ops]
    wide = [op for op in ops if not re.search(r"k64", op)]
    made += [_form(op, 1) for op in wide]
    made += [_form(op, signs=(-1, 1)) for op in ops if "s32" not in op]
    return made + [_form(op, 1, signs=(1, -1), transposed=True) for op in wide if "tf32" not in op]
