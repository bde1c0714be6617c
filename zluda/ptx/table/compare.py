"""Comparison and selection (PTX ISA 9.7.6 and 9.7.7)."""

_ORDER = "eq ne lt le gt ge"
_FLOAT = f"{_ORDER} equ neu ltu leu gtu geu num nan"
# source types → the comparisons there are of them (PTX ISA 9.3.1), and whether the instruction may flush
_COMPARISONS = {
    "<bits>": ("eq ne", ""),
    "s16 s32 s64": (_ORDER, ""),
    "u16 u32 u64": (f"{_ORDER} lo ls hi hs", ""),
    "f64": (_FLOAT, ""),
    "f32": (_FLOAT, "{.ftz}"),
    "f16": (_FLOAT, "{.ftz}"),
    "bf16": (_FLOAT, ""),
    "f16x2": (_FLOAT, "{.ftz}"),
    "bf16x2": (_FLOAT, ""),
}
_OPERANDS = ((".cmp", "{d}, a, b"), (".cmp.boolop", "{d}, a, b, !c"))
# set: source types → result types
_RESULTS = {
    "f16": "u16 s16 u32 s32 f16 bf16",
    "bf16": "u16 s16 u32 s32 bf16",
    "f16x2": "f16x2 u32 s32",
    "bf16x2": "bf16x2 u32 s32",
}
# setp: which sources have how many predicates; one or two else
_PREDICATES = {"f16": "d", "bf16": "d", "f16x2": "d|p", "bf16x2": "d|p"}


def _set() -> str:
    return "\n".join(
        f"set{cmp}{flush}.dtype.stype {operands.format(d='d')} ; cmp = {words}"
        f" ; dtype = {_RESULTS.get(sources, 'u32 s32 f32 f16 bf16')} ; stype = {sources}"
        for sources, (words, flush) in _COMPARISONS.items()
        for cmp, operands in _OPERANDS
    )


def _setp() -> str:
    return "\n".join(
        f"setp{cmp}{flush}.type {operands.format(d=d)} ; cmp = {words} ; type = {sources} ; as = {d}:pred"
        for sources, (words, flush) in _COMPARISONS.items()
        for d in [_PREDICATES.get(sources, "d{|p}")]
        for cmp, operands in _OPERANDS
    )


ROWS = f"""
{_set()}
{_setp()}
selp.type d, a, b, !c                           ; type = <bits> <int> f32 f64
slct.dtype.stype d, a, b, c                     ; dtype = <bits> <int> f32 f64 ; stype = s32 ; as = a:dtype b:dtype
slct{{.ftz}}.dtype.stype d, a, b, c               ; dtype = <bits> <int> f32 f64 ; stype = f32 ; as = a:dtype b:dtype
"""
