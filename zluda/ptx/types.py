"""PTX's fundamental and packed types (PTX ISA 5.2)."""

from __future__ import annotations

import enum


class ScalarType(enum.Enum):
    """A type as PTX writes it. ``value`` is (spelling, bits, kind)."""

    PRED = ("pred", 1, "pred")
    B8 = ("b8", 8, "b")
    B16 = ("b16", 16, "b")
    B32 = ("b32", 32, "b")
    B64 = ("b64", 64, "b")
    B128 = ("b128", 128, "b")
    U8 = ("u8", 8, "u")
    U16 = ("u16", 16, "u")
    U32 = ("u32", 32, "u")
    U64 = ("u64", 64, "u")
    S8 = ("s8", 8, "s")
    S16 = ("s16", 16, "s")
    S32 = ("s32", 32, "s")
    S64 = ("s64", 64, "s")
    U16X2 = ("u16x2", 32, "u")
    S16X2 = ("s16x2", 32, "s")
    F16 = ("f16", 16, "f")
    F16X2 = ("f16x2", 32, "f")
    BF16 = ("bf16", 16, "f")
    BF16X2 = ("bf16x2", 32, "f")
    TF32 = ("tf32", 32, "f")
    F32 = ("f32", 32, "f")
    F32X2 = ("f32x2", 64, "f")
    F64 = ("f64", 64, "f")
    B1 = ("b1", 1, "b")
    B4 = ("b4", 4, "b")
    U4 = ("u4", 4, "u")
    S4 = ("s4", 4, "s")
    B2X16 = ("b2x16", 32, "b")
    B4X16 = ("b4x16", 64, "b")
    B4X16_P64 = ("b4x16_p64", 128, "b")
    B6X16_P32 = ("b6x16_p32", 128, "b")
    B6P2X16 = ("b6p2x16", 128, "b")
    B8X16 = ("b8x16", 128, "b")
    U8X4 = ("u8x4", 32, "u")
    S8X4 = ("s8x4", 32, "s")
    U4X8 = ("u4x8", 32, "u")
    S4X8 = ("s4x8", 32, "s")
    E4M3 = ("e4m3", 8, "f")
    E5M2 = ("e5m2", 8, "f")
    E2M3 = ("e2m3", 8, "f")
    E3M2 = ("e3m2", 8, "f")
    E2M1 = ("e2m1", 4, "f")
    UE8M0 = ("ue8m0", 8, "f")
    UE4M3 = ("ue4m3", 8, "f")
    E4M3X2 = ("e4m3x2", 16, "f")
    E5M2X2 = ("e5m2x2", 16, "f")
    E2M3X2 = ("e2m3x2", 16, "f")
    E3M2X2 = ("e3m2x2", 16, "f")
    E2M1X2 = ("e2m1x2", 8, "f")
    UE8M0X2 = ("ue8m0x2", 16, "f")
    S2F6X2 = ("s2f6x2", 16, "f")
    E4M3X4 = ("e4m3x4", 32, "f")
    E5M2X4 = ("e5m2x4", 32, "f")
    E2M3X4 = ("e2m3x4", 32, "f")
    E3M2X4 = ("e3m2x4", 32, "f")
    E2M1X4 = ("e2m1x4", 16, "f")
    TEXREF = ("texref", 64, "ref")
    SAMPLERREF = ("samplerref", 64, "ref")
    SURFREF = ("surfref", 64, "ref")

    __hash__ = object.__hash__  # members are single objects; Enum's own is slow Python

    spelling: str
    """As PTX writes it, without the dot: ``"u32"``."""
    bits: int
    """Width in bits."""
    kind: str
    """``"b"`` bits, ``"u"`` unsigned, ``"s"`` signed, ``"f"`` floating, ``"pred"``, ``"ref"`` opaque."""

    def __init__(self, spelling: str, bits: int, kind: str) -> None:
        self.spelling, self.bits, self.kind = spelling, bits, kind  # read more often than anything else

    def __str__(self) -> str:
        return self.spelling


BY_SPELLING: dict[str, ScalarType] = {t.spelling: t for t in ScalarType}
"""Every type by its spelling without the dot."""
