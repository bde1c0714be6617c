"""Which forms of ``mma``, ``wmma`` and ``wgmma`` exist, and by which rule each computes.

The forms are those that ptxas 13.0 accepts for sm_90a, and sparse fp8 with f16 accumulators, which later
architectures have (taken to be as the dense ones); the rules are what it makes of them, measured on an
H200. Those with a ``.kind`` (sm_120a) are each one machine instruction, and taken to be one step; nobody has
compared them with a GPU. An instruction is one or two *steps* over all or part of K (:mod:`.reference`), or
IEEE arithmetic:

==============  ==========================================================================================
rule            D
==============  ==========================================================================================
step            one step over all of K
halves          two steps, k 0 to 3, then the others (wmma tf32)
split           fp8 widened to f16: two steps from +0, over k % 4 < 2, then the others; then an IEEE add of C
widened         C widened from f16 to f32, one step to f32
narrowed        one step to f32, rounded to f16
quad_fma        f32 multiplies and adds (m8n8k4 of f16)
fma             a chain of f64 fused multiply-adds, k ascending
integer         exact sum modulo 2^32
saturated       exact sum, clamped once
and, xor        C plus the number of bits set, modulo 2^32
==============  ==========================================================================================
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from zluda.numerics.tensor_cores import fragments
from zluda.numerics.tensor_cores.formats import FLOATS, element_bits, register_bits
from zluda.numerics.tensor_cores.fragments import Fragment

FRACTION, FRACTION_FP8_WGMMA = 25, 13
"""Bits below the largest exponent that a step's terms are cut to."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One form's arithmetic. ``k`` counts elements (b1: words of 32 bits).

    ``steps`` are the values of k (stored elements of a sparse A) of each step. ``short`` says that an f32
    result has 13 fraction bits only. ``scale`` is the type of the scales, of which a row of A and a column
    of B each have ``chunks``, evenly spread over K (PTX ISA 9.7.14.3); none where it is empty.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    d: str
    rule: str
    fraction: int = FRACTION
    short: bool = False
    sparse: bool = False
    scale: str = ""
    chunks: int = 0

    @property
    def stored(self) -> int:
        """Elements of a row of A that there are: half of K where A is sparse."""
        return self.k // 2 if self.sparse else self.k

    @property
    def together(self) -> int:
        """How many neighbouring elements of a sparse A are stored together: two of 4 bits."""
        return 2 if self.a in ("s4", "u4", "e2m1") else 1

    def chunk(self, k: int) -> int:
        """Which scale of its row an element of A has, by its place among the stored ones."""
        return k * self.chunks // self.stored

    def chunk_of_b(self, k: int) -> int:
        """Which scale of its column an element of B has."""
        return k * self.chunks // self.k

    @property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """The elements of each step."""
        every = range(self.stored)
        if self.rule == "halves":
            return tuple(range(4)), tuple(range(4, self.stored))
        if self.rule == "split":
            return tuple(k for k in every if k % 4 < 2), tuple(k for k in every if k % 4 >= 2)
        return (tuple(every),)


