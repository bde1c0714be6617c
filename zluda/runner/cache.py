"""The kernel cache of a confined runner, near side: its entries come and go through the channel.

A confined process opens no file, so it (``far_cache.py``) asks the near side for an entry while a command is
under way: a message ``(None, ("get", key))`` where a reply would be, answered by the payload or None.
``(None, ("put", key, payload, label))`` is answered by None.

What such a process says is not to be believed once it has executed a trace's code: a kernel may have written
anywhere in it. So what it puts is kept apart, under a key made of its own and the *scope* the near side
chose (the trace), with a suffix that no other process reads: it comes back only into a confined runner over
the same trace. A hostile trace can spoil its own replays and nothing else. Entries of this user's own making
(``zluda precompile``, unconfined devices) are read by every runner.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from zluda.compiler.cache.store import CONFINED, KEY, Store
from zluda.runner.channel import ChannelError

_SHARE = 4  # a runner may fill this part of the store: a quarter


class NearCache:
    """Answers what a runner asks. ``scope`` is whose entries they are; where it is empty none are kept."""

    def __init__(self, store: Store, scope: str) -> None:
        self._store, self._scope = store, scope
        self._left = store.limit // _SHARE

    def answer(self, question: Any) -> bytes | None:
        """The answer to a question; ChannelError for what no runner asks."""
        match question:
            case ("get", str(key)) if KEY.fullmatch(key):
                found = self._store.get(key)
                if found is None and self._scope:
                    found = self._store.get(self._scoped(key), CONFINED)
                return found
            case ("put", str(key), bytes() | memoryview() as payload, str(label)) if KEY.fullmatch(key):
                self._put(key, bytes(payload), label)
                return None
        raise ChannelError("a question to the kernel cache that none of its sides asks")

    def _put(self, key: str, payload: bytes, label: str) -> None:
        if self._scope and len(payload) <= self._left:
            self._left -= len(payload)
            printable = "".join(c for c in label if c.isprintable())
            self._store.put(self._scoped(key), payload, label=printable, suffix=CONFINED)

    def _scoped(self, key: str) -> str:
        return hashlib.blake2b(f"{self._scope}\0{key}".encode(), digest_size=32).hexdigest()


def file_scope(path: str | os.PathLike[str]) -> str:
    """A scope that only this very file has: nobody can give another file its time of status change."""
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_ctime_ns}"
