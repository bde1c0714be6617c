"""Choosing what of a run is recorded: which launches have their memory on record, and up to what size.

A launch is chosen if every option that is given chooses it: it lies in the window (``start_on``,
``stop_on``), its number among the launches there is asked for (``launches``), its kernel's name is
(``kernel``), and its kernel was launched in its shape less than ``sample`` times among those.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from zluda.errors import Error
from zluda.records import dataclass

MAX_RANGES, MARKER_NAME_BYTES = 64, 248
_FOREVER = (1 << 64) - 1
_COUNTERPARTS = {"cuProfilerStart": "cuProfilerStop"}
MARK_OPENS, MARK_CLOSES = 1, 2
_KINDS = {"": 0, "call": 1, "nvtx": 2}

_RANGE = re.compile(r"(\d+)(?:(-)(\d+)?(?:/(\d+))?)?")
_MARKER = re.compile(r"(?:(nvtx):(.+?)|(cu[A-Z]\w*))(?:#(\d+))?", re.DOTALL)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?")
_UNITS = {unit: power for power, unit in enumerate(("", "K", "M", "G", "T"))}

_HEAD = struct.Struct("<6I")
_MARKER_FIELDS = struct.Struct(f"<II{MARKER_NAME_BYTES}s")
_RANGE_FIELDS = struct.Struct("<3Q")
CHOICE_BYTES = _HEAD.size + 2 * _MARKER_FIELDS.size + MAX_RANGES * _RANGE_FIELDS.size
"""Size of the agent's ``struct choice``."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What opens or closes the window: a driver function's call, or an NVTX range; its ``occurrence``
    (1 is the first), or (0) each.
    """

    kind: str = ""  # call, nvtx; empty: none
    name: str = ""
    occurrence: int = 0

    @classmethod
    def parse(cls, text: str) -> Marker:
        """``cuCtxSynchronize``, ``cuLaunchKernel#3``, ``nvtx:step``, ``nvtx:step#2``."""
        match = _MARKER.fullmatch(text)
        if match is None or match[4] == "0":
            raise Error(
                f"marker {text!r}: expected a driver function (cuProfilerStart, cuCtxSynchronize#3) "
                "or an NVTX range (nvtx:step, nvtx:step#2)"
            )
        name = match[2] or match[3]
        if len(name.encode()) >= MARKER_NAME_BYTES:
            raise Error(f"marker {text!r}: names have at most {MARKER_NAME_BYTES - 1} bytes")
        return cls(match[1] or "call", name, int(match[4] or 0))

    def __str__(self) -> str:
        name = f"nvtx:{self.name}" if self.kind == "nvtx" else self.name
        return f"{name}#{self.occurrence}" if self.occurrence else name

    @property
    def end(self) -> Marker:
        """What closes a window that this opened, where nothing else is said; none for most calls."""
        if self.kind == "nvtx":
            return self
        if self.name in _COUNTERPARTS:
            return Marker("call", _COUNTERPARTS[self.name], self.occurrence)
        return Marker()

    def pack(self) -> bytes:
        return _MARKER_FIELDS.pack(_KINDS[self.kind], self.occurrence, self.name.encode())

    def is_call_of(self, row: dict[str, Any]) -> bool:
        """Whether a function of ``driver_api.json`` is meant, by its own name or without its suffixes."""
        return self.kind == "call" and self.name in (row["name"], row["base"])


def parse_launches(text: str) -> tuple[tuple[int, int, int], ...]:
    """``7``, ``100-200``, ``100-``, ``0-100/10`` with commas between → (first, last, step) of each."""
    ranges = []
    for word in text.split(","):
        match = _RANGE.fullmatch(word.strip())
        if match is None:
            raise Error(f"launches {text!r}: expected numbers from 0 as 7, 100-200, 100-, 0-100/10")
        first = int(match[1])
        last = int(match[3]) if match[3] else (_FOREVER if match[2] else first)
        step = int(match[4] or 1)
        if last < first or step == 0 or max(first, step) > _FOREVER or last > _FOREVER:
            raise Error(f"launches {text!r}: {word.strip()} holds nothing")
        ranges.append((first, last, step))
    if len(ranges) > MAX_RANGES:
        raise Error(f"launches {text!r}: at most {MAX_RANGES} ranges")
    return tuple(ranges)


def parse_size(text: str) -> int:
    """``2GB``, ``500 MB``, ``1.5GiB``, ``1000000`` → bytes."""
    match = _SIZE.fullmatch(text.strip())
    size = 0
    if match is not None:
        unit = (1024 if match[3] else 1000) ** _UNITS[match[2].upper()]
        size = int(float(match[1]) * unit)
    if match is None or (match[3] and not match[2]) or not 0 < size < 1 << 62:
        raise Error(f"size {text!r}: expected a number of bytes as 2GB, 500MB, 1.5GiB")
    return size


