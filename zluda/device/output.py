"""What device code printed: the ring its records lie in, and their text.

The records are written by ``zluda/compiler/services/output.cu``, whose head says how they are laid out.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator

from zluda.device.base import Device
from zluda.records import dataclass

_STAMP = 0x5A4C5544412D7072
_HEADER, _WORD = 24, 8
_PRINTED, _ASSERTED = range(2)
_ASSERT_WORDS = 9
_LONGEST = 1 << 16  # bytes of one converted value: a width may ask for more than memory has
_NULL = (1 << 64) - 1

# CUDA C++ Programming Guide, "Format Specifiers": %[flags][width][.precision][size]type
_CONVERSION = re.compile(
    rb"%(?P<flags>[# 0+-]*)(?P<width>\*?\d*)(?P<point>\.)?(?(point)(?P<precision>\d*))"
    rb"(?P<size>h|[ljzt]*)(?P<type>[diouxXceEfFgGaAps%])"
)
_SIGNED = frozenset(b"di")
_FLOATING = frozenset(b"eEfFgGaA")


@dataclass(frozen=True, slots=True)
class Output:
    """Text in the order in which records were begun.

    ``complaint`` says what was lost, overwritten by later records; ``failed`` is the message of the first
    assertion that failed.
    """

    text: str = ""
    complaint: str = ""
    failed: str = ""


class Ring:
    """A ring in device memory: its size and head, then the records."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self._taken = 0

    @classmethod
    def make(cls, device: Device, capacity: int) -> Ring:
        """One with room for ``capacity`` bytes, rounded up to a power of two."""
        size = 1 << max(capacity - 1, 1023).bit_length()
        address = device.allocate(2 * _WORD + size)
        device.write(address, struct.pack("<QQ", size, 0))
        return cls(address, size)

    def take(self, device: Device) -> Output:
        """What was written since the last time."""
        (head,) = struct.unpack("<Q", device.read(self.address + _WORD, _WORD))
        if head == self._taken:
            return Output()
        start = max(self._taken, head - self.size)
        data = self._read(device, start, head)
        first = _first_record(data, start)
        lost, self._taken = first + start - self._taken, head
        texts: list[str] = []
        failed = ""
        for kind, words, pieces in _records(data, start, first):
            if kind == _ASSERTED:
                failed = failed or _assertion(words, pieces)
            else:
                texts.append(_printed(words, pieces))
        return Output("".join(texts), self._complaint(lost), failed)

    def _complaint(self, lost: int) -> str:
        if not lost:
            return ""
        return (
            f"{lost} bytes of the oldest printf output were overwritten: the buffer holds {self.size} "
            "(cuCtxSetLimit, CU_LIMIT_PRINTF_FIFO_SIZE)"
        )

    def _read(self, device: Device, start: int, end: int) -> bytes:
        begin, stop = start % self.size, start % self.size + end - start
        records = self.address + 2 * _WORD
        if stop <= self.size:
            return device.read(records + begin, stop - begin)
        return device.read(records + begin, self.size - begin) + device.read(records, stop - self.size)


def _first_record(data: bytes, start: int) -> int:
    """Offset of the first record whose head was not overwritten: it bears its own position."""
    for offset in range(0, len(data) - _HEADER + 1, _WORD):
        if struct.unpack_from("<Q", data, offset)[0] == (start + offset) ^ _STAMP:
            return offset
    return len(data)


Record = tuple[int, tuple[int, ...], bytes]
"""Kind, words of the arguments behind the format's length, texts."""


def _records(data: bytes, start: int, offset: int) -> Iterator[Record]:
    while offset + _HEADER <= len(data):
        stamp, sizes, length = struct.unpack_from("<QQQ", data, offset)
        size, count, kind = sizes & 0xFFFFFFFF, sizes >> 32 & 0xFFFF, sizes >> 48
        whole = _HEADER + _WORD * count <= size <= len(data) - offset
        if stamp != (start + offset) ^ _STAMP or not whole:
            return  # its writer was stopped half-way, or overwritten while it wrote
        words = struct.unpack_from(f"<{count}Q", data, offset + _HEADER)
        yield kind, (length, *words), data[offset + _HEADER + _WORD * count : offset + size]
        offset += size


