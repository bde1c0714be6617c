"""As what types instructions take their operands: PTX ISA 9.7, by opcode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from zluda.ptx.module import Address, Indexed, Instruction, Operand, Register
from zluda.ptx.types import BY_SPELLING, ScalarType

# Elements of packed types.
ELEMENT_OF = {
    "f16x2": "f16",
    "bf16x2": "bf16",
    "f32x2": "f32",
    "u16x2": "u16",
    "s16x2": "s16",
    "u8x4": "u8",
    "s8x4": "s8",
    **{f"{name}x{count}": name for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1") for count in (2, 4)},
    "ue8m0x2": "ue8m0",
}

# Their operands have no type, or none that tells of the elements: they carry bits, or count them.
_SILENT = frozenset(
    [
        "mov",
        "selp",
        "shfl",
        "mapa",
        "cvta",
        "and",
        "or",
        "xor",
        "not",
        "shl",
        "lop3",
        "shf",
        "prmt",
        "bfi",
        "brev",
        "popc",
        "vote",
        "match",
        "redux",
        "activemask",
        "elect",
        "ld",
        "ldu",
        "st",
        "ldmatrix",
        "stmatrix",
        "movmatrix",
        "call",
        "bar",
        "barrier",
        "mbarrier",
        "membar",
        "fence",
        "prefetch",
        "prefetchu",
        "isspacep",
        "cp",
        "tcgen05",
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "nanosleep",
        "tensormap",
        "clusterlaunchcontrol",
        "getctarank",
        "istypep",
        "alloca",
        "stacksave",
        "stackrestore",
        "discard",
        "applypriority",
        "createpolicy",
        "setmaxnreg",
        "griddepcontrol",
        "suld",
        "sust",
        "sured",
        "multimem",
    ]
)

Typed = tuple[Operand, ScalarType, bool]
"""(operand, type, whether as many elements as fit are packed into each register)"""


def typed_operands(inst: Instruction) -> Iterator[Typed]:
    """The operands that an instruction takes as something."""
    if inst.opcode in _SILENT or not inst.types:
        return
    rule = _RULES.get(inst.opcode, _by_width)
    yield from ((o, t, packed) for o, t, packed in rule(inst) if t.kind in "fus")


@lru_cache(maxsize=1 << 10)
def tags_of(type: ScalarType, bits: int) -> tuple[tuple[int, str, int], ...]:
    """(byte, element, its bytes) of each element of a type in ``bits`` bits of a register."""
    name = ELEMENT_OF.get(type.spelling, type.spelling)
    element = BY_SPELLING[name].bits
    if element < 8:  # two fp4 in a byte, eight s4 in a word: bytes of them
        return tuple((at, name, 1) for at in range(bits // 8)) if type.kind == "f" else ()
    size = element // 8
    return tuple((at, name, size) for at in range(0, max(bits // 8, size) if bits >= element else 0, size))


def _by_width(inst: Instruction) -> Iterator[Typed]:
    """Each register by the first type of its width."""
    for operand in inst.operands:
        if isinstance(operand, Address | Indexed):
            continue
        for register in _plain(operand):
            same = [one for one in inst.types if one.bits == register.type.bits]
            if same:
                yield register, same[0], False


def _plain(operand: Operand) -> Iterator[Register]:
    from zluda.diff.types.program import registers

    return registers((operand,))


def _conversion(inst: Instruction) -> Iterator[Typed]:
    """By position. Integers made of integers are carried rather than looked at, but for signs."""
    if len(inst.types) < 2 or "pack" in inst.slots:
        return
    target, source = inst.types[0], inst.types[1]
    integers = target.kind in "us" and source.kind in "us"
    if not integers:
        yield inst.operands[0], target, False
    for operand in inst.operands[inst.destinations :]:
        if not integers or (source.kind == "s" and target.bits > source.bits):
            yield operand, source, False


def _result_and_sources(inst: Instruction) -> Iterator[Typed]:
    """``set.dtype.stype``, ``tex…dtype.ctype``: the first type is the result's."""
    yield inst.operands[0], inst.types[0], False
    for operand in inst.operands[1:]:
        if not isinstance(operand, Address | Indexed):
            yield operand, inst.types[-1], False


