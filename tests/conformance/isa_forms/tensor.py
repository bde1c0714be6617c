"""Matrix instructions of a warp (PTX ISA 9.7.14): mma, mma.sp, wmma.mma, ldmatrix, stmatrix, movmatrix.

Registers of A, B and C are made from the thread's three operands; those of D are folded into one result, so
that any wrong bit of any of them shows. Floating-point operands are brought into a window of exponents where
terms meet, overflow being for ``tensor_cores.npz``, which holds whole tiles of every kind of number.
"""

from __future__ import annotations

import re

from isa_forms.form import Form, expand

FAMILY = "tensor"
SOURCES = ("b64", "b64", "b64")

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
_BITS |= {"b1": 1, "f32": 32, "s32": 32, "f64": 64}
# What is kept of a register, and what is set in it.
_WINDOWS = {"f16": (0xBFFFBFFF, 0), "bf16": (0x87FF87FF, 0x38003800), "e4m3": (0xBFBFBFBF, 0)}
_WINDOWS |= {"e5m2": _WINDOWS["e4m3"], "tf32": (0x87FFFFFF, 0x38000000), "f32": (0x87FFFFFF, 0x38000000)}
_WIDE_WINDOW = 0x807FFFFFFFFFFFFF, 0x3F80000000000000
_ODD, _WIDE_ODD = 0x9E3779B1, 0x9E3779B97F4A7C15

_MMA = """
mma.sync.aligned.(m16n8k8|m16n8k16).row.col.(f16.f16.f16.f16|f32.f16.f16.f32|f32.bf16.bf16.f32)
mma.sync.aligned.(m16n8k4|m16n8k8).row.col.f32.tf32.tf32.f32
mma.sync.aligned.(m16n8k16|m16n8k32).row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32
mma.sync.aligned.(m16n8k16|m16n8k32).row.col.f16.(e4m3|e5m2).(e4m3|e5m2).f16
mma.sync.aligned.(m8n8k16|m16n8k16|m16n8k32).row.col[.satfinite].s32.(s8|u8).(s8|u8).s32
mma.sync.aligned.(m8n8k32|m16n8k32|m16n8k64).row.col[.satfinite].s32.(s4|u4).(s4|u4).s32
mma.sync.aligned.(m8n8k128|m16n8k128|m16n8k256).row.col.s32.b1.b1.s32.(and|xor).popc
mma.sync.aligned.(m8n8k4|m16n8k4|m16n8k8|m16n8k16).row.col[.rn|.rz|.rm|.rp].f64.f64.f64.f64
mma.sync.aligned.m8n8k4.(row|col).(row|col).(f16.f16.f16.f16|f32.f16.f16.f32|f32.f16.f16.f16)
"""
_SPARSE = """
mma.(sp|sp::ordered_metadata).sync.aligned.(m16n8k16|m16n8k32).row.col.(f16.f16.f16.f16|f32.f16.f16.f32)
mma.(sp|sp::ordered_metadata).sync.aligned.(m16n8k16|m16n8k32).row.col.f32.bf16.bf16.f32
mma.(sp|sp::ordered_metadata).sync.aligned.(m16n8k8|m16n8k16).row.col.f32.tf32.tf32.f32
mma.(sp|sp::ordered_metadata).sync.aligned.m16n8k64.row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32
mma.(sp|sp::ordered_metadata).sync.aligned.(m16n8k32|m16n8k64).row.col[.satfinite].s32.(s8|u8).(s8|u8).s32
mma.(sp|sp::ordered_metadata).sync.aligned.(m16n8k64|m16n8k128).row.col[.satfinite].s32.(s4|u4).(s4|u4).s32
"""
_WMMA = """
wmma.mma.sync.aligned.(row|col).(row|col).(m16n16k16|m32n8k16|m8n32k16).(f16|f32).(f16|f32)
wmma.mma.sync.aligned.(row|col).(row|col).(m16n16k16|m32n8k16|m8n32k16).f32.bf16.bf16.f32
wmma.mma.sync.aligned.(row|col).(row|col).m16n16k8.f32.tf32.tf32.f32
wmma.mma.sync.aligned.row.col.(m16n16k16|m32n8k16|m8n32k16).s32.(s8.s8|u8.u8).s32[.satfinite]
wmma.mma.sync.aligned.row.col.m8n8k32.s32.(s4.s4|u4.u4).s32[.satfinite]
wmma.mma.(and|xor).popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32
wmma.mma.sync.aligned.(row|col).(row|col).m8n8k4[.rn|.rz|.rm|.rp].f64.f64.f64.f64
"""
# How many selectors a sparse shape has, by the bits of an element and K.
_SELECTORS = {(16, 16): 4, (16, 32): 2, (32, 8): 4, (32, 16): 2, (8, 32): 2, (8, 64): 1}
_SELECTORS |= {(4, 64): 2, (4, 128): 1}


