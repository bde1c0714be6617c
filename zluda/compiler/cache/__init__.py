"""The kernel cache: machine code found again by what its kernel means.

Owns a kernel's normal form (``normal.py``), the key made of it (``key.py``), what an entry holds
(``entry.py``), the directory of entries and its limits (``store.py``), and the file they are exported to
(``archive.py``). May import what ``zluda.compiler`` may. Keys are 64 hexadecimal digits, entries are bytes.

A process has one cache, :func:`current`: the user's directory unless ``ZLUDA_CACHE_POLICY`` is ``off``. A
confined runner is given one that asks the near side (``zluda/runner/cache.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from zluda import config

if TYPE_CHECKING:
    from zluda.compiler.cache.store import Store

__all__ = ["Cache", "current", "open_store", "prepare", "remember", "use", "using"]


class Cache(Protocol):
    """Where entries are. Neither method fails: what cannot be had is None, what cannot be kept is not."""

    def get(self, key: str) -> bytes | None:
        """The payload last put under ``key``, whole and unchanged; None where there is none."""
        ...

    def put(self, key: str, payload: bytes, *, label: str = "") -> None:
        """Keep a payload. ``label`` says what it is to a person: the kernel's name and target."""
        ...


_UNDECIDED = object()
_current: Cache | object | None = _UNDECIDED


def current() -> Cache | None:
    """This process's cache; None where the policy is ``off``.

    Raises Error for a directory that others can write to: what lies there will be executed.
    """
    global _current
    if _current is _UNDECIDED:
        _current = open_store() if config.load().cache_policy != "off" else None
    return _current  # type: ignore[return-value]


def use(cache: Cache | None) -> None:
    """From now on :func:`current` is ``cache``."""
    global _current
    _current = cache


@contextmanager
def using(cache: Cache | None) -> Iterator[None]:
    """Within: :func:`current` is ``cache``."""
    global _current
    before = _current
    _current = cache
    try:
        yield
    finally:
        _current = before


def prepare() -> None:
    """Do what keys need once a process, so that the first kernel does not wait for it.

    Opens files: a runner calls it before it is confined.
    """
    from zluda.compiler.cache import key

    if current() is not None:
        key.compiler_version()
        key.host_version()


def open_store() -> Store | None:
    """The user's directory of entries, whatever the policy says; None where it cannot be made (logged)."""
    from zluda.compiler.cache import store

    return store.open_configured(config.load())


def remember(key: str, make: Callable[[], bytes], *, label: str = "") -> bytes:
    """The entry ``key`` of this process's cache, made and put there where it is missing.

    For machine code that is not a PTX kernel's: give :func:`~zluda.compiler.cache.key.host_key` all that
    the code depends on.
    """
    cache = current()
    found = cache.get(key) if cache is not None else None
    if found is None:
        found = make()
        if cache is not None:
            cache.put(key, found, label=label)
    return found