_JAVASCRIPT = {
    r"\A": r"(?<![\s\S])",
    r"\Z": r"(?![\s\S])",
    "(?P<": "(?<",
    "{,": "{0,",
    "[]": r"[\]",
    "[^]": r"[^\]",
}
_TOKEN = re.compile(
    r"""\\.                      # an escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]  # a set of characters
    | \(\?(?:P?<?[=!]|P<|.)?      # what a group is
    | \{,(?=\d+\})                # from 0 on
    | [*+?}]\+                    # a possessive repetition""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_GROUPS = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?P<"}
_LETTERS = frozenset("AZdDwWsSbBnrtfvxu")


def javascript_pattern(pattern: str) -> tuple[str, str]:
    """A regular expression, checked, and its flags, as the agent's JavaScript understands it.

    Raises :class:`Error` for what Python alone has: what JavaScript would refuse, or read as something else.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
    except (re.error, FutureWarning) as error:
        raise Error(f"kernel {pattern!r}: not a regular expression: {error}") from None
    flags = re.match(r"(?:\(\?[a-zA-Z]+\))*", pattern)
    letters = set() if flags is None else set(flags[0]) - set("(?)")
    if not letters <= set("ims"):
        raise Error(f"kernel {pattern!r}: of the flags, i, m and s can be used")

    def theirs(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("["):
            opening = "[^]" if token.startswith("[^]") else "[]" if token.startswith("[]") else ""
            return _JAVASCRIPT.get(opening, "") + _ESCAPE.sub(theirs, token[len(opening) :])
        unknown = token[0] == "\\" and token[1].isalpha() and token[1] not in _LETTERS
        possessive = token[0] != "\\" and token[1:] == "+"
        if unknown or possessive or (token.startswith("(?") and token not in _GROUPS):
            raise Error(f"kernel {pattern!r}: {token} cannot be used here, JavaScript does not have it")
        return _JAVASCRIPT.get(token, token)

    return _TOKEN.sub(theirs, pattern[flags.end() if flags is not None else 0 :]), "".join(sorted(letters))


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a run is recorded, parsed; everything, where nothing is given. See the module's words."""

    kernel: str = ""
    ranges: tuple[tuple[int, int, int], ...] = ()
    sample: int = 0  # launches of each kernel and shape; 0: all
    opens: Marker = Marker()
    closes: Marker = Marker()
    budget: int = 0  # bytes; 0: any number
    redact: bool = False
    given: dict[str, Any] = field(default_factory=dict)
    """The options as they were given, by name: what `meta` has under ``selection``."""

    @classmethod
    def parse(
        cls,
        *,
        kernel: str | None = None,
        launches: str | None = None,
        sample: int | None = None,
        start_on: str | None = None,
        stop_on: str | None = None,
        budget: str | None = None,
        redact: bool = False,
    ) -> Choice:
        """Read the options of ``zluda trace``; raises :class:`Error` naming the one that cannot be read."""
        if kernel is not None:
            javascript_pattern(kernel)
        if sample is not None and not 0 < sample < 1 << 31:
            raise Error(f"sample {sample}: expected a number of launches from 1")
        opens = Marker() if start_on is None else Marker.parse(start_on)
        options = {
            "kernel": kernel,
            "launches": launches,
            "sample": sample,
            "start_on": start_on,
            "stop_on": stop_on,
            "budget": budget,
        }
        return cls(
            kernel or "",
            () if launches is None else parse_launches(launches),
            sample or 0,
            opens,
            opens.end if stop_on is None else Marker.parse(stop_on),
            0 if budget is None else parse_size(budget),
            redact,
            {name: value for name, value in options.items() if value is not None},
        )

    @property
    def selective(self) -> bool:
        """Whether there may be launches that are not chosen, before any budget runs out."""
        return bool(self.kernel or self.ranges or self.sample or self.opens.kind or self.closes.kind)

    @property
    def needs_nvtx(self) -> bool:
        """Whether NVTX ranges open or close the window."""
        return "nvtx" in (self.opens.kind, self.closes.kind)

    def marks(self, row: dict[str, Any]) -> int:
        """What the call of a function does to the window."""
        opens, closes = self.opens.is_call_of(row), self.closes.is_call_of(row)
        return opens * MARK_OPENS | closes * MARK_CLOSES

    def skips(self, row: dict[str, Any]) -> bool:
        """Whether calls of a function are not recorded: frameworks ask the driver some twenty things for each
        launch, which no replay needs.
        """
        asks = row["effect"] == "query" and not (
            row.get("special") or row.get("replay") or row.get("unknown")
        )
        return self.selective and asks and "library" not in row and not self.marks(row)

    def check_names(self, rows: Iterable[dict[str, Any]]) -> None:
        """Raises :class:`Error` where a marker names a function that no driver of this table has."""
        for marker in (self.opens, self.closes):
            if marker.kind == "call" and not any(marker.is_call_of(row) for row in rows):
                raise Error(f"marker {str(marker)!r}: the driver has no such function")

    def pack(self) -> bytes:
        """The agent's ``struct choice``."""
        opens_later = bool(self.opens.kind)
        head = _HEAD.pack(
            self.selective, not opens_later, self.sample, bool(self.kernel), len(self.ranges), 0
        )
        ranges = b"".join(_RANGE_FIELDS.pack(*one) for one in self.ranges)
        return (head + self.opens.pack() + self.closes.pack() + ranges).ljust(CHOICE_BYTES, b"\0")
