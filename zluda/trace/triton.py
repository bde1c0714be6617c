"""What Triton's own form of a kernel says of its parameters: ``KERNEL.ttir``, which its cache has beside the
machine code. PTX made of it has no types at loads and stores.
"""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"\btt\.func\s+public\s+@\"?([\w$.]+)\"?\s*\(")
_PARAMETER = re.compile(r"%[\w.$-]+\s*:\s*(!tt\.ptr<\s*(\w+)[^>]*>|[^\s,){]+)")
_MOST = 1 << 22  # characters: a kernel's is some tens of thousands


def signatures(text: str) -> dict[str, list[str]]:
    """Kernel → each parameter's type in order: ``*f32`` for a pointer to f32, else MLIR's name (``i32``).

    A text that is none of Triton's gives nothing.
    """
    text = text[:_MOST]
    return {
        match[1]: [
            f"*{one[2]}" if one[2] else one[1] for one in _PARAMETER.finditer(_parameters(text, match.end()))
        ]
        for match in _FUNCTION.finditer(text)
    }


def _parameters(text: str, start: int) -> str:
    """What stands in the parentheses that begin before ``start``, without attributes and places."""
    depth, at, kept = 1, start, []
    braces = quoted = 0
    while at < len(text) and depth:
        character = text[at]
        if character == '"':
            quoted ^= 1
        elif not quoted:
            braces += {"{": 1, "}": -1}.get(character, 0)
            depth += {"(": 1, ")": -1}.get(character, 0)
        if not quoted and not braces and depth == 1:
            kept.append(character)
        at += 1
    return "".join(kept)
