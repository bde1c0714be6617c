"""Words of an instruction that do not go together, though each is right in its row (PTX ISA 9.7.9).

As ptxas 13.0 judges. What hints at caches is for global memory (or a generic address); an eviction priority
for L1 takes the place of a cache operator; one for L2 is for accesses of 32 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zluda.ptx.types import ScalarType

_MEMORY = frozenset(("ld", "ldu", "st", "red", "atom"))
_LEADING = {
    **dict.fromkeys(("mul", "mad", "mul24", "mad24", "madc"), frozenset(("hi", "lo", "wide"))),
    "dp2a": frozenset(("hi", "lo")),
    "shf": frozenset(("l", "r")),
    "div": frozenset(("full",)),
    "cvt": frozenset(("pack",)),
    "bar": frozenset(("cta",)),
    "barrier": frozenset(("cta",)),
}
"""Words that belong to an opcode's name, and so come first; all others may stand in any order."""
_HINTS = ("evict", "evict2", "cache_hint", "prefetch")


def misplaced(opcode: str, words: Sequence[str]) -> str:
    """A word of the opcode's name that does not follow it; ``""`` where there is none."""
    leading = _LEADING.get(opcode)
    return next((word for word in words[1:] if word in leading), "") if leading else ""


def refused(opcode: str, slots: Mapping[str, str], types: tuple[ScalarType, ...], vector: int) -> str:
    """The word that does not go with the others; ``""`` where all do."""
    if opcode == "cvt":
        return _saturation(slots, types)
    if opcode not in _MEMORY:
        return ""
    hints = {name: slots[name] for name in _HINTS if name in slots}
    if hints and slots.get("space", "global") != "global":
        return next(iter(hints.values()))
    priorities = [word for name, word in hints.items() if name.startswith("evict")]
    for word in priorities:
        if word.startswith("L2") and types[-1].bits * vector != 256:
            return word
    if any(word.startswith("L1") for word in priorities) and "cop" in slots:
        return slots["cop"]
    if slots.get("sem") == "volatile" and (priorities or "cache_hint" in slots):
        return priorities[0] if priorities else slots["cache_hint"]
    return ""


def _saturation(slots: Mapping[str, str], types: tuple[ScalarType, ...]) -> str:
    """``.sat`` between integers, where the result holds every operand."""
    if "sat" not in slots or "pack" in slots or len(types) != 2:
        return ""
    to, of = types
    if to.kind not in "us" or of.kind not in "us":
        return ""
    wider = to.bits > of.bits or (to.bits == of.bits and to.kind == of.kind)
    holds = wider and (to.kind == "s" or of.kind == "u")
    return "sat" if holds else ""