class _Texts:
    """The strings of a record, one after the other, each padded to whole words."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, length: int) -> bytes:
        text = self._data[self._at : self._at + length]
        self._at += -(-length // _WORD) * _WORD
        return text


def _assertion(words: tuple[int, ...], data: bytes) -> str:
    """As CUDA says it: place, block, thread, what was asserted."""
    if len(words) != 1 + _ASSERT_WORDS:
        return "an assertion"
    texts = _Texts(data)
    message, file, function = (texts.take(n).decode(errors="replace") for n in (words[0], *words[8:]))
    block, thread = (",".join(map(str, words[i : i + 3])) for i in (2, 5))
    return (
        f"{file}:{words[1]}: {function}: block: [{block}], thread: [{thread}] Assertion `{message}` failed."
    )


def _printed(words: tuple[int, ...], data: bytes) -> str:
    """A record's text: each conversion by the C library, what is none as it stands."""
    texts = _Texts(data)
    format_, arguments = texts.take(words[0]), list(words[1:])

    def convert(match: re.Match[bytes]) -> bytes:
        if match["type"] == b"%":
            return b"%"
        stars = match["width"].count(b"*")
        if stars + 1 > len(arguments):  # beyond the 32 that vprintf takes: the specifier as it is
            return match[0]
        given = [arguments.pop(0) for _ in range(stars + 1)]
        return _converted(match, given, texts)

    return _CONVERSION.sub(convert, format_).decode(errors="replace")


def _converted(match: re.Match[bytes], given: list[int], texts: _Texts) -> bytes:
    kind, value = match["type"], given[-1]
    stars = iter(given[:-1])
    width = _number(match["width"], stars)
    precision = min(int(match["precision"][:9] or b"0"), _LONGEST // 2) if match["point"] else -1
    flags = match["flags"] + (b"-" if width < 0 else b"")
    if kind == b"s":
        text = b"(null)" if value == _NULL else texts.take(value)
        return _justified(text if precision < 0 else text[:precision], abs(width), left=b"-" in flags)
    spelled = b"%" + flags + b"%d" % abs(width) if width else b"%" + flags
    if precision >= 0:
        spelled += b".%d" % precision
    if kind[0] in _FLOATING:
        real: ctypes.c_double | ctypes.c_longlong | ctypes.c_int | ctypes.c_void_p
        real = ctypes.c_double(struct.unpack("<d", struct.pack("<Q", value))[0])
        return _snprintf(spelled + kind, real)
    if kind == b"p":
        return _snprintf(spelled + kind, ctypes.c_void_p(value))
    if kind == b"c":
        return _justified(bytes([value & 0xFF]), abs(width), left=b"-" in flags)
    bits = {b"h": 16, b"": 32}.get(match["size"], 64)
    value &= (1 << bits) - 1
    if kind[0] in _SIGNED and value >> (bits - 1):
        value -= 1 << bits
    return _snprintf(spelled + b"ll" + kind, ctypes.c_longlong(value))


def _number(written: bytes, stars: Iterator[int]) -> int:
    """A width: digits, or the int that a star takes; at most what one value may print as."""
    if written.startswith(b"*"):
        value = next(stars) & 0xFFFFFFFF
        value -= (value >> 31) << 32
    else:
        value = int(written[:9] or b"0")
    return max(min(value, _LONGEST // 2), -_LONGEST // 2)


def _justified(text: bytes, width: int, *, left: bool) -> bytes:
    return text.ljust(width) if left else text.rjust(width)


def _snprintf(
    specifier: bytes, value: ctypes.c_double | ctypes.c_longlong | ctypes.c_int | ctypes.c_void_p
) -> bytes:
    """One conversion as C spells it."""
    buffer = ctypes.create_string_buffer(_LONGEST)
    ctypes.CDLL(None).snprintf(buffer, ctypes.c_size_t(_LONGEST), specifier, value)
    return buffer.value