def _patterns(text: str) -> list[str]:
    return [op for line in text.strip().splitlines() for op in expand(line)]


def _types(op: str) -> list[str]:
    """Types of D, A, B and C."""
    found = [word for word in op.split(".") if word in _BITS]
    return found if len(found) == 4 else [found[0], "f16", "f16", found[1]]


def _counts(op: str, types: list[str]) -> list[int]:
    """Registers of D, A, B and C in each lane."""
    m, n, k = map(int, re.search(r"\.m(\d+)n(\d+)k(\d+)", op).groups())  # type: ignore[union-attr]
    d, a, _, c = types
    if ".m8n8k4." in op and a == "f16":
        return [4 if d == "f16" else 8, 2, 2, 4 if c == "f16" else 8]
    if op.startswith("wmma") and a == "f16":
        return [m * n // (64 if d == "f16" else 32), 8, 8, m * n // (64 if c == "f16" else 32)]
    elements = [m * n, m * k // (2 if ".sp" in op else 1), n * k, m * n]
    return [
        -(-count * _BITS[name] // (32 * max(_BITS[name], 32)))
        for count, name in zip(elements, types, strict=True)
    ]


def _made(letter: str, source: str, count: int, type_name: str) -> list[str]:
    """Lines that make an operand's registers from a 64-bit source."""
    if type_name == "f64":
        keep, put = _WIDE_WINDOW
        lines = []
        for i in range(count):
            lines += [f"add.u64 %{letter}{i}, {{{source}}}, {i * _WIDE_ODD & (1 << 64) - 1:#x};"]
            lines += [
                f"and.b64 %{letter}{i}, %{letter}{i}, {keep:#x};",
                f"or.b64 %{letter}{i}, %{letter}{i}, {put:#x};",
            ]
        return lines
    keep, put = _WINDOWS.get(type_name, (0xFFFFFFFF, 0))
    lines = [f"mov.b64 {{%low, %high}}, {{{source}}};"]
    for i in range(count):
        half = "%high" if i % 2 else "%low"
        lines += [f"add.u32 %{letter}{i}, {half}, {i // 2 * _ODD & 0xFFFFFFFF:#x};"]
        lines += [
            f"and.b32 %{letter}{i}, %{letter}{i}, {keep:#x};",
            f"or.b32 %{letter}{i}, %{letter}{i}, {put:#x};",
        ]
    return lines


def _folded(letter: str, count: int, wide: bool) -> list[str]:
    """Lines that fold an operand's registers into the result."""
    if wide:
        lines = [f"mov.b64 {{d}}, %{letter}0;"]
        return lines + [f"mad.lo.u64 {{d}}, {{d}}, {_WIDE_ODD:#x}, %{letter}{i};" for i in range(1, count)]
    lines = ["mov.b32 %low, 0;", "mov.b32 %high, 0;"]
    for i in range(count):
        half = "%high" if i % 2 else "%low"
        lines += [f"mad.lo.u32 {half}, {half}, {_ODD:#x}, %{letter}{i};"]
    return [*lines, "mov.b64 {d}, {%low, %high};"]


def _product(op: str, selector: int | None = None) -> Form:
    types = _types(op)
    counts = _counts(op, types)
    lines = [".reg .b32 %low, %high, %meta;"]
    for letter, count, name in zip("dabc", counts, types, strict=True):
        lines += [f".reg .b{max(_BITS[name], 32)} %{letter}<{count}>;"]
    for letter, count, name in zip("abc", counts[1:], types[1:], strict=True):
        lines += _made(letter, letter, count, name)
    extra = ""
    if selector is not None:
        nibbles = 0x4E4EE44E if "tf32" in types else 0x4E9DC84D  # every chunk a valid pair
        lines += ["shl.b32 %meta, %lane, 2;", f"mov.b32 %low, {nibbles:#x};"]
        lines += ["shf.l.wrap.b32 %meta, %low, %low, %meta;"]
        extra = f", %meta, {selector:#x}"
    text = ", ".join(
        "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"
        for letter, count in zip("dabc", counts, strict=True)
    )
    lines += [f"{op} {text}{extra};", *_folded("d", counts[0], types[0] == "f64")]
    note = f" selector {selector}" if selector else ""
    return Form(op + note, FAMILY, "b64", SOURCES, "\n".join(lines))


def _sparse(op: str) -> list[Form]:
    k = int(re.search(r"n8k(\d+)", op)[1])  # type: ignore[index]
    return [_product(op, selector) for selector in range(_SELECTORS[_BITS[_types(op)[1]], k])]


_TILE = ".shared .align 16 .b8 tensor_tile[2048];"
_OWN_ROW = [
    ".reg .b32 %low, %high, %at;",
    "mov.b32 %at, tensor_tile;",
    "mad.lo.u32 %at, %thread, 16, %at;",
    "bar.warp.sync 0xffffffff;",
    "st.shared.v2.b64 [%at], {{a}, {b}};",
    "bar.warp.sync 0xffffffff;",
]


def _rows_and_columns() -> list[Form]:
    forms = []
    for count in (1, 2, 4):
        registers = ", ".join(f"%m{i}" for i in range(count))
        for turned in ("", ".trans"):
            op = f"ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16"
            lines = [*_OWN_ROW, f".reg .b32 %m<{count}>;", f"{op} {{{registers}}}, [%at];"]
            forms += [_form(op, [*lines, *_folded("m", count, wide=False)])]
            op = f"stmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16"
            lines = [*_OWN_ROW, f".reg .b32 %m<{max(count, 4)}>;", *_made("m", "c", count, "b1")]
            lines += [f"{op} [%at], {{{registers}}};", "bar.warp.sync 0xffffffff;"]
            lines += ["ld.shared.v4.b32 {%m0, %m1, %m2, %m3}, [%at];", "bar.warp.sync 0xffffffff;"]
            forms += [_form(op, [*lines, *_folded("m", 4, wide=False)])]
    op = "movmatrix.sync.aligned.m8n8.trans.b16"
    lines = [".reg .b32 %low, %high, %m<2>;", *_made("m", "a", 2, "b1"), f"{op} %m0, %m0;", f"{op} %m1, %m1;"]
    return [*forms, _form(op, [*lines, *_folded("m", 2, wide=False)])]


def _form(op: str, lines: list[str]) -> Form:
    return Form(op, FAMILY, "b64", SOURCES, "\n".join(lines), _TILE if "%at" in lines[0] else "")


def forms() -> list[Form]:
    """Every form of sm_90 but ``wgmma``'s."""
    products = [_product(op) for op in (*_patterns(_MMA), *_patterns(_WMMA))]
    sparse = [form for op in _patterns(_SPARSE) for form in _sparse(op)]
    return [*products, *sparse, *_rows_and_columns()]
