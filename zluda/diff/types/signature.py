"""What a kernel's name says of the buffers behind its parameters, and what a framework does: sources beside
its instructions.

nvcc, NVRTC and clang mangle parameters' types into a kernel's name, so ``_Z5saxpyifPKfPf`` takes a
``float const*`` third. A name may be wrong about memory (``unsigned char*`` is anybody's bytes), so what
instructions compute with outweighs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from zluda.diff.types.layout import BYTES, POINTER, UNKNOWN, Confidence, Layout, is_float, uniform

_MOST = (1 << 13, 1 << 12)  # characters of a mangled name, and of what it may become
_QUALIFIERS = re.compile(r"\b(const|volatile|__restrict__|restrict)\b")
_VECTOR = re.compile(r"^(u?(?:char|short|int|long|longlong)|float|double|__half|__nv_bfloat16)([1234])$")
_COMPLEX = re.compile(r"^(?:\w+::)*complex<(.+)>$")

_ELEMENTS = {
    "float": "f32",
    "double": "f64",
    "__half": "f16",
    "_Float16": "f16",
    "c10::Half": "f16",
    "__nv_bfloat16": "bf16",
    "__bf16": "bf16",
    "c10::BFloat16": "bf16",
    "__nv_fp8_e4m3": "e4m3",
    "__nv_fp8_e5m2": "e5m2",
    "c10::Float8_e4m3fn": "e4m3",
    "c10::Float8_e5m2": "e5m2",
    "int": "s32",
    "unsigned int": "u32",
    "uint": "u32",
    "long": "s64",
    "unsigned long": "u64",
    "ulong": "u64",
    "long long": "s64",
    "longlong": "s64",
    "unsigned long long": "u64",
    "ulonglong": "u64",
    "short": "s16",
    "unsigned short": "u16",
    "ushort": "u16",
    "signed char": "s8",
    "char": "s8",
    "unsigned char": "u8",
    "uchar": "u8",
    "bool": "u8",
}
_ANYBODYS = frozenset(("s8", "u8"))  # what bytes of no type in particular are declared as


_ARRAY = re.compile(r"Array<(.+), (\d+), \w+, \w+, \w+>")
_BEFORE_DATA = 4  # parameters of an array of Numba's before its data: owner, parent, items, size of one

# MLIR's names of types, as Triton has them.
_TRITON = {
    "*i1": "u8",
    **{f"*i{bits}": f"s{bits}" for bits in (8, 16, 32, 64)},
    **{f"*{name}": name for name in ("f16", "bf16", "f32", "f64")},
    "*f8E4M3FN": "e4m3",
    "*f8E5M2": "e5m2",
}


def pointee_types(kernel: str) -> dict[int, str]:
    """Parameter's number → element type of what it points to, of those whose type is known.

    An array of Numba's is several parameters; of its NumPy dtype its name tells.
    """
    found: dict[int, str] = {}
    at = 0
    for one in _parameters(kernel):
        array = _ARRAY.fullmatch(one)
        if array is not None:
            found[at + _BEFORE_DATA] = _element(array[1])
            at += _BEFORE_DATA + 1 + 2 * int(array[2])  # the data, then shape and strides
            continue
        found[at] = _pointee(one)
        at += 1
    return {index: element for index, element in found.items() if element}


def triton_types(signature: Sequence[str]) -> dict[int, str]:
    """The same from the parameters' types that Triton has."""
    return {index: _TRITON[one] for index, one in enumerate(signature) if one in _TRITON}


@lru_cache(maxsize=1 << 10)
def demangled(kernel: str) -> str:
    """A C++ name with its parameters; any other as it is."""
    if not kernel.startswith("_Z"):
        return kernel
    from demangle import Limits, demangle

    return demangle(kernel, language="itanium", limits=Limits(max_input=_MOST[0], max_output=_MOST[1]))


def _parameters(kernel: str) -> tuple[str, ...]:
    text = demangled(kernel)
    if not text.endswith(")"):
        return ()
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if depth == 0:
            return tuple(_split(text[at + 1 : -1]))
    return ()


def _split(text: str) -> Iterator[str]:
    """At the commas outside of brackets."""
    depth = start = 0
    for at, character in enumerate(text):
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


def _pointee(parameter: str) -> str:
    text = " ".join(_QUALIFIERS.sub("", parameter).split())
    if not text.endswith("*"):
        return ""
    base = text[:-1].strip()
    if base.endswith("*"):
        return POINTER
    return _element(base)


def _element(name: str) -> str:
    known = _ELEMENTS.get(name)
    if known:
        return known
    for pattern in (_VECTOR, _COMPLEX):
        found = pattern.match(name)
        if found:
            return _element(found[1])
    return ""


def bits_of(element: str) -> int:
    """Bits that an element has in memory; 8 of those narrower."""
    if element == POINTER:
        return 64
    if element.startswith(("e2", "e3", "e4", "e5", "ue8", BYTES)):
        return 8
    return int(element.lstrip("bfsu"))


def weighed(layout: Layout | None, element: str) -> Layout | None:
    """A layout, and what the signature says of it, as one."""
    if not element:
        return layout
    size = bits_of(element) // 8
    told = uniform(element, size, Confidence.LIKELY)
    if layout is None or layout == UNKNOWN:
        return told if layout is None or element not in _ANYBODYS else layout
    if not layout.homogeneous:
        return layout
    (field,) = layout.fields
    if field.element == element:
        return layout._replace(fields=(field._replace(confidence=Confidence.CERTAIN),))
    if field.confidence is Confidence.GUESS and field.size % size == 0:
        return layout if element in _ANYBODYS else told._replace(phase=layout.phase % size)
    integers = (
        not is_float(field.element) and not is_float(element) and POINTER not in (field.element, element)
    )
    if integers and field.size == size and element not in _ANYBODYS:
        return layout._replace(fields=(field._replace(element=element),))
    return layout
