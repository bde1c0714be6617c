"""The kernel cache of a confined runner, its own side: see ``cache.py``. Imports nothing large."""

from __future__ import annotations

import os
from typing import Any

from zluda.runner.channel import Channel


class FarCache:
    """The runner's side; implements :class:`zluda.compiler.cache.Cache`. ``sequence`` is the command's."""

    def __init__(self, channel: Channel, bell: int, near_bell: int) -> None:
        self._channel, self._bell, self._near_bell = channel, bell, near_bell
        self.sequence = 0

    def get(self, key: str) -> bytes | None:
        found = self._ask("get", key)
        return bytes(found) if found is not None else None

    def put(self, key: str, payload: bytes, *, label: str = "") -> None:
        self._ask("put", key, payload, label)

    def _ask(self, *question: Any) -> Any:
        self._channel.send(self.sequence, (None, question))
        os.write(self._near_bell, b"\0")
        while os.read(self._bell, 1):
            received = self._channel.receive()
            if received is not None:
                return received[1]
        return None  # the near side has gone
