"""The record's CUDA arrays in a replay: their handles, and what texture and surface objects reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zluda.diff.results import Verdict
from zluda.records import dataclass
from zluda.replay.handles import Unavailable, Unplayable
from zluda.tracefile.arrays import ArrayShape


@dataclass(frozen=True, slots=True)
class LiveArray:
    """An array of the replay. ``address`` is where its linearised contents lie, 0 where they do not lie so;
    ``context`` the one it was made in, with which it goes.
    """

    shape: ArrayShape
    handle: int
    address: int
    context: int


class Arrays:
    """Recorded handles of arrays, and the objects and references over them and over linear memory."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, int, int]] = {}  # handle → (allocation, its base, level)
        self._objects: dict[tuple[str, int], tuple[int, int]] = {}  # (kind, handle) → (live handle, target)
        self._targets: dict[int, set[int]] = {}  # handle → targets of the objects that have it

    # --- arrays -----------------------------------------------------------------------------------------

    def add(self, handle: int, allocation: int, base: int) -> None:
        """An array, or a mipmapped array, with its first level."""
        self._places[handle] = (allocation, base, 0)

    def add_level(self, handle: int, whole: int, level: int) -> None:
        """The array that is a level of ``whole``."""
        if whole in self._places:
            allocation, base, _ = self._places[whole]
            self._places[handle] = (allocation, base, level)

    def remove(self, handle: int) -> None:
        """An array ended, and its levels with it."""
        gone = self._places.pop(handle, None)
        if gone is not None:
            self._places = {key: one for key, one in self._places.items() if one[0] != gone[0]}

    def place(self, handle: int) -> tuple[int, int]:
        """(allocation, level) of an array; raises Unplayable where the record has none."""
        allocation, _, level = self._find(handle)
        return allocation, level

    def base_of(self, handle: int) -> int:
        """The number that the record has in place of an address."""
        return self._find(handle)[1]

    def _find(self, handle: int) -> tuple[int, int, int]:
        found = self._places.get(handle)
        if found is None:
            raise Unplayable(Unavailable(Verdict.GAP, f"array {handle:#x} is not on record"))
        return found

    # --- objects ----------------------------------------------------------------------------------------

    def add_object(self, kind: str, handle: int, live: int, target: int) -> None:
        """A texture or surface object, or (kind ``reference``) what one is bound to; target 0 unbinds it."""
        self.remove_object(kind, handle)
        if target:
            self._objects[kind, handle] = (live, target)
            if kind != "reference":
                self._targets.setdefault(handle, set()).add(target)

    def remove_object(self, kind: str, handle: int) -> None:
        gone = self._objects.pop((kind, handle), None)
        if gone is not None and kind != "reference":
            left = {one[1] for (_, value), one in self._objects.items() if value == handle}
            self._targets[handle] = left
            if not left:
                del self._targets[handle]

    def reached_by(self, data: bytes | memoryview) -> list[int]:
        """Targets (addresses, or numbers of arrays) of the objects whose handles are words of ``data``."""
        if not self._targets:
            return []
        words = set(memoryview(data)[: len(data) // 8 * 8].cast("B").cast("Q"))
        return [target for handle in sorted(words & self._targets.keys()) for target in self._targets[handle]]

    def referenced(self) -> list[int]:
        """Targets of all references: any launch may use them."""
        return [target for (kind, _), (_, target) in self._objects.items() if kind == "reference"]

    def elsewhere(self) -> dict[int, int]:
        """Recorded handles of objects → the replay's, where those differ."""
        found = ((handle, live) for (kind, handle), (live, _) in self._objects.items() if kind != "reference")
        return {handle: live for handle, live in found if handle != live}


def targets_to_keys(
    targets: Iterable[int], arrays: dict[int, int], find: Callable[[int], int | None]
) -> list[int]:
    """Ids of the live allocations that targets name: arrays by their number, memory by an address in it."""
    found = (arrays[target] if target in arrays else find(target) for target in targets)
    return [key for key in found if key is not None]
