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

    @property
    def spelling(self) -> str:
        """As PTX writes it, without the dot: ``"u32"``."""
        return self.value[0]

    @property
    def bits(self) -> int:
        """Width in bits."""
        return self.value[1]

    @property
    def kind(self) -> str:
        """``"b"`` untyped bits, ``"u"`` unsigned, ``"s"`` signed, ``"f"`` floating point, ``"pred"``."""
        return self.value[2]

    def __str__(self) -> str:
        return self.value[0]
