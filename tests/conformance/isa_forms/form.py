"""A form: one instruction with its modifiers, its operand kinds and the PTX that computes one result.

Rows are written in a notation close to the syntax lines of the PTX ISA: ``(a|b)`` is a choice and
``[.x|.y]`` an optional one, so ``add[.rn|.rz][.ftz].f32`` names six forms.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

# kind of value → (register type, suffix of ld/st, bytes stored)
KINDS: dict[str, tuple[str, str, int]] = {
    "u8": (".b16", "u8", 1),
    "s8": (".b16", "s8", 1),
    **{kind: (".b16", "b16", 2) for kind in ("b16", "u16", "s16", "f16", "bf16")},
    **{
        kind: (".b32", "b32", 4)
        for kind in ("b32", "u32", "s32", "f16x2", "bf16x2", "u16x2", "s16x2", "tf32")
    },
    **{kind: (".b64", "b64", 8) for kind in ("b64", "u64", "s64", "f32x2")},
    "f32": (".f32", "f32", 4),
    "f64": (".f64", "f64", 8),
    "pred": (".pred", "u8", 1),
    # special operand distributions over ordinary registers
    "shift": (".b32", "b32", 4),
    "count": (".b32", "b32", 4),
    "lane": (".b32", "b32", 4),
}

_GROUP = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")


def expand(pattern: str) -> Iterator[str]:
    """Every spelling of a row: ``(a|b)`` is a choice, ``[a|b]`` an optional choice."""
    choices: list[list[str]] = []
    literals: list[str] = []
    end = 0
    for match in _GROUP.finditer(pattern):
        literals.append(pattern[end : match.start()])
        choices.append(match[1].split("|") if match[1] is not None else ["", *match[2].split("|")])
        end = match.end()
    tail = pattern[end:]
    for words in itertools.product(*choices):
        yield "".join(a + b for a, b in zip(literals, words, strict=True)) + tail


@dataclass(frozen=True)
class Form:
    """One form.

    ``body`` is PTX with ``{d}`` for the result register and ``{a}``, ``{b}``, ``{c}`` for the sources;
    it stands in a scope of its own, so it may declare registers. ``pointer`` bodies may use ``%pa %pb %pc``
    (addresses of this thread's operands), ``%i`` (index of the thread in the grid), ``%thread``, ``%lane``
    and the variables of ``shared``/``globals``.
    """

    name: str
    family: str
    result: str
    sources: tuple[str, ...]
    body: str
    declarations: str = ""  # module scope
    alone: bool = field(default=False)  # needs a kernel of its own (barriers)
    target: str = "sm_90"  # of the kernel it stands in, the same for a whole family
    directive: str = ""  # of its kernel, where it has one of its own


def rows(
    family: str, patterns: str | Iterable[str], result: str, sources: str, body: str = "", *, note: str = ""
) -> list[Form]:
    """Forms of all spellings; ``body`` defaults to the plain ``op d, a, b, …;``. ``note`` makes the name
    unique."""
    kinds = tuple(sources.split())
    operands = ", ".join("{" + letter + "}" for letter in "dabc"[: len(kinds) + 1])
    text = body or "{op} " + operands + ";"
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    return [
        Form(op + (f" {note}" if note else ""), family, result, kinds, text.replace("{op}", op))
        for pattern in listed
        for op in expand(pattern)
    ]
