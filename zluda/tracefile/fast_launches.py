"""The short way for plain launches: rows straight from the slots, a whole batch at a time.

A launch-bound application makes some 200,000 launches a second, each of them two records that stand side by
side and say nothing new: a kernel, a shape and attributes that have been seen before, no captured memory,
success. Everything else goes the long way through :class:`zluda.tracefile.effects.Effects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import repeat
from typing import TYPE_CHECKING, Any

from zluda.records import dataclass
from zluda.tracefile import ring
from zluda.tracefile.arguments import squeeze
from zluda.tracefile.ring_reader import Batch
from zluda.tracefile.writer import CallRow, LaunchRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEY_BYTES = 64
"""Kernel, grid, block, shared bytes: the first eight argument words of ``cuLaunchKernel``, which name a
shape.
"""
_WORDS_BYTES = 88
_STREAM_AT = 64
_PARAMETERS_AT = 72
_BODY = ring.RECORD_HEADER_BYTES

# Calls after which a handle may mean another kernel.
HANDLE_CALLS = (
    "get_function",
    "get_kernel",
    "module_load",
    "library_load",
    "module_unload",
    "library_unload",
)


@dataclass(slots=True)
class Rows:
    """What one batch of launches becomes."""

    calls: list[CallRow] = field(default_factory=list)
    launches: list[LaunchRow] = field(default_factory=list)


class FastLaunches:
    """Recognises plain launches of ``cuLaunchKernel`` in a batch."""

    def __init__(self, functions: Sequence[Mapping[str, Any]]) -> None:
        import numpy as np

        self._launches = np.array([f.get("special") == "launch" for f in functions])
        self._handles = np.array([f.get("special") in HANDLE_CALLS for f in functions])

    def changes_handles(self, batch: Batch) -> bool:
        """Whether the batch has a call that may change what a kernel handle means."""
        rows = batch.rows
        entered = rows["function"][rows["kind"] == ring.ENTER]
        return bool(self._handles[entered].any())

    def take(
        self, batch: Batch, shapes: Mapping[bytes, int], signature: Mapping[int, int]
    ) -> tuple[Rows, NDArray[np.int64]]:
        """Rows of the plain launches, and the indices of the records that are left.

        ``shapes`` maps the first :data:`KEY_BYTES` of a launch's arguments to a shape that is on record;
        ``signature`` the index of a function to its signature, for the functions that have one.
        """
        import numpy as np

        first = self._pairs(batch, signature)
        if not len(first):
            return Rows(), np.arange(len(batch.starts))
        slots = np.frombuffer(batch.data, np.uint8).reshape(-1, ring.SLOT_BYTES)
        starts = np.array(batch.starts)
        known = self._shapes(slots, starts[first], shapes)
        carried_out = (batch.rows["function"][first + 1] & ring.LEAVE_DEFERRED) == 0
        good = (known >= 0) & carried_out & self._succeeded(slots, starts[first + 1])
        first, known = first[good], known[good]
        left = np.ones(len(starts), bool)
        left[first] = left[first + 1] = False
        return self._rows(batch, slots, starts, first, known, signature), left.nonzero()[0]

    def _pairs(self, batch: Batch, signature: Mapping[int, int]) -> NDArray[np.int64]:
        """Indices of launches' ENTER records that their LEAVE follows at once."""
        import numpy as np

        rows = batch.rows
        kind, sequence = rows["kind"], rows["sequence"]
        entered = (kind[:-1] == ring.ENTER) & (kind[1:] == ring.LEAVE) & (sequence[:-1] == sequence[1:])
        first = entered.nonzero()[0]
        functions = rows["function"][first]
        usable = np.zeros(len(self._launches), bool)
        usable[[index for index in signature if self._launches[index]]] = True
        plain: NDArray[np.int64] = first[usable[functions]]
        return plain

    def _shapes(
        self, slots: NDArray[np.uint8], starts: NDArray[np.int64], shapes: Mapping[bytes, int]
    ) -> NDArray[np.int64]:
        """The shape of each launch, -1 where it is not on record yet."""
        import numpy as np

        keys = slots[starts, _BODY : _BODY + KEY_BYTES]
        if (keys == keys[0]).all():
            return np.full(len(starts), shapes.get(keys[0].tobytes(), -1))
        data, get = keys.tobytes(), shapes.get
        return np.array([get(data[at : at + KEY_BYTES], -1) for at in range(0, len(data), KEY_BYTES)])

    def _succeeded(self, slots: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        import numpy as np

        results = slots[starts, _BODY : _BODY + 4]
        return np.asarray(np.equal(results, 0).all(axis=1))

    def _rows(
        self,
        batch: Batch,
        slots: NDArray[np.uint8],
        starts: NDArray[np.int64],
        first: NDArray[np.int64],
        shape: NDArray[np.int64],
        signature: Mapping[int, int],
    ) -> Rows:
        import numpy as np

        entered, left, data = batch.rows[first], batch.rows[first + 1], batch.data
        begins = starts[first] * ring.SLOT_BYTES + _BODY
        packed = (begins + _WORDS_BYTES).tolist()
        ends = (begins + entered["length"]).tolist()
        stream_at = _BODY + _STREAM_AT
        stream = slots[starts[first], stream_at : stream_at + 8].copy().view("<i8")[:, 0].tolist()
        sequence = entered["sequence"].tolist()
        captured = np.frombuffer(ring.CAPTURED_OF_FLAGS, np.uint8)
        calls = zip(
            sequence,
            repeat(batch.ring.thread),
            _parents(entered["extra"]),
            _signatures(entered["function"], signature),
            entered["time"].tolist(),
            left["time"].tolist(),
            repeat(0),
            _arguments(slots, starts[first]),
        )
        launches = zip(
            sequence,
            shape.tolist(),
            stream,
            [data[at:end] for at, end in zip(packed, ends, strict=True)],
            repeat(None),
            captured[left["function"] & 0xFF].tolist(),
        )
        return Rows(list(calls), list(launches))


def _arguments(slots: NDArray[np.uint8], starts: NDArray[np.int64]) -> list[bytes]:
    """What is kept of each launch's argument words: all but ``kernelParams``, squeezed. That is an address in
    the program, of what `launch.parameters` has; without it launches of a kernel differ little.
    """
    words = slots[starts, _BODY : _BODY + _WORDS_BYTES]
    words[:, _PARAMETERS_AT : _PARAMETERS_AT + 8] = 0
    data, squeezed = words.tobytes(), dict[bytes, bytes]()
    keys = [data[at : at + _WORDS_BYTES] for at in range(0, len(data), _WORDS_BYTES)]
    for key in keys:
        if key not in squeezed:
            squeezed[key] = squeeze(key)
    return [squeezed[key] for key in keys]


def _parents(extra: NDArray[np.uint64]) -> Iterable[int | None]:
    """The call around each launch, None where there is none, as nearly everywhere."""
    if not extra.any():
        return repeat(None)
    return [number - 1 if number else None for number in extra.tolist()]


def _signatures(functions: NDArray[np.uint32], signature: Mapping[int, int]) -> Iterable[int]:
    if len(functions) and (functions == functions[0]).all():
        return repeat(signature[int(functions[0])])
    return [signature[index] for index in functions.tolist()]
