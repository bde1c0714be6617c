"""The names of memory instructions: how each generation spells element sizes and atomic operations.

gfx9 and gfx10 say ``load_dwordx2``, ``load_sbyte_d16_hi``, ``atomic_add_x2``, ``ds_read2st64_b32``; gfx11 and
later ``load_b64``, ``load_d16_hi_i8``, ``atomic_add_u64``, ``ds_load_2addr_stride64_b32``.
"""

from __future__ import annotations

from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Element:
    """What a lane moves: ``words`` registers, or ``bits`` < 32 of one.

    ``signed`` extends a short load by its sign. ``d16`` keeps the register's other half, ``high`` means the
    upper half.
    """

    words: int = 1
    bits: int = 32
    signed: bool = False
    d16: bool = False
    high: bool = False


def _elements() -> dict[str, Element]:
    table: dict[str, Element] = {}
    for words in (1, 2, 3, 4):
        table[f"b{32 * words}"] = table[f"dword{'' if words == 1 else f'x{words}'}"] = Element(words)
    for bits, old in ((8, "byte"), (16, "short")):
        for signed in (False, True):
            sign, letter = ("s", "i") if signed else ("u", "u")
            table[f"{sign}{old}"] = table[f"{letter}{bits}"] = Element(bits=bits, signed=signed)
            for high in (False, True):
                suffix, infix = ("_d16_hi", "d16_hi_") if high else ("_d16", "d16_")
                half = Element(bits=bits, signed=signed, d16=True, high=high)
                table[f"{letter}{bits}{suffix}"] = table[f"{infix}{letter}{bits}"] = half
                if bits == 8:
                    table[f"{sign}byte{suffix}"] = half
        table[old] = table[f"b{bits}"] = Element(bits=bits)
        for high in (False, True):
            suffix, infix = ("_d16_hi", "d16_hi_") if high else ("_d16", "d16_")
            half = Element(bits=bits, d16=True, high=high)
            table[f"{old}{suffix}"] = table[f"b{bits}{suffix}"] = table[f"{infix}b{bits}"] = half
    return table


ELEMENTS = _elements()
"""The element by what follows ``load_`` or ``store_`` (``read_`` or ``write_``)."""


@dataclass(frozen=True, slots=True)
class Atomic:
    """``op`` as :func:`atomics.atomic` names it, ``kind`` the operand's type; see there."""

    op: str
    kind: str


_INTEGER = {
    "add": "add",
    "sub": "sub",
    "rsub": "rsub",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "swap": "xchg",
    "cmpswap": "cmpxchg",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
    "smin": "min",
    "smax": "max",
    "umin": "umin",
    "umax": "umax",
}
_ORDERED = {"min_i": "min", "max_i": "max", "min_u": "umin", "max_u": "umax"}
_FLOATING = {"add": "fadd", "min": "fmin", "max": "fmax", "min_num": "fmin", "max_num": "fmax"}


def _vector_atomics() -> dict[str, Atomic]:
    """By what follows ``global_atomic_``, ``flat_atomic_`` or ``buffer_atomic_``."""
    table: dict[str, Atomic] = {}
    for bits, suffix in ((32, ""), (64, "_x2")):
        for name, op in _INTEGER.items():
            table[name + suffix] = Atomic(op, f"u{bits}")
            table[f"{name}_{'b' if name in ('and', 'or', 'xor', 'swap', 'cmpswap') else 'u'}{bits}"] = Atomic(
                op, f"u{bits}"
            )
        for name, op in _ORDERED.items():
            table[f"{name}{bits}"] = Atomic(op, f"u{bits}")
        for name, op in _FLOATING.items():
            table[f"{name}_f{bits}"] = Atomic(op, f"f{bits}")
            table[f"f{name}{suffix}"] = Atomic(op, f"f{bits}")
    table |= {name: Atomic("csub", "u32") for name in ("csub", "csub_u32", "sub_clamp_u32")}
    table["cond_sub_u32"] = Atomic("cond_sub", "u32")
    return table | {f"pk_add_{k}": Atomic("fadd", f"{k}x2") for k in ("f16", "bf16")}


def _lds_atomics() -> dict[str, Atomic]:
    """By what follows ``ds_``, ``_rtn`` taken out."""
    table = {
        name: atomic
        for name, atomic in _vector_atomics().items()
        if name.rpartition("_")[2][:1] in ("u", "i", "b", "f") and name.rpartition("_")[2][-1:].isdigit()
    }
    for bits in (32, 64):
        table[f"cmpst_b{bits}"] = table[f"cmpstore_b{bits}"] = Atomic("cmpxchg", f"u{bits}")
        table[f"wrxchg_b{bits}"] = table[f"storexchg_b{bits}"] = Atomic("xchg", f"u{bits}")
        table[f"rsub_u{bits}"] = Atomic("rsub", f"u{bits}")
    table["mskor_b32"] = Atomic("mskor", "u32")
    return table


VECTOR_ATOMICS = _vector_atomics()
LDS_ATOMICS = _lds_atomics()
