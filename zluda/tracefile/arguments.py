"""The bytes of a `call` row's ``arguments``.

Eight bytes a parameter, little-endian, in the order of the signature: the raw argument word. Then, in the
same order, for each parameter whose signature gives a pointee size, the bytes it points to: ``in`` as they
were before the call, ``out`` as they were after it, ``inout`` both, before then after. Pieces have fixed
places: what was not captured is zeros, or cut off at the end of the blob. A reader believes a piece if the
pointer is not NULL, and one from after the call if in addition the call returned 0.

In a trace that requires :data:`zluda.tracefile.schema.SQUEEZED` bytes of another length than all words and
pieces have together are *squeezed*: a bit for each byte, the first byte's lowest, set where the byte is not
zero, filled up to whole bytes; then those bytes. Most bytes of a launch's are zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

from zluda.tracefile.records import Direction, Parameter

# Direction → (is there a piece from before the call, is there one from after it).
_PIECES = {
    Direction.VALUE: (False, False),
    Direction.IN: (True, False),
    Direction.OUT: (False, True),
    Direction.INOUT: (True, True),
}

Pointees = dict[str, int | bytes]

_DIGITS = b"0" + b"1" * 255


def squeeze(arguments: bytes) -> bytes:
    """``arguments``, which are whole, without their zeros; as they are where that would be no shorter."""
    if not arguments:
        return arguments
    bits = int(arguments[::-1].translate(_DIGITS), 2).to_bytes(_bitmap_bytes(len(arguments)), "little")
    squeezed = bits + arguments.translate(None, b"\0")
    return squeezed if len(squeezed) < len(arguments) else arguments


def expand(squeezed: bytes, size: int) -> bytes:
    """The ``size`` bytes of arguments that :func:`squeeze` made ``squeezed`` of; ValueError for anything
    else.
    """
    start = _bitmap_bytes(size)
    if start <= len(squeezed):  # or else a size that somebody made up would be believed
        places = _places(squeezed[:start])
        if len(squeezed) - start == len(places) and (not places or places[-1] < size):
            whole = bytearray(size)
            for place, byte in zip(places, squeezed[start:], strict=True):
                whole[place] = byte
            return bytes(whole)
    raise ValueError(f"{len(squeezed)} bytes of squeezed arguments do not stand for {size}")


def _bitmap_bytes(size: int) -> int:
    return -(-size // 8)


@lru_cache(maxsize=1024)
def _places(bitmap: bytes) -> tuple[int, ...]:
    """Where a bit is set; few of them differ in a trace."""
    digits = f"{int.from_bytes(bitmap, 'little'):b}"[::-1]
    return tuple(place for place, digit in enumerate(digits) if digit == "1")


class ArgumentLayout:
    """Where the words and pieces of one signature's blobs lie.

    ``before`` and ``after`` map a parameter's index to the byte offset of its piece; ``size`` is the whole
    blob's length in bytes. ``squeezed``: blobs of another length are squeezed ones.
    """

    def __init__(self, parameters: Sequence[Parameter], *, squeezed: bool = False) -> None:
        self.parameters = tuple(parameters)
        self._squeezed = squeezed
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.size = 8 * len(self.parameters)
        self._names = [parameter.name for parameter in self.parameters]
        self._words = struct.Struct(f"<{len(self.parameters)}Q")
        for index, parameter in enumerate(self.parameters):
            if parameter.pointee_size:
                for present, places in zip(
                    _PIECES[parameter.direction], (self.before, self.after), strict=True
                ):
                    if present:
                        places[index] = self.size
                        self.size += parameter.pointee_size

    def encode(
        self,
        words: Sequence[int],
        before: Mapping[str, bytes] | None = None,
        after: Mapping[str, bytes] | None = None,
    ) -> bytes:
        """The blob of one call; ``before`` and ``after`` map parameter names to the bytes pointed to then."""
        blob = bytearray(self.size)
        self._words.pack_into(blob, 0, *words)
        for places, contents in ((self.before, before or {}), (self.after, after or {})):
            for index, offset in places.items():
                size = self.parameters[index].pointee_size
                blob[offset : offset + size] = contents.get(self._names[index], b"")[:size].ljust(size, b"\0")
        return bytes(blob)

    def decode(self, blob: bytes, result: int | None) -> tuple[dict[str, int], Pointees, Pointees]:
        """(arguments, pointees, pointees before) as :class:`zluda.tracefile.records.Call` holds them.

        Raises ValueError where the blob is shorter than its argument words, or not what was squeezed.
        """
        if self._squeezed and len(blob) != self.size:
            blob = expand(blob, self.size)
        if len(blob) < self._words.size:
            raise ValueError(f"{len(blob)} bytes of arguments, expected at least {self._words.size}")
        words = self._words.unpack_from(blob)
        pointees = self._pieces(self.before, words, blob)
        earlier = {self._names[index]: pointees.pop(self._names[index]) for index in self._both(pointees)}
        if result == 0:
            pointees |= self._pieces(self.after, words, blob)
        return dict(zip(self._names, words, strict=True)), pointees, earlier

    def _both(self, pointees: Pointees) -> list[int]:
        return [index for index in self.before if index in self.after and self._names[index] in pointees]

    def _pieces(self, places: Mapping[int, int], words: Sequence[int], blob: bytes) -> Pointees:
        found: Pointees = {}
        for index, offset in places.items():
            size = self.parameters[index].pointee_size
            if words[index] and offset + size <= len(blob):
                data = blob[offset : offset + size]
                found[self._names[index]] = int.from_bytes(data, "little") if size <= 8 else data
        return found
