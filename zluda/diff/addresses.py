"""Addresses stored in memory, compared by what they point to: (allocation, offset)."""

from __future__ import annotations

from collections.abc import Mapping

from zluda.tracefile.reachability import LiveSpans

_WORD = 8


def same_places(
    left: bytes, right: bytes, start: int, ours: LiveSpans, theirs: LiveSpans, partner: Mapping[int, int]
) -> bytes:
    """``right`` with the left side's word for each aligned one that points to the same place as that does.

    Both are contents from byte ``start`` of an allocation on. Two words are the same place where each points
    into a live allocation of its side, these are partners, and the offsets in them are equal.
    """
    import numpy as np

    skipped = -start % _WORD
    whole = (len(left) - skipped) // _WORD * _WORD
    if whole <= 0:
        return right
    ends = slice(skipped, skipped + whole)
    here, there = (np.frombuffer(side[ends], "<u8") for side in (left, right))
    exchanged = bytearray(right)
    for index in np.flatnonzero(here != there).tolist():
        address, other = int(here[index]), int(there[index])
        key, other_key = ours.find(address), theirs.find(other)
        if key is None or other_key is None or partner.get(key) != other_key:
            continue
        if address - ours.range_of(key)[0] == other - theirs.range_of(other_key)[0]:
            at = skipped + index * _WORD
            exchanged[at : at + _WORD] = left[at : at + _WORD]
    return bytes(exchanged)