@dataclass(frozen=True, slots=True)
class Form:
    """An operation with its fragments: a whole ``mma`` or ``wmma.mma`` of one warp."""

    operation: Operation
    fragment_a: Fragment
    fragment_b: Fragment
    fragment_c: Fragment
    fragment_d: Fragment

    def registers(self, operand: str) -> int:
        """How many registers an operand (``a``, ``b``, ``c``, ``d``) takes in each lane."""
        fragment: Fragment = getattr(self, f"fragment_{operand}")
        return -(-len(fragment[0]) * packed_bits(getattr(self.operation, operand)) // 32)

    def wide(self, operand: str) -> int:
        """Bits of each of those registers."""
        return register_bits(getattr(self.operation, operand))


def packed_bits(type_name: str) -> int:
    """Bits of an element as registers are counted: b1 elements are words, f64 registers count once."""
    return 32 if type_name in ("b1", "f64") else element_bits(type_name)


# --- which combinations there are --------------------------------------------------------------------

# shapes; A and B; D and C where not the same. A type in brackets stands for one of its words.
_MMA = """
m16n8k8 m16n8k16              f16        f16        f16
m16n8k8 m16n8k16              f16        f16        f32
m16n8k8 m16n8k16              bf16       bf16       f32
m16n8k4 m16n8k8               tf32       tf32       f32
m16n8k16 m16n8k32             e4m3|e5m2  e4m3|e5m2  f32|f16
m8n8k16 m16n8k16 m16n8k32     s8|u8      s8|u8      s32
m8n8k32 m16n8k32 m16n8k64     s4|u4      s4|u4      s32
m8n8k128 m16n8k128 m16n8k256  b1         b1         s32
m8n8k4 m16n8k4 m16n8k8 m16n8k16  f64     f64        f64
"""
_MMA_SPARSE = """
m16n8k16 m16n8k32             f16        f16        f32|f16
m16n8k16 m16n8k32             bf16       bf16       f32
m16n8k8 m16n8k16              tf32       tf32       f32
m16n8k64                      e4m3|e5m2  e4m3|e5m2  f32|f16
m16n8k32 m16n8k64             s8|u8      s8|u8      s32
m16n8k64 m16n8k128            s4|u4      s4|u4      s32
"""
_WMMA = """
m16n16k16 m32n8k16 m8n32k16   f16        f16        f32|f16
m16n16k16 m32n8k16 m8n32k16   bf16       bf16       f32
m16n16k8                      tf32       tf32       f32
m16n16k16 m32n8k16 m8n32k16   s8         s8         s32
m16n16k16 m32n8k16 m8n32k16   u8         u8         s32
m8n8k32                       s4         s4         s32
m8n8k32                       u4         u4         s32
m8n8k128                      b1         b1         s32
m8n8k4                        f64        f64        f64
"""
_WGMMA = """
k16                           f16        f16        f32|f16
k16                           bf16       bf16       f32
k8                            tf32       tf32       f32
k32                           e4m3|e5m2  e4m3|e5m2  f32|f16
k32                           s8|u8      s8|u8      s32
k256                          b1         b1         s32
"""


_WGMMA_SPARSE = """
k32                           f16        f16        f32|f16
k32                           bf16       bf16       f32
k16                           tf32       tf32       f32
k64                           e4m3|e5m2  e4m3|e5m2  f32|f16
k64                           s8|u8      s8|u8      s32
"""

_SMALL = "e4m3|e5m2|e3m2|e2m3|e2m1_b8"
# kind; dense and sparse shape; A and B; D and C; type and number of scales.
_MMA_KINDS = f"""
f8f6f4    m16n8k32 m16n8k64   {_SMALL}     f32|f16  -      0
f8f6f4    m16n8k16 -          e4m3|e5m2    f32|f16  -      0
mxf8f6f4  m16n8k32 m16n8k64   {_SMALL}     f32      ue8m0  1
mxf4      m16n8k64 m16n8k128  e2m1         f32      ue8m0  2
mxf4nvf4  m16n8k64 m16n8k128  e2m1         f32      ue8m0  2|4
mxf4nvf4  m16n8k64 m16n8k128  e2m1         f32      ue4m3  4
"""


def _rows(table: str) -> Iterator[tuple[str, str, str, str]]:
    """(shape, A, B, C) of every combination."""
    for line in table.strip().splitlines():
        *shapes, a, b, c = line.split()
        yield from itertools.product(shapes, a.split("|"), b.split("|"), c.split("|"))


@functools.cache
def _combinations(table: str) -> frozenset[tuple[str, str, str, str]]:
    return frozenset(_rows(table))


@functools.cache
def mma_kinds() -> dict[tuple[bool, str, str, str, str, str], frozenset[tuple[str, int]]]:
    """(sparse, kind, shape, A, B, C) of every ``mma`` with a kind to the types and numbers of its scales."""
    found: dict[tuple[bool, str, str, str, str, str], frozenset[tuple[str, int]]] = {}
    for line in _MMA_KINDS.strip().splitlines():
        kind, dense, sparse, types, results, scale, numbers = line.split()
        scales = frozenset(("" if scale == "-" else scale, int(n)) for n in numbers.split("|"))
        shapes = [(False, dense), *([(True, sparse)] if sparse != "-" else [])]
        names = types.split("|")
        for (is_sparse, shape), a, b, c in itertools.product(shapes, names, names, results.split("|")):
            key = is_sparse, kind, shape, a, b, c
            found[key] = found.get(key, frozenset()) | scales
    return found


def mma_forms() -> list[tuple[str, str, str, str]]:
    """(shape, A, B, C) of every dense ``mma`` but m8n8k4 of f16; D is as C."""
    return list(_rows(_MMA))


def mma_sparse_forms() -> list[tuple[str, str, str, str]]:
    """(shape, A, B, C) of every ``mma.sp``; D is as C."""
    return list(_rows(_MMA_SPARSE))


def wgmma_sparse_forms() -> list[tuple[str, str, str, str]]:
    """(``k`` and K, A, B, D) of every ``wgmma.mma_async.sp``."""
    return list(_rows(_WGMMA_SPARSE))


def wmma_forms() -> list[tuple[str, str, str, str]]:
    """(shape, A, B, C) of every ``wmma.mma``; D is as C, or for f16 operands f16 or f32 as well."""
    return list(_rows(_WMMA))


# --- rules -------------------------------------------------------------------------------------------


def sizes(shape: str) -> tuple[int, int, int]:
    """``m16n8k16`` as (16, 8, 16)."""
    m, n, k = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape).groups()  # type: ignore[union-attr]
    return int(m), int(n), int(k)


def _rule(a: str, *, saturate: bool, popcount: str) -> str:
    if a == "f64":
        return "fma"
    if a == "b1":
        return popcount
    if a in FLOATS:
        return "split" if FLOATS[a].bits == 8 else "step"
    return "saturated" if saturate else "integer"


