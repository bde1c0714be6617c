"""What the elements behind a pointer are: one type, or fields that come again after a period.

Made of *votes*: an access says that at ``rest + k * step`` bytes from the pointer there is an element of some
type, and how it knows. All votes for one place decide its type; the places' pattern decides the layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from math import gcd
from typing import NamedTuple

BYTES = "bytes"
"""The type where uses disagree, or nothing is known."""

POINTER = "pointer"
"""A word that is used as an address."""

_FLOATS = frozenset(("f16", "bf16", "f32", "f64", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0"))
_MOST_FIELDS = 64


class Confidence(IntEnum):
    """How sure a type is; the larger the surer."""

    GUESS = 1  # by the loads' and stores' own integer types, or against other evidence
    LIKELY = 2  # by what passes through shared memory, a kernel's signature, a neighbour
    CERTAIN = 3  # by an instruction that computes with the value, by its own floating type, by the user

    def __str__(self) -> str:
        return self.name.lower()


class Vote(NamedTuple):
    """An element of ``element`` (``size`` bytes) at ``rest`` after each multiple of ``step`` bytes."""

    step: int
    rest: int
    element: str
    size: int
    confidence: Confidence


class Field(NamedTuple):
    """One element of a period, at ``offset`` in it."""

    offset: int
    element: str
    size: int
    confidence: Confidence


class Layout(NamedTuple):
    """Fields that come again every ``period`` bytes from ``phase`` on; one, as long as its period, mostly."""

    fields: tuple[Field, ...]
    period: int
    phase: int = 0

    @property
    def single(self) -> str:
        """The type of all elements; ``bytes`` where there is more than one."""
        return self.fields[0].element if self.homogeneous else BYTES

    @property
    def homogeneous(self) -> bool:
        return len(self.fields) == 1 and self.fields[0].size == self.period

    @property
    def confidence(self) -> Confidence:
        """That of the least sure field."""
        return min(field.confidence for field in self.fields)

    def __str__(self) -> str:
        """``f32``, ``{f64, f32, u32}``, ``{f32 @0, u32 @12; 16 bytes}`` where bytes between are not known."""
        if self.homogeneous:
            return self.fields[0].element
        if sum(field.size for field in self.fields) == self.period:
            return f"{{{', '.join(field.element for field in self.fields)}}}"
        places = ", ".join(f"{field.element} @{field.offset}" for field in self.fields)
        return f"{{{places}; {self.period} bytes}}"


def uniform(element: str, size: int, confidence: Confidence) -> Layout:
    """Elements of one type."""
    return Layout((Field(0, element, size, confidence),), size)


UNKNOWN = uniform(BYTES, 1, Confidence.GUESS)


def is_float(element: str) -> bool:
    return element in _FLOATS


def layout_of(votes: Iterable[Vote]) -> Layout | None:
    """What the votes of one pointer come to; None where there are none."""
    aligned = [_aligned(vote) for vote in votes]
    if not aligned:
        return None
    one = _uniform(aligned)
    return one if one is not None else _records(aligned)


def _aligned(vote: Vote) -> Vote:
    """An access is aligned to its size (PTX ISA 6.4.1), whatever is known of the step."""
    if vote.step % vote.size:
        return vote._replace(step=vote.size, rest=0)
    return vote


def _uniform(votes: Sequence[Vote]) -> Layout | None:
    """One type for all: where all votes agree, or the surest do and no other says that a part is narrower."""
    decided = _decided(votes)
    if decided.element == BYTES:
        return None
    size, rest = decided.size, votes[0].rest % decided.size
    if any(vote.rest % size != rest for vote in votes if vote.size >= size):
        return None
    return Layout((decided,), size, rest)


def _records(votes: Sequence[Vote]) -> Layout:
    """Fields in a period: the greatest common divisor of all steps, or what is reached where none repeats."""
    period = gcd(*(vote.step for vote in votes))
    if period == 0:
        widest = max(vote.size for vote in votes)
        end = max(vote.rest + vote.size for vote in votes)
        period = -(-end // widest) * widest
    places: dict[int, list[Vote]] = defaultdict(list)
    for vote in votes:
        places[vote.rest % period].append(vote)
    if len(places) > _MOST_FIELDS:
        return UNKNOWN
    fields = _apart([_decided(found, at) for at, found in sorted(places.items())], period)
    if not fields:
        return UNKNOWN
    fields, period = _shortest(fields, period)
    return Layout(tuple(fields), period)


def _decided(votes: Sequence[Vote], offset: int = 0) -> Field:
    """One place's type.

    A sure vote outweighs a less sure one of the same width or wider: compilers copy floats as ``u32``, and
    pairs as ``u64``. Integers of one width agree, signed ones win; anything else is bytes.
    """
    surest = max(vote.confidence for vote in votes)
    strong = {(vote.element, vote.size) for vote in votes if vote.confidence is surest}
    narrowest = min(size for _, size in strong)
    rest = {(v.element, v.size) for v in votes if v.confidence is not surest and v.size < narrowest}
    element, size = _agreed(strong | rest)
    agreeing = element != BYTES
    return Field(offset, element, size, surest if agreeing else Confidence.GUESS)


def _agreed(types: set[tuple[str, int]]) -> tuple[str, int]:
    if len(types) == 1:
        return next(iter(types))
    sizes, names = {size for _, size in types}, {name for name, _ in types}
    if len(sizes) > 1 or names & _FLOATS or BYTES in names:
        return BYTES, 1
    if POINTER in names:  # its bits are computed with as well
        return POINTER, 8
    return min(types)  # "s32" < "u32"


def _apart(fields: list[Field], period: int) -> list[Field]:
    """Fields that overlap, or stick out of their period, are nothing that is known."""
    kept: list[Field] = []
    for field in fields:
        overlaps = kept and field.offset < kept[-1].offset + kept[-1].size
        if field.offset + field.size > period or (overlaps and kept[-1].confidence >= field.confidence):
            continue
        if overlaps:
            kept.pop()
        kept.append(field)
    return [field for field in kept if field.element != BYTES]


def _shortest(fields: list[Field], period: int) -> tuple[list[Field], int]:
    """The shortest period after which the same fields come again."""
    pattern = {(field.offset, field.element) for field in fields}
    widest = max((field.size for field in fields), default=1)
    for shorter in range(widest, period, widest):
        if period % shorter == 0 and all(((o + shorter) % period, e) in pattern for o, e in pattern):
            least = min(field.confidence for field in fields)
            return [f._replace(confidence=least) for f in fields if f.offset < shorter], shorter
    return fields, period
