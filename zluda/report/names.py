"""Kernels' names as a person reads them: C++ names demangled.

What a program reads (JSON, ``--select``, ``result.launches``) keeps the name that the module has.
"""

from __future__ import annotations

from functools import lru_cache

_MANGLED = "_Z"  # what every name of the Itanium C++ ABI, which nvcc follows, begins with
_MAX_INPUT, _MAX_OUTPUT = 1 << 13, 1 << 12  # characters; a name can expand to far more than it is long


@lru_cache(maxsize=1 << 12)
def readable(name: str) -> str:
    """``void scale<float>(float*, int)`` for ``_Z5scaleIfEvPT_i``; ``name`` itself where it is not C++'s."""
    if not name.startswith(_MANGLED):
        return name
    from demangle import Limits, demangle

    return demangle(name, language="itanium", limits=Limits(max_input=_MAX_INPUT, max_output=_MAX_OUTPUT))
