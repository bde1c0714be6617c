"""Words of the slots that mean the same in every row, and named groups of types."""

from __future__ import annotations

SLOTS: dict[str, str] = {
    "rnd": "rn rz rm rp",
    "cmp": "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan",
    "boolop": "and or xor",
    "scope": "cta cluster gpu sys",
    "cache_hint": "L2::cache_hint",
    "prefetch": "L2::64B L2::128B L2::256B",
    "evict": "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate "
    "L2::evict_normal L2::evict_first L2::evict_last",
    "evict2": "L2::evict_normal L2::evict_first L2::evict_last",
    "vec": "v2 v4 v8",
    "alayout": "row col",
    "blayout": "row col",
    "layout": "row col",
    "clamp": "trap clamp zero",
}
"""Slot name to its words, where a row does not give its own."""

TYPE_GROUPS: dict[str, str] = {
    "int": "u16 u32 u64 s16 s32 s64",
    "int8": "u8 u16 u32 u64 s8 s16 s32 s64",
    "bits": "b16 b32 b64",
    "half": "f16 f16x2 bf16 bf16x2",
    "memory": "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
    "fp8x2": "e4m3x2 e5m2x2",
    "fp6x2": "e2m3x2 e3m2x2",
    "fp8x4": "e4m3x4 e5m2x4 e2m3x4 e3m2x4",
    "ws_collector": " ".join(
        f"collector::b{n}::{use}" for n in range(4) for use in ("fill", "use", "lastuse", "discard")
    ),
    **{f"wgmma{k}": " ".join(f"m64n{n}k{k}" for n in range(8, 257, 8)) for k in (8, 16, 32, 64, 256)},
}
"""``<name>`` in a row's words stands for these."""