def _operation(
    shape: str,
    a: str,
    b: str,
    c: str,
    d: str,
    rule: str,
    *,
    fraction: int = FRACTION,
    short: bool = False,
    sparse: bool = False,
) -> Operation:
    m, n, k = sizes(shape)
    return Operation(m, n, k // 32 if a == "b1" else k, a, b, c, d, rule, fraction, short, sparse)


@functools.cache
def mma(
    shape: str,
    a: str,
    b: str,
    c: str,
    d: str,
    *,
    layouts: tuple[str, str] = ("row", "col"),
    saturate: bool = False,
    popcount: str = "",
    sparse: bool = False,
) -> Form | None:
    """A form of ``mma`` or ``mma.sp``; None where sm_90 has none such."""
    if shape == "m8n8k4" and a == "f16":
        return _quad_form(b, c, d, layouts) if not sparse else None
    known = (shape, a, b, c) in _combinations(_MMA_SPARSE if sparse else _MMA)
    if not known or c != d or layouts != ("row", "col"):
        return None
    operation = _operation(shape, a, b, c, d, _rule(a, saturate=saturate, popcount=popcount), sparse=sparse)
    return mma_fragments(operation)


@functools.cache
def mma_of_kind(
    kind: str, shape: str, a: str, b: str, c: str, *, scale: str = "", chunks: int = 0, sparse: bool = False
) -> Form | None:
    """A form of ``mma`` or ``mma.sp`` with ``.kind::``; None where there is none such.

    ``a`` and ``b`` are the types' names in PTX; D is as C. ``chunks`` is the number in ``.scale_vec::``, 0
    where it is left out.
    """
    if kind in ("f8f6f4", "mxf8f6f4"):
        a, b = (f"{x}_b8" if x == "e2m1" else x for x in (a, b))
    scales = mma_kinds().get((sparse, kind, shape, a, b, c), frozenset())
    if scale and not chunks and kind != "mxf4nvf4":
        chunks = max((n for _, n in scales), default=0)
    if (scale, chunks) not in scales:
        return None
    m, n, k = sizes(shape)
    return mma_fragments(Operation(m, n, k, a, b, c, c, "step", sparse=sparse, scale=scale, chunks=chunks))


def mma_fragments(operation: Operation) -> Form:
    """An operation over fragments that lie as those of ``mma``."""
    packed = 32 // packed_bits(operation.a)
    result = fragments.mma_c(operation.m)
    return Form(
        operation,
        fragments.mma_a(operation.m, operation.stored, packed),
        fragments.mma_b(operation.k, packed),
        result,
        result,
    )


def _quad_form(b: str, c: str, d: str, layouts: tuple[str, str]) -> Form | None:
    if b != "f16" or (c, d) not in (("f16", "f16"), ("f32", "f32"), ("f16", "f32")):
        return None
    return Form(
        Operation(8, 8, 4, "f16", "f16", c, d, "quad_fma"),
        fragments.quad_a(layouts[0]),
        fragments.quad_b(layouts[1]),
        fragments.quad_c(c),
        fragments.quad_c(d),
    )


@functools.cache
def wmma(
    shape: str, a: str, b: str, c: str, d: str, *, saturate: bool = False, popcount: str = ""
) -> Form | None:
    """A form of ``wmma.mma``; None where sm_90 has none such."""
    mixed = a == "f16" and {c, d} == {"f16", "f32"}
    if (shape, a, b, c) not in _combinations(_WMMA) or not (c == d or mixed):
        return None
    rule = _rule(a, saturate=saturate, popcount=popcount)
    if a == "tf32":
        rule = "halves"
    elif mixed:
        rule = "widened" if d == "f32" else "narrowed"
    operation = _operation(shape, a, b, c, d, rule)
    result = fragments.wmma_result(operation.m, operation.n)
    return Form(
        operation,
        fragments.wmma_operand("a", operation.m, operation.k, a),
        fragments.wmma_operand("b", operation.n, operation.k, b),
        result,
        result,
    )


@functools.cache
def wgmma(
    shape: str, a: str, b: str, d: str, *, saturate: bool = False, popcount: str = "", sparse: bool = False
) -> Form | None:
    """What a form of ``wgmma`` does to eight columns and a warp's sixteen rows; None where there is none.

    A, B and D lie as those of ``mma.m16n8``; the arithmetic is that of one step over all of K.
    """
    columns, _, k = shape.partition("k")
    table = _WGMMA_SPARSE if sparse else _WGMMA
    if ("k" + k, a, b, d) not in _combinations(table) or not re.fullmatch(r"m64n\d+", columns):
        return None
    rule = _rule(a, saturate=saturate, popcount=popcount)
    eight_bits = a in FLOATS and FLOATS[a].bits == 8
    operation = _operation(
        f"m16n8k{k}",
        a,
        b,
        d,
        d,
        "step" if rule == "split" else rule,
        fraction=FRACTION_FP8_WGMMA if eight_bits else FRACTION,
        short=eight_bits and d == "f32",
        sparse=sparse,
    )
    return mma_fragments(operation)
