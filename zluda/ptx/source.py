"""PTX text with its places: comments blanked out (same offsets), offsets to lines, errors that point."""

from __future__ import annotations

import bisect
import re
from functools import cached_property

from zluda.errors import PtxError
from zluda.patterns import pattern
from zluda.ptx.module import Location

_COMMENT = pattern(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"\n]*"?', re.DOTALL)
_NOT_NEWLINE = pattern(r"[^\n]")


def blank_comments(text: str) -> str:
    """The text with each comment replaced by blanks, so that every offset and line stays the same."""
    if "//" not in text and "/*" not in text:
        return text

    def blank(match: re.Match[str]) -> str:
        comment = match.group()
        if comment[0] == '"':
            return comment
        return " " * len(comment) if "\n" not in comment else _NOT_NEWLINE.sub(" ", comment)

    return _COMMENT.sub(blank, text)


class Source:
    """One PTX text. ``text`` is as given, ``code`` has comments blanked at the same offsets."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.code = blank_comments(text)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    def location(self, offset: int) -> Location:
        """Line and column (1-based) of an offset."""
        line = bisect.bisect_right(self._line_starts, offset)
        return Location(line, offset - self._line_starts[line - 1] + 1)

    def error(self, offset: int, message: str, text: str = "", expected: str = "") -> PtxError:
        """A :class:`PtxError` at an offset; the offending text is cut to one readable piece."""
        place = self.location(min(offset, len(self.text)))
        shown = " ".join(text.split())
        return PtxError(
            message,
            file=self.file,
            line=place.line,
            column=place.column,
            text=shown if len(shown) <= 60 else shown[:57] + "...",
            expected=expected,
        )

    def skip_blank(self, offset: int) -> int:
        """The offset of the next character that is no white space."""
        match = _BLANK.match(self.code, offset)
        return match.end() if match else offset


_BLANK = pattern(r"\s*")
