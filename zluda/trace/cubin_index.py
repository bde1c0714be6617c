"""An index of the machine code in compilers' caches, by length and digest.

A cache of Triton's has a directory for each kernel, thousands of them, and a program loads hundreds of
modules that are in none: so directories are listed once, and again only where their time of change says so.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

from zluda.records import dataclass

SUFFIX = ".cubin"
_YOUNG_NS = 5_000_000_000
"""A directory that changed less than this before it was listed may have changed since without telling: times
of change are coarse, and files come one after the other.
"""
_RECHECK_NS = 10_000_000_000
"""A directory without directories gets its files when it is made; older ones are asked again this rarely."""


@dataclass(slots=True)
class _Listing:
    """What was in a directory."""

    changed_ns: int
    listed_ns: int
    directories: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)  # path → size

    def is_settled(self, now_ns: int) -> bool:
        """Nothing is to be expected there soon."""
        old = self.listed_ns - self.changed_ns > _YOUNG_NS
        return old and not self.directories and now_ns - self.listed_ns < _RECHECK_NS


class CubinIndex:
    """Files named ``*.cubin`` below ``roots``, which may not be there yet."""

    def __init__(self, roots: Sequence[Path], *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._roots, self._now_ns = [str(root) for root in roots], now_ns
        self._listings: dict[str, _Listing] = {}
        self._of_size: dict[int, dict[str, None]] = {}  # in the order found
        self._digests: dict[str, bytes] = {}

    def find(self, cubin: bytes) -> Iterator[Path]:
        """Files with these bytes: those known already, then those that came since the last look."""
        wanted = hashlib.sha256(cubin).digest()
        told: set[str] = set()
        for refresh in (False, True):
            if refresh:
                self._refresh()
            for path in list(self._of_size.get(len(cubin), ())):
                if path not in told and self._digest(path) == wanted:
                    told.add(path)
                    yield Path(path)

    def _digest(self, path: str) -> bytes | None:
        if path not in self._digests:
            try:
                self._digests[path] = hashlib.sha256(Path(path).read_bytes()).digest()
            except OSError:
                return None  # evicted since
        return self._digests[path]

    def _refresh(self) -> None:
        now_ns = self._now_ns()
        waiting = list(self._roots)
        while waiting:
            place = waiting.pop()
            listing = self._listings.get(place)
            if listing is None or not listing.is_settled(now_ns):
                listing = self._look_again(place, listing, now_ns)
            if listing is not None:
                waiting += listing.directories

    def _look_again(self, place: str, known: _Listing | None, now_ns: int) -> _Listing | None:
        try:
            changed_ns = os.stat(place).st_mtime_ns
            if (
                known is not None
                and known.changed_ns == changed_ns
                and known.listed_ns - changed_ns > _YOUNG_NS
            ):
                known.listed_ns = now_ns
                return known
            listing = _list(place, changed_ns, now_ns)
        except OSError:  # not there, or not any more
            self._forget(self._listings.pop(place, None))
            return None
        self._forget(known)
        for path, size in listing.files.items():
            self._of_size.setdefault(size, {})[path] = None
        self._listings[place] = listing
        return listing

    def _forget(self, listing: _Listing | None) -> None:
        """What was in a directory is read anew: a file may have been replaced under its name."""
        for path, size in listing.files.items() if listing is not None else ():
            self._of_size[size].pop(path, None)
            self._digests.pop(path, None)


def _list(place: str, changed_ns: int, now_ns: int) -> _Listing:
    listing = _Listing(changed_ns, now_ns)
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                listing.directories.append(entry.path)
            elif entry.name.endswith(SUFFIX):
                listing.files[entry.path] = entry.stat().st_size
    return listing
