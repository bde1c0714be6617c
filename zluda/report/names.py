"""Kernels' names as a person reads them: C++ names demangled.

What a program reads (JSON, ``--select``, ``result.launches``) keeps the name that the module has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_MANGLED = "_Z"  # what every name of the Itanium C++ ABI, which nvcc follows, begins with
_MAX_INPUT, _MAX_OUTPUT = 1 << 13, 1 << 12  # characters; a name can expand to far more than it is long

_MOST = 48  # characters of a brief name


@lru_cache(maxsize=1 << 12)
def readable(name: str) -> str:
    """``void scale<float>(float*, int)`` for ``_Z5scaleIfEvPT_i``; ``name`` itself where it is not C++'s."""
    if not name.startswith(_MANGLED):
        return name
    from demangle import Limits, demangle

    return demangle(name, language="itanium", limits=Limits(max_input=_MAX_INPUT, max_output=_MAX_OUTPUT))


def briefly(names: Iterable[str]) -> dict[str, str]:
    """Of each name what a table has room for: without types of result and parameters, and not longer than
    :data:`_MOST`; readable in full where that would be another's too.
    """
    wanted = dict.fromkeys(names)
    brief = {name: _brief(readable(name)) for name in wanted}
    seen = Counter(brief.values())
    return {name: text if seen[text] == 1 else readable(name) for name, text in brief.items()}


def _brief(text: str) -> str:
    """``reduce<Sum, float>`` of ``void reduce<Sum, float>(float const*, float*, int, float)``"""
    head = text.removesuffix(" const")
    if head.endswith(")"):
        depth = 0
        for at in range(len(head) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(head[at], 0)
            if not depth:
                head = head[:at]
                break
    depth, start = 0, 0
    for at, letter in enumerate(head):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == " " and not depth:
            start = at + 1
    head = head[start:] or text
    return head if len(head) <= _MOST else head[: _MOST - 1] + "…"
