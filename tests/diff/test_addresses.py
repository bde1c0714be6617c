"""Addresses stored in memory, compared by what they point to."""

from __future__ import annotations

import struct

import pytest

from zluda.diff.addresses import same_places
from zluda.tracefile.reachability import LiveSpans


def spans(*allocations: tuple[int, int, int]) -> LiveSpans:
    found = LiveSpans()
    for key, base, size in allocations:
        found.add(key, base, size)
    return found


OURS = spans((1, 0x1000, 0x100), (2, 0x2000, 0x100))
THEIRS = spans((7, 0x9000, 0x100), (8, 0xA000, 0x100))
PARTNER = {1: 7, 2: 8}


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        (0x1010, 0x9010, True),
        (0x1010, 0x9018, False),  # another offset
        (0x1010, 0xA010, False),  # another allocation
        (0x1010, 0x5010, False),  # nowhere
        (5, 6, False),
    ],
)
def test_words_that_point_to_the_same_place_are_the_same(here: int, there: int, same: bool) -> None:
    left, right = words(1, here), words(1, there)
    assert same_places(left, right, 0, OURS, THEIRS, PARTNER) == (left if same else right)


def test_words_are_where_addresses_are_aligned() -> None:
    left, right = b"abcd" + words(0x2008), b"abcd" + words(0xA008)
    assert same_places(left, right, 4, OURS, THEIRS, PARTNER) == left
    assert same_places(left, right, 0, OURS, THEIRS, PARTNER) == right
    assert same_places(b"abc", b"abd", 3, OURS, THEIRS, PARTNER) == b"abd"
