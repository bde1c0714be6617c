"""Which calls a person means: ``17``, ``0-100``, ``0-100/2``, ``kernel:regex``, ``@file``, with commas
between.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from zluda.errors import Error
from zluda.records import dataclass

_CALLS = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?:/(\d{1,18}))?)?")  # as many digits as 63 bits always take
_GRAMMAR = "17, 0-100, 0-100/2, kernel:regex or @file"


@dataclass(frozen=True)
class Selection:
    """A set of calls by number (ends included) and of launches by kernel name; empty means every call.
    ``within``: only those of it that are among these.
    """

    ranges: tuple[range, ...] = ()
    kernels: tuple[re.Pattern[str], ...] = ()
    within: Container[int] | None = None

    @classmethod
    def parse(cls, texts: str | Iterable[str]) -> Selection:
        """Read selections; raises :class:`Error` naming the word that is none, the file that cannot be read,
        or the selection that holds nothing (nothing given at all selects everything).
        """
        ranges: list[range] = []
        kernels: list[re.Pattern[str]] = []
        given = [texts] if isinstance(texts, str) else list(texts)
        words = list(_words(given, ()))
        if given and not words:
            raise Error(f"selection {', '.join(map(repr, given))}: nothing in it; expected {_GRAMMAR}")
        for word in words:
            if word.startswith("kernel:"):
                kernels.append(_pattern(word))
            else:
                ranges.append(_range(word))
        return cls(tuple(ranges), tuple(kernels))

    def __bool__(self) -> bool:
        """False when nothing was given, which selects everything."""
        return bool(self.ranges or self.kernels or self.within is not None)

    def contains(self, call: int, kernel: str | None = None) -> bool:
        """Is this call meant? ``kernel`` is the name a launch has; it matches anywhere unless the regex is
        anchored.
        """
        if self.within is not None and call not in self.within:
            return False
        if not (self.ranges or self.kernels):
            return True
        if any(call in numbers for numbers in self.ranges):
            return True
        return kernel is not None and any(pattern.search(kernel) for pattern in self.kernels)

    def share(self, calls: Container[int]) -> Selection:
        """What of this selection is among ``calls``."""
        return replace(self, within=calls)

    @property
    def bounds(self) -> tuple[int, int | None]:
        """(start, stop) outside of which nothing can be selected; stop None: no bound."""
        if self.kernels or not self.ranges:
            return 0, None
        return min(numbers.start for numbers in self.ranges), max(numbers.stop for numbers in self.ranges)


def _words(texts: Iterable[str], files: tuple[Path, ...]) -> Iterator[str]:
    for text in texts:
        for word in _split(text.strip()):
            if word.startswith("@"):
                yield from _file_words(Path(word[1:]), files)
            else:
                yield word


def _split(text: str) -> list[str]:
    """At commas; a ``kernel:`` or ``@`` selection takes the rest: a regex or a name may hold commas."""
    words: list[str] = []
    while text := text.strip(", "):
        if text.startswith(("kernel:", "@")):
            return [*words, text]
        word, _, text = text.partition(",")
        words.append(word.strip())
    return words


def _file_words(path: Path, files: tuple[Path, ...]) -> Iterator[str]:
    """One selection a line; ``#`` starts a comment line."""
    if path in files:
        raise Error(f"selection @{path}: the file includes itself")
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"selection @{path}: {getattr(error, 'strerror', None) or error}") from error
    yield from _words((line for line in lines if not line.lstrip().startswith("#")), (*files, path))


def _pattern(word: str) -> re.Pattern[str]:
    try:
        return re.compile(word.removeprefix("kernel:"))
    except re.error as error:
        raise Error(f"selection {word!r}: not a regular expression: {error}") from error


def _range(word: str) -> range:
    match = _CALLS.fullmatch(word)
    if match is None:
        raise Error(f"selection {word!r}: expected {_GRAMMAR}")
    start = int(match[1])
    end = int(match[2] or start)
    step = int(match[3] or 1)
    if end < start or step == 0:
        raise Error(f"selection {word!r}: expected a range that is not empty, and a step of at least 1")
    return range(start, end + 1, step)
