"""Which allocations a launch reaches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from trace_builder import words

from zluda.tracefile.reachability import NESTED_LIMIT, LiveSpans, reachable

A, B, C, D = 0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000


def spans_of(**sizes: int) -> LiveSpans:
    spans = LiveSpans()
    for key, (name, size) in enumerate(sizes.items()):
        spans.add(key, {"a": A, "b": B, "c": C, "d": D}[name], size)
    return spans


def test_pointers_in_parameters_reach_what_they_point_into() -> None:
    spans = spans_of(a=64, b=64, c=64)
    assert reachable(words(B + 63, 7, A), spans, lambda key: b"") == [1, 0]
    assert reachable(words(B + 64, B - 1), spans, lambda key: b"") == []


def test_only_aligned_words_are_pointers() -> None:
    assert reachable(b"\0\0\0\0" + words(A) + b"\0\0\0\0", spans_of(a=64), lambda key: b"") == []


def test_pointers_in_memory_are_followed_once() -> None:
    spans = spans_of(a=16, b=16, c=16)
    contents = {0: words(1, B), 1: words(C, 2), 2: words(0, 0)}
    assert reachable(words(A), spans, contents.__getitem__) == [0, 1]


def test_the_modules_globals_are_reached_and_followed() -> None:
    spans = spans_of(a=16, b=16)
    assert reachable(b"", spans, lambda key: words(B, 0) if key == 0 else words(0, 0), roots=[0]) == [0, 1]


def test_large_allocations_are_not_scanned() -> None:
    spans = spans_of(a=NESTED_LIMIT, b=16)
    assert reachable(words(A), spans, lambda key: words(B)) == [0]


def test_dead_allocations_are_not_reached() -> None:
    spans = spans_of(a=64, b=64)
    spans.remove(0)
    spans.add(7, B, 32)  # the same base again: a new generation
    assert reachable(words(A, B), spans, lambda key: b"") == [7]
    assert list(spans) == [7]


@given(st.lists(st.integers(0, 40), max_size=40), st.lists(st.integers(0, 400), max_size=8, unique=True))
def test_find_agrees_with_looking_at_every_allocation(words_: list[int], bases: list[int]) -> None:
    live = {key: (base * 10, 7) for key, base in enumerate(bases)}
    spans = LiveSpans()
    for key, (base, size) in live.items():
        spans.add(key, base, size)
    for word in words_:
        expected = [key for key, (base, size) in live.items() if base <= word < base + size]
        assert spans.find(word) == (expected[0] if expected else None)
    hits = dict.fromkeys(k for w in words_ for k, (b, s) in live.items() if b <= w < b + s)
    assert spans.pointed_to(words(*words_)) == list(hits)