def _texture(inst: Instruction) -> Iterator[Typed]:
    yield inst.operands[0], inst.types[0], False
    for operand in inst.operands:
        if isinstance(operand, Indexed):
            yield operand.coordinates, inst.types[-1], False


def _wide(inst: Instruction) -> Iterator[Typed]:
    """``mul.wide``, ``mad.wide``: results and addends are twice as wide."""
    if "wide" not in inst.slots.values():
        yield from _by_width(inst)
        return
    own = inst.types[0]
    twice = BY_SPELLING.get(f"{own.kind}{2 * own.bits}")
    for index, operand in enumerate(inst.operands):
        if index in (1, 2):
            yield operand, own, False
        elif twice is not None:
            yield operand, twice, False


def _shift_right(inst: Instruction) -> Iterator[Typed]:
    """By whole bytes it takes a register apart, unless it is a signed one."""
    from zluda.ptx.module import Immediate

    by = inst.operands[2]
    whole = isinstance(by, Immediate) and by.value % 8 == 0 and by.value > 0
    if inst.types[0].kind in "us" and not (whole and inst.types[0].kind == "u"):
        yield from ((o, inst.types[0], False) for o in inst.operands[:2])


def _extraction(inst: Instruction) -> Iterator[Typed]:
    """``bfe``: what it extracts is an integer; of what, it does not say."""
    if inst.types[0].kind == "s":
        yield inst.operands[0], inst.types[0], False


def _dot(inst: Instruction) -> Iterator[Typed]:
    """``dp4a``, ``dp2a``: bytes or halves with bytes, on a sum of 32 bits."""
    first, second = inst.types[0], inst.types[-1]
    narrow = {4: "8", 2: "16"}[int(inst.opcode[2])]
    yield inst.operands[0], first, False
    yield inst.operands[1], BY_SPELLING[first.kind + narrow], True
    yield inst.operands[2], BY_SPELLING[second.kind + "8"], True
    yield inst.operands[3], first, False


def _matrix(inst: Instruction) -> Iterator[Typed]:
    """D, A, B and C have the types named; ``wmma.mma`` of f16 names D's and C's alone. Loads and stores of
    ``wmma`` are accesses, and name their element.
    """
    named = list(inst.types)
    if inst.has("load") or inst.has("store"):
        for operand in inst.operands:
            if not isinstance(operand, Address):
                yield operand, named[0], True
        return
    types = [named[0], ScalarType.F16, ScalarType.F16, named[1]] if len(named) == 2 else named[:4]
    for operand, type in zip(inst.operands, types, strict=False):
        yield operand, _single(type), True


def _warp_group_matrix(inst: Instruction) -> Iterator[Typed]:
    """D, and A where it is in registers."""
    named = list(inst.types)
    if named:
        yield inst.operands[0], _single(named[0]), True
        for operand, type in zip(inst.operands[1:2], named[1:2], strict=False):
            if not isinstance(operand, Register):  # a register is a descriptor
                yield operand, _single(type), True


def _single(type: ScalarType) -> ScalarType:
    """tf32 is f32 in memory."""
    return ScalarType.F32 if type is ScalarType.TF32 else type


def _nothing(inst: Instruction) -> Iterator[Typed]:
    return iter(())


_RULES: dict[str, Callable[[Instruction], Iterator[Typed]]] = {
    "cvt": _conversion,
    "set": _result_and_sources,
    "slct": _nothing,
    "tex": _texture,
    "tld4": _texture,
    "txq": _nothing,
    "suq": _nothing,
    "mul": _wide,
    "mad": _wide,
    "shr": _shift_right,
    "bfe": _extraction,
    "szext": _nothing,
    "dp4a": _dot,
    "dp2a": _dot,
    "mma": _matrix,
    "wmma": _matrix,
    "wgmma": _warp_group_matrix,
}
