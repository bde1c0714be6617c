"""Regular expressions that are compiled when they are first used, not when their module is imported.

:mod:`re` takes up to a millisecond for one, and most commands use few of those in the modules they import.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["pattern"]


class _Later:
    """Stands for a pattern: its first use compiles it, and keeps the method that was used."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)  # re remembers what it compiled
        setattr(self, name, found)
        return found


if TYPE_CHECKING:

    def pattern(text: str, flags: re.RegexFlag | int = 0) -> re.Pattern[str]:
        """What ``re.compile(text, flags)`` gives, or stands for it."""
        ...

else:
    pattern = lambda text, flags=0: _Later(text, int(flags))  # noqa: E731
