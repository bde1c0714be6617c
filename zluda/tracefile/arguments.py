"""The bytes of a `call` row's ``arguments``.

Eight bytes a parameter, little-endian, in the order of the signature: the raw argument word. Then, in the same
order, for each parameter whose signature gives a pointee size, the bytes it points to: ``in`` as they were before
the call, ``out`` as they were after it, ``inout`` both, before then after. Pieces have fixed places: what was not
captured is zeros, or cut off at the end of the blob. A reader believes a piece if the pointer is not NULL, and an
``out`` piece if in addition the call returned 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from zluda.tracefile.records import Direction, Parameter

_PIECES = {Direction.VALUE: 0, Direction.IN: 1, Direction.OUT: 1, Direction.INOUT: 2}


def encode(
    parameters: Sequence[Parameter],
    words: Sequence[int],
    before: Mapping[str, bytes] | None = None,
    after: Mapping[str, bytes] | None = None,
) -> bytes:
    """The blob for one call. ``before`` and ``after`` map parameter names to the bytes pointed to then."""
    parts = [struct.pack(f"<{len(words)}Q", *words)]
    for parameter in parameters:
        for source in _sources(parameter, before or {}, after or {}):
            parts.append(source.get(parameter.name, b"").ljust(parameter.pointee_size, b"\0"))
    return b"".join(parts)


def _sources(
    parameter: Parameter, before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> tuple[Mapping[str, bytes], ...]:
    if not parameter.pointee_size:
        return ()
    return {
        Direction.VALUE: (),
        Direction.IN: (before,),
        Direction.OUT: (after,),
        Direction.INOUT: (before, after),
    }[parameter.direction]


def piece_offsets(parameters: Sequence[Parameter]) -> list[tuple[int, int]]:
    """(offset before, offset after) of each parameter's pieces in the blob; -1 where it has none."""
    places: list[tuple[int, int]] = []
    offset = 8 * len(parameters)
    for parameter in parameters:
        size = parameter.pointee_size
        has_before = bool(size) and parameter.direction in (Direction.IN, Direction.INOUT)
        has_after = bool(size) and parameter.direction in (Direction.OUT, Direction.INOUT)
        places.append((offset if has_before else -1, offset + size * has_before if has_after else -1))
        offset += size * _PIECES[parameter.direction]
    return places


def decode(
    parameters: Sequence[Parameter], blob: bytes, result: int | None
) -> tuple[dict[str, int], dict[str, int | bytes], dict[str, int | bytes]]:
    """(arguments, pointees, pointees before) as :class:`zluda.tracefile.records.Call` holds them.

    Raises ValueError where the blob is shorter than its argument words.
    """
    count = len(parameters)
    if len(blob) < 8 * count:
        raise ValueError(f"{len(blob)} bytes of arguments, expected at least {8 * count}")
    words = struct.unpack_from(f"<{count}Q", blob)
    arguments = {parameter.name: word for parameter, word in zip(parameters, words, strict=True)}
    before: dict[str, int | bytes] = {}
    after: dict[str, int | bytes] = {}
    for parameter, word, (early, late) in zip(parameters, words, piece_offsets(parameters), strict=True):
        if not word:
            continue
        if early >= 0:
            _take(before, parameter, blob, early)
        if late >= 0 and result == 0:
            _take(after, parameter, blob, late)
    inout = {parameter.name for parameter in parameters if parameter.direction is Direction.INOUT}
    pointees = {name: value for name, value in before.items() if name not in inout} | after
    return arguments, pointees, {name: value for name, value in before.items() if name in inout}


def _take(found: dict[str, int | bytes], parameter: Parameter, blob: bytes, offset: int) -> None:
    data = blob[offset : offset + parameter.pointee_size]
    if len(data) == parameter.pointee_size:
        found[parameter.name] = int.from_bytes(data, "little") if len(data) <= 8 else data
