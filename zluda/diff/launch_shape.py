"""Whether two launches of one kernel have the same shape and parameters, addresses by what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from zluda.tracefile import Allocation, Launch
from zluda.tracefile.reachability import LiveSpans

_SHAPE = (
    ("grid", "grid"),
    ("block", "block"),
    ("cluster", "cluster"),
    ("shared_bytes", "dynamic shared bytes"),
)


def asked_otherwise(
    first: Launch,
    second: Launch,
    lives: Callable[[], tuple[Sequence[Allocation], Sequence[Allocation]]],
    partner: Mapping[int, int],
) -> str:
    """What the second launch was asked for otherwise than the first; empty where nothing.

    ``lives`` gives the allocations alive at each launch, ``partner`` maps those of the first trace to the
    second's: a parameter that points to the same place of both is the same.
    """
    for field, words in _SHAPE:
        here, there = getattr(first, field), getattr(second, field)
        if here != there:
            return f"its {words} is {_text(here)} here and {_text(there)} there"
    if len(first.parameters) != len(second.parameters):
        return f"it has {len(first.parameters)} bytes of parameters here and {len(second.parameters)} there"
    if first.parameters == second.parameters:
        return ""
    places = [_Places(allocations) for allocations in lives()]
    for name, here, there in _words(first, second):
        if here != there and not _same_place(places, here, there, partner):
            return f"{name} is {_hex(here)} here and {_hex(there)} there"
    return ""


class _Places:
    """Addresses as (allocation, offset)."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        self._spans = LiveSpans()
        for one in allocations:
            self._spans.add(one.id, one.base, one.size)

    def of(self, word: bytes) -> tuple[int, int] | None:
        address = int.from_bytes(word, "little")
        key = self._spans.find(address) if len(word) == 8 else None
        return None if key is None else (key, address - self._spans.range_of(key)[0])


def _same_place(places: list[_Places], here: bytes, there: bytes, partner: Mapping[int, int]) -> bool:
    ours, theirs = places[0].of(here), places[1].of(there)
    return ours is not None and theirs is not None and (partner.get(ours[0]), ours[1]) == theirs


def _words(first: Launch, second: Launch) -> Iterator[tuple[str, bytes, bytes]]:
    """(what it is, its bytes in each) of the parameters, structures by words of 8 bytes.

    Bytes between parameters are anything, so they are left out where the layout is known.
    """
    layout = first.layout if first.layout is not None else ((0, len(first.parameters)),)
    for index, (offset, size) in enumerate(layout):
        name = f"parameter {index}" if first.layout is not None else "a parameter"
        for at in range(offset, offset + size, 8):
            end = min(at + 8, offset + size)
            yield name, first.parameters[at:end], second.parameters[at:end]


def _text(value: int | tuple[int, ...]) -> str:
    return "×".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _hex(word: bytes) -> str:
    return f"{int.from_bytes(word, 'little'):#x}"
