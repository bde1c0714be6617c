"""``--dtype KERNEL:PARAMETER=TYPE``: what the user says a buffer holds, over all that was found out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cached_property

from zluda.diff.kinds import element_type
from zluda.diff.types.layout import Confidence, Field, Layout
from zluda.diff.types.places import Origin
from zluda.diff.types.signature import demangled
from zluda.errors import Error, UnsupportedError
from zluda.ptx.module import Function
from zluda.records import dataclass

_FORM = re.compile(r"^(?P<kernel>.+):(?P<parameter>[^:=]+)=(?P<type>[^=]+)$")
_PLACE = re.compile(r"^(?P<parameter>.+?)(?:\+(?P<offset>\d+))?$")


@dataclass(frozen=True)
class Override:
    """One ``--dtype``: kernels whose name the expression is found in, a parameter by number or name (with
    ``+OFFSET``, the pointer at that byte of a structure) or a variable by name, and the type.
    """

    text: str
    kernel: str
    parameter: str
    offset: int
    layout: Layout

    def names(self, kernel: str) -> bool:
        """Whether it is for a kernel, by the module's name or as a person reads it."""
        return any(self._pattern.search(name) is not None for name in (kernel, demangled(kernel)))

    def origin_in(self, function: Function, variables: Collection[str] = ()) -> Origin | None:
        """What is meant in a kernel, where ``variables`` are its module's; None where it has none such."""
        names = [one.name for one in function.parameters]
        if self.parameter.isdecimal():
            number = int(self.parameter)
            return Origin(names[number], self.offset) if number < len(names) else None
        if self.parameter in names or self.parameter in variables:
            return Origin(self.parameter, self.offset)
        short = [name for name in names if name.endswith(f"_{self.parameter}")]
        return Origin(short[0], self.offset) if len(short) == 1 else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.kernel)


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Raises Error naming what is not of the form, or not a type."""
    return tuple(_parsed(text) for text in texts)


def _parsed(text: str) -> Override:
    found = _FORM.match(text)
    if found is None:
        raise Error(f"--dtype {text}: expected KERNEL:PARAMETER=TYPE, as in 'softmax:2=bf16'")
    try:
        re.compile(found["kernel"])
    except re.error as error:
        raise Error(f"--dtype {text}: {found['kernel']!r} is no regular expression: {error}") from None
    place = _PLACE.match(found["parameter"].strip())
    assert place is not None
    try:
        layout = parse_layout(found["type"])
    except UnsupportedError:
        raise Error(
            f"--dtype {text}: {found['type'].strip()!r} is no type: f64, f32, f16, bf16, e4m3, e5m2, u8 to"
            " s64, pointer, bytes, or a structure as {f64, f32, u32}"
        ) from None
    offset = int(place["offset"] or 0)
    return Override(text, found["kernel"].strip(), place["parameter"].strip(), offset, layout)


def parse_layout(text: str) -> Layout:
    """``bf16``, or ``{f64, f32, u32}``: elements one after the other, each at a multiple of its size, as C
    has structures. Raises UnsupportedError.
    """
    names = [name.strip() for name in text.strip().removeprefix("{").removesuffix("}").split(",")]
    fields, at, widest = [], 0, 1
    for name in names:
        kind = element_type(name)
        at = -(-at // kind.size) * kind.size
        fields.append(Field(at, kind.name, kind.size, Confidence.CERTAIN))
        at, widest = at + kind.size, max(widest, kind.size)
    return Layout(tuple(fields), -(-at // widest) * widest)
