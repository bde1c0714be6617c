"""LLVM's disassembly text as typed instructions.

The syntax is LLVM's "AMDGPU Operand Syntax" and "AMDGPU Modifier Syntax"; it is the same for all targets,
which is what lets one table serve them.
"""

from __future__ import annotations

import re
from dataclasses import field

from zluda.compiler.amd.disassembler import Line
from zluda.records import dataclass

# Scalar registers by name (RDNA2 ISA 3.4, "Scalar ALU operands"), as indices into the scalar register file.
VCC, TTMP0, M0, EXEC, SCC = 106, 108, 124, 126, 128
NAMED = {
    "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
    "flat_scratch": (102, 2),
    "xnack_mask_lo": (104, 1),
    "xnack_mask_hi": (105, 1),
    "xnack_mask": (104, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "vcc": (VCC, 2),
    "m0": (M0, 1),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "exec": (EXEC, 2),
    "scc": (SCC, 1),
    "src_scc": (SCC, 1),
}
ACCUMULATION_BASE = 256  # a0 is the 257th vector register of the unified file (CDNA2 ISA 3.6.4)

_REGISTER = re.compile(r"(?P<file>v|s|a|ttmp)(?:(?P<one>\d+)|\[(?P<first>\d+)(?::(?P<last>\d+))?\])")
_NUMBER = re.compile(r"-?(0x[0-9a-fA-F]+|\d+(\.\d+)?(e-?\d+)?)")
_ENCODING = re.compile(r"_(e64_dpp|e64|e32|dpp8|dpp|sdwa)$")
_MODIFIER = re.compile(r"[a-z0-9_]+(:|$)")
_DPP = (
    "quad_perm",
    "row_shl",
    "row_shr",
    "row_ror",
    "row_mirror",
    "row_half_mirror",
    "row_share",
    "row_newbcast",
    "row_xmask",
    "row_bcast",
    "wave_shl",
    "wave_shr",
    "wave_rol",
    "wave_ror",
    "dpp8",
)

Modifier = int | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    ``kind`` is ``"v"`` or ``"s"`` for ``count`` registers from ``index`` on, ``"literal"`` for a number,
    ``"null"`` for ``off`` and ``null``, else ``"name"``. ``half`` selects 16 bits of a register (``"l"`` or
    ``"h"``). ``text`` is the operand without its source modifiers.
    """

    kind: str
    text: str
    index: int = 0
    count: int = 1
    negate: bool = False
    absolute: bool = False
    sign_extend: bool = False
    half: str = ""

    @property
    def number(self) -> int:
        """An integer literal's value."""
        return int(self.text, 0)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction; ``mnemonic`` is without its encoding's suffix. ``pair`` is VOPD's second."""

    offset: int
    size: int
    text: str
    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: dict[str, Modifier] = field(default_factory=dict)
    pair: Instruction | None = None

    @property
    def next(self) -> int:
        """Offset of the instruction behind this one."""
        return self.offset + self.size

    def number(self, modifier: str, default: int = 0) -> int:
        """A modifier's integer value."""
        value = self.modifiers.get(modifier, default)
        return value if isinstance(value, int) else default

    def numbers(self, modifier: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A modifier's list of integers."""
        value = self.modifiers.get(modifier, default)
        return value if isinstance(value, tuple) else default

    @property
    def dpp(self) -> tuple[str, tuple[int, ...]] | None:
        """The DPP control and its arguments, if this is a DPP instruction."""
        for name in _DPP:
            if name in self.modifiers:
                value = self.modifiers[name]
                if isinstance(value, tuple):
                    return name, value
                return name, (value,) if isinstance(value, int) else ()
        return None


def parse(line: Line) -> Instruction:
    """Parse a disassembled line."""
    first, _, second = line.text.partition(" :: ")
    pair = _parse_one(line, second) if second else None
    one = _parse_one(line, first)
    return Instruction(one.offset, one.size, line.text, one.mnemonic, one.operands, one.modifiers, pair)


def _parse_one(line: Line, text: str) -> Instruction:
    mnemonic, _, rest = text.strip().partition(" ")
    parts = _split(rest, ",")
    modifiers: dict[str, Modifier] = {}
    operands: list[Operand] = []
    for i, part in enumerate(parts):
        words = _split(part, " ")
        for j, word in enumerate(words):
            if (j > 0 or i > 0 or ":" in word) and _is_modifier(word, first=j == 0):
                name, value = _modifier(word)
                modifiers[name] = value
            elif j == 0:
                operands.append(operand(word))
            else:  # s_waitcnt, s_delay_alu: several operands without commas
                operands.append(Operand("name", word))
    name = _ENCODING.sub("", mnemonic)
    return Instruction(
        line.offset, line.size, text, name.replace("v_dual_", "v_"), tuple(operands), modifiers
    )


def _is_modifier(word: str, *, first: bool) -> bool:
    """Whether a word is a modifier; the first word after a comma is an operand unless it has a value."""
    if not _MODIFIER.match(word) or _REGISTER.fullmatch(word):
        return False
    return ":" in word or not first


def _split(text: str, separator: str) -> list[str]:
    """Split outside brackets and quotes."""
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c in "[(") - (c in "])")
        if c == separator and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += c
    parts.append(current.strip())
    return [p for p in parts if p]


def _modifier(word: str) -> tuple[str, Modifier]:
    name, _, value = word.partition(":")
    if not value:
        return name, 1
    if value.startswith("["):
        return name, tuple(int(x, 0) for x in value.strip("[]").split(","))
    try:
        return name, int(value, 0)
    except ValueError:
        return name, value


def operand(text: str) -> Operand:
    """Parse one operand with its source modifiers (``-v0``, ``|v1|``, ``sext(v2)``, ``v3.h``)."""
    negate = absolute = sign_extend = False
    while True:
        if text.startswith(("lit(", "lit64(")):
            text = text[text.index("(") + 1 : -1]
        elif text.startswith("neg("):
            text, negate = text[4:-1], not negate
        elif text.startswith("abs("):
            text, absolute = text[4:-1], True
        elif text.startswith("sext("):
            text, sign_extend = text[5:-1], True
        elif text.startswith("|") and text.endswith("|") and len(text) > 2:
            text, absolute = text[1:-1], True
        elif text.startswith("-") and not text[1:2].isdigit():
            text, negate = text[1:], not negate
        else:
            break
    half = ""
    if text[-2:] in (".l", ".h"):
        text, half = text[:-2], text[-1]
    match = _REGISTER.fullmatch(text)
    kind, index, count = "name", 0, 1
    if match:
        first = int(match["one"] or match["first"])
        count = int(match["last"]) - first + 1 if match["last"] else 1
        index = first + {"a": ACCUMULATION_BASE, "ttmp": TTMP0}.get(match["file"], 0)
        kind = "v" if match["file"] in "va" else "s"
    elif text in NAMED:
        kind, (index, count) = "s", NAMED[text]
    elif text in ("off", "null"):
        kind = "null"
    elif _NUMBER.fullmatch(text):
        kind = "literal"
    return Operand(kind, text, index, count, negate, absolute, sign_extend, half)
