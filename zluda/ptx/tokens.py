"""Tokens of declarations, with their places. (Bodies have a faster way: :mod:`zluda.ptx.body`.)"""

from __future__ import annotations

import re

from zluda.patterns import pattern
from zluda.ptx.constants import ConstantError, parse_integer
from zluda.ptx.source import Source

_TOKEN = pattern(r'\s*(\.[A-Za-z_]\w*(?:::\w+)*|[A-Za-z_$%][\w$]*|"[^"]*"|\d\w*(?:\.\d\w*)?|\S)')


class Tokens:
    """The tokens of one declaration, with their places."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        self.source, self.start, self.end = source, start, end
        self.at = start
        self.token, self.offset, self.after = "", start, start
        self.advance()

    def advance(self) -> str:
        """Move on; returns the token left behind."""
        previous = self.token
        match = _TOKEN.match(self.source.code, self.after, self.end)
        if match:
            self.token, self.offset, self.after = match.group(1), match.start(1), match.end(1)
        else:
            self.token, self.offset, self.after = "", self.end, self.end
        return previous

    def accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self.advance()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"{token!r}")

    def name(self) -> str:
        if not re.match(r"[A-Za-z_$%]", self.token):
            self.fail("a name")
        return self.advance()

    def integer(self) -> int:
        """A constant up to the next ``,`` ``;`` ``)`` ``]`` ``>`` or directive."""
        start = self.offset
        while self.token and self.token not in ",;)]>" and not re.match(r"[.A-Za-z_$%]", self.token):
            self.advance()
        text = self.source.code[start : self.offset]
        try:
            value = parse_integer(text)
        except ConstantError as error:
            raise self.source.error(start, error.message, text or self.token, "an integer") from None
        return value

    def fail(self, expected: str, message: str = "unexpected text") -> None:
        """Raise at the present token."""
        shown = self.token or self.source.code[self.offset : self.offset + 20].strip()
        raise self.source.error(self.offset, message, shown, expected)
